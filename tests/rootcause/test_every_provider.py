"""The worked faults have the same codes, whoever runs the model: one table, played with every provider on a cluster.

The faults are those of `test_faults`, which looks at their words with KAITO; here codes, reasons and phases count.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.rootcause.test_faults import FAULTS

from airunway.api.names import MODEL_DEPLOYMENT as OWNER
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import POD, Client
from airunway.plugins.registry import load
from airunway.resource import ObjectKey, Resource, condition_of, dig, is_deleting, key_of, labels_of
from airunway_testing.controlplane.stages import OUTCOME
from airunway_testing.expectations import running_at
from airunway_testing.faults import BY_HAND, has_cause, is_clear, write_pod
from airunway_testing.operator import playing, until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

IMAGE = "registry.example/team/vllm:1.0"


@dataclass(frozen=True, kw_only=True)
class Player:
    """A provider, the labels of its pods that serve, and what its deployments need beside what all have."""

    provider: str
    serving: dict[str, str] = field(default_factory=dict)
    spec: Resource = field(default_factory=dict)


PLAYERS = (
    Player(provider="kaito"),
    Player(provider="vllm"),
    Player(
        provider="dynamo",
        serving={"nvidia.com/dynamo-component-type": "worker"},
        spec={"provider": {"name": "dynamo", "overrides": {"runtimeVersion": "1.3.1"}}},
    ),
)


@pytest.fixture(params=PLAYERS, ids=lambda player: player.provider)
async def player(request: pytest.FixtureRequest, kubeconfig: Path, client: Client) -> AsyncIterator[Player]:
    """Core, one provider, and its simulated upstream where it has one."""
    found: Player = request.param
    async with playing(kubeconfig, client, load(found.provider), level="cluster"):
        yield found


async def serving_pod(client: Client, key: ObjectKey, player: Player) -> Resource:
    """The pod that serves, once it has a node."""
    wanted = {OWNER: key.name, **player.serving}
    async with asyncio.timeout(60):
        while True:
            for pod in await client.list_all(POD, namespace=key.namespace):
                if wanted.items() <= labels_of(pod).items() and dig(pod, "spec", "nodeName") and not is_deleting(pod):
                    return pod
            await asyncio.sleep(0.02)


async def let_go(client: Client, key: ObjectKey) -> None:
    """The simulated nodes take the deployment's pods over."""
    for pod in await client.list_all(POD, namespace=key.namespace, label_selector=f"{OWNER}={key.name}"):
        await client.merge_patch(POD, key_of(pod), {"metadata": {"annotations": {OUTCOME: None}}})


async def test_the_same_codes(player: Player, client: Client, namespace: str) -> None:
    """All of the table in one cluster: every fault is a deployment of its own, seen, and healed."""
    keys = {}
    for name in FAULTS:
        spec = {
            "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
            "engine": {"type": "vllm"},
            "provider": {"name": player.provider},
            "image": IMAGE,
            "resources": {"gpu": {"count": 1}},
            "podTemplate": {"metadata": {"annotations": BY_HAND}},
            **({"secrets": {"huggingFaceToken": "hf-token"}} if name == "secret-missing" else {}),
            **player.spec,
        }
        keys[name] = ObjectKey(namespace, name)
        body = {
            "apiVersion": MODEL_DEPLOYMENT.api_version,
            "kind": MODEL_DEPLOYMENT.kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": spec,
        }
        await client.create(MODEL_DEPLOYMENT, body)
    for name, fault in FAULTS.items():
        pod = await serving_pod(client, keys[name], player)
        await write_pod(client, pod, state=fault.state, last=fault.last)
    for name, fault in FAULTS.items():
        found = await until(client, keys[name], has_cause(fault.code), what=f"{fault.code} of {name}")
        status = found["status"]
        assert (status["phase"], (condition_of(found, "PodsReady") or {})["reason"]) == (fault.phase, fault.reason), (
            name
        )
        for text in fault.says:
            if "kubectl logs" not in text:  # every provider has other names for pods
                assert text in status["rootCause"]["message"], name
        await let_go(client, keys[name])
    for key in keys.values():
        await until(client, key, lambda d: is_clear(d) and running_at(1)(d), what="recovery")
        await client.delete(MODEL_DEPLOYMENT, key)
    async with asyncio.timeout(60):
        while await client.list_all(MODEL_DEPLOYMENT, namespace=namespace):
            await asyncio.sleep(0.1)
