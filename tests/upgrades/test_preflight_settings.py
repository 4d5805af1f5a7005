"""`airunway preflight` where a provider comes with another image, or is given one: what serves keeps its own."""

from __future__ import annotations

import asyncio
import json
from importlib import resources
from pathlib import Path

import pytest
from tests.console import ran

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import DEPLOYMENT, Client, NotFound
from airunway.plugins.registry import load
from airunway.resource import ObjectKey, Resource, dig
from airunway.revisions.revision import is_in_effect
from airunway.runtime.application import ProviderSettings
from airunway.status.conditions import SERVED
from airunway_testing.expectations import condition_is
from airunway_testing.operator import install_definitions, remove_leftovers, running_core, running_provider, until

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]

OLD, NEW = "vllm/vllm-openai:v0.22.0", "vllm/vllm-openai:v0.23.0"


async def image_of(client: Client, key: ObjectKey) -> str:
    try:
        return str(dig(await client.get(DEPLOYMENT, key), "spec", "template", "spec", "containers")[0]["image"])
    except NotFound:
        return ""


async def becomes(client: Client, key: ObjectKey, image: str) -> None:
    async with asyncio.timeout(60):
        while await image_of(client, key) != image:
            await asyncio.sleep(0.1)


async def serves(client: Client, key: ObjectKey) -> None:
    """Be the controller of Deployments: all pods are ready."""
    made = await client.get(DEPLOYMENT, key)
    counts = dict.fromkeys(("replicas", "readyReplicas", "updatedReplicas", "availableReplicas"), 1)
    available = {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable", "message": ""}
    status = {**counts, "observedGeneration": made["metadata"]["generation"], "conditions": [available]}
    await client.merge_patch(DEPLOYMENT, key, {"status": status}, subresource="status", manager="tests")
    await until(client, key, condition_is(SERVED, "True"))


def waits(deployment: Resource) -> bool:
    return bool(dig(deployment, "status", "provider", "newer", "changes") == [f"vllmImage {NEW}"])


async def test_real_llmd_9_another_image_of_the_provider_s_is_told_before_and_rolls_nothing_that_serves(
    client: Client, kubeconfig: Path, namespace: str
) -> None:
    """A changed default of a new release is such a value, too: the record has what an object was made with."""
    await install_definitions(client)
    await remove_leftovers(client)
    host, key = load("vllm"), ObjectKey(namespace, "llama")
    crds = Path(str(resources.files("airunway_vllm_simulator") / "crds"))
    where = ("--upstream", f"vllm={crds}", "-n", namespace, "--kubeconfig", str(kubeconfig), "-o", "json")
    spec = {"model": {"id": "org/llama"}, "resources": {"gpu": {"count": 1}}, "provider": {"name": "vllm"}}
    body = {"apiVersion": names.API_VERSION, "kind": "ModelDeployment", "spec": spec}
    async with running_core(kubeconfig):
        async with running_provider(kubeconfig, host, settings=ProviderSettings(values={"vllmImage": OLD})):
            await client.create(MODEL_DEPLOYMENT, {**body, "metadata": {"name": "llama", "namespace": namespace}})
            await becomes(client, key, OLD)
            made = await until(client, key, is_in_effect)
            await serves(client, key)
        assert dig(made, "status", "revision", "provider", "settings", "vllm_image") == OLD
        done = await ran("preflight", *where, "--set", f"vllmImage={NEW}")
        (told,) = json.loads(done.out)["deployments"]
        assert (done.code, told["now"]) == (0, "leave"), done.out + done.err
        assert told["onAdopt"] == "update"
        async with running_provider(kubeconfig, host, settings=ProviderSettings(values={"vllmImage": NEW})):
            await until(client, key, waits, what="the status to name the newer settings")
            assert await image_of(client, key) == OLD
            adopt = {"metadata": {"annotations": {names.ADOPT: "now"}}}
            await client.merge_patch(MODEL_DEPLOYMENT, key, adopt, manager="user")
            await becomes(client, key, NEW)
            await client.delete(MODEL_DEPLOYMENT, key)
            async with asyncio.timeout(60):
                while await image_of(client, key):
                    await asyncio.sleep(0.1)
