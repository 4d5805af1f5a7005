"""``status.selection`` stays small, keeps what matters, and does not change while nothing has changed."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunway.api.modeldeployment import parse_deployment
from airunway.controller.decision import decide
from airunway.resource import Resource, condition_of
from airunway.selection.facts import ProviderFacts, provider_facts
from airunway.selection.provider import MAX_BYTES, Candidate, FailedCheck, RuleResult, recorded

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def config(
    name: str,
    *,
    rules: list[tuple[str, int]] | None = None,
    selection: str = "Auto",
    ready: bool = True,
    silence: timedelta = timedelta(),
    cpu: bool = True,
) -> ProviderFacts:
    engine = {"name": "vllm", "servingModes": ["aggregated"], "gpuSupport": True, "cpuSupport": cpu}
    return provider_facts(
        {
            "metadata": {"name": name},
            "spec": {
                "selection": selection,
                "capabilities": {"engines": [engine]},
                "selectionRules": [{"condition": text, "priority": priority} for text, priority in rules or []],
            },
            "status": {"ready": ready, "lastHeartbeat": (NOW - silence).isoformat()},
        }
    )


def deployment(status: Resource | None = None, **spec: Any) -> Resource:
    return {
        "apiVersion": "airunway.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "llama", "namespace": "team", "generation": 1},
        "spec": {"model": {"id": "org/model"}, **spec},
        "status": status or {},
    }


def decided(obj: Resource, *providers: ProviderFacts, now: datetime = NOW) -> Resource:
    return decide(obj, violations=[], providers=providers, selector=True, now=now).status


def size(entries: list[Resource]) -> int:
    return len(json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode())


GPU = {"gpu": {"count": 1}}


def test_fifty_candidates_fit_and_the_chosen_one_is_among_them() -> None:
    """It is the last by name; all have errors and long rules."""
    rules = [("spec.nope." + "x" * 1900 + " == 1", 5)] * 30 + [("true", 1)]
    providers = [config(f"provider-{number:02}", rules=rules, ready=False) for number in range(49)]
    status = decided(deployment(resources=GPU), *providers, config("zzz", rules=rules))
    assert status["provider"]["name"] == "zzz"
    entries = status["selection"]["candidates"]
    assert size(entries) <= MAX_BYTES
    assert [entry["name"] for entry in entries] == sorted(entry["name"] for entry in entries)
    (chosen,) = [entry for entry in entries if entry["name"] == "zzz"]
    assert chosen["eligible"]
    assert len(entries) == 32
    parse_deployment(deployment({"selection": status["selection"]}))


def test_few_candidates_keep_their_reasons() -> None:
    rules = [("spec.nope == 1", 5), ("spec.resources.gpu.count > 0", 7)]
    (entry,) = decided(deployment(resources=GPU), config("one", rules=rules))["selection"]["candidates"]
    assert entry["score"] == 7
    assert entry["reasons"][0].startswith("rule 'spec.nope == 1' failed: ")
    assert entry["reasons"][1] == "rule 'spec.resources.gpu.count > 0' (7)"


def test_the_error_of_a_long_rule_is_told_and_not_only_the_rule() -> None:
    rules = [("spec.nope == '" + "x" * 1900 + "'", 5)]
    (entry,) = decided(deployment(resources=GPU), config("one", rules=rules))["selection"]["candidates"]
    assert "nope" in entry["reasons"][0].partition("failed: ")[2]


TEXTS = st.text(max_size=3000)
CANDIDATES = st.lists(
    st.builds(
        lambda name, failed, rules, score: Candidate(
            name=name,
            failed=tuple(FailedCheck(name="x", path="spec", message=text) for text in failed),
            rules=tuple(RuleResult(condition=text, priority=3, value=value, error=text) for text, value in rules),
            score=score,
        ),
        st.text("abcdefgh-", min_size=1, max_size=253),
        st.lists(TEXTS, max_size=3),
        st.lists(st.tuples(TEXTS, st.sampled_from([True, False, None])), max_size=3),
        st.integers(0, 100),
    ),
    max_size=50,
    unique_by=lambda candidate: candidate.name,
)


@given(candidates=CANDIDATES)
def test_it_is_never_too_large_and_the_best_is_never_left_out(candidates: list[Candidate]) -> None:
    entries = recorded(candidates)
    assert size(entries) <= MAX_BYTES
    eligible = [candidate for candidate in candidates if candidate.eligible]
    if eligible:
        best = min(eligible, key=lambda candidate: (-candidate.score, candidate.name))
        assert best.name in {entry["name"] for entry in entries}
    assert entries == recorded(list(reversed(candidates)))


def test_time_that_passes_over_a_silent_provider_is_no_change() -> None:
    """Its age grows by itself: were it told, every look would be a write."""
    silent = config("silent", silence=timedelta(hours=1))
    first = decided(deployment(resources=GPU), silent)
    assert decided(deployment(first, resources=GPU), silent, now=NOW + timedelta(minutes=7)) == first


@pytest.mark.parametrize("engine", [{}, {"engine": {"type": "vllm"}}], ids=["engine open", "engine named"])
def test_no_healthy_provider_is_told_in_the_same_words_with_and_without_an_engine(engine: Resource) -> None:
    status = decided(deployment(resources=GPU, **engine), config("a", ready=False), config("b", ready=False))
    assert (status["phase"], status["message"]) == ("Pending", "No healthy providers available")
    condition = condition_of({"status": status}, "ProviderSelected") or {}
    assert (condition["status"], condition["reason"]) == ("False", "NoProviderSelected")
    assert [entry["eligible"] for entry in status["selection"]["candidates"]] == [False, False]


def test_without_an_engine_the_verdicts_are_told_all_the_same() -> None:
    status = decided(deployment(), config("gpu-only", cpu=False))
    assert "no engines available" in status["message"]
    (entry,) = status["selection"]["candidates"]
    assert entry["reasons"] == ["spec.resources.gpu.count: it needs a GPU to run vllm"]


def test_a_pinned_provider_that_needs_a_gpu_says_so_where_no_engine_is_named() -> None:
    """As its validation does where one is named."""
    status = decided(deployment(provider={"name": "gpu-only"}), config("gpu-only", cpu=False))
    assert (status["phase"], status["message"]) == ("Pending", "gpu-only requires GPU (set resources.gpu.count > 0)")
    assert status["provider"]["name"] == "gpu-only"
    said = {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}
    assert said["ProviderCompatible"] == ("False", "IncompatibleConfiguration")
    assert said["ConfigValid"][0] == "False"
    assert said["ProviderSelected"] == ("True", "ExplicitSelection")
    assert said["EngineSelected"] == ("False", "NoFittingEngine")


def test_a_spec_that_no_engine_can_run_is_a_fault_of_the_spec_and_a_missing_provider_is_none() -> None:
    for registered, valid in (([config("gpu-only", cpu=False)], "False"), ([], "True")):
        status = decided(deployment(), *registered)
        assert "provider" not in status
        assert {each["type"]: each["status"] for each in status["conditions"]}["ConfigValid"] == valid


def test_healthy_providers_that_must_be_named_are_named() -> None:
    status = decided(deployment(resources=GPU), config("shy", selection="Explicit"))
    assert "used only when named: set provider.name (shy)" in status["message"]


def test_the_rules_of_one_provider_are_bounded_together() -> None:
    """Each of them alone may run; a controller that runs hundreds of them for every deployment would stand still."""
    env = [{"name": f"N{number}", "value": "v" * 60} for number in range(90)]
    rules = [(f"spec.env.all(a, spec.env.all(b, a.name != 'x{number}'))", number) for number in range(64)]
    status = decided(deployment(resources=GPU, env=env), config("greedy", rules=rules))
    assert status["provider"]["name"] == "greedy"
    (greedy,) = [entry for entry in status["selection"]["candidates"] if entry["name"] == "greedy"]
    assert "too expensive after the provider's rules before it" in str(greedy["reasons"])
    assert 0 < greedy["score"] < 63
