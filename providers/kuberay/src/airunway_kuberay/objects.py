"""Builds the RayService: head, workers, the Serve application, and the NetworkPolicy."""

from __future__ import annotations

from dataclasses import replace

from airunway.sdk import (
    HARDENED,
    SERVING_PORT,
    Context,
    Interruption,
    Launch,
    ModelDeployment,
    Resource,
    Sizing,
    Translation,
    cache_mounts,
    container_security,
    dig,
    digest,
    filled,
    helper_size,
    labels,
    model_pod,
    overridden,
    workloads,
)
from airunway_kuberay.manifest import COUNTS_APART, HEAD_VOLUMES, reserved_labels
from airunway_kuberay.scaling import SCALED_FROM, scaled_from
from airunway_kuberay.serve import (
    engine_change,
    engine_settings,
    group_sizes,
    logical_cpus,
    ray_container,
    ray_version,
    serve_config,
)
from airunway_kuberay.settings import Settings
from airunway_kuberay.shield import Shield, network_policy, shield_of

_ENGINE = f"{labels.GROUP}/engine-settings"
_MOST = 32
_PORTS = {"gcs": 6379, "dashboard": 8265, "client": 10001, "serve": SERVING_PORT}
_START = {"num-cpus": "0", "num-gpus": "0"}
"""Ray start parameters of the head; without CPUs and GPUs, no model runs on it."""


def desired_objects(deployment: ModelDeployment, context: Context[Settings]) -> Translation:
    """One RayService, a NetworkPolicy if it protects the cluster, and ResourceClaimTemplates for GPUs of a class.

    KubeRay creates all other objects.
    """
    settings, container = context.settings, ray_container(deployment, context)
    version = ray_version(deployment, container.image)
    shield = shield_of(context, version)
    cluster: Resource = {
        **({"rayVersion": version} if version else {}),
        **({"authOptions": {"mode": "token"}} if shield is Shield.TOKEN else {}),
        # A changed number of replicas reaches an existing cluster only through the autoscaler (recorded, fact 16).
        "enableInTreeAutoscaling": True,
        # KubeRay adds the autoscaler as a container of the head's pod.
        **({"autoscalerOptions": {"securityContext": container_security()}} if context.has(HARDENED) else {}),
        "headGroupSpec": _head(deployment, context, container),
        "workerGroupSpecs": [
            _group(deployment, context, container, group, size, replicas)
            for group, (size, replicas) in group_sizes(deployment).items()
        ],
    }
    config = serve_config(deployment, context, version=version)
    annotations = {
        "ray.io/initializing-timeout": settings.initializing_timeout,
        SCALED_FROM: scaled_from(context.live, config, now=context.now),
    }
    metadata: Resource = {"name": deployment.metadata.name, **filled(annotations=filled(**annotations))}
    spec: Resource = {"serveConfigV2": config, "rayClusterConfig": cluster}
    if is_stopped(deployment):
        spec["suspend"] = True
    service = {"apiVersion": context.upstream.api_version, "kind": "RayService", "metadata": metadata, "spec": spec}
    pods = [cluster["headGroupSpec"], *(group["template"] for group in cluster["workerGroupSpecs"])]
    replace_on = {"pods": [version, *pods]} if settings.upgrade == "Recreate" else {}
    policy = network_policy(deployment, context, shield)
    return Translation(
        objects=(
            service,
            *([policy] if policy else []),
            *workloads.claim_templates(deployment, (size for size, _ in group_sizes(deployment).values())),
        ),
        replace_on=replace_on,
        interrupts=_interrupts(deployment, context),
    )


def _interrupts(deployment: ModelDeployment, context: Context[Settings]) -> dict[str, Interruption]:
    """Values whose change makes the model unavailable for a while, although the RayService stays."""
    if not context.has(COUNTS_APART) or engine_change(deployment, context) == "NewCluster" or is_stopped(deployment):
        return {}
    alone = any(replicas <= 1 for _, replicas in group_sizes(deployment).values())
    text = (
        "no model is served until the new one has loaded: Ray stops the only replica first. "
        "provider.overrides.engineChange: NewCluster takes such a change through a second Ray cluster"
    )
    return {"engine": Interruption(value=engine_settings(deployment, context), message=text if alone else "")}


def is_stopped(deployment: ModelDeployment) -> bool:
    """Whether nothing should run: zero replicas, and no autoscaler that would start the model at a request."""
    spec = deployment.spec
    scales = spec.scaling.autoscaling is not None or overridden(deployment, "autoscaling", "maxReplicas")
    return spec.serving.mode == "aggregated" and spec.scaling.replicas == 0 and not scales


def _head(deployment: ModelDeployment, context: Context[Settings], container: Launch) -> Resource:
    given = overridden(deployment, "head")
    cpu = dig(given, "resources", "cpu") or context.settings.head_cpu
    memory = dig(given, "resources", "memory") or context.settings.head_memory
    size = helper_size(deployment, cpu=str(cpu), memory=str(memory))
    # Ray's autoscaler runs in the head's pod and updates the RayCluster with the ServiceAccount's token.
    # The head loads no weights, and a ReadWriteOnce claim of the user's would bind it to one node.
    matched = context.has(HEAD_VOLUMES)
    template = model_pod(
        deployment,
        context,
        container,
        size=size,
        reserved=reserved_labels(context),
        container="ray-head",
        calls_api=True,
        own_volumes=not matched,
        without=() if matched else ("volumes", "volumeMounts"),
    )
    main = template["spec"]["containers"][0]
    volumes, mounts = cache_mounts(context)
    if volumes and not matched:
        # Ray reads the model's configuration where it builds the application: on the head.
        template["spec"]["volumes"], main["volumeMounts"] = volumes, mounts
    if context.has(COUNTS_APART) and engine_change(deployment, context) == "NewCluster":
        # KubeRay starts a second cluster when the pod templates change.
        annotations = template["metadata"].setdefault("annotations", {})
        annotations[_ENGINE] = digest(engine_settings(deployment, context), length=12)
    main["ports"] = [{"name": name, "containerPort": port} for name, port in _PORTS.items()]
    start = {"dashboard-host": context.settings.everywhere, **_START, **(dig(given, "rayStartParams") or {})}
    return {"rayStartParams": start, "template": template}


def _group(
    deployment: ModelDeployment, context: Context[Settings], container: Launch, group: str, size: Sizing, replicas: int
) -> Resource:
    """A worker group. The counts apply to a new cluster; in a running one, Ray's autoscaler sets them by demand."""
    size = replace(size, memory=size.memory or context.settings.worker_memory)
    return {
        "groupName": group,
        "replicas": max(1, replicas),
        "minReplicas": 0,
        "maxReplicas": _MOST,
        # Ray's autoscaler exits without num-cpus, and recognises only GPU resource names that end with "gpu".
        "rayStartParams": {"num-cpus": str(logical_cpus(size)), "num-gpus": str(size.gpus)},
        # If it is missing, KubeRay writes it and thereby takes over the whole list (recorded, facts 1 and 23).
        "scaleStrategy": {},
        "template": model_pod(
            deployment, context, container, size=size, reserved=reserved_labels(context), container="ray-worker"
        ),
    }
