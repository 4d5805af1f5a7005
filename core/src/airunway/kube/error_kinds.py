"""Kinds of error responses of the API server: one table of patterns, tried from the top.

The status code alone is not enough: an exceeded quota, a webhook's denial, a namespace that is being deleted and a
missing permission are all 403; a field that is not in the schema is a 500, and so is an object that is too large for
etcd. Where the response has no field for the difference, its message decides; all such texts are in this table. Each
row was recorded from a real API server (tests/security/test_answers.py reproduces each response).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

__all__ = ["ERROR_PATTERNS", "ErrorKind", "ErrorPattern", "error_kind_of"]


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


@dataclass(frozen=True, kw_only=True)
class ErrorPattern:
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
    source: str
    """Who sends such a response."""

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


_SERVER = tuple(range(500, 600))

ERROR_PATTERNS: tuple[ErrorPattern, ...] = (
    # Before all others: the text of a denial is free, and often quotes what a user wrote.
    ErrorPattern(
        kind=ErrorKind.DENIED,
        codes=tuple(range(400, 600)),
        words=r'^admission webhook "[^"]*" denied the request',
        source="a validating or mutating webhook; the code is of its own choice",
    ),
    ErrorPattern(
        kind=ErrorKind.DENIED,
        codes=(401, 403, 413, 422),
        words=r"^\S+( \"[^\"]*\")? is forbidden: ValidatingAdmissionPolicy '[^']*' with binding '[^']*' denied request",
        source="ValidatingAdmissionPolicy; the code is of its own choice",
    ),
    ErrorPattern(
        kind=ErrorKind.NAMESPACE_TERMINATING,
        codes=(403,),
        cause=("NamespaceTerminating", ""),
        source="admission plugin NamespaceLifecycle, while a namespace is being deleted",
    ),
    ErrorPattern(
        kind=ErrorKind.KIND_TERMINATING,
        codes=(403, 405),
        words="not allowed while custom resource definition is terminating",
        source="API server, while a CRD is being deleted whose objects are still there",
    ),
    ErrorPattern(
        kind=ErrorKind.QUOTA,
        codes=(403,),
        words="is forbidden: (exceeded|failed|insufficient) quota",
        source="admission plugin ResourceQuota",
    ),
    ErrorPattern(
        kind=ErrorKind.FORBIDDEN,
        codes=(403,),
        words='forbidden: User "[^"]*" cannot ',
        source="the authorizer: no role allows it",
    ),
    ErrorPattern(
        kind=ErrorKind.FORBIDDEN,
        codes=(403,),
        words="forbidden: cannot set blockOwnerDeletion",
        source="admission plugin OwnerReferencesPermissionEnforcement",
    ),
    ErrorPattern(
        kind=ErrorKind.DENIED,
        codes=(403,),
        source="every other admission plugin: PodSecurity, LimitRange, ServiceAccount and so on",
    ),
    ErrorPattern(
        kind=ErrorKind.SCHEMA,
        codes=(500,),
        words="^failed to create typed patch object",
        source="server-side apply: a field that the schema has not, or a value of another type",
    ),
    ErrorPattern(
        kind=ErrorKind.TOO_LARGE,
        codes=(500,),
        words="^etcdserver: request is too large|trying to send message larger than max",
        source="etcd: an object above 1.5 MiB",
    ),
    ErrorPattern(kind=ErrorKind.TOO_LARGE, codes=(413,), source="API server: a request above 3 MiB"),
    ErrorPattern(
        kind=ErrorKind.UID_MISMATCH,
        codes=(422,),
        cause=("", "metadata.uid"),
        source="server-side apply with a uid: the object of that name is another one",
    ),
    ErrorPattern(
        kind=ErrorKind.UID_MISMATCH,
        codes=(409,),
        words="uid mismatch",
        source="server-side apply with a uid: there is no object of that name any more",
    ),
    ErrorPattern(
        kind=ErrorKind.ALREADY_EXISTS, codes=(409,), reason="AlreadyExists", source="a creation of what is there"
    ),
    ErrorPattern(kind=ErrorKind.CONFLICT, codes=(409,), source="a stale resourceVersion; a field of another manager"),
    ErrorPattern(
        kind=ErrorKind.NAMESPACE_NOT_FOUND,
        codes=(404,),
        words='^namespaces "[^"]*" not found$',
        source="admission plugin NamespaceLifecycle",
    ),
    ErrorPattern(
        kind=ErrorKind.KIND_NOT_SERVED,
        codes=(404,),
        words="^404 page not found|^the server could not find the requested resource",
        source="API server (plain text): the group, the version or the kind is not served",
    ),
    ErrorPattern(kind=ErrorKind.NOT_FOUND, codes=(404,), source="no object of that name"),
    ErrorPattern(
        kind=ErrorKind.WEBHOOK_FAILED,
        codes=(500,),
        words="failed calling webhook",
        source="API server: a webhook with failurePolicy Fail gave no usable answer",
    ),
    ErrorPattern(kind=ErrorKind.SERVER_ERROR, codes=_SERVER, source="API server, or what stands before it"),
    ErrorPattern(kind=ErrorKind.INVALID, codes=(400, 422), source="validation"),
    ErrorPattern(kind=ErrorKind.UNAUTHENTICATED, codes=(401,), source="API server: the credential is not known"),
    ErrorPattern(kind=ErrorKind.EXPIRED, codes=(410,), source="API server: the history asked for is compacted"),
    ErrorPattern(kind=ErrorKind.THROTTLED, codes=(429,), source="priority and fairness; a disruption budget"),
)


def error_kind_of(status: int, reason: str, message: str, details: Mapping[str, Any]) -> ErrorKind:
    """Returns the kind of the first row that fits; UNKNOWN for a code that no row has."""
    return next(
        (pattern.kind for pattern in ERROR_PATTERNS if pattern.fits(status, reason, message, details)),
        ErrorKind.UNKNOWN,
    )
