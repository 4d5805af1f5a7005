"""Two deployments that want the same path or model name."""

from __future__ import annotations

from typing import cast

import pytest
from core.tests.gateway.ground import ASKED, Ground, running_part

from airunway.api import names
from airunway.gateway.caches import HTTP_ROUTE
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.resource import condition_of, dig
from airunway_testing.gatewayapi.kinds import listener

pytestmark = pytest.mark.apiserver

CHAT = {**ASKED, "pathTemplate": "/talk"}


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
        assert await ground.paths("second") == ["/talk", "/"]
        await ground.until_gone(HTTP_ROUTE, "first")
        assert (await ground.get("first"))["metadata"]["deletionTimestamp"]
        await ground.annotate("first", finalizers=None)


async def test_r7_of_several_made_at_once_one_has_the_path_also_after_a_restart(ground: Ground) -> None:
    await ground.open_gateway()
    made = ["e", "d", "c", "b", "a"]
    for name in made:
        await ground.service(name)
    async with running_part(ground.client, namespace=ground.namespace):
        for name in made:
            await ground.deploy(name, gateway=CHAT, model=f"a/{name}")

        async def holders() -> list[str]:
            return [name for name in made if await ground.paths(name) == ["/talk", "/"]]

        (holder,) = cast("list[str]", await ground.eventually(holders))
        for name in made:
            await ground.until("RouteAccepted" if name == holder else "RouteConflict", name)
    before = await ground.versions(HTTP_ROUTE, MODEL_DEPLOYMENT)
    async with running_part(ground.client, namespace=ground.namespace) as part:
        await ground.eventually(lambda: part.at_rest)
        assert await ground.versions(HTTP_ROUTE, MODEL_DEPLOYMENT) == before
        assert [name for name in made if (await ground.paths(name))[0] == "/talk"] == [holder]


async def test_r8_a_path_and_a_longer_one_of_the_same_namespace_are_no_conflict(ground: Ground) -> None:
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
        return {"enabled": True, "gatewayRef": ref, "pathTemplate": "/talk"}

    async with running_part(ground.client, namespace=ground.namespace):
        for name, section in (("a", "http"), ("b", "other"), ("c", "")):
            await ground.service(name)
            await ground.deploy(name, gateway=on(section), model=f"a/{name}")
            await ground.until("RouteConflict" if name == "c" else "RouteAccepted", name)
        assert await ground.paths("c") == ["/"]


async def test_r10_the_same_model_name_where_nobody_asked_is_a_warning(ground: Ground) -> None:
    await ground.open_gateway()
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.service("a")
        await ground.deploy("a", gateway={})
        await ground.until("RouteAccepted", "a")
        await ground.service("b")
        await ground.deploy("b", gateway={})

        async def warned() -> bool:
            return bool(dig(await ground.get("b"), "status", "gateway", "warnings", default=[]))

        await ground.eventually(warned)
        live = await ground.get("b")
        assert f"held by ModelDeployment {ground.namespace}/a" in live["status"]["gateway"]["warnings"][0]
        assert condition_of(live, "GatewayReady") is None
        assert await ground.route("b") is None


async def test_r11_the_rule_without_conflict_is_made(ground: Ground) -> None:
    await ground.open_gateway()
    async with running_part(ground.client, namespace=ground.namespace):
        for name in ("a", "b"):
            await ground.service(name)
            await ground.deploy(name, gateway={**ASKED, "pathTemplate": f"/{name}"}, model="org/same")
        await ground.until("RouteAccepted", "b")
        assert await ground.paths("b") == ["/b"]
        assert "model name same" in await ground.message("b")
        # The older takes another name: the younger's rule is made at once.
        await ground.edit("a", gateway={"modelName": "other"})
        await ground.until_paths("/b", "/", name="b")
        await ground.until("RouteAccepted", "b")


async def test_an_edit_of_the_older_one_takes_no_path_that_the_younger_serves(ground: Ground) -> None:
    await ground.open_gateway()
    async with running_part(ground.client, namespace=ground.namespace):
        for name, path in (("a", "/one"), ("b", "/two")):
            await ground.service(name)
            await ground.deploy(name, gateway={**ASKED, "pathTemplate": path}, model=f"a/{name}")
            await ground.until("RouteAccepted", name)
        await ground.edit("a", gateway={"pathTemplate": "/two"})
        await ground.until("RouteConflict", "a")
        assert await ground.paths("b") == ["/two", "/"]
    # Also after a restart: what is served counts, not who was read first.
    async with running_part(ground.client, namespace=ground.namespace) as part:
        await ground.eventually(lambda: part.at_rest)
        assert await ground.paths("b") == ["/two", "/"]
        assert await ground.paths("a") == ["/"]
        await ground.edit("a", gateway={"pathTemplate": "/one"})
        await ground.until_paths("/one", "/", name="a")


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
        assert await ground.paths("first") == ["/talk", "/"]
        assert await ground.paths("second") == ["/"]
        # Once the older route follows its spec, its old path is free.
        await ground.annotate("first", annotations={names.PAUSED: None})
        await ground.validate(edited)
        await ground.until_paths("/new", "/", name="first")
        await ground.until_paths("/talk", "/", name="second")
