"""`--watch-namespaces`: core and provider get by with Roles in two namespaces and names of what is cluster-wide."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from airunway.controller.application import CoreSettings
from airunway.controller.policies import PolicyFile
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, condition_of, dig
from airunway.runtime.application import ProviderSettings
from airunway_testing.controlplane import Cluster
from airunway_testing.eventually import PATIENCE
from airunway_testing.fixtures import Kubectl
from airunway_testing.operator import running_core, running_provider, running_simulator, until

pytestmark = pytest.mark.apiserver

ALL = ["get", "list", "watch", "create", "update", "patch", "delete"]


def rights(user: str, namespaces: list[str]) -> str:
    """A Role in each namespace, and the cluster-wide kinds that no Role can grant, the namespaces by name."""
    subject = {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
    rbac = "rbac.authorization.k8s.io/v1"
    inside = [
        {"apiGroups": ["airunway.ai"], "resources": ["modeldeployments", "modeldeployments/status"], "verbs": ALL},
        {"apiGroups": ["airunway.ai"], "resources": ["runtimeconfigs", "runtimeconfigs/status"], "verbs": ALL},
        {"apiGroups": ["airunway.ai"], "resources": ["modeltemplates"], "verbs": ["list", "watch"]},
        {"apiGroups": ["kaito.sh"], "resources": ["workspaces", "inferencesets"], "verbs": ALL},
        {"apiGroups": ["", "events.k8s.io"], "resources": ["configmaps", "events", "services"], "verbs": ALL},
        {"apiGroups": ["", "apps", "batch"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
    ]
    outside = [
        {
            "apiGroups": ["airunway.ai"],
            "resources": ["inferenceproviderconfigs", "inferenceproviderconfigs/status", "clusterruntimeconfigs"],
            "verbs": ALL,
        },
        {"apiGroups": ["airunway.ai"], "resources": ["clustermodeltemplates"], "verbs": ["list", "watch"]},
        {
            "apiGroups": ["apiextensions.k8s.io"],
            "resources": ["customresourcedefinitions"],
            "verbs": ["get", "list", "watch"],
        },
        {
            "apiGroups": [""],
            "resources": ["namespaces"],
            "resourceNames": namespaces,
            "verbs": ["get", "list", "watch"],
        },
    ]
    made: list[Resource] = [
        {"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": user}, "rules": outside},
        {
            "apiVersion": rbac,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": user},
            "subjects": [subject],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
        },
    ]
    for namespace in namespaces:
        metadata = {"name": user, "namespace": namespace}
        made += [
            {"apiVersion": rbac, "kind": "Role", "metadata": metadata, "rules": inside},
            {
                "apiVersion": rbac,
                "kind": "RoleBinding",
                "metadata": metadata,
                "subjects": [subject],
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user},
            },
        ]
    return yaml.safe_dump_all(made)


async def test_roles_in_the_watched_namespaces_are_enough(
    control_plane: Cluster,
    kubeconfig: Path,
    client: Client,
    kubectl: Kubectl,
    installed: None,
    kaito: ProviderHost,
    manifest: Callable[..., Resource],
    namespace: str,
    tmp_path: Path,
) -> None:
    watched = [namespace, f"{namespace}-b"]
    other = f"{namespace}-c"
    for name in (watched[1], other):
        kubectl("create", "namespace", name)
    user = f"operator-{namespace}"
    kubectl("apply", "-f", "-", stdin=rights(user, watched))
    limited = control_plane.kubeconfig_for(user)
    policy = tmp_path / "policy.yaml"
    policy.write_text(yaml.safe_dump({"default": "Deny", "rules": [{"namespaceSelector": {}, "providers": ["kaito"]}]}))
    names = tuple(watched)
    core = CoreSettings(namespaces=names, policy=PolicyFile(policy))
    async with (
        running_core(limited, settings=core),
        running_provider(limited, kaito, settings=ProviderSettings(namespaces=names)),
        running_simulator(kubeconfig, kaito, level="api"),
    ):
        for where in (*watched, other):
            obj = manifest()
            obj["metadata"]["namespace"] = where
            await client.create(MODEL_DEPLOYMENT, obj)
        for where in watched:
            key = ObjectKey(where, "gemma")
            await until(client, key, lambda live: dig(live, "status", "phase") == "Running", what="Running")
        elsewhere = await client.get(MODEL_DEPLOYMENT, ObjectKey(other, "gemma"))
        assert condition_of(elsewhere, "Validated") is None
        for where in watched:
            await client.delete(MODEL_DEPLOYMENT, ObjectKey(where, "gemma"))
        async with asyncio.timeout(PATIENCE):
            while any(key.namespace in names for key in await existing(client)):
                await asyncio.sleep(0.05)
    kubectl("delete", "namespace", watched[1], other, "--wait=false")
    kubectl("delete", "clusterrole,clusterrolebinding", user)


async def existing(client: Client) -> list[ObjectKey]:
    return [
        ObjectKey(obj["metadata"]["namespace"], obj["metadata"]["name"])
        for obj in await client.list_all(MODEL_DEPLOYMENT)
    ]
