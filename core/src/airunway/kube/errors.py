"""The exception tree of this package.

::

    KubeError
    ├── ConfigError            a kubeconfig or the pod's service account cannot be used
    ├── ApiError               the API server answered with an error (`status` is the HTTP code)
    │   ├── BadRequest         400
    │   ├── Unauthorized       401
    │   ├── Forbidden          403
    │   ├── NotFound           404
    │   ├── Conflict           409: stale resourceVersion, or a field that another manager owns; another uid
    │   ├── AlreadyExists      409 with reason AlreadyExists
    │   ├── Gone               410: resourceVersion or continue token is too old
    │   ├── Invalid            422
    │   ├── TooManyRequests    429
    │   └── ServerError        5xx
    └── TransportError         no usable answer arrived
        ├── ConnectionFailed   refused, reset, closed early, TLS failure
        ├── RequestTimedOut    no answer, or silence on a stream, for too long
        ├── AnswerTooLarge     more than the caller wants to have in memory at once
        └── MalformedAnswer    what arrived is not what an API server sends

A caller that wants "try again later" asks `is_retryable`; one that wants to know what was said, `ApiError.kind`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airunway.kube.error_kinds import ErrorKind, error_kind_of
from airunway.resource import Resource, dig

__all__ = [
    "LONGEST_HINT",
    "AlreadyExists",
    "AnswerTooLarge",
    "ApiError",
    "BadRequest",
    "ConfigError",
    "Conflict",
    "ConnectionFailed",
    "Forbidden",
    "Gone",
    "Invalid",
    "KubeError",
    "MalformedAnswer",
    "NotFound",
    "RequestTimedOut",
    "ServerError",
    "TooManyRequests",
    "TransportError",
    "Unauthorized",
    "api_error",
    "is_retryable",
    "retry_after_of",
]


LONGEST_HINT = 300.0
"""Seconds that a server's "try again later" counts at most: no answer stops us for good (spec/core.md, the backoff)."""


_LONGEST_MESSAGE = 16 * 2**10
_LONGEST_CAUSE = 1024
"""Characters. Of a message 1 KiB is ever shown; what a refusal names has to be found in it."""
_MOST_CAUSES = 256


class KubeError(Exception):
    """Anything that can go wrong between us and an API server."""


class ConfigError(KubeError):
    """The connection cannot be configured; the message says which file and field, and what to do."""


class TransportError(KubeError):
    """No usable answer arrived. Whether the server acted on the request is unknown."""


class ConnectionFailed(TransportError):
    """The connection was refused, reset or closed early, or TLS failed."""


class RequestTimedOut(TransportError):
    """The answer, or the next bytes of a stream, did not arrive in time."""


class AnswerTooLarge(TransportError):
    """The answer is larger than the caller wants to have in memory at once."""


class MalformedAnswer(TransportError):
    """The bytes that arrived are not JSON, or not what was asked for."""


class ApiError(KubeError):
    """An error answer of the API server: the fields of ``metav1.Status``.

    `retry_after` is in seconds, `LONGEST_HINT` at most, None where the server gave no hint; `answer` is what all of it
    means.
    """

    def __init__(
        self,
        status: int,
        reason: str = "",
        message: str = "",
        details: Resource | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(status, reason, message)
        self.status = status
        self.reason = reason
        self.message = message
        self.details = details or {}
        self.retry_after = retry_after
        self.kind = error_kind_of(status, reason, message, self.details)

    @property
    def causes(self) -> list[Resource]:
        """The entries of `details.causes` (``reason``, ``message``, ``field``); empty if there are none."""
        causes = self.details.get("causes")
        return [c for c in causes if isinstance(c, dict)] if isinstance(causes, list) else []

    def __str__(self) -> str:
        return f"{self.message or 'no message'} ({self.status}{f' {self.reason}' if self.reason else ''})"


class BadRequest(ApiError):
    """400: the request itself is wrong; with strict field validation also an unknown field."""


class Unauthorized(ApiError):
    """401: the credential is missing, expired or unknown."""


class Forbidden(ApiError):
    """403: not allowed by RBAC, quota or admission."""


class NotFound(ApiError):
    """404: no such object, or no such kind."""


class Conflict(ApiError):
    """409: somebody else wrote in between, or owns a field that was applied without force; or the object of that name
    is not the one with the `metadata.uid` that was sent (409, or 422 where another one has the name).
    """


class AlreadyExists(ApiError):
    """409 on create: there is an object of that name."""


class Gone(ApiError):
    """410: the history that was asked for is compacted; list again."""


class Invalid(ApiError):
    """422: the object does not pass validation (`causes` name the fields); or an apply does not fit the schema, or the
    object is too large (both come as 500 too).
    """


class TooManyRequests(ApiError):
    """429: overloaded, or a disruption budget refuses; see `retry_after`."""


class ServerError(ApiError):
    """5xx: the server's own trouble."""


_BY_STATUS: Mapping[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


_BY_KIND: Mapping[ErrorKind, type[ApiError]] = {
    ErrorKind.ALREADY_EXISTS: AlreadyExists,
    ErrorKind.UID_MISMATCH: Conflict,
    ErrorKind.SCHEMA: Invalid,
    ErrorKind.TOO_LARGE: Invalid,
}
"""Kinds of errors that the status code alone does not tell apart."""


def api_error(status: int, body: Any, *, retry_after: float | None = None) -> ApiError:
    """The exception for an error answer. `body` is the decoded ``metav1.Status``, or whatever a middle box sent."""
    reason = str(dig(body, "reason", default=""))
    message = str(dig(body, "message", default="")) or (body.strip()[:500] if isinstance(body, str) else "")
    message = message[:_LONGEST_MESSAGE]
    details = _bounded(dig(body, "details"))
    hint = details.get("retryAfterSeconds")
    if retry_after is None and isinstance(hint, (int, float)) and hint > 0:
        retry_after = hint
    if retry_after is not None:
        retry_after = float(min(retry_after, LONGEST_HINT))  # before it is made a float: JSON has integers of any size
    kind = error_kind_of(status, reason, message, details)
    type_ = _BY_KIND.get(kind) or _BY_STATUS.get(status, ServerError if status >= 500 else ApiError)
    return type_(status, reason, message, details, retry_after)


def _bounded(details: object) -> Resource:
    """What is kept of `details`: validation quotes what it refuses, as often as rules refuse it."""
    if not isinstance(details, dict):
        return {}
    causes = details.get("causes")
    if not isinstance(causes, list):
        return details
    kept = [cause for cause in causes[:_MOST_CAUSES] if isinstance(cause, dict)]
    cut = [{key: text[:_LONGEST_CAUSE] for key, text in cause.items() if isinstance(text, str)} for cause in kept]
    return {**details, "causes": cut}


def is_retryable(error: BaseException) -> bool:
    """Whether the same request can succeed later with nobody changing anything: 409, 429, 5xx, transport trouble."""
    if isinstance(error, TransportError):
        return True
    return isinstance(error, ApiError) and error.kind.is_retryable


def retry_after_of(error: BaseException) -> float:
    """The server's hint in seconds, 0 where there is none."""
    return (error.retry_after or 0.0) if isinstance(error, ApiError) else 0.0
