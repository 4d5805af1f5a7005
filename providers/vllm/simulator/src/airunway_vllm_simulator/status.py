"""Derives the status of a LeaderWorkerSet from its groups (facts 6 to 11).

As in the real one, a condition that becomes False keeps reason and message, and no condition explains a failure.
"""

from __future__ import annotations

from collections.abc import Sequence

from airunway.resource import Resource, condition_of, copy_of, dig, key_of
from airunway_vllm_simulator import names
from airunway_vllm_simulator.groups import Group

__all__ = ["AVAILABLE", "PROGRESSING", "UPDATING", "selector", "status_after", "summary"]

AVAILABLE, PROGRESSING, UPDATING = "Available", "Progressing", "UpdateInProgress"

_WORDS = {
    AVAILABLE: ("AllGroupsReady", "All replicas are ready"),
    PROGRESSING: ("GroupsProgressing", "Replicas are progressing"),
    UPDATING: ("GroupsUpdating", "Rolling Upgrade is in progress"),
}
_ENDS = {AVAILABLE: (PROGRESSING, UPDATING), PROGRESSING: (AVAILABLE,), UPDATING: (AVAILABLE,)}


def status_after(lws: Resource, stateful_set: Resource, groups: Sequence[Group], *, now: str) -> Resource:
    """The whole status; equal to the present one if nothing changes. `now` is RFC 3339.

    Counters count groups, and zero is absent. ``UpdateInProgress`` is set one write before ``Progressing``.
    """
    counts = {
        "replicas": int(dig(stateful_set, "status", "replicas", default=0)),
        "readyReplicas": sum(group.ready for group in groups),
        "updatedReplicas": sum(group.updated for group in groups),
    }
    status: Resource = {
        "conditions": copy_of({"c": dig(lws, "status", "conditions", default=[])})["c"],
        "hpaPodSelector": selector(lws),
        "observedGeneration": int(dig(lws, "metadata", "generation", default=1)),
        **{field: count for field, count in counts.items() if count},
    }
    for type_ in _held(lws, groups):
        _set(status, type_, now=now)
    for condition in status["conditions"]:
        condition["observedGeneration"] = status["observedGeneration"]
    return status


def summary(lws: Resource, status: Resource, groups: Sequence[Group]) -> tuple[str, str] | None:
    """Reason and message of the event for a status; None if no condition became True."""
    before = {c["type"]: c["status"] for c in dig(lws, "status", "conditions", default=[])}
    turned = [c["type"] for c in status["conditions"] if c["status"] == "True" and before.get(c["type"]) != "True"]
    if not turned:
        return None
    shown = (
        UPDATING if any(c["type"] == UPDATING and c["status"] == "True" for c in status["conditions"]) else turned[0]
    )
    reason, message = _WORDS[shown]
    ready, wanted = sum(group.ready for group in groups), dig(lws, "spec", "replicas", default=1)
    return reason, f"{message}, with {ready} groups ready of total {wanted} groups"


def selector(lws: Resource) -> str:
    """Label selector of the leaders, for an autoscaler."""
    return f"{names.NAME}={key_of(lws).name},{names.WORKER_INDEX}=0"


def _held(lws: Resource, groups: Sequence[Group]) -> list[str]:
    """The conditions that should be True now. Groups beyond the wanted number (surge, scale-down) do not count."""
    wanted = int(dig(lws, "spec", "replicas", default=1))
    counted = [group for group in groups if group.index < wanted]
    if any(not group.updated for group in counted):
        started = (condition_of(lws, UPDATING) or {}).get("status") == "True"
        return [UPDATING, PROGRESSING] if started else [UPDATING]
    if sum(group.ready for group in counted) == wanted:
        return [AVAILABLE]
    return [PROGRESSING]


def _set(status: Resource, type_: str, *, now: str) -> None:
    reason, message = _WORDS[type_]
    conditions: list[Resource] = status["conditions"]
    held = next((c for c in conditions if c["type"] == type_), None)
    for other in conditions:
        if other["type"] in _ENDS[type_] and other["status"] == "True":
            other.update(status="False", lastTransitionTime=now)
    if held is None:
        conditions.append(
            {"type": type_, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}
        )
    elif held["status"] != "True":
        held.update(status="True", lastTransitionTime=now)
