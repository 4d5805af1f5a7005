"""What ends a download: a reason (docs/reference/conditions.md), a message, and whether another attempt can help."""

from __future__ import annotations

from typing import Literal, TypeAlias

Reason: TypeAlias = Literal[
    "SourceNotFound",
    "GatedModel",
    "Unauthorized",
    "Forbidden",
    "InvalidSpec",
    "DNSFailure",
    "ConnectionRefused",
    "Timeout",
    "RateLimited",
    "ServerError",
    "DependenciesUnreachable",
    "StorageFull",
    "VerificationFailed",
    "JobFailed",
]

TRANSIENT = 1
"""Exit code: another attempt may succeed."""
PERMANENT = 3
"""Exit code: another attempt now is useless."""

_PERMANENT: frozenset[Reason] = frozenset(
    {"SourceNotFound", "GatedModel", "Unauthorized", "Forbidden", "InvalidSpec", "StorageFull", "VerificationFailed"}
)


class Failure(Exception):
    """The download cannot go on."""

    def __init__(self, reason: Reason, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.reason: Reason = reason
        self.message = message
        self.retry_after = retry_after
        """Seconds for which the server asked not to be asked again."""

    @property
    def permanent(self) -> bool:
        """Whether the same request would fail again at once."""
        return self.reason in _PERMANENT

    @property
    def exit_code(self) -> int:
        """`PERMANENT` also after a Retry-After: the Job's own backoff would ask earlier than the server allows."""
        return PERMANENT if self.permanent or self.retry_after is not None else TRANSIENT


class SourceChanged(Failure):
    """Files of the source changed since they were listed: list them again."""

    def __init__(self, message: str) -> None:
        super().__init__("VerificationFailed", message)


class Stopped(Exception):
    """Another thread failed, or the process was asked to end."""
