"""Laws of the status: whatever a plugin, an upstream, pods and the status before say, what follows can be written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from airunway.api.crds import schema_of
from airunway.controller.decision import decide
from airunway.plugins.contract import Component, Endpoint, Finding, Observation, Replicas
from airunway.resource import Resource, condition_of
from airunway.runtime.diagnosis import conclude
from airunway.runtime.memory import Memory
from airunway.runtime.report import Report, StepResult, terminating_status
from airunway.schema import compile_schema
from airunway.status.evidence import ContainerFacts, EventFacts, Evidence, PodFacts, Unscheduled
from airunway.status.reasons import REASONS
from airunway.status.rollup import OVERALL, PARENTS, Phase
from airunway.validation import Violation

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)

WORKSPACE: Resource = {
    "apiVersion": "example.org/v1",
    "kind": "Workspace",
    "metadata": {"name": "llama", "creationTimestamp": "2026-11-21T10:00:00Z"},
}
CHECK = compile_schema(schema_of("ModelDeployment")["properties"]["status"])

json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
words = st.sampled_from([*REASONS, "Unheard", "", "not ready", "1st", "Ä", "a-b", "x" * 2000]) | st.text(max_size=6)
texts = st.sampled_from(["", "words.", "ü" * 1500, "x" * 5000]) | st.text(max_size=12)
moments = st.none() | st.datetimes(min_value=datetime(2026, 1, 1), timezones=st.just(UTC))

components = st.builds(
    Component,
    name=st.sampled_from(["ProviderResource", "Autoscaler", "Pods", "", "my thing", "x" * 400]),
    ready=st.sampled_from([True, False, None]),
    reason=words,
    message=texts,
    pending=st.booleans(),
    only_degrades=st.booleans(),
)
counts = st.integers(0, 5)
observations = st.builds(
    Observation,
    components=st.lists(components, max_size=3).map(tuple),
    replicas=st.none() | st.builds(Replicas, desired=counts, ready=counts, available=counts),
    endpoint=st.none() | st.builds(Endpoint, service=st.just("llama"), port=st.just(80)),
    up_to_date=st.booleans(),
    warnings=st.lists(st.builds(Finding, path=texts, reason=words, message=texts), max_size=20).map(tuple),
)
tellings = st.builds(
    StepResult,
    condition=st.sampled_from(["", "ResourceCreated", "ProviderCompatible"]),
    component=st.sampled_from(["Upstream", "Resource"]),
    blocks_ready=st.booleans(),
    only_degrades=st.booleans(),
    reason=words,
    message=texts,
    since=moments,
    pending=st.booleans(),
)
containers = st.builds(
    ContainerFacts,
    name=st.just("model"),
    ready=st.booleans(),
    running=st.booleans(),
    started=moments,
    restarts=st.integers(0, 3),
    waiting=st.sampled_from(["", "CrashLoopBackOff", "ErrImagePull", "ContainerCreating"]),
    message=texts,
)
pods = st.builds(
    PodFacts,
    namespace=st.just("ml"),
    name=st.sampled_from(["llama-0", "llama-1"]),
    created=moments,
    deleting=st.booleans(),
    phase=st.sampled_from(["", "Pending", "Running", "Failed", "Succeeded"]),
    reason=st.sampled_from(["", "Evicted"]),
    message=texts,
    node=st.sampled_from(["", "gpu-0"]),
    ready=st.booleans(),
    ready_since=moments,
    unscheduled=st.none() | st.builds(Unscheduled, reason=words, message=texts, since=moments),
    revision=st.sampled_from(["", "1", "2"]),
    owner=st.sampled_from([("", ""), ("StatefulSet", "llama")]),
    containers=st.lists(containers, max_size=2).map(tuple),
)
events = st.builds(
    EventFacts,
    kind=st.sampled_from(["Pod", "StatefulSet", "PersistentVolumeClaim"]),
    namespace=st.just("ml"),
    name=st.sampled_from(["llama-0", "llama"]),
    reason=st.sampled_from(["FailedCreate", "FailedMount", "Unhealthy", "ProvisioningFailed"]),
    note=texts,
    first=moments,
    last=moments,
)
evidences = st.builds(
    Evidence,
    pods=st.lists(pods, max_size=3).map(tuple),
    events=st.lists(events, max_size=3).map(tuple),
    served=st.booleans(),
)
types = st.sampled_from([*OVERALL, *PARENTS, "PodsReady", "Served", "ProviderResourceReady"])
statuses = st.fixed_dictionaries(
    {},
    optional={
        "phase": st.sampled_from(Phase) | json,
        "reason": words | json,
        "conditions": json
        | st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "type": st.sampled_from([*OVERALL, *PARENTS, "PodsReady", "Served", "ProviderResourceReady"])
                    | json,
                    "status": st.sampled_from(["True", "False", "Unknown"]) | json,
                    "reason": words | json,
                    "message": texts | json,
                    "lastTransitionTime": st.sampled_from(["2026-11-21T11:00:00Z", "nonsense"]) | json,
                    "observedGeneration": st.integers(1, 2) | json,
                },
            )
            | json,
            max_size=4,
        ),
        "rootCause": json
        | st.fixed_dictionaries({"code": words, "object": texts, "since": st.just("2026-11-21T11:00:00Z")}),
        "provider": json,
    },
)


def writable(status: Resource) -> None:
    problems: list[Any] = []
    CHECK(status, "status", problems)
    assert problems == []
    assert len(status.get("message", "").encode()) <= 1024
    for condition in status["conditions"]:
        assert len(condition["message"].encode()) <= 1024
    types = [condition["type"] for condition in status["conditions"]]
    assert len(types) == len(set(types))


@settings(max_examples=400, deadline=None)
@given(
    statuses,
    st.none() | observations,
    st.none() | evidences,
    st.lists(tellings, max_size=2, unique_by=lambda told: told.condition or told.component),
    st.booleans(),
    st.integers(1, 2),
)
def test_any_facts_give_a_status_that_the_api_server_takes_and_that_settles(
    live: Resource,
    observation: Observation | None,
    evidence: Evidence | None,
    own: list[StepResult],
    created: bool,
    generation: int,
) -> None:
    report = Report(
        results=tuple(own),
        observation=observation,
        subject="Workspace/ml/llama",
        resource=WORKSPACE if created else None,
    )
    deployment = {"metadata": {"name": "llama", "namespace": "ml", "generation": generation}, "status": live}
    memory = Memory()

    def following(before: Resource) -> Resource:
        status, verdict, _ = conclude(report, evidence, deployment=before, memory=memory, now=NOW)
        assert verdict.wake_after is None or verdict.wake_after > 0
        return {**before, "status": status}

    first = following(deployment)
    writable(first["status"])
    assert first["status"]["phase"] in set(Phase)
    ready = condition_of(first, "Ready") or {}
    assert (ready["status"] == "True") <= (first["status"]["phase"] == "Running")
    # Steady state: what follows is soon the same. A phase before that the facts do not bear out takes two passes.
    later = following(following(first))
    assert following(later)["status"] == later["status"]


@settings(max_examples=200, deadline=None)
@given(statuses, st.lists(st.builds(Violation, path=texts, message=texts, reason=words), max_size=40))
def test_the_core_s_part_can_be_written_too_and_has_every_parent(live: Resource, violations: list[Violation]) -> None:
    spec = {"model": {"id": "org/model"}}
    deployment = {"metadata": {"name": "llama", "namespace": "ml", "generation": 1}, "spec": spec, "status": live}
    status = decide(deployment, violations=violations, providers=[], selector=True, now=NOW).status
    written = {key: value for key, value in status.items() if key in ("phase", "reason", "message", "conditions")}
    writable(written)
    assert set(PARENTS) <= {condition["type"] for condition in status["conditions"]}


@given(statuses, texts)
def test_a_deployment_that_goes_can_say_so(live: Resource, message: str) -> None:
    deployment = {"metadata": {"name": "llama", "namespace": "ml", "generation": 1}, "status": live}
    status = terminating_status(deployment, message, now=NOW + timedelta(seconds=1))
    writable({key: value for key, value in status.items() if key != "provider"})
