"""Findings about a deployment, and components, that several providers report with the same message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from airunway.api.gpus import gpu_family
from airunway.api.modeldeployment import Gpu, ModelDeployment
from airunway.engines.arguments import given_flags
from airunway.engines.options import whole_option
from airunway.engines.tables import FRONTENDS
from airunway.plugins.contract import Component, Context, EngineCapability, Finding
from airunway.resource import Resource, dig
from airunway.sdk.deployments import is_disaggregated, nodes_for


def blocker(path: str, message: str, reason: str = "IncompatibleConfiguration") -> Finding:
    """A reason to create nothing: the field at `path` cannot be honoured."""
    return Finding(path=path, reason=reason, message=message)


def bad_override(path: str, message: str) -> Finding:
    """The blocker for a value at `path` in ``spec.provider.overrides``."""
    return blocker(f"spec.provider.overrides.{path}", message, "InvalidOverride")


def ignored(path: str, message: str) -> Finding:
    """The warning that the field at `path` has no effect; `message` has the reason."""
    return Finding(path=path, reason="FieldIgnored", message=message)


def unsupported_engine(
    deployment: ModelDeployment,
    context: Context[Any],
    engines: Sequence[EngineCapability],
    *,
    who: str,
    instead: str = "",
    only: bool = False,
) -> Iterator[Finding]:
    """Blockers for an engine or a serving mode that is not in the manifest's `engines`.

    `who` is the provider's name in messages ("KAITO"). `instead` says what to do about an unsupported mode. With
    `only`, the message names the one engine that there is.
    """
    found = next((engine for engine in engines if engine.name == context.engine), None)
    if found is None:
        text = f"{who} does not support {context.engine} engine"
        if only and len(engines) == 1:
            text = f"{who} only supports {engines[0].name} engine"
        yield blocker("spec.engine.type", text)
    task = deployment.spec.model.task
    if found is not None and task not in found.tasks:
        able = ", ".join(found.tasks)
        text = f"{who} runs no models of task {task} with {context.engine}, only {able}: name another provider"
        yield blocker("spec.model.task", text)
    modes = {mode for engine in ([found] if found else engines) for mode in engine.serving_modes}
    mode = deployment.spec.serving.mode
    if mode not in modes:
        text = f"{who} does not support {mode} mode"
        yield blocker("spec.serving.mode", f"{text}: {instead}" if instead else text)


def gpus_of(deployment: ModelDeployment) -> Iterator[tuple[str, Gpu | None]]:
    """The GPUs of a replica, or of the workers of each role, with the field that requests them.

    None for workers that the deployment does not describe: they have the GPUs of a replica.
    """
    spec = deployment.spec
    if not is_disaggregated(deployment):
        yield "spec.resources.gpu", spec.resources.gpu
    else:
        for role, worker in (("prefill", spec.scaling.prefill), ("decode", spec.scaling.decode)):
            yield f"spec.scaling.{role}.gpu", worker.gpu if worker is not None else None


def is_nvidia(resource: str) -> bool:
    """Whether that GPU resource (``nvidia.com/gpu``, a MIG slice, a shared GPU) runs images for NVIDIA GPUs."""
    return gpu_family(resource).vendor == "nvidia"


_PARALLEL = frozenset({"tensor-parallel-size", "tp", "tp-size", "data-parallel-size", "dp", "dp-size"})
"""Flags, in any engine, by which a user decides how a model is split."""


def several_parts(deployment: ModelDeployment) -> Iterator[tuple[bool, Finding]]:
    """Findings about several slices or shares of GPUs for one worker, over which no engine can split a model.

    CUDA shows a process one MIG slice, and two shares may be of one GPU. True marks a blocker; where the image or the
    user's own flags decide how the model is split, it is a warning.
    """
    decided = deployment.spec.model.source == "custom" or not _PARALLEL.isdisjoint(given_flags(deployment))
    for path, gpu in gpus_of(deployment):
        part = gpu_family(gpu.resource).part if gpu is not None else ""
        if gpu is None or not part or gpu.count < 2:
            continue
        why = "a process sees one slice" if part == "slice" else "two shares may be of one GPU"
        text = (
            f"{gpu.count} {part}s of GPUs ({gpu.resource:.100}) cannot run one model together ({why}): set count to 1 "
            "and choose a larger slice or a whole GPU, or ask for more replicas"
        )
        found = blocker(f"{path}.count", text)
        yield not decided, found if not decided else Finding(path=found.path, reason="MayNotStart", message=text)


def miswritten(deployment: ModelDeployment) -> Iterator[Finding]:
    """The warning that a resource has capital letters (``nvidia.com/MIG-1g.12gb``) and would be known without them."""
    for path, gpu in gpus_of(deployment):
        name = gpu.resource if gpu is not None else ""
        if name != name.lower() and gpu_family(name.lower()).vendor:
            text = f"no node has {name:.100}: the resource names of GPUs have small letters; write {name.lower():.100}"
            yield Finding(path=f"{path}.type", reason="MayNotStart", message=text)


def without_gpus(deployment: ModelDeployment, *, who: str) -> Iterator[Finding]:
    """Blockers for replicas or workers without GPUs, for a provider `who` ("Dynamo") that needs GPUs."""
    for path, gpu in gpus_of(deployment):
        if not (gpu or deployment.spec.resources.gpu).count:
            field = f"{path}.count"
            yield blocker(field, f"{who} requires GPU (set {field.removeprefix('spec.')} > 0)")


def without_device_classes(deployment: ModelDeployment, *, who: str, why: str) -> Iterator[Finding]:
    """Blockers for GPUs of a device class, for a provider `who` ("KAITO") that cannot ask for them; `why` says so."""
    for path, gpu in gpus_of(deployment):
        if (gpu or deployment.spec.resources.gpu).device_class:
            text = (
                f"deviceClass is not honoured by {who}: {why}; ask for GPUs by their resource name (gpu.type), or use "
                "another provider (vllm, llmd, kuberay)"
            )
            yield blocker(f"{path}.deviceClass", text)


def role_fields(deployment: ModelDeployment) -> Iterator[Finding]:
    """Warnings for role fields in an aggregated deployment."""
    scaling = deployment.spec.scaling
    if not is_disaggregated(deployment):
        for role, worker in (("prefill", scaling.prefill), ("decode", scaling.decode)):
            if worker is not None:
                yield ignored(f"spec.scaling.{role}", f"scaling.{role} has no meaning in aggregated mode")


def doubtful_split(deployment: ModelDeployment) -> Iterator[Finding]:
    """The warning that vLLM's prefill workers have more GPUs than its decode workers."""
    if is_disaggregated(deployment):
        prefill, decode = ((gpu or deployment.spec.resources.gpu).count for _, gpu in gpus_of(deployment))
        if prefill > decode:
            text = (
                f"prefill has {prefill} GPUs and decode {decode}: the NIXL connector of many releases of vLLM refuses "
                "fewer for decode than for prefill"
            )
            yield Finding(path="spec.scaling.decode.gpu.count", reason="MayNotStart", message=text)


NODES = "spec.scaling.nodesPerReplica"


def one_node_only(deployment: ModelDeployment, *, who: str) -> Iterator[Finding]:
    """The blocker for several nodes per replica, for a provider `who` ("KAITO") that runs each on one."""
    nodes = deployment.spec.scaling.nodes_per_replica
    if nodes is not None and nodes > 1:
        text = f"{who} runs each replica on one node: leave nodesPerReplica out, or name a provider that spans nodes"
        yield blocker(NODES, text)


def uneven(path: str, *, gpus: int, limit: int, what: str = "replica", asked: int | None = None) -> Iterator[Finding]:
    """The blocker for `gpus` that exceed one node and cannot be divided evenly over several nodes.

    `path` is the field with the number of GPUs, `what` is what has them ("replica"), and `limit` is the number of GPUs
    of a node (provider setting ``gpusPerNode``). `asked` is the number of nodes that the deployment requests.
    """
    if asked is not None:
        if gpus % asked or not gpus:
            text = (
                f"{gpus} GPUs per {what} cannot be spread evenly over {asked} nodes: set {path.removeprefix('spec.')} "
                f"to {max(1, -(-gpus // asked)) * asked}, or another nodesPerReplica"
            )
            yield blocker(NODES, text)
        return
    nodes = nodes_for(gpus, limit)
    if gpus % nodes:
        text = (
            f"{gpus} GPUs per {what} are more than the {limit} of one node (provider setting gpusPerNode), and cannot "
            f"be spread evenly over {nodes} nodes: ask for {gpus + nodes - gpus % nodes}"
        )
        yield blocker(path, text)


def like_a_flag(model: str, path: str = "spec.model.id") -> Iterator[Finding]:
    """The blocker for a model name that an engine would parse as a flag."""
    if model.startswith("-"):
        yield blocker(path, f"{model!r} begins with '-': the engine would take it for a flag")


def server_findings(
    deployment: ModelDeployment, context: Context[Any], *, who: str, server: str
) -> Iterator[tuple[bool, Finding]]:
    """Findings about settings of an engine's own HTTP server, where another server takes the requests.

    `server` is the other server, and `who` is the upstream in messages ("Ray's ingress", "KubeRay"). True marks a
    setting that would protect the endpoint and now protects nothing (``ProtectsNothing``). Refuse it: otherwise a
    change of provider would open a closed endpoint. Protecting variables count in the deployment and in the runtime
    config; an empty value in the deployment switches the protection off on purpose. False marks a setting that only has
    no effect, for a warning.
    """
    known = FRONTENDS.get(context.engine)
    if known is None:
        return
    opens = f"protects nothing with {who}: {server} takes the requests, without authentication or TLS"
    remedy = "protect the endpoint by a gateway or a NetworkPolicy"
    for given, path in given_flags(deployment).items():
        name = whole_option(context.engine, given)
        if name in known.protecting:
            yield True, Finding(path=path, reason="ProtectsNothing", message=f"{name} {opens}. Remove it, and {remedy}")
        elif name in known.others:
            yield False, ignored(path, f"{name} is of the engine's HTTP server; with {who} {server} takes the requests")
    for i, entry in enumerate(deployment.spec.env):
        if entry.name in known.variables and (entry.value or entry.value_from):
            text = f"{entry.name} {opens}. Remove it, and {remedy}"
            yield True, Finding(path=f"spec.env[{i}]", reason="ProtectsNothing", message=text)
    own = {entry.name for entry in deployment.spec.env}
    for name in sorted({str(each.get("name")) for each in context.runtime.env} & known.variables - own):
        text = (
            f"{name}, which the runtime config has, {opens}. Have it removed there, or set it to an empty value in "
            f"spec.env, and {remedy}"
        )
        yield True, Finding(path="spec.env", reason="ProtectsNothing", message=text)


def primary_component(
    reason: str, message: str = "", *, pending: bool = False, only_degrades: bool = False, authoritative: bool = False
) -> Component:
    """The component ``ProviderResource``, the state of the primary object; it is ready if the reason is ``Ready``.

    `pending`, `only_degrades` and `authoritative` are as in `Component`.
    """
    return Component(
        name="ProviderResource",
        ready=reason == "Ready",
        reason=reason,
        message=message,
        pending=pending,
        only_degrades=only_degrades,
        authoritative=authoritative,
    )


def absent_component(primary: Resource | None, kind: str) -> Component | None:
    """The component of a primary object that does not exist yet or is being deleted; None for any other."""
    if not primary:
        return primary_component("Starting", f"the {kind} does not exist yet", pending=True)
    if dig(primary, "metadata", "deletionTimestamp"):
        return primary_component("Terminating", f"the {kind} is being deleted")
    return None
