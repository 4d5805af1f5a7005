"""Cases about choosing engine and provider: pure, no cluster."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airunway.controller.decision import decide
from airunway.resource import Resource, condition_of, dig
from airunway.selection.facts import STALE_AFTER, ProviderFacts, provider_facts
from airunway.validation import Violation, validate

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
GPU = {"gpu": {"count": 1}}
TIMES = {"lastTransitionTime": "2026-11-21T11:00:00Z", "observedGeneration": 1}


def provider(
    name: str,
    *engines: str,
    devices: str = "gpu cpu",
    rules: Sequence[tuple[str, int]] = (),
    selection: str = "Auto",
    ready: bool = True,
    silent_for: timedelta = timedelta(),
) -> ProviderFacts:
    return provider_facts(
        {
            "metadata": {"name": name},
            "spec": {
                "selection": selection,
                "capabilities": {
                    "engines": [
                        {
                            "name": engine,
                            "servingModes": ["aggregated"],
                            "gpuSupport": "gpu" in devices,
                            "cpuSupport": "cpu" in devices,
                        }
                        for engine in engines
                    ]
                },
                "selectionRules": [{"condition": condition, "priority": priority} for condition, priority in rules],
            },
            "status": {"ready": ready, "lastHeartbeat": (NOW - silent_for).isoformat()},
        }
    )


def deployment(*, status: Resource | None = None, **spec: Any) -> Resource:
    return {
        "apiVersion": "airunway.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "llama", "namespace": "team", "generation": 1},
        "spec": {"model": {"id": "org/model"}, **spec},
        "status": status or {},
    }


def decided(
    obj: Resource,
    *providers: ProviderFacts,
    selector: bool = True,
    violations: Sequence[Violation] = (),
) -> Resource:
    return decide(obj, violations=violations, providers=providers, selector=selector, now=NOW).status


def told(status: Resource, type_: str) -> tuple[str, str]:
    """Status and reason of a condition."""
    condition = condition_of({"status": status}, type_) or {}
    return condition.get("status", ""), condition.get("reason", "")


def test_case_02_no_engine_fits_phase_pending_and_text_the_same_in_any_order_of_listing() -> None:
    dynamo = provider("dynamo", "vllm", "sglang", devices="gpu")
    other = provider("other", "trtllm", devices="gpu")
    status, again = decided(deployment(), dynamo, other), decided(deployment(), other, dynamo)
    assert status == again
    assert status["phase"] == "Pending"
    assert "no engines available from registered providers (hasGPU=false" in status["message"]
    assert told(status, "EngineSelected") == ("False", "NoEngineSelected")


@pytest.mark.parametrize("providers", [(), (provider("kaito", "vllm", devices="gpu"),)], ids=["none", "one"])
def test_case_03_vllm_without_gpu_is_refused_alike_with_and_without_registered_providers(
    providers: tuple[ProviderFacts, ...],
) -> None:
    """What the CRD refuses at admission is what the controller says where nothing refused it."""
    obj = deployment(engine={"type": "vllm"})
    violations = validate(obj)
    assert [violation.message for violation in violations] == ["vLLM engine requires GPU (set resources.gpu.count > 0)"]
    status = decided(obj, *providers, violations=violations)
    assert status["phase"] == "Pending"
    assert told(status, "Validated") == ("False", "ValidationFailed")
    assert "vLLM engine requires GPU" in status["message"]
    assert "gpu" not in obj["spec"].get("resources", {})  # and nobody adds one


@pytest.mark.parametrize("resources", [None, {}, {"gpu": {}}, {"gpu": {"count": 0}}], ids=str)
@pytest.mark.parametrize(
    "rule", ["!has(spec.resources.gpu) || spec.resources.gpu.count == 0", "spec.resources.gpu.count == 0"]
)
def test_case_04_a_rule_about_no_gpu_holds_however_no_gpu_is_written(rule: str, resources: Resource | None) -> None:
    obj = deployment() if resources is None else deployment(resources=resources)
    status = decided(obj, provider("aaa", "llamacpp"), provider("cpu", "llamacpp", rules=[(rule, 100)]))
    assert status["provider"]["name"] == "cpu"
    candidate = next(c for c in status["selection"]["candidates"] if c["name"] == "cpu")
    assert candidate["score"] == 100
    assert not any("failed" in reason for reason in candidate["reasons"])


def test_case_08_the_only_candidate_without_rules_is_taken_unless_it_must_be_named() -> None:
    taken = decided(deployment(), provider("plain", "llamacpp"))
    assert taken["provider"]["name"] == "plain"
    assert taken["selection"]["candidates"][0]["score"] == 0
    by_name_only = provider("plain", "llamacpp", selection="Explicit")
    refused = decided(deployment(engine={"type": "llamacpp"}), by_name_only)
    assert "provider" not in refused
    assert told(refused, "ProviderSelected") == ("False", "NoProviderSelected")
    named = decided(deployment(provider={"name": "plain"}), by_name_only)
    assert named["provider"] == {"name": "plain", "selectedReason": "explicit provider selection"}


@pytest.mark.parametrize(
    "later",
    [(), (provider("kaito", "sglang"),), (provider("kaito", "vllm", ready=False), provider("better", "vllm"))],
    ids=["config deleted", "capabilities reduced", "no longer ready and a rival"],
)
def test_case_11_what_was_selected_and_made_stays_whatever_happens_to_the_configs(
    later: tuple[ProviderFacts, ...],
) -> None:
    first = decided(deployment(resources=GPU), provider("kaito", "vllm"))
    live = {**first, "provider": {**first["provider"], "resourceName": "llama"}}
    status = decided(deployment(resources=GPU, status=live), *later)
    for part in ("engine", "provider", "selection"):
        assert status[part] == first[part]
    assert told(status, "ProviderSelected") == ("True", "AutoSelected")


def test_case_12_and_45_a_provider_that_died_without_a_word_takes_nothing_new() -> None:
    """Killed, it could not say `ready: false`; its heartbeat is what tells."""
    dead = provider("kaito", "vllm", silent_for=STALE_AFTER + timedelta(seconds=1))
    waiting = decided(deployment(resources=GPU, engine={"type": "vllm"}), dead)
    assert "provider" not in waiting
    assert "heartbeat" in str(waiting["selection"]["candidates"][0]["reasons"])
    assert decided(deployment(resources=GPU), dead, provider("other", "vllm"))["provider"]["name"] == "other"
    fresh = provider("kaito", "vllm", silent_for=STALE_AFTER - timedelta(seconds=1))
    assert decided(deployment(resources=GPU), fresh)["provider"]["name"] == "kaito"


@pytest.mark.parametrize("engine", [{}, {"engine": {"type": "vllm"}}], ids=["engine unset", "engine set"])
def test_case_13_without_the_built_in_selector_the_engine_is_chosen_all_the_same(engine: dict[str, Any]) -> None:
    status = decided(deployment(resources=GPU, **engine), provider("kaito", "vllm"), selector=False)
    assert status["engine"]["type"] == "vllm"
    assert told(status, "Validated") == ("True", "ValidationPassed")
    assert "provider" not in status
    assert "selection" not in status
    assert status["message"] == "No provider specified and provider-selector not installed"
    assert status["reason"] == "NoProviderSelected"
    assert "ProviderSelected" not in {each["type"] for each in status["conditions"]}, "the selector's own"


def test_case_13_without_the_built_in_selector_a_provider_can_be_named() -> None:
    named = deployment(resources=GPU, provider={"name": "kaito"})
    assert decided(named, provider("kaito", "vllm"), selector=False)["provider"]["name"] == "kaito"


def test_case_15_a_pinned_provider_restricts_the_engines_and_a_gpu_added_later_counts() -> None:
    cpu_only = provider("cpu-only", "llamacpp", devices="cpu")
    dynamo = provider("dynamo", "vllm", devices="gpu")
    pinned = deployment(provider={"name": "dynamo"})
    waiting = decided(pinned, cpu_only, dynamo)
    assert "engine" not in waiting
    assert "cpu-only" not in waiting["message"]
    later = deployment(provider={"name": "dynamo"}, resources=GPU, status=waiting)
    assert decided(later, cpu_only, dynamo)["engine"]["type"] == "vllm"


def test_case_15_the_engine_is_chosen_anew_until_something_is_made_for_it() -> None:
    both = provider("kaito", "vllm", "llamacpp")
    first = decided(deployment(), provider("kaito", "llamacpp"))
    assert first["engine"]["type"] == "llamacpp"
    assert decided(deployment(resources=GPU, status=first), both)["engine"]["type"] == "vllm"
    made = {**first, "provider": {**first["provider"], "resourceName": "llama"}}
    assert decided(deployment(resources=GPU, status=made), both)["engine"]["type"] == "llamacpp"


def test_case_16_an_engine_that_is_named_later_replaces_the_chosen_one() -> None:
    """As with the other fields of identity, it is never refused: the upstream object is made anew."""
    kaito = provider("kaito", "vllm", "sglang")
    first = decided(deployment(resources=GPU), kaito)
    made = {**first, "provider": {**first["provider"], "resourceName": "llama"}}
    later = deployment(resources=GPU, engine={"type": "sglang"}, status=made)
    assert validate(later, old=deployment(resources=GPU)) == []
    status = decided(later, kaito)
    assert status["engine"] == {"type": "sglang", "selectedReason": "explicit engine selection"}
    assert told(status, "EngineSelected") == ("True", "ExplicitSelection")
    assert status["provider"]["name"] == "kaito"


def test_case_17_naming_the_selected_provider_keeps_it_and_naming_another_moves_on() -> None:
    providers = (provider("kaito", "vllm"), provider("other", "vllm"))
    first = decided(deployment(resources=GPU), *providers)
    assert first["provider"]["name"] == "kaito"
    for name in ("kaito", "other"):
        named = deployment(resources=GPU, provider={"name": name}, status=first)
        assert validate(named, old=deployment(resources=GPU)) == []
        decision = decide(named, violations=[], providers=providers, selector=True, now=NOW)
        assert decision.status["provider"]["name"] == name
        assert [event.reason for event in decision.events] == ([] if name == "kaito" else ["ProviderSelected"])


def test_case_18_overrides_without_a_name_leave_the_choice_open() -> None:
    obj = deployment(resources=GPU, provider={"overrides": {"spec": {"a": 1}}})
    status = decided(obj, provider("kaito", "vllm"))
    assert status["provider"]["name"] == "kaito"
    assert status["provider"]["selectedReason"].startswith("matched capabilities")


def test_case_46_and_48_nothing_of_a_failure_is_left_once_it_is_fixed() -> None:
    kaito = provider("kaito", "llamacpp")
    broken = deployment(image="one", engine={"type": "llamacpp", "image": "two"})
    violations = validate(broken)
    assert violations
    failed = decided(broken, kaito, violations=violations)
    assert "different images" in failed["message"]
    fixed = decided(deployment(image="one", engine={"type": "llamacpp"}, status=failed), kaito)
    assert "different images" not in str(fixed)
    statuses = {condition["type"]: condition["status"] for condition in fixed["conditions"]}
    assert [type_ for type_, value in statuses.items() if value == "False"] == ["Ready", "Stalled"]
    assert statuses["Reconciling"] == "True"  # it waits for the provider
    assert dig(fixed, "reason") == "WaitingForProvider"


@pytest.mark.parametrize(
    "engines",
    [["vllm", "sglang"], ["vllm", {"name": "llamacpp", "cpuSupport": True, "servingModes": ["aggregated"]}], "vllm"],
    ids=["words", "words and objects", "a text"],
)
def test_case_58_a_config_of_an_older_shape_stops_nobody(engines: object) -> None:
    """The CRD refuses such configs; one that is there from before it did counts as far as it can be read."""
    old = provider_facts(
        {
            "metadata": {"name": "old"},
            "spec": {"capabilities": {"engines": engines, "servingModes": ["aggregated"], "gpuSupport": True}},
            "status": {"ready": True, "lastHeartbeat": NOW.isoformat()},
        }
    )
    assert decided(deployment(resources=GPU), old, provider("sane", "vllm"))["provider"]["name"] == "sane"


@pytest.mark.parametrize("word", ["True", "1", "false", "yes", "", " true"])
def test_case_59_and_aim_75_only_the_exact_word_pauses(word: str) -> None:
    obj = deployment(resources=GPU)
    obj["metadata"]["annotations"] = {"airunway.ai/reconcile-paused": word}
    assert decided(obj, provider("kaito", "vllm"))["provider"]["name"] == "kaito"
    obj["metadata"]["annotations"]["airunway.ai/reconcile-paused"] = "true"
    paused = decided(obj, provider("kaito", "vllm"))
    assert "provider" not in paused
    assert told(paused, "Paused") == ("True", "Paused")


def test_case_59_a_pause_keeps_all_that_the_core_has_said_of_a_deployment_that_waits() -> None:
    """Nobody speaks for it yet: phase, reason, message and the parent conditions are the core's, and stay."""
    waiting = decided(deployment(resources=GPU), provider("shy", "vllm", selection="Explicit"))
    assert waiting["phase"] == "Pending"
    obj = deployment(resources=GPU, status=waiting)
    obj["metadata"]["annotations"] = {"airunway.ai/reconcile-paused": "true"}
    paused = decided(obj, provider("shy", "vllm", selection="Explicit"))
    assert told(paused, "Paused") == ("True", "Paused")
    conditions = [c for c in paused["conditions"] if c["type"] != "Paused"]
    assert {**paused, "conditions": conditions} == waiting
    assert {c["type"] for c in conditions} >= {"Validated", "EngineSelected", "Ready", "Reconciling", "Stalled"}


def test_case_59_a_pause_keeps_the_choice_and_leaves_the_providers_words_to_the_provider() -> None:
    first = decided(deployment(resources=GPU), provider("kaito", "vllm"))
    theirs = {"type": "ResourceCreated", "status": "True", "reason": "ResourceCreated", "message": "", **TIMES}
    live = {
        **first,
        "phase": "Running",
        "reason": "Ready",
        "message": "all well",
        "observedGeneration": 1,
        "provider": {**first["provider"], "resourceName": "llama"},
        "conditions": [*first["conditions"], theirs],
    }
    obj = deployment(resources=GPU, status=live)
    obj["metadata"]["annotations"] = {"airunway.ai/reconcile-paused": "true"}
    paused = decided(obj)  # even with its config gone
    assert {key: paused[key] for key in ("engine", "provider", "selection")} == {
        key: first[key] for key in ("engine", "provider", "selection")
    }
    assert not {"phase", "reason", "message"} & paused.keys()
    types = [c["type"] for c in paused["conditions"]]
    assert types == sorted(types)
    assert {"Validated", "EngineSelected", "ProviderSelected", "Paused"} <= set(types)
    assert not {"Ready", "Reconciling", "Stalled", "ResourceCreated"} & set(types)


def test_case_60_and_aim_41_looking_again_changes_nothing() -> None:
    kaito = provider("kaito", "vllm")
    first = decided(deployment(resources=GPU), kaito)
    again = decide(
        deployment(resources=GPU, status=first),
        violations=[],
        providers=[kaito],
        selector=True,
        now=NOW + timedelta(minutes=1),
    )
    assert again.status == first
    assert again.events == ()


def test_case_11_a_selected_provider_stays_when_its_config_goes_before_anything_was_made() -> None:
    deployment: Resource = {
        "apiVersion": "airunway.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "llama", "namespace": "default", "uid": "1", "generation": 1},
        "spec": {"model": {"id": "org/model"}, "resources": {"gpu": {"count": 1}}},
        "status": {
            "engine": {"type": "vllm", "selectedReason": "auto-selected from provider kaito capabilities"},
            "provider": {"name": "kaito", "selectedReason": "matched capabilities"},
        },
    }
    other = provider_facts(
        {
            "metadata": {"name": "other"},
            "spec": {
                "capabilities": {"engines": [{"name": "vllm", "gpuSupport": True, "servingModes": ["aggregated"]}]}
            },
            "status": {"ready": True},
        }
    )
    decision = decide(
        deployment, violations=(), providers=[other], selector=True, now=datetime(2026, 11, 21, tzinfo=UTC)
    )
    assert decision.status["provider"]["name"] == "kaito"
    assert (condition_of({"status": decision.status}, "ProviderSelected") or {})["status"] == "True"


def test_case_58_capabilities_of_any_shape_are_passed_over() -> None:
    modes = [{"name": "vllm", "servingModes": [7, [], "aggregated"]}, {"name": "sglang", "servingModes": 7}]
    for shape in (7, "vllm", {"name": "vllm"}, [7, "vllm", {"name": 7}], modes):
        facts = provider_facts(
            {"metadata": {"name": "odd"}, "spec": {"capabilities": {"engines": shape}, "selectionRules": shape}}
        )
        read = [(engine.name, engine.modes, engine.gpu, engine.cpu) for engine in facts.engines]
        whole = [("vllm", frozenset({"aggregated"}), False, False), ("sglang", frozenset(), False, False)]
        assert read == (whole if shape is modes else [])
        assert facts.rules == ()


@pytest.mark.parametrize(
    "upstream",
    [[], None, 7, "Workspace", [7], [None], [{}], [{"kind": 7}], [{"kind": "Thing", "versions": 7}]],
    ids=str,
)
def test_case_58_an_upstream_of_any_shape_is_passed_over(upstream: object) -> None:
    """A config with `upstream: []` is one that the CRD takes."""
    engine = {"name": "vllm", "gpuSupport": True, "servingModes": ["aggregated"]}
    odd = provider_facts(
        {
            "metadata": {"name": "odd"},
            "spec": {"capabilities": {"engines": [engine]}, "upstream": upstream},
            "status": {"ready": True},
        }
    )
    kind = odd.upstream.kind if odd.upstream else None
    assert kind == ("Thing" if isinstance(upstream, list) and upstream and "Thing" in str(upstream) else None)
    assert decided(deployment(resources=GPU), odd)["provider"]["name"] == "odd"
