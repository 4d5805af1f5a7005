"""Engine and provider selection, with the cases of the Go project's edge list that concern them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunway.api.modeldeployment import defaulted_spec
from airunway.selection.choice import choose_engine
from airunway.selection.facts import STALE_AFTER, ProviderFacts, provider_facts, request_of
from airunway.selection.provider import Candidate, choose_provider, recorded, unsupported

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def config(
    name: str,
    *engines: tuple[str, str, str],
    rules: list[tuple[str, int]] | None = None,
    ready: bool = True,
    heartbeat: datetime | None = NOW,
    selection: str = "Auto",
    **flags: object,
) -> ProviderFacts:
    """Facts of a config whose engines are (name, devices, modes) triples of space-separated words."""
    resource: dict[str, Any] = {
        "metadata": {"name": name},
        "spec": {
            "selection": selection,
            "capabilities": {
                "engines": [
                    {
                        "name": engine,
                        "gpuSupport": "gpu" in devices,
                        "cpuSupport": "cpu" in devices,
                        "servingModes": modes.split(),
                        **flags,
                    }
                    for engine, devices, modes in engines
                ]
            },
            "selectionRules": [{"condition": condition, "priority": priority} for condition, priority in rules or []],
        },
        "status": {"ready": ready, **({"lastHeartbeat": heartbeat.isoformat()} if heartbeat else {})},
    }
    return provider_facts(resource)


KAITO = config(
    "kaito",
    ("vllm", "gpu", "aggregated"),
    ("llamacpp", "gpu cpu", "aggregated"),
    rules=[("spec.resources.gpu.count == 0", 100), ("spec.engine.type == 'llamacpp'", 100)],
)
DYNAMO = config(
    "dynamo",
    ("vllm", "gpu", "aggregated disaggregated"),
    ("sglang", "gpu", "aggregated disaggregated"),
    ("trtllm", "gpu", "aggregated"),
    rules=[
        ("spec.engine.type == 'trtllm'", 100),
        ("spec.engine.type == 'sglang'", 100),
        ("has(spec.serving) && spec.serving.mode == 'disaggregated'", 90),
        ("has(spec.resources.gpu) && spec.resources.gpu.count > 0 && spec.engine.type == 'vllm'", 50),
    ],
)
KUBERAY = config("kuberay", ("vllm", "gpu", "aggregated disaggregated"), selection="Explicit")


def spec(**parts: Any) -> dict[str, Any]:
    return {"model": {"id": "org/model"}, **parts}


def selected(providers: list[ProviderFacts], given_spec: dict[str, Any]) -> str | None:
    engine = given_spec.get("engine", {}).get("type")
    defaulted = defaulted_spec(given_spec, engine=engine)
    choice = choose_engine(request_of(defaulted), providers, explicit=engine, pinned=None, now=NOW)
    assert choice.engine is not None, choice.message
    request = request_of(defaulted_spec(given_spec, engine=choice.engine))
    return choose_provider(request, providers, engine=choice.engine, now=NOW).provider


GPU1 = {"gpu": {"count": 1}}
GPU2 = {"gpu": {"count": 2}}


@pytest.mark.parametrize(
    ("case", "given_spec", "provider"),
    [
        ("vLLM on one GPU goes to Dynamo", spec(engine={"type": "vllm"}, resources=GPU1), "dynamo"),
        ("9: vLLM on two GPUs never goes to KubeRay", spec(engine={"type": "vllm"}, resources=GPU2), "dynamo"),
        ("sglang goes to Dynamo", spec(engine={"type": "sglang"}, resources=GPU1), "dynamo"),
        ("no GPU goes to KAITO", spec(engine={"type": "llamacpp"}), "kaito"),
        (
            "4: gpu.count 0 counts as no GPU",
            spec(engine={"type": "llamacpp"}, resources={"gpu": {"count": 0}}),
            "kaito",
        ),
        ("only a GPU: vLLM, so Dynamo", spec(resources=GPU1), "dynamo"),
        ("nothing at all: llama.cpp, so KAITO", spec(), "kaito"),
        (
            "disaggregated goes to Dynamo",
            spec(
                serving={"mode": "disaggregated"},
                scaling={"prefill": {"gpu": {"count": 1}}, "decode": {"gpu": {"count": 1}}},
            ),
            "dynamo",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_seeds_provider_matrix(case: str, given_spec: dict[str, Any], provider: str) -> None:
    for order in permutations([KAITO, DYNAMO, KUBERAY]):  # 6: the order of listing never matters
        assert selected(list(order), given_spec) == provider, case


def test_2_without_a_fitting_engine_the_text_lists_what_is_offered_in_a_stable_order() -> None:
    request = request_of(defaulted_spec(spec(), engine=None))
    texts = {
        choose_engine(request, order, explicit=None, pinned=None, now=NOW).message
        for order in permutations([DYNAMO, KUBERAY])
    }
    assert len(texts) == 1
    text = texts.pop()
    assert "hasGPU=false" in text
    assert "dynamo/sglang(gpu, aggregated, disaggregated)" in text
    assert "kuberay" not in text  # explicit-only providers steer nothing


def test_6_equal_scores_go_to_the_first_name() -> None:
    twins = [config(name, ("vllm", "gpu", "aggregated")) for name in ("zeta", "alpha", "mid")]
    for order in permutations(twins):
        assert selected(list(order), spec(engine={"type": "vllm"}, resources=GPU1)) == "alpha"


def test_7_matching_rules_do_not_add_up() -> None:
    many = config("many", ("vllm", "gpu", "aggregated"), rules=[("true", 50), ("true", 60)])
    one = config("one", ("vllm", "gpu", "aggregated"), rules=[("true", 100)])
    assert selected([many, one], spec(engine={"type": "vllm"}, resources=GPU1)) == "one"


@pytest.mark.parametrize(
    ("rule", "part_of_error"),
    [
        ("spec.engine.type ==", "syntax"),
        ("spec.nope.deep == 1", "nope"),
        ("spec.resources.gpu.count", "not bool"),
        ("1 + 1", "bool"),
    ],
)
def test_5_a_wrong_rule_is_reported_and_others_still_count(rule: str, part_of_error: str) -> None:
    broken = config("broken", ("vllm", "gpu", "aggregated"), rules=[(rule, 1000), ("true", 5)])
    request = request_of(defaulted_spec(spec(resources=GPU1), engine="vllm"))
    choice = choose_provider(request, [broken], engine="vllm", now=NOW)
    assert choice.provider == "broken"
    assert choice.candidates[0].score == 5
    assert [r.value for r in choice.candidates[0].rules] == [None, True]
    reasons = recorded(choice.candidates)[0]["reasons"]
    assert any(rule in reason and "failed" in reason for reason in reasons), reasons


def test_10_and_12_unready_and_silent_providers_are_passed_over_and_say_why() -> None:
    unready = config("unready", ("vllm", "gpu", "aggregated"), ready=False)
    silent = config("silent", ("vllm", "gpu", "aggregated"), heartbeat=NOW - STALE_AFTER - timedelta(seconds=1))
    request = request_of(defaulted_spec(spec(resources=GPU1), engine="vllm"))
    choice = choose_provider(request, [unready, silent], engine="vllm", now=NOW)
    assert (choice.provider, choice.message) == (None, "No healthy providers available")
    failed = {candidate.name: [check.name for check in candidate.failed] for candidate in choice.candidates}
    assert failed == {"unready": ["ready"], "silent": ["heartbeat"]}


@pytest.mark.parametrize(("silence", "stale"), [(-1, False), (0, True), (1, True)], ids=["179 s", "180 s", "181 s"])
def test_12_from_three_intervals_of_silence_on_a_provider_takes_nothing_new(silence: int, stale: bool) -> None:
    heard = NOW - timedelta(seconds=180 + silence)
    late = config("late", ("vllm", "gpu", "aggregated"), heartbeat=heard)
    request = request_of(defaulted_spec(spec(resources=GPU1), engine=None))
    engine = choose_engine(request, [late], explicit=None, pinned=None, now=NOW)
    assert engine.engine == (None if stale else "vllm")
    choice = choose_provider(request, [late], engine="vllm", now=NOW)
    assert choice.provider == (None if stale else "late")
    assert [check.name for check in choice.candidates[0].failed] == (["heartbeat"] if stale else [])


def test_12_a_provider_that_died_silently_does_not_steer_the_engine() -> None:
    """Its vLLM would be preferred; the deployment would wait for it although another provider runs SGLang."""
    dead = config("dead", ("vllm", "gpu", "aggregated"), heartbeat=NOW - timedelta(hours=1))
    alive = config("alive", ("sglang", "gpu", "aggregated"))
    request = request_of(defaulted_spec(spec(resources=GPU1), engine=None))
    assert choose_engine(request, [dead, alive], explicit=None, pinned=None, now=NOW).engine == "sglang"
    assert selected([dead, alive], spec(resources=GPU1)) == "alive"


def test_the_providers_that_are_only_used_when_named_are_listed_by_name_and_only_healthy_ones() -> None:
    vllm = ("vllm", "gpu", "aggregated")
    shy = [config(name, vllm, selection="Explicit") for name in ("zeta", "alpha")]
    shy += [
        config("unready", vllm, selection="Explicit", ready=False),
        config("silent", vllm, selection="Explicit", heartbeat=NOW - timedelta(hours=1)),
    ]
    request = request_of(defaulted_spec(spec(resources=GPU1), engine=None))
    choice = choose_engine(request, shy, explicit=None, pinned=None, now=NOW)
    assert choice.message.endswith("set provider.name (alpha, zeta)")


def test_what_a_provider_has_is_listed_in_words_and_in_order() -> None:
    """Sets have another order in every process: in a status that would be a write per restart."""
    request = request_of(
        defaulted_spec(
            spec(
                model={"id": "m", "cache": {"mode": "Shared"}},
                scaling={"replicas": 0},
                serving={"mode": "aggregated"},
                resources=GPU1,
            ),
            engine="vllm",
        )
    )
    offered = config("p", ("vllm", "gpu", "zigzag disaggregated"), ("sglang", "gpu", "aggregated"))
    (vllm,) = choose_provider(request, [offered], engine="vllm", now=NOW).candidates
    assert [check.message for check in vllm.failed] == [
        "it serves vllm in these modes: disaggregated, zigzag",
        "it does not have the capability modelCache for vllm",
        "it does not have the capability scaleToZero for vllm",
    ]
    (other,) = choose_provider(request, [offered], engine="trtllm", now=NOW).candidates
    assert [check.message for check in other.failed] == ["engine trtllm is not among its engines (sglang, vllm)"]
    (none,) = choose_provider(request, [config("p")], engine="vllm", now=NOW).candidates
    assert [check.message for check in none.failed] == ["engine vllm is not among its engines (none)"]


def test_an_engine_that_is_named_says_so() -> None:
    request = request_of(defaulted_spec(spec(resources=GPU1), engine="vllm"))
    choice = choose_engine(request, [], explicit="vllm", pinned=None, now=NOW)
    assert (choice.reason, choice.message) == ("explicit engine selection", "Engine explicitly specified in spec")


def test_15_a_pinned_provider_restricts_the_engines() -> None:
    request = request_of(defaulted_spec(spec(), engine=None))
    choice = choose_engine(request, [KAITO, DYNAMO], explicit=None, pinned="dynamo", now=NOW)
    assert choice.engine is None
    assert "kaito" not in choice.message
    with_gpu = request_of(defaulted_spec(spec(resources=GPU1), engine=None))
    assert choose_engine(with_gpu, [KAITO, DYNAMO], explicit=None, pinned="dynamo", now=NOW).engine == "vllm"


def test_an_engine_that_is_selected_for_want_of_a_gpu_says_so() -> None:
    for resources, explained in ({}, True), (GPU1, False):
        request = request_of(defaulted_spec(spec(resources=resources), engine=None))
        choice = choose_engine(request, [KAITO], explicit=None, pinned=None, now=NOW)
        assert ("no GPU is requested in spec.resources.gpu.count" in choice.reason) is explained


def test_an_engine_that_no_provider_runs_with_a_model_cache_is_not_chosen_where_one_is_needed() -> None:
    plain = config("a", ("vllm", "gpu", "aggregated"))
    caching = config("b", ("sglang", "gpu", "aggregated"), modelCache=True)
    wanted = spec(resources=GPU1, model={"id": "org/m", "cache": {"mode": "Shared"}})
    request = request_of(defaulted_spec(wanted, engine=None))
    assert choose_engine(request, [plain, caching], explicit=None, pinned=None, now=NOW).engine == "sglang"
    assert choose_engine(request, [plain], explicit=None, pinned=None, now=NOW).engine == "vllm", (
        "it says what it lacks"
    )


def test_an_engine_that_only_embeds_does_not_generate() -> None:
    both = config("both", ("sglang", "gpu", "aggregated"), tasks=["generate", "embed"])
    embeds = config("embeds", ("vllm", "gpu", "aggregated"), tasks=["embed"])
    plain = config("plain", ("vllm", "gpu", "aggregated"))
    for task, engine, provider in (("generate", "sglang", "both"), ("embed", "vllm", "embeds")):
        request = request_of(defaulted_spec(spec(resources=GPU1, model={"id": "o/m", "task": task}), engine=None))
        assert choose_engine(request, [both, embeds], explicit=None, pinned=None, now=NOW).engine == engine
        assert choose_provider(request, [both, embeds], engine=engine, now=NOW).provider == provider
        assert bool(unsupported(request, plain, engine=None)) is (task == "embed")
    (only,) = unsupported(request_of(defaulted_spec(spec(resources=GPU1), engine=None)), embeds, engine="vllm")
    assert (only.path, only.message) == (
        "spec.model.task",
        "embeds runs no models of task generate with vllm: name another provider",
    )


def test_preference_is_vllm_sglang_trtllm_llamacpp_then_by_name() -> None:
    engines = ["zeta", "llamacpp", "trtllm", "alpha", "sglang", "vllm"]
    order = []
    while engines:
        offered = config("p", *((engine, "gpu", "aggregated") for engine in engines))
        request = request_of(defaulted_spec(spec(resources=GPU1), engine=None))
        best = choose_engine(request, [offered], explicit=None, pinned=None, now=NOW).engine
        assert best is not None
        order.append(best)
        engines.remove(best)
    assert order == ["vllm", "sglang", "trtllm", "llamacpp", "alpha", "zeta"]


def test_scale_to_zero_needs_the_capability() -> None:
    plain = config("plain", ("vllm", "gpu", "aggregated"))
    zero = config("zero", ("vllm", "gpu", "aggregated"), scaleToZero=True)
    request = request_of(defaulted_spec(spec(resources=GPU1, scaling={"replicas": 0}), engine="vllm"))
    choice = choose_provider(request, [plain, zero], engine="vllm", now=NOW)
    assert choice.provider == "zero"
    assert [check.name for check in choice.candidates[0].failed] == ["capability"]


@given(
    st.permutations([KAITO, DYNAMO, KUBERAY]), st.integers(0, 3), st.sampled_from([None, "vllm", "sglang", "llamacpp"])
)
def test_the_verdict_does_not_depend_on_the_order(order: list[ProviderFacts], gpus: int, engine: str | None) -> None:
    def verdict(providers: list[ProviderFacts]) -> tuple[object, tuple[Candidate, ...]]:
        given_spec = spec(resources={"gpu": {"count": gpus}}, **({"engine": {"type": engine}} if engine else {}))
        request = request_of(defaulted_spec(given_spec, engine=engine))
        chosen = choose_engine(request, providers, explicit=engine, pinned=None, now=NOW)
        if chosen.engine is None:
            return chosen, ()
        choice = choose_provider(request, providers, engine=chosen.engine, now=NOW)
        return (chosen, choice.provider), choice.candidates

    assert verdict(order) == verdict([KAITO, DYNAMO, KUBERAY])
