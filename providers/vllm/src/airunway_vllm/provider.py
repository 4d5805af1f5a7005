"""The plugin object: what stands in the way of a deployment, the objects that it becomes, and how they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from airunway.sdk import (
    Compatibility,
    Context,
    Finding,
    ModelDeployment,
    Observation,
    Observed,
    Provider,
    Resource,
    dig,
    model_pod,
    pod_blockers,
    pod_findings,
    workloads,
)
from airunway_vllm.groups import PORT, group_blockers, group_launch, group_of, nodes_of, recreated
from airunway_vllm.manifest import MANIFEST, TRANSFORMERS
from airunway_vllm.settings import Settings

__all__ = ["provider"]

COMPONENT = "ProviderResource"

_GRACE = 600
"""Seconds beyond what the startup probe allows until a roll-out counts as stuck: scheduling, and pulling the image."""

_OF_A_DEPLOYMENT = ("minReadySeconds", "progressDeadlineSeconds", "revisionHistoryLimit", "strategy", "template")
_OF_A_GROUP = ("leaderWorkerTemplate", "rolloutStrategy")
_CAPABILITIES = {engine.name: engine for engine in MANIFEST.engines}


def can_handle(deployment: ModelDeployment, context: Context[Settings]) -> Compatibility:
    """Blockers change what runs; fields without effect are named by the runtime."""
    fundamental = tuple(_fundamental(deployment, context))
    if fundamental:
        return Compatibility(blockers=fundamental)
    started = group_launch(deployment, context)
    several = nodes_of(deployment, context) > 1
    blockers = [*started.blockers, *pod_blockers(deployment, context), *_override_conflicts(deployment, several)]
    if several:
        blockers += group_blockers(deployment, context)
    return Compatibility(blockers=tuple(blockers), warnings=(*started.warnings, *pod_findings(deployment)))


def _fundamental(deployment: ModelDeployment, context: Context[Settings]) -> Iterator[Finding]:
    """With one of these nothing else is worth saying."""
    spec, engine = deployment.spec, _CAPABILITIES.get(context.engine)
    if engine is None:
        text = f"engine {context.engine} is not one of {', '.join(_CAPABILITIES)}"
        yield _blocker("spec.engine.type", text)
    elif not (engine.gpu_support if spec.resources.gpu.count else engine.cpu_support):
        text = f"{context.engine} engine requires GPU (set resources.gpu.count > 0)"
        yield _blocker("spec.resources.gpu.count", text)
    if spec.serving.mode == "disaggregated":
        text = "plain Deployments do not serve disaggregated: use a provider that does (llm-d, dynamo), or aggregated"
        yield _blocker("spec.serving.mode", text)


def _override_conflicts(deployment: ModelDeployment, several: bool) -> Iterator[Finding]:
    given = dig(deployment.spec.provider.overrides, "spec")
    kind, wrong = ("LeaderWorkerSet", _OF_A_DEPLOYMENT) if several else ("Deployment", _OF_A_GROUP)
    for key in wrong:
        if isinstance(given, dict) and key in given:
            path = f"spec.provider.overrides.spec.{key}"
            yield Finding(path=path, reason="InvalidOverride", message=f"{path} has no place in a {kind}: remove it")


def _blocker(path: str, message: str) -> Finding:
    return Finding(path=path, reason="IncompatibleConfiguration", message=message)


def translate_spec(deployment: ModelDeployment, context: Context[Settings]) -> list[Resource]:
    """A Deployment, or a LeaderWorkerSet where a replica needs several nodes, and the Service before it."""
    service = workloads.service(deployment, port=PORT)
    if nodes_of(deployment, context) > 1:
        return [group_of(deployment, context), service]
    started = group_launch(deployment, context)
    server = workloads.deployment(
        deployment,
        model_pod(deployment, context, started),
        replicas=deployment.spec.scaling.replicas,
        surge=context.settings.max_surge,
        patience=started.patience + _GRACE,
    )
    return [server, service]


def translate_status(deployment: ModelDeployment, observed: Observed, context: Context[Settings]) -> Observation:
    """One component. The address is that of the Service, which stays whatever becomes of the pods."""
    found = workloads.read(observed.primary)
    component = found.component(COMPONENT)
    if not found.ready and (said := recreated(observed)):
        component = replace(component, message=f"{component.message}; {said}")
    return Observation(
        components=(component,),
        replicas=found.replicas,
        endpoint=workloads.endpoint(deployment, observed, PORT),
        current=found.current,
    )


provider = Provider(
    MANIFEST, TRANSFORMERS, can_handle=can_handle, translate_spec=translate_spec, translate_status=translate_status
)
