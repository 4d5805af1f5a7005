"""Deployments under a runtime config, and what a pass of the toy provider decides after one of the core."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from core.tests.runtime.views import NOW, core_pass, state, stored

from airunway.configs.resolution import Resolution, resolve
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource, annotations_of, dig, format_time, labels_of
from airunway.runtime.plan import Decision, decide
from airunway.runtime.state import ClusterState
from airunway.sdk import NoSettings

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
ABSENT = Resolution(name="gpu", config=None, missing=True)


def view(
    host: ProviderHost,
    deployment: Resource,
    found: Resolution,
    *live: Resource,
    served: bool = True,
    granted: Collection[str] = (),
    **how: Any,
) -> ClusterState:
    """What the provider sees after a pass of the core under that config; what lives has `served`, and serves."""
    status = dict(deployment["status"])
    if live and served:
        condition = {"type": "Served", "status": "True", "lastTransitionTime": format_time(NOW)}
        status = {"replicas": {"ready": 1}, **status, "conditions": [*status["conditions"], condition]}
        deployment = {**deployment, "status": status}
    ours = core_pass(host, deployment, *live, resolution=found, granted=granted)
    types = {each["type"] for each in ours["conditions"]}
    conditions = [*(each for each in status["conditions"] if each["type"] not in types), *ours["conditions"]]
    after = {**deployment, "status": {**status, "revision": {}, **ours, "conditions": conditions}}
    return state(host, after, *live, **how)


def decided(host: ProviderHost, deployment: Resource, found: Resolution, *live: Resource, **how: Any) -> Decision:
    return decide(view(host, deployment, found, *live, **how), host, settings=NoSettings())


def live(host: ProviderHost, deployment: Resource, found: Resolution) -> Resource:
    """What was made of the deployment under that config, as the API server has it."""
    return stored(decided(host, deployment, found).objects[0], says="Starting")


def pending(state: ClusterState) -> list[str]:
    """What waits, by name."""
    found: list[str] = dig(state.deployment, "status", "revision", "pending", "changes", default=[])
    return found


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
