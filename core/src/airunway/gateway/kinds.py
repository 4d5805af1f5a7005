"""The kinds that the gateway part reads and writes, for the Kubernetes client (spec/platform.md, "Routing")."""

from __future__ import annotations

from airunway.kube import Kind
from airunway.routing import GATEWAY_GROUP
from airunway.sdk import picker

__all__ = ["DESTINATION_RULE", "GATEWAY", "HTTP_ROUTE", "INFERENCE_POOL", "OPTIONAL", "PICKER_KINDS"]

GATEWAY = Kind(group=GATEWAY_GROUP, version="v1", kind="Gateway", plural="gateways", namespaced=True)
HTTP_ROUTE = Kind(group=GATEWAY_GROUP, version="v1", kind="HTTPRoute", plural="httproutes", namespaced=True)
INFERENCE_POOL = Kind(
    group=picker.INFERENCE_POOL.group,
    version="v1",
    kind=picker.INFERENCE_POOL.kind,
    plural=picker.INFERENCE_POOL.plural,
    namespaced=True,
)
DESTINATION_RULE = Kind(
    group="networking.istio.io", version="v1", kind="DestinationRule", plural="destinationrules", namespaced=True
)

OPTIONAL = (GATEWAY, HTTP_ROUTE, INFERENCE_POOL, DESTINATION_RULE)
"""Kinds that come and go with their CRDs while the part runs."""

PICKER_KINDS = (
    Kind(group="", version="v1", kind="ServiceAccount", plural="serviceaccounts", namespaced=True),
    Kind(group="rbac.authorization.k8s.io", version="v1", kind="RoleBinding", plural="rolebindings", namespaced=True),
    Kind(group="", version="v1", kind="ConfigMap", plural="configmaps", namespaced=True),
    Kind(group="", version="v1", kind="Service", plural="services", namespaced=True),
    Kind(group="apps", version="v1", kind="Deployment", plural="deployments", namespaced=True),
)
"""Kinds of an endpoint picker's objects besides the pool; every cluster serves them."""
