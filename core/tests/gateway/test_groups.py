"""Deployments of a group share what they claim, on a real API server (docs/side-by-side.md)."""

from __future__ import annotations

from typing import Any

import pytest
from core.tests.gateway.ground import ASKED, SELECTOR, Ground, running_part

from airunway.api import names
from airunway.gateway.caches import HTTP_ROUTE
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import KubeError
from airunway.resource import Resource, condition_of, dig

pytestmark = pytest.mark.apiserver

CHAT = {**ASKED, "pathTemplate": "/ml/chat", "group": "chat"}


async def serve(
    ground: Ground, name: str, *, ready: int = 1, target: int = 8000, endpoint: Resource | None = None
) -> None:
    """What the provider writes once replicas are ready."""
    condition = {
        "type": "Served",
        "status": "True",
        "reason": "Served",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 1,
    }
    endpoint = endpoint or {"service": name, "port": 8000, "targetPort": target}
    status: Resource = {"phase": "Running", "endpoint": endpoint, "conditions": [condition]}
    status["selector"] = SELECTOR.replace("llama", name)
    status["replicas"] = {"desired": 1, "ready": ready, "available": ready}
    await ground._status(name, status, manager=names.provider_manager(ground.provider))


async def member(ground: Ground, name: str, *, weight: int | None = None, **gateway: Any) -> None:
    """A deployment of the group `chat` that serves."""
    await ground.service(name)
    asked = {**CHAT, **({} if weight is None else {"weight": weight}), **gateway}
    await ground.deploy(name, gateway=asked, model={"id": "org/Chat", "servedName": "chat"})
    await serve(ground, name)


async def refs(ground: Ground, name: str, kind: str = "Service") -> list[list[tuple[str, int]]]:
    """Backends of a kind and their weights of each rule of a route."""
    live = await ground.route(name)
    rules = dig(live, "spec", "rules", default=[])
    return [[(ref["name"], ref["weight"]) for ref in rule["backendRefs"] if ref["kind"] == kind] for rule in rules]


async def until_refs(ground: Ground, name: str, *wanted: tuple[str, int], kind: str = "Service") -> None:
    """Wait until both rules of a route lead to these backends."""

    async def look() -> bool:
        return await refs(ground, name, kind) == [list(wanted)] * 2

    await ground.eventually(look)


async def until_share(ground: Ground, name: str, share: int | None, *, holder: str = "v1") -> Resource:
    async def look() -> Resource | None:
        live = await ground.get(name)
        group = dig(live, "status", "gateway", "group")
        wanted = None if share is None else {"name": "chat", "holder": holder, "share": share}
        return live if group == wanted else None

    found = await ground.eventually(look)
    assert isinstance(found, dict)
    return found


async def test_two_versions_share_a_path_and_a_model_name_by_weight(ground: Ground) -> None:
    await ground.open_gateway()
    async with running_part(ground.client, namespace=ground.namespace) as part:
        await member(ground, "v1", weight=9)
        await ground.until("RouteAccepted", "v1")
        await until_share(ground, "v1", None)
        await member(ground, "v2")
        await until_refs(ground, "v1", ("v1", 9), ("v2", 1))
        await until_share(ground, "v1", 90)
        live = await until_share(ground, "v2", 10)
        await ground.until("RouteAccepted", "v2")
        live = await ground.get("v2")
        message = (condition_of(live, "GatewayReady") or {})["message"]
        assert message.startswith("10 % of /ml/chat and 10 % of model chat, by the route of ModelDeployment v1")
        assert live["status"]["gateway"]["path"] == "/ml/chat"
        assert await ground.route("v2") is None
        # Weight 0 takes no share, and is no fault; a route is written once, and each status once.
        await ground.eventually(lambda: part.at_rest)
        await ground.edit("v2", gateway={"weight": 0})
        await until_refs(ground, "v1", ("v1", 9))
        await until_share(ground, "v1", 100)
        await until_share(ground, "v2", 0)
        condition = await ground.condition("v2")
        assert (condition["status"], "takes no share of /ml/chat: weight 0" in condition["message"]) == ("True", True)
        await ground.edit("v2", gateway={"weight": 9})
        await until_refs(ground, "v1", ("v1", 9), ("v2", 9))
        await until_share(ground, "v2", 50)
        # Not ready: left out.
        await serve(ground, "v2", ready=0)
        await until_refs(ground, "v1", ("v1", 9))
        live = await until_share(ground, "v2", 0)
        assert "not ready yet" in (await ground.condition("v2"))["message"]
        # Not even the holder's own: the others go on.
        await serve(ground, "v2")
        await serve(ground, "v1", ready=0)
        await until_refs(ground, "v1", ("v2", 9))
        await until_share(ground, "v2", 100)
        await serve(ground, "v1")
        # All weights 0: the holder alone.
        await ground.edit("v1", gateway={"weight": 0})
        await ground.edit("v2", gateway={"weight": 0})
        live = await ground.until("GroupHasNoWeight", "v1")
        await until_refs(ground, "v1", ("v1", 1))
        await until_share(ground, "v1", 100)
        assert await ground.events("ShareChanged")
    before = await ground.versions(HTTP_ROUTE, MODEL_DEPLOYMENT)
    async with running_part(ground.client, namespace=ground.namespace) as part:
        await ground.eventually(lambda: part.at_rest)
        assert await ground.versions(HTTP_ROUTE, MODEL_DEPLOYMENT) == before


async def test_the_next_of_the_group_holds_when_the_holder_is_deleted_or_leaves(ground: Ground) -> None:
    await ground.open_gateway()
    async with running_part(ground.client, namespace=ground.namespace):
        for name in ("v1", "v2", "v3"):
            await member(ground, name)
        await until_refs(ground, "v1", ("v1", 1), ("v2", 1), ("v3", 1))
        await until_share(ground, "v1", 34)
        await until_share(ground, "v3", 33)
        # Renamed group: it leaves with nothing, and the next one holds.
        await ground.edit("v1", gateway={"group": "other"})
        await until_refs(ground, "v2", ("v2", 1), ("v3", 1))
        live = await ground.until("RouteConflict", "v1")
        assert f"{ground.namespace}/v2 of group chat" in (condition_of(live, "GatewayReady") or {})["message"]
        await ground.until_gone(HTTP_ROUTE, "v1")
        await until_share(ground, "v3", 50, holder="v2")
        await ground.annotate("v2", finalizers=["testing.airunway.ai/provider"])
        await ground.delete("v2")
        await until_refs(ground, "v3", ("v3", 1))
        await ground.until_gone(HTTP_ROUTE, "v2")
        await ground.annotate("v2", finalizers=None)


async def test_a_member_keeps_a_route_of_its_own_for_what_it_alone_claims(ground: Ground) -> None:
    await ground.open_gateway()
    async with running_part(ground.client, namespace=ground.namespace):
        await member(ground, "v1", weight=9, pathTemplate="/ml/v1")
        await member(ground, "v2", weight=0, pathTemplate="/ml/v2")
        await until_share(ground, "v2", 0)
        assert await refs(ground, "v2") == [[("v2", 1)]]
        assert await refs(ground, "v1") == [[("v1", 1)], [("v1", 9)]]
        condition = await ground.until("RouteAccepted", "v2")
        text = (condition_of(condition, "GatewayReady") or {})["message"]
        assert text.startswith("takes no share of model chat: weight 0, by the route of ModelDeployment v1")
        assert text.endswith("own path /ml/v2")


async def test_a_paused_holder_keeps_its_route_and_the_others_say_so(ground: Ground) -> None:
    await ground.open_gateway()
    async with running_part(ground.client, namespace=ground.namespace):
        await member(ground, "v1", weight=9)
        await member(ground, "v2")
        await until_share(ground, "v2", 10)
        await ground.annotate("v1", annotations={names.PAUSED: "true"})

        async def said() -> bool:
            return "ModelDeployment v1 is paused" in (await ground.condition("v2"))["message"]

        await ground.eventually(said)
        await ground.edit("v2", gateway={"weight": 9})
        await ground.eventually(said)
        assert await refs(ground, "v1") == [[("v1", 9), ("v2", 1)]] * 2
        await until_share(ground, "v2", 10)
        await ground.annotate("v1", annotations={names.PAUSED: None})
        await until_refs(ground, "v1", ("v1", 9), ("v2", 9))


@pytest.mark.parametrize(
    ("gateway", "text"),
    [
        ({"group": "Chat"}, "gateway.group is a DNS label"),
        ({"weight": 1}, "weight has an effect with group only"),
        ({"group": "chat", "httpRouteRef": "mine"}, "a route of your own has its own weights"),
        ({"group": "chat", "weight": 1001}, "should be less than or equal to 1000"),
        ({"group": "chat", "weight": -1}, "should be greater than or equal to 0"),
        ({"group": "x" * 64}, "may not be more than 63"),
    ],
)
async def test_fields_that_make_no_sense_are_refused(ground: Ground, gateway: Resource, text: str) -> None:
    with pytest.raises(KubeError, match=text):
        await ground.deploy(gateway=gateway)
