"""What a deployment runs as: the components of a graph, whatever version of the API they are written in.

A component is a part: a Frontend (or, behind a gateway's pool, a picker) and the workers. Names are short, since the
operator limits the length of graph and component together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from airunway.sdk import (
    Context,
    Finding,
    Launch,
    ModelDeployment,
    Resource,
    Sizing,
    dig,
    engine_arguments,
    given_flags,
    literal,
    served_name_of,
    sizing,
)
from airunway_dynamo.runtimes import RUNTIMES, Version, role_flags, router_flags, version_in
from airunway_dynamo.schemas import GRAPH_METADATA, default_runtime
from airunway_dynamo.settings import Settings

__all__ = [
    "FRONTEND",
    "PORT",
    "WORKERS",
    "Part",
    "image_of",
    "is_split",
    "override",
    "parts_of",
    "routed_by_pool",
    "runtime_version",
    "topology",
]

FRONTEND, PICKER = "Frontend", "Epp"
WORKERS = ("worker", "prefill", "decode")
"""Types of components that run the model; names of ours too."""
PORT = 8000
"""Where a Frontend listens, and its Service too."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One component. `replicas` None: somebody else scales it. `size` is that of one pod, `nodes` are those of one
    replica, `gpus` those of all its pods. `sidecar` is a frontend beside the worker.
    """

    name: str
    type: str
    replicas: int | None
    size: Sizing
    launch: Launch
    nodes: int = 1
    gpus: int = 0
    sidecar: Launch | None = None

    @property
    def serves(self) -> bool:
        return self.type in WORKERS


def parts_of(deployment: ModelDeployment, context: Context[Settings]) -> tuple[Part, ...]:
    """The components, the way in first."""
    roles = WORKERS[1:] if is_split(deployment) else WORKERS[:1]
    return (_entry(deployment, context), *(_worker(deployment, context, role) for role in roles))


def topology(parts: tuple[Part, ...]) -> dict[str, object]:
    """What the operator lets nobody change on a live graph."""
    return {
        "components": sorted(part.name for part in parts),
        "components on several nodes": sorted(part.name for part in parts if part.nodes > 1),
    }


def is_split(deployment: ModelDeployment) -> bool:
    """Whether prefill and decode have workers of their own."""
    return deployment.spec.serving.mode == "disaggregated"


def routed_by_pool(context: Context[Settings]) -> bool:
    """Whether a gateway picks the worker, by an InferencePool, so that there is no Frontend."""
    return context.gateway is not None and context.gateway.uses_pool and context.has(GRAPH_METADATA)


def override(deployment: ModelDeployment, *path: str, default: object = None) -> object:
    """What the deployment says under a typed key of its overrides."""
    return dig(deployment.spec.provider.overrides, *path, default=default)


def image_of(deployment: ModelDeployment, context: Context[Settings]) -> str:
    """The runtime image: the deployment's, else Dynamo's own for the engine."""
    own = deployment.spec.engine.image or deployment.spec.image
    return own or _published(context, RUNTIMES[context.engine].image)


def _published(context: Context[Settings], name: str) -> str:
    release = context.settings.runtime_version or default_runtime(context.upstream.transformer)
    return f"{context.settings.registry}/{name}:{release}"


def runtime_version(deployment: ModelDeployment, context: Context[Settings]) -> Version | None:
    """The release of the runtime: as the deployment says, else as the image's tag does; None where nobody says."""
    said = override(deployment, "runtimeVersion")
    return version_in(f"said:{said}") or version_in(image_of(deployment, context))


# ----------------------------------------------------------------------------------------------------------- the way in


def _entry(deployment: ModelDeployment, context: Context[Settings]) -> Part:
    env: dict[str, str] = {}
    pooled, mode = routed_by_pool(context), _router_mode(deployment)
    if pooled:
        split = is_split(deployment)
        env = {"DYN_DECODE_FALLBACK": str(not split).lower(), "DYN_ENFORCE_DISAGG": str(split).lower()}
    elif mode != "none":
        env = {"DYN_ROUTER_MODE": mode}
    image = _published(context, "dynamo-frontend") if pooled else image_of(deployment, context)
    replicas = override(deployment, "frontend", "replicas", default=1)
    cpu, memory = (
        override(deployment, "frontend", "resources", name, default=usual)
        for name, usual in (("cpu", "2"), ("memory", "4Gi"))
    )
    return Part(
        name=PICKER if pooled else FRONTEND,
        type="epp" if pooled else "frontend",
        replicas=replicas if isinstance(replicas, int) and not pooled else 1,
        size=Sizing(gpu_type="", gpus=0, cpu=str(cpu), memory=str(memory)),
        launch=Launch(
            engine=context.engine,
            image=image,
            env=tuple({"name": name, "value": value} for name, value in env.items()),
        ),
    )


def _router_mode(deployment: ModelDeployment) -> str:
    return str(override(deployment, "routerMode", default="round-robin"))


# -------------------------------------------------------------------------------------------------------------- workers


def _worker(deployment: ModelDeployment, context: Context[Settings], role: str) -> Part:
    scaling = deployment.spec.scaling
    own = {"prefill": scaling.prefill, "decode": scaling.decode}.get(role)
    whole = sizing(deployment, role if own is not None else "")
    nodes = max(1, -(-whole.gpus // context.settings.gpus_per_node))
    replicas = own.replicas if own is not None else scaling.replicas
    image = image_of(deployment, context)
    beside = Launch(engine=context.engine, image=image, args=("-m", "dynamo.frontend", "--router-mode", "direct"))
    return Part(
        name=role,
        type=role,
        replicas=None if override(deployment, "scalingAdapter") is True else replicas,
        size=whole.divided(nodes) if nodes > 1 else whole,
        nodes=nodes,
        gpus=whole.gpus,
        launch=_launch(deployment, context, role, gpus=whole.gpus, nodes=nodes),
        sidecar=beside if routed_by_pool(context) else None,
    )


def _launch(deployment: ModelDeployment, context: Context[Settings], role: str, *, gpus: int, nodes: int) -> Launch:
    runtime, given = RUNTIMES[context.engine], given_flags(deployment)
    split, stages = (gpus // nodes, nodes) if runtime.staged else (gpus, 1)
    flags = engine_arguments(
        deployment,
        engine=context.engine,
        dialect=runtime.dialect,
        served_name=served_name_of(deployment),
        gpus=split,
        stages=stages,
    )
    version = runtime_version(deployment, context) or (9999, 0, 0)
    derived = [*role_flags(context.engine, version, role)]
    # The one that decodes caches nothing that a later request could be sent to.
    if _router_mode(deployment) == "kv" and role != "decode":
        derived += router_flags(context.engine, version)
    words = [word for flag in derived if flag[0].lstrip("-") not in given for word in flag]
    return Launch(
        engine=context.engine,
        image=image_of(deployment, context),
        command=("python3", "-m", runtime.module),
        args=(runtime.model, literal(deployment.spec.model.id or ""), *words, *_apart(flags.argv)),
        env=_transfer_address(context.engine, role),
        blockers=tuple(Finding(path=r.path, reason="BadArguments", message=r.message) for r in flags.errors),
        warnings=tuple(Finding(path=r.path, reason="FieldIgnored", message=r.message) for r in flags.warnings),
    )


def _apart(argv: tuple[str, ...]) -> Iterator[str]:
    """Flag and value as two words: joined, the operator does not see that a worker needs more GPUs than a node has."""
    for word in argv:
        if word.startswith(("--tensor-parallel-size=", "--pipeline-parallel-size=")):
            yield from word.split("=", 1)
        else:
            yield word


def _transfer_address(engine: str, role: str) -> tuple[Resource, ...]:
    """Where the other side of a transfer finds a worker: its own pod, not the name of its node."""
    if engine != "vllm" or role == "worker":
        return ()
    address = {"fieldRef": {"fieldPath": "status.podIP"}}
    return ({"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": address},)
