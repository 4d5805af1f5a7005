"""Cases about the state engine that providers and core share: pure, by the clock that is given."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import permutations

import pytest

from airunway.plugins.contract import Component, Observation
from airunway.resource import Resource, condition_of, format_time
from airunway.runtime.memory import Memory
from airunway.runtime.report import Report, fault_of, provider_status
from airunway.status.conditions import Condition, written
from airunway.status.rollup import DEPENDENCY_GRACE, Fault, Phase, parent_conditions, roll_up

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
UNREACHABLE = Fault(component="Registry", reason="ConnectionRefused", message="registry refused")


def since(seconds: float) -> Fault:
    return Fault(component="Registry", reason="ConnectionRefused", since=NOW - timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("seconds", "phase", "wakes"),
    [
        (9.0, Phase.RUNNING, 1.0),
        (9.999, Phase.RUNNING, 0.001),
        (10.0, Phase.DEGRADED, None),
        (10.9, Phase.DEGRADED, None),
    ],
)
def test_aim_34_the_debounce_ends_at_ten_seconds_and_not_before(
    seconds: float, phase: Phase, wakes: float | None
) -> None:
    verdict = roll_up([since(seconds)], previous="Running", created=True, now=NOW)
    assert verdict.phase is phase
    assert verdict.wake_after == (None if wakes is None else pytest.approx(wakes, abs=1e-6))


@pytest.mark.parametrize("subsecond", [0.0, 0.4, 0.9])
def test_aim_34_a_restart_after_five_seconds_keeps_counting_from_a_timestamp_in_whole_seconds(subsecond: float) -> None:
    began = NOW + timedelta(seconds=subsecond)
    first = Memory().date([UNREACHABLE], status={}, now=began)
    assert first["Registry", "ConnectionRefused"] == began
    unready = {"type": "DependenciesReachable", "status": "False", "reason": "ConnectionRefused", "message": "m"}
    status = {"conditions": [{**unready, "lastTransitionTime": format_time(began)}]}
    restarted = Memory().date([UNREACHABLE], status=status, now=began + timedelta(seconds=5))
    begun = restarted["Registry", "ConnectionRefused"]
    assert timedelta() <= began - begun < timedelta(seconds=1)  # whole seconds: never later than it was


def test_aim_35_the_verdict_says_when_time_alone_will_change_it() -> None:
    """No event of the cluster is needed: the pass asks to be called again after just that long."""
    verdict = roll_up([since(3)], previous="Running", created=True, now=NOW)
    assert verdict.wake_after == pytest.approx(7.0)
    later = NOW + timedelta(seconds=verdict.wake_after or 0)
    assert roll_up([since(3)], previous="Running", created=True, now=later).phase is Phase.DEGRADED


def test_aim_36_a_flap_of_eight_seconds_down_and_one_up_never_degrades() -> None:
    memory = Memory()
    phase, moment = "Running", NOW
    for down in (True,) * 8 + (False,) + (True,) * 8 + (False,):
        moment += timedelta(seconds=1)
        faults = [UNREACHABLE] if down else []
        begun = memory.date(faults, status={}, now=moment)
        dated = [Fault(component=f.component, reason=f.reason, since=begun[f.component, f.reason]) for f in faults]
        phase = roll_up(dated, previous=phase, created=True, now=moment).phase.value
        assert phase == "Running"


@pytest.mark.parametrize("age", [timedelta(), DEPENDENCY_GRACE, timedelta(days=7)])
def test_aim_37_unreachable_while_pending_stays_pending_however_long(age: timedelta) -> None:
    fault = Fault(component="Registry", reason="Timeout", since=NOW - age, pending=True)
    verdict = roll_up([fault], previous="Pending", created=False, now=NOW)
    assert (verdict.phase, verdict.ready) == (Phase.PENDING, False)


def test_aim_38_one_unreachable_and_another_progressing_do_not_degrade_at_once() -> None:
    faults = [since(1), Fault(component="Pods", reason="Progressing", since=NOW - timedelta(hours=1))]
    for order in permutations(faults):
        assert roll_up(order, previous="Running", created=True, now=NOW).phase is Phase.DEPLOYING
        later = NOW + timedelta(seconds=9)
        assert roll_up(order, previous="Deploying", created=True, now=later).phase is Phase.DEGRADED


def test_aim_39_an_outage_that_is_the_first_thing_seen_deploys_and_is_debounced() -> None:
    for previous in (None, "Deploying"):
        verdict = roll_up([since(0)], previous=previous, created=True, now=NOW)
        assert verdict.phase is Phase.DEPLOYING
        assert verdict.wake_after == pytest.approx(10.0)
    assert roll_up([since(10)], previous="Deploying", created=True, now=NOW).phase is Phase.DEGRADED


def test_aim_40_another_reason_or_message_alone_moves_no_transition_time() -> None:
    before = written([Condition(type="A", status=False, reason="One", message="1")], previous=[], generation=1, now=NOW)
    later = NOW + timedelta(minutes=5)
    after = written(
        [Condition(type="A", status=False, reason="Two", message="2")], previous=before, generation=2, now=later
    )
    assert (after[0]["reason"], after[0]["message"]) == ("Two", "2")
    assert after[0]["lastTransitionTime"] == before[0]["lastTransitionTime"]
    turned = written([Condition(type="A", status=True, reason="Two")], previous=after, generation=2, now=later)
    assert turned[0]["lastTransitionTime"] == format_time(later)


def report(*components: Component) -> Report:
    return Report(resource={"kind": "Workspace"}, observation=Observation(components=components))


def status_of(found: Report, *, before: Resource | None = None) -> Resource:
    deployment = {"metadata": {"name": "llama", "namespace": "team", "generation": 1}, "status": before or {}}
    components = found.observation.components if found.observation else ()
    faults = [fault_of(c, None) for c in components if c.ready is not True]
    return provider_status(deployment, found, faults=faults, now=NOW)[0]


def test_aim_42_a_component_that_is_gone_takes_its_condition_and_its_vote_with_it() -> None:
    server = Component(name="Server", ready=True, reason="Ready")
    scaler = Component(name="Autoscaler", ready=False, reason="UpstreamFailed", message="no metrics")
    before = status_of(report(server, scaler))
    assert (condition_of({"status": before}, "AutoscalerReady") or {})["status"] == "False"
    after = status_of(report(server), before=before)
    assert condition_of({"status": after}, "AutoscalerReady") is None
    assert after["phase"] == "Running"


def test_aim_44_faults_of_every_kind_show_in_their_parents_and_the_reason_follows_the_worst_phase() -> None:
    children = [
        {"type": "AReady", "status": "False", "reason": "SecretNotFound", "message": "no secret"},
        {"type": "BReady", "status": "False", "reason": "ImageNotFound", "message": "no image"},
        {"type": "CReady", "status": "False", "reason": "Timeout", "message": "no answer"},
    ]
    parents = {parent.type: (parent.status, parent.reason) for parent in parent_conditions(children)}
    assert parents == {
        "AuthValid": (False, "SecretNotFound"),
        "ConfigValid": (False, "ImageNotFound"),
        "DependenciesReachable": (False, "Timeout"),
    }
    faults = [Fault(component=c["type"][0], reason=c["reason"], since=NOW) for c in children]
    for order in permutations(faults):
        verdict = roll_up(order, previous="Deploying", created=True, now=NOW)
        assert (verdict.phase, verdict.reason) == (Phase.FAILED, "ImageNotFound")


def test_aim_45_an_unknown_reason_is_a_workload_fault_and_speaks_against_no_parent() -> None:
    """The reason alone decides: a component that only makes progress says so with a registered reason."""
    failed = status_of(report(Component(name="Flux", ready=False, reason="FluxCapacitorEmpty", message="empty")))
    assert (failed["phase"], failed["reason"], failed["message"]) == ("Failed", "FluxCapacitorEmpty", "empty")
    busy = status_of(report(Component(name="Flux", ready=False, reason="Progressing", message="charges")))
    assert (busy["phase"], busy["reason"]) == ("Deploying", "Progressing")
    assert all(parent.status for parent in parent_conditions(failed["conditions"]))


@pytest.mark.parametrize("ready", [True, False, None])
@pytest.mark.parametrize("reason", ["NotAvailable", "NodeClaimNotReady", "Ready"])
@pytest.mark.parametrize("before", [None, "Running", "Terminating", "nonsense"])
def test_aim_51_whatever_a_component_says_the_phase_is_one_of_the_six(
    ready: bool | None, reason: str, before: str | None
) -> None:
    status = status_of(report(Component(name="Node", ready=ready, reason=reason)), before={"phase": before})
    assert status["phase"] in {phase.value for phase in Phase}
