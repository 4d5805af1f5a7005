"""The log lines of real processes: what they are about, what an operator finds there, and what nobody may find."""

from __future__ import annotations

import json
from typing import Any, Protocol

import pytest

from airunway.resource import Resource

pytestmark = pytest.mark.apiserver


class Seen(Protocol):
    """Of what conftest.py's story showed: what is looked at here."""

    namespace: str
    canary: str
    pages: dict[str, str]
    probes: dict[str, tuple[int, str]]
    events: list[Resource]
    logs: dict[str, list[dict[str, Any]]]


def said(seen: Seen, component: str, *, about: str = "") -> list[str]:
    """The messages at the level that processes have if nothing else is asked for."""
    lines = [line for line in seen.logs[component] if line["level"] != "debug"]
    return [line["msg"] for line in lines if not about or line.get("object") == f"{seen.namespace}/{about}"]


@pytest.mark.parametrize(("component", "controller"), [("core", "core"), ("provider", "provider-kaito")])
def test_log_lines_of_a_pass_say_what_they_are_about(seen: Seen, component: str, controller: str) -> None:
    lines = [line for line in seen.logs[component] if line.get("controller") == controller]
    assert lines
    for line in lines:
        assert {"ts", "level", "logger", "msg", "object", "reconcile_id"} <= line.keys()
        assert line["object"].startswith(f"{seen.namespace}/")
        assert component == "core" or line["provider"] == "kaito"


@pytest.mark.parametrize("component", ["core", "provider"])
def test_a_log_tells_of_start_readiness_office_and_end(seen: Seen, component: str) -> None:
    messages = said(seen, component)
    name = {"core": "airunway-controller", "provider": "airunway-provider-kaito"}[component]
    wanted = [f"{name} 0.1.0 starts as {component}", f"{component} holds the lease", "ready", f"{name} 0.1.0 stops"]
    positions = [next(i for i, text in enumerate(messages) if text.startswith(begin)) for begin in wanted]
    assert positions[0] == 0
    assert positions[-1] == len(messages) - 1


def test_the_life_of_a_deployment_can_be_read_in_the_logs(seen: Seen) -> None:
    core, provider = said(seen, "core", about="story"), said(seen, "provider", about="story")
    for text in ("EngineSelected: Selected engine 'llamacpp'", "ProviderSelected: Selected provider 'kaito'"):
        assert any(message.startswith(text) for message in core), core
    for text in (
        "ResourceCreated: Created Workspace 'story'",
        "phase Running (was Deploying), DeploymentReady: All replicas are ready: Workspace story",
        "DriftDetected: Workspace 'story' was modified directly",
        "ResourceRecreated: Workspace 'story' is deleted and made again",
        "phase Degraded (was Running)",
        "phase Terminating",
    ):
        assert any(message.startswith(text) for message in provider), provider


def test_a_failure_that_passes_is_no_error_and_one_that_lasts_is(seen: Seen) -> None:
    levels = {
        name: {line["level"] for line in seen.logs["core"] if line.get("object") == f"{seen.namespace}/trouble-{name}"}
        for name in ("conflict", "throttled", "unreachable", "server", "refused")
    }
    assert {name for name, found in levels.items() if "error" in found} == {"refused"}


def test_no_value_of_an_environment_is_told(seen: Seen) -> None:
    for name, page in seen.pages.items():
        assert seen.canary not in page, name
    for event in seen.events:
        assert seen.canary not in json.dumps(event)
    for component, lines in seen.logs.items():
        assert lines
        for line in lines:
            assert seen.canary not in json.dumps(line), component


def test_the_probes_say_ok(seen: Seen) -> None:
    assert seen.probes == {"livez": (200, "ok"), "readyz": (200, "ok")}
