"""The smallest change: it works, nothing smaller does, and what no change can do is said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airunway.resource import Resource, copy_of
from airunway.selection.advice import advise, failing_checks, smallest_change, with_changes
from airunway.selection.facts import ProviderFacts, provider_facts
from airunway.validation import validate
from airunway.validation.policy import Grants

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def config(
    name: str, *engines: dict[str, Any], ready: bool = True, heartbeat: datetime = NOW, selection: str = "Auto"
) -> ProviderFacts:
    spec = {"selection": selection, "capabilities": {"engines": list(engines)}}
    status = {"ready": ready, "lastHeartbeat": heartbeat.isoformat()}
    return provider_facts({"metadata": {"name": name}, "spec": spec, "status": status})


def engine(name: str, *modes: str, gpu: bool = True, cpu: bool = False, **flags: bool) -> dict[str, Any]:
    return {
        "name": name,
        "servingModes": list(modes) or ["aggregated"],
        "gpuSupport": gpu,
        "cpuSupport": cpu,
        **flags,
    }


KAITO = config("kaito", engine("vllm"), engine("llamacpp", cpu=True))
DYNAMO = config("dynamo", engine("vllm", "aggregated", "disaggregated"), engine("sglang"), engine("trtllm"))
KUBERAY = config("kuberay", engine("vllm"), selection="Explicit")
SPLIT = config("split", engine("vllm", "disaggregated"))


def spec(**parts: Any) -> Resource:
    return {"model": {"id": "org/model"}} | parts


def advised(given_spec: Resource, provider: ProviderFacts, *others: ProviderFacts) -> dict[str, Any] | None:
    """The advice as path → new value."""
    changes = smallest_change(given_spec, provider, [provider, *others], now=NOW)
    return None if changes is None else {change.path: change.after for change in changes}


GPU = {"gpu": {"count": 2}}


@pytest.mark.parametrize(
    ("given_spec", "provider", "changes"),
    [
        (spec(engine={"type": "vllm"}, resources=GPU), KAITO, {}),
        (spec(engine={"type": "sglang"}, resources=GPU), KAITO, {"spec.engine.type": "vllm"}),
        (spec(engine={"type": "vllm"}), KAITO, {"spec.resources.gpu.count": 1}),
        (spec(), DYNAMO, {"spec.resources.gpu.count": 1}),
        (spec(engine={"type": "llamacpp"}), DYNAMO, {"spec.engine.type": "vllm", "spec.resources.gpu.count": 1}),
        (spec(resources=GPU), KUBERAY, {"spec.provider.name": "kuberay"}),
        (spec(resources=GPU, provider={"name": "dynamo"}), KAITO, {"spec.provider.name": "kaito"}),
        (
            spec(resources=GPU, scaling={"replicas": 0}, engine={"type": "vllm"}),
            KAITO,
            {"spec.scaling.replicas": 1},
        ),
        (
            spec(resources=GPU, engine={"type": "vllm"}, model={"id": "m", "cache": {"mode": "Shared"}}),
            KAITO,
            {"spec.model.cache.mode": "None"},
        ),
        (
            spec(resources={**GPU, "memory": "64Gi"}, engine={"type": "vllm"}),
            SPLIT,
            {
                "spec.serving.mode": "disaggregated",
                "spec.resources.gpu": None,
                "spec.scaling.prefill.gpu.count": 1,
                "spec.scaling.prefill.memory": "64Gi",
                "spec.scaling.decode.gpu.count": 1,
                "spec.scaling.decode.memory": "64Gi",
            },
        ),
        (spec(engine={"type": "vllm"}), config("empty"), None),
        (spec(), config("useless", engine("vllm", gpu=False)), None),
    ],
)
def test_the_smallest_change(given_spec: Resource, provider: ProviderFacts, changes: dict[str, Any] | None) -> None:
    assert advised(given_spec, provider, DYNAMO if provider is KAITO else KAITO) == changes


def test_a_disaggregated_deployment_is_brought_back() -> None:
    role = {"gpu": {"count": 1}, "memory": "32Gi"}
    split = spec(engine={"type": "vllm"}, serving={"mode": "disaggregated"}, scaling={"prefill": role, "decode": role})
    assert advised(split, KAITO) == {"spec.serving.mode": "aggregated", "spec.resources.gpu.count": 1}


def test_what_no_change_can_do_is_said() -> None:
    silent = config("kaito", engine("vllm"), ready=False, heartbeat=NOW - timedelta(hours=1))
    advice = advise(spec(resources=GPU), silent, [silent], now=NOW, grants=Grants(providers=("other",)))
    assert advice.changes == ()
    assert len(advice.obstacles) == 3
    for word in ("administrator", "describe ipc kaito", "last heartbeat was at 2026-11-21T11:00:00Z"):
        assert any(word in obstacle for obstacle in advice.obstacles), word
    healthy = advise(spec(resources=GPU), KAITO, [KAITO], now=NOW)
    assert healthy.obstacles == ()


def test_a_provider_that_the_advice_names_would_be_selected() -> None:
    """Also where others score as well, and where it is never chosen unless it is named."""
    for given_spec, provider in (
        (spec(resources=GPU), KUBERAY),
        (spec(resources=GPU, provider={"name": "dynamo"}), KAITO),
        (spec(engine={"type": "vllm"}, resources=GPU), KUBERAY),
    ):
        advice = advise(given_spec, provider, [DYNAMO, KAITO, KUBERAY], now=NOW)
        assert [change.path for change in advice.changes or ()] == ["spec.provider.name"]
        assert advice.selected
    beaten = advise(spec(engine={"type": "vllm"}, resources=GPU), KAITO, [DYNAMO, KAITO], now=NOW)
    assert (beaten.changes, beaten.selected) == ((), False)  # eligible, and Dynamo comes first by name


def test_an_advised_change_is_admitted() -> None:
    def valid(edited: Resource) -> bool:
        return not validate(
            {"apiVersion": "airunway.ai/v1alpha1", "kind": "ModelDeployment", "metadata": {"name": "a"}, "spec": edited}
        )

    cpu_vllm = config("odd", engine("vllm", gpu=False, cpu=True), engine("llamacpp", gpu=False, cpu=True))
    given_spec = spec(engine={"type": "sglang"}, resources=GPU)
    careless = smallest_change(given_spec, cpu_vllm, [cpu_vllm], now=NOW)
    assert careless is not None
    assert not valid(with_changes(given_spec, careless))  # vllm on CPU is what validation refuses
    careful = smallest_change(given_spec, cpu_vllm, [cpu_vllm], now=NOW, valid=valid)
    assert careful is not None
    assert {c.path: c.after for c in careful} == {"spec.engine.type": "llamacpp", "spec.resources.gpu.count": 0}
    assert valid(with_changes(given_spec, careful))


# ------------------------------------------------------------------------------------------------------------ laws

NAMES = ("vllm", "sglang", "llamacpp", "other")
ENGINES = st.builds(
    lambda name, modes, gpu, cpu, zero, cache: engine(
        name, *modes, gpu=gpu, cpu=cpu, scaleToZero=zero, modelCache=cache
    ),
    st.sampled_from(NAMES),
    st.lists(st.sampled_from(["aggregated", "disaggregated"]), min_size=1, max_size=2, unique=True),
    *[st.booleans()] * 4,
)
PROVIDERS = st.builds(
    lambda name, engines, ready, selection: config(name, *engines, ready=ready, selection=selection),
    st.sampled_from(["a", "b"]),
    st.lists(ENGINES, max_size=3, unique_by=lambda e: e["name"]),
    st.booleans(),
    st.sampled_from(["Auto", "Explicit"]),
)


@st.composite
def specs(draw: st.DrawFn) -> Resource:
    parts: Resource = {"model": {"id": "m"}}
    if draw(st.booleans()):
        parts["engine"] = {"type": draw(st.sampled_from(NAMES))}
    if draw(st.booleans()):
        parts["resources"] = {"gpu": {"count": draw(st.sampled_from([0, 1, 4]))}}
    if draw(st.booleans()):
        parts["scaling"] = {"replicas": draw(st.sampled_from([0, 1, 3]))}
    if draw(st.booleans()):
        parts["provider"] = {"name": draw(st.sampled_from(["a", "b", "c"]))}
    if draw(st.booleans()):
        parts["model"]["cache"] = {"mode": draw(st.sampled_from(["None", "Shared"]))}
    return parts


def edits(given_spec: Resource, provider: ProviderFacts) -> Iterator[tuple[int, Resource]]:
    """Every spec with some of these fields set, and how many were: written without looking at the search."""
    values: dict[str, list[Any]] = {
        "provider.name": [provider.name],
        "engine.type": list(NAMES),
        "resources.gpu.count": [0, 1],
        "scaling.replicas": [1],
        "model.cache.mode": ["None"],
    }
    for number in range(len(values) + 1):
        for fields in combinations(values, number):
            for chosen in product(*(values[field] for field in fields)):
                edited = copy_of(given_spec)
                for field, value in zip(fields, chosen, strict=True):
                    *parents, last = field.split(".")
                    node = edited
                    for step in parents:
                        node = node.setdefault(step, {})
                    node[last] = value
                yield number, edited


@settings(max_examples=40)  # brute force is slow
@given(given_spec=specs(), provider=PROVIDERS, other=PROVIDERS)
def test_the_advice_works_and_nothing_smaller_does(
    given_spec: Resource, provider: ProviderFacts, other: ProviderFacts
) -> None:
    others = [other] if other.name != provider.name else []
    changes = smallest_change(given_spec, provider, [provider, *others], now=NOW)
    healthy = replace(provider, ready=True)

    def eligible(edited: Resource) -> bool:
        return not failing_checks(edited, healthy, [healthy, *others], now=NOW)

    if changes is not None:
        assert eligible(with_changes(given_spec, changes))
        assert all(change.before != change.after for change in changes)
    fewest = min((number for number, edited in edits(given_spec, healthy) if eligible(edited)), default=None)
    if fewest is not None:
        assert changes is not None
        assert len(changes) <= fewest
    # Where the search finds less than brute force over single fields, it went over to the other serving mode.
    if changes is not None and (fewest is None or len(changes) < fewest):
        assert any(change.path == "spec.serving.mode" for change in changes)


@given(given_spec=specs(), provider=PROVIDERS)
def test_the_advice_is_always_the_same(given_spec: Resource, provider: ProviderFacts) -> None:
    first = smallest_change(given_spec, provider, [provider], now=NOW)
    assert smallest_change(given_spec, provider, [provider], now=NOW) == first
