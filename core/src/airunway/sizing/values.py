"""Values that every part of sizing shares: terms with their source, and what is unknown or could not be read."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GIB", "KIB", "Term", "Unknown", "Unseen", "gib", "gibibytes"]

KIB = 2**10
GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Term:
    """One part of an estimate, in bytes per GPU."""

    name: str
    size: int
    """Bytes on one GPU."""
    source: str
    """Where the number comes from: a file, a flag, or a measurement with its release."""


@dataclass(frozen=True, kw_only=True)
class Unknown:
    """A quantity that cannot be computed; it is never replaced by 0."""

    why: str


@dataclass(frozen=True, kw_only=True)
class Unseen:
    """A part of the cluster that could not be read; it is never an empty list."""

    why: str
    right: str
    """The right that is missing, as ``verb resource`` (``list nodes``); empty if a right is not the reason."""


def gib(size: float) -> str:
    """Returns bytes as GiB (2^30) with one decimal; two below 1 GiB."""
    value = size / GIB
    return f"{value:.1f} GiB" if abs(value) >= 1 else f"{value:.2f} GiB"


def gibibytes(size: float) -> float:
    """Returns bytes as a number of GiB with three decimals, for JSON."""
    return round(size / GIB, 3)
