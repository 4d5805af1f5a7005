"""The provider of Acme: data, and three pure functions: no I/O, no clock, no environment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from airunway.sdk import (
    Compatibility,
    Component,
    Context,
    Endpoint,
    EngineCapability,
    Finding,
    Installation,
    Launch,
    ModelDeployment,
    Observation,
    Observed,
    Provider,
    ProviderManifest,
    Replicas,
    Resource,
    SelectionRule,
    Transformer,
    UpstreamKind,
    blocker,
    conditions,
    launch,
    model_pod,
    pod_blockers,
    pod_findings,
    setting,
    workloads,
)
from airunway.sdk.overrides import TEXT, keys

__all__ = ["provider"]

GROUP, KIND, PORT = "acme.example.com", "AcmeServer", 8000


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What an administrator may set: `airunway provider run acme --set image=...`."""

    image: str = setting("vllm/vllm-openai:v0.23.0", "Image of vLLM where a deployment names none.", kept=True)


MANIFEST = ProviderManifest(
    name="acme",
    version="0.1.0",
    display_name="Acme",
    description="Model servers run by the Acme operator",
    engines=(EngineCapability(name="vllm", gpu_support=True, scale_to_zero=True),),
    # Of the providers that can run a deployment the one whose rules score most gets it. The condition is CEL.
    selection_rules=(SelectionRule(condition="spec.engine.type == 'vllm'", priority=10),),
    upstream=(
        UpstreamKind(
            group=GROUP,
            kind=KIND,
            plural="acmeservers",
            versions=("v1",),
            primary=True,
            deletion="Foreground",
            pods=("spec.template.spec",),  # the guard of the provider's account looks there
        ),
        workloads.SERVICE,
    ),
    settings=Settings,
    # What spec.provider.overrides may change in the object; any other key is named and left out.
    override_schema=keys(spec=keys(template=keys(spec=keys(schedulerName=TEXT)))),
    installation=Installation(description="Install the Acme operator", default_namespace="acme-system"),
)

# One way of writing the kind, and the schemas that it fits: `airunway provider schema FILE` prints a CRD's hashes.
TRANSFORMERS = (Transformer(name="v1", api_version=f"{GROUP}/v1", schema_hashes=("ab7d2a74c814",)),)


def can_handle(deployment: ModelDeployment, context: Context[Settings]) -> Compatibility:
    """Every field that changes what runs and cannot be honoured is a blocker; what merely has no effect, a warning."""
    started = _launch(deployment, context)
    return Compatibility(
        blockers=(*started.blockers, *_blockers(deployment, context)),
        warnings=(*started.warnings, *pod_findings(deployment)),
    )


def _blockers(deployment: ModelDeployment, context: Context[Settings]) -> Iterator[Finding]:
    spec = deployment.spec
    if spec.resources.gpu.count > 2:
        yield blocker("spec.resources.gpu.count", f"a {KIND} has at most 2 GPUs: lower spec.resources.gpu.count")
    if spec.serving.mode != "aggregated":
        yield blocker("spec.serving.mode", f"a {KIND} serves aggregated: leave spec.serving.mode out")
    if spec.resources.gpu.count == 0:
        yield blocker("spec.resources.gpu.count", f"a {KIND} runs on GPUs: set spec.resources.gpu.count to 1 or more")
    yield from pod_blockers(deployment, context)


def translate_spec(deployment: ModelDeployment, context: Context[Settings]) -> list[Resource]:
    """The objects, the primary one first. The runtime adds namespace, owner and labels."""
    pod = model_pod(deployment, context, _launch(deployment, context), labels=workloads.pod_selector(deployment))
    server: Resource = {
        "apiVersion": context.upstream.api_version,
        "kind": KIND,
        "metadata": {"name": deployment.metadata.name},
        "spec": {
            "replicas": deployment.spec.scaling.replicas,
            "template": pod,
        },
    }
    return [server, workloads.service(deployment, port=PORT)]


def translate_status(deployment: ModelDeployment, observed: Observed, context: Context[Settings]) -> Observation:
    """How it is, in the upstream's own words. Total: any JSON in the status gives an answer."""
    server = observed.primary or {}
    condition = conditions.condition(server, "Ready")
    ready = conditions.truth(server, "Ready") is True
    reason = "Ready" if ready else conditions.text(condition, "reason") or "Starting"
    message = conditions.text(condition, "message")
    serving = max(0, conditions.number(server, "status", "readyReplicas"))
    return Observation(
        components=(Component(name="ProviderResource", ready=ready, reason=reason, message=message),),
        replicas=Replicas(desired=deployment.spec.scaling.replicas, ready=serving, available=serving),
        endpoint=Endpoint(service=deployment.metadata.name, port=PORT) if ready else None,
        up_to_date=conditions.is_observed(server),
    )


def _launch(deployment: ModelDeployment, context: Context[Settings]) -> Launch:
    return launch(deployment, context.engine, port=PORT, image=context.settings.image)


provider = Provider(
    MANIFEST, TRANSFORMERS, can_handle=can_handle, translate_spec=translate_spec, translate_status=translate_status
)
