"""What the provider may do is what it uses."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from tests.dynamo.conftest import BETA, CLIQUE, grove_installed

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client
from airunway.plugins.host import ProviderHost
from airunway.runtime.access import provider_rights
from airunway_testing.audit import AuditReader, Request
from airunway_testing.expectations import plan_says, running_at
from airunway_testing.operator import Deploy, gone, until
from airunway_testing.rights import unused
from airunway_testing.stage import Stage

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]

NOT_SEEN = {
    ("update", "modeldeployments/finalizers"): "asked for inside the API server, by the admission plugin for owners",
    **{("get", kind): "only where one is refused its pods" for kind in ("replicasets", "statefulsets", "deployments")},
    ("get", "jobs"): "the same",
}
"""Rights that are needed, and that the audit log of this life cannot show; leases are the process's."""


async def test_the_rights_are_used_and_are_enough(
    stage: Stage, client: Client, dynamo: ProviderHost, deploy: Deploy, audit_log: Path
) -> None:
    rights, seen = provider_rights(dynamo.manifest), list[Request]()
    written = {resource for rule in rights.watched for resource in rule["resources"] if "patch" in rule["verbs"]}
    assert "dynamographdeployments" in written
    assert not written & {"dynamocomponentdeployments", "podcliques", "pods", "secrets", "services"}
    everything = [resource for rule in (*rights.watched, *rights.cluster) for resource in rule["resources"]]
    assert "secrets" not in everything
    assert "*" not in everything
    audit = AuditReader(audit_log)
    async with grove_installed(client):
        user = await stage.provider(dynamo)
        key = await deploy()
        await until(client, key, running_at(1))
        for framework in ("sglang", "trtllm"):  # set back, and said once more
            await client.merge_patch(BETA, key, {"spec": {"backendFramework": framework}}, manager="somebody")
            await stage.exists(BETA, key, lambda graph: graph["spec"]["backendFramework"] == "vllm")
        for plan_only in ("true", None):
            annotated = {"metadata": {"annotations": {"airunway.ai/dry-run": plan_only}}}
            await client.merge_patch(MODEL_DEPLOYMENT, key, annotated, manager="user")
            generation = await stage.edit(key, engine={"contextLength": 4096})
            if plan_only:
                await until(client, key, plan_says("update DynamoGraphDeployment 'llama'"))
        await until(client, key, running_at(generation))
        await until(client, key, running_at(await stage.edit(key, model={"id": "o/another"})))
        await client.delete(MODEL_DEPLOYMENT, key)
        await gone(client, BETA, key)
        await gone(client, MODEL_DEPLOYMENT, key)

        def left() -> list[str]:
            mine = [request for request in seen if request.user == user]
            return [right for right in unused(rights, mine, rare=NOT_SEEN) if "leases" not in right]

        with suppress(TimeoutError):
            async with asyncio.timeout(30):  # repetitions of an event are written after ten seconds
                while True:
                    seen += audit.read(watches=True)
                    if not left():
                        break
                    await asyncio.sleep(0.2)
    assert left() == [], left()
    assert stage.refused() == []
    assert await client.is_served(CLIQUE) is False
