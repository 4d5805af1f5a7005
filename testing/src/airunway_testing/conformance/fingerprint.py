"""What a provider makes of plain deployments, as one word, to be compared between processes.

`checks` runs it in processes of its own, so it imports no more than it needs.
"""

from __future__ import annotations

from airunway.plugins.registry import load
from airunway.resource import digest
from airunway_testing.conformance.cases import bases, judged


def fingerprint(name: str) -> str:
    """One word for all that the installed provider makes of plain deployments."""
    host = load(name)
    return digest([list(judged(host, base, base.spec).objects) for base in bases(host)])
