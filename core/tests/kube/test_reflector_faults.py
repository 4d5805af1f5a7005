"""The reflector against a real API server through a proxy that breaks things: every fault of the table is survived."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

import pytest
from tests.support.faultproxy import Fault, FaultProxy

from airunway.kube import Backoff, Client, Kind, Reflector, strip_managed_fields
from airunway.resource import ObjectKey, Resource, uid_of
from airunway_testing.eventually import Eventually

pytestmark = pytest.mark.apiserver


class Recorder:
    """A handler that rebuilds the cache from what it is told, and notes when that makes no sense."""

    def __init__(self) -> None:
        self.objects: dict[ObjectKey, Resource] = {}
        self.deleted: list[str] = []
        self.nonsense: list[str] = []

    def __call__(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        if self.objects.get(key) != old:
            self.nonsense.append(f"{key}: the old object is not the one reported before")
        if new is None:
            self.deleted.append(key.name)
            if self.objects.pop(key, None) is None:
                self.nonsense.append(f"{key}: deleted although it was not there")
            return
        if old is not None and uid_of(old) == uid_of(new) and version(new) <= version(old):
            self.nonsense.append(f"{key}: went from version {version(old)} to {version(new)}")
        self.objects[key] = new


def version(obj: Resource) -> int:
    return int(obj["metadata"]["resourceVersion"])


def widget_named(kind: Kind, namespace: str, name: str, value: int) -> Resource:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"value": value},
    }


async def state_of(client: Client, kind: Kind, namespace: str) -> dict[ObjectKey, str]:
    return {
        ObjectKey(namespace, obj["metadata"]["name"]): obj["metadata"]["resourceVersion"]
        for obj in await client.list_all(kind, namespace=namespace)
    }


def cached(reflector: Reflector) -> dict[ObjectKey, str]:
    return {key: obj["metadata"]["resourceVersion"] for key, obj in reflector.items()}


@dataclass(frozen=True, kw_only=True)
class Case:
    name: str
    faults: tuple[Fault, ...]


RELIST = Fault("status", verb="watch", status=410, reason="Expired")
CASES = [
    Case(name="in-stream 410", faults=(Fault("error-event", status=410, reason="Expired"),)),
    Case(name="in-stream 410 again and again", faults=(Fault("error-event", status=410, reason="Expired", count=4),)),
    Case(name="HTTP 410 on watch", faults=(RELIST,)),
    Case(
        name="HTTP 410 on a continue page",
        faults=(
            RELIST,
            Fault("status", verb="list", status=410, reason="Expired", where=lambda r: "continue" in r.query, count=2),
        ),
    ),
    Case(name="HTTP 404 on watch", faults=(Fault("status", verb="watch", status=404, count=2),)),
    Case(name="HTTP 404 on watch and list", faults=(Fault("status", status=404, count=4),)),
    Case(name="HTTP 403 on watch", faults=(Fault("status", verb="watch", status=403, count=3),)),
    Case(name="HTTP 401 on watch", faults=(Fault("status", verb="watch", status=401, count=3),)),
    Case(name="HTTP 400 on watch", faults=(Fault("status", verb="watch", status=400, count=1),)),
    Case(name="HTTP 500 on watch", faults=(Fault("status", verb="watch", status=500, count=3),)),
    Case(name="HTTP 504 on watch", faults=(Fault("status", verb="watch", status=504, count=1),)),
    Case(name="HTTP 429 on watch", faults=(Fault("status", verb="watch", status=429, retry_after=1, count=2),)),
    Case(name="HTTP 5xx on list for long", faults=(RELIST, Fault("status", verb="list", status=503, count=15))),
    Case(name="in-stream error 500", faults=(Fault("error-event", status=500, count=3),)),
    Case(name="in-stream error 500 after events", faults=(Fault("error-event", status=500, after_events=1),)),
    Case(
        name="truncated last line, clean close", faults=(Fault("truncate", count=1), Fault("truncate", after_events=1))
    ),
    Case(name="TCP reset", faults=(Fault("cut", count=2), Fault("cut", after_events=1, count=2))),
    Case(name="connection reset before an answer", faults=(Fault("reset", count=4),)),
    Case(name="clean close at once", faults=(Fault("close", count=4),)),
    Case(name="duplicated event", faults=(Fault("duplicate"),)),
    Case(name="delayed events", faults=(Fault("delay", seconds=0.2),)),
    Case(name="reordered events", faults=(Fault("reorder"),)),
    Case(name="an event again after a later one", faults=(Fault("repeat-late"),)),
    Case(name="half-open stream", faults=(Fault("freeze"),)),
    Case(name="half-open stream after events", faults=(Fault("freeze", after_events=1),)),
    Case(name="no answer to a list", faults=(RELIST, Fault("hang", verb="list"))),
    Case(name="no answer to a watch", faults=(Fault("hang", verb="watch"),)),
    Case(name="garbage instead of a stream", faults=(Fault("garbage", verb="watch", count=2),)),
    Case(name="garbage instead of a list", faults=(RELIST, Fault("garbage", verb="list", count=2))),
    Case(name="slow", faults=(RELIST, Fault("slow", seconds=0.3, count=3))),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_fault_loses_nothing(
    case: Case, client: Client, proxied: Client, proxy: FaultProxy, widget: Kind, namespace: str, eventually: Eventually
) -> None:
    for number in range(6):
        await client.create(widget, widget_named(widget, namespace, f"w{number}", 0))
    reflector = Reflector(
        proxied,
        widget,
        namespace=namespace,
        page_size=2,
        project=strip_managed_fields(),
        backoff=Backoff(base=0.02, cap=0.2),
    )
    recorder = Recorder()
    reflector.add_handler(recorder)
    task = asyncio.create_task(reflector.run())
    try:
        await reflector.synced.wait()
        assert cached(reflector) == await state_of(client, widget, namespace)

        # The world moves on while we are cut off; then the case's faults come, one after the other.
        outage = True
        proxy.inject(Fault("status", status=503, count=None, where=lambda _: outage), *case.faults)
        proxy.cut_all()
        seen = proxy.count("watch")
        await eventually(lambda: proxy.count("watch") > seen)
        for name in ("w1", "w3", "w5"):
            await client.delete(widget, ObjectKey(namespace, name))
        await client.create(widget, widget_named(widget, namespace, "w3", 1))
        for name in ("w0", "w2"):
            await client.merge_patch(widget, ObjectKey(namespace, name), {"spec": {"value": 1}})
        await client.create(widget, widget_named(widget, namespace, "w9", 1))
        outage = False
        # And it moves on while the faults strike.
        for value in range(2, 40):
            await client.merge_patch(widget, ObjectKey(namespace, "w4"), {"spec": {"value": value}})
            if not proxy.pending:
                break
            await asyncio.sleep(0.1)
        await eventually(lambda: not proxy.pending)

        expected = await state_of(client, widget, namespace)
        await eventually(lambda: cached(reflector) == expected)
        assert dict(reflector.items()) == recorder.objects
        assert recorder.nonsense == []
        assert {"w1", "w5"} <= set(recorder.deleted)
        await eventually(lambda: not reflector.missing)
        assert not task.done()
        assert proxy.count() < 300, "it hammers the server"
    finally:
        task.cancel()
        await asyncio.wait({task})


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_random_faults_lose_nothing(
    seed: int, client: Client, proxied: Client, proxy: FaultProxy, widget: Kind, namespace: str, eventually: Eventually
) -> None:
    rng = random.Random(seed)
    reflector = Reflector(proxied, widget, namespace=namespace, page_size=3, backoff=Backoff(base=0.02, cap=0.1))
    recorder = Recorder()
    reflector.add_handler(recorder)
    task = asyncio.create_task(reflector.run())
    try:
        proxy.unleash(seed=seed, rate=0.7)
        there: set[str] = set()
        for step in range(120):
            name = f"w{rng.randrange(12)}"
            if name not in there:
                await client.create(widget, widget_named(widget, namespace, name, step))
                there.add(name)
            elif rng.random() < 0.4:
                await client.delete(widget, ObjectKey(namespace, name))
                there.discard(name)
            else:
                await client.merge_patch(widget, ObjectKey(namespace, name), {"spec": {"value": step}})
            await asyncio.sleep(0.02)
        assert any(request.fault for request in proxy.requests)
        proxy.clear()
        expected = await state_of(client, widget, namespace)
        await eventually(lambda: reflector.synced.is_set() and cached(reflector) == expected)
        assert dict(reflector.items()) == recorder.objects
        assert recorder.nonsense == []
    finally:
        task.cancel()
        await asyncio.wait({task})
