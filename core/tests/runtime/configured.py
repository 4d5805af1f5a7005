"""Deployments under a runtime config, and what a pass of the toy provider decides about them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from core.tests.runtime.views import NOW, state

from airunway.configs.resolution import Resolution, resolve
from airunway.plugins.host import ProviderHost, assumed_context
from airunway.plugins.settings import runtime_settings
from airunway.resource import Resource, annotations_of, copy_of, dig, format_time, labels_of
from airunway.runtime.plan import Decision, decide
from airunway.runtime.translate import parsed, translate
from airunway.sdk import NoSettings

MANAGER = "airunway-provider-toy"
OLD: Resource = {"env": [{"name": "A", "value": "1"}]}
NEW: Resource = {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "secret-value"}]}


def written(deployment: Any, context: Any) -> list[Resource]:
    """A Thing that carries the pod settings, as an upstream's pod template does."""
    spec = {
        "image": deployment.spec.image,
        "replicas": deployment.spec.scaling.replicas,
        "model": deployment.spec.model.id,
        "gpus": deployment.spec.resources.gpu.count,
        "env": [dict(entry) for entry in context.runtime.env],
        "podLabels": dict(context.runtime.labels),
        "gateway": context.gateway.name if context.gateway is not None else "",
    }
    metadata = {"name": deployment.metadata.name, "labels": {"airunway.ai/size": "of the translation"}}
    return [{"apiVersion": context.upstream.api_version, "kind": "Thing", "metadata": metadata, "spec": spec}]


def config(name: str = "default", **spec: Any) -> Resolution:
    metadata = {"name": name, "namespace": "ns"}
    return resolve(name, namespaced={"kind": "RuntimeConfig", "metadata": metadata, "spec": spec}, cluster=None)


NONE = Resolution(name="default", config=None)


def published(
    deployment: Resource,
    found: Resolution,
    *,
    served: bool = True,
    granted: bool = False,
    hash_: str | None = None,
    in_effect: Resolution | None = None,
) -> Resource:
    """The deployment with what core (and provider, if it has served) say about it. `in_effect` is the config whose
    settings its pods have, by the provider's status.
    """
    ready = {
        "type": "RuntimeConfigReady",
        "status": "False" if found.missing else "True",
        "reason": "ConfigNotFound" if found.missing else "ConfigFound",
        "message": "No RuntimeConfig 'gpu' exists" if found.missing else "",
        "observedGeneration": deployment["metadata"].get("generation"),
        "lastTransitionTime": format_time(NOW),
    }
    conditions = [*dig(deployment, "status", "conditions", default=[]), ready]
    if served:
        conditions.append(
            {"type": "Served", "status": "True", "lastTransitionTime": format_time(NOW), "observedGeneration": 1}
        )
    status = {**deployment.get("status", {}), "conditions": conditions}
    if found.config is not None:
        status["effectiveRuntimeConfig"] = found.config.status() | ({"rollout": "Granted"} if granted else {})
    if hash_ is not None:
        status["effectiveRuntimeConfig"] = {"hash": hash_}
    if in_effect is not None and in_effect.config is not None:
        status["provider"] = {**status.get("provider", {}), "runtimeConfigHash": in_effect.config.hash}
    return {**deployment, "status": status}


def live(host: ProviderHost, deployment: Resource, found: Resolution, *, records: bool = True) -> Resource:
    """What was made of the deployment under that config, as the API server has it."""
    runtime = runtime_settings(found.config, labels_of(deployment))
    context = replace(assumed_context(host, engine="vllm", now=NOW), runtime=runtime)
    made = translate(host, deployment, parsed(deployment), context, records=records, config=found.config)
    obj = copy_of(made.objects[0])
    fields: Resource = {f"f:{key}": {} for key in obj["metadata"]["annotations"]}
    entry = {
        "manager": MANAGER,
        "operation": "Apply",
        "fieldsV1": {"f:metadata": {"f:annotations": fields}, "f:spec": {}},
    }
    obj["metadata"] |= {
        "uid": "uid-1",
        "creationTimestamp": format_time(NOW - timedelta(hours=1)),
        "managedFields": [{**entry, "apiVersion": obj["apiVersion"]}],
    }
    obj["status"] = {"state": "Starting"}
    return obj


def decided(host: ProviderHost, deployment: Resource, found: Resolution, *objects: Resource, **how: Any) -> Decision:
    return decide(state(host, deployment, *objects, resolution=found, **how), host, settings=NoSettings())


def env_of(decision: Decision) -> list[str]:
    return [entry["name"] for entry in dig(decision.objects[0], "spec", "env")]


def is_as(decision: Decision, obj: Resource) -> bool:
    """Whether what is wanted is what is there: then nothing is written."""
    wanted = decision.objects[0]
    return (wanted["spec"], labels_of(wanted), annotations_of(wanted)) == (
        obj["spec"],
        labels_of(obj),
        annotations_of(obj),
    )
