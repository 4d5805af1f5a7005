"""What the runtime remembers of a deployment: since when, how often, and nothing that a restart could break."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from airunway.kube import ApiError, KubeError
from airunway.owned.apply import FIGHT_PAUSE, FIGHT_REVERTS, FIGHT_WINDOW, Fight
from airunway.owned.objects import Identity
from airunway.resource import Resource, format_time
from airunway.runtime.memory import Memory, previous_cause
from airunway.status.rollup import DEPENDENCY_GRACE, Fault

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
SLOW = Fault(component="Pods", reason="Timeout")
KEY = ("Pods", "Timeout")
SERVICE, ROLE = Identity("", "Service", "a"), Identity("rbac.authorization.k8s.io", "Role", "a")


def test_a_fault_that_lasts_keeps_its_beginning_and_one_that_comes_back_begins_anew() -> None:
    memory = Memory()
    assert memory.date([SLOW], status={}, now=NOW) == {KEY: NOW}
    assert memory.date([SLOW], status={}, now=NOW + 9 * SECOND) == {KEY: NOW}
    assert memory.date([], status={}, now=NOW + 10 * SECOND) == {}
    assert memory.date([SLOW], status={}, now=NOW + 11 * SECOND) == {KEY: NOW + 11 * SECOND}


def test_another_reason_of_the_same_component_is_another_fault() -> None:
    memory = Memory()
    memory.date([SLOW], status={}, now=NOW)
    other = Fault(component="Pods", reason="DNSFailure")
    assert memory.date([other], status={}, now=NOW + SECOND) == {("Pods", "DNSFailure"): NOW + SECOND}


def test_no_fault_begins_in_the_future() -> None:
    """A node's clock may be ahead of ours."""
    ahead = Fault(component="Pods", reason="Timeout", since=NOW + timedelta(hours=1))
    assert Memory().date([ahead], status={}, now=NOW) == {KEY: NOW}


def test_after_a_restart_a_condition_or_the_root_cause_tells_the_beginning() -> None:
    begun = NOW - timedelta(minutes=3)
    crash = Fault(component="Pods", reason="CrashLoopBackOff")
    unready = {"type": "PodsReady", "status": "False", "reason": crash.reason, "lastTransitionTime": format_time(begun)}
    assert Memory().date([crash], status={"conditions": [unready]}, now=NOW)["Pods", crash.reason] == begun
    other = {**unready, "reason": "PodFailed"}
    assert Memory().date([crash], status={"conditions": [other]}, now=NOW)["Pods", crash.reason] == NOW
    cause = {"code": "Engine.CrashLoop", "object": "Pod/ml/a", "message": "", "since": format_time(begun)}
    assert Memory().date([crash], status={"rootCause": cause}, now=NOW)["Pods", crash.reason] == begun


def test_after_a_restart_what_is_out_of_reach_counts_from_when_its_dependencies_were_reported_unreachable() -> None:
    """The pods may have been unready before, while they only started."""
    hour, begun = NOW - timedelta(hours=1), NOW - timedelta(minutes=3)
    unready = {"type": "PodsReady", "status": "False", "reason": "Timeout", "lastTransitionTime": format_time(hour)}
    parent = {"type": "DependenciesReachable", "status": "False", "lastTransitionTime": format_time(begun)}
    assert Memory().date([SLOW], status={"conditions": [unready, parent]}, now=NOW) == {KEY: begun}
    reachable = {**parent, "status": "True"}
    assert Memory().date([SLOW], status={"conditions": [unready, reachable]}, now=NOW) == {KEY: NOW}


@pytest.mark.parametrize(
    "status",
    [
        {"conditions": "x"},
        {"conditions": [1, None, {"type": 3}]},
        {"rootCause": "x"},
        {"rootCause": {"code": 1, "object": "Pod/ml/a", "since": format_time(NOW)}},
        {"rootCause": {"code": "Engine.CrashLoop", "object": "Pod/ml/a", "since": "yesterday"}},
        {"rootCause": {"code": "Nobody.Knows", "object": "Pod/ml/a", "since": format_time(NOW - SECOND)}},
    ],
    ids=str,
)
def test_a_status_that_somebody_scribbled_on_dates_nothing(status: Resource) -> None:
    assert Memory().date([SLOW], status=status, now=NOW) == {KEY: NOW}


def test_the_root_cause_of_a_status_is_read_whole_or_not_at_all() -> None:
    cause = {"code": "Engine.CrashLoop", "object": "Pod/ml/a", "field": "f", "message": "m", "since": format_time(NOW)}
    found = previous_cause({"rootCause": cause})
    assert found is not None
    assert (found.code, found.object, found.field, found.message, found.since) == (
        "Engine.CrashLoop",
        "Pod/ml/a",
        "f",
        "m",
        NOW,
    )
    assert previous_cause({}) is None


def error() -> KubeError:
    return ApiError(500, "InternalError", "failed calling webhook: no endpoints", {})


def test_an_outage_is_told_only_once_it_lasts_and_since_when() -> None:
    memory = Memory()
    assert memory.outage(error(), now=NOW) is None
    assert memory.outage(error(), now=NOW + DEPENDENCY_GRACE - SECOND) is None
    told = memory.outage(error(), now=NOW + DEPENDENCY_GRACE)
    assert told is not None
    assert (told.condition, told.blocks_ready, told.since) == ("ResourceCreated", True, NOW)
    assert "failed calling webhook" in told.message
    memory.failing = None  # a write that worked
    assert memory.outage(error(), now=NOW + timedelta(minutes=1)) is None


def test_reverts_become_a_fight_only_when_there_are_many_of_one_object_within_the_window() -> None:
    memory = Memory()
    for number in range(FIGHT_REVERTS):
        memory.reverted(SERVICE, NOW + number * SECOND)
        memory.reverted(ROLE, NOW + number * SECOND)
    assert memory.fights(NOW + 10 * SECOND) == {}
    memory.reverted(SERVICE, NOW + 10 * SECOND)
    assert memory.fights(NOW + 10 * SECOND).keys() == {SERVICE}
    assert memory.fights(NOW + FIGHT_WINDOW + SECOND) == {}, "the first ones are forgotten"


def test_in_a_fight_reverts_are_spaced_and_its_end_is_known() -> None:
    memory = Memory()
    for number in range(FIGHT_REVERTS + 1):
        memory.reverted(SERVICE, NOW + number * SECOND)
    last = NOW + FIGHT_REVERTS * SECOND
    expires_in = (FIGHT_WINDOW - FIGHT_REVERTS * SECOND).total_seconds()
    assert memory.fights(last) == {SERVICE: Fight(retry_after=FIGHT_PAUSE.total_seconds(), expires_in=expires_in)}
    assert memory.fights(last + FIGHT_PAUSE)[SERVICE].retry_after == 0
    assert memory.fights(NOW + FIGHT_WINDOW)[SERVICE].expires_in == 1.0


def test_reverts_of_long_ago_take_no_room() -> None:
    memory = Memory()
    memory.reverted(SERVICE, NOW)
    memory.fights(NOW + FIGHT_WINDOW + SECOND)
    assert memory.reverts == {}


def test_h1_what_was_made_long_ago_is_forgotten() -> None:
    """A user who edits brings ever new names, such as those of ConfigMaps."""
    memory = Memory()
    objects = [Identity(group="", kind="ConfigMap", name=f"a-{i}") for i in range(1_000)]
    for i, obj in enumerate(objects):
        memory.note_made(obj, now=NOW + i * SECOND)
    now = NOW + 999 * SECOND
    assert [memory.just_made(obj, now=now) for obj in objects] == [i > 969 for i in range(1_000)]
    assert len(memory.made) <= 31
