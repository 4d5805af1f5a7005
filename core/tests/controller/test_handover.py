"""A provider name that cannot be honoured takes nothing away from the one that serves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airunway.api import names
from airunway.controller.decision import SILENT_AFTER, CoreDecision, decide
from airunway.resource import Resource, condition_of, format_time
from airunway.selection.choice import forbidden_by
from airunway.selection.facts import EngineFacts, ProviderFacts
from airunway.validation import Violation
from airunway.validation.policy import parse_policy

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
ENGINE = EngineFacts(name="vllm", modes=frozenset({"aggregated"}), gpu=True, cpu=True, flags=frozenset())


def provider(name: str, **fields: Any) -> ProviderFacts:
    base: dict[str, Any] = {"ready": True, "heartbeat": NOW, "explicit_only": False, "engines": (ENGINE,), "rules": ()}
    return ProviderFacts(name=name, **{**base, **fields})


def switched(*, holds: bool = True, engine: str | None = "vllm") -> Resource:
    """A deployment that llmd runs, and whose spec names kaito since a moment ago."""
    chosen = {"type": "EngineSelected", "status": "True", "reason": "ExplicitSelection", "message": "m"}
    stamp = {"observedGeneration": 1, "lastTransitionTime": format_time(NOW)}
    return {
        "metadata": {
            "name": "llama",
            "namespace": "ml",
            "generation": 2,
            "finalizers": [names.provider_finalizer("llmd")] if holds else [],
        },
        "spec": {
            "model": {"id": "o/m"},
            **({"engine": {"type": engine}} if engine else {}),
            "provider": {"name": "kaito"},
            "resources": {"gpu": {"count": 1}},
        },
        "status": {
            "phase": "Running",
            "observedGeneration": 1,
            "engine": {"type": "vllm", "selectedReason": "explicit"},
            "provider": {"name": "llmd", "selectedReason": "explicit provider selection", "resourceName": "llama"},
            "conditions": [{**chosen, **stamp}],
        },
    }


def decided(deployment: Resource, *providers: ProviderFacts) -> CoreDecision:
    return decide(deployment, violations=(), providers=providers, selector=True, now=NOW)


@pytest.mark.parametrize("engine", ["vllm", None])
@pytest.mark.parametrize(
    ("others", "reason", "text"),
    [
        (
            (),
            "ProviderNotFound",
            "provider 'kaito' is not registered (registered: llmd): install its chart, or name a registered one",
        ),
        ((provider("kaito", installed=False),), "UpstreamNotInstalled", "Provider 'kaito' CRD not installed"),
        ((provider("kaito", ready=False),), "WaitingForProvider", "Provider 'kaito' is not ready"),
        (
            (provider("kaito", heartbeat=NOW - SILENT_AFTER - timedelta(seconds=1)),),
            "WaitingForProvider",
            "Provider 'kaito' is not ready",
        ),
    ],
)
def test_real_llmd_4_who_serves_keeps_the_deployment_until_the_named_provider_can_take_it(
    others: tuple[ProviderFacts, ...], reason: str, text: str, engine: str | None
) -> None:
    status = decided(switched(engine=engine), provider("llmd"), *others).status
    assert status["provider"] == {"name": "llmd", "selectedReason": "explicit provider selection"}
    assert status["engine"]["type"] == "vllm"
    said = condition_of({"status": status}, "ProviderSelected") or {}
    assert (said["status"], said["reason"], said["observedGeneration"]) == ("False", reason, 2)
    assert (
        said["message"] == f"{said['message'].partition(';')[0]}; what provider 'llmd' runs stays as it is until then"
    )
    assert text in said["message"]
    assert (condition_of({"status": status}, "EngineSelected") or {})["status"] == "True"


@pytest.mark.parametrize("ready", [True, False])
def test_a_hand_over_of_a_routed_deployment_ends_with_the_way_without_an_outage(ready: bool) -> None:
    deployment = switched()
    deployment["status"]["gateway"] = {"url": "http://192.0.2.1/ml/llama"}
    status = decided(deployment, provider("llmd"), provider("kaito", ready=ready)).status
    way = (
        "; without an outage: airunway new --beside md/llama prints a second version in the same group with weight 0; "
        "apply it, and shift the weights once it is Ready (docs/side-by-side.md)"
    )
    said = condition_of({"status": status}, "ProviderSelected") or {}
    assert said["status"] == str(ready)
    assert said["message"].endswith(f"provider 'llmd' removes what it made first{way}" if ready else way)


def test_real_llmd_4_once_it_is_registered_and_ready_it_gets_the_deployment() -> None:
    decision = decided(switched(), provider("llmd"), provider("kaito"))
    assert decision.status["provider"]["name"] == "kaito"
    assert (condition_of({"status": decision.status}, "ProviderSelected") or {})["status"] == "True"


def test_a_lost_cache_keeps_the_deployment_until_its_new_copy_is_there() -> None:
    deployment = switched()
    lost = {"type": "ModelCacheReady", "status": "False", "reason": "CacheLost", "message": "gone"}
    deployment["status"]["conditions"].append(lost)
    status = decided(deployment, provider("llmd"), provider("kaito")).status
    assert status["provider"]["name"] == "llmd"
    said = condition_of({"status": status}, "ProviderSelected") or {}
    assert (said["status"], said["reason"]) == ("False", "CacheLost")
    assert "fetched again before provider 'kaito' takes over" in said["message"]
    lost |= {"status": "True", "reason": "Ready"}
    assert decided(deployment, provider("llmd"), provider("kaito")).status["provider"]["name"] == "kaito"


def test_real_llmd_4_where_nothing_was_made_there_is_nothing_to_keep() -> None:
    status = decided(switched(holds=False), provider("llmd")).status
    assert status["provider"]["name"] == "kaito"
    for type_ in ("ProviderSelected", "ConfigValid"):
        said = condition_of({"status": status}, type_) or {}
        assert (said["status"], said["reason"]) == ("False", "ProviderNotFound")


def test_a_lost_status_hands_nothing_over_that_could_not_be_handed_over_before() -> None:
    deployment = {**switched(), "status": {}}
    status = decided(deployment, provider("llmd"), provider("kaito", ready=False)).status
    assert status["provider"]["name"] == "llmd"
    wrong = Violation(path="spec.model.id", reason="Invalid", message="is wrong")
    status = decide(deployment, violations=[wrong], providers=[provider("llmd")], selector=True, now=NOW).status
    assert status["provider"]["name"] == "llmd"
    status = decide(deployment, violations=[wrong], providers=[provider("llmd")], selector=False, now=NOW).status
    assert "provider" not in status, "a custom selector's field is its own"


def test_a_finalizer_that_a_user_sets_does_not_pass_the_policy() -> None:
    forged = {**switched(), "status": {}}
    del forged["spec"]["provider"]
    policy = parse_policy("rules: [{providers: [kaito]}]")
    (found,) = forbidden_by(policy, forged, namespace_labels={})
    assert "llmd" in found.message
    forged["metadata"]["finalizers"] = []
    assert forbidden_by(policy, forged, namespace_labels={}) == []
