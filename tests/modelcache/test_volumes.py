"""Volumes of deployments on a cluster: claims made from a size, and existing ones that are only checked."""

from __future__ import annotations

import pytest
from tests.modelcache.conftest import Ground, running_part

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import PERSISTENT_VOLUME_CLAIM, STORAGE_CLASS, Kind
from airunway.modelcache import deployments
from airunway.resource import ObjectKey, Resource, condition_of, dig, key_of, labels_of, uid_of
from airunway_testing.storage.provisioner import storage_class

pytestmark = pytest.mark.cluster

RESOURCE_QUOTA = Kind("", "v1", "ResourceQuota", "resourcequotas")


def sized(**volume: object) -> Resource:
    """A model with one volume of one GiB, and no cache."""
    return {
        "id": "acme/tiny",
        "storage": {"volumes": [{"name": "kernels", "mountPath": "/k", "size": "1Gi", **volume}]},
    }


async def until(ground: Ground, reason: str, name: str = "llama") -> Resource:
    """StorageReady of the deployment, once it has this reason."""

    async def look() -> Resource | None:
        found = condition_of(await ground.get(name), "StorageReady")
        return found if (found or {}).get("reason") == reason else None

    try:
        found = await ground.eventually(look)
    except AssertionError as error:
        raise AssertionError((await ground.get(name)).get("status")) from error
    assert isinstance(found, dict)
    return found


async def claim(ground: Ground, name: str = "llama-kernels") -> Resource:
    return await ground.client.get(PERSISTENT_VOLUME_CLAIM, ObjectKey(ground.namespace, name))


async def immediate(ground: Ground, **settings: object) -> str:
    """A StorageClass that provisions at once; the config's default."""
    name = f"{ground.class_name}-now"
    await ground.client.create(STORAGE_CLASS, storage_class(name, **settings))  # type: ignore[arg-type]
    await ground.config(
        storage={"defaultStorageClassName": name},
        labelPropagation={"enabled": True, "match": ["team"]},
    )
    return name


async def test_a_claim_is_made_owned_labelled_grown_and_kept(ground: Ground) -> None:
    """L8: a label that is put on the deployment later reaches its claim, too."""
    class_name = await immediate(ground, expandable=True)
    try:
        async with running_part(ground.client, namespace=ground.namespace):
            deployment = await ground.deploy(model=sized())
            assert (await until(ground, "Bound"))["status"] == "True"
            made = await claim(ground)
            assert dig(made, "metadata", "ownerReferences")[0]["uid"] == uid_of(deployment)
            assert made["spec"]["storageClassName"] == class_name
            assert made["spec"]["accessModes"] == ["ReadWriteMany"]
            labels = labels_of(made)
            assert (labels[names.PART], labels[names.MODEL_DEPLOYMENT]) == ("model-cache", "llama")

            patch = {"metadata": {"labels": {"team": "red"}}, "spec": {"model": sized(size="2Gi")}}
            changed = await ground.client.merge_patch(MODEL_DEPLOYMENT, key_of(deployment), patch)
            await ground.validate(changed)

            async def grown() -> bool:
                live = await claim(ground)
                size = dig(live, "status", "capacity", "storage")
                return (labels_of(live).get("team"), size, uid_of(live)) == ("red", "2Gi", uid_of(made))

            await ground.eventually(grown)
            await ground.eventually(lambda: _says(ground, "llama", "llama-kernels is bound", whole=True))
    finally:
        await ground.client.delete(STORAGE_CLASS, ObjectKey("", class_name))


async def test_a1_a_claim_that_waits_for_its_first_pod_is_pending_and_says_so(ground: Ground) -> None:
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy(model=sized())
        said = await until(ground, "PvcPending")
        assert "when the model's pod is scheduled" in said["message"]


async def test_a13_class_missing_access_mode_and_quota_are_said_and_end(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deployments, "REFUSED_RETRY", 0.5)
    class_name = await immediate(ground, access_modes=["ReadWriteOnce"])
    missing = f"{ground.class_name}-later"
    try:
        async with running_part(ground.client, namespace=ground.namespace):
            await ground.deploy("mode", model=sized())
            said = await until(ground, "PvcPending", "mode")
            await ground.eventually(lambda: _says(ground, "mode", "ReadWriteMany"))
            assert said["status"] == "False"
            await ground.deploy("class", model=sized(storageClassName=missing, accessMode="ReadWriteOnce"))
            assert missing in (await until(ground, "StorageClassNotFound", "class"))["message"]
            await ground.client.create(STORAGE_CLASS, storage_class(missing))
            await until(ground, "Bound", "class")

            quota = {
                "apiVersion": "v1",
                "kind": "ResourceQuota",
                "metadata": {"name": "none", "namespace": ground.namespace},
                "spec": {"hard": {"persistentvolumeclaims": "2"}},
            }
            await ground.client.create(RESOURCE_QUOTA, quota)

            async def counted() -> bool:
                live = await ground.client.get(RESOURCE_QUOTA, ObjectKey(ground.namespace, "none"))
                return bool(dig(live, "status", "used", "persistentvolumeclaims") == "2")

            await ground.eventually(counted)
            await ground.deploy("quota", model=sized(accessMode="ReadWriteOnce"))
            assert "exceeded quota" in (await until(ground, "QuotaExceeded", "quota"))["message"]
            await ground.client.delete(RESOURCE_QUOTA, ObjectKey(ground.namespace, "none"))
            await until(ground, "Bound", "quota")
    finally:
        for name in (class_name, missing):
            await ground.client.delete(STORAGE_CLASS, ObjectKey("", name))


async def _says(ground: Ground, name: str, text: str, *, whole: bool = False) -> bool:
    message = str((condition_of(await ground.get(name), "StorageReady") or {}).get("message"))
    return message.endswith(text) if whole else text in message


async def test_a30_a_foreign_claim_is_neither_taken_nor_deleted_and_a_named_one_is_only_checked(
    ground: Ground,
) -> None:
    class_name = await immediate(ground)
    body = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "llama-kernels", "namespace": ground.namespace},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": class_name,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    try:
        foreign = await ground.client.create(PERSISTENT_VOLUME_CLAIM, body)
        async with running_part(ground.client, namespace=ground.namespace):
            await ground.deploy(model=sized())
            assert "take size out" in (await until(ground, "ResourceConflict"))["message"]
            volume = {"name": "data", "claimName": "llama-kernels", "mountPath": "/data"}
            other = {"name": "later", "claimName": "later", "mountPath": "/later"}
            model = {"id": "acme/tiny", "storage": {"volumes": [volume, other]}}
            await ground.deploy("user", model=model)
            assert "no PersistentVolumeClaim later" in (await until(ground, "ReferenceNotFound", "user"))["message"]
            later = {**body, "metadata": {"name": "later", "namespace": ground.namespace}}
            await ground.client.create(PERSISTENT_VOLUME_CLAIM, later)
            await until(ground, "Bound", "user")
            live = await claim(ground)
            assert (uid_of(live), labels_of(live)) == (uid_of(foreign), {})
            assert dig(live, "metadata", "ownerReferences") is None
            await ground.client.delete(PERSISTENT_VOLUME_CLAIM, key_of(foreign))
            await until(ground, "Bound")
            assert uid_of(await claim(ground)) != uid_of(foreign)
    finally:
        await ground.client.delete(STORAGE_CLASS, ObjectKey("", class_name))


async def test_a39_a_deployment_made_again_quickly_waits_for_the_old_claim_and_gets_its_own(ground: Ground) -> None:
    class_name = await immediate(ground)
    try:
        async with running_part(ground.client, namespace=ground.namespace):
            await ground.deploy(model=sized())
            await until(ground, "Bound")
            old = await claim(ground)
            # A pod that is going away still mounts the claim: Kubernetes holds it.
            await ground.client.merge_patch(
                PERSISTENT_VOLUME_CLAIM, key_of(old), {"metadata": {"finalizers": ["tests.example/held"]}}
            )
            await ground.remove("llama")
            await ground.eventually(lambda: _is_gone(ground))
            again = await ground.deploy(model=sized())
            assert "earlier owner" in (await until(ground, "Starting"))["message"]
            await ground.eventually(lambda: _is_going(ground))
            assert "earlier owner" in (await until(ground, "Starting"))["message"]
            await ground.client.merge_patch(PERSISTENT_VOLUME_CLAIM, key_of(old), {"metadata": {"finalizers": []}})
            await until(ground, "Bound")
            new = await claim(ground)
            assert uid_of(new) != uid_of(old)
            assert dig(new, "metadata", "ownerReferences")[0]["uid"] == uid_of(again)
    finally:
        await ground.client.delete(STORAGE_CLASS, ObjectKey("", class_name))


async def _is_gone(ground: Ground) -> bool:
    return await ground.client.find(MODEL_DEPLOYMENT, ObjectKey(ground.namespace, "llama")) is None


async def _is_going(ground: Ground) -> bool:
    return dig(await claim(ground), "metadata", "deletionTimestamp") is not None
