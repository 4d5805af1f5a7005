"""What becomes of an error answer to a write upstream: the reason in the condition, and when it is tried again.

Pure. What the server meant is decided in `kube/error_kinds.py`; here it gets the words of the status (spec ruling 28).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airunway.kube import ApiError, ErrorKind, KubeError, RequestTimedOut, TransportError
from airunway.resource import Resource, key_of
from airunway.runtime.state import named

__all__ = ["MEANINGS", "Meaning", "Occupied", "Refused", "meaning_of"]


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """`refuses`: the server said no to what was asked, which is a condition at once; else it said "not now", which is
    told once it lasts. `lasts`: the same request is refused until the upstream's schema changes. `waits`: something
    else has to be there, or gone, first; nobody has to change the deployment.
    """

    reason: str
    refuses: bool = False
    lasts: bool = False
    waits: bool = False


_REFUSED = Meaning(reason="InvalidSpec", refuses=True)


MEANINGS: Mapping[ErrorKind, Meaning] = {
    ErrorKind.FORBIDDEN: Meaning(reason="Forbidden", refuses=True),
    ErrorKind.QUOTA: Meaning(reason="QuotaExceeded", refuses=True),
    ErrorKind.NAMESPACE_TERMINATING: Meaning(reason="Terminating", refuses=True, waits=True),
    ErrorKind.NAMESPACE_NOT_FOUND: Meaning(reason="Terminating", refuses=True, waits=True),
    ErrorKind.KIND_TERMINATING: Meaning(reason="UpstreamNotInstalled", refuses=True, waits=True),
    ErrorKind.KIND_NOT_SERVED: Meaning(reason="UpstreamNotInstalled", refuses=True, waits=True),
    ErrorKind.SCHEMA: Meaning(reason="InvalidSpec", refuses=True, lasts=True),
    ErrorKind.DENIED: _REFUSED,
    ErrorKind.INVALID: _REFUSED,
    ErrorKind.TOO_LARGE: _REFUSED,
    ErrorKind.UNAUTHENTICATED: Meaning(reason="Unauthorized"),
    ErrorKind.THROTTLED: Meaning(reason="RateLimited"),
    ErrorKind.WEBHOOK_FAILED: Meaning(reason="ServerError"),
    ErrorKind.SERVER_ERROR: Meaning(reason="ServerError"),
    ErrorKind.UID_MISMATCH: Meaning(reason="DependenciesUnreachable"),
    ErrorKind.ALREADY_EXISTS: Meaning(reason="DependenciesUnreachable"),
    ErrorKind.CONFLICT: Meaning(reason="DependenciesUnreachable"),
    ErrorKind.NOT_FOUND: Meaning(reason="DependenciesUnreachable"),
    ErrorKind.EXPIRED: Meaning(reason="DependenciesUnreachable"),
    ErrorKind.UNKNOWN: Meaning(reason="DependenciesUnreachable"),
}
"""Every kind of error; docs/architecture.md has the table for readers, and a test compares the two."""


def meaning_of(error: KubeError) -> Meaning:
    """What the status says of a failure to write."""
    match error:
        case ApiError():
            return MEANINGS[error.kind]
        case RequestTimedOut():
            return Meaning(reason="Timeout")
        case TransportError():
            return Meaning(reason="ConnectionRefused")
        case _:
            return Meaning(reason="DependenciesUnreachable")


class Refused(Exception):
    """The server will not take an object as it is, or we cannot address it (no `kind`). `obj` says which, no more."""

    def __init__(self, obj: Resource, message: str, kind: ErrorKind | None = None) -> None:
        super().__init__(f"{named(obj)} was refused: {message}")
        namespace, name = key_of(obj)
        metadata = {"namespace": namespace, "name": name}
        self.obj: Resource = {"apiVersion": obj.get("apiVersion"), "kind": obj.get("kind"), "metadata": metadata}
        self.message = message
        self.kind = kind

    @property
    def meaning(self) -> Meaning:
        return MEANINGS[self.kind or ErrorKind.INVALID]


class Occupied(Exception):
    """The API server says that an object is there already which was to be made."""
