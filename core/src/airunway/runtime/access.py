"""What a provider needs to be allowed: data, for charts and tests. Secrets are not among it."""

from __future__ import annotations

from collections.abc import Iterator

from airunway.api import names
from airunway.kube import CONFIG_MAP
from airunway.plugins.contract import ProviderManifest
from airunway.process.rights import Rights, leader_election_rights
from airunway.resource import Resource

__all__ = ["provider_rights"]

_FOLLOW = ["list", "watch"]


def provider_rights(manifest: ProviderManifest) -> Rights:
    """The rights of ``airunway provider run NAME``, its Lease included.

    The verbs follow from the manifest's kinds; its own rules are only what is beyond them. What cannot be limited by
    RBAC (whose ConfigMap, which field, which status) is left to the policies in `airunway.webhook.admission_policies`.
    """
    config: Resource = {
        "apiGroups": [names.GROUP],
        "resources": ["inferenceproviderconfigs"],
        "resourceNames": [manifest.name],
        # Of an apply the API server knows the name, so that even creating is limited to it.
        "verbs": ["get", "create", "patch"],
    }
    definitions = [f"{kind.plural}.{kind.group}" for kind in manifest.upstream if not kind.builtin]
    cluster: list[Resource] = [
        config,
        {**config, "resources": ["inferenceproviderconfigs/status"], "verbs": ["patch"]},
    ]
    if definitions:  # which upstream is installed, in which version and with which schema
        cluster.append(
            {
                "apiGroups": ["apiextensions.k8s.io"],
                "resources": ["customresourcedefinitions"],
                "resourceNames": sorted(definitions),
                "verbs": _FOLLOW,
            }
        )
    watched = (*_of_the_runtime(), *_of_the_kinds(manifest), *(dict(rule) for rule in manifest.rbac_rules))
    return Rights(cluster=tuple(cluster), watched=watched) + leader_election_rights(
        names.provider_manager(manifest.name)
    )


def _of_the_runtime() -> tuple[Resource, ...]:
    return (
        # Patch: the finalizer, which has no smaller right.
        {"apiGroups": [names.GROUP], "resources": ["modeldeployments"], "verbs": [*_FOLLOW, "patch"]},
        {"apiGroups": [names.GROUP], "resources": ["modeldeployments/status"], "verbs": ["patch"]},
        # Making an object that blocks its owner's deletion needs this where the admission plugin for it is on.
        {"apiGroups": [names.GROUP], "resources": ["modeldeployments/finalizers"], "verbs": ["update"]},
        # Root causes: what lies behind the upstream's objects. Without these the upstream's own words count alone.
        {"apiGroups": [""], "resources": ["pods", "persistentvolumeclaims"], "verbs": _FOLLOW},
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", *_FOLLOW]},
        {"apiGroups": ["apps"], "resources": ["statefulsets", "replicasets", "deployments"], "verbs": ["get"]},
        # Events: warnings are read, our own are written.
        {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": [*_FOLLOW, "create", "patch"]},
    )


def _of_the_kinds(manifest: ProviderManifest) -> Iterator[Resource]:
    for kind in manifest.upstream:
        verbs = ["get", *_FOLLOW, "create", "patch", "delete"] if kind.write else _FOLLOW
        yield {"apiGroups": [kind.group], "resources": [kind.plural], "verbs": verbs}
    if not any((kind.group, kind.plural) == (CONFIG_MAP.group, CONFIG_MAP.plural) for kind in manifest.upstream):
        # The plans of dry runs are published in ConfigMaps, which nobody follows.
        plans = ["get", "create", "patch", "delete"]
        yield {"apiGroups": [CONFIG_MAP.group], "resources": [CONFIG_MAP.plural], "verbs": plans}
