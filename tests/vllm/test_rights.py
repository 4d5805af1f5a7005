"""The provider with the rights of docs/reference/vllm-roles.yaml: nothing that it does is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import DEPLOYMENT, Client
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey
from airunway.runtime.access import provider_rights
from airunway_testing.audit import AuditReader
from airunway_testing.controlplane import Cluster
from airunway_testing.expectations import running_at
from airunway_testing.operator import gone, install_definitions, remove_leftovers, running_core, running_provider, until
from airunway_testing.rights import granted

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


async def test_its_rights_are_enough_for_a_models_life(
    cluster: Cluster, kubeconfig: Path, client: Client, namespace: str, vllm: ProviderHost, audit_log: Path
) -> None:
    user = f"system:serviceaccount:{namespace}:airunway-provider-vllm"
    await install_definitions(client)
    await remove_leftovers(client)
    key = ObjectKey(namespace, "llama")
    spec = {"model": {"id": "o/m"}, "resources": {"gpu": {"count": 1}}, "provider": {"name": "vllm"}}
    body = {
        "apiVersion": MODEL_DEPLOYMENT.api_version,
        "kind": MODEL_DEPLOYMENT.kind,
        "metadata": {"name": key.name, "namespace": namespace},
        "spec": spec,
    }
    audit = AuditReader(audit_log)
    async with (
        granted(client, provider_rights(vllm.manifest), user=user, namespace=namespace),
        running_core(kubeconfig),
        running_provider(cluster.kubeconfig_for(user), vllm),
    ):
        await client.create(MODEL_DEPLOYMENT, body)
        await until(client, key, running_at(1))
        await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"image": "registry.example/o:1"}}, manager="tests")
        await until(client, key, running_at(2))
        # A new model is a new object: announced, taken away, made.
        await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"model": {"id": "o/n"}}}, manager="tests")
        await until(client, key, running_at(3))
        await client.delete(MODEL_DEPLOYMENT, key)
        await gone(client, MODEL_DEPLOYMENT, key)
        await gone(client, DEPLOYMENT, key)
    ours = [request for request in audit.read() if request.user == user]
    assert len(ours) > 10
    assert [f"{r.verb} {r.resource} {r.namespace}/{r.name}" for r in ours if r.code == 403] == []
