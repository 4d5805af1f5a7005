"""Weights that a template keeps warm: fetched before a deployment asks, met by it, and left to retention afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.modelcache.conftest import FILES, MODEL, Ground, at_once, running_part
from tests.modelcache.test_rows import FIVE_MINUTES, nothing_left, user_made
from tests.support.s3 import object_store

from airunway.api import names
from airunway.controller.application import CoreApplication, CoreSettings
from airunway.controller.policies import PolicyFile
from airunway.kinds import MODEL_ARTIFACT, MODEL_DEPLOYMENT, MODEL_TEMPLATE, RUNTIME_CONFIG
from airunway.kube import EVENT, JOB, PERSISTENT_VOLUME_CLAIM
from airunway.resource import ObjectKey, Resource, condition_of, dig, key_of, labels_of, uid_of
from airunway.validation.policy import parse_policy
from airunway_testing.background import in_background
from airunway_testing.modelhub.serving import Stall

pytestmark = pytest.mark.cluster


async def write(ground: Ground, name: str = "fast", *, labels: dict[str, str] | None = None, **spec: Any) -> Resource:
    """A template of the model whose caching is on."""
    metadata = {"name": name, "namespace": ground.namespace, "labels": labels or {}}
    wanted = {"modelName": MODEL, "caching": {"enabled": True}, **spec}
    body = {"apiVersion": names.API_VERSION, "kind": "ModelTemplate", "metadata": metadata, "spec": wanted}
    return await ground.client.apply(MODEL_TEMPLATE, body, manager="platform", force=True)


async def remove(ground: Ground, name: str = "fast") -> None:
    await ground.client.delete(MODEL_TEMPLATE, ObjectKey(ground.namespace, name))


async def said(ground: Ground, *, phase: str | None = None, users: list[str] | None = None) -> Resource:
    """The only artifact, once it has this phase, if one is given, and exactly these users."""

    async def look() -> Resource | None:
        found = await ground.artifacts()
        if len(found) != 1 or (phase and dig(found[0], "status", "phase") != phase):
            return None
        return found[0] if (dig(found[0], "status", "usedBy") or []) == (users or []) else None

    found = await ground.eventually(look)
    assert isinstance(found, dict)
    return found


@asynccontextmanager
async def running_core(ground: Ground) -> AsyncIterator[None]:
    """The core in the ground's namespace, until the context ends."""
    settings = CoreSettings(namespaces=(ground.namespace,), parts=(names.MODEL_CACHE_PART,))
    core = CoreApplication(client=ground.client, settings=settings)
    async with in_background(core.run(at_once)):
        yield


async def deploy_with_template(ground: Ground) -> None:
    """A deployment that names the template and no model."""
    metadata = {"name": "llama", "namespace": ground.namespace}
    spec = {
        "templateRef": {"name": "fast"},
        "provider": {"name": ground.provider},
        "engine": {"type": "vllm"},
        "resources": {"gpu": {"count": 1}},
    }
    body = {"apiVersion": names.API_VERSION, "kind": "ModelDeployment", "metadata": metadata, "spec": spec}
    await ground.client.create(MODEL_DEPLOYMENT, body)


async def test_a_deployment_with_only_a_template_meets_its_warm_weights(ground: Ground) -> None:
    async with running_core(ground), running_part(ground.client, namespace=ground.namespace):
        await write(ground)
        warm = await said(ground, phase="Ready", users=["ModelTemplate/fast"])
        assert labels_of(warm)[names.TEMPLATE] == "fast"
        assert (dig(warm, "status", "mode"), dig(warm, "status", "users")) == ("Shared", 1)
        pods = len(ground.pods())
        await deploy_with_template(ground)
        live = await ground.until("Ready")
        assert dig(live, "status", "modelCache", "artifactName") == key_of(warm).name
        assert "model" not in live["spec"]
        await said(ground, phase="Ready", users=["ModelTemplate/fast", "llama"])
    assert len(await ground.downloads()) == 1
    assert len(ground.pods()) == pods == 2, "one pod for each step, none for the deployment"


async def test_weights_of_a_bucket_are_warm_and_met_by_the_template_s_deployments(ground: Ground) -> None:
    objects = {f"weights/tiny/{name}": data for name, data in FILES.items()}
    async with (
        object_store({"models": objects}) as store,
        running_core(ground),
        running_part(ground.client, namespace=ground.namespace),
    ):
        await ground.config(env=[{"name": name, "value": value} for name, value in store.environment.items()])
        await write(ground, modelSources=[{"uri": "s3://models/weights/tiny"}])
        warm = await said(ground, phase="Ready", users=["ModelTemplate/fast"])
        assert dig(warm, "spec", "source", "uri") == "s3://models/weights/tiny"
        await deploy_with_template(ground)
        live = await ground.until("Ready")
        assert dig(live, "status", "modelCache", "artifactName") == key_of(warm).name
        assert dig(live, "status", "modelCache", "path") == "/model-cache"
        await said(ground, phase="Ready", users=["ModelTemplate/fast", "llama"])
    assert len(await ground.downloads()) == 1


@pytest.mark.slow
async def test_weights_of_a_removed_template_stay_for_their_users_and_by_retention(ground: Ground) -> None:
    async with running_part(ground.client, namespace=ground.namespace):
        await write(ground)
        await said(ground, phase="Ready", users=["ModelTemplate/fast"])
        await ground.deploy("llama")
        await ground.until("Ready")
        await said(ground, users=["ModelTemplate/fast", "llama"])
        await write(ground, caching={"enabled": False})
        await said(ground, users=["llama"])
        await write(ground)
        await said(ground, users=["ModelTemplate/fast", "llama"])
        await remove(ground)
        warm = await said(ground, users=["llama"])
        await ground.remove("llama")
        warm = await said(ground, phase="Ready")
        assert dig(warm, "status", "unusedSince") is not None
    async with running_part(ground.client, namespace=ground.namespace, later=FIVE_MINUTES):
        await ground.deploy("next")
        await ground.until("Ready", "next")
        assert uid_of(await ground.artifact()) == uid_of(warm), "a Ready one is kept"
    assert len(await ground.downloads()) == 1


async def test_retention_takes_what_no_template_keeps_and_leaves_what_one_does(ground: Ground) -> None:
    async with running_part(ground.client, namespace=ground.namespace):
        await write(ground)
        warm = await said(ground, phase="Ready", users=["ModelTemplate/fast"])
        retention = {"spec": {"retention": {"policy": "DeleteUnused", "ttlAfterUnused": "1h"}}}
        await ground.client.merge_patch(MODEL_ARTIFACT, key_of(warm), retention, manager="platform")
    async with running_part(ground.client, namespace=ground.namespace, later=timedelta(hours=3)):
        await asyncio.sleep(1)
        assert uid_of(await ground.artifact()) == uid_of(warm)
        await remove(ground)
        await said(ground)
    async with running_part(ground.client, namespace=ground.namespace, later=timedelta(hours=5)):
        await ground.eventually(lambda: nothing_left(ground))


async def test_what_is_not_ready_is_gone_five_minutes_after_its_template(ground: Ground) -> None:
    ground.hub.inject(Stall(after=100), path="model.safetensors")
    async with running_part(ground.client, namespace=ground.namespace):
        await write(ground)
        await ground.downloading()
        await said(ground, users=["ModelTemplate/fast"])
    async with running_part(ground.client, namespace=ground.namespace, later=FIVE_MINUTES):
        await said(ground, users=["ModelTemplate/fast"])
        await remove(ground)
        await said(ground)
    async with running_part(ground.client, namespace=ground.namespace, later=2 * FIVE_MINUTES):
        await ground.eventually(lambda: nothing_left(ground))


async def test_warm_weights_that_are_deleted_are_fetched_again_and_a_restart_writes_nothing(ground: Ground) -> None:
    async with running_part(ground.client, namespace=ground.namespace):
        await write(ground)
        first = await said(ground, phase="Ready", users=["ModelTemplate/fast"])
        await ground.client.delete(MODEL_ARTIFACT, key_of(first), uid=uid_of(first), propagation="Background")

        async def again() -> bool:
            found = await ground.artifacts()
            return len(found) == 1 and uid_of(found[0]) != uid_of(first) and dig(found[0], "status", "phase") == "Ready"

        await ground.eventually(again)
    before = dig(await ground.artifact(), "metadata", "resourceVersion")
    async with running_part(ground.client, namespace=ground.namespace):
        await asyncio.sleep(3)  # the users of an artifact are counted anew after half a second
    assert dig(await ground.artifact(), "metadata", "resourceVersion") == before


async def test_the_config_of_the_template_decides_class_mode_headroom_and_labels(ground: Ground) -> None:
    gold = {
        "storage": {
            "defaultStorageClassName": ground.class_name,
            "accessMode": "ReadWriteOnce",
            "pvcHeadroomPercent": 50,
        },
        "env": [{"name": "HF_ENDPOINT", "value": ground.hub.endpoint}],
        "labelPropagation": {"enabled": True, "match": ["team"]},
    }
    async with running_part(ground.client, namespace=ground.namespace):
        await write(ground, labels={"team": "a", "other": "b"}, runtimeConfigName="gold")
        await asyncio.sleep(1)
        assert await ground.artifacts() == [], "the config that it names does not exist: class and mode are not known"
        metadata = {"name": "gold", "namespace": ground.namespace}
        body = {"apiVersion": names.API_VERSION, "kind": "RuntimeConfig", "metadata": metadata, "spec": gold}
        await ground.client.apply(RUNTIME_CONFIG, body, manager="tests", force=True)
        warm = await said(ground, phase="Ready", users=["ModelTemplate/fast"])
        assert dig(warm, "spec", "runtimeConfigName") == "gold"
        assert dig(warm, "status", "headroomPercent") == 50
        (claim,) = await ground.all_of(PERSISTENT_VOLUME_CLAIM)
        assert (claim["spec"]["storageClassName"], claim["spec"]["accessModes"]) == (
            ground.class_name,
            ["ReadWriteOnce"],
        )
        for each in (warm, claim):
            assert (labels_of(each).get("team"), labels_of(each).get("other")) == ("a", None)
        assert names.TEMPLATE not in labels_of(claim)
        await write(ground, labels={"team": "c"}, runtimeConfigName="gold")

        async def relabelled() -> bool:
            found = [await ground.artifact(), *await ground.all_of(PERSISTENT_VOLUME_CLAIM)]
            return all(labels_of(each).get("team") == "c" for each in found)

        await ground.eventually(relabelled)
        await ground.client.delete(RUNTIME_CONFIG, ObjectKey(ground.namespace, "gold"))

        async def missing() -> bool:
            live = await ground.artifact()
            return (condition_of(live, "RuntimeConfigReady") or {}).get("reason") == "ConfigNotFound"

        await ground.eventually(missing)
    async with running_part(ground.client, namespace=ground.namespace, later=FIVE_MINUTES):
        await asyncio.sleep(1)
        await said(ground, users=["ModelTemplate/fast"])
    assert len(await ground.downloads()) == 1


async def test_what_the_api_server_refuses_is_an_event_of_the_template(ground: Ground) -> None:
    async with running_part(ground.client, namespace=ground.namespace):
        await write(ground, modelName="gpt2")

        async def look() -> Resource | None:
            events = await ground.client.list_all(EVENT, namespace=ground.namespace)
            return next((each for each in events if dig(each, "regarding", "kind") == "ModelTemplate"), None)

        found = await ground.eventually(look)
        assert isinstance(found, dict)
        assert (found["type"], found["reason"]) == ("Warning", "DownloadFailed")
        assert "uri must be hf://owner/name" in found["note"]
    assert await ground.artifacts() == []


async def test_a_config_that_the_policy_does_not_allow_fetches_nothing(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither for a template nor for an artifact of a user. What was accepted goes on under a stricter policy."""
    monkeypatch.setattr("airunway.controller.policies.REREAD", 0.2)
    strict, policy = "rules: [{environment: [HF_*]}]", tmp_path / "policy.yaml"
    policy.write_text(strict)

    async def artifact_is(name: str, reason: str) -> Resource:
        async def look() -> Resource | None:
            live = await ground.client.get(MODEL_ARTIFACT, ObjectKey(ground.namespace, name))
            return live if (condition_of(live, "RuntimeConfigReady") or {}).get("reason") == reason else None

        found = await ground.eventually(look)
        assert isinstance(found, dict)
        return found

    async def told() -> bool:
        events = await ground.client.list_all(EVENT, namespace=ground.namespace)
        notes = [str(each["note"]) for each in events if dig(each, "regarding", "kind") == "ModelTemplate"]
        return any(note.startswith("NotAllowed: RuntimeConfig 'default'") for note in notes)

    proxy = {"name": "NO_PROXY", "value": "*"}
    await ground.config(env=[{"name": "HF_ENDPOINT", "value": ground.hub.endpoint}, proxy])
    async with running_part(ground.client, namespace=ground.namespace, policy=PolicyFile(policy)) as part:
        await ground.client.create(MODEL_ARTIFACT, user_made(ground))
        refused = await artifact_is("mine", "NotAllowed")
        assert "environment variable 'NO_PROXY' is not allowed" in refused["status"]["message"]
        await write(ground)
        await ground.eventually(told)
        assert [key_of(each).name for each in await ground.artifacts()] == ["mine"]
        assert await ground.all_of(JOB) == []

        policy.write_text("{}")

        async def fetched() -> bool:
            return [dig(each, "status", "phase") for each in await ground.artifacts()] == ["Ready", "Ready"]

        await ground.eventually(fetched)
        policy.write_text(strict)
        in_force = parse_policy(strict).grants({})
        await ground.eventually(lambda: part._grants.of(ground.namespace) == in_force)
        late = user_made(ground)
        late["metadata"]["name"] = "late"
        await ground.client.create(MODEL_ARTIFACT, late)
        await artifact_is("late", "NotAllowed")
        await artifact_is("mine", "ConfigFound")
