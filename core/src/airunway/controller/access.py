"""The RBAC rules of the core. It reads no Secrets; the webhook's own is in `airunway.webhook.rights`."""

from __future__ import annotations

from collections.abc import Sequence

from airunway.api import names
from airunway.process.rights import Rights
from airunway.resource import Resource

__all__ = ["core_rights"]

_LOOK = ["get", "list", "watch"]


def core_rights(*, policy: bool = False, namespaces: Sequence[str] = ()) -> Rights:
    """The rights of ``airunway controller``; with `policy`, those to read the labels of the namespaces too.

    `namespaces` are those that it watches (empty: all). The selection's rules need no rights: they see the spec.
    """
    cluster: list[Resource] = [
        {"apiGroups": [names.GROUP], "resources": ["inferenceproviderconfigs"], "verbs": ["list", "watch"]},
        # The verdict on a provider's selection rules, and what its guards have to know.
        {"apiGroups": [names.GROUP], "resources": ["inferenceproviderconfigs/status"], "verbs": ["patch"]},
    ]
    if policy:
        labels: Resource = {"apiGroups": [""], "resources": ["namespaces"], "verbs": _LOOK}
        cluster.append({**labels, "resourceNames": sorted(set(namespaces))} if namespaces else labels)
    return Rights(
        cluster=tuple(cluster),
        watched=(
            # Patch: to take off the finalizer of a provider that is not there any more.
            {"apiGroups": [names.GROUP], "resources": ["modeldeployments"], "verbs": ["list", "watch", "patch"]},
            {"apiGroups": [names.GROUP], "resources": ["modeldeployments/status"], "verbs": ["patch"]},
            {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
        ),
    )
