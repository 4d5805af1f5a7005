"""Facts for the tests of routing: deployments, Gateways, routes as gateways answer them."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from airunway.api import names
from airunway.configs.resolution import EffectiveConfig, Scope
from airunway.owned.objects import complete, our_labels
from airunway.resource import ObjectKey, Resource, annotations_of
from airunway.routing.decision import Decision, decide
from airunway.routing.intent import MARK, Facts, Flags

UID = "12345678-90ab"
ENGINE: Resource = {"name": "vllm", "pathRouting": True, "gateway": {"endpointPicker": {}}}
PLAIN: Resource = {"name": "vllm", "pathRouting": True}
NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
EPP = "ghcr.io/llm-d/llm-d-router-endpoint-picker:v0.10.0"
FLAGS = Flags(epp_image=EPP)
SELECTOR = "airunway.ai/model-deployment=llama,airunway.ai/component=server"


def deployment(name: str = "llama", namespace: str = "ml", **parts: Any) -> Resource:
    """A validated deployment that serves on a Service; `parts` replace keys of spec (gateway, model, …) or status."""
    status = parts.pop("status", {})
    metadata = parts.pop("metadata", {})
    return {
        "apiVersion": "airunway.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": UID,
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            **metadata,
        },
        "spec": {"model": {"id": "org/Llama-8B", "source": "huggingface"}, **parts},
        "status": {
            "conditions": [{"type": "Validated", "status": "True", "observedGeneration": 1}],
            "endpoint": {"service": name, "port": 80, "targetPort": 8000},
            "selector": SELECTOR,
            **status,
        },
    }


def asked(**more: Any) -> Resource:
    """``spec.gateway`` that asks for a route."""
    return {"enabled": True, **more}


def gateway(name: str = "gw", namespace: str = "infra", **parts: Any) -> Resource:
    """A Gateway that is programmed, with one open listener for HTTP."""
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": parts.pop("labels", {})},
        "spec": {
            "gatewayClassName": "envoy",
            "listeners": parts.pop("listeners", [listener()]),
        },
        "status": parts.pop(
            "status",
            {
                "addresses": [{"type": "IPAddress", "value": "10.0.0.7"}],
                "conditions": [
                    {"type": "Accepted", "status": "True", "reason": "Accepted"},
                    {"type": "Programmed", "status": "True", "reason": "Programmed"},
                ],
            },
        ),
    }


def listener(name: str = "http", **parts: Any) -> Resource:
    return {
        "name": name,
        "protocol": "HTTP",
        "port": 80,
        "allowedRoutes": {"namespaces": {"from": "All"}},
        **parts,
    }


def config(namespace: str = "ml", name: str = "default", **spec: Any) -> EffectiveConfig:
    return EffectiveConfig(name=name, namespace=namespace, scope=Scope.NAMESPACE, hash="0" * 64, spec=spec)


def facts(obj: Resource | None = None, **parts: Any) -> Facts:
    """Facts of a deployment on a Service, with one Gateway and both APIs."""
    defaults: dict[str, Any] = {
        "engine": PLAIN,
        "gateways": [gateway()],
        "gateway_namespaces": ("infra",),
        "flags": FLAGS,
        "now": NOW,
    }
    return Facts(deployment=obj if obj is not None else deployment(gateway=asked()), **{**defaults, **parts})


def owned(obj: Resource, uid: str = UID, generation: int = 1, namespace: str = "ml") -> Resource:
    """The object as it is in the cluster, controlled by the deployment."""
    owner = {"kind": "ModelDeployment", "metadata": {"name": "llama", "namespace": namespace}}
    written = complete(obj, owner={**deployment(), **owner}, labels=our_labels(owner, MARK))
    metadata = {
        **obj["metadata"],
        "annotations": annotations_of(written),
        "namespace": namespace,
        "generation": generation,
        "labels": {**(obj["metadata"].get("labels") or {}), names.PART: "gateway"},
        "ownerReferences": [{"uid": uid, "controller": True, "kind": "ModelDeployment", "name": "llama"}],
    }
    return {**obj, "metadata": metadata}


def answered(route: Resource, generation: int | None = None, /, **conditions: str) -> Resource:
    """The route with an answer of each parent; `conditions` are ``Accepted="False:Reason:message"``."""
    wanted = {"Accepted": "True:Accepted:", "ResolvedRefs": "True:ResolvedRefs:", **conditions}
    seen = generation if generation is not None else route["metadata"]["generation"]
    found = []
    for type_, text in wanted.items():
        status, reason, message = text.split(":", 2)
        found.append(
            {"type": type_, "status": status, "reason": reason, "message": message, "observedGeneration": seen}
        )
    parents = [
        {"parentRef": ref, "controllerName": "x.io/gateway", "conditions": found} for ref in route["spec"]["parentRefs"]
    ]
    return {**route, "status": {"parents": parents}}


def live_route(base: Facts, **conditions: str) -> Resource:
    """The route that a decision makes, as it is in the cluster once the gateway has answered."""
    return answered(owned(route_of(decide(base))), **conditions)


def objects_of(decision: Decision) -> list[Resource]:
    assert decision.objects is not None
    return list(decision.objects)


def route_of(decision: Decision) -> Resource:
    (found,) = (obj for obj in objects_of(decision) if obj["kind"] == "HTTPRoute")
    return found


def kinds_of(decision: Decision) -> list[str]:
    return [obj["kind"] for obj in objects_of(decision)]


def said(decision: Decision) -> tuple[bool | None, str]:
    """Status and reason of GatewayReady."""
    assert decision.condition is not None
    assert decision.condition.type == "GatewayReady"
    return decision.condition.status, decision.condition.reason


def message(decision: Decision) -> str:
    assert decision.condition is not None
    return decision.condition.message


def matches_of(route: Resource) -> list[str]:
    """Each rule as one word: its path, or header=value."""
    found = []
    for rule in route["spec"]["rules"]:
        (match,) = rule["matches"]
        headers = [f"{entry['name']}={entry['value']}" for entry in match.get("headers", ())]
        found.append(headers[0] if headers else match["path"]["value"])
    return found


def words(text: str) -> set[str]:
    return set(re.findall(r"[\w./-]+", text))


def with_pool(obj: Resource | None = None, **parts: Any) -> Facts:
    return facts(obj, **{"engine": ENGINE, **parts})


def serving(base: Facts, **conditions: str) -> Facts:
    """The same facts once everything that the decision makes exists and the gateway has answered."""
    made = {obj["kind"]: owned(obj) for obj in objects_of(decide(base))}
    picker = made.get("Deployment")
    if picker is not None:
        picker = {
            **picker,
            "status": {
                "observedGeneration": 1,
                "replicas": 1,
                "readyReplicas": 1,
                "updatedReplicas": 1,
                "availableReplicas": 1,
            },
        }
    route = made.get("HTTPRoute")
    return replace(
        base,
        route=answered(route, **conditions) if route is not None else base.route,
        pool=made.get("InferencePool", base.pool),
        picker=picker,
    )


def at(base: Facts, obj: Resource) -> Facts:
    return replace(base, deployment=obj)


GW = ObjectKey("infra", "gw")
NAMELESS: Resource = {"source": "custom"}
PATH, NAME = f"/ml/{deployment()['metadata']['uid']}", "X-Gateway-Model-Name=Llama-8B"
