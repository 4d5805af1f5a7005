"""The catalogue: the state of templates, discovery, hardware, and scans of registries (spec platform.md)."""

from __future__ import annotations

__version__ = "0.1.0"
