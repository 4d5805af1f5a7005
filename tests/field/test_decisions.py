"""What follows from these fields beside the pods: selection, routes, `airunway fit`, what counts as a change."""

from __future__ import annotations

from typing import Any

import pytest

from airunway.api.modeldeployment import defaulted_spec
from airunway.plugins.provider_config import config_object
from airunway.plugins.registry import load
from airunway.resource import Resource
from airunway.revisions.same_spec import lasting_spec
from airunway.routing.backends import BackendKind, announced, backend_of
from airunway.selection.facts import provider_facts, request_of
from airunway.sizing.checkpoint import unknown_checkpoint
from airunway.sizing.fit import fit
from airunway.sizing.nodes import free_gpus
from airunway.sizing.workload import WorkerSettings


@pytest.mark.parametrize(
    ("provider", "able"),
    [("dynamo", False), ("kuberay", False), ("kaito", True), ("llmd", True), ("vllm", True)],
)
def test_a_provider_is_a_candidate_for_embeddings_if_its_capabilities_say_so(provider: str, able: bool) -> None:
    engine = provider_facts(config_object(load(provider).manifest)).engine("vllm")
    assert engine is not None
    for task, expected in (("embed", able), ("generate", True)):
        spec = defaulted_spec({"model": {"id": "o/m", "task": task}}, engine="vllm")
        assert (not engine.lacks(request_of(spec))) is expected, task


_POOL: Resource = {"gateway": {"managesInferencePool": True}}


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        ({}, BackendKind.POOL),
        ({"model": {"task": "generate"}, "gateway": {"endpointPicker": "Auto"}}, BackendKind.POOL),
        ({"model": {"task": "transcribe"}}, BackendKind.SERVICE),
        ({"model": {"task": "embed"}}, BackendKind.SERVICE),
        ({"gateway": {"endpointPicker": "None"}}, BackendKind.SERVICE),
    ],
)
def test_a_route_leads_to_the_service_where_no_picker_may_stand(spec: Resource, kind: BackendKind) -> None:
    endpoint = {"service": "m", "port": 8000, "pool": {"name": "m"}}
    deployment = {"metadata": {"name": "m"}, "spec": spec, "status": {"endpoint": endpoint}}
    found: Any = backend_of(deployment, engine=_POOL, pools_served=True, picker=True)
    assert found.kind is kind
    assert announced({"metadata": {"name": "m"}, "spec": spec}, engine=_POOL, pools_served=True) is kind


@pytest.mark.parametrize("resource", ["nvidia.com/mig-1g.12gb", "nvidia.com/gpu.shared"])
def test_fit_counts_slices_and_never_puts_two_together(resource: str) -> None:
    node = {
        "metadata": {"name": "a", "labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}},
        "status": {"allocatable": {resource: "7"}},
    }
    rows = free_gpus([node], [])
    assert [(row.resource, row.free) for row in rows] == [(resource, 7)]
    checkpoint = unknown_checkpoint("o/m", why="not asked")
    two = fit(checkpoint, WorkerSettings(engine="vllm", gpus=2, resource=resource), rows)
    assert [row.why for row in two.nodes if "cannot run one model together: set gpu.count to 1" in row.why]
    assert two.pipeline is None
    assert fit(checkpoint, WorkerSettings(engine="vllm", gpus=1, resource=resource), rows).nodes[0].why == ""


def test_another_number_of_nodes_is_a_change_and_another_count_of_replicas_is_none() -> None:
    spread = lasting_spec({"scaling": {"nodesPerReplica": 2}})
    assert spread != lasting_spec({})
    assert spread != lasting_spec({"scaling": {"nodesPerReplica": 4}})
    assert spread == lasting_spec({"scaling": {"nodesPerReplica": 2, "replicas": 3}})
