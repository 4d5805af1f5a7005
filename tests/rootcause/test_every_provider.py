"""The seven worked faults with every provider: the same codes, phases and words, whoever makes the pods, and
``airunway status`` names cause, object and remedy in its first three lines.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.console import ran
from tests.rootcause.worked import FAULTS, IMAGE, Fault
from tests.support.cluster_fixtures import gpu_quota, with_gpus
from tests.support.faults import BY_HAND, has_cause, is_clear, write_pod
from tests.view.conftest import is_on_page

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import POD, Client
from airunway.plugins.registry import discover, load
from airunway.resource import ObjectKey, Resource, condition_of, dig, key_of
from airunway.status.reasons import CODES
from airunway_testing.controlplane.stages import OUTCOME
from airunway_testing.eventually import PATIENCE
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

PLACES = {"no-gpu-node": "Unschedulable.InsufficientGPU", "quota": "Unschedulable.Quota"}
"""Faults of the place, which no kubelet reports, and their codes; of one shape of each provider."""

MORE_THAN_THERE_ARE: Resource = {"resources": {"gpu": {"count": 8}}, "scaling": {"replicas": 3}}
"""Whole nodes, as providers spread one replica with more GPUs over several; KAITO does not."""
MORE_THAN_A_NODE_HAS: Resource = {"resources": {"gpu": {"count": 16}}}


def test_no_provider_is_left_out() -> None:
    installed = {found.name for found in discover() if found.distribution != "airunway-testing"}
    assert {provider for provider, _, _ in SHAPES.values()} == installed


async def pod_of_role(client: Client, key: ObjectKey, role: str) -> Resource:
    label = role if "/" in role else f"airunway.ai/component={role}"
    selector = f"airunway.ai/model-deployment={key.name},{label}"
    async with asyncio.timeout(PATIENCE):
        while True:
            found = await client.list_all(POD, namespace=key.namespace, label_selector=selector)
            if found and dig(found[0], "spec", "nodeName"):
                return found[0]
            await asyncio.sleep(0.02)


def manifest(key: ObjectKey, spec: Resource) -> Resource:
    base = {"model": {"id": "meta-llama/Llama-3.1-8B-Instruct"}, "image": IMAGE}
    metadata = {"name": key.name, "namespace": key.namespace}
    body = {"apiVersion": MODEL_DEPLOYMENT.api_version, "kind": MODEL_DEPLOYMENT.kind, "metadata": metadata}
    return {**body, "spec": {**base, **spec}}


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A deployment of a shape, and the fault of its pod."""

    key: ObjectKey
    shape: str
    fault: Fault

    @property
    def secrets(self) -> Resource:
        return {"secrets": {"huggingFaceToken": "hf-token"}} if self.fault.code == "Secret.NotFound" else {}


@pytest.mark.parametrize("provider", sorted({provider for provider, _, _ in SHAPES.values()}))
async def test_what_a_kubelet_reports_has_the_same_code(
    provider: str, client: Client, kubeconfig: Path, namespace: str
) -> None:
    """All deployments of a provider are there at once, each with another fault."""
    shapes = [name for name, (of, _, _) in SHAPES.items() if of == provider]
    broken = [
        Broken(key=ObjectKey(namespace, f"{name}-{number}" if number else name), shape=shape, fault=fault)
        for number, shape in enumerate(shapes)
        for name, fault in FAULTS.items()
    ]
    async with playing(kubeconfig, client, load(provider), level="cluster"):
        async with with_gpus(client, 24):
            await are_told(client, kubeconfig, broken)
        place_keys = [ObjectKey(namespace, name) for name in PLACES]
        _, _, spec = SHAPES[shapes[0]]
        assert "serving" not in spec
        much = MORE_THAN_A_NODE_HAS if provider == "kaito" else MORE_THAN_THERE_ARE
        for key, more in zip(place_keys, (much, {}), strict=True):
            if key.name == "quota":  # it comes last: it stays in the namespace
                await gpu_quota(client, namespace, 0)
            code = PLACES[key.name]
            await client.create(MODEL_DEPLOYMENT, manifest(key, {"provider": {"name": provider}, **spec, **more}))
            await until(client, key, has_cause(code), what=f"{key.name}: {code}")
            await is_shown(client, key, kubeconfig)
        await are_deleted(client, place_keys)


async def are_told(client: Client, kubeconfig: Path, broken: Sequence[Broken]) -> None:
    """Create the deployments, break a pod of each, hold what is reported of it against its fault, and heal it again."""
    pods = {}
    for each in broken:
        provider, _, spec = SHAPES[each.shape]
        by_hand = {"provider": {"name": provider}, "podTemplate": {"metadata": {"annotations": BY_HAND}}}
        await client.create(MODEL_DEPLOYMENT, manifest(each.key, {**by_hand, **spec, **each.secrets}))
    for each in broken:
        pods[each.key] = await pod_of_role(client, each.key, SHAPES[each.shape][1])
        await write_pod(client, pods[each.key], state=each.fault.state, last=each.fault.last)
    for each in broken:
        await is_told(client, each, pods[each.key], kubeconfig)
    for each in broken:
        selector = f"airunway.ai/model-deployment={each.key.name}"
        for pod in await client.list_all(POD, namespace=each.key.namespace, label_selector=selector):
            await client.merge_patch(POD, key_of(pod), {"metadata": {"annotations": {OUTCOME: None}}})
    for each in broken:
        await until(client, each.key, is_clear, what=f"recovery from {each.fault.code}")
    await are_deleted(client, [each.key for each in broken])


async def is_told(client: Client, broken: Broken, pod: Resource, kubeconfig: Path) -> None:
    key, fault, what = broken.key, broken.fault, f"{broken.shape}: {broken.fault.code}"
    found = await until(client, key, has_cause(fault.code), what=what)
    cause, pod_name = found["status"]["rootCause"], pod["metadata"]["name"]
    assert cause["object"] == f"Pod/{key.namespace}/{pod_name}", what
    container = dig(pod, "spec", "containers")[0]["name"]
    for text in (pod_name, f"container {container}", *fault.says):
        assert text.format(pod=pod_name) in cause["message"], what
    field = "spec.secrets.huggingFaceToken" if broken.secrets else CODES[fault.code].field
    assert cause.get("field", "") == field, what
    assert (found["status"]["phase"], found["status"]["message"]) == (fault.phase, cause["message"]), what
    assert (condition_of(found, "PodsReady") or {})["reason"] == fault.reason, what
    text = await is_shown(client, key, kubeconfig)
    if (broken.shape, key.name) == ("kaito", "out-of-memory"):
        async with asyncio.timeout(PATIENCE):  # KAITO names the cause of its Workspace a moment later
            while "ContainerOOMKilled" not in text:
                text = await is_shown(client, key, kubeconfig)
        assert is_on_page("status md/out-of-memory", text.replace(key.namespace, "ml")), text


async def are_deleted(client: Client, keys: Sequence[ObjectKey]) -> None:
    for key in keys:
        await client.delete(MODEL_DEPLOYMENT, key)
    for key in keys:
        await gone(client, MODEL_DEPLOYMENT, key)


async def is_shown(client: Client, key: ObjectKey, kubeconfig: Path) -> str:
    """Hold text and JSON of ``airunway status`` against ``status.rootCause``; the text."""
    asked = ("status", f"md/{key.name}", "-n", key.namespace, "--kubeconfig", str(kubeconfig))
    cause = (await client.get(MODEL_DEPLOYMENT, key))["status"]["rootCause"]
    while True:
        text, document = await ran(*asked), await ran(*asked, "-o", "json")
        before, cause = cause, (await client.get(MODEL_DEPLOYMENT, key))["status"]["rootCause"]
        if before == cause:  # of several pods that have no node, another one may be named meanwhile
            break
    assert (text.code, text.err, document.code) == (0, "", 0), (text, document)
    first = text.out.splitlines()[:3]
    assert cause["code"] in first[0], first
    assert cause["object"] in first[1], first
    view = json.loads(document.out)
    assert view["cause"]["remedy"] in first[2], first
    parts = ("code", "object", "field", "since")
    assert {part: view["cause"][part] for part in parts} == {part: cause.get(part, "") for part in parts}
    assert f"{view['cause']['evidence']} {view['cause']['remedy']}" == cause["message"]
    assert view["unseen"] == [], view["unseen"]
    nodes = [view["tree"]]
    for node in nodes:
        nodes += node["children"]
    health = {f"{node['kind']}/{key.namespace}/{name}": node["health"] for node in nodes for name in node["names"]}
    health |= {f"{node['kind']}/{key.namespace}/{node['name']}": node["health"] for node in nodes}
    assert health.get(cause["object"]) == "problem", (cause["object"], health)
    return text.out
