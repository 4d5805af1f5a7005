"""H2: an error whose words differ each time makes no loop of writes: time, the spec or the upstream brings a try."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from tests.support.audit import AuditReader, Request
from tests.support.faultproxy import Fault, FaultProxy

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, Kind, NotFound
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, dig, is_true
from airunway_testing.eventually import PATIENCE
from airunway_testing.expectations import condition_is, phase_is, plan_says, reason_is, says
from airunway_testing.operator import running_core, running_provider, running_simulator, until

pytestmark = pytest.mark.apiserver

WORKSPACE = Kind(group="kaito.sh", version="v1beta1", kind="Workspace", plural="workspaces", namespaced=True)
WATCHED = 4.0
"""Seconds for which writes are counted. A loop would make hundreds in them, at the speed of the API server."""

Make = Callable[..., Resource]
Create = Callable[[Resource], Awaitable[ObjectKey]]
Refusing = Callable[..., Any]


def most_tries(seconds: float, *, base: float = 0.2) -> int:
    """How many tries fit into a time, when the pause doubles and is up to a fifth shorter."""
    tries, used = 1, 0.0
    while True:
        used += max(base, base * 2 ** (tries - 1) * 0.8)
        if used > seconds:
            return tries
        tries += 1


@dataclass
class Count:
    """What the provider wrote about one deployment within `seconds`."""

    tries: int = 0
    statuses: int = 0
    seconds: float = 0.0


@asynccontextmanager
async def counted(audit_log: Path, key: ObjectKey, *, verb: str = "patch") -> AsyncIterator[Count]:
    audit, begun, count = AuditReader(audit_log), monotonic(), Count()
    yield count
    count.seconds = monotonic() - begun

    def wrote(request: Request, verb: str, resource: str) -> bool:
        where = (request.namespace, request.name, request.agent, request.resource)
        return request.verb == verb and where == (*key, "provider-kaito", resource)

    requests = audit.read()
    count.tries = sum(wrote(request, verb, "workspaces") for request in requests)
    count.statuses = sum(wrote(request, "patch", "modeldeployments/status") for request in requests)


async def test_h2_a_refusal_in_ever_new_words_is_tried_once_in_each_step_of_the_backoff(
    operator: None, client: Client, manifest: Make, create: Create, refusing: Refusing, namespace: str, audit_log: Path
) -> None:
    """Not one word is the same: each try may be told, and nothing else is written."""
    async with refusing(lambda _: f"request {secrets.token_hex(8)} {secrets.token_urlsafe(6)} says no"):
        async with counted(audit_log, ObjectKey(namespace, "gemma")) as count:
            key = await create(manifest())
            await until(client, key, says("denied the request"))
            await asyncio.sleep(WATCHED)
        assert 2 <= count.tries <= most_tries(count.seconds)
        assert count.statuses <= count.tries + 3
    running = await until(client, key, phase_is("Running"))
    assert is_true(running, "ResourceCreated")


async def test_h2_words_that_differ_in_numbers_only_are_told_once(
    operator: None, client: Client, manifest: Make, create: Create, refusing: Refusing, audit_log: Path
) -> None:
    async with refusing(lambda _: f"request-id {secrets.randbelow(10**9)} at 10.0.0.4:{secrets.randbelow(60_000)}"):
        key = await create(manifest())
        told = await until(client, key, says("denied the request"))
        async with counted(audit_log, key) as count:
            await asyncio.sleep(WATCHED)
        assert 1 <= count.tries <= most_tries(count.seconds)
        assert count.statuses <= 1  # the numbers of the first words stay
        assert (await client.get(MODEL_DEPLOYMENT, key))["status"]["message"] == told["status"]["message"]


async def test_h2_a_connection_that_is_reset_from_ever_new_ports_makes_no_loop(
    installed: None, client: Client, kubeconfig: Path, kaito: ProviderHost, manifest: Make, create: Create, clock: Any,
) -> None:  # fmt: skip
    """Past the time of grace, when the failure is told: that was the loop."""
    said = (
        "Internal error occurred: failed calling webhook: read tcp 10.0.0.4:{n}->10.0.0.9:443: connection reset by peer"
    )
    fault = Fault("status", status=500, message=said, verb="apply", resource="workspaces", count=None)
    async with (
        FaultProxy(kubeconfig) as proxy,
        running_core(kubeconfig),
        running_provider(proxy.kubeconfig, kaito, clock=clock),
        running_simulator(kubeconfig, kaito, level="api"),
    ):
        proxy.inject(fault)
        begun = monotonic()
        key = await create(manifest())

        def written(part: str) -> int:  # other tests may have left deployments in namespaces of their own
            found = [r for r in proxy.requests if r.verb == "apply" and (r.namespace, r.name) == key]
            return sum(part in (r.resource, r.subresource) for r in found)

        async with asyncio.timeout(PATIENCE):
            while written("workspaces") < 2:
                await asyncio.sleep(0.02)
        clock.ahead = timedelta(minutes=1)
        await until(client, key, condition_is("DependenciesReachable", "False"))
        told = written("status")
        await asyncio.sleep(WATCHED)
        assert written("workspaces") <= most_tries(monotonic() - begun)
        assert written("status") <= told + 1
        proxy.clear()
        await until(client, key, phase_is("Running"))


async def test_h2_a_tenant_who_touches_an_object_all_the_time_brings_no_try_forward(
    operator: None, client: Client, manifest: Make, create: Create, refusing: Refusing, audit_log: Path
) -> None:
    async with refusing(lambda _: "no"):
        key = await create(manifest())
        await until(client, key, says("denied the request"))
        async with counted(audit_log, key) as count:
            end = monotonic() + WATCHED
            while monotonic() < end:
                touched = {"metadata": {"annotations": {"airunway.ai/touched": secrets.token_hex(4)}}}
                await client.merge_patch(MODEL_DEPLOYMENT, key, touched, manager="tenant")
        assert count.tries <= most_tries(count.seconds)
        assert count.statuses <= 1


async def test_h2_another_spec_ends_the_backoff_at_once(
    operator: None, client: Client, manifest: Make, create: Create, refusing: Refusing, audit_log: Path
) -> None:
    """The pause is half a minute long by then, which nobody waits for."""
    bad = {"metadata": {"labels": {"airunway.ai/mark": "bad"}}}

    def why(asked: Resource) -> str:
        return "not with this label" if dig(asked, "object", "metadata", "labels", "airunway.ai/mark") else ""

    async with refusing(why):
        deployment = manifest()
        deployment["metadata"]["labels"] = bad["metadata"]["labels"]
        async with counted(audit_log, ObjectKey(deployment["metadata"]["namespace"], "gemma")) as count:
            key = await create(deployment)
            await until(client, key, reason_is("ResourceCreated", "InvalidSpec"))
            await asyncio.sleep(WATCHED)
        before = count.tries
        async with counted(audit_log, key) as count:
            good = {"metadata": {"labels": {"airunway.ai/mark": None}}}
            await client.merge_patch(MODEL_DEPLOYMENT, key, good, manager="user")
            await until(client, key, phase_is("Running"))
        assert before >= 2
        assert count.tries <= 2  # the one that was due, perhaps, and the one that was taken


async def test_h2_a_deletion_that_is_refused_in_ever_new_words_is_not_asked_for_in_a_loop(
    operator: None, client: Client, manifest: Make, create: Create, refusing: Refusing, audit_log: Path
) -> None:
    key = await create(manifest())
    await until(client, key, phase_is("Running"))
    async with refusing(lambda _: f"not now: {secrets.token_urlsafe(9)}", operations=("DELETE",)):
        await client.delete(MODEL_DEPLOYMENT, key)
        async with counted(audit_log, key, verb="delete") as count:
            await until(client, key, says("denied the request"))
            await asyncio.sleep(WATCHED)
        assert count.tries <= 1 + count.seconds / 4.0
        assert count.statuses <= count.tries + 2
    async with asyncio.timeout(PATIENCE):
        while await client.list_all(MODEL_DEPLOYMENT, namespace=key.namespace):
            await asyncio.sleep(0.05)
    with pytest.raises(NotFound):
        await client.get(WORKSPACE, key)


async def test_h2_a_plan_that_is_refused_in_ever_new_words_is_not_made_in_a_loop(
    operator: None, client: Client, manifest: Make, create: Create, refusing: Refusing, audit_log: Path
) -> None:
    async with refusing(lambda _: f"never: {secrets.token_urlsafe(9)}"):
        key = await create(manifest(annotations={"airunway.ai/dry-run": "true"}))
        await until(client, key, plan_says("refused"))
        async with counted(audit_log, key) as count:
            await asyncio.sleep(WATCHED)
        assert count.tries <= most_tries(count.seconds)
        assert count.statuses <= count.tries + 1
    await until(client, key, plan_says("the API server accepts it"))
