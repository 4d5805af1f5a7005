"""A deployment asks for a cache: the real downloader fetches the weights once, and the status says how far it is."""

from __future__ import annotations

import pytest
from tests.modelcache.conftest import FILES, Ground, running_part

from airunway.kube import EVENT, JOB, PERSISTENT_VOLUME_CLAIM
from airunway.resource import condition_of, dig, key_of

pytestmark = pytest.mark.cluster


async def said(ground: Ground, reason: str) -> set[tuple[str, str]]:
    """What the events with this reason are about, and their types, once both artifact and deployment have one."""

    async def look() -> set[tuple[str, str]] | None:
        events = await ground.client.list_all(EVENT, namespace=ground.namespace)
        found = {(dig(each, "regarding", "kind"), each["type"]) for each in events if each.get("reason") == reason}
        return found if len(found) == 2 else None

    found = await ground.eventually(look)
    assert isinstance(found, set)
    return found


async def test_two_deployments_of_one_model_share_one_claim_and_one_download(ground: Ground) -> None:
    async with running_part(ground.client, namespace=ground.namespace) as part:
        await ground.deploy("one")
        await ground.deploy("two")
        first, second = await ground.until("Ready", "one"), await ground.until("Ready", "two")
        cache = dig(first, "status", "modelCache")
        assert cache == dig(second, "status", "modelCache")
        assert (cache["mountPath"], cache["path"], cache["ready"]) == ("/model-cache", "/model-cache", True)
        (artifact,) = await ground.artifacts()
        assert artifact["status"]["phase"] == "Ready"
        assert artifact["status"]["completed"]["files"] == 2, (
            "safetensors are there, so that other weights are not fetched"
        )
        claims = await ground.client.list_all(PERSISTENT_VOLUME_CLAIM, namespace=ground.namespace)
        assert [key_of(claim).name for claim in claims] == [cache["claimName"]]
        jobs = await ground.client.list_all(JOB, namespace=ground.namespace)
        assert sorted(dig(job, "metadata", "labels", "airunway.ai/component") for job in jobs) == [
            "check-size",
            "model-storage",
        ]
        assert await said(ground, "ModelCacheReady") == {("ModelArtifact", "Normal"), ("ModelDeployment", "Normal")}
        page = (await part.metrics.page())[0].decode()
        size = artifact["status"]["completed"]["bytes"]
        name = f'name="{key_of(artifact).name}",namespace="{ground.namespace}"'
        for line in (
            f'airunway_modelartifact_bytes{{{name},state="needed"}} {float(size)}',
            f"airunway_modelartifact_users{{{name}}} 2.0",
            'airunway_model_download_attempts_total{result="succeeded"} 1.0',
            'airunway_model_download_attempts_total{result="failed"} 0.0',
            "airunway_model_download_duration_seconds_count 1.0",
            'airunway_model_downloads{state="running"} 0.0',
        ):
            assert line in page
    volume = claims[0]["spec"]["volumeName"]
    folder = ground.provisioner.volumes.folder(volume)
    assert (folder / "model" / "model.safetensors").read_bytes() == FILES["model.safetensors"]


async def test_a18_a_gated_model_without_a_token_is_said_on_artifact_and_deployment(ground: Ground) -> None:
    async with running_part(ground.client, namespace=ground.namespace) as part:
        await ground.deploy(model={"id": "acme/gated", "cache": {"mode": "Shared"}})
        live = await ground.until("GatedModel")
        (artifact,) = await ground.artifacts()
        assert artifact["status"]["phase"] == "Degraded"
        assert (condition_of(artifact, "AuthValid") or {})["status"] == "False"
        assert dig(live, "status", "modelCache", "ready") is False
        page = (await part.metrics.page())[0].decode()
        assert 'airunway_model_download_attempts_total{result="failed"} 1.0' in page
        assert await said(ground, "DownloadFailed") == {("ModelArtifact", "Warning"), ("ModelDeployment", "Warning")}
