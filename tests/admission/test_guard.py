"""The policy that keeps provider accounts from changing what is the user's, on a real API server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, Forbidden, load_config
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, dig
from airunway.runtime.access import RUNTIME_RBAC
from airunway.testing.controlplane import Cluster
from airunway.testing.fixtures import Kubectl
from airunway.testing.operator import running_core, running_provider, running_simulator, until
from airunway.webhook.guard import provider_guard

pytestmark = pytest.mark.apiserver

FORBIDDEN: dict[str, Resource] = {
    "spec": {"spec": {"suspend": True}},
    "labels": {"metadata": {"labels": {"team": "mine"}}},
    "annotations": {"metadata": {"annotations": {names.PAUSED: "true"}}},
}


@pytest.fixture
def account(control_plane: Cluster, kubectl: Kubectl, kaito: ProviderHost, namespace: str) -> Iterator[Path]:
    """The kubeconfig of a guarded provider that has the rights which are listed for it."""
    user, guard = f"provider-{namespace}", f"guard-{namespace}"
    version = "rbac.authorization.k8s.io/v1"
    rules = [*RUNTIME_RBAC, *kaito.manifest.rbac_rules]
    role = {"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": user}, "rules": rules}
    kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all([role, *provider_guard([user, "it's\\another"], name=guard)]))
    kubectl("create", "clusterrolebinding", user, f"--clusterrole={user}", f"--user={user}")
    yield control_plane.kubeconfig_for(user)
    kubectl("delete", "validatingadmissionpolicy,validatingadmissionpolicybinding", guard)
    kubectl("delete", "clusterrole,clusterrolebinding", user)


async def in_force(provider: Client, key: ObjectKey) -> None:
    """Return once the API server, which hears of roles and policies by watches, guards that deployment."""
    async with asyncio.timeout(30):
        while True:
            try:
                await provider.merge_patch(MODEL_DEPLOYMENT, key, FORBIDDEN["spec"], dry_run=True)
            except Forbidden as error:
                if "a controller must not change the spec" in error.message:
                    return
            await asyncio.sleep(0.05)


async def test_a_provider_changes_finalizers_and_nothing_of_the_user_s(
    client: Client, installed: None, account: Path, namespace: str, manifest: Callable[..., Resource]
) -> None:
    key = ObjectKey(namespace, "gemma")
    await client.create(MODEL_DEPLOYMENT, manifest())
    async with Client(load_config(kubeconfig=account)) as provider:
        await in_force(provider, key)
        for what, patch in FORBIDDEN.items():
            with pytest.raises(Forbidden, match=f"a controller must not change the {what} of a deployment"):
                await provider.merge_patch(MODEL_DEPLOYMENT, key, patch)
        await provider.merge_patch(MODEL_DEPLOYMENT, key, {"metadata": {"finalizers": ["example.com/held"]}})
        await provider.merge_patch(MODEL_DEPLOYMENT, key, {"status": {"phase": "Running"}}, subresource="status")
        await provider.merge_patch(MODEL_DEPLOYMENT, key, {"metadata": {"finalizers": None}})
    for patch in FORBIDDEN.values():
        await client.merge_patch(MODEL_DEPLOYMENT, key, patch)


async def test_a_guarded_provider_can_do_its_work(
    client: Client,
    installed: None,
    account: Path,
    kubeconfig: Path,
    kaito: ProviderHost,
    namespace: str,
    manifest: Callable[..., Resource],
) -> None:
    key = ObjectKey(namespace, "gemma")
    await client.create(MODEL_DEPLOYMENT, manifest())
    async with Client(load_config(kubeconfig=account)) as provider:
        await in_force(provider, key)
    async with (
        running_core(kubeconfig),
        running_provider(account, kaito),
        running_simulator(kubeconfig, kaito, level="api"),
    ):
        await until(client, key, lambda live: dig(live, "status", "phase") == "Running", what="Running")
        assert (await client.get(MODEL_DEPLOYMENT, key))["metadata"]["finalizers"] == [
            names.provider_finalizer("kaito")
        ]
        await client.delete(MODEL_DEPLOYMENT, key)
        async with asyncio.timeout(60):
            while await client.list_all(MODEL_DEPLOYMENT, namespace=namespace):
                await asyncio.sleep(0.05)
