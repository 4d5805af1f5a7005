"""Free GPUs: which pods and claims count, and which nodes take pods."""

from __future__ import annotations

from typing import Any

import pytest

from airunway.sizing.catalogue import nearest, of_entry
from airunway.sizing.estimate import Layout
from airunway.sizing.fit import fit
from airunway.sizing.nodes import NodeGpus, Placement, free_gpus, pod_requests
from airunway.sizing.workload import WorkerSettings
from airunway.unseen import Unseen

GPU = "nvidia.com/gpu"


def container(gpus: int, *, resource: str = GPU, **fields: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": {resource: str(gpus)}, "limits": {resource: str(gpus)}}, **fields}


def pod(*containers: dict[str, Any], node: str = "a", phase: str = "Running", **spec: Any) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ml"},
        "spec": {"nodeName": node, "containers": list(containers), **spec},
        "status": {"phase": phase},
    }


def node(name: str = "a", *, gpus: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {"pool": "gpu"}},
        "spec": spec,
        "status": {"allocatable": gpus or {GPU: "8"}, "conditions": [{"type": "Ready", "status": "True"}]},
    }


@pytest.mark.parametrize(
    ("found", "gpus"),
    [
        (pod(container(2)), 2),
        (pod(container(2), container(1)), 3),
        # Init containers run one after another: the largest counts, if it is larger than the others together.
        (pod(container(2), initContainers=[container(4), container(3)]), 4),
        (pod(container(2), initContainers=[container(1)]), 2),
        # A sidecar runs beside the containers, and beside the init containers after it.
        (pod(container(2), initContainers=[container(1, restartPolicy="Always")]), 3),
        (pod(container(2), initContainers=[container(1, restartPolicy="Always"), container(4)]), 5),
        (pod(container(2), initContainers=[container(4), container(1, restartPolicy="Always")]), 4),
        (pod(container(2), overhead={GPU: "1"}), 3),
        # In a file that was not sent to an API server, limits are not copied to requests.
        (pod({"name": "c", "resources": {"limits": {GPU: 3}}}), 3),
        (pod({"name": "c", "resources": {"requests": {GPU: "many"}}}), 0),
        (pod({"name": "c", "resources": {"requests": {"cpu": "8"}}}), 0),
    ],
)
def test_a_pod_requests_what_the_scheduler_counts(found: dict[str, Any], gpus: int) -> None:
    assert pod_requests(found).get(GPU, 0) == gpus


@pytest.mark.parametrize(("phase", "free"), [("Running", 6), ("Pending", 6), ("Succeeded", 8), ("Failed", 8)])
def test_pods_that_are_finished_hold_nothing(phase: str, free: int) -> None:
    (row,) = free_gpus([node()], [pod(container(2), phase=phase), pod(container(2), node="b")])
    assert row.free == free


def test_resources_are_counted_by_name() -> None:
    offered = {GPU: "2", "nvidia.com/mig-1g.10gb": "7", "amd.com/gpu": "4", "cpu": "64", "amd.com/gpu_cpx_nps4": "0"}
    pods = [pod(container(3, resource="nvidia.com/mig-1g.10gb")), pod(container(1, resource="amd.com/gpu"))]
    found = {row.resource: (row.allocatable, row.free) for row in free_gpus([node(gpus=offered)], pods)}
    assert found == {GPU: (2, 2), "nvidia.com/mig-1g.10gb": (7, 4), "amd.com/gpu": (4, 3)}


def claim(*devices: str, driver: str = "gpu.nvidia.com", pool: str = "a", **metadata: Any) -> dict[str, Any]:
    results = [{"driver": driver, "pool": pool, "device": device, "request": "r"} for device in devices]
    return {
        "kind": "ResourceClaim",
        "metadata": {"name": "c", **metadata},
        "status": {"allocation": {"devices": {"results": results}}},
    }


def test_devices_that_claims_hold_are_not_free() -> None:
    slices = [{"spec": {"driver": "gpu.nvidia.com", "nodeName": "a", "pool": {"name": "pool-of-a"}}}]
    claims = [
        claim("gpu-0", "gpu-1", pool="pool-of-a"),
        claim("gpu-0", pool="pool-of-a"),  # the same device, shared
        claim("gpu-0", pool="elsewhere"),
        claim("net-0", driver="net.example", pool="pool-of-a"),
        {"metadata": {"name": "waiting"}, "status": {}},
        claim("gpu-5", pool="pool-of-a", annotations={"resource.kubernetes.io/extended-resource-claim": "true"}),
    ]
    (row,) = free_gpus([node()], [pod(container(1))], claims=claims, slices=slices)
    assert (row.used, row.free) == (3, 5)
    assert row.notes == ("2 held by resource claims",)


TAINT = {"key": "team", "value": "x", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("found", "placement", "obstacles"),
    [
        (node(), None, ()),
        (
            node(unschedulable=True, taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]),
            None,
            ("cordoned",),
        ),
        (node(taints=[TAINT]), None, ("tainted team",)),
        (node(taints=[{**TAINT, "effect": "PreferNoSchedule"}]), None, ()),
        (node(taints=[{"key": GPU, "effect": "NoSchedule"}]), None, ()),
        (node(taints=[TAINT]), Placement(node_selector={}, tolerations=({"key": "team", "value": "x"},)), ()),
        (node(taints=[TAINT]), Placement(node_selector={}, tolerations=({"operator": "Exists"},)), ()),
        (
            node(taints=[TAINT]),
            Placement(node_selector={}, tolerations=({"key": "team", "value": "y"},)),
            ("tainted team",),
        ),
        (node(), Placement(node_selector={"pool": "cpu"}), ("not selected (pool)",)),
        (
            {**node(), "status": {"allocatable": {GPU: "8"}, "conditions": [{"type": "Ready", "status": "Unknown"}]}},
            None,
            ("not ready",),
        ),
    ],
)
def test_nodes_that_take_no_pods_are_apart(
    found: dict[str, Any], placement: Placement | None, obstacles: tuple[str, ...]
) -> None:
    (row,) = free_gpus([found], [], placement=placement)
    assert row.obstacles == obstacles
    assert row.free == 8


def test_pods_that_may_not_be_listed_are_not_zero_pods() -> None:
    unseen = Unseen(what="pods", why="you have no right to it", right="list pods in all namespaces")
    (row,) = free_gpus([node()], unseen)
    assert row.free is unseen


def h100(name: str, free: int, **spec: Any) -> NodeGpus:
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    made = node(name, **spec)
    made["metadata"]["labels"] |= labels
    (row,) = free_gpus([made], [pod(container(8 - free), node=name)] if free < 8 else [])
    return row


def test_a_worker_goes_where_enough_gpus_are_free() -> None:
    entry = nearest("meta-llama/Llama-3.3-70B-Instruct")
    assert entry is not None
    model = of_entry(entry, origin="test")
    rows = [h100("full", 0), h100("two", 2), h100("four", 4), h100("also-four", 4), h100("away", 8, unschedulable=True)]
    found = fit(model, WorkerSettings(engine="vllm", gpus=4, resource=GPU, context=8192), rows)
    assert [(row.nodes, row.usable) for row in found.nodes] == [
        (("four", "also-four"), True),
        (("full",), False),
        (("two",), False),
        (("away",), False),
    ]
    assert found.nodes[2].why == "2 of 8 GPUs are free, the worker needs 4"
    assert found.pipeline is None
    assert fit(model, WorkerSettings(engine="vllm", gpus=4, resource="amd.com/gpu"), rows).nodes == ()
    # Sixteen GPUs are a worker over two nodes, if the provider can span them.
    both = fit(model, WorkerSettings(engine="vllm", gpus=16, resource=GPU, context=8192), [h100("a", 8), h100("b", 8)])
    assert [row.why for row in both.nodes] == ["8 of 8 GPUs are free, the worker needs 16"]
    assert both.pipeline is not None
    assert both.pipeline.estimate.layout == Layout(tensor_parallel=8, stages=2)
