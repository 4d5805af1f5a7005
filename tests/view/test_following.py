"""What follows a deployment, where a list fails, credentials are refused, or a right is missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest
from tests.support.faultproxy import Fault, FaultProxy
from tests.support.served import write_status
from tests.view.conftest import Grant, Run

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, Forbidden, Unauthorized, load_config
from airunway.resource import ObjectKey, dig
from airunway.snapshots.following import Watched, follow_snapshots
from airunway.snapshots.reading import Source
from airunway.view import DeploymentSnapshot, Unseen
from airunway_testing.eventually import PATIENCE

pytestmark = pytest.mark.cluster


@pytest.fixture
async def proxy(kubeconfig: Path) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(kubeconfig) as proxy:
        yield proxy


class Following:
    """Snapshots as they come."""

    def __init__(self, snapshots: AsyncIterator[DeploymentSnapshot | None]) -> None:
        self._snapshots = snapshots

    async def next(self) -> DeploymentSnapshot:
        async with asyncio.timeout(PATIENCE):
            found = await anext(self._snapshots)
        assert found is not None, "the deployment counts as deleted"
        return found

    async def until_phase(self, phase: str) -> DeploymentSnapshot:
        while dig((found := await self.next()).deployment, "status", "phase") != phase:
            pass
        return found


@asynccontextmanager
async def following(proxy: FaultProxy, key: ObjectKey) -> AsyncIterator[Following]:
    async with (
        Client(load_config(kubeconfig=proxy.kubeconfig)) as client,
        aclosing(follow_snapshots(client, key)) as snapshots,
    ):
        yield Following(snapshots)


async def test_a_list_that_fails_is_not_seen_until_it_can_be_read(proxy: FaultProxy, key: ObjectKey) -> None:
    proxy.inject(Fault("status", verb="list", resource="events", status=500, message="etcd is slow", count=None))
    async with following(proxy, key) as snapshots:
        first = await snapshots.next()
        assert isinstance(first.events, Unseen)
        assert "etcd is slow" in first.events.why
        assert first.events.right == ""
        assert first.pods == ()
        proxy.clear()
        while isinstance((await snapshots.next()).events, Unseen):
            pass


async def test_a_deployment_that_cannot_be_listed_is_shown_as_it_was_read(
    proxy: FaultProxy, client: Client, key: ObjectKey
) -> None:
    proxy.inject(Fault("status", verb="list", resource="modeldeployments", status=500, count=None))
    async with following(proxy, key) as snapshots:
        first = await snapshots.next()
        assert dig(first.deployment, "metadata", "name") == key.name
        assert [each.what for each in first.unseen] == [f"{MODEL_DEPLOYMENT} {key.name}"]
        proxy.clear()
        await write_status(client, key, phase="Deploying")
        assert (await snapshots.until_phase("Deploying")).unseen == ()


async def test_credentials_are_read_anew_once(proxy: FaultProxy, client: Client, key: ObjectKey) -> None:
    once = Fault("status", verb="watch", resource="modeldeployments", status=401, reason="Unauthorized")
    proxy.inject(once)
    async with following(proxy, key) as snapshots:
        await snapshots.next()
        await write_status(client, key, phase="Deploying")
        await snapshots.until_phase("Deploying")
        assert proxy.pending == []
    proxy.inject(Fault("status", verb="watch", resource="modeldeployments", status=401, count=2))
    async with following(proxy, key) as snapshots:
        with pytest.raises(Unauthorized):
            await snapshots.until_phase("Running")


async def test_another_cause_after_a_refusal_is_no_second_refusal(client: Client, key: ObjectKey) -> None:
    """A watch goes on after a 401 without a list, and the server ends it soon for reasons of its own."""
    watched = Watched(client, Source(content="objects", kind=MODEL_DEPLOYMENT, key=key), changed=asyncio.Event())
    try:
        await watched.known.wait()
        watched.cache.error = Unauthorized(401, "Unauthorized", "the token has expired")
        assert watched.cache.on_restart is not None
        for cause in ("Unauthorized", "short stream", "short stream"):
            watched.cache.on_restart(cause)
        assert watched.refused is None
        watched.cache.on_restart("Unauthorized")
        assert watched.refused is watched.cache.error
    finally:
        await watched.close()


async def test_a_right_that_is_lost_meanwhile_is_not_a_deletion(proxy: FaultProxy, key: ObjectKey) -> None:
    async with following(proxy, key) as snapshots:
        await snapshots.next()
        proxy.inject(Fault("status", resource="modeldeployments", status=403, reason="Forbidden", count=None))
        proxy.cut_all()
        with pytest.raises(Forbidden):
            await snapshots.until_phase("Running")


@pytest.mark.parametrize("verbs", ["get", "get list"])
async def test_without_the_right_to_watch_it_is_named(key: ObjectKey, run: Run, grant: Grant, verbs: str) -> None:
    less = await grant("view", deployments=verbs)
    missing = "watch" if "list" in verbs else "list"
    for options in (("-w",), ("--wait=60s",), ("-w", "--wait=60s")):
        refused = await run("status", "md/llama", "-n", key.namespace, *options, kubeconfig=less)
        assert (refused.code, refused.err.count("\n")) == (1, 1), refused
        assert f"no right to {missing} modeldeployments.airunway.ai in namespace {key.namespace}" in refused.err
        assert "is deleted" not in refused.out


async def test_waiting_names_once_what_hinders_it_and_goes_on(
    proxy: FaultProxy, client: Client, key: ObjectKey, run: Run
) -> None:
    proxy.inject(
        Fault("status", verb="list", resource="modeldeployments", status=503, message="etcd is slow", count=2),
        Fault("status", verb="watch", resource="modeldeployments", status=500, message="too busy", count=1),
    )
    words = ("status", f"md/{key.name}", "-n", key.namespace, "--wait=2m")
    waiting = asyncio.create_task(run(*words, kubeconfig=proxy.kubeconfig))
    async with asyncio.timeout(PATIENCE):
        while proxy.pending:
            await asyncio.sleep(0.1)
    await write_status(client, key, phase="Failed", observedGeneration=1)
    waited = await waiting
    assert waited.code == 5, waited
    slow, busy = waited.err.splitlines()
    assert slow.startswith(f"airunway: waiting for md/{key.name}, which cannot be listed or watched now: ")
    assert "etcd is slow" in slow
    assert "too busy" in busy
