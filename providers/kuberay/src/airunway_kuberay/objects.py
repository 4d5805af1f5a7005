"""The RayService: head, workers, and the application that they run."""

from __future__ import annotations

from dataclasses import replace

from airunway.sdk import Context, Launch, ModelDeployment, Resource, Sizing, Translation, dig, model_pod, overridden
from airunway_kuberay.serve import group_sizes, ray_container, ray_version, serve_config
from airunway_kuberay.settings import Settings

__all__ = ["PORT", "RESERVED", "desired_objects", "is_stopped"]

PORT = 8000
"""Of the Service ``<name>-serve-svc`` that KubeRay makes, taken from the container port called ``serve``."""

RESERVED = ("ray.io/",)
"""Label keys by which KubeRay knows its pods."""

_MOST = 32
_PORTS = {"gcs": 6379, "dashboard": 8265, "client": 10001, "serve": PORT}
_START = {"dashboard-host": "0.0.0.0", "num-cpus": "0", "num-gpus": "0"}
"""No model runs on the head."""
_CPUS = 8
"""Of a worker, as Ray counts them: a replica takes one, and two for each replica those parts that take requests."""


def desired_objects(deployment: ModelDeployment, context: Context[Settings]) -> Translation:
    """One RayService. KubeRay makes everything else, the Services too."""
    settings, container = context.settings, ray_container(deployment, context)
    version = ray_version(deployment, container.image)
    cluster: Resource = {
        **({"rayVersion": version} if version else {}),
        # A change of a number of replicas reaches an existing cluster in no other way (recorded, fact 16).
        "enableInTreeAutoscaling": True,
        "headGroupSpec": _head(deployment, context, container),
        "workerGroupSpecs": [
            _group(deployment, context, container, group, size, replicas)
            for group, (size, replicas) in group_sizes(deployment).items()
        ],
    }
    metadata: Resource = {"name": deployment.metadata.name}
    if settings.initializing_timeout:
        metadata["annotations"] = {"ray.io/initializing-timeout": settings.initializing_timeout}
    spec: Resource = {"serveConfigV2": serve_config(deployment), "rayClusterConfig": cluster}
    if is_stopped(deployment):
        spec["suspend"] = True
    service = {"apiVersion": context.upstream.api_version, "kind": "RayService", "metadata": metadata, "spec": spec}
    pods = [cluster["headGroupSpec"], *(group["template"] for group in cluster["workerGroupSpecs"])]
    replace_on = {"pods": [version, *pods]} if settings.upgrade == "Recreate" else {}
    return Translation(objects=(service,), replace_on=replace_on)


def is_stopped(deployment: ModelDeployment) -> bool:
    """Whether nothing is to run: zero replicas, and no autoscaler that would wake the model at a request."""
    spec = deployment.spec
    scales = overridden(deployment, "autoscaling", "maxReplicas")
    return spec.serving.mode == "aggregated" and spec.scaling.replicas == 0 and not scales


def _head(deployment: ModelDeployment, context: Context[Settings], container: Launch) -> Resource:
    given = overridden(deployment, "head")
    cpu = dig(given, "resources", "cpu") or context.settings.head_cpu
    memory = dig(given, "resources", "memory") or context.settings.head_memory
    size = Sizing(gpu_type="", gpus=0, cpu=str(cpu), memory=str(memory))
    template = _pod(deployment, context, container, size=size, name="ray-head")
    # The head loads no weights, and a claim for one node would keep it from all others.
    template["spec"].pop("volumes", None)
    main = template["spec"]["containers"][0]
    main.pop("volumeMounts", None)
    main["ports"] = [{"name": name, "containerPort": port} for name, port in _PORTS.items()]
    return {"rayStartParams": {**_START, **(dig(given, "rayStartParams") or {})}, "template": template}


def _group(
    deployment: ModelDeployment, context: Context[Settings], container: Launch, group: str, size: Sizing, replicas: int
) -> Resource:
    """A worker group. The numbers are those of a new cluster; in one that runs Ray's autoscaler follows the demand."""
    size = replace(size, memory=size.memory or context.settings.worker_memory)
    return {
        "groupName": group,
        "replicas": max(1, replicas),
        "minReplicas": 0,
        "maxReplicas": _MOST,
        # Ray's autoscaler ends at once where no CPUs are told, and knows GPUs only by names that end with "gpu".
        "rayStartParams": {"num-cpus": str(max(_CPUS, size.cores)), "num-gpus": str(size.gpus)},
        # Left out, KubeRay writes it, and with it takes over the whole list (recorded, facts 1 and 23).
        "scaleStrategy": {},
        "template": _pod(deployment, context, container, size=size, name="ray-worker"),
    }


def _pod(
    deployment: ModelDeployment, context: Context[Settings], container: Launch, *, size: Sizing, name: str
) -> Resource:
    template = model_pod(deployment, context, container, size=size, reserved=RESERVED)
    template["spec"]["containers"][0]["name"] = name
    return template
