"""The DynamoGraphDeployment: what a deployment runs as, and how either version of the API writes that down.

A component is a part: a Frontend (or, behind a gateway's pool, a picker) and the workers. Names are short, since the
operator limits the length of graph and component together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from airunway.sdk import (
    DEFAULT_GPU_TYPE,
    FLAGS_BY_RELEASE,
    HARDENED,
    NIXL_HOST,
    Context,
    Launch,
    ModelDeployment,
    Resource,
    Sizing,
    Translation,
    Version,
    dig,
    filled,
    given_flags,
    is_disaggregated,
    labels,
    launch_by,
    literal,
    model_pod,
    newest,
    nodes_for,
    overridden,
    release_in,
    replicas_of,
    sizing,
    version_in,
)
from airunway_dynamo.manifest import COMPONENT_TYPE, GRAPH_NAME, RESERVED_LABELS, WORKERS, Feature
from airunway_dynamo.runtimes import EVENTS, IMAGES, ROLES, RUNTIMES, is_release
from airunway_dynamo.settings import Settings

__all__ = ["FRONTEND", "PORT", "Part", "desired", "image_of", "parts_of", "routed_by_pool", "runtime_version"]

_NEWEST = "1.3.1"
"""The release of the images that goes with operators that `IMAGES` does not name: 1.2 and newer."""
_OLD_NAMES = (1, 5, 9999)
"""The newest release of images by whose flags the first generations write; what they wrote does not change."""
FRONTEND, PICKER = "Frontend", "Epp"
PORT = 8000
"""Where a Frontend listens, and its Service too."""

_GROUP = 1000
"""That of the user of Dynamo's images, which volumes are given to. The operator says so itself, but not in a pod that
has a security context of its own."""

_SUB_TYPE = "nvidia.com/dynamo-sub-component-type"

_SIDECAR, _SIDECAR_ARGS = "sidecar-frontend", ("-m", "dynamo.frontend", "--router-mode", "direct")
"""A frontend beside each worker that a gateway's pool picks."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One component. `replicas` None: somebody else scales it.

    `size` is that of one pod, `nodes` are those of one replica, `gpus` those of all its pods, and `path` is the field
    that asks for them.
    """

    name: str
    type: str
    replicas: int | None
    size: Sizing
    launch: Launch
    nodes: int = 1
    gpus: int = 0
    path: str = ""

    @property
    def serves(self) -> bool:
        return self.type in WORKERS


def parts_of(deployment: ModelDeployment, context: Context[Settings]) -> tuple[Part, ...]:
    """The components, the way in first."""
    roles = ("prefill", "decode") if is_disaggregated(deployment) else ("",)
    return (_entry(deployment, context), *(_worker(deployment, context, role) for role in roles))


def routed_by_pool(context: Context[Settings]) -> bool:
    """Whether a gateway picks the worker, by an InferencePool, so that there is no Frontend."""
    return context.gateway is not None and context.gateway.uses_pool and context.has(Feature.GRAPH_METADATA)


def image_of(deployment: ModelDeployment, context: Context[Settings]) -> str:
    """The runtime image: the deployment's, else Dynamo's own for the engine."""
    own = deployment.spec.engine.image or deployment.spec.image
    return own or _published(context, RUNTIMES[context.engine].image)


def _published(context: Context[Settings], name: str) -> str:
    release = context.settings.runtime_version or IMAGES.get(context.upstream.transformer.since, _NEWEST)
    return f"{context.settings.registry}/{name}:{release}"


def runtime_version(deployment: ModelDeployment, context: Context[Settings]) -> Version | None:
    """The release of the runtime: as the deployment says, else as the image's tag does; None where nobody says."""
    said = overridden(deployment, "runtimeVersion")
    return version_in(str(said or "")) or release_in(image_of(deployment, context))


def _entry(deployment: ModelDeployment, context: Context[Settings]) -> Part:
    """The way in: a Frontend, or a picker."""
    wish, size = overridden(deployment, "frontend"), {"cpu": "2", "memory": "4Gi"}
    cpu, memory = (str(dig(wish, "resources", name, default=usual)) for name, usual in size.items())
    mode = str(overridden(deployment, "routerMode", default="round-robin"))
    env, pooled, split = {}, routed_by_pool(context), is_disaggregated(deployment)
    if pooled:
        env = {"DYN_DECODE_FALLBACK": str(not split).lower(), "DYN_ENFORCE_DISAGG": str(split).lower()}
    elif mode != "none":
        env = {"DYN_ROUTER_MODE": mode}
    replicas = dig(wish, "replicas")
    return Part(
        name=PICKER if pooled else FRONTEND,
        type="epp" if pooled else "frontend",
        replicas=replicas if isinstance(replicas, int) and not pooled else 1,
        size=Sizing(gpu_type="", gpus=0, cpu=cpu, memory=memory),
        launch=Launch(
            engine=context.engine,
            image=_published(context, "dynamo-frontend") if pooled else image_of(deployment, context),
            env=tuple({"name": name, "value": value} for name, value in env.items()),
        ),
    )


def _worker(deployment: ModelDeployment, context: Context[Settings], role: str) -> Part:
    """The workers of a role; those that do both have none."""
    engine, runtime = context.engine, RUNTIMES[context.engine]
    version = runtime_version(deployment, context) or (9999, 0, 0)
    flags = [*newest(ROLES[engine], version).get(role, ())]
    # The one that decodes caches nothing that a later request could be sent to.
    if overridden(deployment, "routerMode") == "kv" and role != "decode":
        flags += newest(EVENTS[engine], version if context.has(FLAGS_BY_RELEASE) else min(version, _OLD_NAMES))
    given = given_flags(deployment)
    words = [word for flag in flags if flag[0].lstrip("-") not in given for word in flag]
    whole = sizing(deployment, role)
    nodes = nodes_for(whole.gpus, context.settings.gpus_per_node)
    launch = launch_by(
        deployment,
        engine,
        command=("python3", "-m", runtime.module),
        words=(runtime.model, literal(deployment.spec.model.id or ""), *words),
        image=image_of(deployment, context),
        dialect=runtime.newer if context.has(FLAGS_BY_RELEASE) and version >= (1, 3, 0) else runtime.dialect,
        gpus=whole.gpus // nodes if runtime.staged else whole.gpus,
        stages=nodes if runtime.staged else 1,
        env=(NIXL_HOST,) if engine == "vllm" and role else (),
    )
    adapted = overridden(deployment, "scalingAdapter") is True
    return Part(
        name=role or WORKERS[0],
        type=role or WORKERS[0],
        replicas=None if adapted else replicas_of(deployment, role),
        size=whole.divided(nodes) if nodes > 1 else whole,
        nodes=nodes,
        gpus=whole.gpus,
        path=f"spec.scaling.{role}.gpu" if role else "spec.resources.gpu",
        launch=replace(launch, args=tuple(_apart(launch.args))),
    )


def _apart(args: tuple[str, ...]) -> Iterator[str]:
    """Flag and value as two words: joined, the operator does not see that a worker needs more GPUs than a node has."""
    for word in args:
        joined = word.startswith(("--tensor-parallel-size=", "--pipeline-parallel-size="))
        yield from word.split("=", 1) if joined else (word,)


def desired(deployment: ModelDeployment, context: Context[Settings]) -> Translation:
    """One graph, and what of it the operator lets nobody change while it lives."""
    parts = parts_of(deployment, context)
    listed = context.upstream.api_version.endswith("/v1beta1")
    written = {part.name: _component(deployment, context, part, listed=listed) for part in parts}
    components: Resource = {"components": [*written.values()]} if listed else {"services": written}
    graph = {
        "apiVersion": context.upstream.api_version,
        "kind": "DynamoGraphDeployment",
        "metadata": filled(
            name=deployment.metadata.name,
            labels={f"{labels.GROUP}/engine-type": context.engine},
            annotations={} if context.settings.grove else {"nvidia.com/enable-grove": "false"},
        ),
        "spec": {"backendFramework": context.engine, **components},
    }
    topology = {
        # Who counts the replicas is part of it: an adapter's the operator lets nobody else change, nor take over.
        "components": sorted(part.name + (" of an adapter" if part.replicas is None else "") for part in parts),
        "components on several nodes": sorted(part.name for part in parts if part.nodes > 1),
    }
    return Translation(objects=(graph,), replace_on=topology)


def _component(deployment: ModelDeployment, context: Context[Settings], part: Part, *, listed: bool) -> Resource:
    """A part as one of the `listed` components of v1beta1, or as a service of v1alpha1."""
    name, type_ = deployment.metadata.name, "worker" if part.serves else part.type
    own = {} if context.has(Feature.SUB_TYPES) else {GRAPH_NAME: name, COMPONENT_TYPE: type_}
    # One container called "main", which the operator completes: ports, probes, shared memory.
    template = model_pod(
        deployment,
        context,
        part.launch,
        size=part.size,
        labels={labels.COMPONENT: part.type, **own},
        reserved=RESERVED_LABELS,
        container="main",
        shared_memory=False,
        # To reach the others TensorRT-LLM's nodes run an SSH server, which as root needs privileges.
        hardened=context.has(HARDENED) and not (context.engine == "trtllm" and part.nodes > 1),
        calls_api=True,
        # The operator's own account has the rights that a picker needs.
        without=("serviceAccountName",) if part.type == "epp" else (),
    )
    if "securityContext" in template["spec"]:
        template["spec"]["securityContext"].setdefault("fsGroup", _GROUP)
    configured = part.type == "epp" and (release_in(part.launch.image) or ()) < (1, 5)  # newer ones must not be
    main = template["spec"]["containers"][0]
    env, shared = main.get("env"), overridden(deployment, "sharedMemory") if part.serves else None
    sidecar = {"image": part.launch.image, "args": [*_SIDECAR_ARGS]} if part.serves and routed_by_pool(context) else {}
    alike = filled(
        multinode={"nodeCount": part.nodes} if part.nodes > 1 else None,
        eppConfig=_picker_config(split=is_disaggregated(deployment), listed=listed) if configured else None,
        replicas=part.replicas,
    )
    if part.replicas is None:
        alike["scalingAdapter"] = {} if listed else {"enabled": True}
    if listed:
        if sidecar:
            beside = filled(name=_SIDECAR, **sidecar, env=env, securityContext=main.get("securityContext"))
            template["spec"]["containers"].append(beside)
        # In words of its own where the operator could not read it off the image.
        unread = context.has(Feature.RUNTIME_VERSION) and not is_release(part.launch.image)
        version = runtime_version(deployment, context) if unread else None
        return alike | filled(
            name=part.name,
            type=part.type,
            podTemplate=template,
            sharedMemorySize=shared,
            frontendSidecar=_SIDECAR if sidecar else None,
            runtimeVersionOverride=".".join(map(str, version or ())),
        )
    # No pod template stands here whose labels the runtime could complete.
    template["metadata"]["labels"] |= labels.whose(name, provider="dynamo")
    rest = {key: value for key, value in main.items() if key not in ("name", "env", "resources")}
    pod = {key: value for key, value in template["spec"].items() if key != "containers"}
    return alike | filled(
        componentType=type_,
        subComponentType=part.type if part.type != type_ and context.has(Feature.SUB_TYPES) else None,
        dynamoNamespace=f"{deployment.metadata.namespace}-{name}" if context.has(Feature.DYNAMO_NAMESPACE) else None,
        envs=env,
        resources=_resources(part.size),
        sharedMemory={"size": str(shared)} if shared else None,
        extraPodMetadata=template["metadata"],
        extraPodSpec={**pod, "mainContainer": rest},
        frontendSidecar=filled(**sidecar, envs=env) if sidecar else None,
    )


def _resources(size: Sizing) -> Resource:
    """Amounts as texts, GPUs under a name of their own."""
    other = size.gpu_type if size.gpu_type != DEFAULT_GPU_TYPE else ""
    gpus = filled(gpu=str(size.gpus), gpuType=other) if size.gpus else {}
    limits = {**gpus, **filled(memory=size.memory)}
    return filled(requests={**limits, **filled(cpu=size.cpu)}, limits=limits)


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
