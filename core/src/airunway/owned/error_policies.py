"""Maps errors of writes to what the status reports and when the write is retried (spec ruling 28). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airunway.kube import ApiError, ErrorKind, KubeError, RequestTimedOut, TransportError
from airunway.owned.objects import named
from airunway.resource import Resource, key_of

__all__ = ["POLICIES", "ErrorPolicy", "Occupied", "Refused", "policy_of"]


@dataclass(frozen=True, kw_only=True)
class ErrorPolicy:
    """How one kind of error is treated."""

    reason: str
    """Reason of the condition."""
    refuses: bool = False
    """True: a refusal, which is reported at once. False: a transient failure, which is reported once it lasts."""
    lasts: bool = False
    """Whether the same request is refused until the upstream's schema changes."""
    pending: bool = False
    """Whether another object must first exist or be deleted; the deployment needs no change."""


_REFUSED = ErrorPolicy(reason="InvalidSpec", refuses=True)


POLICIES: Mapping[ErrorKind, ErrorPolicy] = {
    ErrorKind.FORBIDDEN: ErrorPolicy(reason="Forbidden", refuses=True),
    ErrorKind.QUOTA: ErrorPolicy(reason="QuotaExceeded", refuses=True),
    ErrorKind.NAMESPACE_TERMINATING: ErrorPolicy(reason="Terminating", refuses=True, pending=True),
    ErrorKind.NAMESPACE_NOT_FOUND: ErrorPolicy(reason="Terminating", refuses=True, pending=True),
    ErrorKind.KIND_TERMINATING: ErrorPolicy(reason="UpstreamNotInstalled", refuses=True, pending=True),
    ErrorKind.KIND_NOT_SERVED: ErrorPolicy(reason="UpstreamNotInstalled", refuses=True, pending=True),
    ErrorKind.SCHEMA: ErrorPolicy(reason="InvalidSpec", refuses=True, lasts=True),
    ErrorKind.DENIED: _REFUSED,
    ErrorKind.INVALID: _REFUSED,
    ErrorKind.TOO_LARGE: _REFUSED,
    ErrorKind.UNAUTHENTICATED: ErrorPolicy(reason="Unauthorized"),
    ErrorKind.THROTTLED: ErrorPolicy(reason="RateLimited"),
    ErrorKind.WEBHOOK_FAILED: ErrorPolicy(reason="ServerError"),
    ErrorKind.SERVER_ERROR: ErrorPolicy(reason="ServerError"),
    ErrorKind.UID_MISMATCH: ErrorPolicy(reason="DependenciesUnreachable"),
    ErrorKind.ALREADY_EXISTS: ErrorPolicy(reason="DependenciesUnreachable"),
    ErrorKind.CONFLICT: ErrorPolicy(reason="DependenciesUnreachable"),
    ErrorKind.NOT_FOUND: ErrorPolicy(reason="DependenciesUnreachable"),
    ErrorKind.EXPIRED: ErrorPolicy(reason="DependenciesUnreachable"),
    ErrorKind.UNKNOWN: ErrorPolicy(reason="DependenciesUnreachable"),
}
"""The policy of every kind of error; a test compares docs/write-errors.md with it."""


def policy_of(error: KubeError) -> ErrorPolicy:
    """The policy for a failed write."""
    match error:
        case ApiError():
            return POLICIES[error.kind]
        case RequestTimedOut():
            return ErrorPolicy(reason="Timeout")
        case TransportError():
            return ErrorPolicy(reason="ConnectionRefused")
        case _:
            return ErrorPolicy(reason="DependenciesUnreachable")


class Refused(Exception):
    """The API server refuses an object, or does not serve its kind (no `kind`). `obj` has only the object's
    identity.
    """

    def __init__(self, obj: Resource, message: str, kind: ErrorKind | None = None) -> None:
        super().__init__(f"{named(obj)} was refused: {message}")
        namespace, name = key_of(obj)
        metadata = {"namespace": namespace, "name": name}
        self.obj: Resource = {"apiVersion": obj.get("apiVersion"), "kind": obj.get("kind"), "metadata": metadata}
        self.message = message
        self.kind = kind

    @property
    def policy(self) -> ErrorPolicy:
        return POLICIES[self.kind or ErrorKind.INVALID]


class Occupied(Exception):
    """An object that was to be created already exists."""
