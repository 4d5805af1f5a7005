"""Routes on a real API server, with a simulated gateway controller."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from core.tests.gateway.ground import ASKED, Ground, running_part

from airunway.api import names
from airunway.gateway.caches import GATEWAY, HTTP_ROUTE
from airunway.kube import Invalid, NotFound
from airunway.resource import ObjectKey, condition_of, dig
from airunway_testing.gatewayapi.kinds import gateway as gateway_object

pytestmark = pytest.mark.apiserver

TEMPLATED = {**ASKED, "pathTemplate": "/ml/{.metadata.labels['project']}"}


async def test_a_route_that_is_asked_for_is_made_and_accepted(ground: Ground) -> None:
    await ground.open_gateway()
    await ground.service()
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


async def test_r2_a_template_that_becomes_invalid_takes_the_route_and_nothing_else(ground: Ground) -> None:
    await ground.open_gateway()
    await ground.service()
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy(gateway=TEMPLATED, labels={"project": "chat"})
        await ground.until("RouteAccepted")
        assert await ground.paths() == ["/ml/chat", "/"]
        await ground.edit(gateway={"pathTemplate": "/ml/{.metadata[}"})
        live = await ground.until("PathTemplateInvalid")
        assert "{.metadata[}" in (condition_of(live, "GatewayReady") or {})["message"]
        await ground.until_gone(HTTP_ROUTE)
        assert condition_of(live, "ConfigValid") is None
        await ground.edit(gateway={"pathTemplate": "/ml/mended"})
        await ground.until("RouteAccepted")
        assert await ground.paths() == ["/ml/mended", "/"]


async def test_r3_the_label_behind_the_path_is_removed_and_restored(ground: Ground) -> None:
    await ground.open_gateway()
    await ground.service()
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy(gateway=TEMPLATED, labels={"project": "chat"})
        await ground.until("RouteAccepted")
        await ground.annotate(labels={"project": None})
        await ground.until("PathTemplateInvalid")
        await ground.until_gone(HTTP_ROUTE)
        await ground.annotate(labels={"project": "other"})
        await ground.until("RouteAccepted")
        assert await ground.paths() == ["/ml/other", "/"]


@pytest.mark.parametrize("template", ["/a/../b", "/{.metadata.labels['dots']}", "/" + "x" * 201])
async def test_r4_paths_that_no_route_may_have_reach_no_api_server(ground: Ground, template: str) -> None:
    await ground.open_gateway()
    await ground.service()
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy(gateway={**ASKED, "pathTemplate": template}, labels={"dots": ""})
        await ground.until("PathTemplateInvalid")
        assert await ground.route() is None


async def test_a_path_of_servers_is_refused_by_the_crd_and_by_the_part_where_a_label_gives_it(ground: Ground) -> None:
    await ground.open_gateway()
    await ground.service()
    async with running_part(ground.client, namespace=ground.namespace):
        for template in ("/", "/v1", "V1/chat", "//health//{.metadata.name}"):
            with pytest.raises(Invalid, match="model servers or gateways answer themselves"):
                await ground.deploy(gateway={**ASKED, "pathTemplate": template})
        await ground.deploy(gateway={**ASKED, "pathTemplate": "/{.metadata.labels['p']}/a"}, labels={"p": "v1"})
        await ground.until("PathNotAllowed")
        assert "the path /v1/a is not allowed: model servers or gateways answer /v1" in await ground.message()
        assert await ground.route() is None


async def test_r5_made_anew_under_the_same_name_it_has_another_path(ground: Ground) -> None:
    await ground.open_gateway()
    await ground.service()
    async with running_part(ground.client, namespace=ground.namespace):
        first = await ground.deploy(gateway=ASKED)
        await ground.until("RouteAccepted")
        await ground.delete()
        with suppress(NotFound):  # what the garbage collector does, where one runs
            await ground.client.delete(HTTP_ROUTE, ObjectKey(ground.namespace, "llama"))
        second = await ground.deploy(gateway=ASKED)
        assert first["metadata"]["uid"] != second["metadata"]["uid"]
        live = await ground.until("RouteAccepted")
        path = f"/{ground.namespace}/{second['metadata']['uid']}"
        assert await ground.paths() == [path, "/"]
        assert dig(live, "status", "gateway", "path") == path


async def test_r6_routing_that_is_off_reads_no_template(ground: Ground) -> None:
    await ground.open_gateway()
    await ground.service()
    await ground.service("second")
    await ground.config(routing={"enabled": False, "pathTemplate": "/{.metadata[}"})
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy(gateway={})
        await ground.deploy("second", gateway={**ASKED, "pathTemplate": "/second"})
        await ground.until("RouteAccepted", "second")
        assert await ground.condition() == {}
        assert await ground.route() is None


async def test_r21_our_route_is_restored_when_it_is_edited_or_deleted(ground: Ground) -> None:
    await ground.open_gateway()
    await ground.service()
    key = ObjectKey(ground.namespace, "llama")
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy(gateway={**ASKED, "pathTemplate": "/talk"})
        await ground.until("RouteAccepted")
        before = await ground.client.get(HTTP_ROUTE, key)
        rules = [{**rule, "matches": [{"path": {"type": "PathPrefix", "value": "/x"}}]} for rule in _rules(before)]
        await ground.client.merge_patch(HTTP_ROUTE, key, {"spec": {"rules": rules}}, manager="a-user")
        await ground.until_paths("/talk", "/")
        notes = await ground.eventually(lambda: ground.events("DriftDetected"))
        assert isinstance(notes, list)
        assert "by a-user" in notes[0]
        await ground.client.delete(HTTP_ROUTE, key)

        async def again() -> bool:
            found = await ground.route()
            return found is not None and found["metadata"]["uid"] != before["metadata"]["uid"]

        await ground.eventually(again)
        assert await ground.paths() == ["/talk", "/"]


def _rules(route: object) -> list[dict[str, Any]]:
    rules = dig(route, "spec", "rules")
    assert isinstance(rules, list)
    return rules


async def test_r20_a_route_of_that_name_by_somebody_else_stays_as_it_is(ground: Ground) -> None:
    await ground.open_gateway()
    await ground.service()
    theirs = {
        "apiVersion": HTTP_ROUTE.api_version,
        "kind": HTTP_ROUTE.kind,
        "metadata": {"name": "llama", "namespace": ground.namespace},
        "spec": {"parentRefs": [{"name": "inference"}], "rules": [{"backendRefs": [{"name": "llama", "port": 8000}]}]},
    }
    await ground.client.create(HTTP_ROUTE, theirs)
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy(gateway=ASKED)
        await ground.until("ResourceConflict")
        found = await ground.route()
        assert dig(found, "metadata", "generation") == 1
        assert "llama" in await ground.message()
        await ground.client.delete(HTTP_ROUTE, ObjectKey(ground.namespace, "llama"))
        await ground.until("RouteAccepted")


async def test_r22_the_users_own_route_is_taken_instead_of_ours(ground: Ground) -> None:
    await ground.open_gateway()
    await ground.service()
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy(gateway=ASKED)
        await ground.until("RouteAccepted")
        await ground.edit(gateway={"httpRouteRef": "theirs"})
        await ground.until("ReferenceNotFound")
        assert "theirs" in await ground.message()
        await ground.until_gone(HTTP_ROUTE)
        match = {"path": {"type": "PathPrefix", "value": "/theirs"}}
        rule = {"matches": [match], "backendRefs": [{"name": "llama", "port": 8000}]}
        theirs = {
            "apiVersion": HTTP_ROUTE.api_version,
            "kind": HTTP_ROUTE.kind,
            "metadata": {"name": "theirs", "namespace": ground.namespace},
            "spec": {"parentRefs": [{"name": "inference"}], "rules": [rule]},
        }
        await ground.client.create(HTTP_ROUTE, theirs)
        await ground.until("RouteAccepted")
        await ground.client.delete(HTTP_ROUTE, ObjectKey(ground.namespace, "theirs"))
        await ground.until("ReferenceNotFound")


async def test_r23_what_was_made_goes_with_enabled_false(ground: Ground) -> None:
    await ground.open_gateway()
    await ground.service()
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy(gateway=ASKED)
        await ground.until("RouteAccepted")
        await ground.edit(gateway={"enabled": False})
        live = await ground.until("")
        assert "gateway" not in live["status"]
        await ground.until_gone(HTTP_ROUTE)


async def test_r24_suspended_it_gives_its_path_away_and_takes_it_again_if_it_is_free(ground: Ground) -> None:
    await ground.open_gateway()
    await ground.service("first")
    await ground.service("second")
    same = {**ASKED, "pathTemplate": "/talk"}
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy("first", gateway=same, model="a/one")
        await ground.until("RouteAccepted", "first")
        await ground.deploy("second", gateway=same, model="a/two")
        await ground.until("RouteConflict", "second")
        await ground.edit("first", suspend=True)
        await ground.until("Suspended", "first")
        await ground.until_gone(HTTP_ROUTE, "first")
        await ground.until_paths("/talk", "/", name="second")
        await ground.edit("first", suspend=False)
        await ground.until("RouteConflict", "first")
        await ground.until_paths("/talk", "/", name="second")  # what a route serves is not taken from it
        await ground.edit("second", suspend=True)
        await ground.until_paths("/talk", "/", name="first")
        await ground.until("RouteAccepted", "first")


async def test_r25_the_route_stays_while_the_endpoint_is_gone_for_a_moment(ground: Ground) -> None:
    await ground.open_gateway()
    await ground.service()
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy(gateway={**ASKED, "pathTemplate": "/talk"})
        await ground.until("RouteAccepted")
        before = await ground.versions(HTTP_ROUTE)
        backends = [rule["backendRefs"][0] for rule in _rules(await ground.route())]
        await ground.serve(endpoint={})
        # A pass over the deployment has been made once a later change shows in its route.
        await ground.edit(gateway={"pathTemplate": "/moved"})
        await ground.until_paths("/moved", "/")
        assert [rule["backendRefs"][0] for rule in _rules(await ground.route())] == backends
        assert before.keys() == (await ground.versions(HTTP_ROUTE)).keys()
        await ground.serve()
        await ground.until("RouteAccepted")


HOSTILE = "x-{{7*7}}';--"


async def test_r30_hostile_text_is_data_or_an_invalid_template(
    ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    await ground.open_gateway()
    for name in ("plain", "broken", "header"):
        await ground.service(name)
    note = {"pathTemplate": "/{.metadata.annotations['note']}"}
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy("plain", gateway=ASKED, model="a/plain")
        await ground.until("RouteAccepted", "plain")
        await ground.annotate("plain", annotations={"note": "<b>\"%2F'; drop\\ \u202e/../x"})
        await ground.edit("plain", gateway=note)
        await ground.until("PathTemplateInvalid", "plain")
        await ground.annotate("plain", annotations={"note": "<b>\"%2F'; drop\\ \u202e"})
        await ground.until("RouteAccepted", "plain")
        assert (await ground.paths("plain"))[0] == "/%3Cb%3E%22%252f%27%3B%20drop%5C%20%E2%80%AE"
        await ground.deploy("header", gateway={**ASKED, "modelName": HOSTILE}, model="a/header")
        live = await ground.until("RouteAccepted", "header")
        assert dig(live, "status", "gateway", "modelName") == HOSTILE
        await ground.deploy("broken", gateway={**ASKED, "modelName": "a\nX-Evil: 1", "pathTemplate": "/b"})
        live = await ground.until("ModelNameUnknown", "broken")
        assert await ground.paths("broken") == ["/b"]
    assert "Traceback" not in caplog.text


async def test_x5_paused_and_dry_run_make_nothing_and_say_what_would_be(ground: Ground) -> None:
    await ground.open_gateway()
    for name in ("llama", "paused", "last"):
        await ground.service(name)
    annotated = {names.DRY_RUN: "true"}
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy(gateway=ASKED, annotations=annotated)
        await ground.until("DryRun")
        assert "would create HTTPRoute llama" in await ground.message()
        await ground.deploy("paused", gateway=ASKED, model="a/paused", annotations={names.PAUSED: "true"})
        await ground.deploy("last", gateway=ASKED, model="a/last")
        await ground.until("RouteAccepted", "last")
        assert await ground.condition("paused") == {}
        assert [await ground.route(name) for name in ("llama", "paused")] == [None, None]
        await ground.annotate(annotations={names.DRY_RUN: None})
        await ground.until("RouteAccepted")


async def test_a_gateway_in_another_namespace_is_used_and_never_written(ground: Ground) -> None:
    made = await ground.client.create(GATEWAY, gateway_object("inference", "default"))
    try:
        await ground.service()
        async with running_part(ground.client, namespace=ground.namespace):
            await ground.deploy(gateway={"enabled": True, "gatewayRef": {"name": "inference", "namespace": "default"}})
            live = await ground.until("RouteAccepted")
            assert dig(live, "status", "gateway", "gatewayNamespace") == "default"
        after = await ground.client.get(GATEWAY, ObjectKey("default", "inference"))
        assert after["metadata"]["generation"] == made["metadata"]["generation"]
        managers = {entry["manager"] for entry in after["metadata"]["managedFields"]}
        assert names.GATEWAY_MANAGER not in managers
    finally:
        await ground.client.delete(GATEWAY, ObjectKey("default", "inference"))


async def test_events_say_when_a_route_fails_and_when_it_is_ready(ground: Ground) -> None:
    await ground.service()
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
