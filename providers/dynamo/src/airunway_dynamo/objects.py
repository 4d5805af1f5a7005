"""The DynamoGraphDeployment: one plan, written as v1alpha1 (a map of services) or v1beta1 (a list of components)."""

from __future__ import annotations

from typing import Any

from airunway.sdk import DEFAULT_GPU_TYPE, Context, ModelDeployment, Resource, Sizing, Translation, labels, model_pod
from airunway_dynamo.plan import Part, is_split, override, parts_of, runtime_version, topology
from airunway_dynamo.runtimes import is_release
from airunway_dynamo.schemas import DYNAMO_NAMESPACE, RUNTIME_VERSION, SUB_TYPES, V1BETA1
from airunway_dynamo.settings import Settings

__all__ = ["COMPONENT_TYPE", "GRAPH_NAME", "RESERVED_LABELS", "desired"]

GRAPH_NAME = "nvidia.com/dynamo-graph-deployment-name"
"""Label of pods, and of all that the operator makes for a graph, with the graph's name."""
COMPONENT_TYPE, _SUB_TYPE = "nvidia.com/dynamo-component-type", "nvidia.com/dynamo-sub-component-type"
"""Labels of pods with the type of their component."""
RESERVED_LABELS = ("nvidia.com/", "grove.io/", "leaderworkerset.sigs.k8s.io/")

_SIDECAR = "sidecar-frontend"


def desired(deployment: ModelDeployment, context: Context[Settings]) -> Translation:
    """One graph, and what of it cannot be changed without a new one."""
    parts = parts_of(deployment, context)
    annotations = {} if context.settings.grove else {"nvidia.com/enable-grove": "false"}
    components: Resource = (
        {"components": [_component(deployment, context, part) for part in parts]}
        if context.upstream.api_version == V1BETA1
        else {"services": {part.name: _service(deployment, context, part) for part in parts}}
    )
    graph = {
        "apiVersion": context.upstream.api_version,
        "kind": "DynamoGraphDeployment",
        "metadata": _filled(
            name=deployment.metadata.name,
            labels={f"{labels.GROUP}/engine-type": context.engine},
            annotations=annotations,
        ),
        "spec": {"backendFramework": context.engine, **components},
    }
    return Translation(objects=(graph,), replace_on=topology(parts))


def _filled(**fields: Any) -> Resource:
    return {key: value for key, value in fields.items() if value not in (None, "", [], {})}


def _pod(deployment: ModelDeployment, context: Context[Settings], part: Part, **more: str) -> Resource:
    """A pod with one container called ``main``, which the operator completes: ports, probes, shared memory."""
    return model_pod(
        deployment,
        context,
        part.launch,
        size=part.size,
        labels={labels.COMPONENT: part.type, **more},
        reserved=RESERVED_LABELS,
        container="main",
        shared_memory=False,
    )


def _component(deployment: ModelDeployment, context: Context[Settings], part: Part) -> Resource:
    template = _pod(deployment, context, part)
    if part.sidecar is not None:
        env = template["spec"]["containers"][0].get("env")
        beside = _filled(name=_SIDECAR, image=part.sidecar.image, args=list(part.sidecar.args), env=env)
        template["spec"]["containers"].append(beside)
    component = _filled(
        name=part.name,
        type=part.type,
        podTemplate=template,
        sharedMemorySize=override(deployment, "sharedMemory") if part.serves else None,
        frontendSidecar=_SIDECAR if part.sidecar is not None else None,
        runtimeVersionOverride=_version_override(deployment, context, part),
    )
    return {**component, **_shape(deployment, part, listed=True)}


def _shape(deployment: ModelDeployment, part: Part, *, listed: bool) -> Resource:
    """What both versions call the same, but for the mark that somebody else scales a component."""
    scaled: Resource = {"scalingAdapter": {} if listed else {"enabled": True}}
    return {
        **_filled(
            multinode={"nodeCount": part.nodes} if part.nodes > 1 else None,
            eppConfig=_picker_config(split=is_split(deployment), listed=listed) if part.type == "epp" else None,
        ),
        **(scaled if part.replicas is None else {"replicas": part.replicas}),
    }


def _version_override(deployment: ModelDeployment, context: Context[Settings], part: Part) -> str:
    """The release in words of its own, where the operator could not read it off the image."""
    version = runtime_version(deployment, context)
    if not context.has(RUNTIME_VERSION) or version is None or is_release(part.launch.image):
        return ""
    return ".".join(map(str, version))


def _service(deployment: ModelDeployment, context: Context[Settings], part: Part) -> Resource:
    name, type_ = deployment.metadata.name, "worker" if part.serves else part.type
    own = {} if context.has(SUB_TYPES) else {GRAPH_NAME: name, COMPONENT_TYPE: type_}
    template = _pod(deployment, context, part, **own)
    (main,) = template["spec"].pop("containers")
    # No pod template stands here whose labels the runtime could complete.
    metadata = template["metadata"]
    metadata["labels"] |= {
        labels.MANAGED_BY: labels.MANAGED_BY_VALUE,
        labels.MODEL_DEPLOYMENT: name,
        labels.PROVIDER: "dynamo",
    }
    shared = override(deployment, "sharedMemory") if part.serves else None
    env, sidecar = main.get("env"), part.sidecar
    service = _filled(
        componentType=type_,
        subComponentType=part.type if part.type != type_ and context.has(SUB_TYPES) else None,
        dynamoNamespace=f"{deployment.metadata.namespace}-{name}" if context.has(DYNAMO_NAMESPACE) else None,
        envs=env,
        resources=_resources(part.size),
        sharedMemory={"size": str(shared)} if shared else None,
        extraPodMetadata=metadata,
        extraPodSpec={
            **template["spec"],
            "mainContainer": {key: main[key] for key in main if key not in ("name", "env", "resources")},
        },
        frontendSidecar=_filled(image=sidecar.image, args=list(sidecar.args), envs=env) if sidecar else None,
    )
    return {**service, **_shape(deployment, part, listed=False)}


def _resources(size: Sizing) -> Resource:
    """Amounts as texts, GPUs under a name of their own."""
    other = size.gpu_type if size.gpu_type != DEFAULT_GPU_TYPE else ""
    gpus = _filled(gpu=str(size.gpus), gpuType=other) if size.gpus else {}
    limits = {**gpus, **_filled(memory=size.memory)}
    return _filled(requests={**limits, **_filled(cpu=size.cpu)}, limits=limits)


def _picker_config(*, split: bool, listed: bool) -> Resource:
    """A profile for the worker that answers, and where prefill is `split` off one for that before it.

    A graph whose components are `listed` (v1beta1) has the role of a worker in its type.
    """
    plugins: list[Resource] = [{"type": "disagg-profile-handler"}, {"name": "picker", "type": "max-score-picker"}]
    profiles = []
    for role in ("prefill", "decode") if split else ("decode",):
        workers = {
            "label": COMPONENT_TYPE if listed else _SUB_TYPE,
            "validValues": [role if split or not listed else "worker"],
            "allowsNoLabel": not split and not listed,
        }
        plugins += [
            {"name": f"{role}-filter", "type": "label-filter", "parameters": workers},
            {"name": f"dyn-{role}", "type": f"dyn-{role}-scorer"},
        ]
        used = (f"{role}-filter", f"dyn-{role}", "picker")
        profiles.append({"name": role, "plugins": [{"pluginRef": name, "weight": 1} for name in used]})
    return {"config": {"plugins": plugins, "schedulingProfiles": profiles}}
