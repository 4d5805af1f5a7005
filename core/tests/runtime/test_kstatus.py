"""What generic tools make of our statuses."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.kstatus import health

from airunway.api._deployment_status import UNSEEN
from airunway.controller.decision import decide
from airunway.plugins.contract import Component, Observation
from airunway.resource import Resource
from airunway.runtime.report import Report, StepResult, provider_status, terminating_status
from airunway.status.rollup import Fault
from airunway.validation import Violation

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)

WORKSPACE: Resource = {
    "apiVersion": "example.org/v1",
    "kind": "Workspace",
    "metadata": {"name": "llama", "creationTimestamp": "2026-11-21T10:00:00Z"},
}


def deployment(*, status: Resource | None = None, generation: int = 1, **metadata: Any) -> Resource:
    return {
        "apiVersion": "airunway.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "llama", "namespace": "default", "uid": "1", "generation": generation, **metadata},
        "spec": {"model": {"id": "org/model"}},
        "status": status or {},
    }


def provided(*faults: Fault, created: bool = True, previous: str = "Deploying", generation: int = 1) -> Resource:
    """A deployment whose provider has spoken."""
    obj = deployment(status={"phase": previous}, generation=generation)
    report = Report(
        resource=WORKSPACE if created else None,
        results=(StepResult(condition="ProviderCompatible", ok=True, reason="CompatibilityVerified", message=""),),
        observation=Observation(components=(Component(name="ProviderResource", ready=not faults, reason="Ready"),)),
    )
    status, _ = provider_status(obj, report, faults=faults, now=NOW)
    return {**obj, "status": status}


def decided(*, violations: tuple[Violation, ...] = ()) -> Resource:
    """A deployment that no provider has taken over: the core alone has spoken."""
    obj = deployment()
    return {**obj, "status": decide(obj, violations=violations, providers=[], selector=True, now=NOW).status}


def edited(obj: Resource) -> Resource:
    return {**obj, "metadata": {**obj["metadata"], "generation": 2}}


def terminating() -> Resource:
    obj = deployment(deletionTimestamp="2026-11-21T12:00:00Z")
    return {**obj, "status": terminating_status(obj, "Waiting", now=NOW)}


@dataclass(frozen=True)
class Row:
    case: str
    obj: Resource
    expected: str


INVALID = Violation(path="spec.model.id", message="is required", reason="Required")

RULES = [
    Row("nobody has looked at it yet", deployment(status=UNSEEN), "InProgress"),
    Row("the core alone: no provider yet", decided(), "InProgress"),
    Row("the core alone: an invalid spec", decided(violations=(INVALID,)), "Failed"),
    Row("running", provided(), "Current"),
    Row("deploying", provided(Fault(component="Pods", reason="Starting")), "InProgress"),
    Row("waiting for capacity", provided(Fault(component="Pods", reason="InsufficientCapacity")), "InProgress"),
    Row("the upstream is not installed", provided(Fault(component="U", reason="UpstreamNotInstalled")), "InProgress"),
    Row("failed", provided(Fault(component="Pods", reason="CrashLoopBackOff")), "Failed"),
    Row("a wrong image", provided(Fault(component="Pods", reason="ImageNotFound")), "Failed"),
    Row(
        "a field that cannot be honoured, before anything exists",
        provided(Fault(component="ProviderCompatible", reason="IncompatibleConfiguration"), created=False),
        "Failed",
    ),
    Row(
        "degraded: it may recover by itself",
        provided(Fault(component="Pods", reason="CrashLoopBackOff"), previous="Running"),
        "InProgress",
    ),
    Row("refused credentials", provided(Fault(component="Pods", reason="ImagePullAuthFailure")), "InProgress"),
    Row(
        "silence of the upstream",
        provided(Fault(component="U", reason="StaleStatus"), previous="Running"),
        "InProgress",
    ),
    Row("an edit that nobody has looked at yet", edited(provided()), "InProgress"),
    Row("an edit of something failed", edited(provided(Fault(component="P", reason="PodFailed"))), "InProgress"),
    Row("being deleted", terminating(), "Terminating"),
]


@pytest.mark.parametrize("row", RULES, ids=lambda row: row.case)
def test_generic_tools_read_our_status(row: Row) -> None:
    assert health(row.obj) == row.expected


@pytest.mark.parametrize("row", RULES[1:], ids=lambda row: row.case)
def test_the_three_conditions_are_always_there_and_never_contradict(row: Row) -> None:
    conditions = {c["type"]: c["status"] for c in row.obj["status"]["conditions"]}
    assert {"Ready", "Reconciling", "Stalled"} <= conditions.keys()
    assert (conditions["Reconciling"], conditions["Stalled"]) != ("True", "True")
    if conditions["Ready"] == "True":
        assert (conditions["Reconciling"], conditions["Stalled"]) == ("False", "False")
