"""Warnings, which any user can write, take a bounded amount of memory and time, and never push out the newest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from airunway.api import names
from airunway.modelcache.caches import ArtifactCaches
from airunway.plugins.registry import load
from airunway.process.caches import Caches
from airunway.process.metrics import Metrics
from airunway.resource import ObjectKey, Resource, key_of
from airunway.runtime.evidence import EVENTS_KEPT, WORKLOADS_PER_PASS, EvidenceCollector
from airunway.runtime.memory import READ_ON, Memory

NOW = datetime(2026, 11, 23, 6, 10, tzinfo=UTC)
UNUSED: Any = None  # no API server is asked


def event(number: int, namespace: str = "thief") -> Resource:
    regarding = {"kind": "PersistentVolumeClaim", "namespace": namespace, "name": f"claim-{number}"}
    return {
        "metadata": {"name": f"e{number}", "namespace": namespace, "uid": f"u{number}", "resourceVersion": "1"},
        "type": "Warning",
        "reason": "ProvisioningFailed",
        "note": "x" * 1000,
        "regarding": regarding,
        "series": {"count": 1, "lastObservedTime": NOW.isoformat().replace("+00:00", "Z")},
    }


async def kept(cache: Any) -> int:
    """How many of very many events of one namespace a cache keeps; and that it keeps one of another namespace."""
    reflector = cache._source.reflector
    for number in range(4 * EVENTS_KEPT):
        reflector._store(key_of(event(number)), None, event(number))
    found = len(reflector)
    other = event(1, "other")
    reflector._store(key_of(other), None, other)
    assert reflector.get(key_of(other)) is not None
    return found


def test_the_model_cache_keeps_a_number_of_them_about_one_claim_and_about_pods_that_are_not_there() -> None:
    async def fill(caches: ArtifactCaches) -> None:
        claim = {"metadata": {"name": "claim-0", "namespace": "thief", "uid": "c"}, "spec": {}, "status": {}}
        claims: Any = caches._claims.reflector
        claims._source.reflector._store(key_of(claim), None, claim)
        cache: Any = caches.events.cache
        reflector = cache._source.reflector
        for number in range(400):
            about_one, about_pod = event(number), event(1000 + number)
            about_one["regarding"]["name"] = "claim-0"
            about_pod["regarding"] = {"kind": "Pod", "namespace": "thief", "name": "a-download-00000000"}
            for each in (about_one, about_pod):
                reflector._store(key_of(each), None, each)
        assert len(caches.events._about.get(("PersistentVolumeClaim", "thief", "claim-0"))) == 32
        assert len(caches.events._about.get(("Pod", "thief", "a-download-00000000"))) == 32
        first = event(0)
        first["regarding"]["name"] = "claim-0"
        reflector._store(key_of(first), reflector.get(key_of(first)), first)
        assert len(caches.events._about.get(("PersistentVolumeClaim", "thief", "claim-0"))) == 32, "it is not a new one"

    asyncio.run(fill(artifact_caches()))


def artifact_caches() -> ArtifactCaches:
    return ArtifactCaches(
        Caches(UNUSED, project=lambda obj: obj, metrics=Metrics("tests")),
        on_artifact=lambda _key, _old, _new: None,
        on_owned=lambda _: None,
        on_claim=lambda _key: None,
        on_classes=lambda: None,
    )


def collector(
    client: Any = UNUSED,
    deployments: tuple[str, ...] = (),
    notify: Callable[[ObjectKey], None] = lambda _: None,
    *,
    provider: str = "vllm",
    caches: Caches | None = None,
) -> EvidenceCollector:
    return EvidenceCollector(
        caches=caches or Caches(client, project=lambda obj: obj, metrics=Metrics("tests")),
        host=load(provider),
        known=asyncio.Event(),
        deployments=lambda key: {} if key.name in deployments else None,
        is_named=lambda key: (),
        notify=notify,
        clock=lambda: NOW,
    )


def test_a_provider_keeps_a_number_of_them_for_each_namespace() -> None:
    assert asyncio.run(kept(collector()._events[0])) == EVENTS_KEPT


def refusal(number: int, of: str, *, seconds: float = 0.0, name: str = "") -> Resource:
    found = event(number, "tenant")
    found["metadata"]["name"] = name or f"{of}-{number}"
    found["regarding"] = {
        "kind": "ReplicaSet",
        "namespace": "tenant",
        "name": f"{of}-{number}",
        "uid": f"u{of}{number}",
    }
    last = NOW - timedelta(minutes=30) + timedelta(seconds=seconds)
    return {**found, "reason": "FailedCreate", "series": {"count": 1, "lastObservedTime": last.isoformat()}}


def store(cache: Any, obj: Resource) -> None:
    reflector = cache._source.reflector
    reflector._store(key_of(obj), reflector.get(key_of(obj)), obj)


def numbers(evidence: EvidenceCollector, of: str) -> set[str]:
    return {key.name for key in evidence._events[0].keys() if key.name.startswith(f"{of}-")}  # noqa: SIM118


def test_a_provider_keeps_the_newest_events_of_each_deployment() -> None:
    async def fill() -> None:
        evidence = collector(deployments=("a", "a-b"))
        for number in range(3 * EVENTS_KEPT):
            store(evidence._events[0], refusal(number, "a-b", seconds=number))
        newest = {f"a-b-{number}" for number in range(2 * EVENTS_KEPT, 3 * EVENTS_KEPT)}
        assert numbers(evidence, "a-b") == newest
        for number in range(EVENTS_KEPT):
            store(evidence._events[0], refusal(number, "a", seconds=number))
        assert numbers(evidence, "a-b") == newest, "events of a deployment take no room of another one"
        # One that is repeated becomes the newest, and stays however often it is repeated.
        for repetition in range(4):
            store(evidence._events[0], refusal(2 * EVENTS_KEPT, "a-b", seconds=1000 + repetition))
            assert numbers(evidence, "a-b") == newest

    asyncio.run(fill())


def test_the_newest_events_are_kept_in_whatever_order_they_are_listed() -> None:
    async def fill() -> None:
        evidence = collector(deployments=("a",))
        for number in reversed(range(3 * EVENTS_KEPT)):
            store(evidence._events[0], refusal(number, "a", seconds=number))
        newest = {f"a-{number}" for number in range(2 * EVENTS_KEPT + 1, 3 * EVENTS_KEPT)}
        assert numbers(evidence, "a") == newest | {"a-0"}, "the one that came last makes way for the next"

    asyncio.run(fill())


def test_events_about_a_deployment_of_one_provider_keep_their_room_from_strangers_of_another() -> None:
    async def fill() -> None:
        caches = Caches(UNUSED, project=lambda obj: obj, metrics=Metrics("tests"))
        first, second = (collector(provider=name, caches=caches) for name in ("vllm", "llmd"))
        claim = {"metadata": {"name": "weights", "namespace": "thief", "labels": {names.MODEL_DEPLOYMENT: "a"}}}
        first._deployments = lambda key: {} if key.name == "a" else None
        claims: Any = first._claims
        store(claims, claim)
        about = event(0)
        about["metadata"]["name"], about["regarding"]["name"] = "about", "weights"
        store(first._events[0], about)
        for number in range(1, 2 * EVENTS_KEPT):
            newer = event(number)
            newer["series"]["lastObservedTime"] = (NOW + timedelta(seconds=number)).isoformat()
            store(first._events[0], newer)
        assert first._events[0].get(ObjectKey("thief", "about")) is not None
        assert second._events[0].get(ObjectKey("thief", "about")) is not None, "they share one cache"
        assert len(first._events[0]) == EVENTS_KEPT + 1

    asyncio.run(fill())


def test_only_the_first_of_each_event_brings_a_pass_however_many_there_are() -> None:
    """A failing deployment of many pods: their events make way for each other, and are repeated for ever."""

    def observed(number: int, *, first: float, last: float) -> Resource:
        found = refusal(number, "a", seconds=last)
        began = NOW - timedelta(minutes=30) + timedelta(seconds=first)
        return {**found, "deprecatedFirstTimestamp": began.isoformat()}

    async def fill() -> None:
        passes: list[ObjectKey] = []
        evidence = collector(deployments=("a",), notify=passes.append)
        many = EVENTS_KEPT + 40
        for number in range(many):
            store(evidence._events[0], observed(number, first=number, last=number))
        assert len(passes) == many
        for repetition in range(1, 4):
            for number in range(many):
                store(evidence._events[0], observed(number, first=number, last=1000 * repetition + number))
        assert len(passes) == many, "repetitions bring none"
        assert len(evidence._events[0]) == EVENTS_KEPT
        store(evidence._events[0], observed(many, first=5000, last=5000))
        assert len(passes) == many + 1, "one that is new brings one"
        store(evidence._events[0], observed(many + 1, first=5001, last=5002))
        assert len(passes) == many + 2, "and so it does where its first observation was missed"

    asyncio.run(fill())


def test_a_name_that_no_object_can_have_takes_neither_time_nor_memory() -> None:
    async def fill() -> None:
        asked: list[ObjectKey] = []
        evidence = collector(deployments=("a",))
        evidence._deployments = lambda key: asked.append(key)
        long = refusal(1, "a")
        long["regarding"] |= {"name": "a-" * 50_000, "uid": "u" * 100_000}
        store(evidence._events[0], long)
        assert not len(evidence._events[0])
        assert len(asked) < 10

    asyncio.run(fill())


def test_a_pass_reads_a_number_of_workloads_because_of_events_about_them() -> None:
    class Answers:
        reads = 0

        async def get(self, _kind: object, key: ObjectKey) -> Resource:
            self.reads += 1
            labels = {"airunway.ai/model-deployment": "a"}
            uid = "u" + key.name.replace("-", "")
            return {"metadata": {"uid": uid}, "spec": {"template": {"metadata": {"labels": labels}}}}

    async def read() -> None:
        client = Answers()
        evidence = collector(client, deployments=("a",))
        evidence._pods = ()
        for number in range(EVENTS_KEPT):
            store(evidence._events[0], refusal(number, "a", seconds=number))
        deployment = {"metadata": {"name": "a", "namespace": "tenant"}, "spec": {}}
        memory = Memory()
        enough = EVENTS_KEPT // WORKLOADS_PER_PASS
        for passes in range(1, enough + 2):
            found = await evidence.of(deployment, deployment)
            assert found is not None
            assert client.reads == min(passes, enough) * WORKLOADS_PER_PASS
            assert found.events[-1].name == f"a-{EVENTS_KEPT - 1}", "the newest events come first"
            again = memory.read_on(found)
            assert (again is not None) is (passes < enough), "the rest is read soon, whatever changes"
            assert again is None or READ_ON <= again < READ_ON * 2**passes

    asyncio.run(read())


def test_the_model_cache_keeps_a_number_of_them_for_each_namespace() -> None:
    assert asyncio.run(kept(artifact_caches().events.cache)) == EVENTS_KEPT
