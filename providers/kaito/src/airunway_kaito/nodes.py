"""Which nodes and machines a deployment may ask KAITO for: what the administrator decides, and what is another's."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from airunway.sdk import Finding, ModelDeployment, blocker, dig
from airunway_kaito.plan import NODES_OF, Plan

__all__ = ["node_blockers"]

_SYSTEM_DOMAINS = ("kubernetes.io", "k8s.io")
_CHOOSABLE = frozenset(
    {
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    }
)
"""Labels of Kubernetes' own that say where or what a new node shall be, and give it no role."""


def node_blockers(deployment: ModelDeployment, plan: Plan) -> Iterator[Finding]:
    """Overrides of the administrator's machines; and, where KAITO makes nodes, labels that are not the user's to give.

    KAITO puts the labels that it selects nodes by on the nodes that it makes.
    """
    at = "spec.provider.overrides.resource"
    overrides = deployment.spec.provider.overrides
    wanted = dig(overrides, "resource", "instanceType")
    if isinstance(wanted, str) and plan.needs_instance_type and not _is_allowed(deployment, plan, wanted):
        yield blocker(f"{at}.instanceType", _other_machine(plan, wanted), "InvalidOverride")
    if not plan.settings.provisions_nodes:
        return
    labels = dig(overrides, "resource", "labelSelector", "matchLabels", default={})
    for key in deployment.spec.node_selector:
        if text := _not_for_new_nodes(key):
            yield blocker(f"spec.nodeSelector[{key}]", text)
    for key in labels if isinstance(labels, dict) else ():
        if text := _not_for_new_nodes(key):
            yield blocker(f"{at}.labelSelector.matchLabels[{key}]", text, "InvalidOverride")


def _is_allowed(deployment: ModelDeployment, plan: Plan, wanted: str) -> bool:
    settings = plan.settings
    configured = settings.instance_type if deployment.spec.resources.gpu.count else settings.cpu_instance_type
    if not configured and not settings.instance_types:
        return True
    return wanted == configured or any(fnmatchcase(wanted, pattern) for pattern in settings.instance_types)


def _other_machine(plan: Plan, wanted: str) -> str:
    known = ", ".join(filter(None, (plan.instance_type, *plan.settings.instance_types)))
    return (
        f"{wanted:.100} is none of the machines that this cluster allows ({known:.300}): leave it out, or have an "
        "administrator add it to the provider setting instanceTypes"
    )


def _not_for_new_nodes(key: str) -> str:
    """Why a deployment must not give new nodes that label; empty if it may."""
    if key == NODES_OF:
        return f"{key} says which deployment a node was made for, and is set by the provider: remove it"
    if key in ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"):
        return f"{key} is decided by spec.provider.overrides.resource.instanceType where KAITO makes nodes: set that"
    domain = key.partition("/")[0] if "/" in key else ""
    system = any(domain == name or domain.endswith(f".{name}") for name in _SYSTEM_DOMAINS)
    if system and key not in _CHOOSABLE:
        return f"{key} would become a label of the nodes that KAITO makes, and is Kubernetes' own: remove it"
    return ""
