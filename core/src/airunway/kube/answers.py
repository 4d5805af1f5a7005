"""What an error answer of the API server means: one table, tried from the top.

The code alone does not tell: a quota, a webhook that says no, a namespace that is being deleted and a missing right are
all 403; a field that no schema knows is a 500, and so is an object too large for etcd. Where the server has no field
for the difference its words are the protocol: they stand here and nowhere else. Every row was seen from a real API
server (tests/security/test_answers.py makes it give each answer again).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

__all__ = ["ANSWERS", "Answer", "Row", "answer_of"]


class Answer(StrEnum):
    """What was said, whatever code it came with."""

    MISSING_RIGHT = "missing right"
    QUOTA = "quota"
    NAMESPACE_LEAVING = "namespace leaving"
    NAMESPACE_ABSENT = "namespace absent"
    KIND_LEAVING = "kind leaving"
    KIND_ABSENT = "kind absent"
    SCHEMA = "schema"
    TOO_LARGE = "too large"
    DENIED = "denied"
    INVALID = "invalid"
    OTHER_OBJECT = "other object"
    EXISTS = "exists"
    CONFLICT = "conflict"
    ABSENT = "absent"
    EXPIRED = "expired"
    UNAUTHENTICATED = "unauthenticated"
    THROTTLED = "throttled"
    WEBHOOK_DOWN = "webhook down"
    SERVER = "server"
    UNKNOWN = "unknown"

    @property
    def passes(self) -> bool:
        """Whether the same request can succeed later with nobody changing anything."""
        return self in _PASSING


_PASSING = frozenset(
    (Answer.OTHER_OBJECT, Answer.EXISTS, Answer.CONFLICT, Answer.THROTTLED, Answer.WEBHOOK_DOWN, Answer.SERVER)
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """An answer and how it is known: by the code and, where they are given, by words of the message, by the ``reason``
    of the status, and by a cause with that reason or field among its details. `source` says who answers so.
    """

    answer: Answer
    codes: tuple[int, ...]
    words: str = ""
    reason: str = ""
    cause: tuple[str, str] = ("", "")
    source: str

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

ANSWERS: tuple[Row, ...] = (
    # Before all others: whoever denies may say whatever they like, and often quotes what a user wrote.
    Row(
        answer=Answer.DENIED,
        codes=tuple(range(400, 600)),
        words=r'^admission webhook "[^"]*" denied the request',
        source="a validating or mutating webhook; the code is of its own choice",
    ),
    Row(
        answer=Answer.DENIED,
        codes=(401, 403, 413, 422),
        words=r"^\S+( \"[^\"]*\")? is forbidden: ValidatingAdmissionPolicy '[^']*' with binding '[^']*' denied request",
        source="ValidatingAdmissionPolicy; the code is of its own choice",
    ),
    Row(
        answer=Answer.NAMESPACE_LEAVING,
        codes=(403,),
        cause=("NamespaceTerminating", ""),
        source="admission plugin NamespaceLifecycle, while a namespace is being deleted",
    ),
    Row(
        answer=Answer.KIND_LEAVING,
        codes=(403, 405),
        words="not allowed while custom resource definition is terminating",
        source="API server, while a CRD is being deleted whose objects are still there",
    ),
    Row(
        answer=Answer.QUOTA,
        codes=(403,),
        words="is forbidden: (exceeded|failed|insufficient) quota",
        source="admission plugin ResourceQuota",
    ),
    Row(
        answer=Answer.MISSING_RIGHT,
        codes=(403,),
        words='forbidden: User "[^"]*" cannot ',
        source="the authorizer: no role allows it",
    ),
    Row(
        answer=Answer.MISSING_RIGHT,
        codes=(403,),
        words="forbidden: cannot set blockOwnerDeletion",
        source="admission plugin OwnerReferencesPermissionEnforcement",
    ),
    Row(
        answer=Answer.DENIED,
        codes=(403,),
        source="every other admission plugin: PodSecurity, LimitRange, ServiceAccount and so on",
    ),
    Row(
        answer=Answer.SCHEMA,
        codes=(500,),
        words="^failed to create typed patch object",
        source="server-side apply: a field that the schema has not, or a value of another type",
    ),
    Row(
        answer=Answer.TOO_LARGE,
        codes=(500,),
        words="^etcdserver: request is too large|trying to send message larger than max",
        source="etcd: an object above 1.5 MiB",
    ),
    Row(answer=Answer.TOO_LARGE, codes=(413,), source="API server: a request above 3 MiB"),
    Row(
        answer=Answer.OTHER_OBJECT,
        codes=(422,),
        cause=("", "metadata.uid"),
        source="server-side apply with a uid: the object of that name is another one",
    ),
    Row(
        answer=Answer.OTHER_OBJECT,
        codes=(409,),
        words="uid mismatch",
        source="server-side apply with a uid: there is no object of that name any more",
    ),
    Row(answer=Answer.EXISTS, codes=(409,), reason="AlreadyExists", source="a creation of what is there"),
    Row(answer=Answer.CONFLICT, codes=(409,), source="a stale resourceVersion; a field of another manager"),
    Row(
        answer=Answer.NAMESPACE_ABSENT,
        codes=(404,),
        words='^namespaces "[^"]*" not found$',
        source="admission plugin NamespaceLifecycle",
    ),
    Row(
        answer=Answer.KIND_ABSENT,
        codes=(404,),
        words="^404 page not found|^the server could not find the requested resource",
        source="API server (plain text): the group, the version or the kind is not served",
    ),
    Row(answer=Answer.ABSENT, codes=(404,), source="no object of that name"),
    Row(
        answer=Answer.WEBHOOK_DOWN,
        codes=(500,),
        words="failed calling webhook",
        source="API server: a webhook with failurePolicy Fail gave no usable answer",
    ),
    Row(answer=Answer.SERVER, codes=_SERVER, source="API server, or what stands before it"),
    Row(answer=Answer.INVALID, codes=(400, 422), source="validation"),
    Row(answer=Answer.UNAUTHENTICATED, codes=(401,), source="API server: the credential is not known"),
    Row(answer=Answer.EXPIRED, codes=(410,), source="API server: the history asked for is compacted"),
    Row(answer=Answer.THROTTLED, codes=(429,), source="priority and fairness; a disruption budget"),
)


def answer_of(status: int, reason: str, message: str, details: Mapping[str, Any]) -> Answer:
    """The answer of the first row that fits; UNKNOWN for a code that no row has."""
    return next((row.answer for row in ANSWERS if row.fits(status, reason, message, details)), Answer.UNKNOWN)
