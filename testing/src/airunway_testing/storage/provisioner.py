"""A provisioner of volumes on a real API server: what a CSI driver's provisioner, resizer and deleter do.

    await client.create(STORAGE_CLASS, storage_class("shared", bytes_per_gib=1_000_000))
    async with running_provisioner(kubeconfig, folder) as provisioner:
        ...  # a claim of that class is Bound, and a writer gets ENOSPC beyond 1 MB for each GiB that was asked for

The binder, the protection of claims and the scheduler are the real ones (level "cluster"); they decide when a claim
is to be provisioned. How a class behaves stands in its parameters, so that one provisioner serves all of them.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeAlias

from airunway.kube import (
    PERSISTENT_VOLUME_CLAIM,
    STORAGE_CLASS,
    AlreadyExists,
    Client,
    Conflict,
    Controller,
    Forbidden,
    Kind,
    NotFound,
    Reflector,
    WorkQueue,
    load_config,
    strip_managed_fields,
    user_agent_of,
    wait_until_synced,
)
from airunway.quantity import parse_quantity
from airunway.resource import ObjectKey, Resource, annotations_of, dig, format_time, is_deleting, key_of, uid_of
from airunway_testing.background import in_background
from airunway_testing.storage.volumes import Volumes

PROVISIONER = "testing.airunway.ai/storage"
"""`provisioner` of the StorageClasses that are served."""
PERSISTENT_VOLUME = Kind("", "v1", "PersistentVolume", "persistentvolumes", namespaced=False)

_CORE_EVENT = Kind("", "v1", "Event", "events")  # provisioners write events of the old API
_ACCESS_MODES = ("ReadWriteOnce", "ReadWriteOncePod", "ReadOnlyMany", "ReadWriteMany")
_ASSIGNED = "volume.kubernetes.io/storage-provisioner"
_SELECTED_NODE = "volume.kubernetes.io/selected-node"
_PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
_AGAIN = 1.0
"""Seconds between two attempts that fail."""
_GIB = 2**30

_Subject: TypeAlias = tuple[Literal["claim", "volume"], ObjectKey]


def storage_class(
    name: str,
    *,
    waits: bool = False,
    access_modes: Sequence[str] = _ACCESS_MODES,
    node_bound: bool = False,
    node: str = "",
    bytes_per_gib: int | None = None,
    expandable: bool = False,
    delay: float = 0.0,
    resize_delay: float = 0.0,
    fails: str = "",
    reclaim: Literal["Delete", "Retain"] = "Delete",
    default: bool = False,
) -> Resource:
    """A StorageClass of the provisioner.

    waits:          WaitForFirstConsumer in place of Immediate.
    access_modes:   what its volumes can; a claim with another mode stays Pending, with an event.
    node_bound:     a volume can be used on one node only: that of the first pod (with `waits`), else `node`.
    bytes_per_gib:  a volume is full after so many bytes for each GiB of its size (needs `volumes.limits_work`).
    expandable:     its claims may grow.
    delay:          seconds until a volume is there.
    resize_delay:   seconds until a volume has grown.
    fails:          every attempt fails with this text.
    reclaim:        whether a volume goes with its claim.
    default:        the class of claims that name none.
    """
    parameters = {
        "accessModes": ",".join(access_modes),
        "nodeBound": "true" if node_bound or node else "",
        "node": node,
        "bytesPerGiB": "" if bytes_per_gib is None else str(bytes_per_gib),
        "delaySeconds": str(delay),
        "resizeDelaySeconds": str(resize_delay),
        "fails": fails,
    }
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    return {
        "apiVersion": STORAGE_CLASS.api_version,
        "kind": STORAGE_CLASS.kind,
        "metadata": {"name": name, "annotations": annotations},
        "provisioner": PROVISIONER,
        "parameters": {key: value for key, value in parameters.items() if value},
        "volumeBindingMode": "WaitForFirstConsumer" if waits else "Immediate",
        "allowVolumeExpansion": expandable,
        "reclaimPolicy": reclaim,
    }


class Provisioner:
    """Serves claims until cancelled; `volumes` are the folders behind them, by name of the PersistentVolume."""

    def __init__(self, client: Client, volumes: Volumes) -> None:
        self._client, self.volumes = client, volumes
        self._claims = Reflector(client, PERSISTENT_VOLUME_CLAIM, project=strip_managed_fields())
        self._volumes = Reflector(client, PERSISTENT_VOLUME, project=strip_managed_fields())
        self._classes = Reflector(client, STORAGE_CLASS, project=strip_managed_fields())
        self._by_class = self._claims.add_index(lambda claim: [dig(claim, "spec", "storageClassName")])
        self._queue: WorkQueue[_Subject] = WorkQueue()
        self._controller = Controller("provisioner", self._queue, self._pass, workers=8)
        self._begun: dict[str, float] = {}

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            reflectors = (self._claims, self._volumes, self._classes)
            for reflector in reflectors:
                group.create_task(reflector.run(), name=f"provisioner-{reflector.kind.plural}")
            await wait_until_synced(list(reflectors))
            self._claims.add_handler(lambda key, _old, _new: self._queue.add(("claim", key)))
            self._volumes.add_handler(lambda key, _old, _new: self._queue.add(("volume", key)))
            self._classes.add_handler(self._on_class)
            group.create_task(self._controller.run(), name="provisioner")

    def _on_class(self, key: ObjectKey, _old: Resource | None, _new: Resource | None) -> None:
        for claim in self._by_class.get(key.name):
            self._queue.add(("claim", key_of(claim)))

    async def _pass(self, subject: _Subject) -> float | None:
        what, key = subject
        try:
            if what == "claim":
                return await self._on_claim(key)
            await self._on_volume(key)
        except NotFound:
            pass
        except (Conflict, Forbidden):  # another client wrote, or the namespace is being deleted
            return _AGAIN / 10
        return None

    # -------------------------------------------------------------------------------------------------------- claims

    async def _on_claim(self, key: ObjectKey) -> float | None:
        claim = self._claims.get(key)
        if claim is None or is_deleting(claim):
            return None
        found = self._classes.get(ObjectKey("", dig(claim, "spec", "storageClassName", default="")))
        if found is None or found["provisioner"] != PROVISIONER:
            return None
        if dig(claim, "spec", "volumeName"):
            return await self._resize(claim, found)
        annotations = annotations_of(claim)
        # The real binder assigns a claim to its provisioner; one that waits for a consumer only once it has a node.
        if annotations.get(_ASSIGNED) != PROVISIONER:
            return None
        parameters: Mapping[str, str] = found.get("parameters") or {}
        if (remaining := self._remaining(uid_of(claim), float(parameters.get("delaySeconds", 0)))) > 0:
            return remaining
        name = key_of(found).name
        if problem := _problem(claim, parameters):
            message = f'failed to provision volume with StorageClass "{name}": {problem}'
            await self._emit(claim, "ProvisioningFailed", message, kind="Warning")
            return _AGAIN
        await self._provision(claim, found, annotations.get(_SELECTED_NODE, ""))
        return None

    def _remaining(self, what: str, delay: float) -> float:
        """Seconds that are left of a delay since this was first asked."""
        now = asyncio.get_running_loop().time()
        return self._begun.setdefault(what, now) + delay - now

    async def _provision(self, claim: Resource, found: Resource, selected: str) -> None:
        key, parameters = key_of(claim), found.get("parameters") or {}
        name, size = f"pvc-{uid_of(claim)}", dig(claim, "spec", "resources", "requests", "storage")
        await asyncio.to_thread(self.volumes.make, name, limit=_limit(parameters, size))
        node = parameters.get("node", "") or selected
        terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]
        bound = (
            {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if "nodeBound" in parameters and node else {}
        )
        volume: Resource = {
            "apiVersion": "v1",
            "kind": PERSISTENT_VOLUME.kind,
            "metadata": {"name": name, "annotations": {_PROVISIONED_BY: PROVISIONER}},
            "spec": {
                "capacity": {"storage": size},
                "accessModes": dig(claim, "spec", "accessModes"),
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": PERSISTENT_VOLUME_CLAIM.kind,
                    "namespace": key.namespace,
                    "name": key.name,
                    "uid": uid_of(claim),
                },
                "csi": {"driver": PROVISIONER.replace("/", "."), "volumeHandle": name},
                "persistentVolumeReclaimPolicy": found["reclaimPolicy"],
                "storageClassName": key_of(found).name,
                "volumeMode": dig(claim, "spec", "volumeMode", default="Filesystem"),
                **bound,
            },
        }
        with suppress(AlreadyExists):
            await self._client.create(PERSISTENT_VOLUME, volume)
            await self._emit(claim, "ProvisioningSucceeded", f"Successfully provisioned volume {name}")

    async def _resize(self, claim: Resource, found: Resource) -> float | None:
        """What the external resizer does; that the class allows it the API server has verified."""
        name, size = dig(claim, "spec", "volumeName"), dig(claim, "spec", "resources", "requests", "storage")
        has = dig(claim, "status", "capacity", "storage")
        if not found.get("allowVolumeExpansion") or has is None or _bytes(size) <= _bytes(has):
            return None
        parameters = found.get("parameters") or {}
        delay = float(parameters.get("resizeDelaySeconds", 0))
        if (remaining := self._remaining(f"{uid_of(claim)}/{size}", delay)) > 0:
            return remaining
        limit = _limit(parameters, size)
        if limit is not None and name in self.volumes:
            await asyncio.to_thread(self.volumes.resize, name, limit=limit)
        await self._client.merge_patch(
            PERSISTENT_VOLUME, ObjectKey("", name), {"spec": {"capacity": {"storage": size}}}
        )
        version = dig(claim, "metadata", "resourceVersion")
        status = {"capacity": {"storage": size}, "conditions": None}
        patch = {"metadata": {"resourceVersion": version}, "status": status}
        await self._client.merge_patch(PERSISTENT_VOLUME_CLAIM, key_of(claim), patch, subresource="status")
        await self._emit(claim, "VolumeResizeSuccessful", "Resize volume succeeded")
        return None

    # ------------------------------------------------------------------------------------------------------- volumes

    async def _on_volume(self, key: ObjectKey) -> None:
        volume = self._volumes.get(key)
        if volume is None or annotations_of(volume).get(_PROVISIONED_BY) != PROVISIONER or is_deleting(volume):
            return
        released = dig(volume, "status", "phase") == "Released"
        if released and dig(volume, "spec", "persistentVolumeReclaimPolicy") == "Delete":
            await asyncio.to_thread(self.volumes.remove, key.name)
            await self._client.delete(PERSISTENT_VOLUME, key, uid=uid_of(volume))

    async def _emit(self, claim: Resource, reason: str, message: str, *, kind: str = "Normal") -> None:
        key, now = key_of(claim), format_time(datetime.now(UTC))
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": key.namespace, "name": f"{key.name}.{uuid.uuid4().hex[:16]}"},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": PERSISTENT_VOLUME_CLAIM.kind,
                "namespace": key.namespace,
                "name": key.name,
                "uid": uid_of(claim),
                "resourceVersion": dig(claim, "metadata", "resourceVersion"),
            },
            "reason": reason,
            "message": message,
            "source": {"component": f"{PROVISIONER}_played"},
            "type": kind,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
        }
        await self._client.create(_CORE_EVENT, event)


def _problem(claim: Resource, parameters: Mapping[str, str]) -> str:
    """Why the class cannot serve the claim, in a driver's words; empty: it can."""
    if parameters.get("fails"):
        return parameters["fails"]
    can = parameters.get("accessModes", "").split(",")
    missing = [mode for mode in dig(claim, "spec", "accessModes", default=[]) if mode not in can]
    if not missing:
        return ""
    modes = f"Volume capabilities {', '.join(missing)} not supported. Only AccessModes [{', '.join(can)}] supported."
    return f"rpc error: code = InvalidArgument desc = {modes}"


def _limit(parameters: Mapping[str, str], size: str) -> int | None:
    each = parameters.get("bytesPerGiB")
    return None if each is None else max(int(each) * _bytes(size) // _GIB, 1)


def _bytes(quantity: str) -> int:
    return int(parse_quantity(quantity))


@asynccontextmanager
async def running_provisioner(kubeconfig: Path, folder: Path) -> AsyncIterator[Provisioner]:
    """The provisioner for as long as the context lasts; `folder` takes the volumes."""
    async with Client(load_config(kubeconfig=kubeconfig), user_agent=user_agent_of("provisioner")) as client:
        provisioner = Provisioner(client, Volumes(folder))
        try:
            async with in_background(provisioner.run()):
                yield provisioner
        finally:
            provisioner.volumes.close()
