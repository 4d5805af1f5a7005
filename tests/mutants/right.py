"""A provider that keeps every rule, for an upstream that is Kubernetes itself: a Deployment and its Service."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from airunway.sdk import (
    Compatibility,
    Component,
    Context,
    EngineCapability,
    Finding,
    Launch,
    ModelDeployment,
    Observation,
    Observed,
    Provider,
    ProviderManifest,
    Resource,
    SelectionRule,
    Transformer,
    Translation,
    blocker,
    launch,
    model_pod,
    pod_findings,
    setting,
    workloads,
)

PORT = 8000
ROLE = "airunway.ai/component"


@dataclass(frozen=True, kw_only=True)
class Settings:
    image: str = setting("vllm/vllm-openai:v0.23.0", "Image of vLLM where a deployment names none.", kept=True)
    patience: int = setting(600, "Seconds after which a roll-out is stuck.")


MANIFEST = ProviderManifest(
    name="right",
    version="0.1.0",
    engines=(EngineCapability(name="vllm", gpu_support=True, model_cache=True, scale_to_zero=True),),
    selection_rules=(SelectionRule(condition="spec.engine.type == 'vllm'", priority=10),),
    upstream=(replace(workloads.DEPLOYMENT, primary=True, immutable=()), workloads.SERVICE),
    role_label=ROLE,
    serving_roles=("server",),
    settings=Settings,
)

TRANSFORMERS = (Transformer(name="right-v1", api_version="apps/v1", immutable=("spec.selector.*",)),)


def can_handle(deployment: ModelDeployment, context: Context[Settings]) -> Compatibility:
    return Compatibility(
        blockers=(*_launch(deployment, context).blockers, *_blockers(deployment)),
        warnings=(*_launch(deployment, context).warnings, *pod_findings(deployment)),
    )


def _blockers(deployment: ModelDeployment) -> Iterator[Finding]:
    spec = deployment.spec
    if spec.serving.mode != "aggregated":
        yield blocker("spec.serving.mode", "right serves aggregated: leave the mode out")
    if spec.resources.gpu.count == 0:
        yield blocker("spec.resources.gpu.count", "right runs on GPUs: set spec.resources.gpu.count to 1 or more")
    if (spec.scaling.nodes_per_replica or 1) > 1:
        yield blocker("spec.scaling.nodesPerReplica", "right runs a replica on one node: leave it out")


def translate_spec(deployment: ModelDeployment, context: Context[Settings]) -> Translation:
    pod = model_pod(deployment, context, _launch(deployment, context))
    server = workloads.deployment(
        deployment, pod, replicas=deployment.spec.scaling.replicas, patience=context.settings.patience
    )
    entry = workloads.service(deployment, port=PORT)
    objects: tuple[Resource, ...] = (server, entry)
    return Translation(objects=objects)


def translate_status(deployment: ModelDeployment, observed: Observed, context: Context[Settings]) -> Observation:
    found = workloads.read(observed.primary)
    return Observation(
        components=(Component(name="Server", ready=found.ready, reason=found.reason, message=found.message),),
        replicas=found.replicas,
        endpoint=workloads.endpoint(deployment, observed, PORT),
        up_to_date=found.up_to_date,
    )


def _launch(deployment: ModelDeployment, context: Context[Settings]) -> Launch:
    return launch(deployment, context.engine, port=PORT, image=context.settings.image, cache=context.cache)


provider = Provider(
    MANIFEST, TRANSFORMERS, can_handle=can_handle, translate_spec=translate_spec, translate_status=translate_status
)
