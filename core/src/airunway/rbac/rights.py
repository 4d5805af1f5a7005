"""The RBAC rules of core, webhook and providers, and the roles that grant them.

Example: ``roles(core_rights(), name="airunway-controller", ...)`` is a ClusterRole and its binding. Only one rule is
about Secrets: the webhook's own Secret, by name, in its namespace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from airunway.api import names
from airunway.gateway.caches import DESTINATION_RULE, GATEWAY, HTTP_ROUTE, INFERENCE_POOL, PICKER_KINDS
from airunway.kube import CONFIG_MAP, JOB, PERSISTENT_VOLUME_CLAIM, POD, STORAGE_CLASS
from airunway.plugins.contract import ProviderManifest
from airunway.resource import Resource
from airunway.sdk.picker import RULES
from airunway.webhook.configuration import CONFIGURATION_KIND, WebhookSettings
from airunway.webhook.secret import SECRET

__all__ = [
    "Rights",
    "core_rights",
    "gateway_rights",
    "leader_election_rights",
    "model_cache_rights",
    "picker_role",
    "provider_rights",
    "roles",
    "webhook_rights",
]

_RBAC = "rbac.authorization.k8s.io"
_READ = ["get", "list", "watch"]
_FOLLOW = ["list", "watch"]

_WRITE = ["get", *_FOLLOW, "create", "patch", "delete"]
"""For objects that a part makes: the name of one may be taken by an object that its watch does not show (get)."""

_CONFIGS: Resource = {"apiGroups": [names.GROUP], "resources": ["runtimeconfigs"], "verbs": _FOLLOW}
_TEMPLATES: Resource = {"apiGroups": [names.GROUP], "resources": ["modeltemplates"], "verbs": _FOLLOW}
_CLUSTER_TEMPLATES: Resource = {"apiGroups": [names.GROUP], "resources": ["clustermodeltemplates"], "verbs": _FOLLOW}
_CLUSTER_CONFIGS: Resource = {"apiGroups": [names.GROUP], "resources": ["clusterruntimeconfigs"], "verbs": _FOLLOW}


@dataclass(frozen=True, kw_only=True)
class Rights:
    """RBAC rules by scope."""

    cluster: tuple[Resource, ...] = ()
    """On cluster-scoped kinds, which only a ClusterRole can grant."""
    watched: tuple[Resource, ...] = ()
    """In every namespace; with ``--watch-namespaces`` in those namespaces."""
    own: tuple[Resource, ...] = ()
    """In the namespace in which the process runs."""

    def __add__(self, other: Rights) -> Rights:
        return Rights(
            cluster=self.cluster + other.cluster, watched=self.watched + other.watched, own=self.own + other.own
        )


def core_rights(*, policy: bool = False, namespaces: Sequence[str] = ()) -> Rights:
    """The rights of ``airunway controller``; with `policy` also those to read the labels of namespaces.

    `namespaces` are those that it watches (empty: all).
    """
    cluster: list[Resource] = [
        {"apiGroups": [names.GROUP], "resources": ["inferenceproviderconfigs"], "verbs": ["list", "watch"]},
        # The condition on a provider's selection rules, and the parameters of its admission policies.
        {"apiGroups": [names.GROUP], "resources": ["inferenceproviderconfigs/status"], "verbs": ["patch"]},
        _CLUSTER_CONFIGS,
        {"apiGroups": [names.GROUP], "resources": ["clusterruntimeconfigs/status"], "verbs": ["patch"]},
        _CLUSTER_TEMPLATES,
    ]
    if policy:
        labels: Resource = {"apiGroups": [""], "resources": ["namespaces"], "verbs": _READ}
        cluster.append({**labels, "resourceNames": sorted(set(namespaces))} if namespaces else labels)
    return Rights(
        cluster=tuple(cluster),
        watched=(
            # Patch: to remove the finalizer of a provider that is gone.
            {"apiGroups": [names.GROUP], "resources": ["modeldeployments"], "verbs": ["list", "watch", "patch"]},
            {"apiGroups": [names.GROUP], "resources": ["modeldeployments/status"], "verbs": ["patch"]},
            _CONFIGS,
            {"apiGroups": [names.GROUP], "resources": ["runtimeconfigs/status"], "verbs": ["patch"]},
            _TEMPLATES,
            {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
        ),
    )


def gateway_rights() -> Rights:
    """The rights of the gateway part in addition to `core_rights`, its Lease included (spec/platform.md, "Routing").

    Gateways are read in all namespaces, whatever is watched: they seldom stand beside the models. Endpoint pickers get
    their rights from one ClusterRole of the installation, and only that one may be bound.
    """
    picker = {"apiGroups": [_RBAC], "resources": ["clusterroles"], "resourceNames": [names.ENDPOINT_PICKER_ROLE]}
    return Rights(
        cluster=(
            {"apiGroups": [GATEWAY.group], "resources": [GATEWAY.plural], "verbs": _FOLLOW},
            # To report that it is missing, with the command, before a picker is made.
            {**picker, "verbs": ["get"]},
        ),
        watched=(
            *(
                {"apiGroups": [kind.group], "resources": [kind.plural], "verbs": _WRITE}
                for kind in (HTTP_ROUTE, INFERENCE_POOL, DESTINATION_RULE, *PICKER_KINDS)
            ),
            {**picker, "verbs": ["bind"]},
            # blockOwnerDeletion needs this where the admission plugin OwnerReferencesPermissionEnforcement is on.
            {"apiGroups": [names.GROUP], "resources": ["modeldeployments/finalizers"], "verbs": ["update"]},
        ),
    ) + leader_election_rights(names.GATEWAY_MANAGER)


def model_cache_rights() -> Rights:
    """The rights of the model cache part in addition to `core_rights`, its Lease included (spec/platform.md, "Model
    cache"). Secrets are named in Jobs and never read.
    """
    return Rights(
        cluster=({"apiGroups": [STORAGE_CLASS.group], "resources": [STORAGE_CLASS.plural], "verbs": _FOLLOW},),
        watched=(
            {"apiGroups": [names.GROUP], "resources": ["modelartifacts"], "verbs": _WRITE[1:]},
            {"apiGroups": [names.GROUP], "resources": ["modelartifacts/status"], "verbs": ["patch"]},
            *(
                {"apiGroups": [kind.group], "resources": [kind.plural], "verbs": _WRITE}
                for kind in (PERSISTENT_VOLUME_CLAIM, JOB)
            ),
            # Root causes: the pods of its Jobs, and warnings about them and about claims.
            {"apiGroups": [POD.group], "resources": [POD.plural], "verbs": _FOLLOW},
            {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": _FOLLOW},
            # blockOwnerDeletion needs this where the admission plugin OwnerReferencesPermissionEnforcement is on.
            {
                "apiGroups": [names.GROUP],
                "resources": ["modelartifacts/finalizers", "modeldeployments/finalizers"],
                "verbs": ["update"],
            },
        ),
    ) + leader_election_rights(names.MODEL_CACHE_MANAGER)


def picker_role() -> Resource:
    """The ClusterRole of endpoint pickers, one in a cluster; a RoleBinding grants it to each picker."""
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": names.ENDPOINT_PICKER_ROLE},
        "rules": [dict(rule) for rule in RULES],
    }


def webhook_rights(settings: WebhookSettings) -> Rights:
    """The rights of the webhook in addition to `core_rights`: its Secret and its configuration by name, and access
    reviews.

    RBAC cannot limit ``create`` to a name. The chart creates both objects, so ``create`` is needed only with
    ``--webhook-manage-configuration``.
    """
    group = CONFIGURATION_KIND.group
    ours: Resource = {
        "apiGroups": [group],
        "resources": [CONFIGURATION_KIND.plural],
        "resourceNames": [settings.configuration],
        "verbs": [*_READ, "patch"],
    }
    secret: Resource = {
        "apiGroups": [SECRET.group],
        "resources": [SECRET.plural],
        "resourceNames": [settings.secret],
        "verbs": [*_READ, "update"],
    }
    cluster, own = [ours], [secret]
    if settings.manage_configuration:
        cluster.append({"apiGroups": [group], "resources": [CONFIGURATION_KIND.plural], "verbs": ["create"]})
        own.insert(0, {"apiGroups": [SECRET.group], "resources": [SECRET.plural], "verbs": ["create"]})
    if settings.access_review or settings.access_review_pods:
        reviews = {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]}
        cluster.append(reviews)
    return Rights(cluster=tuple(cluster), own=tuple(own))


def provider_rights(manifest: ProviderManifest) -> Rights:
    """The rights of ``airunway provider run NAME``, its Lease included.

    The kinds of the manifest give the verbs; ``rbac_rules`` of the manifest are added. What RBAC cannot limit (the
    owner of a ConfigMap, a field, part of a status) is limited by `airunway.rbac.admission_policies`.
    """
    config: Resource = {
        "apiGroups": [names.GROUP],
        "resources": ["inferenceproviderconfigs"],
        "resourceNames": [manifest.name],
        # An apply carries the name, so RBAC can limit even ``create`` to it.
        "verbs": ["get", "create", "patch"],
    }
    definitions = [f"{kind.plural}.{kind.group}" for kind in manifest.upstream if not kind.builtin]
    cluster: list[Resource] = [
        config,
        {**config, "resources": ["inferenceproviderconfigs/status"], "verbs": ["patch"]},
        _CLUSTER_CONFIGS,
    ]
    if definitions:  # to detect the version and schema of the installed upstream
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
        # Patch: the finalizer; RBAC has no smaller right.
        {"apiGroups": [names.GROUP], "resources": ["modeldeployments"], "verbs": [*_FOLLOW, "patch"]},
        {"apiGroups": [names.GROUP], "resources": ["modeldeployments/status"], "verbs": ["patch"]},
        # blockOwnerDeletion needs this where the admission plugin OwnerReferencesPermissionEnforcement is on.
        {"apiGroups": [names.GROUP], "resources": ["modeldeployments/finalizers"], "verbs": ["update"]},
        _CONFIGS,
        # Root causes: pods and volumes of the upstream's objects. Without them only the upstream's status counts.
        {"apiGroups": [""], "resources": ["pods", "persistentvolumeclaims"], "verbs": _FOLLOW},
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", *_FOLLOW]},
        {"apiGroups": ["apps"], "resources": ["statefulsets", "replicasets", "deployments"], "verbs": ["get"]},
        # Events: warnings are read, our own are written.
        {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": [*_FOLLOW, "create", "patch"]},
    )


def _of_the_kinds(manifest: ProviderManifest) -> Iterator[Resource]:
    for kind in manifest.upstream:
        verbs = _WRITE if kind.write else _FOLLOW
        yield {"apiGroups": [kind.group], "resources": [kind.plural], "verbs": verbs}
    if not any((kind.group, kind.plural) == (CONFIG_MAP.group, CONFIG_MAP.plural) for kind in manifest.upstream):
        # Plans of dry runs are published in ConfigMaps, which are not watched.
        plans = ["get", "create", "patch", "delete"]
        yield {"apiGroups": [CONFIG_MAP.group], "resources": [CONFIG_MAP.plural], "verbs": plans}


def leader_election_rights(component: str) -> Rights:
    """The Lease of ``--leader-elect``. RBAC cannot limit ``create`` to a name."""
    group = "coordination.k8s.io"
    return Rights(
        own=(
            {"apiGroups": [group], "resources": ["leases"], "verbs": ["create"]},
            {"apiGroups": [group], "resources": ["leases"], "resourceNames": [component], "verbs": ["get", "update"]},
        )
    )


def roles(
    rights: Rights, *, name: str, namespace: str, subject: Resource, watched: Sequence[str] = ()
) -> list[Resource]:
    """Roles and bindings, all called `name`, that grant `subject` (as in a binding) exactly `rights`.

    `namespace` is that of the process, `watched` the namespaces that it watches (empty: all).
    """
    everywhere = rights.cluster if watched else rights.cluster + rights.watched
    within: dict[str, tuple[Resource, ...]] = dict.fromkeys(watched, rights.watched)
    within[namespace] = within.get(namespace, ()) + rights.own
    made = _role_and_binding(everywhere, {"name": name}, subject, kind="ClusterRole")
    for where, rules in within.items():
        made += _role_and_binding(rules, {"name": name, "namespace": where}, subject, kind="Role")
    return made


def _role_and_binding(rules: Sequence[Resource], metadata: Resource, subject: Resource, *, kind: str) -> list[Resource]:
    if not rules:
        return []
    version = f"{_RBAC}/v1"
    reference = {"apiGroup": _RBAC, "kind": kind, "name": metadata["name"]}
    return [
        {"apiVersion": version, "kind": kind, "metadata": dict(metadata), "rules": [dict(rule) for rule in rules]},
        {
            "apiVersion": version,
            "kind": f"{kind}Binding",
            "metadata": dict(metadata),
            "roleRef": reference,
            "subjects": [dict(subject)],
        },
    ]
