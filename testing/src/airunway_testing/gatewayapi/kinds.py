"""Kinds of the Gateway API and its neighbours, our minimal CRDs of them, and objects as users write them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources

import yaml

from airunway.kube import Kind
from airunway.resource import Resource, copy_of

GATEWAY_GROUP = "gateway.networking.k8s.io"
POOL_GROUP = "inference.networking.k8s.io"

GATEWAY_CLASS = Kind(GATEWAY_GROUP, "v1", "GatewayClass", "gatewayclasses", namespaced=False)
GATEWAY = Kind(GATEWAY_GROUP, "v1", "Gateway", "gateways")
HTTP_ROUTE = Kind(GATEWAY_GROUP, "v1", "HTTPRoute", "httproutes")
INFERENCE_POOL = Kind(POOL_GROUP, "v1", "InferencePool", "inferencepools")
DESTINATION_RULE = Kind("networking.istio.io", "v1", "DestinationRule", "destinationrules")

CONTROLLER_NAME = "testing.airunway.ai/gateway-controller"
"""`spec.controllerName` of the GatewayClasses that the simulated controller answers."""
CLASS_NAME = "airunway-testing"
"""Name of the GatewayClass that `gateway_class` makes by default."""
MANAGER = "gateway-controller"
"""Field manager of the simulated controller's writes."""
FAULT = "testing.airunway.ai/gateway-fault"
"""Annotation on a Gateway or HTTPRoute: a `Fault` of the simulated controller; that of the route counts first."""


def definitions() -> list[Resource]:
    """Our minimal CRDs of the Gateway API and of the Inference Extension."""
    return _definitions("crds")


def istio_definitions() -> list[Resource]:
    """Our minimal CRD of Istio's DestinationRule, which no test needs that does not play Istio."""
    return _definitions("istio")


def _definitions(folder: str) -> list[Resource]:
    return [copy_of(definition) for definition in _read(folder)]


@cache
def _read(folder: str) -> tuple[Resource, ...]:
    files = (resources.files("airunway_testing.gatewayapi") / folder).iterdir()
    return tuple(
        yaml.load(file.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        for file in sorted(files, key=lambda file: file.name)
    )


def gateway_class(name: str = CLASS_NAME, *, controller: str = CONTROLLER_NAME) -> Resource:
    """A GatewayClass of the simulated controller, or of another one."""
    return {
        "apiVersion": GATEWAY_CLASS.api_version,
        "kind": GATEWAY_CLASS.kind,
        "metadata": {"name": name},
        "spec": {"controllerName": controller},
    }


def listener(name: str = "http", *, port: int = 80, admits: str = "All", hostname: str = "") -> Resource:
    """An HTTP listener; `admits` is `allowedRoutes.namespaces.from`."""
    allowed = {"namespaces": {"from": admits}}
    found = {"name": name, "port": port, "protocol": "HTTP", "allowedRoutes": allowed}
    return {**found, "hostname": hostname} if hostname else found


def gateway(
    name: str,
    namespace: str,
    *,
    listeners: Sequence[Resource] = (),
    class_name: str = CLASS_NAME,
    labels: dict[str, str] | None = None,
    fault: str = "",
) -> Resource:
    """A Gateway; by default with one listener ``http`` on port 80 that admits every namespace."""
    annotations = {"annotations": {FAULT: fault}} if fault else {}
    return {
        "apiVersion": GATEWAY.api_version,
        "kind": GATEWAY.kind,
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}, **annotations},
        "spec": {"gatewayClassName": class_name, "listeners": list(listeners) or [listener()]},
    }
