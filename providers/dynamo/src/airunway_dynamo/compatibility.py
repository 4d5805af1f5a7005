"""What stands between a deployment and Dynamo: every field that cannot be honoured, by name (spec ruling 18)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from airunway.sdk import (
    DEFAULT_GPU_TYPE,
    Compatibility,
    Context,
    Finding,
    ModelDeployment,
    dig,
    kind_key,
    pod_blockers,
    pod_findings,
    served_name_of,
    too_long,
)
from airunway_dynamo.objects import RESERVED_LABELS
from airunway_dynamo.plan import (
    Part,
    given_flags,
    image_of,
    is_split,
    parts_of,
    routed_by_pool,
    runtime_version,
)
from airunway_dynamo.runtimes import OWN_FLAGS, RUNTIMES
from airunway_dynamo.schemas import GPU_TYPES, GRAPH_METADATA, RUNTIME_VERSION, SCALING_ADAPTERS
from airunway_dynamo.settings import Settings

__all__ = ["compatibility"]

_OVERRIDES = "spec.provider.overrides"
_WORKER_HASH = 9
"""Characters that the operator adds to the name of a worker: a dash, and a digest of what it runs."""
_LONGEST_GROVE, _LONGEST_LABEL, _LONGEST_GROUP = 45, 63, 49
_SHELL_SAFE = re.compile(r"[A-Za-z0-9_@%+=:,./-]*", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def compatibility(deployment: ModelDeployment, context: Context[Settings]) -> Compatibility:
    """Blockers change what runs; warnings do not."""
    fundamental = (*_fundamental(deployment, context),)
    if fundamental:
        return Compatibility(blockers=fundamental)
    parts = parts_of(deployment, context)
    blockers = [
        *(finding for part in parts for finding in part.launch.blockers),
        *_images(deployment, context),
        *_flags(deployment),
        *_names(deployment, context, parts),
        *_overrides(deployment, context),
        *pod_blockers(deployment, context),
    ]
    if any(part.nodes > 1 for part in parts):
        blockers += _several_nodes(deployment, context, parts)
    warnings = [
        *(finding for part in parts for finding in part.launch.warnings),
        *pod_findings(deployment, reserved=RESERVED_LABELS),
        *_warnings(deployment, context),
    ]
    # Each role says the same of what they share.
    return Compatibility(blockers=tuple(dict.fromkeys(blockers)), warnings=tuple(dict.fromkeys(warnings)))


def _blocker(path: str, message: str, reason: str = "IncompatibleConfiguration") -> Finding:
    return Finding(path=path, reason=reason, message=message)


def _fundamental(deployment: ModelDeployment, context: Context[Settings]) -> Iterator[Finding]:
    """The seeds' own messages, word for word; with one of these nothing else is worth saying."""
    spec, asks = deployment.spec, "Dynamo requires GPU (set {} > 0)"
    if context.engine not in RUNTIMES:
        yield _blocker("spec.engine.type", f"Dynamo does not support {context.engine} engine")
    if spec.model.source == "custom":
        text = (
            "Dynamo starts the engine itself, with model.id: for an image with a model of its own use another provider"
        )
        yield _blocker("spec.model.source", text)
    if not is_split(deployment):
        if not spec.resources.gpu.count:
            yield _blocker("spec.resources.gpu.count", asks.format("resources.gpu.count"))
        return
    for role, worker in (("prefill", spec.scaling.prefill), ("decode", spec.scaling.decode)):
        if worker is None or not worker.gpu.count:
            yield _blocker(f"spec.scaling.{role}.gpu.count", asks.format(f"scaling.{role}.gpu.count"))


def _images(deployment: ModelDeployment, context: Context[Settings]) -> Iterator[Finding]:
    spec, image = deployment.spec, image_of(deployment, context)
    where = "spec.engine.image" if spec.engine.image else "spec.image"
    if runtime_version(deployment, context) is None and (
        is_split(deployment) or context.has(RUNTIME_VERSION) or dig(spec.provider.overrides, "routerMode") == "kv"
    ):
        text = (
            f"the tag of {image} names no release, and the flags of Dynamo's workers depend on it: use a tag like "
            f"1.3.1, or say which release it has in {_OVERRIDES}.runtimeVersion"
        )
        yield _blocker(where, text)
    kinds = {part.size.gpu_type for part in parts_of(deployment, context) if part.size.gpus} - {DEFAULT_GPU_TYPE}
    paths = ("scaling.prefill", "scaling.decode") if is_split(deployment) else ("resources",)
    for kind in sorted(kinds):
        if not context.has(GPU_TYPES):
            text = f"this release of Dynamo knows {DEFAULT_GPU_TYPE} only; {kind} needs Dynamo 0.8"
            yield _blocker(f"spec.{paths[0]}.gpu.type", text)
        elif not (spec.image or spec.engine.image):
            text = f"the default image {image} needs {DEFAULT_GPU_TYPE}; set spec.image for {kind}"
            yield _blocker(f"spec.{paths[0]}.gpu.type", text)
    model = spec.model.id or ""
    if model.startswith("-"):
        yield _blocker("spec.model.id", f"{model!r} begins with '-': the engine would take it for a flag")


def _flags(deployment: ModelDeployment) -> Iterator[Finding]:
    for flag, path in given_flags(deployment).items():
        if flag in OWN_FLAGS:
            text = f"engine arg {flag!r} says what a worker does, which spec.serving.mode says: remove it"
            yield _blocker(path, text, "BadArguments")


def _names(deployment: ModelDeployment, context: Context[Settings], parts: tuple[Part, ...]) -> Iterator[Finding]:
    """The operator and Kubernetes limit what is made of the deployment's name."""
    name = deployment.metadata.name
    grove = context.settings.grove and kind_key("grove.io", "PodClique") in context.served
    for part in sorted(parts, key=lambda part: -_room(part, grove=grove)):
        limit, what = _limit(part, grove=grove)
        if found := too_long(name, limit=limit, what=what):
            yield found
            return
    if len(deployment.metadata.namespace) + 1 + len(name) > _LONGEST_LABEL:
        room = _LONGEST_LABEL - 1 - len(deployment.metadata.namespace)
        if found := too_long(name, limit=room, what=f"Dynamo's label of graphs in {deployment.metadata.namespace}"):
            yield found


def _room(part: Part, *, grove: bool) -> int:
    return -_limit(part, grove=grove)[0]


def _limit(part: Part, *, grove: bool) -> tuple[int, str]:
    """How long a deployment's name may be for the sake of one component, and what asks for it."""
    own = len(part.name)
    if grove:
        # Grove limits graph, component and, over several nodes, the names of leader and workers in it together.
        taken = own + (own + len("-ldr") if part.nodes > 1 else 0)
        return _LONGEST_GROVE - taken, f"Dynamo's component {part.name} on Grove (together {_LONGEST_GROVE})"
    taken = 1 + own + (_WORKER_HASH if part.serves else 0)
    if part.nodes > 1:
        return _LONGEST_GROUP - taken - len("-0"), f"the LeaderWorkerSet of Dynamo's component {part.name}"
    return _LONGEST_LABEL - taken, f"Dynamo's component {part.name}"


def _several_nodes(
    deployment: ModelDeployment, context: Context[Settings], parts: tuple[Part, ...]
) -> Iterator[Finding]:
    limit = context.settings.gpus_per_node
    for part in parts:
        if part.nodes < 2:
            continue
        path = f"spec.scaling.{part.type}.gpu.count" if is_split(deployment) else "spec.resources.gpu.count"
        whole = _gpus(deployment, part)
        if whole % part.nodes:
            near = whole + part.nodes - whole % part.nodes
            text = (
                f"{whole} GPUs per worker are more than the {limit} of one node (provider setting gpusPerNode), and "
                f"cannot be spread evenly over {part.nodes} nodes: ask for {near}"
            )
            yield _blocker(path, text)
    # Over several nodes the operator puts the words of a worker into one line for a shell.
    spec = deployment.spec
    words = {
        "spec.model.id": spec.model.id or "",
        "spec.model.servedName": served_name_of(deployment),
        **{f"spec.engine.args[{key}]": f"{key}={value}" for key, value in sorted(spec.engine.args.items())},
        **{f"spec.engine.extraArgs[{i}]": word for i, word in enumerate(spec.engine.extra_args)},
    }
    for path, word in words.items():
        if not _SHELL_SAFE.fullmatch(word):
            text = (
                "over several nodes Dynamo starts workers through a shell, which takes letters, digits and _@%+=:,./- "
                f"as they are: {path} has others; take them out, or ask for at most {limit} GPUs"
            )
            yield _blocker(path, text, "BadArguments")
    for i, entry in enumerate(spec.env):
        if not _VARIABLE.fullmatch(entry.name):
            text = f"over several nodes Dynamo names variables to a shell: {entry.name[:64]!r} is no name for one"
            yield _blocker(f"spec.env[{i}].name", text, "BadArguments")


def _gpus(deployment: ModelDeployment, part: Part) -> int:
    own = {"prefill": deployment.spec.scaling.prefill, "decode": deployment.spec.scaling.decode}.get(part.type)
    return own.gpu.count if own is not None else deployment.spec.resources.gpu.count


def _overrides(deployment: ModelDeployment, context: Context[Settings]) -> Iterator[Finding]:
    given = deployment.spec.provider.overrides
    if dig(given, "scalingAdapter") is True and not context.has(SCALING_ADAPTERS):
        path = f"{_OVERRIDES}.scalingAdapter"
        yield _blocker(path, "Dynamo has scaling adapters since release 0.8", "InvalidOverride")
    if dig(given, "spec") and not context.has(GRAPH_METADATA):
        text = "Dynamo takes labels, annotations and a topology for a whole graph since release 1.1"
        yield _blocker(f"{_OVERRIDES}.spec", text, "InvalidOverride")


def _warnings(deployment: ModelDeployment, context: Context[Settings]) -> Iterator[Finding]:
    spec = deployment.spec
    if not is_split(deployment):
        for role in ("prefill", "decode"):
            if getattr(spec.scaling, role) is not None:
                text = f"scaling.{role} has no meaning in aggregated mode"
                yield Finding(path=f"spec.scaling.{role}", reason="FieldIgnored", message=text)
    elif (prefill := spec.scaling.prefill) and (decode := spec.scaling.decode):
        if context.engine == "vllm" and prefill.gpu.count > decode.gpu.count:
            text = (
                f"prefill has {prefill.gpu.count} GPUs and decode {decode.gpu.count}: the NIXL connector of many "
                "releases of vLLM refuses fewer for decode than for prefill"
            )
            yield Finding(path="spec.scaling.decode.gpu.count", reason="MayNotStart", message=text)
    if dig(spec.provider.overrides, "scalingAdapter") is True:
        text = "replicas are left to Dynamo's scaling adapters (overrides.scalingAdapter)"
        yield Finding(path="spec.scaling.replicas", reason="FieldIgnored", message=text)
    if context.gateway is not None and context.gateway.uses_pool and not routed_by_pool(context):
        text = "this release of Dynamo cannot serve behind a gateway's pool (needs 1.1): it gets a Frontend of its own"
        yield Finding(path="spec.gateway", reason="FieldIgnored", message=text)
    elif routed_by_pool(context):
        for key in ("routerMode", "frontend"):
            if dig(spec.provider.overrides, key) is not None:
                text = f"overrides.{key} has no effect behind a gateway's pool: its picker chooses the worker"
                yield Finding(path=f"{_OVERRIDES}.{key}", reason="FieldIgnored", message=text)
