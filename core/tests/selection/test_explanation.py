"""`explain` tells the same story as the core."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from airunway.controller.decision import decide
from airunway.resource import Resource, condition_of, dig
from airunway.selection.advice import with_changes
from airunway.selection.choice import forbidden_by
from airunway.selection.explanation import CandidateVerdict, explain
from airunway.selection.facts import ProviderFacts, provider_facts
from airunway.selection.provider import recorded
from airunway.validation import validate
from airunway.validation.policy import NAMESPACE_NAME, Policy, parse_policy

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
        CandidateVerdict.SELECTED,
        CandidateVerdict.ELIGIBLE,
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


def test_the_words_that_scripts_read_are_these() -> None:
    """docs/selection.md promises them."""
    unready = config("unready", [engine("vllm", gpu=True, cpu=False)], ready=False)
    explained = explain(deployment(resources=GPU), [KAITO, unready], now=NOW).as_resource()
    assert explained.keys() == (
        {"namespace", "name", "model", "valid", "violations", "engine", "provider", "warnings", "candidates"}
    )
    chosen, rejected = explained["candidates"]
    every = {"name", "verdict", "score", "failed", "rules"}
    assert chosen.keys() - every <= {"smallestChange", "obstacles", "wouldBeSelected"}
    assert rejected.keys() == every | {"smallestChange", "obstacles", "wouldBeSelected"}
    assert [failed.keys() for failed in rejected["failed"]] == [{"check", "path", "message"}]
    assert [rule.keys() for rule in chosen["rules"]] == [
        {"condition", "priority", "result"},
        {"condition", "priority", "result", "error"},
    ]
    (obstacle,) = rejected["obstacles"]
    assert "describe ipc unready" in obstacle


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
    assert (
        explain(deployment(provider={"name": "x"}, resources=GPU, engine={"type": "vllm"}), [KAITO], now=NOW).message
        == "provider 'x' is not registered (registered: kaito): install its chart, or name a registered one"
    )


def test_an_invalid_spec_is_explained_as_far_as_it_goes() -> None:
    explanation = explain(deployment(engine={"type": "vllm"}), [KAITO], now=NOW)
    assert [violation.path for violation in explanation.violations] == ["spec.resources.gpu.count"]
    assert explanation.candidates
    unreadable = explain({**deployment(), "spec": {"model": 5}}, [KAITO], now=NOW)
    assert unreadable.violations
    assert unreadable.candidates == ()
    assert explain({**deployment(), "spec": None}, [KAITO], now=NOW).violations


def test_an_advice_repairs_an_invalid_spec_too() -> None:
    """Eligible is not enough where the API server would refuse the deployment all the same."""
    obj = deployment(engine={"type": "vllm"})
    explanation = explain(obj, [KAITO], now=NOW)
    advice = dict(explanation.advice).get("kaito")
    assert advice is not None
    assert [(change.path, change.after) for change in advice.changes or ()] == [("spec.resources.gpu.count", 1)]


def test_what_a_policy_forbids_is_no_advice() -> None:
    policy = parse_policy("rules: [{engines: [llamacpp]}]")
    obj = deployment(engine={"type": "vllm"}, resources=GPU)
    explanation = explain(obj, [KAITO, DYNAMO], now=NOW, policy=policy)
    assert [violation.path for violation in explanation.violations] == ["spec.engine.type"]
    candidates = {candidate["name"]: candidate for candidate in explanation.as_resource()["candidates"]}
    assert candidates["kaito"]["smallestChange"] == [{"path": "spec.engine.type", "from": "vllm", "to": "llamacpp"}]
    assert candidates["dynamo"]["smallestChange"] is None  # it has no engine that is allowed


POLICIES = [
    parse_policy(text)
    for text in (
        "{}",
        "default: Deny",
        "rules: [{providers: [kaito]}]",
        "rules: [{providers: [dynamo], engines: [vllm]}]",
        "rules: [{engines: ['llama*']}]",
        "rules: [{namespaceSelector: {matchLabels: {team: red}}, gpuTypes: []}]",
    )
]
RULES = ("spec.resources.gpu.count > 1", "spec.engine.type == 'vllm'", "spec.nope == 1", "true")


@given(
    engine_type=st.sampled_from([None, "vllm", "llamacpp", "sglang"]),
    gpus=st.sampled_from([0, 1, 2]),
    named=st.sampled_from([None, "kaito", "dynamo", "nobody"]),
    kept=st.sampled_from([None, "kaito", "dynamo"]),
    rules=st.lists(st.lists(st.sampled_from(RULES), max_size=3), min_size=3, max_size=3),
    policy=st.sampled_from(POLICIES),
)
def test_who_follows_the_advice_gets_the_provider(
    engine_type: str | None,
    gpus: int,
    named: str | None,
    kept: str | None,
    rules: list[list[str]],
    policy: Policy,
) -> None:
    """Also where a rule is in the way, or that another was selected before, or that it must be named."""
    spec: Resource = {"resources": {"gpu": {"count": gpus}}}
    if engine_type:
        spec["engine"] = {"type": engine_type}
    if named:
        spec["provider"] = {"name": named}
    obj = deployment({"provider": {"name": kept}} if kept else None, **spec)
    shy = replace(config("shy", [engine("sglang", gpu=True, cpu=True)], rules=tuple(rules[2])), explicit_only=True)
    providers = [
        config("dynamo", [engine("vllm", gpu=True, cpu=False)], rules=tuple(rules[0])),
        config(
            "kaito",
            [engine("vllm", gpu=True, cpu=False), engine("llamacpp", gpu=True, cpu=True)],
            rules=tuple(rules[1]),
        ),
        shy,
    ]
    for name, advice in explain(obj, providers, now=NOW, policy=policy).advice:
        if advice.changes is None or advice.obstacles:
            continue
        edited = {**obj, "spec": with_changes(obj["spec"], advice.changes)}
        if not advice.selected:
            edited["spec"]["provider"] = {"name": name}
        after = explain(edited, providers, now=NOW, policy=policy)
        assert after.violations == ()
        assert after.provider == name
        assert {c.name: c.failed for c in after.candidates}[name] == ()


@given(
    engine_type=st.sampled_from([None, "vllm", "llamacpp", "sglang"]),
    gpus=st.sampled_from([0, 1, 2]),
    named=st.sampled_from([None, "kaito", "dynamo", "nobody"]),
    ready=st.booleans(),
    policy=st.sampled_from(POLICIES),
)
def test_it_agrees_with_the_core(
    engine_type: str | None, gpus: int, named: str | None, ready: bool, policy: Policy
) -> None:
    spec: Resource = {"resources": {"gpu": {"count": gpus}}}
    if engine_type:
        spec["engine"] = {"type": engine_type}
    if named:
        spec["provider"] = {"name": named}
    obj = deployment(**spec)
    providers = [config("dynamo", [engine("vllm", gpu=True, cpu=False)], ready=ready), KAITO]
    labels = {NAMESPACE_NAME: "ml", "team": "red"}
    violations = validate(obj) or forbidden_by(policy, obj, namespace_labels=labels)
    grants = policy.grants(labels)
    decision = decide(obj, violations=violations, providers=providers, selector=True, grants=grants, now=NOW)
    explanation = explain(obj, providers, now=NOW, policy=policy, namespace_labels={"team": "red"})
    assert list(explanation.violations) == violations
    if violations:
        return
    assert explanation.engine is not None
    assert explanation.engine.engine == dig(decision.status, "engine", "type")
    refused = condition_of({"status": decision.status}, "ProviderCompatible")
    assert explanation.provider == (dig(decision.status, "provider", "name") if refused is None else None)
    candidates = dig(decision.status, "selection", "candidates")
    if candidates is not None:
        assert recorded(explanation.candidates) == candidates
    selected = condition_of({"status": decision.status}, "ProviderSelected")
    if selected is not None and selected["status"] == "False":
        assert selected["message"] == explanation.message
