"""Reads statuses of upstream objects; every function accepts any JSON and never raises."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from airunway.resource import Resource, condition_of, dig
from airunway.status.engine_texts import ENGINE, last_error
from airunway.status.evidence import parse_moment
from airunway.status.texts import (
    CREATION,
    IMAGE_PULL,
    MOUNT,
    PROVISIONING,
    SCHEDULING,
    MessagePattern,
    first_meaning,
)

__all__ = [
    "CREATION",
    "ENGINE",
    "IMAGE_PULL",
    "MOUNT",
    "NETWORK",
    "PROVISIONING",
    "SCHEDULING",
    "WORKLOAD",
    "condition",
    "explained",
    "is_observed",
    "mapping",
    "meaning",
    "meanings",
    "moment",
    "number",
    "records",
    "text",
    "truth",
]


def text(obj: object, *path: str) -> str:
    """The text at `path`; empty if there is none."""
    found = dig(obj, *path)
    return found if isinstance(found, str) else ""


def number(obj: object, *path: str, default: int = 0) -> int:
    """The integer at `path`, else `default`. A boolean is not a number."""
    found = dig(obj, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) else default


def moment(obj: object, *path: str) -> datetime | None:
    """The time at `path`, in UTC; None if there is none."""
    return parse_moment(dig(obj, *path))


def records(obj: object, *path: str) -> list[Resource]:
    """The objects in the list at `path`, or the values of the map there; other entries are left out."""
    found = dig(obj, *path)
    entries = list(found.values()) if isinstance(found, dict) else found if isinstance(found, list) else []
    return [entry for entry in entries if isinstance(entry, dict)]


def mapping(obj: object, *path: str) -> dict[str, Resource]:
    """The objects in the map at `path`, by key; other entries are left out."""
    found = dig(obj, *path)
    entries = found.items() if isinstance(found, dict) else ()
    return {str(key): entry for key, entry in entries if isinstance(entry, dict)}


def condition(obj: object, type_: str) -> Resource:
    """The condition with type `type_`; empty if there is none."""
    return (condition_of(obj, type_) if isinstance(obj, dict) else None) or {}


def truth(obj: object, type_: str) -> bool | None:
    """The status of a condition: True or False, or None if it is unknown or missing."""
    return {"True": True, "False": False}.get(text(condition(obj, type_), "status"))


def is_observed(obj: object, *path: str) -> bool:
    """Whether the controller of an object has observed its newest generation.

    `path` is the field with the observed generation (default: ``status.observedGeneration``). If either number is
    missing, the answer is True.
    """
    generation = number(obj, "metadata", "generation", default=-1)
    seen = number(obj, *(path or ("status", "observedGeneration")), default=-1)
    return generation < 0 or seen < 0 or seen >= generation


def meaning(message: str, *tables: Sequence[MessagePattern], otherwise: str = "") -> str:
    """The reason from the registry for a message: the first matching row of the first table that matches.

    The tables of this module match messages of Kubernetes, container runtimes, registries and engines.
    """
    for table in tables:
        if (match := first_meaning(message, table)) is not None:
            return match[0].reason
    return otherwise


def meanings(*rows: tuple[str, str]) -> tuple[MessagePattern, ...]:
    """A table of an upstream's messages: case-insensitive patterns with their reasons.

    The matched text is untrusted, so matching a pattern must take linear time.
    """
    return tuple(MessagePattern(re.compile(pattern, re.IGNORECASE), reason, "", "") for pattern, reason in rows)


NETWORK = meanings(
    (r"no such host|server misbehaving", "DNSFailure"),
    (r"connection refused", "ConnectionRefused"),
    (r"timeout|deadline exceeded", "Timeout"),
)
"""Network errors in controllers' messages, as Go's net package words them."""


WORKLOAD = meanings(
    (r"^(?:MinimumReplicas(?:Una|A)vailable|DeploymentPaused|DeploymentResumed)$", "Progressing"),
    (r"^(?:NewReplicaSet(?:Created|Available)|FoundNewReplicaSet|ReplicaSetUpdated)$", "Progressing"),
    # Not final: the roll-out continues as soon as a pod becomes ready (recorded).
    (r"^ProgressDeadlineExceeded$", "Progressing"),
    (r"^(?:ReplicaSetCreateError|FailedCreate|FailedUpdate|FailedDelete)$", "InvalidSpec"),
    (r"^(?:AllGroupsReady|GroupsProgressing|GroupsUpdating|CreatingRevision)$", "Progressing"),
    (r"^(?:BackoffLimitExceeded|DeadlineExceeded|PodFailurePolicy|(?:Max)?FailedIndexes(?:Exceeded)?)$", "JobFailed"),
    (r"^(?:CompletionsReached|SuccessPolicy|JobResumed)$", "JobRunning"),
    (r"^(?:JobSuspended)$", "Suspended"),
)
"""Condition reasons of Deployments, StatefulSets, LeaderWorkerSets and Jobs, as operators copy them into their own.

Use it in ``meaning(text(condition, "reason"), WORKLOAD)``. Unknown reasons count as faults, so the table also lists the
harmless reasons of a starting workload (k8s.io/kubernetes, pkg/controller/deployment/util and batch/v1;
LeaderWorkerSet's reasons are recorded).
"""

_LONG, _LONGEST = 2_048, 16_384
_FRAMES = re.compile(r'^[ \t]+File ".*(?:\n {4,}.*)*\n?', re.MULTILINE)


def explained(message: str, *tables: Sequence[MessagePattern], otherwise: str = "") -> tuple[str, str]:
    """The reason as in `meaning`, and the line of the message that gives it; for a traceback, the relevant line.

    If no row matches, it is the last line with content that says more than that something failed before it.
    Credentials are redacted, and the line has at most 400 characters. In a long message, such as the same traceback
    from every worker, repeated lines and stack frames are skipped.
    """
    message = _gist(message) if len(message) > _LONG else message
    for table in tables:
        if (match := first_meaning(message, table)) is not None:
            return match[0].reason, match[1]
    return otherwise, last_error(message)


def _gist(message: str) -> str:
    """The end of the message, without traceback frames and without earlier copies of repeated lines."""
    lines = _FRAMES.sub("", message[-_LONGEST * 64 :]).splitlines()
    return "\n".join(reversed(dict.fromkeys(reversed(lines))))[-_LONGEST:]
