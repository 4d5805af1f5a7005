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

`is_retryable` answers whether to try again later; `ApiError.kind` classifies the server's error.
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
"""Limit of a server's Retry-After, in seconds, so that no answer stops us for good (spec/core.md, the backoff)."""


_LONGEST_MESSAGE = 16 * 2**10
_LONGEST_CAUSE = 1024
"""Characters. At most 1 KiB of a message is shown; more is kept, because the refused fields are parsed from it."""
_MOST_CAUSES = 256


class KubeError(Exception):
    """Base of all errors between us and an API server."""


class ConfigError(KubeError):
    """The connection cannot be configured; the message names the file, the field, and what to do."""


class TransportError(KubeError):
    """No usable answer arrived. It is unknown whether the server executed the request."""


class ConnectionFailed(TransportError):
    """The connection was refused, reset or closed early, or TLS failed."""


class RequestTimedOut(TransportError):
    """The answer, or the next bytes of a stream, did not arrive in time."""


class AnswerTooLarge(TransportError):
    """The answer is larger than the caller allows in memory at once."""


class MalformedAnswer(TransportError):
    """The answer is not JSON, or not what was requested."""


class ApiError(KubeError):
    """An error answer of the API server: the fields of ``metav1.Status``.

    `retry_after` is in seconds, at most `LONGEST_HINT`; None if the server gave no hint. `kind` classifies the error.
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
    """400: the request is malformed; with strict field validation also an unknown field."""


class Unauthorized(ApiError):
    """401: the credential is missing, expired or unknown."""


class Forbidden(ApiError):
    """403: not allowed by RBAC, quota or admission."""


class NotFound(ApiError):
    """404: no such object, or no such kind."""


class Conflict(ApiError):
    """409: another writer was faster, or owns a field that was applied without force.

    Also if the object with that name does not have the `metadata.uid` that was sent (409, or 422 if another one
    exists).
    """


class AlreadyExists(ApiError):
    """409 on create: an object with that name exists."""


class Gone(ApiError):
    """410: the requested history is compacted; list again."""


class Invalid(ApiError):
    """422: the object does not pass validation (`causes` name the fields).

    Also an apply that does not fit the schema, or an object that is too large; the server may answer 500 to both.
    """


class TooManyRequests(ApiError):
    """429: the server is overloaded, or a disruption budget refuses; see `retry_after`."""


class ServerError(ApiError):
    """5xx: a fault of the server."""


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
"""The error kinds that the status code does not distinguish."""


def api_error(status: int, body: Any, *, retry_after: float | None = None) -> ApiError:
    """Returns the exception for an error answer. `body` is the decoded ``metav1.Status``, or what a proxy sent."""
    reason = str(dig(body, "reason", default=""))
    message = (str(dig(body, "message", default="")) or _other_message(body))[:_LONGEST_MESSAGE]
    details = _bounded(dig(body, "details"))
    hint = details.get("retryAfterSeconds")
    if retry_after is None and isinstance(hint, (int, float)) and hint > 0:
        retry_after = hint
    if retry_after is not None:
        retry_after = float(min(retry_after, LONGEST_HINT))  # min first: a JSON integer may be too large for a float
    kind = error_kind_of(status, reason, message, details)
    type_ = _BY_KIND.get(kind) or _BY_STATUS.get(status, ServerError if status >= 500 else ApiError)
    return type_(status, reason, message, details, retry_after)


def _other_message(body: object) -> str:
    """What an answer says that is no Status: of a proxy, or of a server behind the API server's proxy."""
    if isinstance(body, str):
        return body.strip()[:500]
    error = dig(body, "error")
    for text in (error, dig(error, "message"), dig(body, "detail")):
        if isinstance(text, str) and text:
            return text
    return ""


def _bounded(details: object) -> Resource:
    """Returns `details` with bounded causes: a validation error quotes the refused value, once for each broken rule."""
    if not isinstance(details, dict):
        return {}
    causes = details.get("causes")
    if not isinstance(causes, list):
        return details
    kept = [cause for cause in causes[:_MOST_CAUSES] if isinstance(cause, dict)]
    cut = [{key: text[:_LONGEST_CAUSE] for key, text in cause.items() if isinstance(text, str)} for cause in kept]
    return {**details, "causes": cut}


def is_retryable(error: BaseException) -> bool:
    """Whether the same request can succeed later without a correction: 409, 429, 5xx, transport errors."""
    if isinstance(error, TransportError):
        return True
    return isinstance(error, ApiError) and error.kind.is_retryable


def retry_after_of(error: BaseException) -> float:
    """Returns the server's hint in seconds; 0 if there is none."""
    return (error.retry_after or 0.0) if isinstance(error, ApiError) else 0.0
