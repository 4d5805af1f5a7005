"""Reading statuses that anybody may have written: every function takes any JSON and gives an answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from airunway.resource import Resource, condition_of, dig
from airunway.status.evidence import parse_moment
from airunway.status.texts import (
    CREATION,
    ENGINE,
    IMAGE_PULL,
    MOUNT,
    PROVISIONING,
    SCHEDULING,
    MessagePattern,
    first_meaning,
    line_of,
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
    """The text at `path`; empty where there is none."""
    found = dig(obj, *path)
    return found if isinstance(found, str) else ""


def number(obj: object, *path: str, default: int = 0) -> int:
    """The whole number at `path`, else `default`. A truth value is no number."""
    found = dig(obj, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) else default


def moment(obj: object, *path: str) -> datetime | None:
    """The time at `path`, in UTC; None where there is none."""
    return parse_moment(dig(obj, *path))


def records(obj: object, *path: str) -> list[Resource]:
    """The objects in the list at `path`, or the values of the map there; whatever is no object is left out."""
    found = dig(obj, *path)
    entries = list(found.values()) if isinstance(found, dict) else found if isinstance(found, list) else []
    return [entry for entry in entries if isinstance(entry, dict)]


def mapping(obj: object, *path: str) -> dict[str, Resource]:
    """The objects in the map at `path`, by their keys; whatever is no object is left out."""
    found = dig(obj, *path)
    entries = found.items() if isinstance(found, dict) else ()
    return {str(key): entry for key, entry in entries if isinstance(entry, dict)}


def condition(obj: object, type_: str) -> Resource:
    """The condition of that type; empty where there is none."""
    return (condition_of(obj, type_) if isinstance(obj, dict) else None) or {}


def truth(obj: object, type_: str) -> bool | None:
    """What the condition says: True, False, or None where it is unknown or not there."""
    return {"True": True, "False": False}.get(text(condition(obj, type_), "status"))


def is_observed(obj: object, *path: str) -> bool:
    """Whether the controller of an object has seen its newest generation, by the number at `path`.

    `path` defaults to ``status.observedGeneration``. Where either number is missing nothing is proven, and it counts as
    seen.
    """
    generation = number(obj, "metadata", "generation", default=-1)
    seen = number(obj, *(path or ("status", "observedGeneration")), default=-1)
    return generation < 0 or seen < 0 or seen >= generation


def meaning(message: str, *tables: Sequence[MessagePattern], otherwise: str = "") -> str:
    """The reason of the registry that a text stands for: the first row of the first table that matches.

    The tables of this module hold the words of Kubernetes, container runtimes, registries and engines.
    """
    for table in tables:
        if (match := first_meaning([message], table)) is not None:
            return match[0].reason
    return otherwise


def meanings(*rows: tuple[str, str]) -> tuple[MessagePattern, ...]:
    """A table of an upstream's own words: patterns, found in any case, with the reasons that they stand for.

    Anybody can write what they are looked for in: a pattern must take time linear in it.
    """
    return tuple(MessagePattern(re.compile(pattern, re.IGNORECASE), reason, "", "") for pattern, reason in rows)


NETWORK = meanings(
    (r"no such host|server misbehaving", "DNSFailure"),
    (r"connection refused", "ConnectionRefused"),
    (r"timeout|deadline exceeded", "Timeout"),
)
"""What a controller says that does not reach something, in the words of Go's net package."""


WORKLOAD = meanings(
    (r"^(?:MinimumReplicas(?:Una|A)vailable|DeploymentPaused|DeploymentResumed)$", "Progressing"),
    (r"^(?:NewReplicaSet(?:Created|Available)|FoundNewReplicaSet|ReplicaSetUpdated)$", "Progressing"),
    # Not the end: as soon as a pod becomes ready the Deployment goes on (recorded).
    (r"^ProgressDeadlineExceeded$", "Progressing"),
    (r"^(?:ReplicaSetCreateError|FailedCreate|FailedUpdate|FailedDelete)$", "InvalidSpec"),
    (r"^(?:AllGroupsReady|GroupsProgressing|GroupsUpdating|CreatingRevision)$", "Progressing"),
    (r"^(?:BackoffLimitExceeded|DeadlineExceeded|PodFailurePolicy|(?:Max)?FailedIndexes(?:Exceeded)?)$", "JobFailed"),
    (r"^(?:CompletionsReached|SuccessPolicy|JobResumed)$", "JobRunning"),
    (r"^(?:JobSuspended)$", "Suspended"),
)
"""Reasons of conditions of Deployments, StatefulSets, LeaderWorkerSets and Jobs, as operators copy them into their own.

For ``meaning(text(condition, "reason"), WORKLOAD)``: an unknown word counts as a fault, and a workload that begins has
none (k8s.io/kubernetes, pkg/controller/deployment/util and batch/v1; LeaderWorkerSet's as recorded).
"""

_LONG, _LONGEST = 2_048, 16_384
_FRAMES = re.compile(r'^[ \t]+File ".*(?:\n {4,}.*)*\n?', re.MULTILINE)


def explained(message: str, *tables: Sequence[MessagePattern], otherwise: str = "") -> tuple[str, str]:
    """The reason as `meaning` has it, and the line that says it: of a traceback the one that matters.

    Where no row matches it is the last line that says anything. It has no credentials, and 400 characters at most. Of
    a long message, such as the same traceback of every worker, what it repeats and the frames are not looked through.
    """
    message = _gist(message) if len(message) > _LONG else message
    for table in tables:
        if (match := first_meaning([message], table)) is not None:
            return match[0].reason, match[1]
    return otherwise, line_of(message)


def _gist(message: str) -> str:
    """Its end, without frames of tracebacks, and each line only where it stands last."""
    lines = _FRAMES.sub("", message[-_LONGEST * 64 :]).splitlines()
    return "\n".join(reversed(dict.fromkeys(reversed(lines))))[-_LONGEST:]
