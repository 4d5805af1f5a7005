"""The seven worked faults with every provider: the same codes, phases and words, whoever makes the pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.rootcause.worked import FAULTS, IMAGE

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import POD, Client
from airunway.plugins.registry import discover, load
from airunway.resource import ObjectKey, Resource, condition_of, dig
from airunway.status.reasons import CODES
from airunway_testing.controlplane.stages import OUTCOME
from airunway_testing.eventually import PATIENCE
from airunway_testing.faults import BY_HAND, has_cause, is_clear, write_pod
from airunway_testing.operator import gone, playing, until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

ROLE = {"replicas": 1, "gpu": {"count": 1}, "memory": "1Gi"}
APART: Resource = {"serving": {"mode": "disaggregated"}, "scaling": {"prefill": ROLE, "decode": ROLE}}
DYNAMO: Resource = {"provider": {"name": "dynamo", "overrides": {"runtimeVersion": "1.3.1"}}}
KUBERAY: Resource = {"provider": {"name": "kuberay", "overrides": {"rayVersion": "2.56.0"}}}
SHAPES: dict[str, tuple[str, str, Resource]] = {
    "kaito": ("kaito", "kaito.sh/workspace", {"resources": {"gpu": {"count": 1}}}),
    "vllm": ("vllm", "server", {"resources": {"gpu": {"count": 1}}}),
    "llmd": ("llmd", "server", {"resources": {"gpu": {"count": 1}}}),
    "llmd, decode": ("llmd", "decode", APART),
    "kuberay": ("kuberay", "ray.io/group=gpu-workers", {"resources": {"gpu": {"count": 1}}}),
    "kuberay, decode": ("kuberay", "ray.io/group=decode-workers", {**KUBERAY, **APART}),
    "dynamo": ("dynamo", "worker", {**DYNAMO, "resources": {"gpu": {"count": 1}}}),
    "dynamo, decode": ("dynamo", "decode", {**DYNAMO, **APART}),
}
"""Provider, role of the pod that is broken (or a label of it), and the rest of the spec."""


def test_no_provider_is_left_out() -> None:
    installed = {found.name for found in discover() if found.distribution != "airunway-testing"}
    assert {provider for provider, _, _ in SHAPES.values()} == installed


@pytest.fixture(params=SHAPES)
async def shape(
    request: pytest.FixtureRequest, kubeconfig: Path, client: Client
) -> AsyncIterator[tuple[str, str, Resource]]:
    provider, role, spec = SHAPES[request.param]
    async with playing(kubeconfig, client, load(provider), level="cluster"):
        yield provider, role, spec


async def pod_of_role(client: Client, key: ObjectKey, role: str) -> Resource:
    label = role if "/" in role else f"airunway.ai/component={role}"
    selector = f"airunway.ai/model-deployment={key.name},{label}"
    async with asyncio.timeout(PATIENCE):
        while True:
            found = await client.list_all(POD, namespace=key.namespace, label_selector=selector)
            if found and dig(found[0], "spec", "nodeName"):
                return found[0]
            await asyncio.sleep(0.02)


async def test_what_a_kubelet_reports_has_the_same_code(
    shape: tuple[str, str, Resource], client: Client, namespace: str
) -> None:
    provider, role, spec = shape
    for name, fault in FAULTS.items():
        key = ObjectKey(namespace, name)
        secrets = {"secrets": {"huggingFaceToken": "hf-token"}} if name == "secret-missing" else {}
        base = {
            "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
            "provider": {"name": provider},
            "image": IMAGE,
            "podTemplate": {"metadata": {"annotations": BY_HAND}},
        }
        metadata = {"name": name, "namespace": namespace}
        body = {"apiVersion": MODEL_DEPLOYMENT.api_version, "kind": "ModelDeployment", "metadata": metadata}
        await client.create(MODEL_DEPLOYMENT, {**body, "spec": {**base, **spec, **secrets}})
        pod = await pod_of_role(client, key, role)
        await write_pod(client, pod, state=fault.state, last=fault.last)
        found = await until(client, key, has_cause(fault.code), what=f"{name}: {fault.code}")
        cause, pod_name = found["status"]["rootCause"], pod["metadata"]["name"]
        assert cause["object"] == f"Pod/{namespace}/{pod_name}"
        container = dig(pod, "spec", "containers")[0]["name"]
        for text in (pod_name, f"container {container}", *fault.says):
            assert text.format(pod=pod_name) in cause["message"]
        assert cause.get("field", "") == ("spec.secrets.huggingFaceToken" if secrets else CODES[fault.code].field)
        assert (found["status"]["phase"], found["status"]["message"]) == (fault.phase, cause["message"])
        assert (condition_of(found, "PodsReady") or {})["reason"] == fault.reason
        selector = f"airunway.ai/model-deployment={name}"
        for each in await client.list_all(POD, namespace=namespace, label_selector=selector):
            patch = {"metadata": {"annotations": {OUTCOME: None}}}
            await client.merge_patch(POD, ObjectKey(namespace, each["metadata"]["name"]), patch)
        await until(client, key, is_clear, what=f"recovery from {name}")
        await client.delete(MODEL_DEPLOYMENT, key)
        await gone(client, MODEL_DEPLOYMENT, key)
