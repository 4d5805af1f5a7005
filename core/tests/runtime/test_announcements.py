"""Which changes of a status are worth an event, and what the event says."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from airunway.plugins.contract import Component, Finding, Observation
from airunway.resource import Resource
from airunway.runtime.report import MAX_WARNINGS, Report, announcements, warning_text
from airunway.status.events import Event
from airunway.status.rollup import Fault, Phase, Rollup
from airunway.status.rootcause import RootCause

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
WORKSPACE: Resource = {"kind": "Workspace", "metadata": {"name": "llama", "namespace": "team"}}


def deployment(**status: Any) -> Resource:
    return {"metadata": {"name": "llama", "namespace": "team"}, "status": status}


def report(*warnings: Finding) -> Report:
    failed = Component(name="Inference", ready=False, reason="UpstreamFailed", message="no GPUs")
    return Report(
        resource=WORKSPACE,
        observation=Observation(components=(failed,)),
        warnings=warnings,
    )


def verdict(phase: Phase, component: str = "Inference") -> Rollup:
    fault = Fault(component=component, reason="UpstreamFailed", message="no GPUs")
    return Rollup(phase=phase, reason="UpstreamFailed", message="no GPUs", ready=False, fault=fault)


def cause(message: str) -> RootCause:
    return RootCause(
        code="Secret.NotFound", object="Pod/team/llama-0", field="", message=message, since=NOW, remedy="",
        reason="SecretNotFound",
    )  # fmt: skip


def said(before: Resource, found: Report, now: Rollup, because: RootCause | None = None) -> list[Event]:
    return list(announcements(before, found, now, cause=because))


@pytest.mark.parametrize("phase", [Phase.FAILED, Phase.DEGRADED])
def test_an_error_is_told_once_with_the_object_that_has_it(phase: Phase) -> None:
    (error,) = said(deployment(phase="Running"), report(), verdict(phase))
    assert (error.reason, error.note) == ("ProviderError", "Workspace 'llama' is in error state: no GPUs")
    assert error.related == WORKSPACE
    assert said(deployment(phase=phase.value), report(), verdict(phase)) == []
    assert said(deployment(phase=phase.value), report(), verdict(Phase.RUNNING)) == []


def test_an_error_that_is_not_the_upstream_objects_own_does_not_blame_it() -> None:
    (error,) = said(deployment(phase="Running"), report(), verdict(Phase.FAILED, component="ProviderCompatible"))
    assert error.note == "no GPUs"


@pytest.mark.parametrize("component", ["RuntimeConfig", "Template", "ModelCache", "Storage", "Gateway"])
def test_a_fault_of_the_core_or_of_its_parts_is_not_announced_by_the_provider(component: str) -> None:
    assert said(deployment(phase="Running"), report(), verdict(Phase.DEGRADED, component=component)) == []


def test_a_component_of_the_upstream_is_announced_whatever_it_is_called() -> None:
    failed = Component(name="Gateway", ready=False, reason="UpstreamFailed", message="no GPUs")
    found = Report(resource=WORKSPACE, observation=Observation(components=(failed,)))
    (error,) = said(deployment(phase="Running"), found, verdict(Phase.DEGRADED, component="Gateway"))
    assert error.reason == "ProviderError"


def test_a_missing_secret_is_named_with_its_namespace() -> None:
    missing = cause('container "model" of pod "llama-0": secret "hf-token" not found')
    (secret,) = said(deployment(phase="Deploying"), report(), verdict(Phase.DEPLOYING), missing)
    assert secret.note.startswith("Secret 'hf-token' not found in namespace 'team': container")
    known = deployment(phase="Deploying", rootCause={"code": "Secret.NotFound"})
    assert said(known, report(), verdict(Phase.DEPLOYING), missing) == []


def test_a_missing_key_is_told_as_the_pod_tells_it() -> None:
    text = "couldn't find key HF_TOKEN in Secret team/hf-token"
    (secret,) = said(deployment(phase="Deploying"), report(), verdict(Phase.DEPLOYING), cause(text))
    assert secret.note == text


def unknown(count: int) -> tuple[Finding, ...]:
    root = "spec.provider.overrides"
    return tuple(Finding(reason="UnknownOverride", path=f"{root}.x{i}", message=f"x{i}?") for i in range(count))


def test_one_unknown_override_is_told_in_its_own_words() -> None:
    (told,) = said(deployment(phase="Deploying"), report(*unknown(1)), verdict(Phase.DEPLOYING))
    assert (told.reason, told.note) == ("UnknownOverride", "x0?")


@pytest.mark.parametrize(
    ("count", "note"),
    [
        (2, "2 unknown overrides are passed over: o.x0, o.x1; status.warnings says what is known there"),
        (3, "3 unknown overrides are passed over: o.x0, o.x1, o.x2; status.warnings says what is known there"),
        (
            19,
            "19 unknown overrides are passed over: o.x0, o.x1, o.x2 and 16 more; status.warnings says what is known "
            "there",
        ),
        (
            20,  # of more no finding is made
            "at least 20 unknown overrides are passed over: o.x0, o.x1, o.x2 and 17 more; status.warnings says what is "
            "known there",
        ),
    ],
)
def test_m7_what_one_deployment_does_wrong_is_one_event_that_names_the_first_keys_and_counts_the_rest(
    count: int, note: str
) -> None:
    """With an event and a line of the log for each, one tenant fills the log of a provider that all tenants share."""
    (told,) = said(deployment(phase="Deploying"), report(*unknown(count)), verdict(Phase.DEPLOYING))
    assert told.note.replace("spec.provider.overrides.", "o.") == note


def test_m7_long_keys_do_not_hide_the_count() -> None:
    many = tuple(
        Finding(reason="UnknownOverride", path=f"spec.provider.overrides.{i}{'x' * 4000}", message="") for i in range(9)
    )
    (told,) = said(deployment(phase="Deploying"), report(*many), verdict(Phase.DEPLOYING))
    assert " and 6 more" in told.note
    assert len(told.note) < 600


def test_unknown_overrides_are_told_once_however_many_there_are() -> None:
    """A status holds only so many warnings: what does not stand there would be news for ever."""
    many = unknown(3 * MAX_WARNINGS)
    assert len(said(deployment(phase="Deploying"), report(*many), verdict(Phase.DEPLOYING))) == 1
    told = deployment(phase="Deploying", warnings=[warning_text(finding) for finding in many[:MAX_WARNINGS]])
    assert said(told, report(*many), verdict(Phase.DEPLOYING)) == []
    fewer = deployment(phase="Deploying", warnings=[warning_text(finding) for finding in many[1:MAX_WARNINGS]])
    (again,) = said(fewer, report(*many), verdict(Phase.DEPLOYING))
    assert "passed over: spec.provider.overrides.x0 and 47 more" in again.note, "what is new is named"
