"""The DynamoGraphDeployment: one plan, written as v1alpha1 (a map of services) or v1beta1 (a list of components)."""

from __future__ import annotations

from typing import Any

from airunway.sdk import Context, ModelDeployment, Resource, Sizing, Translation, dig, labels, model_pod
from airunway_dynamo.picker import picker_config
from airunway_dynamo.plan import Part, is_split, parts_of, runtime_version, topology
from airunway_dynamo.runtimes import is_release
from airunway_dynamo.schemas import DYNAMO_NAMESPACE, POD_LABELS, RUNTIME_VERSION, SUB_TYPES, V1BETA1
from airunway_dynamo.settings import Settings

__all__ = ["COMPONENT_TYPE", "GRAPH_NAME", "RESERVED_LABELS", "desired"]

GRAPH_NAME = "nvidia.com/dynamo-graph-deployment-name"
"""Label of pods, and of all that the operator makes for a graph, with the graph's name."""
COMPONENT_TYPE = "nvidia.com/dynamo-component-type"
"""Label of pods with the type of their component."""
RESERVED_LABELS = ("nvidia.com/", "grove.io/", "leaderworkerset.sigs.k8s.io/")

_SIDECAR = "sidecar-frontend"
_MAIN = "main"
"""The container that the operator completes: ports, probes, variables."""


def desired(deployment: ModelDeployment, context: Context[Settings]) -> Translation:
    """One graph, and what of it cannot be changed without a new one."""
    parts = parts_of(deployment, context)
    metadata: Resource = {
        "name": deployment.metadata.name,
        "labels": {f"{labels.GROUP}/engine-type": context.engine},
    }
    if not context.settings.grove:
        metadata["annotations"] = {"nvidia.com/enable-grove": "false"}
    spec: Resource = {"backendFramework": context.engine}
    if context.upstream.api_version == V1BETA1:
        spec["components"] = [_component(deployment, context, part) for part in parts]
    else:
        spec["services"] = {part.name: _service(deployment, context, part) for part in parts}
    graph = {
        "apiVersion": context.upstream.api_version,
        "kind": "DynamoGraphDeployment",
        "metadata": metadata,
        "spec": spec,
    }
    return Translation(objects=(graph,), replace_on=topology(parts))


def _pod(deployment: ModelDeployment, context: Context[Settings], part: Part) -> Resource:
    own = {labels.COMPONENT: part.type}
    if not context.has(POD_LABELS):
        own |= {GRAPH_NAME: deployment.metadata.name, COMPONENT_TYPE: "worker" if part.serves else part.type}
    # The operator mounts shared memory by itself.
    return model_pod(
        deployment,
        context,
        part.launch,
        size=part.size,
        labels=own,
        reserved=RESERVED_LABELS,
        container=_MAIN,
        shared_memory=False,
    )


def _shared(deployment: ModelDeployment, part: Part) -> str:
    size = dig(deployment.spec.provider.overrides, "sharedMemory")
    return str(size) if size is not None and part.serves else ""


def _without_empty(fields: dict[str, Any]) -> Resource:
    return {key: value for key, value in fields.items() if value not in (None, "", [], {})}


def _common(part: Part) -> Resource:
    return {"multinode": {"nodeCount": part.nodes} if part.nodes > 1 else None}


# ------------------------------------------------------------------------------------------------------------- v1beta1


def _component(deployment: ModelDeployment, context: Context[Settings], part: Part) -> Resource:
    template = _pod(deployment, context, part)
    if part.sidecar is not None:
        main = template["spec"]["containers"][0]
        beside = {"name": _SIDECAR, "image": part.sidecar.image, "args": list(part.sidecar.args), "env": main["env"]}
        template["spec"]["containers"].append(beside)
    component = _without_empty(
        {
            "name": part.name,
            "type": part.type,
            "podTemplate": template,
            "sharedMemorySize": _shared(deployment, part),
            "frontendSidecar": _SIDECAR if part.sidecar is not None else "",
            "eppConfig": picker_config(split=is_split(deployment), listed=True) if part.type == "epp" else None,
            "runtimeVersionOverride": _version_override(deployment, context, part),
            **_common(part),
        }
    )
    return {**component, **({"scalingAdapter": {}} if part.replicas is None else {"replicas": part.replicas})}


def _version_override(deployment: ModelDeployment, context: Context[Settings], part: Part) -> str:
    """The release in words of its own, where the operator could not read it off the image."""
    version = runtime_version(deployment, context)
    if not context.has(RUNTIME_VERSION) or version is None or is_release(part.launch.image):
        return ""
    return ".".join(map(str, version))


# ------------------------------------------------------------------------------------------------------------ v1alpha1


def _service(deployment: ModelDeployment, context: Context[Settings], part: Part) -> Resource:
    template = _pod(deployment, context, part)
    pod, metadata = template["spec"], template["metadata"]
    (main,) = pod.pop("containers")
    kept = {key: value for key, value in main.items() if key not in ("name", "env", "resources")}
    # No pod template stands here whose labels the runtime could complete.
    whose = {
        labels.MANAGED_BY: labels.MANAGED_BY_VALUE,
        labels.MODEL_DEPLOYMENT: deployment.metadata.name,
        labels.PROVIDER: "dynamo",
    }
    shared = _shared(deployment, part)
    namespace = f"{deployment.metadata.namespace}-{deployment.metadata.name}"
    service = _without_empty(
        {
            "componentType": "worker" if part.serves else part.type,
            "subComponentType": part.type if part.serves and part.type != "worker" and context.has(SUB_TYPES) else "",
            "dynamoNamespace": namespace if context.has(DYNAMO_NAMESPACE) else "",
            "envs": main.get("env"),
            "resources": _resources(part.size),
            "sharedMemory": {"size": shared} if shared else None,
            "extraPodMetadata": {**metadata, "labels": {**metadata.get("labels", {}), **whose}},
            "extraPodSpec": {**pod, "mainContainer": kept},
            "eppConfig": picker_config(split=is_split(deployment), listed=False) if part.type == "epp" else None,
            "frontendSidecar": _sidecar(part, main.get("env")),
            **_common(part),
        }
    )
    scaled: Resource = {"scalingAdapter": {"enabled": True}} if part.replicas is None else {"replicas": part.replicas}
    return {**service, **scaled}


def _sidecar(part: Part, env: object) -> Resource | None:
    if part.sidecar is None:
        return None
    return _without_empty({"image": part.sidecar.image, "args": list(part.sidecar.args), "envs": env})


def _resources(size: Sizing) -> Resource:
    """Amounts as texts, GPUs under a name of their own."""
    gpus = {"gpu": str(size.gpus)} if size.gpus else {}
    if size.gpus and size.gpu_type != "nvidia.com/gpu":
        gpus["gpuType"] = size.gpu_type
    memory = {"memory": size.memory} if size.memory else {}
    cpu = {"cpu": size.cpu} if size.cpu else {}
    return _without_empty({"requests": {**gpus, **memory, **cpu}, "limits": {**gpus, **memory}})
