"""Deployments of five providers with nothing but a template start from the weights that it keeps warm."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.modelcache.conftest import MODEL
from tests.modelcache.test_restart import PROVIDERS, artifacts, mounted_claims
from tests.platform.fleet import CONFIG, Fleet, kinds_written, prepared, process_of
from tests.support.cluster_fixtures import with_gpus

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT, MODEL_TEMPLATE
from airunway.kube import JOB, STORAGE_CLASS, Client
from airunway.plugins.registry import load
from airunway.resource import Resource, dig, key_of
from airunway_testing.eventually import PATIENCE, Eventually
from airunway_testing.expectations import running_at
from airunway_testing.modelhub.hub import Hub
from airunway_testing.operator import running_simulator
from airunway_testing.storage.pod_runner import PodRunner
from airunway_testing.storage.provisioner import storage_class

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]


async def test_each_provider_runs_a_deployment_with_only_a_template_on_warm_weights(
    installed: None,
    kubeconfig: Path,
    client: Client,
    namespace: str,
    tmp_path: Path,
    eventually: Eventually,
    hub: Hub,
    runner: PodRunner,
) -> None:
    await prepared(client)
    fleet = Fleet(client=client, namespace=namespace, names=PROVIDERS, kinds=kinds_written())
    class_name = f"class-{namespace}"[:60].rstrip("-")
    await client.create(STORAGE_CLASS, storage_class(class_name, waits=True))
    await fleet.configure(
        storage={"defaultStorageClassName": class_name},
        env=[{"name": "HF_ENDPOINT", "value": hub.endpoint}],
    )
    hosts = [load(name) for name in PROVIDERS]
    async with (
        with_gpus(client, 40),
        running_simulator(kubeconfig, *hosts, level="cluster"),
        process_of(kubeconfig, tmp_path),
    ):
        await client.apply(MODEL_TEMPLATE, _template(namespace), manager="platform", force=True)

        async def warm() -> str | None:
            found = await artifacts(client, namespace)
            ready = len(found) == 1 and dig(found[0], "status", "phase") == "Ready"
            return str(dig(found[0], "status", "persistentVolumeClaim")) if ready else None

        claim = await eventually(warm)

        def played() -> int:
            return sum(each.key.namespace == namespace for each in runner.pods.values())

        asked, pods = len(hub.requests), played()
        for name in PROVIDERS:
            await client.create(MODEL_DEPLOYMENT, _deployment(name, namespace), manager="user")
        await fleet.every(running_at(1), what="Running", within=PATIENCE * len(PROVIDERS))
        assert await mounted_claims(client, namespace) == {name: {claim} for name in PROVIDERS}
        assert (len(hub.requests), played()) == (asked, pods), "the hub was asked nothing more"
        assert len(await client.list_all(JOB, namespace=namespace)) <= 2, "one size check and one download"
        (artifact,) = await artifacts(client, namespace)
        for name in PROVIDERS:
            found = await client.get(MODEL_DEPLOYMENT, fleet.key(name))
            assert dig(found, "status", "modelCache", "artifactName") == key_of(artifact).name
            assert "model" not in found["spec"]


def _template(namespace: str) -> Resource:
    return {
        "apiVersion": names.API_VERSION,
        "kind": MODEL_TEMPLATE.kind,
        "metadata": {"name": "fast", "namespace": namespace},
        "spec": {
            "modelName": MODEL,
            "caching": {"enabled": True},
            "runtimeConfigName": CONFIG,
            "defaults": {"engine": {"type": "vllm"}, "resources": {"gpu": {"count": 1}}},
        },
    }


def _deployment(name: str, namespace: str) -> Resource:
    return {
        "apiVersion": names.API_VERSION,
        "kind": MODEL_DEPLOYMENT.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"templateRef": {"name": "fast"}, "provider": {"name": name}, "runtimeConfigName": CONFIG},
    }
