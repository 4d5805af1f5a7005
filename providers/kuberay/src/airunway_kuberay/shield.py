"""Protects a Ray cluster: its dashboard, client port and control store execute any code they receive.

Ray has no authentication by default (CVE-2023-48022): any pod in the Kubernetes cluster could run code in a head, with
its token, ServiceAccount and GPUs. A token prevents that if KubeRay and the image's Ray support it. Otherwise a
NetworkPolicy does, if the cluster's network enforces it. Without either, the deployment is refused unless a setting
allows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from airunway.sdk import (
    SERVING_PORT,
    Context,
    Finding,
    ModelDeployment,
    Resource,
    blocker,
    dig,
    labels,
    overridden,
    pod_specs,
    version_in,
)
from airunway_kuberay.manifest import SHIELDED, TOKENS
from airunway_kuberay.releases import TOKENS_SINCE
from airunway_kuberay.settings import Settings

_RAY = "ray.io/is-ray-node"
"""A label that KubeRay adds to each of its pods."""

_VARIABLES = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_ENABLE_K8S_TOKEN_AUTH")
"""Variables for Ray's authentication, which KubeRay sets."""


class Shield(Enum):
    """How a Ray cluster is protected; `NONE` if it is not."""

    TOKEN = "token"
    POLICY = "policy"
    NONE = "none"


def shield_of(context: Context[Settings], version: str) -> Shield:
    """The protection of a cluster with that version of Ray (empty: unknown)."""
    if not context.has(SHIELDED):
        return Shield.NONE
    found = version_in(version)
    if context.has(TOKENS) and found is not None and found >= TOKENS_SINCE:
        return Shield.TOKEN
    return Shield.POLICY if context.settings.network_policy != "Never" else Shield.NONE


def network_policy(deployment: ModelDeployment, context: Context[Settings], shield: Shield) -> Resource | None:
    """The NetworkPolicy for the deployment's pods, or None if none is needed.

    The serving port is open to all; all other ports are open only to these pods and to KubeRay's operator.
    """
    if shield is not Shield.POLICY and not (context.has(SHIELDED) and context.settings.network_policy == "Always"):
        return None
    own = {"matchLabels": {labels.MODEL_DEPLOYMENT: deployment.metadata.name}}
    operator = {"matchLabels": {"kubernetes.io/metadata.name": context.settings.operator_namespace}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": f"{deployment.metadata.name}-ray"},
        "spec": {
            "podSelector": {"matchLabels": {**own["matchLabels"], _RAY: "yes"}},
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [{"podSelector": own}, {"namespaceSelector": operator}]},
                {"ports": [{"protocol": "TCP", "port": SERVING_PORT}]},
            ],
        },
    }


def shield_findings(
    deployment: ModelDeployment, context: Context[Settings], version: str
) -> Iterator[tuple[bool, Finding]]:
    """Blockers (True) and warnings (False) about access to the Ray cluster."""
    shield = shield_of(context, version)
    if not context.has(SHIELDED):
        text = (
            "any pod of this Kubernetes cluster can run code in this Ray cluster: its dashboard asks for no password "
            f"(CVE-2023-48022). A new value of the annotation {labels.ADOPT} writes it with a token or a "
            "NetworkPolicy; that starts a second Ray cluster beside this one"
        )
        yield False, Finding(path="spec.provider.name", reason="RayIsOpen", message=text)
        return
    yield from _weakened(deployment, context)
    if shield is Shield.POLICY:
        text = (
            f"{_why(context, version)}: a NetworkPolicy keeps other pods away from it, where the network of this "
            "Kubernetes cluster keeps to NetworkPolicies"
        )
        yield False, Finding(path="spec.provider.name", reason="ShieldedByNetworkPolicy", message=text)
    elif shield is Shield.NONE:
        refused = context.settings.open_clusters != "Allow"
        text = (
            f"{_why(context, version)}, and the provider setting networkPolicy is Never: any pod could run code in it "
            "(CVE-2023-48022). "
        )
        remedy = "Use an image with Ray 2.52 or newer and KubeRay 1.5.1 or newer, or the setting networkPolicy"
        found = Finding(path="spec.provider.name", reason="RayIsOpen", message=text + remedy)
        yield refused, found


def _why(context: Context[Settings], version: str) -> str:
    if not context.has(TOKENS):
        return "this KubeRay is older than 1.5.1 and cannot have Ray ask for a token"
    return f"Ray {version or 'of an unknown version'} cannot ask for a token, which needs 2.52"


def _variables_in(live: Resource | None) -> Iterator[str]:
    """The names of the variables of all containers of a live object."""
    for spec in pod_specs(live):
        for container in dig(spec, "containers") or ():
            yield from (str(dig(entry, "name")) for entry in dig(container, "env") or ())


def _weakened(deployment: ModelDeployment, context: Context[Settings]) -> Iterator[tuple[bool, Finding]]:
    """Findings about settings that would remove the protection: authentication variables, also of the runtime config,
    and Ray's ports on the open one. Variables of a config that a live object has already are a warning: an upgrade must
    not stop it.
    """
    there = set(_variables_in(context.live))
    for position, entry in enumerate(deployment.spec.env):
        if entry.name in _VARIABLES:
            text = f"{entry.name} says who may use the Ray cluster; KubeRay sets it: remove it"
            yield True, blocker(f"spec.env[{position}]", text)
    for name in sorted({str(entry.get("name")) for entry in context.runtime.env} & {*_VARIABLES}):
        text = (
            f"{name}, which the runtime config has, says who may use the Ray cluster; KubeRay sets it: have it removed "
            "from the runtime config"
        )
        if name in there:
            text += f", then give the deployment's annotation {labels.ADOPT} a new value: its pods have it"
            yield False, Finding(path="spec.env", reason="RayIsOpen", message=text)
        else:
            yield True, blocker("spec.env", text)
    given = dig(overridden(deployment, "head"), "rayStartParams")
    for name, value in (given if isinstance(given, dict) else {}).items():
        if "port" in name and str(SERVING_PORT) in str(value).split(","):
            path = f"spec.provider.overrides.head.rayStartParams[{name}]"
            yield (
                True,
                blocker(path, f"port {SERVING_PORT} is open to all pods, and serves the model: take another one"),
            )
