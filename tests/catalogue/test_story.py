"""From an image in a registry to a model that serves: a source, discovery, a node that comes, a deployment by model."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.catalogue.conftest import MODEL, Ground, running_catalogue

from airunway.api import names
from airunway.kinds import CLUSTER_MODEL_TEMPLATE, MODEL_DEPLOYMENT, MODEL_SOURCE
from airunway.kube import Client
from airunway.plugins.registry import load
from airunway.resource import ObjectKey, dig, key_of, uid_of
from airunway_catalogue.scan import MODEL_SOURCE_LABEL
from airunway_testing.expectations import phase_is, reason_is
from airunway_testing.operator import deployments, playing, until
from airunway_testing.registry.model_image import MODEL_SERVER
from airunway_testing.registry.server import Image, container_registry
from airunway_testing.storage.pod_runner import PodRunner

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

LABELS = {
    "com.amd.aim.model.canonicalName": MODEL,
    "com.amd.aim.model.recommendedDeployments": '[{"gpuModel": "MI325X", "gpuCount": 1, "metric": "latency"}]',
}
SPEC = {"templateRef": {"modelName": MODEL}, "provider": {"name": "vllm"}}
GPU_LABELS = {"amd.com/gpu.product-name": "AMD_Instinct_MI325X_OAM"}


async def test_an_image_in_a_registry_becomes_a_model_that_serves(
    ground: Ground,
    runner: PodRunner,
    kubeconfig: Path,
    client: Client,
) -> None:
    source = {
        "apiVersion": names.API_VERSION,
        "kind": MODEL_SOURCE.kind,
        "metadata": {"name": ground.namespace},
    }
    async with (
        container_registry([Image("team/tiny", "1.0", labels=LABELS, entrypoint=[MODEL_SERVER])]) as registry,
        playing(kubeconfig, client, load("vllm"), level="cluster"),
        deployments(client, ground.namespace, SPEC) as deploy,
    ):
        async with running_catalogue(client, namespaces=[ground.namespace, ground.home], home=ground.home):
            spec = {"registry": registry.host, "insecure": True, "filters": [{"image": "team/*"}]}
            await client.apply(MODEL_SOURCE, {**source, "spec": spec}, manager="platform", force=True)
            try:
                template = await _template(ground)
                await ground.until(template, "NotAvailable", reason="GPUNotAvailable")
                waiting = await deploy("llama")
                found = await until(client, waiting, reason_is("TemplateReady", "TemplateNotFound"))
                why = "no node has 1 x amd.com/gpu of model MI325X"
                assert why in dig(found, "status", "message"), "what speaks against the only template"

                await ground.node("gpu", labels=GPU_LABELS, capacity={"amd.com/gpu": "8", "pods": "100", "cpu": "64"})
                ready = await ground.until(template, "Ready")
                assert dig(ready, "status", "hardware", "models") == ["MI325X"]
                assert dig(ready, "status", "profile", "metadata", "engine") == "vllm"
                served = await until(client, waiting, reason_is("TemplateReady", "TemplateFound"))
                assert dig(served, "status", "effectiveTemplate", "ref", "name") == template.name
                given = dig(served, "status", "revision", "template", "spec")
                assert given["image"].startswith(f"{registry.host}/team/tiny:1.0@sha256:"), "what was read is what runs"
                assert "MI325X" in str(given["affinity"]), "its pods go to the nodes that fit"
                served = await until(client, waiting, lambda md: dig(md, "status", "provider", "resourceName"))
                assert "model" not in served["spec"]
            finally:
                await client.delete(MODEL_SOURCE, ObjectKey("", ground.namespace))
        # Without the catalogue, its source and its template nothing changes for what was made.
        before = uid_of(await client.get(MODEL_DEPLOYMENT, waiting)), dig(served, "status", "effectiveTemplate")
        await client.delete(CLUSTER_MODEL_TEMPLATE, template)
        left = await until(client, waiting, reason_is("TemplateReady", "TemplateNotFound"))
        assert (uid_of(left), dig(left, "status", "effectiveTemplate")) == before
        assert not phase_is("Failed")(left)


async def _template(ground: Ground) -> ObjectKey:
    """The template that the source has made."""

    async def look() -> ObjectKey | None:
        selector = f"{MODEL_SOURCE_LABEL}={ground.namespace}"
        found = await ground.client.list_all(CLUSTER_MODEL_TEMPLATE, label_selector=selector)
        return key_of(found[0]) if found else None

    key = await ground.eventually(look)
    assert isinstance(key, ObjectKey)
    ground.clustered.append(key.name)
    return key
