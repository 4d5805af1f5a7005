"""The RBAC rules of the catalogue. The process itself does not import this module."""

from __future__ import annotations

from collections.abc import Sequence

from airunway.api import names
from airunway.kube import JOB, NODE, POD
from airunway.rbac.rights import Rights, leader_election_rights
from airunway_catalogue.names import CATALOGUE_MANAGER
from airunway_catalogue.pull_secrets import SECRET

__all__ = ["catalogue_rules", "source_rights", "template_rights"]

_FOLLOW = ["list", "watch"]


def catalogue_rules(secrets: Sequence[str] = ()) -> Rights:
    """The rights of ``airunway catalogue``, its Lease included.

    Of Secrets it reads these in the operator's namespace (none: registries are asked anonymously).
    """
    return template_rights() + source_rights(secrets)


def template_rights() -> Rights:
    """What the states of templates and discovery need, and the Lease.

    With ``--watch-namespaces`` the operator's namespace is one of the watched ones: Jobs of ClusterModelTemplates are
    there. Logs and Secrets are never read.
    """
    group = names.GROUP
    return Rights(
        cluster=(
            {"apiGroups": [NODE.group], "resources": [NODE.plural], "verbs": _FOLLOW},
            {"apiGroups": [group], "resources": ["clustermodeltemplates", "clusterruntimeconfigs"], "verbs": _FOLLOW},
            {"apiGroups": [group], "resources": ["clustermodeltemplates/status"], "verbs": ["patch"]},
            # blockOwnerDeletion needs this where the admission plugin OwnerReferencesPermissionEnforcement is on.
            {"apiGroups": [group], "resources": ["clustermodeltemplates/finalizers"], "verbs": ["update"]},
        ),
        watched=(
            {
                "apiGroups": [group],
                "resources": ["modelartifacts", "modeldeployments", "modeltemplates", "runtimeconfigs"],
                "verbs": _FOLLOW,
            },
            {"apiGroups": [group], "resources": ["modeltemplates/status"], "verbs": ["patch"]},
            {"apiGroups": [group], "resources": ["modeltemplates/finalizers"], "verbs": ["update"]},
            # Get: the name of a Job may be taken by one that the watch does not show.
            {
                "apiGroups": [JOB.group],
                "resources": [JOB.plural],
                "verbs": ["get", *_FOLLOW, "create", "patch", "delete"],
            },
            # The output of an image is in the status of its pod.
            {"apiGroups": [POD.group], "resources": [POD.plural], "verbs": _FOLLOW},
            {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
        ),
    ) + leader_election_rights(CATALOGUE_MANAGER)


def source_rights(secrets: Sequence[str] = ()) -> Rights:
    """What scans of ModelSources need besides; `secrets` are the pull Secrets that are read, for templates too."""
    group = names.GROUP
    # By name: the webhook's key and other credentials are in that namespace, too.
    pull = {"apiGroups": [SECRET.group], "resources": [SECRET.plural], "resourceNames": [*secrets], "verbs": ["get"]}
    return Rights(
        cluster=(
            # Get: a source may have been edited while its registry was read.
            {"apiGroups": [group], "resources": ["modelsources"], "verbs": ["get", *_FOLLOW]},
            {"apiGroups": [group], "resources": ["modelsources/status"], "verbs": ["patch"]},
            # An apply that makes an object needs both; the guard refuses it every change of one.
            {"apiGroups": [group], "resources": ["clustermodeltemplates"], "verbs": ["create", "patch"]},
        ),
        own=(pull,) if secrets else (),
    )
