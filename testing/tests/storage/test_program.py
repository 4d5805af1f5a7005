"""Storage and hub as one program, as the sandbox starts it."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

from airunway.kube import PERSISTENT_VOLUME_CLAIM, POD, STORAGE_CLASS, Client
from airunway.resource import ObjectKey, dig
from airunway_testing.eventually import Eventually
from airunway_testing.storage.program import CLASS_NAME, repositories

Claim = Callable[..., Awaitable[ObjectKey]]


def test_an_id_that_goes_on_names_a_file() -> None:
    found = repositories(["acme/llama", "acme/gguf/a.gguf", "acme/gguf/b.gguf"])
    assert {each.name: sorted(each.files) for each in found} == {
        "acme/llama": ["config.json", "model.safetensors"],
        "acme/gguf": ["a.gguf", "b.gguf", "config.json"],
    }


@pytest.mark.cluster
async def test_the_program_serves_claims_and_models_until_sigterm(
    client: Client, kubeconfig: Path, namespace: str, claim: Claim, tmp_path: Path, eventually: Eventually
) -> None:
    ready = tmp_path / "ready"
    arguments = ["--kubeconfig", str(kubeconfig), "--folder", str(tmp_path / "all"), "--ready-file", str(ready)]
    command = [sys.executable, "-m", "airunway_testing.storage.program", *arguments, "--model", "acme/llama"]
    program = await asyncio.create_subprocess_exec(*command)
    try:
        await eventually(lambda: ready.exists())
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{ready.read_text()}/api/models/acme/llama/revision/main") as answer,
        ):
            assert (await answer.json())["id"] == "acme/llama"
        key = await claim("weights", CLASS_NAME)
        volume = {"name": "w", "persistentVolumeClaim": {"claimName": key.name}}
        spec = {"containers": [{"name": "main", "image": "example.test/model"}], "volumes": [volume]}
        metadata = {"name": "first", "namespace": namespace}
        await client.create(POD, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

        async def bound() -> bool:
            return bool(dig(await client.get(PERSISTENT_VOLUME_CLAIM, key), "status", "phase") == "Bound")

        await eventually(bound)
    finally:
        program.send_signal(signal.SIGTERM)
        assert await program.wait() == 0
        await client.delete(STORAGE_CLASS, ObjectKey("", CLASS_NAME))
