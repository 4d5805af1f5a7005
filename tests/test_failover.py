"""Two replicas of core and provider: the leaders are lost in the middle of their work, and nothing is made twice."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.faultproxy import Fault, FaultProxy

from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import LEASE, Client, Kind
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, condition_of, controller_owner, dig, is_true, uid_of
from airunway_testing.eventually import PATIENCE, eventually
from airunway_testing.operator import Limits, running_core, running_provider, running_simulator, until

pytestmark = pytest.mark.apiserver

WORKSPACE = Kind(group="kaito.sh", version="v1beta1", kind="Workspace", plural="workspaces", namespaced=True)
CONFIG = ObjectKey("", "kaito")
SHORT = Limits(request=3.0, silence=6.0)

Make = Callable[..., Resource]


class Replica:
    """Core and provider of one replica, behind a proxy that can take them off the network."""

    def __init__(self, name: str, proxy: FaultProxy) -> None:
        self.name = name
        self.proxy = proxy

    def writes(self) -> int:
        return sum(self.proxy.count(verb, kind) for verb in ("apply", "delete") for kind in KINDS)

    def cut_off(self) -> None:
        """From now on nothing gets through, in either direction; nobody is told so."""
        self.proxy.inject(Fault("hang", count=None))
        self.proxy.cut_all()

    def come_back(self) -> None:
        self.proxy.clear()
        self.proxy.cut_all()


KINDS = ("modeldeployments", "workspaces")


def running(deployment: Resource) -> bool:
    return dig(deployment, "status", "phase") == "Running" and is_true(deployment, "Ready")


async def holder(client: Client, component: str) -> str:
    return str(dig(await client.get(LEASE, ObjectKey("default", f"testing-{component}")), "spec", "holderIdentity"))


async def leads(client: Client, *parts: str, replica: str = "first") -> None:
    """Wait until that replica leads; one that is ready may yet stand by, for a lease that an earlier test held."""
    async with asyncio.timeout(PATIENCE):
        while {await holder(client, part) for part in parts} != {replica}:
            await asyncio.sleep(0.05)


@asynccontextmanager
async def counting(client: Client, namespace: str) -> AsyncIterator[set[tuple[str, str]]]:
    """Name and uid of each Workspace that is made there meanwhile, in so far as it was seen by then.

    The audit log does not tell: of a request whose connection is cut while the API server writes, it may have any code.
    """
    made: set[tuple[str, str]] = set()
    async with aclosing(client.pages(WORKSPACE, namespace=namespace)) as pages:
        begun = (await anext(pages)).resource_version

    async def follow() -> None:
        version = begun
        while True:
            async with aclosing(client.watch(WORKSPACE, resource_version=version, namespace=namespace)) as events:
                async for event in events:
                    version = event.resource_version
                    if event.type == "ADDED":
                        made.add((event.object["metadata"]["name"], uid_of(event.object)))

    task = asyncio.create_task(follow())
    try:
        yield made
        assert not task.done()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_a_leader_that_is_cut_off_at_any_write_is_replaced_and_nothing_is_made_twice(
    seed: int,
    installed: None,
    client: Client,
    kubeconfig: Path,
    kaito: ProviderHost,
    manifest: Make,
    namespace: str,
) -> None:
    """The second replica takes over while the first one still thinks that it leads; then the first one comes back."""
    rng = random.Random(seed)
    async with AsyncExitStack() as stack:
        made = await stack.enter_async_context(counting(client, namespace))
        await stack.enter_async_context(running_simulator(kubeconfig, kaito, level="api"))
        replicas = {}
        for name in ("first", "second"):
            proxy = await stack.enter_async_context(FaultProxy(kubeconfig))
            replicas[name] = Replica(name, proxy)
            await stack.enter_async_context(running_core(proxy.kubeconfig, replica=name, limits=SHORT))
            await stack.enter_async_context(running_provider(proxy.kubeconfig, kaito, replica=name, limits=SHORT))
            await leads(client, "core", "provider-kaito")
        lost, stays = replicas["first"], replicas["second"]
        keys = [ObjectKey(namespace, f"gemma-{number}") for number in range(6)]
        enough = lost.writes() + rng.randrange(1, 24)
        for key in keys:
            await client.create(MODEL_DEPLOYMENT, manifest(key.name))
        async with asyncio.timeout(PATIENCE):
            while lost.writes() < enough:
                await asyncio.sleep(0.001)
        lost.cut_off()
        change = {"spec": {"model": {"id": "google/other-gguf/other.gguf"}}}
        await client.merge_patch(MODEL_DEPLOYMENT, keys[0], change, manager="user")
        changed = await until(client, keys[0], lambda d: running(d) and dig(d, "status", "observedGeneration") == 2)
        for key in keys:
            await until(client, key, running)
        assert {await holder(client, part) for part in ("core", "provider-kaito")} == {"second"}
        lost.come_back()
        assert len({c["type"] for c in changed["status"]["conditions"]}) == len(changed["status"]["conditions"])
        # The one that came back says no farewell for the provider: it leads no more.
        before = stays.writes()
        await client.merge_patch(MODEL_DEPLOYMENT, keys[1], change, manager="user")
        await until(client, keys[1], lambda d: running(d) and dig(d, "status", "observedGeneration") == 2)
        assert stays.writes() > before
        config = await client.get(INFERENCE_PROVIDER_CONFIG, CONFIG)
        assert config["status"]["ready"] is True
        assert (condition_of(config, "Ready") or {})["reason"] != "Leaving"
        deployments = {key.name: uid_of(await client.get(MODEL_DEPLOYMENT, key)) for key in keys}
        workspaces = await client.list_all(WORKSPACE, namespace=namespace)
        await eventually(lambda: {(w["metadata"]["name"], uid_of(w)) for w in workspaces} <= made)
    assert {w["metadata"]["name"]: (controller_owner(w) or {}).get("uid") for w in workspaces} == deployments
    times = Counter(name for name, _ in made)
    assert times.keys() == deployments.keys()
    changed_names = {key.name for key in keys[:2]}  # those were made anew
    assert all(count == 1 or (count == 2 and name in changed_names) for name, count in times.items())


async def test_a_leader_that_stops_hands_over_at_once_and_the_provider_stays_ready(
    installed: None, client: Client, kubeconfig: Path, kaito: ProviderHost, manifest: Make, namespace: str
) -> None:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(running_simulator(kubeconfig, kaito, level="api"))
        await stack.enter_async_context(running_core(kubeconfig))
        async with running_provider(kubeconfig, kaito, replica="first"):
            await leads(client, "provider-kaito")
            await stack.enter_async_context(running_provider(kubeconfig, kaito, replica="second"))
            assert await holder(client, "provider-kaito") == "first"
        await client.create(MODEL_DEPLOYMENT, manifest())
        await until(client, ObjectKey(namespace, "gemma"), running)
        assert await holder(client, "provider-kaito") == "second"
        assert (await client.get(INFERENCE_PROVIDER_CONFIG, CONFIG))["status"]["ready"] is True


async def test_a_leader_that_notices_late_says_no_farewell_for_a_provider_that_another_leads(
    installed: None, client: Client, kubeconfig: Path, kaito: ProviderHost, caplog: pytest.LogCaptureFixture
) -> None:
    """A process that was suspended finds that the lease is another's: ``ready: false`` would be a lie for a minute."""
    caplog.set_level("INFO", logger="airunway.runtime.registration")
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(FaultProxy(kubeconfig))
        await stack.enter_async_context(running_provider(proxy.kubeconfig, kaito, replica="first", limits=SHORT))
        await leads(client, "provider-kaito")
        await stack.enter_async_context(running_provider(kubeconfig, kaito, replica="second"))
        assert await holder(client, "provider-kaito") == "first"
        first_beat = (await client.get(INFERENCE_PROVIDER_CONFIG, CONFIG))["status"]["lastHeartbeat"]
        await asyncio.sleep(1.0)  # heartbeats are told apart by the second
        proxy.inject(Fault("hang", resource="leases", count=None))
        taken = {"spec": {"holderIdentity": "second"}}
        await client.merge_patch(LEASE, ObjectKey("default", "testing-provider-kaito"), taken)
        async with asyncio.timeout(PATIENCE):
            while (await client.get(INFERENCE_PROVIDER_CONFIG, CONFIG))["status"]["lastHeartbeat"] == first_beat:
                await asyncio.sleep(0.02)
            while "another replica" not in caplog.text:
                await asyncio.sleep(0.02)
    writes = [r for r in proxy.requests if r.resource == "inferenceproviderconfigs" and r.subresource == "status"]
    assert len(writes) == 1  # its first heartbeat


async def test_a_provider_publishes_how_it_writes_only_after_all_first_answers(
    installed: None, client: Client, kubeconfig: Path, kaito: ProviderHost
) -> None:
    """A revision from half of the kinds would be made anew, and its objects with it, as soon as the others are read."""
    async with FaultProxy(kubeconfig) as proxy:
        busy = Fault("status", status=503, reason="ServiceUnavailable", count=2)
        proxy.inject(replace(busy, where=lambda r: r.path == "/version"))
        late = "metadata.name=inferencesets.kaito.sh"
        proxy.inject(replace(busy, where=lambda r: r.verb == "list" and r.query.get("fieldSelector") == late))
        async with running_provider(proxy.kubeconfig, kaito):
            found = (await client.get(INFERENCE_PROVIDER_CONFIG, CONFIG))["status"]["translation"]
    assert not proxy.pending
    assert {"Workspace.kaito.sh", "InferenceSet.kaito.sh"} <= found["transformers"].keys()
    order = list(enumerate(proxy.requests))
    lists = [at for at, r in order if r.verb == "list" and r.query.get("fieldSelector") == late]
    versions = [at for at, r in order if r.path == "/version"]
    published = [at for at, r in order if r.resource == "inferenceproviderconfigs" and r.subresource == "status"]
    assert len(lists) >= 3
    assert len(versions) >= 3
    assert max(*lists, *versions) < min(published)
