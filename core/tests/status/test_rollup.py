"""The roll-up: facts in, one phase out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunway.status.reasons import REASONS, Category, category_of
from airunway.status.rollup import CAPACITY_PATIENCE, DEPENDENCY_GRACE, Fault, Phase, parent_conditions, roll_up

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
LONG_AGO = NOW - timedelta(hours=1)


@dataclass(frozen=True)
class Row:
    case: str
    reason: str
    previous: str | None
    created: bool
    since: datetime | None
    phase: Phase
    ready: bool | None = False


ROWS = [
    Row("config fault before anything was created waits", "InvalidSpec", None, False, None, Phase.PENDING),
    Row("config fault of something created fails", "ImageNotFound", "Deploying", True, None, Phase.FAILED),
    Row("a scoped config fault degrades", "PathTemplateInvalid", "Running", True, None, Phase.DEGRADED),
    Row("an auth fault degrades until fixed", "ImagePullAuthFailure", "Deploying", True, None, Phase.DEGRADED),
    Row("a connectivity fault is informational while pending", "Timeout", "Pending", False, LONG_AGO, Phase.PENDING),
    Row("within its grace the phase stays Running", "Timeout", "Running", True, NOW, Phase.RUNNING, True),
    Row("after its grace it degrades", "Timeout", "Running", True, NOW - DEPENDENCY_GRACE, Phase.DEGRADED),
    Row("while starting it goes on deploying first", "ImagePullBackOff", "Deploying", True, NOW, Phase.DEPLOYING),
    Row("an error that passes changes nothing at once", "UpstreamError", "Running", True, NOW, Phase.RUNNING, True),
    Row("one that lasts degrades", "UpstreamError", "Deploying", True, NOW - DEPENDENCY_GRACE, Phase.DEGRADED),
    Row("missing capacity is waiting", "FailedScheduling", "Deploying", True, NOW, Phase.DEPLOYING),
    Row("persistent lack degrades", "FailedScheduling", "Deploying", True, NOW - CAPACITY_PATIENCE, Phase.DEGRADED),
    Row("out of memory while serving degrades", "PodOOMKilled", "Running", True, None, Phase.DEGRADED),
    Row("out of memory before serving fails", "PodOOMKilled", "Deploying", True, None, Phase.FAILED),
    Row("progress deploys", "Progressing", "Pending", True, None, Phase.DEPLOYING),
    Row("a crash loop before serving fails", "CrashLoopBackOff", "Deploying", True, None, Phase.FAILED),
    Row("a crash loop of a running one degrades", "CrashLoopBackOff", "Running", True, None, Phase.DEGRADED),
    Row("silence changes no phase and makes Ready unknown", "StaleStatus", "Running", True, None, Phase.RUNNING, None),
    Row("an unknown state changes no phase", "Unknown", "Degraded", True, None, Phase.DEGRADED),
    Row("a reason that nobody registered is a workload fault", "FluxCapacitor", "Running", True, None, Phase.DEGRADED),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.case)
def test_one_fault(row: Row) -> None:
    fault = Fault(component="Thing", reason=row.reason, message="what the thing says", since=row.since)
    verdict = roll_up([fault], previous=row.previous, created=row.created, now=NOW)
    assert verdict.phase is row.phase
    assert verdict.ready is row.ready
    assert verdict.message == "what the thing says"


@pytest.mark.parametrize("reason", ["CrashLoopBackOff", "PodOOMKilled", "UpstreamFailed"])
@pytest.mark.parametrize("previous", ["Pending", "Deploying", "Degraded", "Failed"])
def test_what_breaks_degrades_only_what_has_served(reason: str, previous: str) -> None:
    """Refused credentials degrade a first start too: that it was Degraded says nothing of having served."""
    fault = Fault(component="Pods", reason=reason)
    never = roll_up([fault], previous=previous, created=True, served=False, now=NOW)
    before = roll_up([fault], previous=previous, created=True, served=True, now=NOW)
    assert (never.phase, before.phase) == (Phase.FAILED, Phase.DEGRADED)


def test_no_fault_is_running() -> None:
    verdict = roll_up([], previous="Deploying", created=True, now=NOW)
    assert (verdict.phase, verdict.ready, verdict.reason) == (Phase.RUNNING, True, "Ready")


def test_the_worst_phase_wins_and_names_its_own_reason() -> None:
    faults = [Fault(component="A", reason="Progressing"), Fault(component="B", reason="ImageNotFound", message="gone")]
    verdict = roll_up(faults, previous="Deploying", created=True, now=NOW)
    assert (verdict.phase, verdict.reason, verdict.message) == (Phase.FAILED, "ImageNotFound", "gone")


@pytest.mark.parametrize("reason", ["Unknown", "StaleStatus", "Timeout"])
def test_what_only_keeps_the_phase_takes_no_reason_from_the_fault_that_made_it(reason: str) -> None:
    faults = [
        Fault(component="A", reason=reason, since=NOW),
        Fault(component="B", reason="PodOOMKilled", message="oom"),
    ]
    phase = "Running"
    for _ in range(3):
        verdict = roll_up(faults, previous=phase, created=True, served=True, now=NOW)
        assert (verdict.phase, verdict.reason, verdict.message) == (Phase.DEGRADED, "PodOOMKilled", "oom")
        assert verdict.ready is False
        phase = verdict.phase.value


def test_auth_shows_as_AuthFailed_in_the_roll_up() -> None:  # noqa: N802 - the reason's own spelling
    verdict = roll_up([Fault(component="A", reason="SecretNotFound")], previous="Deploying", created=True, now=NOW)
    assert verdict.reason == "AuthFailed"


def test_a_debounced_fault_says_when_to_look_again() -> None:
    fault = Fault(component="A", reason="Timeout", since=NOW - timedelta(seconds=4))
    verdict = roll_up([fault], previous="Running", created=True, now=NOW)
    assert verdict.wake_after == pytest.approx(6.0)
    later = roll_up([fault], previous="Running", created=True, now=NOW + timedelta(seconds=6))
    assert (later.phase, later.wake_after) == (Phase.DEGRADED, None)


faults = st.builds(
    Fault,
    component=st.sampled_from(["A", "B"]),
    reason=st.sampled_from([*REASONS, "Unheard", ""]),
    message=st.text(max_size=10),
    since=st.none() | st.datetimes(min_value=datetime(2026, 1, 1), timezones=st.just(UTC)),
    pending=st.booleans(),
    category=st.none() | st.sampled_from(Category),
)


@given(
    st.lists(faults, max_size=5),
    st.sampled_from([None, "", "Nonsense", *(phase.value for phase in Phase)]),
    st.booleans(),
)
def test_any_facts_give_a_verdict(found: list[Fault], previous: str | None, created: bool) -> None:
    verdict = roll_up(found, previous=previous, created=created, now=NOW)
    assert verdict.phase in Phase
    assert (verdict.reason == "Ready") == (not found)
    assert verdict.wake_after is None or verdict.wake_after > 0


@given(st.lists(faults, min_size=1, max_size=4), st.booleans())
def test_one_more_fault_never_makes_it_better(found: list[Fault], created: bool) -> None:
    order = [Phase.FAILED, Phase.DEGRADED, Phase.PENDING, Phase.DEPLOYING, Phase.RUNNING]
    fewer = roll_up(found[:-1], previous="Running", created=created, now=NOW)
    more = roll_up(found, previous="Running", created=created, now=NOW)
    assert order.index(more.phase) <= order.index(fewer.phase)


def test_parents_name_the_child_that_speaks_against_them() -> None:
    children = [
        {"type": "PodsReady", "status": "False", "reason": "ImagePullAuthFailure", "message": "401 from the registry"},
        {"type": "ResourceCreated", "status": "True", "reason": "ResourceCreated"},
        {"type": "Ready", "status": "False", "reason": "InvalidSpec", "message": "repeats"},
    ]
    parents = {condition.type: condition for condition in parent_conditions(children)}
    assert parents["AuthValid"].status is False
    assert parents["AuthValid"].message == "401 from the registry"
    assert parents["ConfigValid"].status is True
    assert parents["DependenciesReachable"].status is True


@pytest.mark.parametrize(
    ("status", "reason", "reachable"),
    [
        ("Unknown", "StaleStatus", False),
        ("Unknown", "Timeout", True),
        ("False", "Timeout", False),
        # What reports an error has been reached.
        ("False", "UpstreamError", True),
        ("False", "WriteFailed", True),
    ],
)
def test_who_is_not_heard_of_speaks_against_the_dependencies(status: str, reason: str, reachable: bool) -> None:
    child = {"type": "ProviderResourceReady", "status": status, "reason": reason, "message": "silent"}
    parents = {condition.type: condition.status for condition in parent_conditions([child])}
    assert parents["DependenciesReachable"] is reachable


def test_every_registered_reason_has_a_category_and_a_meaning() -> None:
    for name, reason in REASONS.items():
        assert name == reason.name
        assert name[0].isupper()
        assert " " not in name
        assert reason.meaning
        assert category_of(name) is reason.category
