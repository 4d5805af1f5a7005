"""What becomes of an error answer to a write upstream: the reason in the condition, and when it is tried again.

Pure. What the server meant is decided in `kube/answers.py`; here it gets the words of the status (spec ruling 28).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airunway.kube import Answer, ApiError, KubeError, RequestTimedOut, TransportError
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


MEANINGS: Mapping[Answer, Meaning] = {
    Answer.MISSING_RIGHT: Meaning(reason="Forbidden", refuses=True),
    Answer.QUOTA: Meaning(reason="QuotaExceeded", refuses=True),
    Answer.NAMESPACE_LEAVING: Meaning(reason="Terminating", refuses=True, waits=True),
    Answer.NAMESPACE_ABSENT: Meaning(reason="Terminating", refuses=True, waits=True),
    Answer.KIND_LEAVING: Meaning(reason="UpstreamNotInstalled", refuses=True, waits=True),
    Answer.KIND_ABSENT: Meaning(reason="UpstreamNotInstalled", refuses=True, waits=True),
    Answer.SCHEMA: Meaning(reason="InvalidSpec", refuses=True, lasts=True),
    Answer.DENIED: _REFUSED,
    Answer.INVALID: _REFUSED,
    Answer.TOO_LARGE: _REFUSED,
    Answer.UNAUTHENTICATED: Meaning(reason="Unauthorized"),
    Answer.THROTTLED: Meaning(reason="RateLimited"),
    Answer.WEBHOOK_DOWN: Meaning(reason="ServerError"),
    Answer.SERVER: Meaning(reason="ServerError"),
    Answer.OTHER_OBJECT: Meaning(reason="DependenciesUnreachable"),
    Answer.EXISTS: Meaning(reason="DependenciesUnreachable"),
    Answer.CONFLICT: Meaning(reason="DependenciesUnreachable"),
    Answer.ABSENT: Meaning(reason="DependenciesUnreachable"),
    Answer.EXPIRED: Meaning(reason="DependenciesUnreachable"),
    Answer.UNKNOWN: Meaning(reason="DependenciesUnreachable"),
}
"""Every answer; docs/write-errors.md has the table for readers, and a test compares the two."""


def meaning_of(error: KubeError) -> Meaning:
    """What the status says of a failure to write."""
    match error:
        case ApiError():
            return MEANINGS[error.answer]
        case RequestTimedOut():
            return Meaning(reason="Timeout")
        case TransportError():
            return Meaning(reason="ConnectionRefused")
        case _:
            return Meaning(reason="DependenciesUnreachable")


class Refused(Exception):
    """The server will not take an object as it is, or we cannot address it (no `answer`). `obj` says which, no more."""

    def __init__(self, obj: Resource, message: str, answer: Answer | None = None) -> None:
        super().__init__(f"{named(obj)} was refused: {message}")
        namespace, name = key_of(obj)
        metadata = {"namespace": namespace, "name": name}
        self.obj: Resource = {"apiVersion": obj.get("apiVersion"), "kind": obj.get("kind"), "metadata": metadata}
        self.message = message
        self.answer = answer

    @property
    def meaning(self) -> Meaning:
        return MEANINGS[self.answer or Answer.INVALID]


class Occupied(Exception):
    """The API server says that an object is there already which was to be made."""
