"""A model's life without an operator: it runs, is changed and broken into.

What it has in common with other providers: tests/test_lives.py.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.deployed_operator import edit
from tests.support.faultproxy import Fault, FaultProxy
from tests.vllm.conftest import BASE, Pods

from airunway.kube import DEPLOYMENT, SERVICE, Client
from airunway.plugins.host import ProviderHost
from airunway.resource import uid_of
from airunway_testing.eventually import PATIENCE
from airunway_testing.expectations import running_at
from airunway_testing.operator import (
    Deploy,
    deployments,
    install_definitions,
    remove_leftovers,
    running_core,
    running_provider,
    until,
)

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


async def test_two_replicas_run_behind_one_service(deploy: Deploy, client: Client, pods: Pods) -> None:
    key = await deploy(env=[{"name": "EMPTY", "value": ""}], scaling={"replicas": 2})
    running = await until(client, key, running_at(1))
    status = running["status"]
    assert (status["provider"]["name"], status["engine"]["type"]) == ("vllm", "vllm")
    assert status["replicas"]["ready"] == 2
    assert (status["endpoint"]["service"], status["endpoint"]["port"]) == (key.name, 8000)
    assert status.get("warnings", []) == []
    assert {pod["spec"]["containers"][0]["image"] for pod in await pods(key)} == {"registry.example/team/vllm:1.0"}
    service = await client.get(SERVICE, key)
    assert service["spec"]["selector"].items() <= (await pods(key))[0]["metadata"]["labels"].items()


async def test_image_and_arguments_change_in_place(deploy: Deploy, client: Client, pods: Pods) -> None:
    key = await deploy()
    await until(client, key, running_at(1))
    uid = (await client.get(DEPLOYMENT, key))["metadata"]["uid"]
    await edit(client, key, {"image": "registry.example/team/vllm:2.0"})
    generation = await edit(client, key, {"engine": {"args": {"seed": "7"}}})
    await until(client, key, running_at(generation))
    (pod,) = await pods(key)
    assert pod["spec"]["containers"][0]["image"] == "registry.example/team/vllm:2.0"
    assert "--seed=7" in pod["spec"]["containers"][0]["args"]
    assert (await client.get(DEPLOYMENT, key))["metadata"]["uid"] == uid


async def test_drift_is_set_right(deploy: Deploy, client: Client) -> None:
    key = await deploy()
    await until(client, key, running_at(1))
    await client.merge_patch(DEPLOYMENT, key, {"spec": {"replicas": 4}}, manager="somebody")
    await client.merge_patch(SERVICE, key, {"spec": {"selector": {"app": "other"}}}, manager="somebody")
    async with asyncio.timeout(PATIENCE):
        while (await client.get(DEPLOYMENT, key))["spec"]["replicas"] != 1:
            await asyncio.sleep(0.05)
    await client.delete(SERVICE, key)
    async with asyncio.timeout(PATIENCE):
        while not (found := await client.list_all(SERVICE, namespace=key.namespace)):
            await asyncio.sleep(0.05)
    assert found[0]["spec"]["selector"]["airunway.ai/component"] == "server"
    await until(client, key, running_at(1))


async def test_what_is_deleted_while_it_is_being_written_is_made_again(
    kubeconfig: Path, client: Client, namespace: str, vllm: ProviderHost
) -> None:
    """The watch tells that the Service is gone before the answer to our own write of it is here."""
    await install_definitions(client)
    await remove_leftovers(client)
    async with (
        FaultProxy(kubeconfig) as proxy,
        running_core(kubeconfig),
        running_provider(proxy.kubeconfig, vllm),
        deployments(client, namespace, BASE) as deploy,
    ):
        key = await deploy()
        await until(client, key, running_at(1))
        written = proxy.count("apply", "services")
        proxy.inject(Fault("late", verb="apply", resource="services", seconds=2.0))
        await client.merge_patch(SERVICE, key, {"spec": {"selector": {"app": "other"}}}, manager="somebody")
        async with asyncio.timeout(PATIENCE):
            while (service := await client.get(SERVICE, key))["spec"]["selector"].get("app") == "other":
                await asyncio.sleep(0.05)
        await client.delete(SERVICE, key, uid=uid_of(service))
        assert proxy.count("apply", "services") == written + 1, "and that one is not answered yet"
        async with asyncio.timeout(PATIENCE):
            while not await client.list_all(SERVICE, namespace=namespace):
                await asyncio.sleep(0.05)
        await until(client, key, running_at(1))


async def test_weights_of_an_image_are_mounted_by_each_pod(deploy: Deploy, client: Client, pods: Pods) -> None:
    weights = {"source": "oci", "id": "acme/llama", "uri": "oci://registry.example/llama:1"}
    key = await deploy(model=weights, scaling={"replicas": 2})
    running = await until(client, key, running_at(1))
    (warning,) = running["status"]["warnings"]
    assert "spec.model.uri: without a digest" in warning
    assert "modelCache" not in running["status"]
    for pod in await pods(key):
        volume = next(each for each in pod["spec"]["volumes"] if each["name"] == "airunway-model-cache")
        assert volume["image"] == {"reference": "registry.example/llama:1", "pullPolicy": "IfNotPresent"}
        mount = next(each for each in pod["spec"]["containers"][0]["volumeMounts"] if each["name"] == volume["name"])
        assert (mount["mountPath"], mount["readOnly"]) == ("/model-cache", True)
    writes = (await client.get(DEPLOYMENT, key))["metadata"]["generation"]
    assert writes == 1, "nothing is written a second time"
