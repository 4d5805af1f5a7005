"""What a provider runs keeps its provider, whatever happens to configs, flags and names."""

from __future__ import annotations

import pytest
from core.tests.controller.test_handover import NOW, provider, switched

from airunway.api import names
from airunway.controller.decision import CoreDecision, decide
from airunway.resource import Resource, condition_of
from airunway.selection.facts import EngineFacts, ProviderFacts

TRTLLM = EngineFacts(name="trtllm", modes=frozenset({"aggregated"}), gpu=True, cpu=False, flags=frozenset())


def running(
    *,
    named: str | None = None,
    chosen: str = "matched capabilities: engine=vllm",
    core: bool = True,
    confirmed_by: str = "",
) -> Resource:
    """A deployment that llmd runs, as the core or else a custom selector chose; `confirmed_by` wrote the message."""
    deployment = switched()
    deployment["spec"]["provider"] = {"name": named} if named else {}
    deployment["status"]["provider"]["selectedReason"] = chosen
    manager = names.CORE_MANAGER if core else "my-selector"
    chosen_fields: Resource = {"f:provider": {"f:name": {}, "f:selectedReason": {}}}
    said_fields: Resource = {"f:conditions": {'k:{"type":"ProviderSelected"}': {"f:message": {}}}}
    deployment["metadata"]["managedFields"] = [
        {"manager": who, "subresource": "status", "fieldsV1": {"f:status": fields}}
        for who, fields in ((manager, chosen_fields), (confirmed_by or manager, said_fields))
    ]
    said = {"type": "ProviderSelected", "status": "True", "reason": "AutoSelected", "message": "m"}
    deployment["status"]["conditions"].append(said)
    return deployment


def decided(deployment: Resource, *providers: ProviderFacts, selector: bool = True) -> CoreDecision:
    return decide(deployment, violations=(), providers=providers, selector=selector, now=NOW)


def words(decision: CoreDecision, type_: str) -> tuple[str, str, str]:
    found = condition_of({"status": decision.status}, type_) or {}
    return str(found.get("status")), str(found.get("reason")), str(found.get("message"))


@pytest.mark.parametrize("engine", ["vllm", None])
def test_switching_the_selector_off_takes_nothing_from_what_the_core_chose(engine: str | None) -> None:
    deployment = running()
    deployment["spec"]["engine"] = {"type": engine} if engine else {}
    found = decided(deployment, provider("llmd"), selector=False)
    assert found.status["provider"]["name"] == "llmd"
    assert words(found, "ProviderSelected") == ("True", "AutoSelected", "Provider llmd auto-selected")
    assert not any(happening.reason == "ProviderSelected" for happening in found.events)


def test_what_a_custom_selector_chose_is_left_to_it() -> None:
    found = decided(running(core=False), provider("llmd"), selector=False)
    assert "provider" not in found.status
    assert words(found, "ProviderSelected")[0] == "None"


def test_what_a_custom_selector_has_confirmed_is_its_own_from_then_on() -> None:
    found = decided(running(confirmed_by="my-selector"), provider("llmd"), selector=False)
    assert "provider" not in found.status
    assert words(found, "ProviderSelected")[0] == "None"


def test_paused_too_it_is_left_to_it() -> None:
    deployment = running(core=False)
    deployment["metadata"]["annotations"] = {names.PAUSED: "true"}
    found = decided(deployment, provider("llmd"), selector=False)
    assert "provider" not in found.status
    assert words(found, "ProviderSelected")[0] == "None"
    kept = decided(deployment, provider("llmd"))
    assert kept.status["provider"]["name"] == "llmd"
    assert words(kept, "ProviderSelected")[0] == "True"


@pytest.mark.parametrize("selector", [True, False])
def test_a_name_that_is_taken_out_of_the_spec_stays_and_is_no_longer_called_explicit(selector: bool) -> None:
    deployment = running(chosen="explicit provider selection")
    found = decided(deployment, provider("llmd"), selector=selector)
    assert found.status["provider"] == {"name": "llmd", "selectedReason": "kept: spec.provider.name named it before"}
    assert words(found, "ProviderSelected")[1:] == (
        "AutoSelected",
        "Provider llmd stays: spec.provider.name named it before",
    )
    deployment["status"]["provider"] |= found.status["provider"]
    again = decided(deployment, provider("llmd"), selector=selector)
    assert again.status["provider"] == found.status["provider"]


def test_a_config_that_is_deleted_takes_nothing_from_a_named_provider_that_runs_it() -> None:
    found = decided(running(named="llmd", chosen="explicit provider selection"), provider("other"))
    assert found.status["provider"]["name"] == "llmd"
    assert words(found, "ProviderSelected")[:2] == ("True", "ExplicitSelection")
    assert words(found, "ConfigValid")[0] == "True"
    back = decided(running(named="llmd"), provider("llmd"))
    assert words(back, "ProviderSelected")[:2] == ("True", "ExplicitSelection")


@pytest.mark.parametrize("named", ["llmd", None])
def test_a_provider_without_a_config_is_not_called_well(named: str | None) -> None:
    found = decided(running(named=named), provider("other"))
    assert words(found, "ProviderResponsive") == (
        "False",
        "ProviderStale",
        "provider 'llmd' is not registered (registered: other): install its chart, or name a registered one; the "
        "status may be stale",
    )
    assert words(found, "DependenciesReachable")[0] == "False"


@pytest.mark.parametrize(
    ("spec", "engines"),
    [
        ({}, [("a", True, "disaggregated"), ("b", False, "aggregated")]),
        ({"model": {"id": "o/m", "cache": {"mode": "Shared"}}}, [("a", True, "aggregated")]),
    ],
)
def test_nor_does_one_that_has_no_engine_with_all_that_is_needed(
    spec: Resource, engines: list[tuple[str, bool, str]]
) -> None:
    deployment = running(named="other")
    deployment["spec"] = {"model": {"id": "o/m"}, "provider": {"name": "other"}, **spec}
    facts = tuple(
        EngineFacts(name=name, modes=frozenset({mode}), gpu=not cpu, cpu=cpu, flags=frozenset())
        for name, cpu, mode in engines
    )
    found = decided(deployment, provider("llmd"), provider("other", engines=facts))
    assert found.status["provider"]["name"] == "llmd"
    assert words(found, "ProviderSelected")[2].startswith(
        "provider 'other' has no engine with all that the deployment needs; what provider 'llmd' runs stays"
    )


def test_a_named_provider_that_cannot_run_it_takes_nothing_away() -> None:
    deployment = running(named="other")
    found = decided(deployment, provider("llmd"), provider("other", engines=(TRTLLM,)))
    assert found.status["provider"]["name"] == "llmd"
    status, reason, message = words(found, "ProviderSelected")
    assert (status, reason) == ("False", "NoProviderSelected")
    assert message == "other does not support vllm engine; what provider 'llmd' runs stays as it is until then"


def test_a_deployment_that_was_created_paused_has_all_parents_and_says_so() -> None:
    deployment = switched(holds=False)
    deployment["metadata"]["annotations"] = {names.PAUSED: "true"}
    unseen = {"type": "Ready", "status": "Unknown", "reason": "WaitingForController", "message": "w"}
    deployment["status"] = {"phase": "Pending", "reason": "WaitingForController", "conditions": [unseen]}
    found = decided(deployment, provider("kaito"))
    assert (found.status["phase"], found.status["reason"]) == ("Pending", "Paused")
    assert names.PAUSED in found.status["message"]
    assert words(found, "Ready")[:2] == ("False", "Paused")
    types = [each["type"] for each in found.status["conditions"]]
    assert len(types) == len(set(types))
    assert {"Paused", "ConfigValid", "AuthValid", "DependenciesReachable"} <= set(types)
    deployment["status"] = found.status
    again = decided(deployment, provider("kaito"))
    assert again.status == found.status
