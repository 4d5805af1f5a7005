"""The examples of paths.md section 5, as they stand there."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from core.tests.gateway.ground import Ground, running_part

from airunway.kinds import CLUSTER_RUNTIME_CONFIG, MODEL_DEPLOYMENT, RUNTIME_CONFIG
from airunway.kube import NAMESPACE, AlreadyExists
from airunway.resource import ObjectKey, dig
from airunway_testing.gatewayapi.kinds import GATEWAY, gateway

pytestmark = pytest.mark.apiserver


async def test_the_examples_apply_and_end_with_the_paths_named_there(ground: Ground, recordings: Path) -> None:
    text = (recordings / "spec" / "paths.md").read_text(encoding="utf-8").partition("## 5 ")[2]
    block = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert block is not None
    cluster, namespaced, deployment = yaml.safe_load_all(block.group(1))
    client = ground.client
    for name in ("ml-team", "gateways"):
        with suppress(AlreadyExists):
            await client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    there = Ground(client=client, namespace="ml-team", eventually=ground.eventually, provider=ground.provider)
    await client.create(GATEWAY, gateway("inference-gateway", "gateways"))
    await client.create(CLUSTER_RUNTIME_CONFIG, cluster, field_validation="Strict")
    await client.create(RUNTIME_CONFIG, namespaced, field_validation="Strict")
    try:
        await there.service("llama-chat")
        async with running_part(client, namespace="ml-team"):
            made = await client.create(MODEL_DEPLOYMENT, deployment, field_validation="Strict")
            await there.validate(made)
            await there.serve("llama-chat")
            live = await there.until("RouteAccepted", "llama-chat")
            assert dig(live, "status", "gateway", "path") == "/ml/ml-team/conversational-ai"
            assert dig(live, "status", "gateway", "url") == "http://127.0.0.1/ml/ml-team/conversational-ai"
            assert await there.paths("llama-chat") == ["/ml/ml-team/conversational-ai", "/"]
            await there.edit("llama-chat", gateway={"pathTemplate": "/custom/{.metadata.name}"})
            await there.until_paths("/custom/llama-chat", "/", name="llama-chat")
            # The cluster's config alone asks for no route: it is the namespace's that counts.
            await there.edit("llama-chat", gateway=None)
            await there.until_paths("/ml/ml-team/conversational-ai", "/", name="llama-chat")
    finally:
        await client.delete(CLUSTER_RUNTIME_CONFIG, ObjectKey("", "default"))
        await client.delete(RUNTIME_CONFIG, ObjectKey("ml-team", "default"))
        await client.delete(MODEL_DEPLOYMENT, ObjectKey("ml-team", "llama-chat"))
        await client.delete(GATEWAY, ObjectKey("gateways", "inference-gateway"))
