"""What a group does at its edges, on a real API server (docs/side-by-side.md)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from core.tests.gateway.ground import Ground, running_part
from core.tests.gateway.test_groups import CHAT, member, refs, serve, until_refs, until_share
from core.tests.gateway.test_restarts import proxied, writes

from airunway.gateway.caches import HTTP_ROUTE, INFERENCE_POOL
from airunway.resource import dig
from airunway_testing.gatewayapi.binding import Fault
from airunway_testing.gatewayapi.kinds import listener

pytestmark = pytest.mark.apiserver


async def test_a_holder_that_its_gateway_refuses_leaves_the_group_to_the_next(ground: Ground) -> None:
    await ground.open_gateway()
    async with running_part(ground.client, namespace=ground.namespace):
        for name in ("v1", "v2"):
            await member(ground, name)
        await until_refs(ground, "v1", ("v1", 1), ("v2", 1))
        await ground.until("RouteAccepted", "v2")
        await ground.fault(HTTP_ROUTE, "v1", Fault.CLOSED)
        await ground.until("RouteNotAccepted", "v1")
        await until_refs(ground, "v2", ("v2", 1))
        await ground.until("RouteAccepted", "v2")
        await ground.fault(HTTP_ROUTE, "v1", Fault.NONE)
        # Both routes serve now: the older deployment holds again.
        await until_refs(ground, "v1", ("v1", 1), ("v2", 1))
        await ground.until_gone(HTTP_ROUTE, "v2")
        await until_share(ground, "v2", 50)


async def test_a_suspended_holder_leaves_the_group_to_the_next_and_gets_its_share_back(ground: Ground) -> None:
    await ground.open_gateway()
    async with running_part(ground.client, namespace=ground.namespace):
        for name in ("v1", "v2"):
            await member(ground, name)
        await until_refs(ground, "v1", ("v1", 1), ("v2", 1))
        await ground.edit("v1", suspend=True)
        await until_refs(ground, "v2", ("v2", 1))
        await ground.until("Suspended", "v1")
        await ground.until_gone(HTTP_ROUTE, "v1")
        assert dig(await ground.get("v1"), "status", "gateway", "group") is None
        await ground.edit("v1", suspend=False)
        await until_refs(ground, "v2", ("v1", 1), ("v2", 1))
        await until_share(ground, "v1", 50, holder="v2")


async def test_members_whose_model_names_differ_share_the_path_and_each_has_its_own_name(ground: Ground) -> None:
    await ground.open_gateway()
    async with running_part(ground.client, namespace=ground.namespace):
        for name in ("v1", "v2"):
            await ground.service(name)
            await ground.deploy(name, gateway=CHAT, model={"id": "org/Chat", "servedName": name})
            await serve(ground, name)
        await until_share(ground, "v2", 50)

        async def apart() -> bool:
            return [await refs(ground, "v1"), await refs(ground, "v2")] == [
                [[("v1", 1), ("v2", 1)], [("v1", 1)]],
                [[("v2", 1)]],
            ]

        await ground.eventually(apart)
        await ground.until("RouteAccepted", "v2")
        assert (await ground.message("v2")).startswith("50 % of /ml/chat, by the route of ModelDeployment v1")
        assert await ground.paths("v2") == ["/"]


async def test_two_groups_that_claim_one_path_conflict_and_both_are_named(ground: Ground) -> None:
    await ground.open_gateway()
    async with running_part(ground.client, namespace=ground.namespace):
        await member(ground, "v1")
        await ground.until("RouteAccepted", "v1")
        await member(ground, "v2", group="other")
        await ground.until("RouteConflict", "v2")
        message = await ground.message("v2")
        assert f"path /ml/chat (held by ModelDeployment {ground.namespace}/v1 of group chat)" in message
        assert "spec.gateway.group of this deployment is other" in message
        assert await ground.route("v2") is None


@pytest.mark.parametrize("alone", ["listener", "Gateway"])
async def test_a_member_elsewhere_says_which_gateway_the_older_ones_have(ground: Ground, alone: str) -> None:
    await ground.open_gateway(listeners=[listener("http"), listener("other", port=81)])
    await ground.open_gateway("second")
    elsewhere = {"name": "second"} if alone == "Gateway" else {"name": "inference", "sectionName": "other"}
    async with running_part(ground.client, namespace=ground.namespace):
        await member(ground, "v1", gatewayRef={"name": "inference", "sectionName": "http"})
        await member(ground, "v2", gatewayRef=elsewhere)
        await ground.until("GroupMismatch", "v2")
        assert "ModelDeployment v1, which is older, is on Gateway" in await ground.message("v2")
        assert "set the same spec.gateway.gatewayRef" in await ground.message("v2")
        # Requests never stop because of that.
        assert await refs(ground, "v2") == [[("v2", 1)]] * 2
        await ground.until("RouteAccepted", "v1")
        await ground.edit("v2", gateway={"gatewayRef": {"name": "inference", "sectionName": "http"}})
        await until_refs(ground, "v1", ("v1", 1), ("v2", 1))


async def test_a_member_without_a_service_gets_nothing_beside_others_and_says_why(ground: Ground) -> None:
    await ground.open_gateway()
    async with running_part(ground.client, namespace=ground.namespace):
        await member(ground, "v1")
        await ground.deploy("v2", gateway=CHAT, model={"id": "org/Chat", "servedName": "chat"})
        await serve(ground, "v2", endpoint={"pool": {"name": "theirs"}})
        await ground.until("GroupMismatch", "v2")
        assert "it has no Service, and a rule for several deployments leads to Services" in await ground.message("v2")
        assert await refs(ground, "v1") == [[("v1", 1)]] * 2
        await until_share(ground, "v2", 0)


async def test_the_youngest_beyond_sixteen_members_gets_nothing_and_says_why(ground: Ground) -> None:
    await ground.open_gateway()
    async with running_part(ground.client, namespace=ground.namespace):
        names = [f"v{number:02}" for number in range(17)]
        for name in names:
            await member(ground, name)
        await until_refs(ground, "v00", *((name, 1) for name in names[:16]))
        await ground.until("GroupMismatch", "v16")
        assert "at most 16 members" in await ground.message("v16")
        await ground.delete("v03")
        await until_refs(ground, "v00", *((name, 1) for name in names if name != "v03"))


async def test_a_split_follows_the_config_of_the_holder(ground: Ground) -> None:
    await ground.provide(endpointPicker={})
    await ground.picker_role()
    await ground.open_gateway()
    async with running_part(ground.client, namespace=ground.namespace):
        for name in ("v1", "v2"):
            await member(ground, name)
            await ground.picker_runs(name)
        await until_refs(ground, "v1", ("v1", 1), ("v2", 1))
        assert "no endpoint picker chooses the pod" in await ground.message("v2")
        await ground.config(routing={"split": "Pool"})
        await until_refs(ground, "v1", ("v1", 1), ("v2", 1), kind="InferencePool")
        assert {name for _, name in await ground.versions(INFERENCE_POOL)} == {"v1", "v2"}

        async def said() -> bool:
            return "leads to several InferencePools, as routing.split says" in await ground.message("v2")

        await ground.eventually(said)
        # One of them has no pool any more: both by their Services, never mixed.
        await ground.edit("v2", gateway={"endpointPicker": "None"})
        await until_refs(ground, "v1", ("v1", 1), ("v2", 1))

        async def named() -> bool:
            return "ModelDeployment v2 has no InferencePool" in await ground.message("v1")

        await ground.eventually(named)


async def test_a_weight_edited_costs_one_route_and_a_status_for_each_share_that_changed(
    ground: Ground, kubeconfig: Path
) -> None:
    await ground.open_gateway()
    async with proxied(kubeconfig) as (proxy, client), running_part(client, namespace=ground.namespace) as part:
        for name, weight in (("v1", 9), ("v2", 1), ("v3", 0)):
            await member(ground, name, weight=weight)
        await until_share(ground, "v2", 10)
        await ground.eventually(lambda: part.at_rest)
        seen = len(proxy.requests)

        async def cost(**weights: Any) -> Counter[tuple[str, str]]:
            nonlocal seen
            for name, weight in weights.items():
                await ground.edit(name, gateway={"weight": weight})
            await until_share(ground, "v2", 25 if weights["v2"] == 3 else 10)
            await until_share(ground, "v1", 75 if weights["v2"] == 3 else 90)
            await ground.eventually(lambda: part.at_rest)
            found = Counter((each.resource, each.name) for each in writes(proxy.requests[seen:]) if each.code < 300)
            seen = len(proxy.requests)
            return found

        expected = {("httproutes", "v1"): 1, ("modeldeployments", "v1"): 1, ("modeldeployments", "v2"): 1}
        assert await cost(v2=3) == expected
        assert await cost(v2=1) == expected
