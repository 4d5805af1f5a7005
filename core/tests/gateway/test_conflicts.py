"""Two deployments that want the same path or model name."""

from __future__ import annotations

import pytest
from core.tests.gateway.ground import ASKED, Ground, running_part

from airunway.api import names
from airunway.gateway.caches import HTTP_ROUTE
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.resource import condition_of
from airunway_testing.gatewayapi.kinds import listener

pytestmark = pytest.mark.apiserver

CHAT = {**ASKED, "pathTemplate": "/chat"}


async def test_r7_the_older_of_two_has_the_path_and_the_younger_gets_it_when_the_older_goes(ground: Ground) -> None:
    await ground.open_gateway()
    await ground.service("first")
    await ground.service("second")
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy("first", gateway=CHAT, model="a/one")
        await ground.deploy("second", gateway=CHAT, model="a/two")
        await ground.until("RouteAccepted", "first")
        live = await ground.until("RouteConflict", "second")
        assert (
            f"held by ModelDeployment {ground.namespace}/first" in (condition_of(live, "GatewayReady") or {})["message"]
        )
        event = await ground.event("RouteConflict")
        assert (event["type"], event["regarding"]["name"]) == ("Warning", "second")
        assert f"held by ModelDeployment {ground.namespace}/first" in event["note"]
        assert await ground.paths("second") == ["/"]
        # A provider's finalizer: the deployment stays for a while, and its older route would keep the requests.
        await ground.annotate("first", finalizers=["testing.airunway.ai/provider"])
        await ground.delete("first")
        await ground.until("RouteAccepted", "second")
        assert await ground.paths("second") == ["/chat", "/"]
        await ground.until_gone(HTTP_ROUTE, "first")
        assert (await ground.get("first"))["metadata"]["deletionTimestamp"]
        await ground.annotate("first", finalizers=None)


async def test_r7_made_in_the_same_second_the_name_decides_also_after_a_restart(ground: Ground) -> None:
    await ground.open_gateway()
    made = ["e", "d", "c", "b", "a"]
    for name in made:
        await ground.service(name)
    async with running_part(ground.client, namespace=ground.namespace):
        for name in made:
            await ground.deploy(name, gateway=CHAT, model=f"a/{name}")
        live = [await ground.get(name) for name in made]
        oldest = min(live, key=lambda obj: (obj["metadata"]["creationTimestamp"], obj["metadata"]["name"]))
        holder = oldest["metadata"]["name"]
        await ground.until_paths("/chat", "/", name=holder)
        for name in made:
            await ground.until("RouteAccepted" if name == holder else "RouteConflict", name)
    before = await ground.versions(HTTP_ROUTE, MODEL_DEPLOYMENT)
    async with running_part(ground.client, namespace=ground.namespace) as part:
        await ground.eventually(lambda: part.at_rest)
        assert await ground.versions(HTTP_ROUTE, MODEL_DEPLOYMENT) == before
        assert [name for name in made if (await ground.paths(name))[0] == "/chat"] == [holder]


async def test_r8_a_path_and_a_longer_one_below_it_are_no_conflict(ground: Ground) -> None:
    await ground.open_gateway()
    async with running_part(ground.client, namespace=ground.namespace):
        for name, path in (("one", "/a"), ("two", "/a/b")):
            await ground.service(name)
            await ground.deploy(name, gateway={**ASKED, "pathTemplate": path}, model=f"a/{name}")
            await ground.until("RouteAccepted", name)
            assert await ground.paths(name) == [path, "/"]


async def test_r9_listeners_of_their_own_are_no_conflict_and_all_listeners_are_one(ground: Ground) -> None:
    await ground.open_gateway(listeners=[listener("http"), listener("other", port=81)])

    def on(section: str) -> dict[str, object]:
        ref = {"name": "inference", **({"sectionName": section} if section else {})}
        return {"enabled": True, "gatewayRef": ref, "pathTemplate": "/chat"}

    async with running_part(ground.client, namespace=ground.namespace):
        for name, section in (("a", "http"), ("b", "other"), ("c", "")):
            await ground.service(name)
            await ground.deploy(name, gateway=on(section), model=f"a/{name}")
            await ground.until("RouteConflict" if name == "c" else "RouteAccepted", name)
        assert await ground.paths("c") == ["/"]


async def test_r10_the_same_model_name_where_nobody_asked(ground: Ground) -> None:
    await ground.open_gateway()
    async with running_part(ground.client, namespace=ground.namespace):
        for name, reason in (("a", "RouteAccepted"), ("b", "RouteConflict")):
            await ground.service(name)
            await ground.deploy(name, gateway={})
            await ground.until(reason, name)
        assert (await ground.get("b"))["status"]["phase"] == "Running"
        assert await ground.route("b") is None


async def test_r11_the_rule_without_conflict_is_made(ground: Ground) -> None:
    await ground.open_gateway()
    async with running_part(ground.client, namespace=ground.namespace):
        for name in ("a", "b"):
            await ground.service(name)
            await ground.deploy(name, gateway={**ASKED, "pathTemplate": f"/{name}"}, model="org/same")
        await ground.until("RouteConflict", "b")
        assert await ground.paths("b") == ["/b"]
        assert "model name same" in await ground.message("b")
        # The older takes another name: the younger's rule is made at once.
        await ground.edit("a", gateway={"modelName": "other"})
        await ground.until("RouteAccepted", "b")
        assert await ground.paths("b") == ["/b", "/"]


async def test_edits_of_the_older_one_move_the_path_there_and_back(ground: Ground) -> None:
    await ground.open_gateway()
    async with running_part(ground.client, namespace=ground.namespace):
        for name, path in (("a", "/one"), ("b", "/two")):
            await ground.service(name)
            await ground.deploy(name, gateway={**ASKED, "pathTemplate": path}, model=f"a/{name}")
            await ground.until("RouteAccepted", name)
        await ground.edit("a", gateway={"pathTemplate": "/two"})
        await ground.until("RouteConflict", "b")
        await ground.edit("a", gateway={"pathTemplate": "/one"})
        await ground.until("RouteAccepted", "b")
        await ground.until_paths("/one", "/", name="a")
        await ground.until_paths("/two", "/", name="b")


@pytest.mark.parametrize("kept", ["paused", "not validated"])
async def test_a_route_that_is_left_as_it_is_keeps_its_path_also_after_a_restart(ground: Ground, kept: str) -> None:
    await ground.open_gateway()
    await ground.service("first")
    await ground.service("second")
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy("first", gateway=CHAT, model="a/one")
        await ground.until("RouteAccepted", "first")
        if kept == "paused":
            await ground.annotate("first", annotations={names.PAUSED: "true"})
        edited = await ground.change("first", gateway={"pathTemplate": "/new"})
        await ground.deploy("second", gateway=CHAT, model="a/two")
        await ground.until("RouteConflict", "second")
    async with running_part(ground.client, namespace=ground.namespace) as part:
        await ground.eventually(lambda: part.at_rest)
        assert await ground.paths("first") == ["/chat", "/"]
        assert await ground.paths("second") == ["/"]
        # Once the older route follows its spec, its old path is free.
        await ground.annotate("first", annotations={names.PAUSED: None})
        await ground.validate(edited)
        await ground.until_paths("/new", "/", name="first")
        await ground.until_paths("/chat", "/", name="second")
