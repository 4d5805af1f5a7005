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

`is_retryable` answers whether to try again later. `ApiError.kind` says what an error answer means, by one table of
patterns: the status code alone is not enough. An exceeded quota, a webhook's denial, a namespace that is being deleted
and a missing permission are all 403; a field that is not in the schema is a 500, and so is an object that is too large
for etcd. Where the answer has no field for the difference, its message decides; all such texts are in that table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from airunway.resource import Resource, dig, entries_at

LONGEST_HINT = 300.0
"""Limit of a server's Retry-After, in seconds, so that no answer stops us for good (docs/architecture.md)."""

_LONGEST_MESSAGE = 16 * 2**10
_LONGEST_CAUSE = 1024
"""Characters. At most 1 KiB of a message is shown; more is kept, because the refused fields are parsed from it."""
_MOST_CAUSES = 256


class ErrorKind(StrEnum):
    """What an error response means, independent of its status code."""

    FORBIDDEN = "forbidden"
    QUOTA = "quota"
    NAMESPACE_TERMINATING = "namespace terminating"
    NAMESPACE_NOT_FOUND = "namespace not found"
    KIND_TERMINATING = "kind terminating"
    KIND_NOT_SERVED = "kind not served"
    SCHEMA = "schema"
    TOO_LARGE = "too large"
    DENIED = "denied"
    INVALID = "invalid"
    UID_MISMATCH = "uid mismatch"
    ALREADY_EXISTS = "already exists"
    CONFLICT = "conflict"
    NOT_FOUND = "not found"
    EXPIRED = "expired"
    UNAUTHENTICATED = "unauthenticated"
    THROTTLED = "throttled"
    WEBHOOK_FAILED = "webhook failed"
    SERVER_ERROR = "server error"
    UNKNOWN = "unknown"

    @property
    def is_retryable(self) -> bool:
        """Whether the same request can succeed later without a correction."""
        return self in _RETRYABLE


_RETRYABLE = frozenset(
    (
        ErrorKind.UID_MISMATCH,
        ErrorKind.ALREADY_EXISTS,
        ErrorKind.CONFLICT,
        ErrorKind.THROTTLED,
        ErrorKind.WEBHOOK_FAILED,
        ErrorKind.SERVER_ERROR,
    )
)


class _Pattern(NamedTuple):
    """A kind of response and how it is recognized; everything that is given must match."""

    kind: ErrorKind
    codes: tuple[int, ...]
    """Status codes."""
    words: str = ""
    """Pattern for the message."""
    reason: str = ""
    """The ``reason`` of the Status."""
    cause: tuple[str, str] = ("", "")
    """Reason or field of a cause in its details; one of the two is empty."""

    def fits(self, status: int, reason: str, message: str, details: Mapping[str, Any]) -> bool:
        if status not in self.codes or self.reason not in ("", reason):
            return False
        if self.words and not re.search(self.words, message):
            return False
        return self.cause == ("", "") or any(
            self.cause in ((cause.get("reason"), ""), ("", cause.get("field")))
            for cause in details.get("causes") or ()
            if isinstance(cause, dict)
        )


ERROR_PATTERNS: tuple[_Pattern, ...] = (
    # Webhooks, before all others: the text of a denial is free, and often quotes what a user wrote; so is the code.
    _Pattern(ErrorKind.DENIED, tuple(range(400, 600)), words=r'^admission webhook "[^"]*" denied the request'),
    # ValidatingAdmissionPolicy; the code is of its own choice
    _Pattern(
        ErrorKind.DENIED,
        (401, 403, 413, 422),
        words=r"^\S+( \"[^\"]*\")? is forbidden: ValidatingAdmissionPolicy '[^']*' with binding '[^']*' denied request",
    ),
    # admission plugin NamespaceLifecycle, while a namespace is being deleted
    _Pattern(ErrorKind.NAMESPACE_TERMINATING, (403,), cause=("NamespaceTerminating", "")),
    # API server, while a CRD is being deleted whose objects are still there
    _Pattern(
        ErrorKind.KIND_TERMINATING, (403, 405), words="not allowed while custom resource definition is terminating"
    ),
    # admission plugin ResourceQuota
    _Pattern(ErrorKind.QUOTA, (403,), words="is forbidden: (exceeded|failed|insufficient) quota"),
    # the authorizer: no role allows it
    _Pattern(ErrorKind.FORBIDDEN, (403,), words='forbidden: User "[^"]*" cannot '),
    # RBAC: a Role or a binding grants more than its author has
    _Pattern(
        ErrorKind.FORBIDDEN,
        (403,),
        words="forbidden: user .* is attempting to grant RBAC permissions not currently held",
    ),
    # admission plugin OwnerReferencesPermissionEnforcement
    _Pattern(ErrorKind.FORBIDDEN, (403,), words="forbidden: cannot set blockOwnerDeletion"),
    # every other admission plugin: PodSecurity, LimitRange, ServiceAccount and so on
    _Pattern(ErrorKind.DENIED, (403,)),
    # server-side apply: a field that the schema has not, or a value of another type
    _Pattern(ErrorKind.SCHEMA, (500,), words="^failed to create typed patch object"),
    # etcd: an object above 1.5 MiB
    _Pattern(
        ErrorKind.TOO_LARGE, (500,), words="^etcdserver: request is too large|trying to send message larger than max"
    ),
    # API server: a request above 3 MiB
    _Pattern(ErrorKind.TOO_LARGE, (413,)),
    # server-side apply with a uid: the object of that name is another one
    _Pattern(ErrorKind.UID_MISMATCH, (422,), cause=("", "metadata.uid")),
    # server-side apply with a uid: there is no object of that name any more
    _Pattern(ErrorKind.UID_MISMATCH, (409,), words="uid mismatch"),
    # a creation of what is there
    _Pattern(ErrorKind.ALREADY_EXISTS, (409,), reason="AlreadyExists"),
    # a stale resourceVersion; a field of another manager
    _Pattern(ErrorKind.CONFLICT, (409,)),
    # admission plugin NamespaceLifecycle
    _Pattern(ErrorKind.NAMESPACE_NOT_FOUND, (404,), words='^namespaces "[^"]*" not found$'),
    # API server (plain text): the group, the version or the kind is not served
    _Pattern(
        ErrorKind.KIND_NOT_SERVED,
        (404,),
        words="^404 page not found|^the server could not find the requested resource",
    ),
    # no object of that name
    _Pattern(ErrorKind.NOT_FOUND, (404,)),
    # API server: a webhook with failurePolicy Fail gave no usable answer
    _Pattern(ErrorKind.WEBHOOK_FAILED, (500,), words="failed calling webhook"),
    # API server, or what stands before it
    _Pattern(ErrorKind.SERVER_ERROR, tuple(range(500, 600))),
    # validation
    _Pattern(ErrorKind.INVALID, (400, 422)),
    # API server: the credential is not known
    _Pattern(ErrorKind.UNAUTHENTICATED, (401,)),
    # API server: the history asked for is compacted
    _Pattern(ErrorKind.EXPIRED, (410,)),
    # priority and fairness; a disruption budget
    _Pattern(ErrorKind.THROTTLED, (429,)),
)
"""Tried from the top. Each row was recorded from a real API server, which the comment names
(tests/security/test_answers.py reproduces each response).
"""


def _kind_of(status: int, reason: str, message: str, details: Mapping[str, Any]) -> ErrorKind:
    """Returns the kind of the first row that fits; UNKNOWN for a code that no row has."""
    fitting = (pattern.kind for pattern in ERROR_PATTERNS if pattern.fits(status, reason, message, details))
    return next(fitting, ErrorKind.UNKNOWN)


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
        self.kind = _kind_of(status, reason, message, self.details)

    @property
    def causes(self) -> list[Resource]:
        """The entries of `details.causes` (``reason``, ``message``, ``field``); empty if there are none."""
        return entries_at(self.details, "causes")

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
    kind = _kind_of(status, reason, message, details)
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
    causes = dig(details, "causes")
    if not isinstance(details, dict) or not isinstance(causes, list):
        return details if isinstance(details, dict) else {}
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
