"""The provider of KServe: data, and three pure functions: no I/O, no clock, no environment."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace

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
    Resource,
    SelectionRule,
    Transformer,
    UpstreamKind,
    blocker,
    canonical_json,
    conditions,
    launch,
    model_pod,
    pod_blockers,
    pod_findings,
    served_name_of,
    setting,
    workloads,
)

__all__ = ["provider"]

APP = "app.kubernetes.io/name"
GROUP, KIND, PORT = "serving.kserve.io", "LLMInferenceService", 8000


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What an administrator may set: `airunway provider run kserve --set image=...`."""

    image: str = setting("vllm/vllm-openai:v0.23.0", "Image of vLLM where a deployment names none.", kept=True)


MANIFEST = ProviderManifest(
    name="kserve",
    version="0.1.0",
    display_name="KServe",
    description="Model servers run by KServe",
    engines=(EngineCapability(name="vllm", gpu_support=True, model_cache=True, scale_to_zero=True),),
    # Of the providers that can run a deployment the one whose rules score most gets it. The condition is CEL.
    selection_rules=(SelectionRule(condition="spec.engine.type == 'vllm'", priority=10),),
    upstream=(
        UpstreamKind(
            group=GROUP,
            kind=KIND,
            plural="llminferenceservices",
            versions=("v1alpha2",),
            primary=True,
            deletion="Foreground",
            pods=("spec.template",),  # the guard of the provider's account looks there
            labels={"spec.template": "spec.labels"},
            unused=("spec.worker",),
            # KServe executes the whole spec as a template, and starts the engine with `eval "exec vllm serve $@"`.
            readings={"spec": "go-template", "spec.template.containers[*].args": "shell"},
        ),
        workloads.SERVICE,
        # What KServe makes of it; its status says neither how many replicas are ready nor which spec they are of.
        replace(workloads.DEPLOYMENT, write=False, select=APP),
    ),
    settings=Settings,
    installation=Installation(description="Install KServe", default_namespace="kserve"),
)

# One way of writing the kind, and the schemas that it fits: `airunway provider schema FILE` prints a CRD's hashes.
TRANSFORMERS = (Transformer(name="v1alpha2", api_version=f"{GROUP}/v1alpha2", schema_hashes=("6884a2bff4b8",)),)


def can_handle(deployment: ModelDeployment, context: Context[Settings]) -> Compatibility:
    """Every field that changes what runs and cannot be honoured is a blocker; what merely has no effect, a warning."""
    started = _launch(deployment, context)
    return Compatibility(
        blockers=(*started.blockers, *_blockers(deployment, context)),
        warnings=(*started.warnings, *pod_findings(deployment)),
    )


def _blockers(deployment: ModelDeployment, context: Context[Settings]) -> Iterator[Finding]:
    spec = deployment.spec
    if spec.serving.mode != "aggregated":
        yield blocker("spec.serving.mode", f"a {KIND} serves aggregated: leave spec.serving.mode out")
    if spec.resources.gpu.count == 0:
        yield blocker("spec.resources.gpu.count", f"a {KIND} runs on GPUs: set spec.resources.gpu.count to 1 or more")
    yield from pod_blockers(deployment, context)
    if "{{" in canonical_json(_spec(deployment, context)).decode():
        yield blocker("spec", "KServe executes what stands in '{{': leave it out of all texts")


def translate_spec(deployment: ModelDeployment, context: Context[Settings]) -> list[Resource]:
    """The objects, the primary one first. The runtime adds namespace, owner and labels."""
    server: Resource = {
        "apiVersion": context.upstream.api_version,
        "kind": KIND,
        "metadata": {"name": deployment.metadata.name},
        "spec": _spec(deployment, context),
    }
    return [server, workloads.service(deployment, port=PORT)]


def translate_status(deployment: ModelDeployment, observed: Observed, context: Context[Settings]) -> Observation:
    """How it is, in the upstream's own words. Total: any JSON in the status gives an answer."""
    server = observed.primary or {}
    condition = conditions.condition(server, "Ready")
    ready = conditions.truth(server, "Ready") is True
    reason = "Ready" if ready else conditions.text(condition, "reason") or "Starting"
    message = conditions.text(condition, "message")
    made = next((obj for obj in observed.objects if obj.get("kind") == "Deployment"), {})
    workload = workloads.read(made)
    newest = workloads.made_of(_pod(deployment, context), made)
    return Observation(
        components=(
            Component(name="ProviderResource", ready=ready, reason=reason, message=message),
            workload.component("Deployment"),
        ),
        replicas=replace(workload.replicas, desired=deployment.spec.scaling.replicas),
        endpoint=Endpoint(service=deployment.metadata.name, port=PORT) if ready else None,
        up_to_date=workload.up_to_date and newest,
        observed=workload.observed and newest,
    )


def _spec(deployment: ModelDeployment, context: Context[Settings]) -> Resource:
    pod, cache = _pod(deployment, context), context.cache
    # KServe downloads what a hf:// names before the engine starts; a claim it only mounts.
    uri = f"pvc://{cache.claim}/{cache.sub_path}" if cache is not None else f"hf://{deployment.spec.model.id}"
    return {
        "model": {"uri": uri, "name": served_name_of(deployment)},
        "replicas": deployment.spec.scaling.replicas,
        "template": pod["spec"],
        "labels": pod["metadata"].get("labels", {}),
        "annotations": pod["metadata"].get("annotations", {}),
    }


def _pod(deployment: ModelDeployment, context: Context[Settings]) -> Resource:
    started = _launch(deployment, context)
    quoted = replace(started, args=tuple(map(shlex.quote, started.args)))
    return model_pod(deployment, context, quoted, labels=workloads.pod_selector(deployment), container="main")


def _launch(deployment: ModelDeployment, context: Context[Settings]) -> Launch:
    return launch(deployment, context.engine, port=PORT, image=context.settings.image, cache=context.cache)


provider = Provider(
    MANIFEST, TRANSFORMERS, can_handle=can_handle, translate_spec=translate_spec, translate_status=translate_status
)
