"""The RBAC rules of core, webhook and providers, and the roles that grant them.

Example: ``roles(core_rights(), name="airunway-controller", ...)`` is a ClusterRole and its binding. Only one rule is
about Secrets: the webhook's own Secret, by name, in its namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from airunway.api import names
from airunway.gateway.caches import DESTINATION_RULE, GATEWAY, HTTP_ROUTE, INFERENCE_POOL, PICKER_KINDS
from airunway.kube import (
    CONFIG_MAP,
    CUSTOM_RESOURCE_DEFINITION,
    JOB,
    LEASE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    STORAGE_CLASS,
    Kind,
)
from airunway.plugins.contract import ProviderManifest
from airunway.rbac.policy_rules import RBAC
from airunway.resource import Resource
from airunway.sdk.picker import RULES
from airunway.webhook.cert_rotator import SECRET
from airunway.webhook.configuration import CONFIGURATION_KIND, WebhookSettings

_READ = ["get", "list", "watch"]
_FOLLOW = ["list", "watch"]

_WRITE = ["get", *_FOLLOW, "create", "patch", "delete"]
"""For objects that a part makes: the name of one may be taken by an object that its watch does not show (get)."""


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str], *, named: Sequence[str] = ()) -> Resource:
    """A rule of a role; with `named` it is about the objects of these names only."""
    only = {"resourceNames": list(named)} if named else {}
    return {"apiGroups": [group], "resources": list(resources), **only, "verbs": list(verbs)}


def _ours(resource: str, *verbs: str, named: Sequence[str] = ()) -> Resource:
    return _rule(names.GROUP, [resource], verbs, named=named)


def _of_kind(kind: Kind, verbs: Sequence[str], *, named: Sequence[str] = ()) -> Resource:
    return _rule(kind.group, [kind.plural], verbs, named=named)


_CONFIGS = _ours("runtimeconfigs", *_FOLLOW)
_CLUSTER_CONFIGS = _ours("clusterruntimeconfigs", *_FOLLOW)
_FINALIZERS = _ours("modeldeployments/finalizers", "update")
"""blockOwnerDeletion needs this where the admission plugin OwnerReferencesPermissionEnforcement is on."""


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


ADD_ONS = "airunway.add_ons"
"""Group of the entry points by which distributions describe the account of an add-on, each named as its field manager.
"""


@dataclass(frozen=True, kw_only=True)
class AddOn:
    """The account of a part that is neither the core nor a provider, such as the catalogue."""

    rights: Rights
    """The rights that it needs whatever its options are."""
    guard: Callable[..., Sequence[Resource]]
    """``guard(user, own=, namespaces=, name=)``: its policies and bindings, as `admission_policies.gateway_guard`."""


def core_rights(*, policy: bool = False, namespaces: Sequence[str] = ()) -> Rights:
    """The rights of ``airunway controller``; with `policy` also those to read the labels of namespaces.

    `namespaces` are those that it watches (empty: all).
    """
    cluster = [
        _ours("inferenceproviderconfigs", *_FOLLOW),
        # The condition on a provider's selection rules, and the parameters of its admission policies.
        _ours("inferenceproviderconfigs/status", "patch"),
        _CLUSTER_CONFIGS,
        _ours("clusterruntimeconfigs/status", "patch"),
        _ours("clustermodeltemplates", *_FOLLOW),
    ]
    if policy:
        cluster.append(_rule("", ["namespaces"], _READ, named=sorted(set(namespaces))))
    return Rights(
        cluster=tuple(cluster),
        watched=(
            # Patch: to remove the finalizer of a provider that is gone.
            _ours("modeldeployments", *_FOLLOW, "patch"),
            _ours("modeldeployments/status", "patch"),
            _CONFIGS,
            _ours("runtimeconfigs/status", "patch"),
            _ours("modeltemplates", *_FOLLOW),
            _rule("events.k8s.io", ["events"], ["create", "patch"]),
        ),
    )


def gateway_rights() -> Rights:
    """The rights of the gateway part in addition to `core_rights`, its Lease included (docs/routing.md).

    Gateways are read in all namespaces, whatever is watched: they seldom stand beside the models. Endpoint pickers get
    their rights from one ClusterRole of the installation, and only that one may be bound.
    """
    picker = [names.ENDPOINT_PICKER_ROLE]
    return Rights(
        cluster=(
            _of_kind(GATEWAY, _FOLLOW),
            # Those whose Gateways may be chosen without being named, by their label.
            _rule("", ["namespaces"], _FOLLOW),
            # To report that it is missing, with the command, before a picker is made.
            _rule(RBAC, ["clusterroles"], ["get"], named=picker),
        ),
        watched=(
            *(_of_kind(kind, _WRITE) for kind in (HTTP_ROUTE, INFERENCE_POOL, DESTINATION_RULE, *PICKER_KINDS)),
            _rule(RBAC, ["clusterroles"], ["bind"], named=picker),
            _FINALIZERS,
        ),
    ) + leader_election_rights(names.GATEWAY_MANAGER)


def model_cache_rights() -> Rights:
    """The rights of the model cache part in addition to `core_rights`, its Lease included.

    Secrets are named in Jobs and never read.
    """
    return Rights(
        cluster=(_of_kind(STORAGE_CLASS, _FOLLOW),),
        watched=(
            _ours("modelartifacts", *_WRITE[1:]),
            _ours("modelartifacts/status", "patch"),
            _of_kind(PERSISTENT_VOLUME_CLAIM, _WRITE),
            _of_kind(JOB, _WRITE),
            # Root causes: the pods of its Jobs, and warnings about them and about claims.
            _of_kind(POD, _FOLLOW),
            _rule("events.k8s.io", ["events"], _FOLLOW),
            # As `_FINALIZERS`.
            _rule(names.GROUP, ["modelartifacts/finalizers", "modeldeployments/finalizers"], ["update"]),
        ),
    ) + leader_election_rights(names.MODEL_CACHE_MANAGER)


def picker_role() -> Resource:
    """The ClusterRole of endpoint pickers, one in a cluster; a RoleBinding grants it to each picker."""
    return {
        "apiVersion": f"{RBAC}/v1",
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
    cluster = [_of_kind(CONFIGURATION_KIND, [*_READ, "patch"], named=[settings.configuration])]
    own = [_of_kind(SECRET, [*_READ, "update"], named=[settings.secret])]
    if settings.manage_configuration:
        cluster.append(_of_kind(CONFIGURATION_KIND, ["create"]))
        own.insert(0, _of_kind(SECRET, ["create"]))
    if settings.access_review or settings.access_review_pods:
        cluster.append(_rule("authorization.k8s.io", ["subjectaccessreviews"], ["create"]))
    return Rights(cluster=tuple(cluster), own=tuple(own))


def provider_rights(manifest: ProviderManifest) -> Rights:
    """The rights of ``airunway provider run NAME``, its Lease included.

    The kinds of the manifest give the verbs; ``rbac_rules`` of the manifest are added. What RBAC cannot limit (the
    owner of a ConfigMap, a field, part of a status) is limited by `airunway.rbac.admission_policies`.
    """
    own = [manifest.name]  # an apply carries the name, so RBAC can limit even ``create`` to it
    cluster = [
        _ours("inferenceproviderconfigs", "get", "create", "patch", named=own),
        _ours("inferenceproviderconfigs/status", "patch", named=own),
    ]
    if definitions := sorted(f"{kind.plural}.{kind.group}" for kind in manifest.upstream if not kind.builtin):
        # To detect the version and schema of the installed upstream.
        cluster.append(_of_kind(CUSTOM_RESOURCE_DEFINITION, _FOLLOW, named=definitions))
    kinds = [_rule(kind.group, [kind.plural], _WRITE if kind.write else _FOLLOW) for kind in manifest.upstream]
    if not any((kind.group, kind.plural) == (CONFIG_MAP.group, CONFIG_MAP.plural) for kind in manifest.upstream):
        # Plans of dry runs are published in ConfigMaps, which are not watched.
        kinds.append(_of_kind(CONFIG_MAP, ["get", "create", "patch", "delete"]))
    watched = (
        # Patch: the finalizer; RBAC has no smaller right.
        _ours("modeldeployments", *_FOLLOW, "patch"),
        _ours("modeldeployments/status", "patch"),
        _FINALIZERS,
        # Root causes: pods and volumes of the upstream's objects. Without them only the upstream's status counts.
        _rule("", ["pods", "persistentvolumeclaims"], _FOLLOW),
        _rule("batch", ["jobs"], _READ),
        _rule("apps", ["statefulsets", "replicasets", "deployments"], ["get"]),
        # Events: warnings are read, our own are written.
        _rule("events.k8s.io", ["events"], [*_FOLLOW, "create", "patch"]),
        *kinds,
        *(dict(rule) for rule in manifest.rbac_rules),
    )
    lease = leader_election_rights(names.provider_manager(manifest.name))
    return Rights(cluster=tuple(cluster), watched=watched) + lease


def leader_election_rights(component: str) -> Rights:
    """The Lease of ``--leader-elect``. RBAC cannot limit ``create`` to a name."""
    return Rights(own=(_of_kind(LEASE, ["create"]), _of_kind(LEASE, ["get", "update"], named=[component])))


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
    version = f"{RBAC}/v1"
    reference = {"apiGroup": RBAC, "kind": kind, "name": metadata["name"]}
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
