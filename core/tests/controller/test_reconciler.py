"""The core's pass by itself: what it decides, what it writes, and what it leaves alone; without an API server."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from airunway.api import names
from airunway.controller.decision import decide
from airunway.controller.reconciler import CoreReconciler
from airunway.kube import Client, Conflict, EventRecorder, MutationCache
from airunway.resource import ObjectKey, Resource, condition_of, copy_of, dig
from airunway.selection.facts import ProviderFacts, provider_facts
from airunway.validation import Violation

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
KEY = ObjectKey("team", "llama")
NO_DEFAULT = "DefaultRuntimeConfigNotFound"


def provider(name: str, *, rank: int = 0, ready: bool = True, installed: bool = True) -> ProviderFacts:
    engines = [{"name": "llamacpp", "servingModes": ["aggregated"], "gpuSupport": False, "cpuSupport": True}]
    config = {
        "metadata": {"name": name},
        "spec": {
            "capabilities": {"engines": engines},
            "selectionRules": [{"condition": "true", "priority": rank}],
        },
        "status": {
            "ready": ready,
            "conditions": [{"type": "UpstreamInstalled", "status": "True" if installed else "False"}],
            "translation": {"transformers": {}, "settings": {}},
        },
    }
    return provider_facts(config)


def deployment(status: Resource | None = None, *, generation: int = 1, **spec: Any) -> Resource:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ModelDeployment",
        "metadata": {**KEY._asdict(), "uid": "u", "generation": generation, "resourceVersion": "7"},
        "spec": {"model": {"id": "org/model"}, "engine": {"type": "llamacpp"}, **spec},
        **({"status": status} if status else {}),
    }


def decided(
    obj: Resource, *providers: ProviderFacts, selector: bool = True, violations: list[Violation] | None = None
) -> Any:
    before = copy_of(obj)
    found = decide(obj, violations=violations or [], providers=providers, selector=selector, now=NOW)
    assert obj == before
    return found


def said(status: Resource, type_: str) -> tuple[str, str] | None:
    found = condition_of({"status": status}, type_)
    return None if found is None else (found["status"], found["reason"])


# ---------------------------------------------------------------------------------------------------------- decisions


def test_the_best_provider_is_chosen_and_that_is_an_event_once() -> None:
    found = decided(deployment(), provider("a"), provider("b", rank=9))
    assert found.status["provider"]["name"] == "b"
    assert found.status["engine"]["type"] == "llamacpp"
    assert [happening.reason for happening in found.events] == [NO_DEFAULT, "EngineSelected", "ProviderSelected"]
    assert (found.status["phase"], found.status["reason"]) == ("Pending", "WaitingForProvider")
    again = decided(deployment(found.status), provider("a"), provider("b", rank=9))
    assert again.events == ()
    assert again.status == found.status, "looking again changes nothing"


def test_what_was_chosen_stays_whatever_would_win_now() -> None:
    first = decided(deployment(), provider("a"))
    later = decided(deployment(first.status), provider("a"), provider("b", rank=9))
    assert (later.status["provider"]["name"], later.events) == ("a", ())
    gone = decided(deployment(first.status), provider("b", rank=9))
    assert gone.status["provider"]["name"] == "a"


def test_the_spec_s_own_word_comes_first() -> None:
    named = deployment(provider={"name": "a"})
    found = decided(named, provider("a"), provider("b", rank=9))
    assert found.status["provider"] == {"name": "a", "selectedReason": "explicit provider selection"}
    assert said(found.status, "ProviderSelected") == ("True", "ExplicitSelection")
    unknown = decided(named, provider("b"))
    assert unknown.status["provider"] == {"name": "a", "selectedReason": "explicit provider selection"}
    for type_ in ("ProviderSelected", "ProviderCompatible", "ConfigValid"):
        assert said(unknown.status, type_) == ("False", "ProviderNotFound"), type_
    back = decided(deployment(unknown.status, provider={"name": "a"}), provider("a"))
    assert (said(back.status, "ConfigValid") or ())[:1] == ("True",)
    assert said(back.status, "ProviderCompatible") is None, "from here on it is the provider's"
    assert unknown.status["reason"] == "ProviderNotFound"


def test_where_nothing_is_registered_or_somebody_else_selects_nothing_is_chosen() -> None:
    nobody = decided(deployment())
    assert "provider" not in nobody.status
    assert nobody.status["phase"] == "Pending"
    assert [happening.reason for happening in nobody.events] == [NO_DEFAULT, "EngineSelected"]
    custom = decided(deployment(), provider("a"), selector=False)
    assert "provider" not in custom.status
    assert said(custom.status, "ProviderSelected") is None, "the condition is the selector's"
    assert (custom.status["phase"], custom.status["reason"], custom.status["message"]) == (
        "Pending",
        "NoProviderSelected",
        "No provider specified and provider-selector not installed",
    )
    chosen = decided(deployment({"provider": {"name": "a"}}), provider("a"), selector=False)
    assert "provider" not in chosen.status, "the field is the selector's"


def test_an_upstream_that_is_absent_is_named() -> None:
    found = decided(deployment(provider={"name": "a"}), provider("a", installed=False))
    assert found.status["reason"] == "UpstreamNotInstalled"


def test_what_is_invalid_says_so_and_keeps_what_was_chosen() -> None:
    first = decided(deployment(), provider("a")).status
    wrong = Violation(path="spec.model.id", message="is wrong", reason="FieldValueInvalid")
    found = decided(deployment(first, generation=2), provider("a"), violations=[wrong]).status
    assert (said(found, "Validated"), found["reason"]) == (("False", "ValidationFailed"), "ValidationFailed")
    assert found["message"] == "Validation failed: spec.model.id: is wrong"
    assert found["provider"] == first["provider"]
    assert dig(condition_of({"status": found}, "Validated"), "observedGeneration") == 2


def test_once_a_provider_speaks_phase_and_message_are_its_own() -> None:
    first = decided(deployment(), provider("a")).status
    taken = {**first, "observedGeneration": 1, "phase": "Running", "message": "it runs"}
    found = decided(deployment(taken), provider("a")).status
    assert not {"phase", "reason", "message"} & found.keys()
    assert said(found, "Ready") is None


@pytest.mark.parametrize(("word", "paused"), [("true", True), ("True", False), ("", False)])
def test_exactly_the_word_pauses(word: str, paused: bool) -> None:
    obj = deployment()
    obj["metadata"]["annotations"] = {names.PAUSED: word}
    found = decided(obj, provider("a")).status
    assert (said(found, "Paused") is not None) == paused
    assert ("provider" in found) != paused


# ------------------------------------------------------------------------------------------------------------- passes


class Server:
    """One deployment of an API server, and what was written."""

    def __init__(self, obj: Resource | None) -> None:
        self.obj = obj
        self.applied: list[tuple[Resource, bool]] = []
        self.conflicts: list[Conflict] = []
        self.events: list[str] = []

    async def apply(self, kind: object, body: Resource, *, manager: str, force: bool, subresource: str) -> Resource:
        assert (manager, subresource) == (names.CORE_MANAGER, "status")
        self.applied.append((body, force))
        if self.conflicts:
            raise self.conflicts.pop()
        assert self.obj is not None
        return {**copy_of(self.obj), "status": body["status"]}

    def emit(self, obj: Resource, *, reason: str, **_: object) -> None:
        self.events.append(reason)

    def moment(self) -> datetime:
        return NOW

    def reconciler(self, *providers: ProviderFacts) -> CoreReconciler:
        cache: Any = SimpleNamespace(get=lambda _: copy_of(self.obj) if self.obj else None, add_handler=lambda _: None)
        facts: Mapping[str, ProviderFacts] = {each.name: each for each in providers}
        return CoreReconciler(
            client=cast("Client", self),
            deployments=MutationCache(cache),
            providers=facts,
            events=cast("EventRecorder", self),
            selector=True,
            clock=lambda: NOW,
        )


async def test_a_pass_writes_the_decision_and_tells_it_and_the_next_one_is_silent() -> None:
    server = Server(deployment())
    core = server.reconciler(provider("a"))
    assert await core.reconcile(KEY) is None
    ((body, force),) = server.applied
    assert (body["status"]["provider"]["name"], force) == ("a", False)
    assert body["metadata"] == {"name": "llama", "namespace": "team", "resourceVersion": "7"}
    assert server.events == [NO_DEFAULT, "EngineSelected", "ProviderSelected"]


async def test_what_is_gone_is_nothing_to_do() -> None:
    server = Server(None)
    assert await server.reconciler().reconcile(KEY) is None
    assert server.applied == []


async def test_what_is_wrong_is_refused_here_too() -> None:
    """A spec that came past the webhook."""
    server = Server(deployment(engine={"type": "vllm"}))
    await server.reconciler(provider("a")).reconcile(KEY)
    ((body, _),) = server.applied
    assert said(body["status"], "Validated") == ("False", "ValidationFailed")
    assert server.events == [NO_DEFAULT]


def conflict(*managers: str) -> Conflict:
    causes = [{"reason": "FieldManagerConflict", "message": f'conflict with "{manager}"'} for manager in managers]
    return Conflict(409, message="conflict", details={"causes": causes}) if managers else Conflict(409, message="old")


@pytest.mark.parametrize("managers", [(), (names.provider_manager("a"),), ("kubectl", names.provider_manager("a"))])
async def test_a_provider_that_took_over_meanwhile_is_not_overruled(managers: tuple[str, ...]) -> None:
    server = Server(deployment())
    server.conflicts.append(conflict(*managers))
    with pytest.raises(Conflict):
        await server.reconciler(provider("a")).reconcile(KEY)
    assert [force for _, force in server.applied] == [False]
    assert server.events == [], "nothing was decided"


async def test_an_edit_of_the_core_s_fields_by_anybody_else_is_reverted() -> None:
    server = Server(deployment())
    server.conflicts.append(conflict("kubectl-edit"))
    await server.reconciler(provider("a")).reconcile(KEY)
    assert [force for _, force in server.applied] == [False, True]


async def test_a_deleted_deployment_is_only_let_go() -> None:
    obj = deployment()
    obj["metadata"] |= {
        "deletionTimestamp": "2026-11-21T12:00:00Z",
        "finalizers": [names.provider_finalizer("gone")],
    }
    server = Server(obj)
    core = server.reconciler(provider("a"))
    assert await core.reconcile(KEY) == timedelta(minutes=5).total_seconds(), "it comes back by itself"
    assert server.applied == []
