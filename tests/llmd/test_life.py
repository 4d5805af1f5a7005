"""The life of a model on llm-d: real Deployments run its pods, and the provider has its own account only."""

from __future__ import annotations

import pytest
from tests.llmd.conftest import APART, POOL, Deploy, Pods

from airunway.kube import DEPLOYMENT, Client
from airunway.resource import ObjectKey, dig, labels_of
from airunway_testing.expectations import running_at
from airunway_testing.operator import until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


async def test_a_model_runs_behind_a_pool_with_its_picker(deploy: Deploy, client: Client, pods: Pods) -> None:
    key = await deploy()
    running = await until(client, key, running_at(1))
    assert running["status"]["endpoint"]["url"] == f"http://llama.{key.namespace}.svc:8000"
    pool = await client.get(POOL, key)
    assert dig(pool, "spec", "endpointPickerRef", "name") == "llama-epp"
    members = dig(pool, "spec", "selector", "matchLabels").items()
    assert {labels_of(pod)["airunway.ai/component"]: members <= labels_of(pod).items() for pod in await pods(key)} == {
        "server": True,
        "picker": False,
    }


async def test_prefill_and_decode_run_apart(deploy: Deploy, client: Client, pods: Pods) -> None:
    key = await deploy(**APART)
    running = await until(client, key, running_at(1))
    assert running["status"]["replicas"]["summary"] == "2/2"
    decode = await client.get(DEPLOYMENT, ObjectKey(key.namespace, "llama-decode"))
    assert [c["name"] for c in dig(decode, "spec", "template", "spec", "initContainers")] == ["routing-sidecar"]
    assert len(await pods(key)) == 3
