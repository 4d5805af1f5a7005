"""The one reader of people's tools: what was found, or which right is missing."""

from __future__ import annotations

import json

import pytest
from aiohttp import web
from core.tests.kube.servers import answering, scripted_server

from airunway.kinds import MODEL_ARTIFACT
from airunway.kube import NODE, POD, NotFound, ServerError
from airunway.resource import ObjectKey
from airunway.snapshots.followed import read_followed
from airunway.snapshots.reader import Listed, Reader, joined
from airunway.unseen import Unseen

ONE = ObjectKey("ml", "one")
DENIED = b'{"kind": "Status", "reason": "Forbidden", "message": "pods is forbidden: User \\"u\\" cannot list"}'
PODS = json.dumps({"kind": "PodList", "metadata": {"continue": "x"}, "items": [{"metadata": {"name": "one"}}]}).encode()


@pytest.mark.parametrize("tolerant", [False, True])
async def test_a_missing_right_is_named_by_verb_kind_and_place(*, tolerant: bool) -> None:
    async with answering(403, DENIED) as client:
        reader = Reader(client, tolerant=tolerant)
        reads = {
            "list pods in namespace ml": await reader.list(POD, namespace="ml"),
            "list pods in all namespaces": await reader.first(POD, limit=1, most=1024),
            "get pods in namespace ml": await reader.get(POD, ONE),
            "list nodes": await reader.list(NODE, unserved="error"),
        }
        unnamed = await reader.see("rights", client.version())
    for right, read in reads.items():
        assert isinstance(read.found, Unseen)
        assert (read.found.why, read.found.right) == ("you have no right to it", right)
    assert isinstance(unnamed, Unseen)
    assert unnamed.why.startswith("you may not: ")
    assert 'User "u" cannot list' in unnamed.why
    assert joined([*reads.values(), *reads.values()]).unseen == tuple(read.unseen[0] for read in reads.values())


async def test_an_error_is_a_reason_for_a_tolerant_reader_only() -> None:
    async with answering(500, b"boom") as client:
        with pytest.raises(ServerError):
            await Reader(client).list(POD)
        (unseen,) = (await Reader(client, tolerant=True).list(POD)).unseen
    assert "boom" in unseen.why
    assert not unseen.right


async def test_what_does_not_exist_is_found_to_be_absent() -> None:
    async with answering(404, b"404 page not found") as client:
        for reader in (Reader(client), Reader(client, tolerant=True)):
            assert await reader.get(POD, ONE) == Listed()
            assert await reader.first(MODEL_ARTIFACT, limit=1, most=1024) == Listed()
            assert await reader.list(MODEL_ARTIFACT) == Listed()
            (unseen,) = (await reader.list(MODEL_ARTIFACT, unserved="unseen")).unseen
            assert unseen.why == "the cluster does not serve modelartifacts.airunway.ai"
        with pytest.raises(NotFound):
            await Reader(client).list(MODEL_ARTIFACT, unserved="error")


async def test_a_list_that_is_cut_or_too_large_says_so() -> None:
    async def pods(_: web.Request) -> web.Response:
        return web.Response(body=PODS, content_type="application/json")

    async with scripted_server(pods) as client:
        cut = await Reader(client).first(POD, namespace="ml", limit=1, most=2**20)
        large = await Reader(client).first(POD, namespace="ml", limit=1, most=16)
    assert [item["kind"] for item in cut.items] == ["Pod"]
    assert cut.found == cut.items
    assert [each.why for each in cut.unseen] == ["only the first 1 of the list were read"]
    assert [each.why for each in large.unseen] == ["more than 0 MiB"]
    assert not large.items


async def test_what_a_deployment_follows_is_read_as_far_as_rights_reach() -> None:
    async def serve(request: web.Request) -> web.Response:
        if "/namespaces/ml/" in request.path:
            return web.Response(status=403, body=DENIED)
        return web.Response(body=b'{"metadata": {"name": "own"}}')

    own = {"metadata": {"name": "llama", "namespace": "ml"}, "spec": {"runtimeConfigName": "own"}}
    cached = {**own, "spec": {"model": {"cache": {"mode": "Shared"}}}}
    async with scripted_server(serve) as client:
        plain, read = await read_followed(client, own, own), await read_followed(client, own, cached)
    assert [(each["kind"], each["metadata"]["name"]) for each in read.items] == [("ClusterRuntimeConfig", "own")]
    rights = ["get runtimeconfigs.airunway.ai in namespace ml", "list modelartifacts.airunway.ai in namespace ml"]
    assert [each.right for each in read.unseen] == rights
    assert [each.right for each in plain.unseen] == rights[:1]
