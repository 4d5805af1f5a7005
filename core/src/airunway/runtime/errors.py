"""How the status reports an error of a write upstream, and when the write is retried (spec ruling 28). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airunway.kube import Answer, ApiError, KubeError, RequestTimedOut, TransportError
from airunway.resource import Resource, key_of
from airunway.runtime.state import named

__all__ = ["POLICIES", "ErrorPolicy", "Occupied", "Refused", "policy_of"]


@dataclass(frozen=True, kw_only=True)
class ErrorPolicy:
    """How one kind of error is treated."""

    reason: str
    """Reason of the condition."""
    refuses: bool = False
    """True: the request was refused, which is reported at once. False: a transient failure, reported once it lasts."""
    lasts: bool = False
    """Whether the same request is refused until the upstream's schema changes."""
    waits: bool = False
    """Whether something else has to exist, or to be gone, first; the deployment needs no change."""


_REFUSED = ErrorPolicy(reason="InvalidSpec", refuses=True)


POLICIES: Mapping[Answer, ErrorPolicy] = {
    Answer.MISSING_RIGHT: ErrorPolicy(reason="Forbidden", refuses=True),
    Answer.QUOTA: ErrorPolicy(reason="QuotaExceeded", refuses=True),
    Answer.NAMESPACE_LEAVING: ErrorPolicy(reason="Terminating", refuses=True, waits=True),
    Answer.NAMESPACE_ABSENT: ErrorPolicy(reason="Terminating", refuses=True, waits=True),
    Answer.KIND_LEAVING: ErrorPolicy(reason="UpstreamNotInstalled", refuses=True, waits=True),
    Answer.KIND_ABSENT: ErrorPolicy(reason="UpstreamNotInstalled", refuses=True, waits=True),
    Answer.SCHEMA: ErrorPolicy(reason="InvalidSpec", refuses=True, lasts=True),
    Answer.DENIED: _REFUSED,
    Answer.INVALID: _REFUSED,
    Answer.TOO_LARGE: _REFUSED,
    Answer.UNAUTHENTICATED: ErrorPolicy(reason="Unauthorized"),
    Answer.THROTTLED: ErrorPolicy(reason="RateLimited"),
    Answer.WEBHOOK_DOWN: ErrorPolicy(reason="ServerError"),
    Answer.SERVER: ErrorPolicy(reason="ServerError"),
    Answer.OTHER_OBJECT: ErrorPolicy(reason="DependenciesUnreachable"),
    Answer.EXISTS: ErrorPolicy(reason="DependenciesUnreachable"),
    Answer.CONFLICT: ErrorPolicy(reason="DependenciesUnreachable"),
    Answer.ABSENT: ErrorPolicy(reason="DependenciesUnreachable"),
    Answer.EXPIRED: ErrorPolicy(reason="DependenciesUnreachable"),
    Answer.UNKNOWN: ErrorPolicy(reason="DependenciesUnreachable"),
}
"""Every kind of error; docs/architecture.md has the table for readers, and a test compares the two."""


def policy_of(error: KubeError) -> ErrorPolicy:
    """What the status says of a failure to write."""
    match error:
        case ApiError():
            return POLICIES[error.answer]
        case RequestTimedOut():
            return ErrorPolicy(reason="Timeout")
        case TransportError():
            return ErrorPolicy(reason="ConnectionRefused")
        case _:
            return ErrorPolicy(reason="DependenciesUnreachable")


class Refused(Exception):
    """The server refuses an object, or its kind is not served (no `answer`). `obj` has its identity only."""

    def __init__(self, obj: Resource, message: str, answer: Answer | None = None) -> None:
        super().__init__(f"{named(obj)} was refused: {message}")
        namespace, name = key_of(obj)
        metadata = {"namespace": namespace, "name": name}
        self.obj: Resource = {"apiVersion": obj.get("apiVersion"), "kind": obj.get("kind"), "metadata": metadata}
        self.message = message
        self.answer = answer

    @property
    def policy(self) -> ErrorPolicy:
        return POLICIES[self.answer or Answer.INVALID]


class Occupied(Exception):
    """An object that was to be created exists already."""
