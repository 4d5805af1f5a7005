"""What is installed: parts, each a chart. Pure.

A part is called like its chart, and so is its release of Helm: ``airunway-crds``, ``airunway``,
``airunway-provider-NAME``.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["CORE", "DEFINITIONS", "NAMESPACE", "in_order", "provider_of", "provider_part"]

DEFINITIONS, CORE = "airunway-crds", "airunway"
NAMESPACE = "airunway-system"
"""Where AI Runway runs unless another namespace is given."""

_PROVIDER = "airunway-provider-"


def provider_part(provider: str) -> str:
    return f"{_PROVIDER}{provider}"


def provider_of(part: str) -> str:
    """The provider that a part brings; empty for the core and the CRDs."""
    return part.removeprefix(_PROVIDER) if part.startswith(_PROVIDER) else ""


def in_order(names: Iterable[str]) -> list[str]:
    """Those of the names that are parts', in the order in which parts are brought."""
    found = set(names)
    return [part for part in (DEFINITIONS, CORE) if part in found] + sorted(filter(provider_of, found))
