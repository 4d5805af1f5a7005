"""Whose word counts: the upstream's, or what the pods show."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from time import process_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airunway.plugins.contract import Component, Endpoint, Finding, Observation, Replicas
from airunway.resource import Resource, format_time
from airunway.runtime.diagnosis import ABSENCE_PATIENCE, UPSTREAM_STALE_AFTER, Diagnosis, conclude, diagnose
from airunway.runtime.evidence import PODS_PER_DEPLOYMENT, is_history, limited
from airunway.runtime.memory import Memory
from airunway.runtime.report import Report
from airunway.runtime.state import applied_at
from airunway.status.evidence import (
    POD_SHOWN,
    ContainerFacts,
    Ending,
    EventFacts,
    Evidence,
    PodFacts,
    Unscheduled,
    count_pods,
)
from airunway.status.reasons import REASONS, Category
from airunway.status.rollup import CAPACITY_PATIENCE, DEPENDENCY_GRACE, Fault

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def pod(name: str = "llama-0", *, ready: bool = True, **fields: Any) -> PodFacts:
    base: dict[str, Any] = {
        "namespace": "ml",
        "name": name,
        "uid": name,
        "created": NOW - timedelta(minutes=5),
        "phase": "Running",
        "node": "gpu-0",
        "ready": ready,
        "revision": "1",
        "owner": ("StatefulSet", "llama"),
        "containers": (ContainerFacts(name="model", ready=ready, running=True),),
    }
    return PodFacts(**{**base, **fields})


def crashing(name: str = "llama-0", **fields: Any) -> PodFacts:
    ended = Ending(code=1, reason="Error", message="boom", finished=NOW)
    broken = ContainerFacts(name="model", waiting="CrashLoopBackOff", last=ended, restarts=3)
    return pod(name, ready=False, containers=(broken,), **fields)


def waiting(reason: str, message: str) -> PodFacts:
    return pod(
        ready=False, phase="Pending", containers=(ContainerFacts(name="model", waiting=reason, message=message),)
    )


def unschedulable(message: str = "2 Insufficient nvidia.com/gpu", *, ago: timedelta = timedelta()) -> PodFacts:
    told = Unscheduled(reason="Unschedulable", message=message, since=NOW - ago)
    return pod(ready=False, phase="Pending", node="", unscheduled=told, containers=())


def upstream(ready: bool | None, reason: str, message: str = "", *, current: bool = True, **more: Any) -> Report:
    component = Component(name="ProviderResource", ready=ready, reason=reason, message=message)
    observation = Observation(components=(component,), up_to_date=current, **more)
    return Report(
        observation=observation,
        resource={"kind": "Workspace", "metadata": {"name": "llama"}},
        subject="Workspace/ml/llama",
    )


READY = upstream(True, "Ready", "workspace succeeds")
STARTING = upstream(False, "Progressing", "Inference workload is not ready")
NOT_READY = upstream(False, "UpstreamFailed", "Inference workload is not ready")


def outcome(report: Report, *pods: PodFacts, phase: str = "Deploying", **more: Any) -> tuple[Resource, Diagnosis]:
    """The status that follows, and the diagnosis. Keyword arguments: the live status' other fields, events, now."""
    now = more.pop("now", NOW)
    live = {"phase": phase, "conditions": more.pop("conditions", []), **more.pop("live", {})}
    evidence = Evidence(pods=pods, served=phase in ("Running", "Degraded"), **more)
    deployment = {"metadata": {"name": "llama", "namespace": "ml", "generation": 1}, "status": live}
    status, _, found = conclude(report, evidence, deployment=deployment, memory=Memory(), now=now)
    return status, found


def condition(status: Resource, type_: str) -> Resource:
    return next((c for c in status["conditions"] if c["type"] == type_), {})


def test_ready_is_what_upstream_and_pods_say_together() -> None:
    status, found = outcome(READY, pod())
    assert (status["phase"], found.root_cause) == ("Running", None)
    assert condition(status, "PodsReady")["status"] == "True"


@pytest.mark.parametrize(
    ("report", "pods", "phase"),
    [(READY, (pod(),), "Degraded"), (READY, (pod(ready=False),), "Failed"), (STARTING, (), "Failed")],
    ids=["it serves", "its pod is not ready", "the upstream is not ready"],
)
def test_what_was_made_again_while_its_template_was_gone_is_degraded_once_it_serves(
    report: Report, pods: tuple[PodFacts, ...], phase: str
) -> None:
    gone = Fault(component="Template", reason="TemplateNotFound", message="there is no ModelTemplate fast")
    status, _ = outcome(replace(report, core_faults=(gone,)), *pods)
    assert (status["phase"], status["reason"], status["message"]) == (phase, "TemplateNotFound", gone.message)
    assert condition(status, "Ready")["status"] == "False"
    # What serves keeps what it has when the template is back.
    assert condition(status, "Served").get("status") == ("True" if phase == "Degraded" else None)


def test_a_route_that_is_only_awaited_is_part_of_the_first_start() -> None:
    waits = Fault(component="Gateway", reason="WaitingForGateway", message="not answered yet")
    status, _ = outcome(replace(READY, core_faults=(waits,)), pod())
    assert condition(status, "Served") == {}
    refused = replace(waits, reason="GatewayNotConfigured")
    status, _ = outcome(replace(READY, core_faults=(refused,)), pod())
    assert condition(status, "Served")["status"] == "True"


def test_where_no_pod_was_ever_seen_the_upstream_counts_alone() -> None:
    status, _ = outcome(READY)
    assert status["phase"] == "Running"
    assert condition(status, "PodsReady") == {}
    blind = diagnose(READY, None, deployment={}, now=NOW)
    assert blind.faults == ()


@pytest.mark.parametrize(
    "pods",
    [
        (pod(ready=False),),
        (pod(deleting=True),),
        (pod("a", revision="1"), pod("b", ready=False, created=NOW, revision="2")),
    ],
    ids=["a pod is not ready", "the old pod is going", "the new revision is not ready"],
)
def test_an_upstream_that_is_ready_too_early(pods: tuple[PodFacts, ...]) -> None:
    status, _ = outcome(READY, *pods)
    assert status["phase"] == "Deploying"
    assert condition(status, "ProviderResourceReady")["status"] == "True"
    assert condition(status, "PodsReady")["status"] == "False"


def test_the_steps_of_a_start_are_one_state() -> None:
    steps = [(), (unstarted := pod(ready=False, phase="Pending", node="", containers=()),), (pod(ready=False),)]
    assert unstarted.alive
    shown = [condition(outcome(STARTING, *pods)[0], "PodsReady") for pods in steps]
    assert shown[0]["reason"] == "Starting"
    assert shown == [shown[0]] * 3


def test_pods_that_vanish_from_a_ready_upstream_are_waited_for_and_then_thought_elsewhere() -> None:
    state = {"type": "PodsReady", "status": "True", "reason": "PodsReady", "lastTransitionTime": format_time(NOW)}
    status, found = outcome(READY, phase="Running", conditions=[state])
    assert (status["phase"], found.wake_after) == ("Deploying", ABSENCE_PATIENCE.total_seconds())
    gone = condition(status, "PodsReady")
    later, _ = outcome(READY, conditions=[gone], now=NOW + ABSENCE_PATIENCE)
    assert later["phase"] == "Running"
    assert condition(later, "PodsReady") == {}


@pytest.mark.parametrize("report", [STARTING, NOT_READY], ids=["starting", "not ready any more"])
def test_a_precise_fault_of_a_pod_wins_over_a_general_word(report: Report) -> None:
    status, found = outcome(report, crashing(), phase="Running")
    assert found.root_cause is not None
    assert (status["phase"], status["reason"]) == ("Degraded", "CrashLoopBackOff")
    assert status["message"] == found.root_cause.message == status["rootCause"]["message"]
    assert status["rootCause"]["object"] == "Pod/ml/llama-0"
    assert condition(status, "PodsReady")["reason"] == "CrashLoopBackOff"
    assert condition(status, "ProviderResourceReady")["reason"] in ("Progressing", "UpstreamFailed")


def test_lack_of_capacity_is_not_turned_into_failure_by_a_general_word() -> None:
    status, _ = outcome(NOT_READY, unschedulable(), phase="Running")
    assert (status["phase"], status["reason"]) == ("Deploying", "InsufficientCapacity")


@pytest.mark.parametrize("reason", sorted(POD_SHOWN))
def test_an_outdated_word_about_pods_is_progress(reason: str) -> None:
    status, found = outcome(upstream(False, reason, "as of an hour ago"), pod(ready=False))
    assert (status["phase"], found.root_cause) == ("Deploying", None)
    shown = condition(status, "ProviderResourceReady")
    assert shown["reason"] == "Progressing"
    assert "as of an hour ago" in shown["message"]


@pytest.mark.parametrize("reason", sorted(POD_SHOWN))
def test_what_an_upstream_has_from_the_engine_itself_needs_no_pod_that_shows_it(reason: str) -> None:
    report = upstream(False, reason, "unknown engine argument: x")
    assert report.observation is not None
    told = tuple(replace(component, authoritative=True) for component in report.observation.components)
    report = replace(report, observation=replace(report.observation, components=told))
    _, found = outcome(report, pod())
    assert (found.faults[0].reason, found.faults[0].message) == (reason, "unknown engine argument: x")


def test_without_living_pods_the_upstream_s_word_about_them_counts() -> None:
    status, found = outcome(upstream(False, "CrashLoopBackOff", "it crashed"))
    assert (status["phase"], status["reason"]) == ("Failed", "CrashLoopBackOff")
    assert found.root_cause is not None
    assert (found.root_cause.code, found.root_cause.object) == ("Engine.CrashLoop", "Workspace/ml/llama")
    assert status["message"] == found.root_cause.message
    assert status["message"].startswith("it crashed. Read the log of its pods")


def test_what_pods_cannot_show_stays_the_upstream_s_word() -> None:
    status, _ = outcome(upstream(False, "PendingResources", "Not enough Nodes are ready"), pod(ready=False))
    assert condition(status, "ProviderResourceReady")["reason"] == "PendingResources"


def test_one_of_several_is_degraded_and_never_failed() -> None:
    status, _ = outcome(READY, pod("llama-0"), crashing("llama-1"))
    assert status["phase"] == "Degraded"
    assert "llama-1" in status["message"]
    alone, _ = outcome(STARTING, crashing("llama-1"))
    assert alone["phase"] == "Failed"
    prefill = pod("p-0", owner=("StatefulSet", "prefill"))
    roles, _ = outcome(STARTING, prefill, crashing("d-0", owner=("StatefulSet", "decode")))
    assert roles["phase"] == "Failed"  # the other role cannot stand in


def test_one_of_three_without_its_image_after_a_roll_out_degrades_by_name_and_the_rest_is_reached() -> None:
    served = Endpoint(service="llama", port=8000)
    report = upstream(
        False, "Progressing", "1 of 3 updated", endpoint=served, replicas=Replicas(desired=3, ready=2, available=2)
    )
    new = replace(waiting("ErrImagePull", "manifest unknown: not found"), name="llama-2", uid="llama-2", revision="2")
    status, _ = outcome(report, pod("llama-0"), pod("llama-1"), new, phase="Running")
    assert (status["phase"], status["reason"]) == ("Degraded", "ImageNotFound")
    assert "llama-2" in status["message"]
    assert status["endpoint"]["url"] == "http://llama.ml.svc:8000"
    assert status["replicas"]["summary"] == "2/3"


def test_h7_the_work_grows_as_the_number_of_pods_and_no_faster() -> None:
    """Evicted pods pile up by the thousand, and whoever may create pods can copy a label: a pass must not keep the
    loop for seconds because of it.
    """

    def seconds(number: int) -> float:
        unbound = unschedulable("pod has unbound immediate PersistentVolumeClaims")
        pods = [crashing(f"llama-{i}") for i in range(number)]
        pods += [replace(unbound, name=f"waits-{i}", claims=("disk",)) for i in range(number)]
        pods += [pod(f"gone-{i}", ready=False, phase="Failed", reason="Evicted") for i in range(number)]
        begun = process_time()
        status, _ = outcome(STARTING, *pods)
        assert status["phase"] == "Failed"
        return process_time() - begun

    few, many = (min(seconds(number) for _ in range(2)) for number in (150, 1_200))
    assert many / few < 24, "eight times as many pods: eight times the work, not sixty-four times"


def test_h7_of_too_many_pods_the_living_and_newest_are_looked_at() -> None:
    alive = [pod(f"llama-{i}", created=NOW - timedelta(days=9, seconds=i)) for i in range(3)]
    over = [pod(f"gone-{i}", phase="Failed", created=NOW - timedelta(seconds=i)) for i in range(PODS_PER_DEPLOYMENT)]
    assert limited([*over, *alive]) == [*alive, *over[:-3]]
    assert limited(over) is over


@pytest.mark.parametrize(("only_degrades", "phase"), [(True, "Degraded"), (False, "Failed")])
def test_a_pod_of_what_the_rest_serves_without_degrades_whatever_its_fault(only_degrades: bool, phase: str) -> None:
    """An upgrade: the old cluster serves on while the new one has no image."""
    new = waiting("ErrImagePull", "manifest unknown: not found")
    old = pod("llama-old", owner=("RayCluster", "old"))
    report = upstream(False, "Progressing", "a new cluster starts", replicas=Replicas(desired=1))
    assert report.observation is not None
    parts = tuple(replace(component, only_degrades=only_degrades) for component in report.observation.components)
    report = replace(report, observation=replace(report.observation, components=parts))
    status, _ = outcome(report, old, new)
    assert (status["phase"], status["reason"]) == (phase, "ImageNotFound")


def test_an_old_refusal_is_over_when_all_is_ready() -> None:
    told = EventFacts(
        kind="StatefulSet", namespace="ml", name="llama", reason="FailedCreate", note="exceeded quota: q", last=NOW
    )
    status, _ = outcome(STARTING, events=(told,))
    assert status["rootCause"]["code"] == "Unschedulable.Quota"
    over, found = outcome(READY, pod(), events=(told,))
    assert (over["phase"], found.root_cause) == ("Running", None)


# ------------------------------------------------------------------------------------------------------------- time


def test_missing_capacity_is_patient_also_across_a_restart() -> None:
    status, found = outcome(STARTING, unschedulable())
    assert (status["phase"], found.wake_after) == ("Deploying", CAPACITY_PATIENCE.total_seconds())
    # A new process: nothing but the status is left of the old one.
    later = NOW + timedelta(minutes=10)
    again, found = outcome(STARTING, unschedulable(ago=timedelta()), live=status, now=later)
    assert (again["phase"], found.wake_after) == ("Deploying", 300.0)
    assert again["rootCause"]["since"] == format_time(NOW)
    end, _ = outcome(STARTING, unschedulable(), live=status, now=NOW + CAPACITY_PATIENCE)
    assert end["phase"] == "Degraded"
    # A node came, and the pod that waited for it is the same.
    healed, _ = outcome(READY, pod(), live=end, now=NOW + CAPACITY_PATIENCE + timedelta(minutes=1))
    assert healed["phase"] == "Running"
    assert "rootCause" not in healed


def test_what_is_out_of_reach_is_debounced_and_a_flap_begins_anew() -> None:
    memory = Memory()
    pull = waiting("ErrImagePull", "dial tcp: lookup registry.example: no such host")

    def faults(*pods: PodFacts, now: datetime) -> dict[tuple[str, str], datetime]:
        found = diagnose(STARTING, Evidence(pods=pods), deployment={}, now=now)
        return memory.date(found.faults, status={}, now=now)

    assert faults(pull, now=NOW)["Pods", "DNSFailure"] == NOW
    assert faults(pull, now=NOW + timedelta(seconds=8))["Pods", "DNSFailure"] == NOW
    assert ("Pods", "DNSFailure") not in faults(pod(ready=False), now=NOW + timedelta(seconds=9))
    again = NOW + timedelta(seconds=10)
    assert faults(pull, now=again)["Pods", "DNSFailure"] == again
    status, found = outcome(STARTING, pull)
    assert (status["phase"], found.wake_after) == ("Deploying", DEPENDENCY_GRACE.total_seconds())


def test_another_component_s_recovery_does_not_reset_a_fault() -> None:
    memory = Memory()
    first = [Fault(component="Pods", reason="Timeout"), Fault(component="Other", reason="Progressing")]
    memory.date(first, status={}, now=NOW)
    later = memory.date(first[:1], status={}, now=NOW + timedelta(seconds=9))
    assert later == {("Pods", "Timeout"): NOW}
    assert Memory().date(first[:1], status={}, now=NOW + timedelta(seconds=9)) != later


def test_an_upstream_that_does_not_look_at_a_change() -> None:
    moved = {"type": "X", "status": "True", "lastTransitionTime": format_time(NOW - timedelta(hours=1))}
    report = replace(
        upstream(True, "Ready", current=False),
        applied=NOW,
        resource={"kind": "Workspace", "metadata": {"name": "llama"}, "status": {"conditions": [moved]}},
    )
    status, found = outcome(report, pod(), phase="Running")
    assert (status["phase"], found.wake_after) == ("Deploying", UPSTREAM_STALE_AFTER.total_seconds())
    stale, found = outcome(report, pod(), phase="Deploying", now=NOW + UPSTREAM_STALE_AFTER)
    assert (stale["phase"], condition(stale, "Ready")["status"]) == ("Deploying", "Unknown")
    assert (stale["reason"], stale["rootCause"]["code"]) == ("StaleStatus", "Provider.Stale")
    assert "Workspace 'llama'" in stale["message"]


@pytest.mark.parametrize(
    ("observed", "reason"), [(None, "StaleStatus"), (False, "StaleStatus"), (True, "QuotaExceeded")]
)
def test_an_upstream_that_has_observed_the_newest_spec_is_not_stale_however_long_its_roll_out_takes(
    observed: bool | None, reason: str
) -> None:
    report = replace(upstream(False, "QuotaExceeded", "no room", current=False, observed=observed), applied=NOW)
    begun = {"type": "ProviderResourceReady", "status": "False", "reason": "QuotaExceeded"}
    conditions = [{**begun, "lastTransitionTime": format_time(NOW)}]
    status, _ = outcome(report, now=NOW + timedelta(minutes=20), conditions=conditions)
    assert status["reason"] == reason
    expected = ("Degraded", "False") if observed else ("Deploying", "Unknown")
    assert (status["phase"], condition(status, "Ready")["status"]) == expected


def test_a_sign_of_life_after_the_change_gives_the_upstream_more_time() -> None:
    """It works on the change: its five minutes begin with the last condition that it moved."""
    sign = NOW + timedelta(minutes=4)
    conditions = [
        {"type": "Y", "status": "True", "lastTransitionTime": format_time(NOW - timedelta(hours=1))},
        {"type": "X", "status": "False", "lastTransitionTime": format_time(sign)},
    ]
    report = replace(
        upstream(False, "Progressing", current=False),
        applied=NOW,
        resource={"metadata": {}, "status": {"conditions": conditions}},
    )
    patient, found = outcome(report, pod(ready=False), now=NOW + UPSTREAM_STALE_AFTER)
    assert (patient["reason"], found.wake_after) == ("Progressing", 240.0)
    stale, _ = outcome(report, pod(ready=False), now=sign + UPSTREAM_STALE_AFTER)
    assert stale["reason"] == "StaleStatus"


def test_when_we_changed_an_object_last() -> None:
    entries = [
        {"manager": "ours", "time": format_time(NOW)},
        {"manager": "ours", "subresource": "status", "time": format_time(NOW + timedelta(hours=1))},
        {"manager": "theirs", "time": format_time(NOW + timedelta(hours=1))},
    ]
    assert applied_at({"metadata": {"managedFields": entries}}, "ours") == NOW
    made = {"metadata": {"creationTimestamp": format_time(NOW)}}
    assert applied_at(made, "ours") == NOW


def test_pods_of_jobs_and_those_that_are_over_do_not_count() -> None:
    counts = count_pods([pod(), pod("j", owner=("Job", "load")), pod("x", phase="Failed"), pod("y", deleting=True)])
    assert (counts.living, counts.ready, counts.leaving) == (1, 1, 1)


def test_replicas_that_nobody_wants_are_not_missed() -> None:
    status, _ = outcome(upstream(True, "Ready", replicas=Replicas(desired=0)))
    assert status["phase"] == "Running"


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.sampled_from([pod(), crashing("c"), unschedulable(), pod("d", deleting=True)]), max_size=3),
    st.sampled_from([True, False, None]),
    st.sampled_from([*sorted(REASONS), "Unheard"]),
    st.booleans(),
    st.sampled_from(["Pending", "Deploying", "Running", "Degraded", "Failed", ""]),
)
def test_ready_never_contradicts_the_pods(
    pods: list[PodFacts], ready: bool | None, reason: str, current: bool, phase: str
) -> None:
    status, found = outcome(upstream(ready, reason, current=current), *pods, phase=phase)
    if condition(status, "Ready")["status"] == "True" and found.faults:  # debounced: it goes on being what it was
        assert phase == "Running"
        assert {fault.kind for fault in found.faults} <= {Category.CONNECTIVITY, Category.PASSING, Category.UNKNOWN}
    elif condition(status, "Ready")["status"] == "True":
        assert ready is True
        assert all(one.ready for one in pods if one.alive)
    if found.root_cause is not None:
        assert status["rootCause"]["message"] == found.root_cause.message
    else:
        assert "rootCause" not in status


@pytest.mark.parametrize(("ago", "over"), [(61, True), (60, False), (0, False)])
def test_real_llmd_11_a_refusal_of_before_the_object_was_made_is_an_earlier_one_s(ago: int, over: bool) -> None:
    """The quota's event of a StatefulSet that is gone was told of the next one of that name."""
    primary: Resource = {"metadata": {"creationTimestamp": format_time(NOW - timedelta(seconds=60))}}
    told = EventFacts(kind="StatefulSet", namespace="ml", name="llama", last=NOW - timedelta(seconds=ago))
    assert is_history(told, primary) is over
    assert not is_history(told, {})
    assert not is_history(replace(told, last=None), primary)


REFUSAL = Finding(path="spec.engine.args", reason="ConfigNotFound", message="there is no preset 'fast'")
SERVED_AT = Endpoint(service="llama", port=8000)


def test_a_spec_that_is_refused_while_the_one_before_serves_degrades_and_keeps_its_endpoint() -> None:
    """KServe leaves the old pods serving; ConfigNotFound alone is Failed (review of an author)."""
    report = upstream(True, "Ready", current=False, refused=REFUSAL, endpoint=SERVED_AT)
    status, found = outcome(report, pod(), phase="Running")
    assert (status["phase"], status["reason"]) == ("Degraded", "ConfigNotFound")
    assert status["message"] == (
        "The newest spec is refused, the one before serves: spec.engine.args: there is no preset 'fast'"
    )
    assert status["endpoint"]["url"] == "http://llama.ml.svc:8000"
    assert condition(status, "ProviderResourceReady")["status"] == "True"
    assert found.faults[0].component == "Revision"


def test_a_spec_that_is_refused_is_no_status_that_stands_still() -> None:
    report = replace(
        upstream(True, "Ready", current=False, refused=REFUSAL), applied=NOW - 2 * UPSTREAM_STALE_AFTER, warnings=()
    )
    status, _ = outcome(report, pod(), phase="Running")
    assert status["reason"] == "ConfigNotFound"


@pytest.mark.parametrize("reason", ["Timeout", "GatedModel", "SomethingNew", "Progressing"])
def test_whatever_the_reason_a_refused_spec_degrades(reason: str) -> None:
    report = upstream(True, "Ready", current=False, refused=replace(REFUSAL, reason=reason))
    status, _ = outcome(report, pod(), phase="Running")
    assert (status["phase"], status["reason"]) == ("Degraded", reason)


def test_a_refused_spec_where_nothing_serves_is_a_failure() -> None:
    status, _ = outcome(upstream(False, "Progressing", current=False, refused=REFUSAL))
    assert (status["phase"], status["reason"]) == ("Failed", "ConfigNotFound")
    assert "the one before serves" not in status["message"]


def test_an_upstream_s_own_address_stands_in_the_status_as_it_is() -> None:
    url = "https://gateway.kserve-ingress.svc/team/llama"
    status, _ = outcome(upstream(True, "Ready", endpoint=Endpoint(url=url)), pod())
    assert status["endpoint"] == {"scheme": "https", "url": url}
    status, _ = outcome(upstream(True, "Ready", endpoint=Endpoint(service="llama", port=80, url=url)), pod())
    assert status["endpoint"] == {"service": "llama", "port": 80, "scheme": "https", "url": url}


BY_ROLE = "acme.io/server=llama,acme.io/role=leader"


def test_a_ready_pod_that_the_selector_does_not_select_is_a_warning() -> None:
    """NIM's single pods lack the role label: Running 1/1, and an autoscaler sees none (review of an author)."""
    status, _ = outcome(replace(READY, selector=BY_ROLE), pod("b"), pod("a"), pod("c", role="leader"))
    assert status["phase"] == "Running"
    (warning,) = status["warnings"]
    assert warning.startswith(f"pod a and 1 more is ready, and the selector {BY_ROLE} does not select it")


def test_pods_that_are_selected_or_not_ready_are_no_warning() -> None:
    assert "warnings" not in outcome(replace(READY, selector=BY_ROLE), pod(role="leader"))[0]
    assert "warnings" not in outcome(replace(READY, selector="airunway.ai/model-deployment=llama"), pod())[0]
    assert "warnings" not in outcome(replace(STARTING, selector=BY_ROLE), pod(ready=False))[0]
    own = upstream(True, "Ready", selector="acme.io/of=llama,app=x")
    assert "warnings" not in outcome(replace(own, selector="acme.io/of=llama,app=x"), pod())[0]
