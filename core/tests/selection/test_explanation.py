"""`explain` tells the same story as the core."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from airunway.controller.decision import decide
from airunway.resource import Resource, condition_of, dig
from airunway.selection import ProviderFacts, provider_facts
from airunway.selection.explanation import Verdict, explain
from airunway.validation import validate

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def config(name: str, engines: list[Resource], *, ready: bool = True, rules: tuple[str, ...] = ()) -> ProviderFacts:
    return provider_facts(
        {
            "metadata": {"name": name},
            "spec": {
                "capabilities": {"engines": engines},
                "selectionRules": [{"condition": rule, "priority": 10 * (i + 1)} for i, rule in enumerate(rules)],
            },
            "status": {"ready": ready, "lastHeartbeat": NOW.isoformat()},
        }
    )


def engine(name: str, *, gpu: bool, cpu: bool) -> Resource:
    return {"name": name, "servingModes": ["aggregated"], "gpuSupport": gpu, "cpuSupport": cpu}


KAITO = config(
    "kaito",
    [engine("vllm", gpu=True, cpu=False), engine("llamacpp", gpu=True, cpu=True)],
    rules=("spec.resources.gpu.count == 0", "spec.nonsense +"),
)
DYNAMO = config("dynamo", [engine("vllm", gpu=True, cpu=False)], rules=("spec.engine.type == 'vllm'",))


def deployment(status: Resource | None = None, **spec: Any) -> Resource:
    return {
        "apiVersion": "airunway.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "a", "namespace": "ml", "uid": "1", "generation": 1},
        "spec": {"model": {"id": "org/model"}} | spec,
        **({"status": status} if status else {}),
    }


GPU = {"gpu": {"count": 1}}


def test_a_choice_is_explained() -> None:
    explanation = explain(deployment(resources=GPU), [KAITO, DYNAMO], now=NOW)
    assert explanation.engine is not None
    assert (explanation.engine.engine, explanation.provider) == ("vllm", "dynamo")
    assert [explanation.verdict(candidate) for candidate in explanation.candidates] == [
        Verdict.SELECTED,
        Verdict.ELIGIBLE,
    ]
    kaito = explanation.as_resource()["candidates"][1]
    assert [rule["result"] for rule in kaito["rules"]] == [False, None]
    assert kaito["rules"][1]["error"]
    assert kaito["smallestChange"] == []


def test_a_rejection_has_path_and_way_out() -> None:
    explanation = explain(deployment(engine={"type": "llamacpp"}), [KAITO, DYNAMO], now=NOW)
    dynamo = explanation.as_resource()["candidates"][0]
    assert dynamo["verdict"] == "rejected"
    assert dynamo["failed"][0]["path"] == "spec.engine.type"
    assert dynamo["smallestChange"] == [
        {"path": "spec.engine.type", "from": "llamacpp", "to": "vllm"},
        {"path": "spec.resources.gpu.count", "from": None, "to": 1},
    ]


def test_without_an_engine_every_provider_is_weighed_for_its_best() -> None:
    explanation = explain(deployment(), [DYNAMO], now=NOW)
    assert explanation.engine is not None
    assert explanation.engine.engine is None
    assert explanation.provider is None
    assert [check.name for check in explanation.candidates[0].failed] == ["cpu"]


def test_what_was_selected_stays() -> None:
    status = {
        "engine": {"type": "llamacpp", "selectedReason": "because"},
        "provider": {"name": "kaito", "selectedReason": "so", "resourceName": "a", "resourceKind": "Workspace"},
    }
    explanation = explain(deployment(status, resources=GPU), [KAITO, DYNAMO], now=NOW)
    assert explanation.engine is not None
    assert (explanation.engine.engine, explanation.provider) == ("llamacpp", "kaito")
    assert "Workspace a exists" in explanation.engine.reason
    assert "stays" in explanation.message


def test_a_named_provider_is_not_blamed_for_having_to_be_named() -> None:
    shy = provider_facts(
        {
            "metadata": {"name": "kuberay"},
            "spec": {"selection": "Explicit", "capabilities": {"engines": [engine("vllm", gpu=True, cpu=False)]}},
            "status": {"ready": True},
        }
    )
    named = deployment(resources=GPU, provider={"name": "kuberay"})
    explanation = explain(named, [KAITO, shy], now=NOW)
    assert explanation.provider == "kuberay"
    assert explanation.candidates[1].failed == ()
    assert explain(
        deployment(provider={"name": "x"}, resources=GPU, engine={"type": "vllm"}), [KAITO], now=NOW
    ).message == ("provider 'x' is not registered (registered: kaito)")


def test_an_invalid_spec_is_explained_as_far_as_it_goes() -> None:
    explanation = explain(deployment(engine={"type": "vllm"}), [KAITO], now=NOW)
    assert [violation.path for violation in explanation.violations] == ["spec.resources.gpu.count"]
    assert explanation.candidates
    unreadable = explain({**deployment(), "spec": {"model": 5}}, [KAITO], now=NOW)
    assert unreadable.violations
    assert unreadable.candidates == ()
    assert explain({**deployment(), "spec": None}, [KAITO], now=NOW).violations


@given(
    engine_type=st.sampled_from([None, "vllm", "llamacpp", "sglang"]),
    gpus=st.sampled_from([0, 1, 2]),
    named=st.sampled_from([None, "kaito", "dynamo", "nobody"]),
    ready=st.booleans(),
)
def test_it_agrees_with_the_core(engine_type: str | None, gpus: int, named: str | None, ready: bool) -> None:
    spec: Resource = {"resources": {"gpu": {"count": gpus}}}
    if engine_type:
        spec["engine"] = {"type": engine_type}
    if named:
        spec["provider"] = {"name": named}
    obj = deployment(**spec)
    providers = [config("dynamo", [engine("vllm", gpu=True, cpu=False)], ready=ready), KAITO]
    violations = validate(obj)
    decision = decide(obj, violations=violations, providers=providers, selector=True, now=NOW)
    explanation = explain(obj, providers, now=NOW)
    assert list(explanation.violations) == violations
    if violations:
        return
    assert explanation.engine is not None
    assert explanation.engine.engine == dig(decision.status, "engine", "type")
    assert explanation.provider == dig(decision.status, "provider", "name")
    candidates = dig(decision.status, "selection", "candidates")
    if candidates is not None:
        assert [candidate.as_status() for candidate in explanation.candidates] == candidates
    selected = condition_of({"status": decision.status}, "ProviderSelected")
    if selected is not None and selected["status"] == "False":
        assert selected["message"] == explanation.message
