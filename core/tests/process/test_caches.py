"""One cache for all who ask for the same: read once, shown once, and without a trace of readers that have gone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.faultproxy import FaultProxy

from airunway.kube import CONFIG_MAP, Client, Kind, load_config
from airunway.process.caches import Caches
from airunway.process.deployment_cache import DeploymentProjection
from airunway.process.metrics import Metrics
from airunway.resource import ObjectKey, Resource
from airunway_testing.eventually import eventually

pytestmark = pytest.mark.apiserver


def unchanged(obj: Resource) -> Resource:
    return obj


def renamed(obj: Resource) -> Resource:
    return {"metadata": obj["metadata"], "other": True}


def config_map(namespace: str, name: str) -> Resource:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name}}


async def test_who_asks_for_the_same_reads_the_same(client: Client, kubeconfig: Path, namespace: str) -> None:
    await client.create(CONFIG_MAP, config_map(namespace, "first"))
    async with FaultProxy(kubeconfig) as proxy, Client(load_config(kubeconfig=proxy.kubeconfig)) as proxied:
        metrics = Metrics("tests")
        caches = Caches(proxied, project=DeploymentProjection([]), metrics=metrics, namespaces=[namespace])
        one, same = caches.of(CONFIG_MAP, project=unchanged), caches.of(CONFIG_MAP, project=unchanged)
        other = caches.of(CONFIG_MAP, project=renamed)
        tasks = [asyncio.create_task(cache.run()) for cache in (one, same, other)]
        key = ObjectKey(namespace, "first")
        await eventually(lambda: all(cache.synced.is_set() for cache in (one, same, other)))
        assert one.get(key) is same.get(key) is not None
        assert other.get(key) == {"metadata": (one.get(key) or {})["metadata"], "other": True}
        lists = [r for r in proxy.requests if r.resource == "configmaps" and r.verb == "list"]
        assert len(lists) == 2
        page, _ = await metrics.page()
        shown = [line for line in page.decode().splitlines() if line.startswith("airunway_watch_objects{")]
        total = sum(len(cache) for cache in (one, other))  # the projections apart, the readers not
        assert shown == [f'airunway_watch_objects{{resource="configmaps"}} {float(total)}']
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@pytest.mark.parametrize("optional", [True, False])
async def test_a_cluster_without_an_optional_kind_has_no_fault_in_its_metrics(client: Client, optional: bool) -> None:
    """Else the alert AirunwayWatchStalled fires for ever on clusters without the Gateway API."""
    metrics = Metrics("tests")
    caches = Caches(client, project=DeploymentProjection([]), metrics=metrics)
    absent = Kind("absent.example", "v1", "Thing", "things")
    cache, present = caches.of(absent, project=unchanged, optional=optional), caches.of(CONFIG_MAP, project=unchanged)
    tasks = [asyncio.create_task(each.run()) for each in (cache, present)]
    await eventually(lambda: cache.answered.is_set() and present.synced.is_set())
    page, _ = await metrics.page()
    lines = page.decode().splitlines()
    synced = {line for line in lines if line.startswith("airunway_watch_synced{")}
    restarts = [line for line in lines if line.startswith("airunway_watch_restarts_total{")]
    of_absent = set() if optional else {'airunway_watch_synced{resource="things"} 0.0'}
    assert synced == {'airunway_watch_synced{resource="configmaps"} 1.0'} | of_absent
    assert [line.rpartition(" ")[0] for line in restarts] == (
        [] if optional else ['airunway_watch_restarts_total{cause="NotFound",resource="things"}']
    )
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_a_reader_that_ends_leaves_the_others_alone_and_nothing_behind(client: Client, namespace: str) -> None:
    caches = Caches(client, project=DeploymentProjection([]), metrics=Metrics("tests"), namespaces=[namespace])
    first, second = caches.of(CONFIG_MAP, project=unchanged), caches.of(CONFIG_MAP, project=unchanged)
    heard: dict[str, list[str]] = {"first": [], "second": []}
    first.add_handler(lambda key, _old, _new: heard["first"].append(key.name))
    second.add_handler(lambda key, _old, _new: heard["second"].append(key.name))
    tasks = [asyncio.create_task(cache.run()) for cache in (first, second)]
    await eventually(lambda: first.synced.is_set() and second.synced.is_set())
    tasks[0].cancel()  # the one that began to read
    await asyncio.wait(tasks[:1])
    await client.create(CONFIG_MAP, config_map(namespace, "later"))
    await eventually(lambda: "later" in heard["second"])
    assert "later" not in heard["first"]
    # One that comes in its place is told of everything that is there, and of what comes.
    third = caches.of(CONFIG_MAP, project=unchanged)
    late: list[str] = []
    third.add_handler(lambda key, _old, _new: late.append(key.name))
    assert "later" in late
    tasks[0] = asyncio.create_task(third.run())
    await eventually(third.synced.is_set)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    # Nobody reads any more: who comes then begins anew.
    fresh = caches.of(CONFIG_MAP, project=unchanged)
    assert len(fresh) == 0
    task = asyncio.create_task(fresh.run())
    await eventually(lambda: ObjectKey(namespace, "later") in fresh)
    task.cancel()
    await asyncio.wait([task])
