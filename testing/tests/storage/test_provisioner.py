"""The played provisioner on a real cluster: when claims are bound, to what, and what is said where they are not."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Awaitable, Callable

import pytest

from airunway.kube import PERSISTENT_VOLUME_CLAIM, POD, Client, Forbidden, Kind
from airunway.resource import ObjectKey, Resource, dig
from airunway_testing.eventually import Eventually
from airunway_testing.storage.provisioner import PERSISTENT_VOLUME, Provisioner
from airunway_testing.storage.volumes import Volumes, limits_work

pytestmark = pytest.mark.cluster

MakeClass = Callable[..., Awaitable[str]]
Claim = Callable[..., Awaitable[ObjectKey]]

CORE_EVENT = Kind("", "v1", "Event", "events")


async def bound(client: Client, eventually: Eventually, key: ObjectKey) -> Resource:
    async def look() -> Resource | None:
        found = await client.get(PERSISTENT_VOLUME_CLAIM, key)
        return found if dig(found, "status", "phase") == "Bound" else None

    found = await eventually(look)
    assert isinstance(found, dict)
    return found


async def said(client: Client, eventually: Eventually, key: ObjectKey, reason: str, text: str = "") -> str:
    """The message of an event of the claim with that reason, and that text in it."""

    async def look() -> str | None:
        events = await client.list_all(CORE_EVENT, namespace=key.namespace)
        of = [each for each in events if dig(each, "involvedObject", "name") == key.name and each["reason"] == reason]
        return next((str(each["message"]) for each in of if text in each["message"]), None)

    return str(await eventually(look))


def pod(name: str, claim: str) -> Resource:
    container = {"name": "main", "image": "example.test/model", "volumeMounts": [{"name": "w", "mountPath": "/w"}]}
    volume = {"name": "w", "persistentVolumeClaim": {"claimName": claim}}
    spec = {"containers": [container], "volumes": [volume]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def test_an_immediate_claim_is_bound_and_its_volume_goes_with_it(
    client: Client, provisioner: Provisioner, make_class: MakeClass, claim: Claim, eventually: Eventually
) -> None:
    key = await claim("weights", await make_class())
    found = await bound(client, eventually, key)
    volume = ObjectKey("", found["spec"]["volumeName"])
    assert found["status"]["capacity"] == {"storage": "1Gi"}
    assert provisioner.volumes.files(volume.name).is_dir()
    await client.delete(PERSISTENT_VOLUME_CLAIM, key)

    async def gone() -> bool:
        return await client.find(PERSISTENT_VOLUME, volume) is None

    await eventually(gone)
    assert volume.name not in provisioner.volumes


async def test_a_claim_that_waits_gets_a_volume_on_the_node_of_its_first_pod(
    client: Client,
    namespace: str,
    provisioner: Provisioner,
    make_class: MakeClass,
    claim: Claim,
    eventually: Eventually,
) -> None:
    key = await claim("weights", await make_class(waits=True, node_bound=True))
    await said(client, eventually, key, "WaitForFirstConsumer")
    assert dig(await client.get(PERSISTENT_VOLUME_CLAIM, key), "status", "phase") == "Pending"
    body = pod("first", key.name)
    body["metadata"]["namespace"] = namespace
    body["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "gpu-1"}
    await client.create(POD, body)
    found = await bound(client, eventually, key)
    volume = await client.get(PERSISTENT_VOLUME, ObjectKey("", found["spec"]["volumeName"]))
    term = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]
    assert (term["key"], term["values"]) == ("kubernetes.io/hostname", ["gpu-1"])


async def test_a_volume_on_a_node_without_gpus_holds_a_pod_up_that_wants_one(
    client: Client,
    namespace: str,
    provisioner: Provisioner,
    make_class: MakeClass,
    claim: Claim,
    eventually: Eventually,
) -> None:
    key = await claim("weights", await make_class(node="cpu-0"))
    await bound(client, eventually, key)
    body = pod("model", key.name)
    body["metadata"]["namespace"] = namespace
    body["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    await client.create(POD, body)

    async def unschedulable() -> str | None:
        found = await client.get(POD, ObjectKey(namespace, "model"))
        messages = [each.get("message") for each in dig(found, "status", "conditions", default=[])]
        return messages[0] if messages and messages[0] else None

    assert "match PersistentVolume's node affinity" in str(await eventually(unschedulable))


async def test_a_mode_that_the_class_cannot_stays_pending_with_the_provisioners_words(
    client: Client, provisioner: Provisioner, make_class: MakeClass, claim: Claim, eventually: Eventually
) -> None:
    name = await make_class(access_modes=("ReadWriteOnce",))
    key = await claim("weights", name)
    message = await said(client, eventually, key, "ProvisioningFailed")
    assert message.startswith(
        f'failed to provision volume with StorageClass "{name}": rpc error: code = InvalidArgument'
    )
    assert "ReadWriteMany not supported" in message
    assert dig(await client.get(PERSISTENT_VOLUME_CLAIM, key), "status", "phase") == "Pending"
    await bound(client, eventually, await claim("other", name, mode="ReadWriteOnce"))


async def test_a_slow_class_and_one_that_fails(
    client: Client, provisioner: Provisioner, make_class: MakeClass, claim: Claim, eventually: Eventually
) -> None:
    failing = await claim("failing", await make_class(fails="no space in pool"))
    slow = await claim("slow", await make_class(delay=0.5))
    # The class may be too new for the provisioner's first try, which says so.
    await said(client, eventually, failing, "ProvisioningFailed", "no space in pool")
    await bound(client, eventually, slow)


async def test_a_claim_grows_where_its_class_can(
    client: Client, provisioner: Provisioner, make_class: MakeClass, claim: Claim, eventually: Eventually
) -> None:
    fixed, growing = await claim("fixed", await make_class()), await claim("grows", await make_class(expandable=True))
    more = {"spec": {"resources": {"requests": {"storage": "3Gi"}}}}
    await bound(client, eventually, fixed)
    await bound(client, eventually, growing)
    with pytest.raises(Forbidden, match="only dynamically provisioned pvc can be resized"):
        await client.merge_patch(PERSISTENT_VOLUME_CLAIM, fixed, more)
    await client.merge_patch(PERSISTENT_VOLUME_CLAIM, growing, more)

    async def grown() -> bool:
        found = await client.get(PERSISTENT_VOLUME_CLAIM, growing)
        return bool(found["status"]["capacity"] == {"storage": "3Gi"})

    await eventually(grown)


@pytest.mark.skipif(not limits_work(), reason="this machine lets no user mount a tmpfs in a namespace")
async def test_a_volume_is_full_after_its_bytes_until_it_grows(
    client: Client, provisioner: Provisioner, make_class: MakeClass, claim: Claim, eventually: Eventually
) -> None:
    key = await claim("weights", await make_class(bytes_per_gib=100_000, expandable=True))
    name = (await bound(client, eventually, key))["spec"]["volumeName"]
    assert write(provisioner.volumes, name, 200_000) == errno.ENOSPC
    await client.merge_patch(PERSISTENT_VOLUME_CLAIM, key, {"spec": {"resources": {"requests": {"storage": "3Gi"}}}})

    async def grown() -> bool:
        found = await client.get(PERSISTENT_VOLUME_CLAIM, key)
        return bool(found["status"]["capacity"] == {"storage": "3Gi"})

    await eventually(grown)
    assert write(provisioner.volumes, name, 200_000) == 0
    assert (provisioner.volumes.files(name) / "file").stat().st_size == 200_000


def write(volumes: Volumes, name: str, size: int) -> int:
    """What a process that writes so many bytes to the volume gets: an error number, or 0."""
    script = (
        "import sys\n"
        "try:\n"
        "    with open(sys.argv[1], 'wb', buffering=0) as file:\n"
        "        for _ in range(int(sys.argv[2]) // 1000): file.write(bytes(1000))\n"
        "except OSError as error:\n"
        "    sys.exit(error.errno)\n"
    )
    program = [*volumes.entering(name), "python3", "-c", script, str(volumes.folder(name) / "file"), str(size)]
    return subprocess.run(program, check=False).returncode
