"""The provider of NVIDIA NIM: data, and three pure functions: no I/O, no clock, no environment."""

from __future__ import annotations

import re
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
    container_resources,
    environment,
    launch,
    pod_findings,
    pod_labels,
    setting,
    sizing,
    tag_of,
)

__all__ = ["provider"]

GROUP, KIND, PORT = "apps.nvidia.com", "NIMService", 8000


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What an administrator may set: `airunway provider run nim --set image=...`."""

    image: str = setting("vllm/vllm-openai:v0.23.0", "Image of vLLM where a deployment names none.", kept=True)
    auth_secret: str = setting("ngc-api-key", "Secret of the deployment's namespace that has the NGC_API_KEY.")


MANIFEST = ProviderManifest(
    name="nim",
    version="0.1.0",
    display_name="NIM",
    description="Model servers run by NVIDIA's NIM operator",
    engines=(EngineCapability(name="vllm", gpu_support=True, scale_to_zero=True),),
    # Of the providers that can run a deployment the one whose rules score most gets it. The condition is CEL.
    selection_rules=(SelectionRule(condition="spec.engine.type == 'vllm'", priority=10),),
    upstream=(
        UpstreamKind(
            group=GROUP,
            kind=KIND,
            plural="nimservices",
            versions=("v1alpha1",),
            primary=True,
            deletion="Foreground",
            containers=("spec",),  # the guard of the provider's account looks there
        ),
    ),
    pod_labels=("app.kubernetes.io/instance",),  # what the operator puts onto its pods, with the object's name
    settings=Settings,
    installation=Installation(description="Install NVIDIA's NIM operator", default_namespace="nim-operator"),
)

# One way of writing the kind, and the schemas that it fits: `airunway provider schema FILE` prints a CRD's hashes.
TRANSFORMERS = (Transformer(name="v1alpha1", api_version=f"{GROUP}/v1alpha1", schema_hashes=("4af38dd2dc9d",)),)


def can_handle(deployment: ModelDeployment, context: Context[Settings]) -> Compatibility:
    """Every field that changes what runs and cannot be honoured is a blocker; what merely has no effect, a warning."""
    started = _launch(deployment, context)
    return Compatibility(
        blockers=(*started.blockers, *_blockers(deployment, context)),
        warnings=(*started.warnings, *pod_findings(deployment)),
    )


def _blockers(deployment: ModelDeployment, context: Context[Settings]) -> Iterator[Finding]:
    spec = deployment.spec
    if spec.resources.gpu.count == 0:
        yield blocker("spec.resources.gpu.count", f"a {KIND} runs on GPUs: set spec.resources.gpu.count to 1 or more")
    security = spec.security_context
    nowhere = {
        "spec.serving.mode": spec.serving.mode != "aggregated",
        "spec.model.storage.volumes": spec.model.storage.volumes,
        "spec.model.cache.mode": spec.model.cache.mode != "None",
        "spec.securityContext": security.run_as_non_root or security.run_as_user or security.read_only_root_filesystem,
        "spec.image": re.search(r"[^\w./:-]", _launch(deployment, context).image),
    }
    for path in (path for path, given in nowhere.items() if given):
        yield blocker(path, f"a {KIND} has no place for what {path} says: leave it out")


def translate_spec(deployment: ModelDeployment, context: Context[Settings]) -> list[Resource]:
    """The objects, the primary one first. The runtime adds namespace, owner and labels."""
    started = _launch(deployment, context)
    server: Resource = {
        "apiVersion": context.upstream.api_version,
        "kind": KIND,
        "metadata": {"name": deployment.metadata.name},
        "spec": {
            "replicas": deployment.spec.scaling.replicas,
            "image": {
                "repository": started.image.removesuffix(f":{tag_of(started.image)}"),
                "tag": tag_of(started.image) or "latest",
            },
            "command": list(started.command),
            "args": list(started.args),
            "env": environment(deployment, context, started),
            "resources": container_resources(sizing(deployment)),
            "nodeSelector": dict(deployment.spec.node_selector),
            "tolerations": [each.to_resource() for each in deployment.spec.tolerations],
            "authSecret": context.settings.auth_secret,
            "labels": pod_labels(deployment),
            "annotations": dict(deployment.spec.pod_template.metadata.annotations),
        },
    }
    return [server]


def translate_status(deployment: ModelDeployment, observed: Observed, context: Context[Settings]) -> Observation:
    """How it is, in the upstream's own words. Total: any JSON in the status gives an answer."""
    server = observed.primary or {}
    condition = conditions.condition(server, "Ready")
    # A condition keeps its old word for a while; the state is written last.
    ready = conditions.truth(server, "Ready") is True and conditions.text(server, "status", "state") == "Ready"
    reason = "Ready" if ready else conditions.text(condition, "reason") or "Starting"
    message = conditions.text(condition, "message")
    serving = max(0, conditions.number(server, "status", "availableReplicas"))
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
