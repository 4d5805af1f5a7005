"""What a deployment runs as: the components of a graph, whatever version of the API they are written in.

A component is a part: a Frontend (or, behind a gateway's pool, a picker) and the workers. Names are short, since the
operator limits the length of graph and component together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from airunway.sdk import (
    Context,
    EngineArguments,
    Finding,
    Launch,
    ModelDeployment,
    Sizing,
    dig,
    engine_arguments,
    literal,
    served_name_of,
    sizing,
)
from airunway_dynamo.runtimes import RUNTIMES, Version, role_flags, router_flags, version_in
from airunway_dynamo.schemas import SIDECARS, default_runtime
from airunway_dynamo.settings import Settings

__all__ = [
    "FRONTEND",
    "PICKER",
    "PORT",
    "WORKERS",
    "Part",
    "given_flags",
    "image_of",
    "is_split",
    "parts_of",
    "routed_by_pool",
    "runtime_version",
    "topology",
    "worker_arguments",
]

FRONTEND, PICKER = "Frontend", "Epp"
WORKERS = ("worker", "prefill", "decode")
"""Types of components that run the model; names of ours too."""
PORT = 8000
"""Where a Frontend listens, and its Service too."""

_ROUTER_MODES = {"none": ""}
"""What `routerMode` says in upstream's words where they differ; empty: nothing is said."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One component. `replicas` None: somebody else scales it. `size` is that of one pod, `nodes` are those of one
    replica. `sidecar` is a frontend beside the worker.
    """

    name: str
    type: str
    replicas: int | None
    size: Sizing
    launch: Launch
    nodes: int = 1
    sidecar: Launch | None = None

    @property
    def serves(self) -> bool:
        return self.type in WORKERS


def is_split(deployment: ModelDeployment) -> bool:
    """Whether prefill and decode have workers of their own."""
    return deployment.spec.serving.mode == "disaggregated"


def routed_by_pool(context: Context[Settings]) -> bool:
    """Whether a gateway picks the worker, by an InferencePool, so that there is no Frontend."""
    return context.gateway is not None and context.gateway.uses_pool and context.has(SIDECARS)


def parts_of(deployment: ModelDeployment, context: Context[Settings]) -> tuple[Part, ...]:
    """The components, the way in first."""
    entry = _picker(deployment, context) if routed_by_pool(context) else _frontend(deployment, context)
    roles = ("prefill", "decode") if is_split(deployment) else ("worker",)
    return (entry, *(_worker(deployment, context, role) for role in roles))


def topology(parts: tuple[Part, ...]) -> dict[str, object]:
    """What the operator lets nobody change on a live graph."""
    return {
        "components": sorted(part.name for part in parts),
        "components on several nodes": sorted(part.name for part in parts if part.nodes > 1),
    }


# --------------------------------------------------------------------------------------------------------------- images


def image_of(deployment: ModelDeployment, context: Context[Settings]) -> str:
    """The runtime image: the deployment's, else Dynamo's own for the engine."""
    spec, settings = deployment.spec, context.settings
    own = spec.engine.image or spec.image
    release = settings.runtime_version or default_runtime(context.upstream.transformer)
    return own or f"{settings.registry}/{RUNTIMES[context.engine].image}:{release}"


def runtime_version(deployment: ModelDeployment, context: Context[Settings]) -> Version | None:
    """The release of the runtime: as the deployment says, else as the image's tag does; None where nobody says."""
    said = dig(deployment.spec.provider.overrides, "runtimeVersion")
    named = version_in(f"image:{said}") if isinstance(said, str) else None
    return named or version_in(image_of(deployment, context))


# -------------------------------------------------------------------------------------------------------------- workers


def _worker(deployment: ModelDeployment, context: Context[Settings], role: str) -> Part:
    spec = deployment.spec
    own = {"prefill": spec.scaling.prefill, "decode": spec.scaling.decode}.get(role)
    whole = sizing(deployment, role if own is not None else "")
    nodes = max(1, -(-whole.gpus // context.settings.gpus_per_node))
    scaled = dig(spec.provider.overrides, "scalingAdapter") is True
    replicas = own.replicas if own is not None else spec.scaling.replicas
    sidecar = None
    if routed_by_pool(context):
        sidecar = Launch(
            engine=context.engine,
            image=image_of(deployment, context),
            args=("-m", "dynamo.frontend", "--router-mode", "direct"),
        )
    return Part(
        name=role,
        type=role,
        replicas=None if scaled else replicas,
        size=whole.divided(nodes) if nodes > 1 else whole,
        nodes=nodes,
        launch=_worker_launch(deployment, context, role, gpus=whole.gpus, nodes=nodes),
        sidecar=sidecar,
    )


def worker_arguments(
    deployment: ModelDeployment, context: Context[Settings], *, gpus: int, nodes: int
) -> EngineArguments:
    """The engine's own flags for a worker with so many GPUs on so many nodes."""
    runtime = RUNTIMES[context.engine]
    split, stages = (gpus // nodes, nodes) if runtime.staged else (gpus, 1)
    return engine_arguments(
        deployment,
        engine=context.engine,
        dialect=runtime.dialect,
        served_name=served_name_of(deployment),
        gpus=split,
        stages=stages,
    )


def _worker_launch(
    deployment: ModelDeployment, context: Context[Settings], role: str, *, gpus: int, nodes: int
) -> Launch:
    runtime, given = RUNTIMES[context.engine], given_flags(deployment)
    flags = worker_arguments(deployment, context, gpus=gpus, nodes=nodes)
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


def given_flags(deployment: ModelDeployment) -> Mapping[str, str]:
    """The flags that the user sets, without dashes, and where."""
    engine = deployment.spec.engine
    flags = {key.replace("_", "-"): f"spec.engine.args[{key}]" for key in engine.args}
    for i, word in enumerate(engine.extra_args):
        if word.startswith("-"):
            flags[word.lstrip("-").partition("=")[0].replace("_", "-")] = f"spec.engine.extraArgs[{i}]"
    return flags


_APART = ("--tensor-parallel-size=", "--pipeline-parallel-size=")


def _apart(argv: tuple[str, ...]) -> Iterator[str]:
    """Flag and value as two words: joined, the operator does not see that a worker needs more GPUs than a node has."""
    for word in argv:
        if word.startswith(_APART):
            flag, _, value = word.partition("=")
            yield from (flag, value)
        else:
            yield word


def _transfer_address(engine: str, role: str) -> tuple[dict[str, object], ...]:
    """Where the other side of a transfer finds a worker: its own pod, not the name of its node."""
    if engine != "vllm" or role == "worker":
        return ()
    address = {"fieldRef": {"fieldPath": "status.podIP"}}
    return ({"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": address},)


# ------------------------------------------------------------------------------------------------------- the way in


def _frontend(deployment: ModelDeployment, context: Context[Settings]) -> Part:
    mode = _router_mode(deployment)
    said = _ROUTER_MODES.get(mode, mode)
    env = ({"name": "DYN_ROUTER_MODE", "value": said},) if said else ()
    return _entry(deployment, context, FRONTEND, "frontend", image_of(deployment, context), env)


def _picker(deployment: ModelDeployment, context: Context[Settings]) -> Part:
    split = "true" if is_split(deployment) else "false"
    whole = "false" if is_split(deployment) else "true"
    env = ({"name": "DYN_DECODE_FALLBACK", "value": whole}, {"name": "DYN_ENFORCE_DISAGG", "value": split})
    release = context.settings.runtime_version or default_runtime(context.upstream.transformer)
    image = f"{context.settings.registry}/dynamo-frontend:{release}"
    return _entry(deployment, context, PICKER, "epp", image, env)


def _entry(
    deployment: ModelDeployment,
    context: Context[Settings],
    name: str,
    type_: str,
    image: str,
    env: tuple[dict[str, object], ...],
) -> Part:
    wished = dig(deployment.spec.provider.overrides, "frontend")
    replicas = dig(wished, "replicas", default=1)
    return Part(
        name=name,
        type=type_,
        replicas=1 if type_ == "epp" else replicas,
        size=Sizing(
            gpu_type="",
            gpus=0,
            cpu=str(dig(wished, "resources", "cpu", default="2")),
            memory=str(dig(wished, "resources", "memory", default="4Gi")),
        ),
        launch=Launch(engine=context.engine, image=image, env=env),
    )


def _router_mode(deployment: ModelDeployment) -> str:
    return str(dig(deployment.spec.provider.overrides, "routerMode", default="round-robin"))
