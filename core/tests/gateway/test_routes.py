"""Routes on a real API server, with a simulated gateway controller (platform-cases.md, rows R)."""

from __future__ import annotations

import pytest
from core.tests.gateway.ground import Ground, running_part

from airunway.gateway.kinds import HTTP_ROUTE
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.resource import ObjectKey, condition_of, dig
from airunway_testing.gatewayapi.controller import GatewayController

pytestmark = pytest.mark.apiserver

ASKED = {"enabled": True, "gatewayRef": {"name": "inference"}}


async def service(ground: Ground, name: str = "llama") -> None:
    from airunway.kube import SERVICE

    spec = {"selector": {"app": name}, "ports": [{"port": 8000, "targetPort": 8000}]}
    await ground.client.create(
        SERVICE,
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": ground.namespace},
            "spec": spec,
        },
    )


async def test_a_route_that_is_asked_for_is_made_and_accepted(ground: Ground) -> None:
    await ground.open_gateway()
    await service(ground)
    async with running_part(ground.client, namespace=ground.namespace):
        made = await ground.deploy(gateway=ASKED)
        live = await ground.until("RouteAccepted")
        path = f"/{ground.namespace}/{made['metadata']['uid']}"
        assert await ground.paths() == [path, "/"]
        assert dig(live, "status", "gateway") == {
            "ready": True,
            "url": f"http://127.0.0.1{path}",
            "endpoint": "127.0.0.1",
            "path": path,
            "modelName": "Llama-3.1-8B-Instruct",
            "gatewayName": "inference",
            "gatewayNamespace": ground.namespace,
            "backend": "Service",
        }


async def test_events_say_when_a_route_fails_and_when_it_is_ready(ground: Ground) -> None:
    await service(ground)
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy(gateway=ASKED)
        await ground.until("NoGateway")
        failed = await ground.event("RouteNotReady")
        assert failed["type"] == "Warning"
        assert failed["note"].startswith("NoGateway: ")
        await ground.open_gateway()
        await ground.until("RouteAccepted")
        ready = await ground.event("RouteReady")
        assert ready["type"] == "Normal"
        assert ready["note"].endswith(f"/{ground.namespace}/{failed['regarding']['uid']}")


async def test_r21_our_route_is_restored_when_it_is_deleted(ground: Ground) -> None:
    await ground.open_gateway()
    await service(ground)
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy(gateway=ASKED)
        await ground.until("RouteAccepted")
        before = await ground.client.get(HTTP_ROUTE, ObjectKey(ground.namespace, "llama"))
        await ground.client.delete(HTTP_ROUTE, ObjectKey(ground.namespace, "llama"))

        async def again() -> bool:
            found = await ground.route()
            return found is not None and found["metadata"]["uid"] != before["metadata"]["uid"]

        await ground.eventually(again)


async def test_r7_the_older_of_two_has_the_path_and_the_younger_gets_it_when_the_older_goes(ground: Ground) -> None:
    await ground.open_gateway()
    await service(ground, "first")
    await service(ground, "second")
    same = {**ASKED, "pathTemplate": "/chat"}
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy("first", gateway=same, model="a/one")
        await ground.deploy("second", gateway=same, model="a/two")
        await ground.until("RouteAccepted", "first")
        live = await ground.until("RouteConflict", "second")
        assert (
            f"held by ModelDeployment {ground.namespace}/first" in (condition_of(live, "GatewayReady") or {})["message"]
        )
        assert await ground.paths("second") == ["/"]
        await ground.client.delete(MODEL_DEPLOYMENT, ObjectKey(ground.namespace, "first"))
        await ground.until("RouteAccepted", "second")
        assert await ground.paths("second") == ["/chat", "/"]


async def test_r23_what_was_made_goes_with_enabled_false(ground: Ground, controller: GatewayController) -> None:
    await ground.open_gateway()
    await service(ground)
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy(gateway=ASKED)
        await ground.until("RouteAccepted")
        await ground.edit(gateway={"enabled": False})
        live = await ground.until("")
        assert "gateway" not in live["status"]
        await ground.eventually(lambda: _is_gone(ground))


async def _is_gone(ground: Ground) -> bool:
    return await ground.route() is None
