"""A part leads once its sources are read; until then it says what is missing. Begin, work and end are its leader's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from airunway.kube import CONFIG_MAP, Client, Kind
from airunway.process.caches import Caches, Sources
from airunway.process.deployment_cache import DeploymentProjection
from airunway.process.metrics import Metrics
from airunway.process.part import Part, Work
from airunway.resource import ObjectKey, Resource
from airunway_testing.background import in_background
from airunway_testing.eventually import eventually
from airunway_testing.operator import install_definitions

pytestmark = pytest.mark.apiserver

ABSENT = Kind(group="absent.example", version="v1", kind="Absent", plural="absents")


def unchanged(obj: Resource) -> Resource:
    return obj


async def at_once(work: Callable[[], Awaitable[None]]) -> None:
    await work()


def part_in(client: Client, namespace: str) -> tuple[Part, Sources]:
    caches = Caches(client, project=DeploymentProjection([]), metrics=Metrics("tests"), namespaces=[namespace])
    part, sources = Part(caches, component="tests"), Sources(caches)
    part.sources = (sources,)
    return part, sources


async def test_a_leader_begins_when_all_is_read_and_ends_with_its_part(client: Client, namespace: str) -> None:
    seen: list[str] = []
    await install_definitions(client)
    part, sources = part_in(client, namespace)
    queue = part._base.queue("maps")
    maps = sources.watches(CONFIG_MAP, project=unchanged, wakes=lambda key, _old, _new: queue.add(key))
    sources.watches(ABSENT, project=unchanged, optional=True)

    async def reconcile(key: ObjectKey) -> None:
        seen.append(key.name)

    async def task() -> None:
        seen.append("task")
        await asyncio.Event().wait()

    def begin() -> None:
        assert maps.synced.is_set()
        seen.append("begin")

    part.work = (Work("maps", reconcile, begin=begin, end=lambda: seen.append("end")),)
    part.tasks = {"task": task}
    assert part.unready() is not None
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": "first"}}
    await client.create(CONFIG_MAP, body)
    async with in_background(part.run(at_once)):
        await eventually(lambda: "first" in seen)
        assert part.unready() is None
    assert seen[:2] == ["begin", "task"]
    assert seen[-1] == "end"


async def test_a_part_does_not_lead_without_a_kind_that_it_needs_and_names_the_remedy(
    client: Client, namespace: str
) -> None:
    await install_definitions(client)
    part, sources = part_in(client, namespace)
    sources.watches(ABSENT, project=unchanged)
    part.work = (Work("none", lambda _: asyncio.sleep(0), begin=lambda: pytest.fail("it must not lead")),)
    async with in_background(part.run(at_once)):
        await eventually(lambda: "does not serve absents.absent.example: install the CRDs" in str(part.unready()))
