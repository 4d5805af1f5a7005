"""A dependency that does not answer: from its first failure to a success of its own, whatever pods come and go."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.support.evidence import NOW

from airunway.plugins.contract import Component, Observation, Replicas
from airunway.resource import Resource, condition_of, format_time
from airunway.runtime.diagnosis import conclude
from airunway.runtime.memory import Memory
from airunway.runtime.report import Report, StepResult
from airunway.status.conditions import written_on
from airunway.status.evidence import ContainerFacts, Ending, Evidence, PodFacts
from airunway.status.rollup import DEPENDENCY_GRACE, parent_conditions

HUB = "requests.exceptions.ConnectTimeout: HTTPSConnectionPool(host='huggingface.co', port=443): timed out"
MADE = NOW - timedelta(hours=1)
REPORT = Report(
    observation=Observation(
        components=(Component(name="ProviderResource", ready=False, reason="Progressing", message="0 of 1"),),
        replicas=Replicas(desired=1),
    ),
    resource={"kind": "Workspace", "metadata": {"name": "llama", "creationTimestamp": format_time(MADE)}},
    subject="Workspace/ml/llama",
)
ANSWERS = Observation(
    components=(Component(name="ProviderResource", ready=True, reason="Ready"),), replicas=Replicas(desired=1, ready=1)
)
START: Resource = {"metadata": {"name": "llama", "namespace": "ml", "generation": 1}, "status": {}}


def pod(container: ContainerFacts, *, name: str = "llama-0", ready: bool = False) -> PodFacts:
    return PodFacts(
        namespace="ml",
        name=name,
        uid=name,
        created=NOW,
        phase="Running",
        node="gpu-0",
        ready=ready,
        owner=("StatefulSet", "llama"),
        containers=(container,),
    )


ENDED = ContainerFacts(
    name="model", waiting="CrashLoopBackOff", restarts=1, last=Ending(code=1, message=HUB, finished=NOW)
)
TRIES = ContainerFacts(name="model", running=True, started=NOW)
CREATED = ContainerFacts(name="model", waiting="ContainerCreating")
PULLS = ContainerFacts(
    name="model",
    image="registry.example/vllm:1",
    waiting="ErrImagePull",
    message="dial tcp 10.0.0.1:443: i/o timeout",
)
SERVES = ContainerFacts(name="model", running=True, ready=True, started=NOW)


class Story:
    """Passes of a provider, each followed by one of the core, which derives the parents."""

    def __init__(self) -> None:
        self.deployment, self.memory = START, Memory()
        self.wakes: float | None = None

    def look(self, *pods: PodFacts, at: float, answers: bool = False) -> tuple[str, str, str | None]:
        """Phase, reason and ``DependenciesReachable`` after the passes."""
        now, report = NOW + timedelta(seconds=at), REPORT
        if answers:
            report = replace(REPORT, observation=ANSWERS)
        evidence = Evidence(pods=pods)
        status, _, found = conclude(report, evidence, deployment=self.deployment, memory=self.memory, now=now)
        self.wakes = found.wake_after
        parents = [
            each
            for each in (self.deployment["status"].get("conditions") or [])
            if each["type"] in ("ConfigValid", "AuthValid", "DependenciesReachable")
        ]
        before = {**self.deployment, "status": {**status, "conditions": [*status["conditions"], *parents]}}
        after = written_on(before, parent_conditions(status["conditions"]), now=now)
        self.deployment = {**before, "status": {**status, "conditions": [*status["conditions"], *after]}}
        return status["phase"], status["reason"], (self.reachable() or {}).get("status")

    def reachable(self) -> Resource | None:
        return condition_of(self.deployment, "DependenciesReachable")


@pytest.mark.parametrize("fault", [ENDED, PULLS], ids=["the hub", "the registry"])
@pytest.mark.parametrize("between", ["no pod", "a new pod", "a new try"])
def test_a_new_pod_or_a_new_try_is_no_success(fault: ContainerFacts, between: str) -> None:
    story = Story()
    first = story.look(pod(fault), at=0)
    assert first == ("Deploying", "Timeout", "False")
    turned = (story.reachable() or {})["lastTransitionTime"]
    others = {
        "no pod": (),
        "a new pod": (pod(CREATED, name="llama-1"),),
        "a new try": (pod(TRIES if fault is ENDED else CREATED),),
    }[between]
    assert story.look(*others, at=4) == ("Deploying", "Timeout", "False")
    assert story.look(*others, at=12) == ("Degraded", "Timeout", "False")
    assert story.look(pod(fault, name="llama-2"), at=20) == ("Degraded", "Timeout", "False")
    assert story.look(*others, at=30) == ("Degraded", "Timeout", "False")
    assert (story.reachable() or {})["lastTransitionTime"] == turned
    assert story.look(pod(SERVES, ready=True), at=40, answers=True) == ("Running", "DeploymentReady", "True")


def test_a_registry_has_answered_once_the_containers_run() -> None:
    story = Story()
    story.look(pod(PULLS), at=0)
    assert story.look(pod(CREATED), at=3)[2] == "False"
    assert story.look(pod(TRIES), at=6) == ("Deploying", "Progressing", "True")


def test_the_root_cause_stays_with_what_it_explains() -> None:
    story = Story()
    story.look(pod(ENDED), at=0)
    first = story.deployment["status"]["rootCause"]
    assert first["code"] == "Model.DownloadStalled"
    story.look(pod(CREATED, name="llama-1"), at=5)
    assert story.deployment["status"]["rootCause"] == first


def test_another_fault_takes_its_place() -> None:
    story = Story()
    story.look(pod(ENDED), at=0)
    crashed = replace(ENDED, last=Ending(code=2, message="error: unrecognized arguments: --x", finished=NOW))
    assert story.look(pod(crashed), at=5) == ("Failed", "BadArguments", "True")


@pytest.mark.parametrize("older", [0, 3, 120], ids=lambda seconds: f"the container ended {seconds} s before")
def test_degraded_follows_ten_seconds_after_the_condition_turned_false(older: int) -> None:
    """However old the first sign of the fault is: what is read of it counts from when it is read."""
    story, grace = Story(), DEPENDENCY_GRACE.total_seconds()
    sign = Ending(code=1, message=HUB, finished=NOW - timedelta(seconds=older))
    failing = pod(replace(ENDED, last=sign))
    assert story.look(failing, at=0.4)[0] == "Deploying"
    assert (story.reachable() or {})["lastTransitionTime"] == format_time(NOW)
    assert story.look(failing, at=1)[0] == "Deploying"
    assert story.wakes == grace - 1
    assert story.look(failing, at=grace - 0.001)[0] == "Deploying"
    assert story.look(failing, at=grace)[0] == "Degraded"


def test_a_failure_to_write_keeps_the_grace_that_it_had_before_it_was_told() -> None:
    """It is told only once it has lasted: a second grace would double it."""
    begun = NOW - DEPENDENCY_GRACE
    failing = StepResult(
        condition="ResourceCreated", reason="ServerError", message="cannot be written", blocks_ready=True, since=begun
    )
    report = replace(REPORT, results=(failing,))
    status, *_ = conclude(report, Evidence(), deployment=START, memory=Memory(), now=NOW)
    assert (status["phase"], status["reason"]) == ("Degraded", "ServerError")
