"""Warnings about claims that do not exist, which any user can write, take a bounded amount of memory."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from airunway.modelcache.caches import ArtifactCaches
from airunway.plugins.registry import load
from airunway.process.caches import Caches
from airunway.process.metrics import Metrics
from airunway.resource import Resource, key_of
from airunway.runtime.evidence import UNKNOWN_CLAIMS, EvidenceCollector

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
    for number in range(4 * UNKNOWN_CLAIMS):
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
        cache: Any = caches._events
        reflector = cache._source.reflector
        for number in range(400):
            about_one, about_pod = event(number), event(1000 + number)
            about_one["regarding"]["name"] = "claim-0"
            about_pod["regarding"] = {"kind": "Pod", "namespace": "thief", "name": "a-download-00000000"}
            for each in (about_one, about_pod):
                reflector._store(key_of(each), None, each)
        assert len(caches._events_of.get(("PersistentVolumeClaim", "thief", "claim-0"))) == 32
        assert len(caches._events_of.get(("Pod", "thief", "a-download-00000000"))) == 32
        first = event(0)
        first["regarding"]["name"] = "claim-0"
        reflector._store(key_of(first), reflector.get(key_of(first)), first)
        assert len(caches._events_of.get(("PersistentVolumeClaim", "thief", "claim-0"))) == 32, "it is not a new one"

    asyncio.run(fill(artifact_caches()))


def artifact_caches() -> ArtifactCaches:
    return ArtifactCaches(
        Caches(UNUSED, project=lambda obj: obj, metrics=Metrics("tests")),
        on_artifact=lambda _key, _old, _new: None,
        on_owned=lambda _kind, _key: None,
        on_claim=lambda _key: None,
        on_classes=lambda: None,
    )


def test_a_provider_keeps_a_number_of_them_for_each_namespace() -> None:
    collector = EvidenceCollector(
        caches=Caches(UNUSED, project=lambda obj: obj, metrics=Metrics("tests")),
        host=load("vllm"),
        deployments=lambda key: None,
        is_named=lambda key: (),
        notify=lambda key: None,
        clock=lambda: NOW,
    )
    assert asyncio.run(kept(collector._events[0])) == UNKNOWN_CLAIMS


def test_the_model_cache_keeps_a_number_of_them_for_each_namespace() -> None:
    assert asyncio.run(kept(artifact_caches()._events)) == UNKNOWN_CLAIMS
