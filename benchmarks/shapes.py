"""What is deployed in the benchmarks: a provider, a spec, upstream objects, and what the upstream says of the first.

python -m benchmarks.shapes vllm FILE    # the upstream of that shape, with that kubeconfig
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from airunway.api import names
from airunway.kube import CONFIG_MAP, DEPLOYMENT, SERVICE, SERVICE_ACCOUNT, Client, Kind, Reflector, load_config
from airunway.resource import ObjectKey, Resource, labels_of

GRAPH = Kind(
    group="nvidia.com",
    version="v1beta1",
    kind="DynamoGraphDeployment",
    plural="dynamographdeployments",
    namespaced=True,
)
INFERENCE_POOL = Kind(
    group="inference.networking.k8s.io", version="v1", kind="InferencePool", plural="inferencepools", namespaced=True
)
RAY_SERVICE = Kind(group="ray.io", version="v1", kind="RayService", plural="rayservices", namespaced=True)
ROLE = Kind(group="rbac.authorization.k8s.io", version="v1", kind="Role", plural="roles", namespaced=True)
ROLE_BINDING = Kind(
    group="rbac.authorization.k8s.io", version="v1", kind="RoleBinding", plural="rolebindings", namespaced=True
)
WORKSPACE = Kind(group="kaito.sh", version="v1beta1", kind="Workspace", plural="workspaces", namespaced=True)

Status = Callable[[bool], Resource]

_TIME = "2026-11-21T00:00:00Z"


def workspace_status(finished: bool) -> Resource:
    reason = "workspaceSucceeded" if finished else "workspacePending"
    condition = _condition("WorkspaceSucceeded", finished, reason=reason, message=reason)
    return {"state": "Ready" if finished else "NotReady", "conditions": [condition]}


def deployment_status(finished: bool) -> Resource:
    """Of one replica, in the first generation."""
    ready = int(finished)
    counts = {"replicas": 1, "updatedReplicas": 1, "readyReplicas": ready, "availableReplicas": ready}
    reason = "MinimumReplicasAvailable" if finished else "MinimumReplicasUnavailable"
    condition = {**_condition("Available", finished, reason=reason), "lastUpdateTime": _TIME}
    return {"observedGeneration": 1, **counts, "conditions": [condition]}


def graph_status(finished: bool) -> Resource:
    """Of a frontend and two workers that are apart, in the first generation."""
    ready = int(finished)
    counts = {"replicas": 1, "updatedReplicas": 1, "readyReplicas": ready}
    reason = "all_resources_are_ready" if finished else "some_resources_are_not_ready"
    message = "All resources are ready" if finished else "Resources not ready"
    return {
        "state": "successful" if finished else "pending",
        "observedGeneration": 1,
        "components": {
            name: {"componentKind": "Deployment", "componentNames": [name.lower()], **counts}
            for name in ("Frontend", "prefill", "decode")
        },
        "conditions": [_condition("Ready", finished, reason=reason, message=message)],
    }


def service_status(finished: bool) -> Resource:
    """Of a RayService with one application, which has lost all of its workers where it is not finished."""
    reason = "NonZeroServeEndpoints" if finished else "ZeroServeEndpoints"
    message = "Number of serve endpoints is greater than 0" if finished else "No endpoints"
    return {
        "observedGeneration": 1,
        "serviceStatus": "Running" if finished else None,
        "numServeEndpoints": 2 if finished else None,
        "activeServiceStatus": {
            "rayClusterName": "load-abcde",
            "applicationStatuses": {"llm": {"status": "RUNNING"}},
            "rayClusterStatus": {"readyWorkerReplicas": int(finished)},
        },
        "conditions": [_condition("Ready", finished, reason=reason, message=message)],
    }


def _condition(type_: str, finished: bool, *, reason: str, message: str = "") -> Resource:
    word = "True" if finished else "False"
    return {"type": type_, "status": word, "reason": reason, "message": message, "lastTransitionTime": _TIME}


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Deployments of one kind: `status` is what the upstream writes into its `primary` object, finished or not;
    `dependents` are made before it, and are named as a deployment's specimen says. With `kinds_of` only the CRDs of
    that simulator are installed, and this module's stand-in answers.
    """

    provider: str
    spec: Resource = field(hash=False)
    primary: Kind
    dependents: tuple[Kind, ...] = ()
    status: Status
    kinds_of: str = ""

    def deployment(self, name: str, namespace: str) -> Resource:
        return {
            "apiVersion": names.API_VERSION,
            "kind": "ModelDeployment",
            "metadata": {"name": name, "namespace": namespace},
            "spec": self.spec,
        }


SERVED: Resource = {
    "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
    "engine": {"type": "vllm"},
    "resources": {"gpu": {"count": 1}},
}

SHAPES = {
    "one": Shape(  # a pod template: a Workspace
        provider="kaito",
        spec={
            "model": {"id": "google/gemma-3-1b-it-qat-q8_0-gguf/gemma-3-1b-it-q8_0.gguf"},
            "engine": {"type": "llamacpp"},
            "resources": {"memory": "16Gi", "cpu": "8"},
            "image": "ghcr.io/sozercan/llama-cpp-runner:latest",
        },
        primary=WORKSPACE,
        status=workspace_status,
    ),
    "two": Shape(  # a preset: a ConfigMap and a Workspace
        provider="kaito",
        spec={
            "model": {"id": "microsoft/Phi-4-mini-instruct"},
            "engine": {"type": "vllm"},
            "resources": {"gpu": {"count": 1}},
        },
        primary=WORKSPACE,
        dependents=(CONFIG_MAP,),
        status=workspace_status,
    ),
    "vllm": Shape(  # a Service and a Deployment
        provider="vllm",
        spec=SERVED,
        primary=DEPLOYMENT,
        dependents=(SERVICE,),
        status=deployment_status,
    ),
    "apart": Shape(  # prefill and decode: a graph with three components
        provider="dynamo",
        spec={
            "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
            "engine": {"type": "vllm"},
            "serving": {"mode": "disaggregated"},
            "scaling": {role: {"replicas": 1, "gpu": {"count": 1}, "memory": "16Gi"} for role in ("prefill", "decode")},
        },
        primary=GRAPH,
        status=graph_status,
    ),
    "ray": Shape(  # a RayService, of which KubeRay makes all else
        provider="kuberay",
        spec=SERVED | {"provider": {"name": "kuberay"}},
        primary=RAY_SERVICE,
        status=service_status,
        kinds_of="kuberay",
    ),
    "pool": Shape(  # a Deployment and its Service, an InferencePool, and the picker with its rights
        provider="llmd",
        spec=SERVED,
        primary=DEPLOYMENT,
        dependents=(SERVICE_ACCOUNT, ROLE, ROLE_BINDING, CONFIG_MAP, INFERENCE_POOL, SERVICE),
        status=deployment_status,
        kinds_of="llmd",
    ),
}


async def stand_in(shape: Shape, kubeconfig: Path) -> None:
    """An upstream that answers at once: says of each new primary object that it is ready, until it is cancelled.

    In place of a Deployment controller with its ReplicaSets, pods and nodes, whose own writes would be measured.
    """
    async with Client(load_config(kubeconfig=kubeconfig), user_agent="airunway/0 (simulated-upstream)") as client:
        new: asyncio.Queue[ObjectKey] = asyncio.Queue()
        objects = Reflector(client, shape.primary, label_selector=names.MODEL_DEPLOYMENT)

        def on_change(key: ObjectKey, old: Resource | None, found: Resource | None) -> None:
            if old is None and found is not None and names.MODEL_DEPLOYMENT in labels_of(found):
                new.put_nowait(key)

        objects.add_handler(on_change)

        async def answer() -> None:
            while True:
                body = {"status": shape.status(True)}
                await client.merge_patch(
                    shape.primary, await new.get(), body, subresource="status", manager="simulated"
                )

        async with asyncio.TaskGroup() as group:
            group.create_task(objects.run())
            for _ in range(8):
                group.create_task(answer())


if __name__ == "__main__":
    asyncio.run(stand_in(SHAPES[sys.argv[1]], Path(sys.argv[2])))
