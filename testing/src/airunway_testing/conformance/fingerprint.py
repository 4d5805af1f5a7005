"""What a provider makes of plain deployments, as one word, to be compared between processes.

`purity` runs it in processes of its own, so it imports no more than it needs.
"""

from __future__ import annotations

from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import load
from airunway.resource import digest
from airunway_testing.conformance.cases import bases, judged

__all__ = ["load", "of"]


def of(host: ProviderHost) -> str:
    """One word for all that a provider makes of plain deployments."""
    return digest([list(judged(host, base, base.spec).objects) for base in bases(host)])
