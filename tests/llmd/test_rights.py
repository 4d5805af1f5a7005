"""The provider with the rights of docs/reference/llmd-roles.yaml: it can grant no more than a picker needs."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
from tests.llmd.test_life import picker

from airunway.kube import Client, Forbidden, Kind, load_config
from airunway.sdk import picker as picker_kit
from airunway_testing.controlplane import Cluster
from airunway_testing.expectations import running_at
from airunway_testing.operator import Deploy, until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

RBAC = "rbac.authorization.k8s.io"
ROLE, BINDING = Kind(RBAC, "v1", "Role", "roles"), Kind(RBAC, "v1", "RoleBinding", "rolebindings")


async def test_it_can_grant_a_picker_its_rights_and_nothing_beyond_them(
    deploy: Deploy, client: Client, cluster: Cluster, account: str
) -> None:
    """Kubernetes' own rule: who makes a Role must have what is in it."""
    key = await deploy()
    await until(client, key, running_at(1))
    role = await client.get(ROLE, picker(key.namespace))
    assert role["rules"] == [dict(rule) for rule in picker_kit.RULES]
    async with AsyncExitStack() as stack:
        own = await stack.enter_async_context(
            Client(load_config(kubeconfig=cluster.kubeconfig_for(account)), user_agent="tests")
        )
        metadata = {"name": "more", "namespace": key.namespace}
        for rule in (
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]},
            {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get"]},
        ):
            body = {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]}
            with pytest.raises(Forbidden, match="attempting to grant RBAC permissions not currently held"):
                await own.apply(ROLE, body, manager="airunway-provider-llmd")
        binding = {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "llama-epp"}],
        }
        with pytest.raises(Forbidden):
            await own.apply(BINDING, binding, manager="airunway-provider-llmd")
