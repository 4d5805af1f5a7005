"""The catalogue: the state of templates, discovery, hardware, and scans of registries (docs/catalogue.md)."""

from __future__ import annotations

__version__ = "0.1.0"
