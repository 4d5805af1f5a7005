"""Cases about an API server, or something behind it, that fails for longer than a moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.clocks import TimeOfDay
from tests.support.faultproxy import Fault, FaultProxy

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, Kind, load_config
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, condition_of, dig, is_true
from airunway.runtime.application import ProviderApplication
from airunway_testing.eventually import PATIENCE
from airunway_testing.operator import running_core, running_provider, running_simulator, until

pytestmark = pytest.mark.apiserver

WORKSPACE = Kind(group="kaito.sh", version="v1beta1", kind="Workspace", plural="workspaces", namespaced=True)

Make = Callable[..., Resource]
Create = Callable[[Resource], Awaitable[ObjectKey]]
Gone = Callable[[Kind, ObjectKey], Awaitable[None]]
EventOf = Callable[[ObjectKey, str], Awaitable[Resource]]
Edit = Callable[[ObjectKey, Resource], Awaitable[Resource]]


def phase_is(phase: str) -> Callable[[Resource], bool]:
    return lambda deployment: dig(deployment, "status", "phase") == phase


def is_unreachable(deployment: Resource) -> bool:
    return (condition_of(deployment, "DependenciesReachable") or {}).get("status") == "False"


LASTING = {
    "conflict": (Fault("status", status=409, reason="Conflict", count=None), "WriteFailed"),
    "throttled": (Fault("status", status=429, retry_after=0, count=None), "RateLimited"),
    "the upstream's webhook is down": (Fault("status", status=500, reason="InternalError", count=None), "ServerError"),
    "reset": (Fault("reset", count=None), "ConnectionRefused"),
}


@pytest.mark.parametrize("what", LASTING)
async def test_aim_46_a_failure_to_write_that_lasts_is_said_ages_and_heals(
    what: str, installed: None, client: Client, kubeconfig: Path, kaito: ProviderHost, manifest: Make, create: Create,
    edit: Edit, clock: TimeOfDay,
) -> None:  # fmt: skip
    fault, reason = LASTING[what]
    async with (
        FaultProxy(kubeconfig) as proxy,
        running_core(kubeconfig),
        running_provider(proxy.kubeconfig, kaito, clock=clock),
        running_simulator(kubeconfig, kaito, level="api"),
    ):
        served = await create(manifest("served"))
        await until(client, served, phase_is("Running"))
        proxy.inject(replace(fault, verb="apply", resource="workspaces"))
        fresh = await create(manifest("fresh"))
        await edit(served, {"metadata": {"labels": {"airunway.ai/team": "red"}}})
        async with asyncio.timeout(PATIENCE):
            while {r.name for r in proxy.requests if r.resource == "workspaces" and r.fault} != {"served", "fresh"}:
                await asyncio.sleep(0.02)
        for key in (served, fresh):  # as long as it may pass, the status does not change
            assert (await client.get(MODEL_DEPLOYMENT, key))["status"].get("reason") != reason
        clock.ahead = timedelta(minutes=1)
        phases = {}
        for key in (served, fresh):
            # A conflict is no matter of reachability: the API server has answered.
            failing = await until(
                client,
                key,
                lambda d: dig(d, "status", "reason") == reason and is_unreachable(d) is (what != "conflict"),
                what=reason,
            )
            assert not is_true(failing, "Ready")
            assert "The upstream resources cannot be written" in failing["status"]["message"]
            phases[key.name] = failing["status"]["phase"]
        assert phases == {"served": "Degraded", "fresh": "Pending"}
        proxy.clear()
        for key in (served, fresh):
            healed = await until(client, key, lambda d: is_true(d, "Ready") and is_true(d, "DependenciesReachable"))
            assert healed["status"]["message"] == f"All replicas are ready: Workspace {key.name}"


@asynccontextmanager
async def blind_provider(proxy: FaultProxy, host: ProviderHost, clock: TimeOfDay) -> AsyncIterator[None]:
    """A provider that may not read what it made. It never is ready: nobody can wait for that."""
    for verb in ("list", "watch", "get"):
        proxy.inject(Fault("status", verb=verb, resource="workspaces", status=403, count=None))
    async with Client(load_config(kubeconfig=proxy.kubeconfig), user_agent="airunway-tests") as client:
        work = asyncio.create_task(ProviderApplication(client=client, host=host, clock=clock).run(lambda work: work()))
        try:
            yield
        finally:
            work.cancel()
            await asyncio.wait({work})


async def test_case_24_upstream_objects_that_cannot_be_read_hold_a_deletion_for_five_minutes(
    installed: None, client: Client, kubeconfig: Path, kaito: ProviderHost, manifest: Make, create: Create, gone: Gone,
    event_of: EventOf, edit: Edit, clock: TimeOfDay,
) -> None:  # fmt: skip
    async with running_core(kubeconfig), running_simulator(kubeconfig, kaito, level="api"):
        async with running_provider(kubeconfig, kaito):
            key = await create(manifest())
            await until(client, key, phase_is("Running"))
        async with FaultProxy(kubeconfig) as proxy, blind_provider(proxy, kaito, clock):
            await client.delete(MODEL_DEPLOYMENT, key)
            waiting = await until(client, key, phase_is("Terminating"))
            assert waiting["metadata"]["finalizers"] == [names.provider_finalizer("kaito")]
            clock.ahead = timedelta(minutes=6)
            await edit(key, {"metadata": {"annotations": {"airunway.ai/look": "again"}}})
            await gone(MODEL_DEPLOYMENT, key)
            event = await event_of(key, "FinalizerTimeout")
    assert "the upstream resource may be orphaned" in event["note"]
