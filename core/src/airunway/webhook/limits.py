"""What the webhook's port takes: how many, how large, how slow. One definition, which tests make smaller.

Those of connections are in `process/connections.py`: the other ports of the process have them too.

Sizes follow from the API server: it stores objects of up to 1.5 MiB, a review has two of them at most, and nobody waits
longer than `TIMEOUT_SECONDS` for a verdict. Memory follows from the budget of the process (spec/quality.md, 300 MiB):
asyncio keeps 256 KiB for each TLS connection, so 128 connections are 32 MiB; large bodies get 64 MiB; and of large
reviews, which are 25 times their size once decoded, one is judged at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from airunway.process.connections import Cause, ConnectionLimits

__all__ = ["Limits", "TurnedAway"]

_KIB, _MIB = 2**10, 2**20


class TurnedAway(Exception):
    """A request that is answered with an HTTP `status` and a text instead of being judged."""

    def __init__(self, cause: Cause, status: int, text: str) -> None:
        super().__init__(text)
        self.cause = cause
        self.status = status


@dataclass(frozen=True, kw_only=True)
class Limits(ConnectionLimits):
    """Bytes end in ``_bytes``, times in ``_seconds``; the rest are counts of what there may be at a time."""

    body_seconds: float = 5.0
    """From the head to the end of the body."""

    wait_seconds: float = 3.0
    """How long a request waits for its turn before it is told to come back."""

    body_bytes: int = 4 * _MIB
    """Two objects of 1.5 MiB, who asks, and the escapes of JSON."""

    large_bytes: int = 32 * _KIB
    """A body above is large. Almost none is; so a flood of large ones takes nothing from the others."""

    memory_bytes: int = 64 * _MIB
    """Of the bodies of large reviews, each counted as `body_bytes`."""

    reviews: int = 32
    """Judged at a time; most of that time they wait for an answer of the API server."""
