"""Nothing that serves from a model cache is restarted before a new copy of its weights is there: five providers.

Core, parts and providers are one process, which is killed, started without the model cache, and started again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.modelcache.conftest import MODEL
from tests.platform.fleet import Fleet, kinds_written, prepared, process_of, upstream_writes
from tests.support.audit import AuditReader
from tests.support.cluster_fixtures import with_gpus

from airunway.api import names
from airunway.kinds import MODEL_ARTIFACT, MODEL_DEPLOYMENT
from airunway.kube import JOB, PERSISTENT_VOLUME_CLAIM, POD, STORAGE_CLASS, Client, Reflector
from airunway.plugins.registry import load
from airunway.resource import ObjectKey, Resource, canonical_json, dig, is_deleting, is_true, key_of, labels_of
from airunway.revisions.revision import is_in_effect
from airunway_testing.eventually import PATIENCE, Eventually
from airunway_testing.expectations import phase_is, reason_is, running_at
from airunway_testing.modelhub.hub import Hub
from airunway_testing.modelhub.serving import Stall
from airunway_testing.operator import running_simulator
from airunway_testing.storage.pod_runner import PodRunner
from airunway_testing.storage.provisioner import storage_class

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(1500)]

ALLOWED = 2
"""How many deployments a wave changes at a time."""

PROVIDERS = ("kaito", "vllm", "llmd", "kuberay", "dynamo")
NAMES = (*(f"{provider}-a" for provider in PROVIDERS), "vllm-b")
"""A deployment of each provider, and of one provider two: more than a wave changes at a time."""


class Taking:
    """Counts, at every event, how many deployments have taken a claim and are not Ready with it."""

    def __init__(self, client: Client, namespace: str, *, without: str) -> None:
        self.most: Sequence[str] = ()
        self._without = without
        self._busy: set[str] = set()
        self._reflector = Reflector(client, MODEL_DEPLOYMENT, namespace=namespace)
        self._reflector.add_handler(self._on_change)

    def _on_change(self, key: ObjectKey, _old: Resource | None, new: Resource | None) -> None:
        claim = dig(new, "status", "revision", "cache", "claim")
        self._busy.discard(key.name)
        if new is not None and claim not in (None, self._without) and not is_true(new, "Ready"):
            self._busy.add(key.name)
        if len(self._busy) > len(self.most):
            self.most = sorted(self._busy)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._reflector.run())
        try:
            await self._reflector.synced.wait()
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def artifacts(client: Client, namespace: str) -> list[Resource]:
    return await client.list_all(MODEL_ARTIFACT, namespace=namespace)


async def serving_pods(client: Client, namespace: str) -> list[Resource]:
    """The pods of deployments, without those of downloads."""
    found = await client.list_all(POD, namespace=namespace, label_selector=names.MODEL_DEPLOYMENT)
    return [pod for pod in found if not is_deleting(pod) and names.PART not in labels_of(pod)]


async def mounted_claims(client: Client, namespace: str) -> dict[str, set[str]]:
    """The claims that pods mount read-only at the cache's path, by deployment."""
    found: dict[str, set[str]] = {}
    for pod in await serving_pods(client, namespace):
        owner = found.setdefault(labels_of(pod)[names.MODEL_DEPLOYMENT], set())
        volumes = {each["name"]: each for each in pod["spec"].get("volumes", ())}
        mounts = [mount for container in pod["spec"]["containers"] for mount in container.get("volumeMounts", ())]
        for mount in mounts:
            if mount["mountPath"] == "/model-cache":
                assert (mount["readOnly"], mount["subPath"]) == (True, "model"), key_of(pod)
                owner.add(volumes[mount["name"]]["persistentVolumeClaim"]["claimName"])
    return found


async def paths_of(fleet: Fleet) -> set[str]:
    """The deployments whose pods or upstream objects start an engine with the path of the weights."""
    told = set()
    objects = await serving_pods(fleet.client, fleet.namespace)
    for kind in fleet.kinds:
        objects += await fleet.client.list_all(kind, namespace=fleet.namespace)
    for obj in objects:
        text = canonical_json(_without_mounts(obj.get("spec"))).decode()
        if "/model-cache" in text:
            told.add(labels_of(obj).get(names.MODEL_DEPLOYMENT, ""))
    return told


def _without_mounts(node: object) -> object:
    if isinstance(node, dict):
        return {key: _without_mounts(value) for key, value in node.items() if key != "volumeMounts"}
    return [_without_mounts(each) for each in node] if isinstance(node, list) else node


async def test_a15_a46_caches_lost_deleted_or_switched_off_restart_nothing_before_the_new_copy(
    installed: None,
    kubeconfig: Path,
    client: Client,
    namespace: str,
    audit_log: Path,
    tmp_path: Path,
    eventually: Eventually,
    hub: Hub,
    runner: PodRunner,
) -> None:
    await prepared(client)
    fleet = Fleet(client=client, namespace=namespace, names=NAMES, kinds=kinds_written())
    class_name = f"class-{namespace}"[:60].rstrip("-")
    await client.create(STORAGE_CLASS, storage_class(class_name, waits=True))
    await fleet.configure(
        storage={"defaultStorageClassName": class_name},
        env=[{"name": "HF_ENDPOINT", "value": hub.endpoint}],
        maxConcurrentRollouts=ALLOWED,
    )
    hosts = [load(name) for name in PROVIDERS]
    within = PATIENCE * len(NAMES)
    async with with_gpus(client, 48), running_simulator(kubeconfig, *hosts, level="cluster"):
        # ------------------------------------------------------------------------------------- one download for all
        async with process_of(kubeconfig, tmp_path) as process:
            for name in NAMES:
                spec = {"model": {"id": MODEL, "cache": {"mode": "Shared"}}, "resources": {"gpu": {"count": 1}}}
                await fleet.deploy(name, provider={"name": name[:-2]}, **spec)
            await fleet.every(running_at(1), what="Running", within=within)
            await fleet.settled()
            (artifact,) = await artifacts(client, namespace)
            (claim,) = await client.list_all(PERSISTENT_VOLUME_CLAIM, namespace=namespace)
            old = key_of(claim).name
            assert len(await client.list_all(JOB, namespace=namespace)) <= 2, "one size check and one download"
            assert await mounted_claims(client, namespace) == {name: {old} for name in NAMES}
            assert set(NAMES) <= await paths_of(fleet)
            before, audit = await fleet.standing(), AuditReader(audit_log)
            # ----------------------------------------------------------------------------------- the artifact goes
            hub.inject(Stall(after=100), path="model.safetensors", times=None)
            await client.delete(MODEL_ARTIFACT, key_of(artifact))
            await fleet.every(reason_is("ModelCacheReady", "CacheLost"), what="CacheLost")
            await fleet.every(phase_is("Degraded"), what="Degraded")
            await fleet.settled()
            assert await fleet.standing() == before
            process.kill()

        async with process_of(kubeconfig, tmp_path, flags=("--model-cache", "off")) as process:
            await fleet.every(_says_that_the_part_is_off, what="ModelCacheNotEnabled", within=within)
            await fleet.settled()
            assert await fleet.standing() == before
            process.kill()

        async with process_of(kubeconfig, tmp_path):
            await fleet.every(_says_that_the_cache_is_lost, what="CacheLost again", within=within)
            await fleet.settled()
            assert await fleet.standing() == before
            written = [line for line in upstream_writes(audit.read(), namespace) if line.split()[2].startswith(NAMES)]
            assert written == []

            # -------------------------------------------------------------------------------- the new copy is Ready
            taking = Taking(client, namespace, without=old)
            async with taking.watching():
                hub.clear_faults()
                for played in [each for each in runner.pods.values() if each.running]:
                    await runner.kill(played.key)
                await fleet.every(lambda found: _has_taken(found, old), what="the new claim in use", within=within)
            assert 1 <= len(taking.most) <= ALLOWED, taking.most
            (new,) = {dig(each, "status", "persistentVolumeClaim") for each in await artifacts(client, namespace)}

            async def all_mount_the_new_one() -> bool:
                # Pods of the old claim end last: KubeRay keeps a cluster for a minute after another one has taken over.
                return await mounted_claims(client, namespace) == {name: {new} for name in NAMES}

            await eventually(all_mount_the_new_one)

            async def old_is_gone() -> bool:
                return await client.find(PERSISTENT_VOLUME_CLAIM, ObjectKey(namespace, old)) is None

            await eventually(old_is_gone)


def _says_that_the_part_is_off(deployment: Resource) -> bool:
    return bool(dig(deployment, "status", "reason") == "ModelCacheNotEnabled" and phase_is("Degraded")(deployment))


def _says_that_the_cache_is_lost(deployment: Resource) -> bool:
    return bool(dig(deployment, "status", "reason") == "CacheLost" and phase_is("Degraded")(deployment))


def _has_taken(deployment: Resource, old: str) -> bool:
    used = dig(deployment, "status", "revision", "cache", "claim")
    return used not in (None, old) and is_in_effect(deployment) and phase_is("Running")(deployment)
