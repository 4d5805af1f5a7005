"""Sources on an API server with a local registry: what they make, what survives them, what a failure does."""

from __future__ import annotations

import asyncio
import base64
import json
from datetime import UTC, datetime, timedelta
from functools import partial
from time import monotonic

import pytest
from catalogue.tests.conftest import Ground, running_worker

from airunway.api import names
from airunway.kinds import CLUSTER_MODEL_TEMPLATE, MODEL_SOURCE, RUNTIME_CONFIG
from airunway.resource import Resource, condition_of, dig, key_of, labels_of
from airunway_catalogue.pull_secrets import SECRET
from airunway_catalogue.registry import Limits
from airunway_catalogue.scan import MODEL_SOURCE_LABEL
from airunway_testing.eventually import eventually
from airunway_testing.registry.faults import Hang, HttpStatus
from airunway_testing.registry.server import Image, container_registry

pytestmark = pytest.mark.apiserver

LABELS = {
    "com.amd.aim.model.canonicalName": "meta-llama/Llama-3.1-8B-Instruct",
    "com.amd.aim.model.recommendedDeployments": "{'gpuModel': 'MI300X', 'gpuCount': 1, 'precision': 'fp8', "
    "'metric': 'latency'}, {'gpuModel': 'MI300X', 'gpuCount': 8, 'precision': 'fp8', 'metric': 'throughput'}",
}
IMAGES = [
    Image("team/llama", "1.0", labels=LABELS),
    Image("team/llama", "1.1", labels=LABELS, platforms=("linux/arm64", "linux/amd64")),
    Image("team/qwen", "2.0", labels={"ai.airunway.model.name": "Qwen/Qwen3-8B"}),
]


async def test_a_source_makes_templates_once_and_they_survive_it(ground: Ground) -> None:
    async with container_registry(IMAGES) as registry, running_worker(ground.client, ground.home) as worker:
        source = await ground.write(
            "models", registry=registry.host, filters=[{"image": "team/*"}], labels={"airunway.ai/team": "ml"}
        )
        status = await ground.scanned(source)
        templates = await ground.templates()
        assert (status["phase"], status["models"], status["filters"]) == (
            "Ready",
            5,
            [{"image": "team/*", "found": 3}],
        )
        assert {each["metadata"]["labels"]["airunway.ai/team"] for each in templates} == {"ml"}
        assert {each["metadata"]["labels"][MODEL_SOURCE_LABEL] for each in templates} == {source.name}
        assert not any(each["metadata"].get("ownerReferences") for each in templates)
        assert {each["spec"]["modelName"] for each in templates} == {
            "meta-llama/Llama-3.1-8B-Instruct",
            "Qwen/Qwen3-8B",
        }
        assert worker.reconciler.scans == 1
        assert await ground.event(source, "TemplatesMade") == (
            f"5 ClusterModelTemplates were made from images of {registry.host}"
        )

        for value in ("search", ""):  # what a config propagates reaches them later, too
            label = {"airunway.ai/team": value or None}
            await ground.client.merge_patch(MODEL_SOURCE, source, {"metadata": {"labels": label}})
            await eventually(partial(teams_are, ground, value))
        assert worker.reconciler.scans == 1
        relabelled = await ground.templates()
        assert [each["spec"] for each in relabelled] == [each["spec"] for each in templates]

        await ground.client.delete(MODEL_SOURCE, source)
        await asyncio.sleep(1)
        assert [key_of(each) for each in await ground.templates(source)] == [key_of(each) for each in templates]


async def teams_are(ground: Ground, value: str) -> bool:
    """Whether all templates have that value of the label, and lack it where it is empty."""
    return all(labels_of(each).get("airunway.ai/team", "") == value for each in await ground.templates())


async def test_a_status_write_starts_no_scan_and_a_change_of_the_spec_does(ground: Ground) -> None:
    async with container_registry(IMAGES) as registry, running_worker(ground.client, ground.home) as worker:
        source = await ground.write("models", registry=registry.host, filters=[{"image": "team/qwen"}])
        first = await ground.scanned(source)
        version = (await ground.read(source))["metadata"]["resourceVersion"]
        for number in range(3):
            body = {
                "apiVersion": "airunway.ai/v1alpha1",
                "kind": "ModelSource",
                "metadata": {"name": source.name},
                "status": {"rootCause": {"code": f"Played{number}"}},
            }
            await ground.client.apply(MODEL_SOURCE, body, manager="someone", subresource="status")
        label = {"metadata": {"labels": {"a": "b"}}}
        await ground.client.merge_patch(MODEL_SOURCE, source, label)
        await asyncio.sleep(1.5)
        assert (worker.reconciler.scans, registry.asked("tags")) == (1, 1)
        quiet = await ground.read(source)
        assert quiet["status"]["lastSyncTime"] == first["lastSyncTime"]
        assert version != quiet["metadata"]["resourceVersion"]

        await ground.write("models", registry=registry.host, filters=[{"image": "team/*"}])
        second = await ground.scanned(source)
        assert second["models"] == 5
        assert worker.reconciler.scans == 2


async def test_a_scan_writes_the_time_once_and_rests(ground: Ground) -> None:
    async with container_registry(IMAGES) as registry, running_worker(ground.client, ground.home):
        source = await ground.write("models", registry=registry.host, filters=[{"image": "team/*"}])
        await ground.scanned(source)
        await asyncio.sleep(1)
        before = (await ground.read(source))["metadata"]["resourceVersion"]
        await asyncio.sleep(2)
        assert (await ground.read(source))["metadata"]["resourceVersion"] == before
        status = (await ground.read(source))["status"]
        assert _seconds(status) == 3600
        async with running_worker(ground.client, ground.home) as next_process:
            await asyncio.sleep(1.5)
            assert next_process.reconciler.scans == 0
        assert (await ground.read(source))["metadata"]["resourceVersion"] == before


async def test_a_partial_failure_is_Degraded_and_all_failed_is_Failed(ground: Ground) -> None:  # noqa: N802
    async with container_registry(IMAGES) as registry, running_worker(ground.client, ground.home):
        registry.faults.inject(HttpStatus(status=401), repository="team/llama")
        both = [{"image": "team/llama"}, {"image": "team/qwen"}]
        source = await ground.write("models", registry=registry.host, filters=both)
        status = await ground.scanned(source)
        assert status["phase"] == "Degraded"
        assert [each.get("reason") for each in status["filters"]] == ["Unauthorized", None]
        assert condition_of({"status": status}, "AuthValid")["reason"] == "Unauthorized"  # type: ignore[index]
        assert len(await ground.templates()) == 1
        assert 59 <= _seconds(status) <= 60
        assert (await ground.event(source, "ScanFailed")).startswith("Unauthorized: 1 of 2 filters failed")

        registry.faults.inject(HttpStatus(status=403))
        await ground.write("models", registry=registry.host, filters=both, maxModels=50)
        status = await ground.status_when(source, lambda found: found.get("phase") == "Failed")
        assert [each.get("reason") for each in status["filters"]] == ["Unauthorized", "Forbidden"]
        assert status["models"] == 1
        assert len(await ground.templates()) == 1

        registry.faults.clear()
        await ground.write("models", registry=registry.host, filters=both, maxModels=60)
        status = await ground.status_when(source, lambda found: found.get("phase") == "Ready")
        assert status["models"] == 5
        assert "rootCause" not in status


def _seconds(status: Resource) -> float:
    following, last = (datetime.fromisoformat(status[field]) for field in ("nextSyncTime", "lastSyncTime"))
    return (following - last).total_seconds()


async def test_a_constraint_like_tilde_is_refused_and_nothing_is_asked(ground: Ground) -> None:
    async with container_registry(IMAGES) as registry, running_worker(ground.client, ground.home):
        source = await ground.write("models", registry=registry.host, filters=[{"image": "team/*"}], versions=["~1.2"])
        status = await ground.scanned(source)
        assert (status["phase"], status["reason"]) == ("Failed", "InvalidConstraint")
        assert "filter team/*: spec.versions: '~1.2' cannot be read" in status["message"]
        assert condition_of({"status": status}, "ConfigValid")["reason"] == "InvalidConstraint"  # type: ignore[index]
        assert registry.requests == []
        assert await ground.templates() == []


async def test_a_registry_that_limits_requests_is_asked_again_at_its_time(ground: Ground) -> None:
    now = datetime.now(UTC)
    later = [timedelta()]
    async with (
        container_registry(IMAGES) as registry,
        running_worker(ground.client, ground.home, clock=lambda: now + later[0]) as worker,
    ):
        registry.faults.inject(HttpStatus(status=429, headers={"Retry-After": "300"}))
        source = await ground.write("models", registry=registry.host, filters=[{"image": "team/*"}])
        status = await ground.scanned(source)
        assert status["filters"][0]["reason"] == "RateLimited"
        assert 299 <= _seconds(status) <= 301
        asked = registry.asked()
        later[0] = timedelta(seconds=290)
        worker._wake(source)
        await asyncio.sleep(0.5)
        assert registry.asked() == asked
        registry.faults.clear()
        later[0] = timedelta(seconds=302)
        worker._wake(source)
        status = await ground.status_when(source, lambda found: found.get("phase") == "Ready")
        assert status["models"] == 5


async def test_what_exists_is_never_changed_and_what_was_deleted_comes_back(ground: Ground) -> None:
    async with container_registry(IMAGES) as registry, running_worker(ground.client, ground.home):
        filters = [{"image": "team/llama"}]
        source = await ground.write("models", registry=registry.host, filters=filters)
        await ground.scanned(source)
        first, second, *_ = await ground.templates()
        edit = {"spec": {"defaults": {"env": [{"name": "A", "value": "1"}]}}, "metadata": {"labels": {"mine": "x"}}}
        await ground.client.merge_patch(CLUSTER_MODEL_TEMPLATE, key_of(first), edit)
        edited = await ground.client.get(CLUSTER_MODEL_TEMPLATE, key_of(first))
        await ground.client.delete(CLUSTER_MODEL_TEMPLATE, key_of(second))
        await ground.status_when(source, lambda found: found.get("models") == 3)
        await ground.write("models", registry=registry.host, filters=filters, maxModels=99)
        status = await ground.status_when(source, lambda found: found.get("models") == 4)
        assert status["phase"] == "Ready"
        assert await ground.client.get(CLUSTER_MODEL_TEMPLATE, key_of(first)) == edited
        assert key_of(second) in {key_of(each) for each in await ground.templates()}


async def test_a_template_of_someone_else_with_the_name_is_left_alone(ground: Ground) -> None:
    async with container_registry(IMAGES) as registry, running_worker(ground.client, ground.home):
        first = await ground.write("first", registry=registry.host, filters=[{"image": "team/qwen"}])
        await ground.scanned(first)
        second = await ground.write("second", registry=registry.host, filters=[{"image": "team/*"}])
        status = await ground.scanned(second)
        assert (status["phase"], status["models"]) == ("Ready", 4)
        assert len(await ground.templates(first)) == 1


async def test_the_limit_is_in_the_status(ground: Ground) -> None:
    async with container_registry(IMAGES) as registry, running_worker(ground.client, ground.home):
        source = await ground.write("models", registry=registry.host, filters=[{"image": "team/*"}], maxModels=3)
        status = await ground.scanned(source)
        assert (status["phase"], status["models"]) == ("Ready", 2)
        assert "maxModels is reached: 3 templates" in status["message"]
        made = await ground.templates()
        assert {each["spec"]["defaults"]["image"].partition("@")[0].rpartition(":")[2] for each in made} == {"1.1"}


async def test_a_pull_secret_is_read_by_name_in_the_home_namespace(ground: Ground) -> None:
    users = {"robot": "the-password-of-the-robot"}
    async with (
        container_registry(IMAGES, auth="token", users=users) as registry,
        running_worker(ground.client, ground.home),
    ):
        spec = {"registry": registry.host, "filters": [{"image": "team/qwen"}], "imagePullSecrets": [{"name": "pull"}]}
        source = await ground.write("models", **spec)
        status = await ground.scanned(source)
        assert (status["phase"], status["filters"][0]["reason"]) == ("Failed", "SecretNotFound")
        assert f"there is no Secret pull in namespace {ground.home}" in status["message"]
        assert status["rootCause"]["field"] == "spec.imagePullSecrets"
        assert registry.requests == []

        auths = {registry.host: {"username": "robot", "password": users["robot"]}}
        encoded = base64.b64encode(json.dumps({"auths": auths}).encode()).decode()
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/dockerconfigjson",
            "metadata": {"name": "pull", "namespace": ground.home},
            "data": {".dockerconfigjson": encoded},
        }
        await ground.client.create(SECRET, secret)
        await ground.write("models", **spec, maxModels=9)
        status = await ground.status_when(source, lambda found: found.get("phase") == "Ready")
        assert status["models"] == 1
        everything = json.dumps([await ground.read(source), *await ground.templates()])
        assert users["robot"] not in everything
        assert encoded not in everything


async def test_the_config_is_that_of_the_operators_namespace(ground: Ground) -> None:
    config = {
        "apiVersion": names.API_VERSION,
        "kind": "RuntimeConfig",
        "metadata": {"name": "gpu", "namespace": ground.home},
        "spec": {"labelPropagation": {"enabled": True, "match": ["org.example/*"]}},
    }
    async with container_registry(IMAGES) as registry, running_worker(ground.client, ground.home):
        source = await ground.write(
            "models",
            registry=registry.host,
            filters=[{"image": "team/qwen"}],
            runtimeConfigName="gpu",
            labels={"org.example/cost": "7", "other": "x"},
        )
        status = await ground.status_when(source, lambda found: found.get("reason") == "ConfigNotFound")
        assert status["phase"] == "Pending"
        assert registry.requests == []
        await ground.client.create(RUNTIME_CONFIG, config)
        status = await ground.scanned(source)
        assert status["phase"] == "Ready"
        assert dig(status, "effectiveRuntimeConfig", "namespaceRef", "namespace") == ground.home
        [template] = await ground.templates()
        assert template["metadata"]["labels"]["org.example/cost"] == "7"
        assert "other" not in template["metadata"]["labels"]
        assert template["spec"]["runtimeConfigName"] == "gpu"


async def test_slow_registries_delay_no_other_source(ground: Ground) -> None:
    async with (
        container_registry(IMAGES) as slow,
        container_registry(IMAGES) as quick,
        running_worker(ground.client, ground.home, limits=Limits(request=30)),
    ):
        slow.faults.inject(Hang(seconds=20))
        waiting = [
            await ground.write(f"slow-{number}", registry=slow.host, filters=[{"image": "team/qwen"}])
            for number in range(12)
        ]
        started = monotonic()
        source = await ground.write("quick", registry=quick.host, filters=[{"image": "team/*"}])
        status = await ground.scanned(source)
        assert status["models"] == 5
        assert monotonic() - started < 5
        assert slow.most_at_once <= 2
        phases = {dig(await ground.read(key), "status", "phase") for key in waiting}
        assert phases == {"Pending", "Starting"}


async def test_sources_that_waited_get_their_turn(ground: Ground) -> None:
    async with container_registry(IMAGES) as registry, running_worker(ground.client, ground.home):
        registry.faults.inject(Hang(seconds=0.2), route="tags")
        sources = [
            await ground.write(f"s-{number}", registry=registry.host, filters=[{"image": "team/qwen"}])
            for number in range(6)
        ]
        for source in sources:
            assert (await ground.scanned(source))["phase"] == "Ready"


async def test_a_scan_that_was_interrupted_is_finished_by_the_next_process(ground: Ground) -> None:
    images = [Image("team/llama", f"1.{number}", labels=LABELS) for number in range(40)]
    async with container_registry(images) as registry:
        registry.faults.inject(Hang(seconds=0.05), route="blob")
        async with running_worker(ground.client, ground.home):
            source = await ground.write("models", registry=registry.host, filters=[{"image": "team/*"}])
            await eventually(lambda: _some(ground))
        made = len(await ground.templates())
        assert 0 < made < 80
        assert "lastSyncTime" not in (await ground.read(source))["status"]
        registry.faults.clear()
        asked = registry.asked("manifest")
        async with running_worker(ground.client, ground.home):
            status = await ground.scanned(source)
        assert (status["phase"], status["models"]) == ("Ready", 80)
        assert registry.asked("manifest") - asked <= 40 - made // 2 + 1  # images that are complete are not read again


async def _some(ground: Ground) -> bool:
    return len(await ground.templates()) >= 10


async def test_a_paused_source_is_left_alone(ground: Ground) -> None:
    async with container_registry(IMAGES) as registry, running_worker(ground.client, ground.home):
        source = await ground.write("models", registry=registry.host, filters=[{"image": "team/qwen"}])
        await ground.scanned(source)
        paused = {"metadata": {"annotations": {names.PAUSED: "true"}}}
        await ground.client.merge_patch(MODEL_SOURCE, source, paused)
        await asyncio.sleep(0.3)
        await ground.write("models", registry=registry.host, filters=[{"image": "team/*"}])
        await asyncio.sleep(1)
        assert len(await ground.templates()) == 1
        await ground.client.merge_patch(MODEL_SOURCE, source, {"metadata": {"annotations": {names.PAUSED: None}}})
        status = await ground.scanned(source)
        assert status["models"] == 5


async def test_a_source_that_is_paused_while_it_waits_takes_no_turn_from_others(ground: Ground) -> None:
    async with container_registry(IMAGES) as registry, running_worker(ground.client, ground.home):
        registry.faults.inject(Hang(seconds=2), route="tags")
        wanted = {"registry": registry.host, "filters": [{"image": "team/qwen"}]}
        first = [await ground.write(f"first-{number}", **wanted) for number in range(2)]
        for key in first:
            await ground.status_when(key, lambda status: status.get("phase") == "Starting")
        for number in range(2):
            paused = await ground.write(f"paused-{number}", **wanted)
            await ground.status_when(paused, lambda status: status.get("reason") == "Queued")
            stop = {"metadata": {"annotations": {names.PAUSED: "true"}}}
            await ground.client.merge_patch(MODEL_SOURCE, paused, stop)
        last = await ground.write("last", **wanted)
        assert "lastSyncTime" not in ((await ground.read(first[0])).get("status") or {}), "the first ones scan still"
        for key in (*first, last):
            assert (await ground.scanned(key))["phase"] == "Ready"
