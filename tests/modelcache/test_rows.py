"""The edge cases of the model cache part, on a cluster with the real downloader."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import ClientSession
from tests.modelcache.conftest import MODEL, Ground, running_part

from airunway.api import names
from airunway.artifacts.claims import claim_name, content_name
from airunway.artifacts.jobs import finished
from airunway.configs.resolution import resolve
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_ARTIFACT, MODEL_DEPLOYMENT, RUNTIME_CONFIG
from airunway.kube import JOB, NAMESPACE, PERSISTENT_VOLUME_CLAIM, POD, STORAGE_CLASS, Kind
from airunway.modelcache import artifacts, downloads
from airunway.modelcache.application import DEFAULT_DOWNLOADER_IMAGE, ModelCacheApplication, ModelCacheSettings
from airunway.resource import ObjectKey, Resource, annotations_of, condition_of, dig, key_of, labels_of, uid_of
from airunway_testing.modelhub.serving import Stall
from airunway_testing.storage.provisioner import storage_class
from airunway_testing.storage.volumes import limits_work

pytestmark = pytest.mark.cluster

RESOURCE_QUOTA = Kind("", "v1", "ResourceQuota", "resourcequotas")
FIVE_MINUTES = timedelta(minutes=5, seconds=1)
SIZED = {"mode": "Shared", "size": "1Gi"}
"""A cache whose size is not measured: that is a process less for tests that are not about it."""


async def claim_names(ground: Ground) -> list[str]:
    return sorted(key_of(claim).name for claim in await ground.all_of(PERSISTENT_VOLUME_CLAIM))


async def nothing_left(ground: Ground) -> bool:
    kinds = (MODEL_ARTIFACT, PERSISTENT_VOLUME_CLAIM, JOB, POD)
    return not any([await ground.client.list_all(kind, namespace=ground.namespace) for kind in kinds])


async def test_a4_two_processes_at_once_make_one_artifact_one_claim_and_one_download(ground: Ground) -> None:
    """In a namespace that admits only restricted pods (A38); and once it is Ready, the artifact stays without users and
    serves the next one (A6).
    """
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await ground.client.merge_patch(NAMESPACE, ObjectKey("", ground.namespace), {"metadata": {"labels": labels}})
    async with (
        running_part(ground.client, namespace=ground.namespace, instance="one"),
        running_part(ground.client, namespace=ground.namespace, instance="two"),
    ):
        await ground.deploy("one")
        await ground.deploy("two")
        await ground.until("Ready", "one")
        await ground.until("Ready", "two")
        assert len(await ground.artifacts()) == len(await claim_names(ground)) == len(await ground.downloads()) == 1
        assert len(ground.pods()) == 2, "one pod for each step"
        for name in ("one", "two"):
            await ground.remove(name)
        await ground.eventually(lambda: users(ground, None))
    async with running_part(ground.client, namespace=ground.namespace, later=FIVE_MINUTES):
        await ground.deploy("three")
        await ground.until("Ready", "three")
    assert len(await ground.downloads()) == 1
    assert len(ground.pods()) == 2


async def test_a6_a_download_goes_on_for_its_other_user_and_goes_without_any(ground: Ground) -> None:
    ground.hub.inject(Stall(after=100), path="model.safetensors")
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy("one")
        await ground.deploy("two")
        played = await ground.downloading()
        await ground.remove("one")
        await ground.eventually(lambda: users(ground, ["two"]))
        assert played.running
        await ground.remove("two")
        await ground.eventually(lambda: users(ground, None))
    assert played.running
    async with running_part(ground.client, namespace=ground.namespace, later=FIVE_MINUTES):
        await ground.eventually(lambda: nothing_left(ground))


async def users(ground: Ground, wanted: list[str] | None) -> bool:
    return bool(dig(await ground.artifact(), "status", "usedBy") == wanted)


async def test_a33_weights_that_serve_are_in_use_until_the_new_ones_serve(ground: Ground) -> None:
    """The model was edited: the status names the new artifact at once, and the pods go on with the old claim."""
    key = ObjectKey(ground.namespace, "one")

    async def serves(claim: str) -> None:
        status = {"status": {"revision": {"cache": {"claim": claim}}}}
        await ground.client.merge_patch(MODEL_DEPLOYMENT, key, status, subresource="status", manager="provider")

    async def unused(name: str) -> bool:
        live = await ground.client.get(MODEL_ARTIFACT, ObjectKey(ground.namespace, name))
        return bool(dig(live, "status", "users") == 0)

    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy("one", cache=SIZED)
        before = (await ground.until("Ready", "one"))["status"]["modelCache"]
        await serves(before["claimName"])
        with ground.held():
            edited = await ground.client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"model": {"id": "acme/other"}}})
            await ground.validate(edited)
            await ground.downloading()
            assert (await ground.get("one"))["status"]["modelCache"]["artifactName"] != before["artifactName"]
            await asyncio.sleep(1.5)  # users are counted anew after half a second
            assert not await unused(before["artifactName"])
        after = (await ground.until("Ready", "one"))["status"]["modelCache"]
        assert not await unused(before["artifactName"])
        await serves(after["claimName"])
        await ground.eventually(lambda: unused(before["artifactName"]))
        assert not await unused(after["artifactName"])


async def test_an_edited_template_is_answered_anew_although_the_generation_stays(ground: Ground) -> None:
    """The effective spec changes with the template: first that gives a cache, then another model."""
    shared: Resource = {"mode": "Shared"}
    async with running_part(ground.client, namespace=ground.namespace):
        made = await ground.deploy("one", model={}, templateRef={"name": "t"})
        await ground.validate(made, given={"model": {"id": MODEL}})
        await ground.validate(made, given={"model": {"id": MODEL, "cache": shared}})
        before = (await ground.until("Ready", "one"))["status"]
        assert before["modelCache"]["templateHash"] == before["effectiveTemplate"]["hash"]
        await ground.validate(made, given={"model": {"id": "acme/other", "cache": shared}})
        await ground.until_not("Ready", "one")
        after = (await ground.until("Ready", "one"))["status"]
        assert after["modelCache"]["templateHash"] == after["effectiveTemplate"]["hash"]
        assert after["modelCache"]["artifactName"] != before["modelCache"]["artifactName"]


async def test_a7_a_dedicated_cache_goes_with_its_deployment(ground: Ground) -> None:
    ground.hub.inject(Stall(after=100))
    async with running_part(ground.client, namespace=ground.namespace):
        made = await ground.deploy(cache={"mode": "Dedicated"})
        await ground.downloading()
        artifact = await ground.artifact()
        assert dig(artifact, "metadata", "ownerReferences")[0]["uid"] == uid_of(made)
        assert dig(artifact, "status", "mode") == "Dedicated"
        await ground.remove("llama")
        await ground.eventually(lambda: nothing_left(ground))


async def test_a8_an_evicted_pod_is_replaced_and_counts_as_no_attempt(ground: Ground) -> None:
    async with running_part(ground.client, namespace=ground.namespace):
        with ground.held():
            await ground.deploy(cache=SIZED)
            played = await ground.downloading()
            await ground.runner.evict(played.key)
        await ground.until("Ready")
    artifact = await ground.artifact()
    assert (artifact["status"]["download"]["attempts"], len(await ground.downloads())) == (1, 1)
    assert len(ground.pods()) == 2


async def test_a13_an_edited_config_and_a_class_that_goes_stop_no_download(ground: Ground) -> None:
    mine = {
        "apiVersion": names.API_VERSION,
        "kind": MODEL_ARTIFACT.kind,
        "metadata": {"name": "mine", "namespace": ground.namespace},
        "spec": {"source": {"uri": "hf://acme/tiny"}},
    }
    async with running_part(ground.client, namespace=ground.namespace):
        with ground.held():
            await ground.client.create(MODEL_ARTIFACT, mine)
            await ground.downloading()
            await ground.config(storage={"defaultStorageClassName": "there-is-none"})
            await ground.client.delete(STORAGE_CLASS, ObjectKey("", ground.class_name))
            await ground.eventually(lambda: follows_none(ground))
        await ground.eventually(lambda: is_complete(ground))
    assert len(await ground.downloads()) == len(await claim_names(ground)) == 1


async def follows_none(ground: Ground) -> bool:
    """Whether the part has read the edited config."""
    config = await ground.client.get(RUNTIME_CONFIG, ObjectKey(ground.namespace, "default"))
    status = (await ground.artifact())["status"]
    seen = dig(status, "effectiveRuntimeConfig", "hash")
    expected = resolve("default", namespaced=config, cluster=None).config
    return expected is not None and seen == expected.hash


async def is_complete(ground: Ground) -> bool:
    return bool(dig(await ground.artifact(), "status", "phase") == "Ready")


@pytest.mark.skipif(not limits_work(), reason="volumes cannot be limited here")
async def test_a12_a_full_volume_that_grows_slowly_is_tried_once_it_has_grown(ground: Ground) -> None:
    options: dict[str, Any] = {"bytes_per_gib": 20_000, "expandable": True, "resize_delay": 3}
    await ground.client.create(STORAGE_CLASS, storage_class(f"grows-{ground.class_name}", **options))
    cache = {"mode": "Shared", "storageClassName": f"grows-{ground.class_name}", "size": "1Gi"}
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy(cache=cache)
        await ground.until("StorageFull")
        key = key_of(await ground.artifact())
        await ground.client.merge_patch(MODEL_ARTIFACT, key, {"spec": {"size": "3Gi"}})
        await ground.until("PvcPending")
        assert len(await ground.downloads()) == 1, "no try begins before the volume has grown"
        await ground.until("Ready")
    status = (await ground.artifact())["status"]
    assert (status["download"]["attempts"], status["allocatedSize"]) == (2, "3Gi")
    assert len(await claim_names(ground)) == 1
    await ground.client.delete(STORAGE_CLASS, ObjectKey("", cache["storageClassName"]))


async def test_a14_a_claim_deleted_by_hand_is_fetched_anew_under_another_name(ground: Ground) -> None:
    """With the Jobs that fetched it, and without."""
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy(cache=SIZED)
        before = (await ground.until("Ready"))["status"]["modelCache"]["claimName"]
        for with_jobs in (True, False):
            if not with_jobs:
                for job in await ground.all_of(JOB):
                    await ground.client.delete(JOB, key_of(job))
                await ground.eventually(lambda: no_pods(ground))
            with ground.held():
                await ground.client.delete(PERSISTENT_VOLUME_CLAIM, ObjectKey(ground.namespace, before))
                lost = await ground.until("CacheLost")
            assert dig(lost, "status", "modelCache", "claimName") == before, "what serves goes on with its claim"
            after = (await ground.until("Ready"))["status"]["modelCache"]["claimName"]
            assert after != before
            before = after


async def test_a14_a_claim_deleted_while_no_core_ran_is_not_ready_by_its_finished_job(ground: Ground) -> None:
    with ground.held():
        async with running_part(ground.client, namespace=ground.namespace):
            await ground.deploy(cache=SIZED)
            await ground.downloading()
    await ground.eventually(lambda: fetched(ground))
    (claim,), (job,) = await ground.all_of(PERSISTENT_VOLUME_CLAIM), await ground.downloads()
    assert annotations_of(job)[names.CLAIM_UID] == uid_of(claim)
    await ground.client.delete(PERSISTENT_VOLUME_CLAIM, key_of(claim))
    unprotected = {"metadata": {"finalizers": None}}  # else it goes with the Job's pod
    await ground.client.merge_patch(PERSISTENT_VOLUME_CLAIM, key_of(claim), unprotected)
    await ground.eventually(lambda: no_claims(ground))
    async with running_part(ground.client, namespace=ground.namespace):
        found = (await ground.until("Ready"))["status"]["modelCache"]["claimName"]
    assert found != key_of(claim).name
    assert len(await ground.downloads()) == 2


async def fetched(ground: Ground) -> bool:
    return all(finished(job) == "Complete" for job in await ground.downloads())


async def no_claims(ground: Ground) -> bool:
    return not await ground.client.list_all(PERSISTENT_VOLUME_CLAIM, namespace=ground.namespace)


async def no_pods(ground: Ground) -> bool:
    return not await ground.client.list_all(POD, namespace=ground.namespace)


async def test_a15_a_shared_artifact_deleted_under_two_users_is_made_again(ground: Ground) -> None:
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy("one", cache=SIZED)
        await ground.deploy("two", cache=SIZED)
        before = (await ground.until("Ready", "one"))["status"]["modelCache"]["claimName"]
        await ground.until("Ready", "two")
        old = await ground.artifact()
        with ground.held():
            await ground.client.delete(MODEL_ARTIFACT, key_of(old))
            for name in ("one", "two"):
                lost = await ground.until("CacheLost", name)
                assert dig(lost, "status", "modelCache", "claimName") == before
        for name in ("one", "two"):
            again = await ground.until("Ready", name)
            assert dig(again, "status", "modelCache", "claimName") != before
        new = await ground.artifact()
        assert (key_of(new), uid_of(new) != uid_of(old)) == (key_of(old), True)
        assert (condition_of(new, "StorageReady") or {})["reason"] == "Bound"


async def test_a16_read_write_once_is_refused_to_three_replicas_before_anything_is_made(ground: Ground) -> None:
    async with running_part(ground.client, namespace=ground.namespace):
        cache = {"mode": "Shared", "accessMode": "ReadWriteOnce"}
        await ground.deploy(cache=cache, scaling={"replicas": 3})
        await ground.until("AccessModeConflict")
        assert await ground.artifacts() == []


async def test_a16_the_access_mode_of_a_users_artifact_is_that_of_its_claim_or_its_own_config(ground: Ground) -> None:
    spec = {"storage": {"defaultStorageClassName": ground.class_name, "accessMode": "ReadWriteOnce"}}
    metadata = {"name": "single", "namespace": ground.namespace}
    own = {"apiVersion": names.API_VERSION, "kind": "RuntimeConfig", "metadata": metadata, "spec": spec}
    await ground.client.create(RUNTIME_CONFIG, own)
    mine = {
        "apiVersion": names.API_VERSION,
        "kind": MODEL_ARTIFACT.kind,
        "metadata": {"name": "mine", "namespace": ground.namespace},
        "spec": {"source": {"uri": "hf://acme/tiny"}, "runtimeConfigName": "single"},
    }
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.client.create(MODEL_ARTIFACT, mine)
        await ground.deploy("three", cache={"mode": "Shared", "artifactName": "mine"}, scaling={"replicas": 3})
        conflict = await ground.until("AccessModeConflict", "three")
        assert "ReadWriteOnce" in (condition_of(conflict, "ModelCacheReady") or {})["message"]


async def test_a16_a_second_user_of_read_write_once_waits_for_the_first_to_leave(ground: Ground) -> None:
    async with running_part(ground.client, namespace=ground.namespace):
        cache = {**SIZED, "accessMode": "ReadWriteOnce"}
        await ground.deploy("one", cache=cache)
        await ground.until("Ready", "one")
        await ground.deploy("another", cache=cache)
        conflict = await ground.until("AccessModeConflict", "another")
        assert "claimName" not in conflict["status"]["modelCache"]
        await ground.client.merge_patch(  # a pass of the first one, which serves
            MODEL_DEPLOYMENT, ObjectKey(ground.namespace, "one"), {"spec": {"resources": {"gpu": {"count": 2}}}}
        )
        await ground.eventually(lambda: users(ground, ["another", "one"]))
        assert (condition_of(await ground.get("one"), "ModelCacheReady") or {})["status"] == "True"
        await ground.remove("one")
        await ground.until("Ready", "another")


async def test_a18_a26_a27_a_restart_is_no_attempt_and_a_deleted_job_is_tried_at_once(ground: Ground) -> None:
    model = {"id": "acme/gated", "cache": {"mode": "Shared", "size": "1Gi"}}
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy(model=model)
        await ground.until("GatedModel")
        before = await ground.artifact()
    async with running_part(ground.client, namespace=ground.namespace) as part:
        await settled(ground, part)
        after = await ground.artifact()
        assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
        assert after["status"]["download"]["attempts"] == 1
        (job,) = await ground.downloads()
        await ground.client.delete(JOB, key_of(job))
        await ground.eventually(lambda: attempts(ground, 2))


async def attempts(ground: Ground, wanted: int) -> bool:
    return bool(dig(await ground.artifact(), "status", "download", "attempts") == wanted)


async def settled(ground: Ground, part: ModelCacheApplication) -> None:
    """Wait until the part has done all that it had to do at its start, and one more deployment."""
    name = f"fence-{len(await ground.all_of(MODEL_DEPLOYMENT))}"
    await ground.deploy(name, cache={"mode": "Shared", "artifactName": "there-is-none"})
    await ground.until("ReferenceNotFound", name)
    queues = [part._queue, part._artifact_queue]
    await ground.eventually(lambda: not any(queue.depth for queue in queues))


async def versions(ground: Ground) -> dict[tuple[str, str], str]:
    kinds = (MODEL_DEPLOYMENT, MODEL_ARTIFACT, PERSISTENT_VOLUME_CLAIM, JOB)
    found = [(kind.kind, each) for kind in kinds for each in await ground.all_of(kind)]
    return {(kind, key_of(each).name): each["metadata"]["resourceVersion"] for kind, each in found}


async def test_x4_a27_a20_a_restart_a_removed_job_and_another_provider_write_nothing(ground: Ground) -> None:
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy("one", labels={"team": "a"}, cache=SIZED)
        await ground.deploy("two", cache={**SIZED, "mode": "Dedicated"})
        for name in ("one", "two"):
            await ground.until("Ready", name)
        for job in await ground.all_of(JOB):
            await ground.client.delete(JOB, key_of(job))
        await ground.eventually(lambda: no_pods(ground))
    before = await versions(ground)
    async with running_part(ground.client, namespace=ground.namespace) as part:
        await settled(ground, part)
        after = await versions(ground)
        assert {key: value for key, value in after.items() if "fence" not in key[1]} == before
        assert await ground.downloads() == []
        pods = len(ground.pods())
        cache = (await ground.get("one"))["status"]["modelCache"]
        other = await move_provider(ground, "one")
        try:
            await settled(ground, part)
            live = await ground.get("one")
            assert dig(live, "status", "provider", "name") == other
            assert (live["status"]["modelCache"], len(ground.pods())) == (cache, pods)
        finally:
            await ground.client.delete(INFERENCE_PROVIDER_CONFIG, ObjectKey("", other))


async def move_provider(ground: Ground, name: str) -> str:
    """Give the deployment another provider with the same engine, as a migration does; returns its name."""
    other = f"{ground.provider}-b"
    config = await ground.client.get(INFERENCE_PROVIDER_CONFIG, ObjectKey("", ground.provider))
    body = {**config, "metadata": {"name": other}}
    await ground.client.create(INFERENCE_PROVIDER_CONFIG, body)
    await ground.client.merge_patch(
        MODEL_DEPLOYMENT,
        ObjectKey(ground.namespace, name),
        {"status": {"provider": {"name": other}}},
        subresource="status",
    )
    return other


def user_made(ground: Ground, **spec: object) -> Resource:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ModelArtifact",
        "metadata": {"name": "mine", "namespace": ground.namespace},
        "spec": {"source": {"uri": "hf://acme/tiny"}, "size": "1Gi", **spec},
    }


async def test_a30_a_foreign_claim_under_our_name_is_neither_used_nor_deleted(ground: Ground) -> None:
    artifact = await ground.client.create(MODEL_ARTIFACT, user_made(ground))
    name = claim_name("mine", uid=uid_of(artifact), attempt=0)
    spec = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": ground.class_name,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    body = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": ground.namespace},
        "spec": spec,
    }
    foreign = await ground.client.create(PERSISTENT_VOLUME_CLAIM, body)
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy(cache={"mode": "Shared", "artifactName": "mine"})
        await ground.until("ResourceConflict")
        live = await ground.client.get(PERSISTENT_VOLUME_CLAIM, key_of(foreign))
        assert live["metadata"]["resourceVersion"] == foreign["metadata"]["resourceVersion"]
        assert await ground.downloads() == []
        await ground.client.delete(PERSISTENT_VOLUME_CLAIM, key_of(foreign))
        await ground.until("Ready")


async def test_a_poisoned_artifact_under_the_derived_name_is_used_by_no_deployment(ground: Ground) -> None:
    """Its labels, name and source are those of the artifact that the part would have made; its hub is the thief's."""
    thief = user_made(ground, env=[{"name": "HF_ENDPOINT", "value": ground.hub.endpoint}], accessMode="ReadWriteMany")
    thief["spec"] |= {"storageClassName": ground.class_name, "modelId": MODEL, "runtimeConfigName": "default"}
    thief["metadata"] |= {
        "name": content_name(thief["spec"], ground.namespace),
        "labels": {names.MANAGED_BY: names.MANAGED_BY_VALUE, names.PART: names.MODEL_CACHE_PART},
    }
    made = await ground.client.create(MODEL_ARTIFACT, thief)
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy(cache=SIZED)
        live = await ground.until("ResourceConflict")
        assert key_of(made).name in dig(condition_of(live, "ModelCacheReady"), "message", default="")
        assert dig(live, "status", "modelCache", "ready") is False
        await ground.client.delete(MODEL_ARTIFACT, key_of(made))
        await ground.until("Ready")


async def test_a31_a_namespace_is_deleted_with_everything_in_it(ground: Ground) -> None:
    ground.hub.inject(Stall(after=100), path="model.safetensors")
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy(cache=SIZED)
        await ground.downloading()
        await ground.client.delete(NAMESPACE, ObjectKey("", ground.namespace))

        async def gone() -> bool:
            return await ground.client.find(NAMESPACE, ObjectKey("", ground.namespace)) is None

        await ground.eventually(gone)


JUNK = [b"junk", b"x" * 2**20, b'{"artifact": "another", "totalBytes": 5, "downloadedBytes": 1}', "silent", "refused"]


async def test_a34_a_progress_that_cannot_be_read_is_unknown_and_hinders_nothing(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "INTERVAL", 0.1)
    asked: list[Resource | None] = []
    ask = downloads.ask

    async def noted(session: ClientSession, running: downloads.Running) -> Resource | None:
        found = await ask(session, running)
        asked.append(found)
        return found

    monkeypatch.setattr(downloads, "ask", noted)
    ground.runner.progress = JUNK[0]  # type: ignore[assignment]
    async with running_part(ground.client, namespace=ground.namespace):
        with ground.held():
            await ground.deploy(cache=SIZED)
            for answer in JUNK:
                ground.runner.progress = answer  # type: ignore[assignment]
                enough = len(asked) + 2  # the first one may have been on its way
                await ground.eventually(lambda enough=enough: len(asked) >= enough)  # type: ignore[misc]
                live = await ground.until("Downloading")
                assert "% of" not in (condition_of(live, "ModelCacheReady") or {})["message"], answer[:20]
                assert "progress" not in (await ground.artifact())["status"], answer[:20]
        await ground.until("Ready")
    assert asked[: 2 * len(JUNK)] == [None] * 2 * len(JUNK)


async def test_a36_a_slow_download_says_how_far_it_is_while_one_over_the_limit_waits_for_its_end(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its progress rises in steps of ten percent; the other one is Queued, and starts when it has ended."""
    monkeypatch.setattr(downloads, "INTERVAL", 0.1)
    ground.slow(7_000)
    seen: list[int] = []
    said: set[str] = set()

    async def look() -> bool:
        artifact = await ground.client.get(MODEL_ARTIFACT, slow)
        done = dig(artifact, "status", "progress", "percentage")
        if isinstance(done, int) and done not in seen:
            seen.append(done)
        condition = condition_of(await ground.get("one"), "ModelCacheReady") or {}
        if condition.get("reason") == "Downloading" and "%" in condition["message"]:
            said.add(condition["message"].split(": ")[1])
        return condition.get("status") == "True"

    settings = ModelCacheSettings(max_downloads=1)
    async with running_part(ground.client, namespace=ground.namespace, settings=settings):
        await ground.deploy("one", cache=SIZED)
        await ground.downloading()
        slow = key_of(await ground.artifact())
        await ground.deploy("two", model={"id": "acme/other", "cache": SIZED})
        await ground.until("Queued", "two")
        assert len(await ground.downloads()) == 1
        await ground.eventually(look)
        await ground.until("Ready", "two")
    assert seen == sorted(seen)
    assert seen[-1] == 100
    assert len(seen) > 3, seen
    assert len(said) > 2, said
    assert {text.split(" ")[0][-1] for text in said} == {"0"}


async def test_l6_l7_a_shared_artifact_has_the_labels_on_which_its_users_agree_and_a_job_keeps_its_own(
    ground: Ground,
) -> None:
    await ground.config(labelPropagation={"enabled": True, "match": ["team", "cost-center"]})
    async with running_part(ground.client, namespace=ground.namespace):
        with ground.held():
            await ground.deploy("one", labels={"team": "a", "cost-center": "1", "other": "x"}, cache=SIZED)
            await ground.downloading()
            (job,) = await ground.downloads()
            pod = dig(job, "spec", "template", "metadata", "labels")
            for labels in (labels_of(job), pod, *map(labels_of, await ground.all_of(PERSISTENT_VOLUME_CLAIM))):
                assert (labels.get("team"), labels.get("cost-center"), labels.get("other")) == ("a", "1", None)
            await ground.deploy("two", labels={"team": "a", "cost-center": "2"}, cache=SIZED)
            await ground.eventually(lambda: labelled(ground, "a", None))
            (same,) = await ground.downloads()
            assert labels_of(same) == labels_of(job), "a Job's template cannot be changed"
        await ground.until("Ready", "two")
        await ground.remove("two")
        await ground.eventually(lambda: labelled(ground, "a", "1"))
        assert len(await ground.downloads()) == 1


async def labelled(ground: Ground, team: str | None, center: str | None) -> bool:
    found = [await ground.artifact(), *await ground.all_of(PERSISTENT_VOLUME_CLAIM)]
    return all((labels_of(each).get("team"), labels_of(each).get("cost-center")) == (team, center) for each in found)


async def test_a13_a_quota_is_said_on_artifact_and_deployment_and_its_end_is_noticed(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "REFUSED_RETRY", 0.5)
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none", "namespace": ground.namespace},
        "spec": {"hard": {f"{ground.class_name}.storageclass.storage.k8s.io/persistentvolumeclaims": "0"}},
    }
    await ground.client.create(RESOURCE_QUOTA, quota)
    other = f"{ground.class_name}-free"
    await ground.client.create(STORAGE_CLASS, storage_class(other, waits=True))

    async def counted() -> bool:
        live = await ground.client.get(RESOURCE_QUOTA, ObjectKey(ground.namespace, "none"))
        return dig(live, "status", "hard") is not None

    await ground.eventually(counted)
    settings = ModelCacheSettings(max_downloads=1)
    async with running_part(ground.client, namespace=ground.namespace, settings=settings):
        await ground.deploy(cache=SIZED)
        await ground.until("QuotaExceeded")
        artifact = await ground.artifact()
        assert (condition_of(artifact, "StorageReady") or {})["reason"] == "QuotaExceeded"
        assert await ground.downloads() == [], "no download starts without its claim"
        await ground.deploy("free", cache={**SIZED, "storageClassName": other})
        await ground.until("Ready", "free")  # what is refused holds no slot
        await ground.until("QuotaExceeded")
        await ground.client.delete(STORAGE_CLASS, ObjectKey("", other))
        await ground.client.delete(RESOURCE_QUOTA, ObjectKey(ground.namespace, "none"))
        await ground.until("Ready")


async def test_a_job_that_a_quota_lets_make_no_pod_is_told_on_artifact_and_deployment(ground: Ground) -> None:
    """It stands in the events of the Job only: there is no pod that could say anything."""
    metadata = {"name": "cpu", "namespace": ground.namespace}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": {"limits.cpu": "8"}}}
    await ground.client.create(RESOURCE_QUOTA, quota)

    async def counted() -> bool:
        live = await ground.client.get(RESOURCE_QUOTA, ObjectKey(ground.namespace, "cpu"))
        return dig(live, "status", "hard") is not None

    await ground.eventually(counted)
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy(cache=SIZED)
        await ground.until("QuotaExceeded")
        artifact = await ground.artifact()
        said = condition_of(artifact, "DownloadReady") or {}
        assert (said["reason"], "must specify limits.cpu" in said["message"]) == ("QuotaExceeded", True)
        assert str(dig(artifact, "status", "rootCause", "object")).startswith(f"Job/{ground.namespace}/")


async def test_a_deleted_config_takes_no_complete_cache_away(ground: Ground) -> None:
    named = {"apiVersion": names.API_VERSION, "kind": "RuntimeConfig"}
    spec = (await ground.client.get(RUNTIME_CONFIG, ObjectKey(ground.namespace, "default")))["spec"]
    body = {**named, "metadata": {"name": "own", "namespace": ground.namespace}, "spec": spec}
    await ground.client.create(RUNTIME_CONFIG, body)
    await ground.client.create(MODEL_ARTIFACT, user_made(ground, runtimeConfigName="own"))
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy(cache={"mode": "Shared", "artifactName": "mine"})
        before = (await ground.until("Ready"))["status"]["modelCache"]
        await ground.client.delete(RUNTIME_CONFIG, ObjectKey(ground.namespace, "own"))

        async def said() -> bool:
            condition = condition_of(await ground.artifact(), "RuntimeConfigReady") or {}
            return condition.get("reason") == "ConfigNotFound"

        await ground.eventually(said)
        await ground.deploy("next", cache={"mode": "Shared", "artifactName": "mine"})
        assert (await ground.until("Ready", "next"))["status"]["modelCache"] == before
        assert (await ground.until("Ready"))["status"]["modelCache"] == before


async def test_a_config_that_is_not_judged_or_not_allowed_makes_no_artifact(ground: Ground) -> None:
    """The token would be in the artifact's own spec, and outlast an edit of the config."""
    made = await ground.deploy()
    await ground.validate(made, config=True)
    await ground.config(secrets={"huggingFaceToken": "prod-db"})
    async with running_part(ground.client, namespace=ground.namespace):
        await asyncio.sleep(0.5)
        assert await ground.artifacts() == [], "before the core has judged it"
        await ground.validate(made, config=False)
        await ground.until("WaitingForConfig")
        assert await ground.artifacts() == []
        await ground.config()
        await ground.validate(made, config=True)
        await ground.until("Ready")


async def test_a2_a_pod_with_the_labels_of_a_download_that_no_job_owns_does_not_count(ground: Ground) -> None:
    ground.runner.unpullable.add(DEFAULT_DOWNLOADER_IMAGE)
    async with running_part(ground.client, namespace=ground.namespace) as part:
        await ground.deploy(cache={"mode": "Shared", "size": "1Gi"})
        await ground.until("ImageNotFound")
        (pod,) = await ground.client.list_all(POD, namespace=ground.namespace)
        forged = await ground.client.create(
            POD,
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "forged", "namespace": ground.namespace, "labels": labels_of(pod)},
                "spec": {"containers": [{"name": "download", "image": DEFAULT_DOWNLOADER_IMAGE}]},
            },
        )
        await ground.eventually(lambda: part._caches.pods.get(key_of(forged)) is not None)
        owned = part._caches.owned(await ground.artifact()).pods
        assert [key_of(each) for each in owned] == [key_of(pod)]


async def test_x5_paused_and_dry_run_deployments_make_nothing(ground: Ground) -> None:
    async with running_part(ground.client, namespace=ground.namespace) as part:
        await ground.deploy("paused", annotations={names.PAUSED: "true"})
        await ground.deploy("tried", annotations={names.DRY_RUN: "true"})
        live = await ground.until("DryRun", "tried")
        said = (condition_of(live, "ModelCacheReady") or {})["message"]
        assert "would create ModelArtifact" in said
        await settled(ground, part)
        assert await ground.artifacts() == []
        assert condition_of(await ground.get("paused"), "ModelCacheReady") is None
