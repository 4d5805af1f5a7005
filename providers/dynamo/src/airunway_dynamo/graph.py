"""Translates a deployment to a DynamoGraphDeployment, in either version of its API.

The components are a Frontend (or a picker, behind a gateway's InferencePool) and the workers. Component names are
short, because the operator limits the length of graph and component name together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from airunway.sdk import (
    DEFAULT_GPU_TYPE,
    FLAGS_BY_RELEASE,
    HARDENED,
    IPV6,
    NIXL_HOST,
    Context,
    Launch,
    ModelDeployment,
    Resource,
    Sizing,
    Translation,
    Version,
    cache_mounts,
    dig,
    environment,
    filled,
    given_flags,
    helper_resources,
    helper_size,
    is_disaggregated,
    labels,
    launch_by,
    literal,
    model_pod,
    newest,
    nodes_of,
    overridden,
    release_in,
    replicas_of,
    sizing,
    token_secret,
    version_in,
    weights_of,
)
from airunway.sdk.conditions import mapping, records, text
from airunway_dynamo.manifest import COMPONENT_TYPE, GRAPH_NAME, WORKERS, Feature, reserved_labels
from airunway_dynamo.parsers import instead_of
from airunway_dynamo.runtimes import EVENTS, IMAGES, NEWEST, ROLES, RUNTIMES, is_release
from airunway_dynamo.settings import Settings

__all__ = [
    "FRONTEND",
    "Part",
    "desired",
    "has_picker",
    "image_of",
    "parts_of",
    "routed_by_pool",
    "runtime_version",
]

_NEWEST = "1.3.1"
"""Image release for operators that `IMAGES` does not list: 1.2 and newer."""
_OLD_NAMES = (1, 5, 9999)
"""Newest image release whose flag names the first generations of transformers use; their output does not change."""
FRONTEND, PICKER = "Frontend", "Epp"

_GROUP = 1000
"""Group of the user in Dynamo's images, which owns volumes. The operator sets it too, except in pods with their own
security context."""

_SUB_TYPE = "nvidia.com/dynamo-sub-component-type"

_SIDECAR, _SIDECAR_ARGS = "sidecar-frontend", ("-m", "dynamo.frontend", "--router-mode", "direct")
"""A frontend beside each worker that a gateway's pool selects."""
_SCRATCH = "/tmp"
"""Where a pod with a read-only root can write."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One component of the graph."""

    name: str
    type: str
    replicas: int | None
    """None: an adapter scales it."""
    size: Sizing
    """Resources of one pod."""
    launch: Launch
    nodes: int = 1
    """Number of nodes of one replica."""
    gpus: int = 0
    """GPUs of one replica, all of its pods together."""
    path: str = ""
    """The field that requests the GPUs."""

    @property
    def serves(self) -> bool:
        return self.type in WORKERS

    @property
    def pods(self) -> int:
        """The number of pods of all replicas, at least of one."""
        return max(1, self.replicas or 1) * self.nodes


def parts_of(deployment: ModelDeployment, context: Context[Settings]) -> tuple[Part, ...]:
    """The components; the first one receives the requests."""
    roles = ("prefill", "decode") if is_disaggregated(deployment) else ("",)
    return (_entry(deployment, context), *(_worker(deployment, context, role) for role in roles))


def routed_by_pool(context: Context[Settings]) -> bool:
    """Whether a gateway selects the worker through an InferencePool, so that there is no Frontend.

    Decided once, before the graph is made: other components are another graph. A live graph keeps its own, also where
    a gateway comes later; one that was made for a pool gets a Frontend with the first change of the spec after routing
    was switched off.
    """
    if not context.has(Feature.GRAPH_METADATA):
        return False
    wanted = context.gateway is not None and context.gateway.uses_pool
    if not context.live:
        return wanted
    return has_picker(context.live) and (wanted or not context.spec_changed)


def has_picker(graph: Resource) -> bool:
    """Whether a graph, in either version of its API, was made for a gateway's pool. Accepts any JSON."""
    named = {text(component, "name") for component in records(graph, "spec", "components")}
    return PICKER in named or PICKER in mapping(graph, "spec", "services")


def image_of(deployment: ModelDeployment, context: Context[Settings]) -> str:
    """The runtime image: the deployment's, else Dynamo's image for the engine."""
    own = deployment.spec.engine.image or deployment.spec.image
    return own or _published(context, RUNTIMES[context.engine].image)


def _published(context: Context[Settings], name: str) -> str:
    release = context.settings.runtime_version or IMAGES.get(context.upstream.transformer.since, _NEWEST)
    return f"{context.settings.registry}/{name}:{release}"


def runtime_version(deployment: ModelDeployment, context: Context[Settings]) -> Version | None:
    """The release of the runtime: from the deployment, else from the image's tag; None if neither has one."""
    said = overridden(deployment, "runtimeVersion")
    return version_in(str(said or "")) or release_in(image_of(deployment, context))


def _entry(deployment: ModelDeployment, context: Context[Settings]) -> Part:
    """The component that receives the requests: a Frontend or a picker."""
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
        size=helper_size(deployment, cpu=cpu, memory=memory),
        launch=Launch(
            engine=context.engine,
            image=_published(context, "dynamo-frontend") if pooled else image_of(deployment, context),
            env=tuple({"name": name, "value": value} for name, value in env.items()) + _addresses(context),
        ),
    )


def _addresses(context: Context[Settings]) -> tuple[Resource, ...]:
    """Variables by which frontends and workers listen on IPv6; their defaults are 0.0.0.0."""
    if context.settings.ip_family != IPV6:
        return ()
    return tuple({"name": name, "value": context.settings.everywhere} for name in ("DYN_HTTP_HOST", "DYN_SYSTEM_HOST"))


def _worker(deployment: ModelDeployment, context: Context[Settings], role: str) -> Part:
    """The workers of a role; the role is empty in aggregated mode."""
    engine, runtime = context.engine, RUNTIMES[context.engine]
    version = runtime_version(deployment, context) or NEWEST
    flags = [*newest(ROLES[engine], version).get(role, ())]
    # A decode worker caches nothing that later requests could reuse.
    if overridden(deployment, "routerMode") == "kv" and role != "decode":
        flags += newest(EVENTS[engine], version if context.has(FLAGS_BY_RELEASE) else min(version, _OLD_NAMES))
    if engine == "sglang" and role:
        flags.append(("--host", context.settings.everywhere))
    given = given_flags(deployment)
    words = [word for flag in flags if flag[0].lstrip("-") not in given for word in flag]
    whole = sizing(deployment, role)
    nodes = nodes_of(deployment, whole.gpus, context.settings.gpus_per_node)
    launch = launch_by(
        deployment,
        engine,
        command=("python3", "-m", runtime.module),
        words=(runtime.model, literal(weights_of(deployment, context.cache)), *words),
        image=image_of(deployment, context),
        dialect=runtime.newer if context.has(FLAGS_BY_RELEASE) and version >= (1, 3, 0) else runtime.dialect,
        gpus=whole.gpus // nodes if runtime.staged else whole.gpus,
        stages=nodes if runtime.staged else 1,
        env=((NIXL_HOST,) if engine == "vllm" and role else ()) + _addresses(context),
        instead=instead_of(deployment, engine, version),
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
    """Splits parallelism flags and their values into two words each.

    The operator recognises only this form when it checks whether a worker needs more GPUs than a node has.
    """
    for word in args:
        joined = word.startswith(("--tensor-parallel-size=", "--pipeline-parallel-size="))
        yield from word.split("=", 1) if joined else (word,)


def desired(deployment: ModelDeployment, context: Context[Settings]) -> Translation:
    """One graph, and the values that the operator does not allow to change while it exists."""
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
        # Includes who sets the replicas: the operator lets only the adapter change replicas that it manages.
        "components": sorted(part.name + (" of an adapter" if part.replicas is None else "") for part in parts),
        "components on several nodes": sorted(part.name for part in parts if part.nodes > 1),
    }
    return Translation(objects=(graph,), replace_on=topology, overrides_at=TOPOLOGY_AT if listed else {})


TOPOLOGY_AT = {"spec.topologyConstraint.topologyProfile": "spec.topologyConstraint.clusterTopologyName"}
"""Where v1beta1 has the override that v1alpha1 names otherwise."""


def _component(deployment: ModelDeployment, context: Context[Settings], part: Part, *, listed: bool) -> Resource:
    """A part as a component of v1beta1 (`listed`), or as a service of v1alpha1."""
    name, type_ = deployment.metadata.name, "worker" if part.serves else part.type
    own = {} if context.has(Feature.SUB_TYPES) else {GRAPH_NAME: name, COMPONENT_TYPE: type_}
    # The operator adds ports, probes and shared memory to the container "main".
    template = model_pod(
        deployment,
        context,
        part.launch,
        size=part.size,
        labels={labels.COMPONENT: part.type, **own},
        reserved=reserved_labels(context),
        container="main",
        shared_memory=False,
        # TensorRT-LLM's nodes connect through an SSH server, which runs as root and needs privileges.
        hardened=context.has(HARDENED) and not (context.engine == "trtllm" and part.nodes > 1),
        calls_api=True,
        # The operator's own account has the rights that a picker needs.
        without=("serviceAccountName",) if part.type == "epp" else (),
    )
    if "securityContext" in template["spec"]:
        template["spec"]["securityContext"].setdefault("fsGroup", _GROUP)
    configured = part.type == "epp" and (release_in(part.launch.image) or ()) < (1, 5)  # newer ones must not get one
    main = template["spec"]["containers"][0]
    env, sources, shared = main.get("env"), main.get("envFrom"), None
    if part.serves:
        shared = overridden(deployment, "sharedMemory")
    sidecar = {"image": part.launch.image, "args": [*_SIDECAR_ARGS]} if part.serves and routed_by_pool(context) else {}
    matched = context.has(Feature.SIDECAR_VOLUMES)
    if sidecar and matched:
        beside_env = environment(deployment, context, part.launch, own_volumes=False, token=False)
    else:
        beside_env = env
    alike = filled(
        multinode={"nodeCount": part.nodes} if part.nodes > 1 else None,
        eppConfig=_picker_config(split=is_disaggregated(deployment), listed=listed) if configured else None,
        replicas=part.replicas,
    )
    if part.replicas is None:
        alike["scalingAdapter"] = {} if listed else {"enabled": True}
    if listed:
        if sidecar:
            security, (_, mounts) = main.get("securityContext"), cache_mounts(context)
            if matched and deployment.spec.security_context.read_only_root_filesystem:
                mounts = [*mounts, *(mount for mount in main["volumeMounts"] if mount["mountPath"] == _SCRATCH)]
            beside = filled(
                name=_SIDECAR,
                **sidecar,
                env=beside_env,
                envFrom=sources,
                securityContext=security,
                volumeMounts=mounts,
            )
            beside |= filled(resources=helper_resources(deployment, {}))
            template["spec"]["containers"].append(beside)
        # Written explicitly if the operator cannot read it from the image's tag.
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
    # v1alpha1 has no pod template to which the runtime could add its labels.
    template["metadata"]["labels"] |= labels.whose(name, provider="dynamo")
    rest = {key: value for key, value in main.items() if key not in ("name", "env", "envFrom", "resources")}
    pod = {key: value for key, value in template["spec"].items() if key != "containers"}
    secret = token_secret(deployment, context)
    return alike | filled(
        componentType=type_,
        subComponentType=part.type if part.type != type_ and context.has(Feature.SUB_TYPES) else None,
        dynamoNamespace=f"{deployment.metadata.namespace}-{name}" if context.has(Feature.DYNAMO_NAMESPACE) else None,
        envs=env,
        envFromSecret=secret,
        resources=_resources(part.size),
        sharedMemory={"size": str(shared)} if shared else None,
        extraPodMetadata=template["metadata"],
        extraPodSpec={**pod, "mainContainer": rest},
        frontendSidecar=filled(**sidecar, envs=beside_env, envFromSecret=secret) if sidecar else None,
    )


def _resources(size: Sizing) -> Resource:
    """Quantities as strings, with GPUs under Dynamo's own keys."""
    other = size.gpu_type if size.gpu_type != DEFAULT_GPU_TYPE else ""
    gpus = filled(gpu=str(size.gpus), gpuType=other) if size.gpus else {}
    alike = {**gpus, **filled(memory=size.memory, custom=dict(size.extended))}
    return filled(requests={**alike, **filled(cpu=size.cpu)}, limits={**alike, **filled(cpu=size.cpu_limit)})


def _picker_config(*, split: bool, listed: bool) -> Resource:
    """A scheduling profile for decode workers, and one for prefill workers if the roles are `split`.

    In a `listed` graph (v1beta1), the worker's type contains its role.
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
