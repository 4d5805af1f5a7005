"""A provider's own registration in trouble."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.faultproxy import Fault, FaultProxy

from airunway.kube import CUSTOM_RESOURCE_DEFINITION, Client
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey
from airunway_testing.eventually import eventually
from airunway_testing.operator import running_provider

pytestmark = pytest.mark.apiserver


async def test_a_leading_provider_is_ready_only_while_it_can_write_its_heartbeat(
    installed: None, client: Client, kubeconfig: Path, kaito: ProviderHost
) -> None:
    async with FaultProxy(kubeconfig) as proxy, running_provider(proxy.kubeconfig, kaito) as provider:
        assert provider.unready() is None
        proxy.inject(Fault("status", status=403, verb="apply", resource="inferenceproviderconfigs", count=None))
        # News of the upstream are written at once, with the next heartbeat.
        name = ObjectKey("", "workspaces.kaito.sh")
        versions = (await client.get(CUSTOM_RESOURCE_DEFINITION, name))["spec"]["versions"]
        for version in versions:
            version["schema"]["openAPIV3Schema"]["properties"]["fromTheFuture"] = {"type": "string"}
        await client.merge_patch(CUSTOM_RESOURCE_DEFINITION, name, {"spec": {"versions": versions}})
        await eventually(lambda: provider.unready() is not None)
        assert "not registered" in str(provider.unready())
        assert "403" in str(provider.unready())
        proxy.clear()
        await eventually(lambda: provider.unready() is None)
