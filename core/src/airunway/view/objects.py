"""The state of any object, in the way that kstatus reads it: conditions, then counts of replicas, then its phase."""

from __future__ import annotations

from typing import NamedTuple

from airunway.resource import Resource, dig, is_deleting
from airunway.status.reasons import Category, category_of
from airunway.view.base import line, word
from airunway.view.pods import Health

__all__ = ["ObjectState", "state_of"]

_PROGRESS = frozenset({Category.PROGRESS, Category.CAPACITY, Category.UNKNOWN, Category.STALE})
"""Categories of reasons that do not make an object that is not ready a problem."""

_READY = ("Ready", "Available", "Complete", "Programmed", "Accepted")
"""Conditions that say whether an object is ready, the most telling first."""

_PHASES = {
    "Bound": Health.OK,
    "Ready": Health.OK,
    "Running": Health.OK,
    "Lost": Health.PROBLEM,
    "Failed": Health.PROBLEM,
    "Degraded": Health.PROBLEM,
    "NotAvailable": Health.PROBLEM,
}


class ObjectState(NamedTuple):
    """How an object is doing."""

    word: str
    """State as one word, such as ``Ready``; empty for an object without a state of its own."""
    health: Health
    message: str
    """Why it is not all right; empty otherwise."""


def state_of(obj: Resource) -> ObjectState:
    """Returns the state of an object of any kind but Pod; total over any JSON object."""
    if is_deleting(obj):
        return ObjectState("Terminating", Health.PROGRESS, "")
    conditions = _conditions(obj)
    for type_ in ("Stalled", "Failed", "ReplicaFailure"):
        if (found := conditions.get(type_)) is not None and found.get("status") == "True":
            return ObjectState(word(found.get("reason")) or type_, Health.PROBLEM, line(found.get("message")))
    phase = word(dig(obj, "status", "phase"))
    counts = _counts(obj)
    counted = counts if _reports_counts(obj) else ""
    for type_ in _READY:
        if (found := conditions.get(type_)) is not None:
            return _by_condition(found, type_, phase=phase, counts=counted)
    ending = [(name, each) for name, each in conditions.items() if name.endswith(("Ready", "Succeeded"))]
    if ending:
        # The upstream's own words, such as WorkspaceSucceeded: the one that is not True says most.
        name, each = next(((n, c) for n, c in ending if c.get("status") != "True"), ending[-1])
        return _by_condition(each, name, phase=phase, counts=counted)
    if counts:
        ready, _, wanted = counts.partition("/")
        return ObjectState(f"{counts} ready", Health.OK if ready == wanted else Health.PROGRESS, "")
    if phase:
        return ObjectState(phase, _PHASES.get(phase, Health.PROGRESS), line(dig(obj, "status", "message")))
    return ObjectState("", Health.OK, "")


def _by_condition(condition: Resource, type_: str, *, phase: str, counts: str) -> ObjectState:
    status, reason = condition.get("status"), word(condition.get("reason"))
    if status == "True":
        ready, _, wanted = counts.partition("/")
        if ready != wanted:
            return ObjectState(f"{counts} ready", Health.PROGRESS, "")
        return ObjectState(f"{counts} ready" if counts else (phase or type_), Health.OK, "")
    if status != "False":
        return ObjectState(phase or f"{type_} unknown", Health.UNKNOWN, line(condition.get("message")))
    problem = reason != "" and category_of(reason) not in _PROGRESS and _is_registered(reason)
    health = Health.PROBLEM if problem or _PHASES.get(phase) is Health.PROBLEM else Health.PROGRESS
    return ObjectState(phase or reason or f"not {type_}", health, line(condition.get("message")))


def _is_registered(reason: str) -> bool:
    """Whether the reason is in our list: upstreams use words of their own for what is merely not ready yet."""
    from airunway.status.reasons import REASONS

    return reason in REASONS


def _conditions(obj: Resource) -> dict[str, Resource]:
    """The conditions by type; those of a route are those of its first parent."""
    listed = dig(obj, "status", "conditions")
    if not isinstance(listed, list):
        parents = dig(obj, "status", "parents")
        listed = dig(parents[0], "conditions") if isinstance(parents, list) and parents else None
    if not isinstance(listed, list):
        return {}
    return {str(each.get("type")): each for each in listed[:64] if isinstance(each, dict)}


def _counts(obj: Resource) -> str:
    """Ready and wanted replicas as ``1/2``; empty for an object that has none."""
    wanted = dig(obj, "spec", "replicas")
    if not isinstance(wanted, int):
        return ""
    ready = dig(obj, "status", "readyReplicas", default=0)
    return f"{ready}/{wanted}" if isinstance(ready, int) else ""


def _reports_counts(obj: Resource) -> bool:
    """Whether an object counts its replicas in its status: some say with a condition alone that they are ready."""
    return any(dig(obj, "status", name) is not None for name in ("replicas", "readyReplicas"))
