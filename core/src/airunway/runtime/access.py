"""What the provider runtime needs to be allowed, besides the rules that each plugin names: data, for charts and tests.

Every rule is for the whole cluster, or for each watched namespace, as the installation is. Secrets are not among them.
"""

from __future__ import annotations

from airunway.api import names
from airunway.resource import Resource

__all__ = ["RUNTIME_RBAC"]

_LOOK = ["get", "list", "watch"]

RUNTIME_RBAC: tuple[Resource, ...] = (
    # Deployments: their status is ours to write; of the object itself only finalizers are touched.
    {"apiGroups": [names.GROUP], "resources": ["modeldeployments"], "verbs": [*_LOOK, "patch"]},
    {"apiGroups": [names.GROUP], "resources": ["modeldeployments/status"], "verbs": ["patch"]},
    # Making an object that blocks its owner's deletion needs this where the admission plugin for it is on.
    {"apiGroups": [names.GROUP], "resources": ["modeldeployments/finalizers"], "verbs": ["update"]},
    # The provider's own registration and heartbeat.
    {"apiGroups": [names.GROUP], "resources": ["inferenceproviderconfigs"], "verbs": ["get", "create", "patch"]},
    {"apiGroups": [names.GROUP], "resources": ["inferenceproviderconfigs/status"], "verbs": ["patch"]},
    # Which upstream is installed, in which version and with which schema.
    {"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": _LOOK},
    # Root causes: what lies behind the upstream's objects. Without these the upstream's own words count alone.
    {"apiGroups": [""], "resources": ["pods", "persistentvolumeclaims"], "verbs": _LOOK},
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": _LOOK},
    {"apiGroups": ["apps"], "resources": ["statefulsets", "replicasets", "deployments"], "verbs": ["get"]},
    # Plans of dry runs (airunway.ai/dry-run) are published in ConfigMaps.
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "patch", "delete"]},
    # Events: warnings are read, our own are written.
    {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": [*_LOOK, "create", "patch"]},
    # Only the leader works.
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update", "patch"]},
)
"""PolicyRules for a ClusterRole; a provider's are these and its manifest's ``rbac_rules``."""
