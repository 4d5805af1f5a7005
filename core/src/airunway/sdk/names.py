"""Names derived from a deployment's name, within the length limits of upstreams."""

from __future__ import annotations

from airunway.plugins.contract import Finding
from airunway.resource import digest

__all__ = ["derived_name", "too_long"]

_DIGITS = 8


def derived_name(base: str, *, suffix: str = "", limit: int = 63) -> str:
    """``<base>-<suffix>`` within `limit` characters: a longer base is cut and gets a digest of the whole name.

    Raises ValueError if not even the digest fits.
    """
    name = f"{base}-{suffix}" if suffix else base
    if len(name) <= limit:
        return name
    room = limit - _DIGITS - 1 - (len(suffix) + 1 if suffix else 0)
    if room < 1:
        raise ValueError(f"no name of at most {limit} characters can end in {suffix!r}")
    short = f"{base[:room].rstrip('-')}-{digest(name, length=_DIGITS)}"
    return f"{short}-{suffix}" if suffix else short


def too_long(name: str, *, limit: int, what: str, path: str = "metadata.name") -> Finding | None:
    """The blocker for a deployment name that exceeds the `limit` of `what` ("a LeaderWorkerSet")."""
    if len(name) <= limit:
        return None
    text = f"{name!r} has {len(name)} characters; {what} leaves room for {limit}: give the deployment a shorter name"
    return Finding(path=path, reason="NameTooLong", message=text)
