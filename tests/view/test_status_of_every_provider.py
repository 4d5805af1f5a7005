"""The seven faults with every provider: ``airunway status`` names cause, object and remedy in its first three lines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.rootcause.test_every_provider import SHAPES, pod_of_role
from tests.rootcause.worked import FAULTS, IMAGE
from tests.view.conftest import Run
from tests.view.test_status import CASES

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client
from airunway.plugins.registry import load
from airunway.resource import ObjectKey, Resource
from airunway.status.reasons import CODES
from airunway_testing.cluster_fixtures import gpu_quota
from airunway_testing.faults import BY_HAND, has_cause, write_pod
from airunway_testing.operator import gone, playing, until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

# KAITO's are in test_status.py.
OTHERS = [name for name, (provider, _, _) in SHAPES.items() if name == provider != "kaito"]
PLACES = ("no-gpu-node", "quota")
"""Faults of the place, which no kubelet reports. The quota comes last: it stays in the namespace."""


MORE_THAN_THERE_ARE: Resource = {"resources": {"gpu": {"count": 8}}, "scaling": {"replicas": 3}}
"""Whole nodes, as providers spread one replica with more GPUs over several."""


@pytest.fixture(params=OTHERS)
async def shape(
    request: pytest.FixtureRequest, kubeconfig: Path, client: Client
) -> AsyncIterator[tuple[str, str, Resource]]:
    provider, role, spec = SHAPES[request.param]
    async with playing(kubeconfig, client, load(provider), level="cluster"):
        yield provider, role, spec


async def test_cause_object_and_remedy_come_first(
    shape: tuple[str, str, Resource], client: Client, namespace: str, run: Run
) -> None:
    provider, role, spec = shape
    for name in sorted(CASES, key=lambda each: (each in PLACES, each)):
        key, code = ObjectKey(namespace, name), CASES[name]
        if name == "quota":
            await gpu_quota(client, namespace, 0)
        gpus = MORE_THAN_THERE_ARE if name == "no-gpu-node" else {}
        base = {
            "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
            "provider": {"name": provider},
            "image": IMAGE,
            "podTemplate": {"metadata": {"annotations": BY_HAND if name in FAULTS else {}}},
        }
        body = {
            "apiVersion": MODEL_DEPLOYMENT.api_version,
            "kind": MODEL_DEPLOYMENT.kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {**base, **spec, **gpus},
        }
        await client.create(MODEL_DEPLOYMENT, body)
        if name in FAULTS:
            pod = await pod_of_role(client, key, role)
            await write_pod(client, pod, state=FAULTS[name].state, last=FAULTS[name].last)
        await until(client, key, has_cause(code), what=f"{name}: {code}")
        await _is_shown(client, key, run)
        await client.delete(MODEL_DEPLOYMENT, key)
        await gone(client, MODEL_DEPLOYMENT, key)


async def _is_shown(client: Client, key: ObjectKey, run: Run) -> None:
    """Hold text and JSON of ``airunway status`` against ``status.rootCause``."""
    asked = ("status", f"md/{key.name}", "-n", key.namespace)
    cause: Resource = {}
    while True:
        text, document = await asyncio.gather(run(*asked), run(*asked, "-o", "json"))
        before, cause = cause, (await client.get(MODEL_DEPLOYMENT, key))["status"]["rootCause"]
        if before == cause:  # of several pods that have no node, another one may be named meanwhile
            break
    assert (text.code, text.err, document.code) == (0, "", 0), (text, document)
    first = text.out.splitlines()[:3]
    assert cause["code"] in first[0], first
    assert cause["object"] in first[1], first
    assert CODES[cause["code"]].remedy_for(cause["object"]) in first[2], first
    view = json.loads(document.out)
    shown = {part: view["cause"][part] for part in ("code", "object", "field")}
    assert shown == {part: cause.get(part, "") for part in shown}
    assert view["unseen"] == [], view["unseen"]
    nodes = [view["tree"]]
    for node in nodes:
        nodes += node["children"]
    health = {f"{node['kind']}/{key.namespace}/{name}": node["health"] for node in nodes for name in node["names"]}
    health |= {f"{node['kind']}/{key.namespace}/{node['name']}": node["health"] for node in nodes}
    assert health.get(cause["object"]) == "problem", (cause["object"], health)
