"""Templates, nodes, outputs, Jobs and pods of any shape: a condition each, and never an exception."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import orjson
from catalogue.tests.world import OUTPUT, World, template_of
from hypothesis import given
from hypothesis import strategies as st

from airunway.api.modeltemplate import ModelTemplateStatus
from airunway.resource import Resource
from airunway_catalogue.discovery import MAX_OUTPUT, PACKED, PROBLEM
from airunway_catalogue.gpu_models import AMD, NVIDIA, GpuModels
from airunway_catalogue.hardware import demand_of, find_hardware
from airunway_catalogue.nodes import inventory_of, project_node
from airunway_catalogue.outcomes import Unreadable, read_report

MODELS = GpuModels(models=(*NVIDIA, *AMD))

LABELS = [
    "nvidia.com/gpu.product",
    "nvidia.com/gpu.memory",
    "nvidia.com/gpu.family",
    "amd.com/gpu.device-id",
    "amd.com/gpu.device-id.74a1",
    "beta.amd.com/gpu.device-id.740f",
    "amd.com/gpu.product-name",
    "amd.com/gpu.vram",
    "beta.amd.com/gpu.vram.192G",
    "amd.com/gpu.family",
    "amd.com/gpu.",
    "x",
]
VALUES = ["NVIDIA-H100-80GB-HBM3", "81559", "74a1", "8", "192G", "AI", "", "-1", "1e999", "G", "é" * 40]
ODD = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.just([]), st.just({}), st.just([1]))
JSON = st.recursive(
    ODD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
RESOURCES = ["nvidia.com/gpu", "amd.com/gpu", "nvidia.com/mig-1g.5gb", "gpu.intel.com/i915", "cpu", "x/y"]


PHASES = {"Pending", "Starting", "Progressing", "Ready", "Degraded", "NotAvailable", "Failed"}


def one_of(*usual: Any) -> st.SearchStrategy[Any]:
    return st.one_of(st.sampled_from(usual), ODD)


NODE = st.fixed_dictionaries(
    {
        "metadata": st.one_of(
            st.fixed_dictionaries({"labels": st.dictionaries(st.sampled_from(LABELS), one_of(*VALUES), max_size=5)}),
            ODD,
        ),
        "status": st.one_of(
            st.fixed_dictionaries(
                {
                    "allocatable": st.one_of(
                        st.dictionaries(st.sampled_from(RESOURCES), one_of("1", "8", "7910m", "1e9999"), max_size=3),
                        ODD,
                    )
                },
                optional={"conditions": one_of([{"type": "Ready", "status": "False"}], [{"type": "Ready"}], [1])},
            ),
            ODD,
        ),
    },
    optional={"spec": one_of({"unschedulable": True}, {"unschedulable": 1})},
)
GPU = st.fixed_dictionaries(
    {},
    optional={
        "count": one_of(1, 8, 64),
        "type": one_of(*RESOURCES),
        "model": one_of("H100", "MI300X", "A100", "a\x00b"),
        "minVram": one_of("80Gi", "1e999", "-1", 5),
    },
)
SPEC = st.fixed_dictionaries(
    {},
    optional={
        "modelName": one_of("acme/tiny"),
        "hardware": st.one_of(st.fixed_dictionaries({"gpu": st.one_of(GPU, ODD)}), ODD),
        "discovery": st.one_of(
            st.fixed_dictionaries({}, optional={"image": one_of("r/i:1"), "args": one_of(["a", 1], ["$(A)"])}), ODD
        ),
        "defaults": st.one_of(
            st.fixed_dictionaries({}, optional={"image": one_of("r/i:2"), "env": one_of([{"name": "A"}, 1])}), ODD
        ),
        "modelSources": one_of([{"uri": "hf://a/b"}]),
        "caching": one_of({"enabled": True}),
        "imagePullSecrets": one_of([{"name": "s"}, 1]),
        "serviceAccountName": one_of("x"),
        "runtimeConfigName": one_of("fast"),
    },
)
STATUS = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            "phase": one_of("Ready", "Failed", "Starting"),
            "discovery": st.one_of(
                st.fixed_dictionaries(
                    {},
                    optional={
                        "attempts": one_of(1, 10**40),
                        "specHash": one_of("x"),
                        "nextAttemptTime": one_of("2026-01-01T00:00:00Z", "9999-99-99"),
                        "lastAttemptTime": one_of("2026-01-01T00:00:00Z"),
                        "job": one_of("discover-tiny-1"),
                    },
                ),
                ODD,
            ),
            "conditions": one_of(
                [{"type": "DiscoveryReady", "status": "True", "reason": "Discovered"}], [1], [{"type": 1}]
            ),
            "profile": one_of({"a": 1}),
            "modelSources": one_of([{"uri": "hf://a/b"}, 1]),
        },
    ),
    ODD,
)


@given(st.lists(NODE, max_size=6), st.one_of(GPU, ODD), one_of("4", "500m", "1e9999"))
def test_any_nodes_and_any_demand_have_a_result(nodes: list[Resource], gpu: object, cpu: object) -> None:
    demand = demand_of({"spec": {"hardware": {"gpu": gpu, "cpu": cpu}}})
    inventory = inventory_of(project_node(json.loads(json.dumps(node))) for node in nodes)
    fit = find_hardware(demand, inventory, MODELS)
    assert fit.available or fit.message
    assert 0 <= fit.held <= fit.nodes
    assert find_hardware(demand, inventory_of(reversed(nodes)), MODELS) == fit
    ModelTemplateStatus.model_validate({"hardware": fit.status()} if fit.status() is not None else {})


@given(SPEC, STATUS, st.lists(NODE, max_size=3), st.sampled_from(["team", ""]))
def test_any_template_has_a_whole_status(spec: Resource, status: object, nodes: list[Resource], namespace: str) -> None:
    found = World(template={**template_of(namespace=namespace), "spec": spec, "status": status})
    found.facts["hardware"] = find_hardware(demand_of(found.template), inventory_of(nodes), MODELS)
    for _ in range(3):
        found.step()
        assert found.phase in PHASES
        assert len(found.status["conditions"]) == 8
        assert all(each["reason"] and each["status"] in ("True", "False") for each in found.status["conditions"])
        assert len(orjson.dumps(found.status)) < 64 * 2**10
        ModelTemplateStatus.model_validate(found.status)
        found.pass_time(minutes=2)


def phase_of(found: World) -> str:
    status = found.decide().status
    assert status is not None
    ModelTemplateStatus.model_validate(status)
    return str(status["phase"])


@given(JSON)
def test_a_template_whose_parts_are_anything_is_decided(anything: object) -> None:
    found = World(template=template_of(discovery={"image": "r/i:1"}))
    found.step()
    found.pods = {"p": {"metadata": {"labels": {}}, "status": anything}}
    for job in found.jobs.values():
        job["status"] = anything
    assert phase_of(found) in PHASES
    found.template["spec"] = anything
    assert phase_of(found) in PHASES
    found.template["status"] = anything
    assert phase_of(found) in PHASES


def said_of(output: str) -> str:
    """What an output comes to, in words."""
    try:
        report = read_report(output)
    except Unreadable as unreadable:
        return str(unreadable)
    assert len(output.encode()) <= MAX_OUTPUT
    return f"a profile of {len(report.profile)} fields"


@given(
    st.one_of(
        JSON.map(json.dumps),
        st.text(max_size=200),
        st.text(max_size=60).map(lambda each: PROBLEM + each),
        st.text(max_size=60).map(lambda each: PACKED + each),
        st.binary(max_size=60).map(lambda each: PACKED + base64.b64encode(gzip.compress(each)).decode()),
        st.text(alphabet='{}[]",:1\n a', max_size=60),
        JSON.map(lambda each: json.dumps({"profile": {}, "models": each})),
    )
)
def test_any_output_is_a_report_or_has_a_reason(output: str) -> None:
    assert said_of(output)


@given(st.integers(0, len(OUTPUT)), st.binary(max_size=8))
def test_an_output_that_is_cut_or_overwritten_is_a_report_or_has_a_reason(place: int, noise: bytes) -> None:
    text = (OUTPUT.encode()[:place] + noise + OUTPUT.encode()[place + len(noise) :]).decode(errors="replace")
    for each in (text, OUTPUT[:place]):
        assert said_of(each)
