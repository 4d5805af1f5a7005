"""The fault table: each fault is named on artifact and deployment, and its end clears it (issue 22)."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from tests.modelcache.conftest import FILES, MODEL, Ground, running_part
from tests.modelcache.test_rows import RESOURCE_QUOTA
from tests.support.cache_faults import CACHE_FAULTS, CacheFault

from airunway.api import names
from airunway.artifacts.deployments import CONDITION
from airunway.kinds import MODEL_ARTIFACT, MODEL_DEPLOYMENT
from airunway.kube import EVENT, JOB, POD, STORAGE_CLASS, AlreadyExists, Kind
from airunway.modelcache import artifacts
from airunway.modelcache.application import ModelCacheSettings
from airunway.resource import ObjectKey, Resource, condition_of, dig, key_of, labels_of
from airunway_testing.modelhub.hub import Repository
from airunway_testing.modelhub.serving import HttpError, WrongByte
from airunway_testing.storage.provisioner import storage_class
from airunway_testing.storage.volumes import limits_work

pytestmark = pytest.mark.cluster

SECRET = Kind("", "v1", "Secret", "secrets")
CANARY = "hf_canary-4f1c09ab2e"
KEPT = "kept.safetensors"
"""The good file of the poisoned repository."""
CLASSES = ("full", "absent", "counted", "single")


@contextmanager
def closed_port() -> Iterator[int]:
    """A port that refuses connections while the context lasts."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield int(taken.getsockname()[1])


class Faults:
    """All faults side by side, each with a ModelArtifact and a deployment of its own."""

    def __init__(self, ground: Ground, closed: int) -> None:
        self.ground = ground
        self.closed = closed
        self.classes = {name: f"{ground.class_name}-{name}" for name in CLASSES}

    def spec(self, name: str) -> dict[str, Any]:
        """The artifact of one fault."""
        named = {"huggingFaceToken": name}
        specs: dict[str, dict[str, Any]] = {
            "anonymous": {"source": "hf://acme/gated"},
            "gated": {"source": "hf://acme/asked", "secrets": named},
            "refused": {"source": "hf://acme/gated", "secrets": named},
            "no-secret": {"secrets": {"huggingFaceToken": "nowhere"}},
            "no-model": {"source": "hf://acme/missing"},
            "hub-down": {"env": [{"name": "HF_ENDPOINT", "value": f"http://127.0.0.1:{self.closed}"}]},
            "dns": {"env": [{"name": "HF_ENDPOINT", "value": "http://hub.invalid"}]},
            "rate-limit": {"source": "hf://acme/limited", "size": "1Gi"},
            "poison": {"source": "hf://acme/poisoned", "size": "1Gi"},
            "disk-full": {"storageClassName": self.classes["full"], "size": "1Gi"},
            "no-class": {"storageClassName": self.classes["absent"], "size": "1Gi"},
            "quota": {"storageClassName": self.classes["counted"], "size": "1Gi"},
            "access-mode": {"storageClassName": self.classes["single"], "size": "1Gi"},
            "image": {"downloaderImage": "registry.example/no-such-image:1", "size": "1Gi"},
        }
        spec = specs[name]
        return {**spec, "source": {"uri": spec.get("source", f"hf://{MODEL}")}}

    async def begin(self, faults: list[CacheFault]) -> None:
        ground, hub = self.ground, self.ground.hub
        hub.add(Repository("acme/asked", FILES, gated="manual"))
        hub.add(Repository("acme/limited", {"limited.safetensors": b"limited" * 500}))
        hub.add(Repository("acme/poisoned", {KEPT: b"kept" * 500, "poisoned.safetensors": b"poisoned" * 500}))
        hub.inject(WrongByte(at=3), path="poisoned.safetensors", times=None)
        hub.inject(HttpError(status=429, retry_after="600"), path="limited.safetensors", times=None)
        hub.tokens[CANARY] = set()
        for name, token in (("gated", CANARY), ("refused", f"{CANARY}-wrong")):
            await self.secret(name, token)
        await self.make_class("full", bytes_per_gib=20_000)
        await self.make_class("counted")
        await self.make_class("single", access_modes=["ReadWriteOnce"])
        quota = {f"{self.classes['counted']}.storageclass.storage.k8s.io/persistentvolumeclaims": "0"}
        metadata = {"name": "none", "namespace": ground.namespace}
        body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": quota}}
        await ground.client.create(RESOURCE_QUOTA, body)

        async def counted() -> bool:
            live = await ground.client.get(RESOURCE_QUOTA, ObjectKey(ground.namespace, "none"))
            return dig(live, "status", "hard") is not None

        await ground.eventually(counted)
        for fault in faults:
            metadata = {"name": fault.name, "namespace": ground.namespace}
            body = {"apiVersion": names.API_VERSION, "kind": "ModelArtifact", "metadata": metadata}
            await ground.client.create(MODEL_ARTIFACT, {**body, "spec": self.spec(fault.name)})
            await ground.deploy(fault.name, cache={"mode": "Shared", "artifactName": fault.name})

    async def end(self, name: str) -> None:
        """Remove the cause, as the table says."""
        ground, hub = self.ground, self.ground.hub
        endpoint = {"env": [{"name": "HF_ENDPOINT", "value": hub.endpoint}]}
        match name:
            case "anonymous":
                hub.tokens["hf_right"] = {"acme/gated"}
                await self.secret("right", "hf_right")
                await self.patch(name, {"secrets": {"huggingFaceToken": "right"}})
            case "gated":
                hub.tokens[CANARY] = {"acme/asked"}
            case "refused":
                hub.tokens[f"{CANARY}-wrong"] = {"acme/gated"}
            case "no-secret":
                await self.secret("nowhere", "hf_right")
            case "no-model":
                hub.add(Repository("acme/missing", FILES))
            case "hub-down" | "dns":
                await self.patch(name, endpoint)
            case "rate-limit" | "poison":
                hub.clear_faults()
            case "disk-full":
                await self.patch(name, {"size": "3Gi"})
            case "no-class":
                await self.make_class("absent")
            case "quota":
                await ground.client.delete(RESOURCE_QUOTA, ObjectKey(ground.namespace, "none"))
            case "access-mode":
                await ground.client.delete(STORAGE_CLASS, ObjectKey("", self.classes["single"]))
                await self.make_class("single")
            case "image":
                await self.patch(name, {"downloaderImage": "registry.example/there:1"})
            case _:
                raise AssertionError(f"no end is known for {name}")
        if name in ("anonymous", "gated", "refused", "no-model", "hub-down", "dns", "rate-limit", "poison", "image"):
            for job in await ground.all_of(JOB):
                if labels_of(job).get(names.ARTIFACT) == name:
                    await ground.client.delete(JOB, key_of(job), propagation="Background")

    async def patch(self, name: str, spec: Resource) -> None:
        await self.ground.client.merge_patch(MODEL_ARTIFACT, ObjectKey(self.ground.namespace, name), {"spec": spec})

    async def secret(self, name: str, token: str) -> None:
        metadata = {"name": name, "namespace": self.ground.namespace}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"HF_TOKEN": token}}
        try:
            await self.ground.client.create(SECRET, body)
        except AlreadyExists:
            await self.ground.client.merge_patch(SECRET, ObjectKey(self.ground.namespace, name), body)

    async def make_class(self, name: str, **options: Any) -> None:
        await self.ground.client.create(STORAGE_CLASS, storage_class(self.classes[name], **options))


async def reported(ground: Ground, fault: CacheFault) -> dict[str, Any]:
    """What artifact and deployment say of a fault, once the deployment has its reason."""
    live = await ground.until(fault.reason, fault.name)
    assert dig(live, "status", "modelCache", "ready") is False
    artifact = await ground.client.get(MODEL_ARTIFACT, ObjectKey(ground.namespace, fault.name))
    child = condition_of(artifact, fault.child) or {}
    parents = ("ConfigValid", "AuthValid", "DependenciesReachable")
    return {
        "phase": dig(artifact, "status", "phase"),
        "reason": (child.get("status"), child.get("reason")),
        "parents": [each for each in parents if (condition_of(artifact, each) or {})["status"] == "False"],
        "code": dig(artifact, "status", "rootCause", "code", default=""),
        "words": [fault.words in (each or {}).get("message", "") for each in (child, condition_of(live, CONDITION))],
    }


def expected(fault: CacheFault) -> dict[str, Any]:
    """The row of the table."""
    return {
        "phase": fault.phase,
        "reason": ("False", fault.reason),
        "parents": [fault.parent] if fault.parent else [],
        "code": fault.code,
        "words": [True, True],
    }


async def cleared(ground: Ground, fault: CacheFault) -> None:
    """The deployment has its weights, and nothing is left of the fault."""
    await ground.until("Ready", fault.name)
    artifact = await ground.client.get(MODEL_ARTIFACT, ObjectKey(ground.namespace, fault.name))
    assert dig(artifact, "status", "phase") == "Ready", fault.name
    assert "rootCause" not in artifact["status"], fault.name
    conditions = dig(artifact, "status", "conditions")
    false = [each["type"] for each in conditions if each["status"] == "False"]
    assert set(false) <= {"Reconciling", "Stalled"}, (fault.name, false)


@pytest.mark.slow
async def test_a11_a12_a13_a18_a19_a21_a37_each_fault_is_named_on_artifact_and_deployment_and_its_end_clears_it(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "REFUSED_RETRY", 0.5)
    faults = [fault for fault in CACHE_FAULTS if fault.name != "disk-full" or limits_work()]
    with closed_port() as closed:
        table = Faults(ground, closed)
        settings = ModelCacheSettings(max_downloads=len(faults) + 1)  # one namespace never takes the last
        async with running_part(ground.client, namespace=ground.namespace, settings=settings):
            try:
                await table.begin(faults)
                wanted = {fault.name: expected(fault) for fault in faults}
                found: dict[str, dict[str, Any]] = {}

                async def all_reported() -> bool:
                    for fault in faults:
                        if found.get(fault.name) != wanted[fault.name]:
                            found[fault.name] = await reported(ground, fault)
                    return found == wanted

                with suppress(AssertionError):
                    await ground.eventually(all_reported)
                assert found == wanted
                before = len(ground.hub.requests)
                for fault in faults:
                    await table.end(fault.name)
                for fault in faults:
                    await cleared(ground, fault)
            finally:
                for name in CLASSES:
                    await remove_class(ground, table.classes[name])
    assert not [each for each in ground.hub.requests[before:] if each.path == KEPT], "good files are not fetched again"
    kinds = (MODEL_ARTIFACT, MODEL_DEPLOYMENT, JOB, EVENT)
    shown = json.dumps([await ground.client.list_all(kind, namespace=ground.namespace) for kind in kinds])
    assert CANARY not in shown, "X7"


async def remove_class(ground: Ground, name: str) -> None:
    if await ground.client.find(STORAGE_CLASS, ObjectKey("", name)) is not None:
        await ground.client.delete(STORAGE_CLASS, ObjectKey("", name))


async def test_a9_a_pod_on_a_lost_node_is_not_replaced_before_it_has_ended(ground: Ground) -> None:
    def pods() -> int:
        return sum("-download-" in each.key.name for each in ground.pods())

    ground.slow(7_000)
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy()
        played = await ground.downloading()
        ground.runner.lose_node(played.node)
        await ground.client.delete(POD, played.key)
        await ground.until("Downloading")
        assert pods() == 1
        ground.runner.find_node(played.node)
        await ground.until("Ready")
    artifact = await ground.artifact()
    assert (artifact["status"]["download"]["attempts"], pods()) == (1, 2)
