"""RBAC rules of a process as data, and roles made of them: for charts, tests and hand-written roles.

The part that runs in the process says what it needs (`airunway.controller.access`, `airunway.webhook.rights`); here is
how rights are put together and written as roles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airunway.resource import Resource

__all__ = ["Rights", "leader_election_rights", "roles"]

_RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True, kw_only=True)
class Rights:
    """RBAC rules by where they are needed.

    `cluster`: on kinds without a namespace, which only a ClusterRole can grant. `watched`: in every namespace, or, with
    ``--watch-namespaces``, in those. `own`: in the namespace that the process itself runs in.
    """

    cluster: tuple[Resource, ...] = ()
    watched: tuple[Resource, ...] = ()
    own: tuple[Resource, ...] = ()

    def __add__(self, other: Rights) -> Rights:
        return Rights(
            cluster=self.cluster + other.cluster, watched=self.watched + other.watched, own=self.own + other.own
        )


def leader_election_rights(component: str) -> Rights:
    """With ``--leader-elect``: the one Lease. Creating cannot be limited to a name."""
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
    """Roles and bindings, all called `name`, that give `subject` (of a binding) exactly `rights`.

    `namespace` is where the process runs, `watched` what it watches (empty: everything).
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
