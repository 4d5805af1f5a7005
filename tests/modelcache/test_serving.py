"""What a deployment that serves does with its cache: core, part, providers and simulated upstreams on a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.modelcache.conftest import FILES, MODEL, Ground, running_part
from tests.support.audit import AuditReader
from tests.support.cluster_fixtures import with_gpus

from airunway.api import names
from airunway.controller.application import CoreSettings
from airunway.kinds import MODEL_ARTIFACT, MODEL_DEPLOYMENT
from airunway.kube import JOB, POD
from airunway.plugins.registry import load
from airunway.resource import ObjectKey, Resource, condition_of, dig, is_deleting, key_of, labels_of, uid_of
from airunway.revisions.revision import is_in_effect
from airunway_testing.expectations import condition_is, phase_is, reason_is, running_at
from airunway_testing.modelhub.hub import Repository
from airunway_testing.operator import (
    install_definitions,
    remove_leftovers,
    running_core,
    running_provider,
    running_simulator,
    until,
)
from airunway_testing.simulators import load_simulator

pytestmark = pytest.mark.cluster

SHARED: Resource = {"mode": "Shared"}


class Serving:
    """Deployments of the providers vllm and llmd in the ground's namespace."""

    def __init__(self, ground: Ground) -> None:
        self.ground, self.client = ground, ground.client

    def key(self, name: str) -> ObjectKey:
        return ObjectKey(self.ground.namespace, name)

    async def deploy(self, name: str = "llama", *, cache: Resource = SHARED, model: str = MODEL, **spec: Any) -> None:
        body = {
            "apiVersion": names.API_VERSION,
            "kind": MODEL_DEPLOYMENT.kind,
            "metadata": {"name": name, "namespace": self.ground.namespace},
            "spec": {
                "model": {"id": model, "cache": cache},
                "engine": {"type": "vllm"},
                "provider": {"name": "vllm"},
                "resources": {"gpu": {"count": 1}},
                **spec,
            },
        }
        await self.client.create(MODEL_DEPLOYMENT, body)

    async def edit(self, name: str, spec: Resource) -> int:
        after = await self.client.merge_patch(MODEL_DEPLOYMENT, self.key(name), {"spec": spec})
        return int(after["metadata"]["generation"])

    async def until(self, holds: Callable[[Resource], bool], name: str = "llama", *, what: str = "") -> Resource:
        return await until(self.client, self.key(name), holds, what=what)

    async def pods(self) -> dict[str, set[str]]:
        """The claims of pods that serve, by the pod's uid."""
        found = await self.client.list_all(POD, namespace=self.ground.namespace, label_selector=names.MODEL_DEPLOYMENT)
        return {
            uid_of(pod): {
                volume["persistentVolumeClaim"]["claimName"]
                for volume in pod["spec"].get("volumes", ())
                if "persistentVolumeClaim" in volume
            }
            for pod in found
            if not is_deleting(pod) and labels_of(pod).get(names.COMPONENT) != "picker"
        }


@pytest.fixture
async def serving(kubeconfig: Path, ground: Ground) -> AsyncIterator[Serving]:
    client = ground.client
    await install_definitions(
        client, [crd for name in ("vllm", "llmd") for crd in load_simulator(name).custom_resource_definitions()]
    )
    await remove_leftovers(client)
    hosts = [load("vllm"), load("llmd")]
    async with (
        with_gpus(client, 16),
        running_core(kubeconfig, settings=CoreSettings(parts=("model-cache",))),
        running_part(client, namespace=ground.namespace),
        running_provider(kubeconfig, hosts[0]),
        running_provider(kubeconfig, hosts[1]),
        running_simulator(kubeconfig, *hosts, level="cluster"),
    ):
        yield Serving(ground)


def has_claim(deployment: Resource) -> bool:
    used = dig(deployment, "status", "revision", "cache", "claim")
    return is_in_effect(deployment) and used == dig(deployment, "status", "modelCache", "claimName")


async def test_a33_a_cache_follows_the_model_once_its_weights_are_there_and_goes_with_the_spec(
    serving: Serving, audit_log: Path
) -> None:
    ground = serving.ground
    await serving.deploy()
    first = await serving.until(running_at(1))
    old, before = dig(first, "status", "modelCache", "claimName"), await serving.pods()
    assert list(before.values()) == [{old}]

    audit = AuditReader(audit_log)
    with ground.held():
        generation = await serving.edit("llama", {"model": {"id": "acme/other"}})
        await ground.downloading()
        assert await serving.pods() == before, "the old weights serve until the new ones are Ready"
        waiting = await serving.until(phase_is("Deploying"))
        assert dig(waiting, "status", "reason") == "WaitingForModelCache"
        written = [each for each in audit.read() if each.namespace == ground.namespace and each.writes]
        assert [each for each in written if each.resource == "deployments"] == []
    moved = await serving.until(lambda found: running_at(generation)(found) and has_claim(found))
    new = dig(moved, "status", "modelCache", "claimName")
    assert new != old

    generation = await serving.edit("llama", {"model": {"cache": {"mode": "None"}}})
    left = await serving.until(running_at(generation))
    assert "cache" not in left["status"]["revision"]
    assert "modelCache" not in left["status"]
    assert all(claims == set() for claims in (await serving.pods()).values())


async def test_a_refusal_comes_before_the_weights_and_its_correction_needs_no_second_download(serving: Serving) -> None:
    with serving.ground.held():
        await serving.deploy(engine={"type": "vllm", "args": {"port": "1"}})
        await serving.ground.downloading()
        refused = await serving.until(condition_is("ProviderCompatible", "False"))
        assert (refused["status"]["phase"], dig(refused, "status", "provider", "resourceName")) == ("Pending", None)
        assert "'port'" in refused["status"]["message"]
        generation = await serving.edit("llama", {"engine": {"args": None}})

        def waits(found: Resource) -> bool:
            status = found["status"]
            return (status["observedGeneration"], status["reason"]) == (generation, "Downloading")

        waiting = await serving.until(waits)
        assert dig(condition_of(waiting, "ProviderCompatible"), "status") != "False"
    await serving.until(running_at(generation))
    (artifact,) = await serving.ground.artifacts()
    assert artifact["status"]["download"]["attempts"] == 1


async def test_a16_scaled_up_on_a_claim_for_one_pod_degrades_and_starts_no_further_pod(serving: Serving) -> None:
    await serving.deploy(cache={"mode": "Dedicated", "accessMode": "ReadWriteOnce"})
    await serving.until(running_at(1))
    before = await serving.pods()
    await serving.edit("llama", {"scaling": {"replicas": 3}})
    found = await serving.until(phase_is("Degraded"))
    assert dig(found, "status", "reason") == "AccessModeConflict"
    assert "ReadWriteMany" in found["status"]["message"]
    assert await serving.pods() == before
    generation = await serving.edit("llama", {"scaling": {"replicas": 1}})
    await serving.until(running_at(generation))
    assert await serving.pods() == before


async def test_a18_what_hinders_a_download_is_the_root_cause_and_the_parent_of_the_deployment(
    serving: Serving,
) -> None:
    ground = serving.ground
    faults = {
        "acme/gated": ("GatedModel", "AuthValid", "Model.AuthGated"),
        "acme/missing": ("SourceNotFound", "ConfigValid", "Model.NotFound"),
    }
    for model, (reason, parent, code) in faults.items():
        name = model.partition("/")[2]
        await serving.deploy(name, model=model)

        def holds(found: Resource, reason: str = reason, parent: str = parent, code: str = code) -> bool:
            of_parent, cause = condition_of(found, parent) or {}, dig(found, "status", "rootCause", default={})
            return (of_parent.get("status"), of_parent.get("reason"), cause.get("code")) == ("False", reason, code)

        found = await serving.until(holds, name, what=f"{reason}, {parent} and {code}")
        artifact = dig(found, "status", "modelCache", "artifactName")
        assert dig(found, "status", "rootCause", "object") == f"ModelArtifact/{ground.namespace}/{artifact}"
    ground.hub.add(Repository("acme/missing", FILES))
    for job in await ground.all_of(JOB):
        if labels_of(job)[names.ARTIFACT].startswith("missing-"):
            await ground.client.delete(JOB, key_of(job), propagation="Background")
    healed = await serving.until(running_at(1), "missing")
    assert "rootCause" not in healed["status"]
    assert (condition_of(healed, "ConfigValid") or {})["status"] == "True"


async def test_a20_a_migration_takes_the_claim_along_without_a_second_download(serving: Serving) -> None:
    await serving.deploy()
    first = await serving.until(running_at(1))
    claim = dig(first, "status", "modelCache", "claimName")
    generation = await serving.edit("llama", {"provider": {"name": "llmd"}})
    await serving.until(
        lambda found: dig(found, "status", "provider", "name") == "llmd" and running_at(generation)(found)
    )
    assert {claim} in (await serving.pods()).values()
    assert (len(await serving.ground.artifacts()), len(await serving.ground.downloads())) == (1, 1)


async def test_a42_with_the_part_off_nothing_is_made_and_the_message_names_the_flag(
    kubeconfig: Path, ground: Ground
) -> None:
    client = ground.client
    await install_definitions(client, load_simulator("vllm").custom_resource_definitions())
    await remove_leftovers(client)
    async with running_core(kubeconfig), running_provider(kubeconfig, load("vllm")):
        serving = Serving(ground)
        await serving.deploy()
        found = await serving.until(reason_is("Ready", "ModelCacheNotEnabled"))
        assert "--model-cache=on" in found["status"]["message"]
        assert (found["status"]["phase"], await serving.pods()) == ("Pending", {})
        assert condition_of(found, "ModelCacheReady") is None
        assert await client.list_all(MODEL_ARTIFACT, namespace=ground.namespace) == []
