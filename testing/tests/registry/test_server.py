"""The local registry: what a client of the distribution API gets from it, and the faults."""

from __future__ import annotations

import base64
import hashlib

import aiohttp

from airunway_testing.registry.faults import Garbage, HttpStatus, Redirect
from airunway_testing.registry.server import Image, container_registry

LABELS = {"org.example/model": "llama"}


async def test_tags_manifest_and_configuration(session: aiohttp.ClientSession) -> None:
    async with container_registry([Image("team/llama", "1.0", labels=LABELS)]) as registry:
        root = f"http://{registry.host}/v2"
        async with session.get(f"{root}/team/llama/tags/list") as answer:
            assert await answer.json() == {"name": "team/llama", "tags": ["1.0"]}
        async with session.get(f"{root}/team/llama/manifests/1.0") as answer:
            body = await answer.read()
            assert answer.headers["Docker-Content-Digest"] == f"sha256:{hashlib.sha256(body).hexdigest()}"
            digest = (await answer.json(content_type=None))["config"]["digest"]
        async with session.get(f"{root}/team/llama/blobs/{digest}") as answer:
            assert (await answer.json(content_type=None))["config"]["Labels"] == LABELS
        async with session.get(f"{root}/_catalog") as answer:
            assert await answer.json() == {"repositories": ["team/llama"]}
        assert [each.route for each in registry.requests] == ["tags", "manifest", "blob", "catalog"]
        for path in ("nothing/tags/list", "team/llama/manifests/9", "team/llama/blobs/sha256:0"):
            async with session.get(f"{root}/{path}") as answer:
                assert answer.status == 404


async def test_pages_have_a_link_to_the_next_one(session: aiohttp.ClientSession) -> None:
    images = [Image("a", str(number)) for number in range(5)]
    async with container_registry(images, page_size=2) as registry:
        url, found = f"http://{registry.host}/v2/a/tags/list?n=100", list[str]()
        while url:
            async with session.get(url) as answer:
                found += (await answer.json())["tags"]
                url = str(answer.links["next"]["url"]) if answer.links else ""
        assert found == ["0", "1", "2", "3", "4"]
        assert registry.asked("tags") == 3


async def test_an_index_names_the_image_of_each_platform(session: aiohttp.ClientSession) -> None:
    async with container_registry([Image("a", "1", platforms=("linux/amd64", "linux/arm64"))]) as registry:
        async with session.get(f"http://{registry.host}/v2/a/manifests/1") as answer:
            index = await answer.json(content_type=None)
        assert [each["platform"]["architecture"] for each in index["manifests"]] == ["amd64", "arm64"]
        async with session.get(f"http://{registry.host}/v2/a/manifests/{index['manifests'][1]['digest']}") as answer:
            assert answer.status == 200


async def test_a_token_is_for_one_user_and_one_repository(session: aiohttp.ClientSession) -> None:
    async with container_registry([Image("a", "1"), Image("b", "1")], auth="token", users={"u": "p"}) as registry:
        url = f"http://{registry.host}/v2/a/tags/list"
        async with session.get(url) as answer:
            assert answer.status == 401
            realm = answer.headers["WWW-Authenticate"].partition('realm="')[2].partition('"')[0]
        wanted = {"service": "local", "scope": "repository:a:pull"}
        async with session.get(realm, params=wanted) as answer:
            assert answer.status == 401
        basic = {"Authorization": "Basic " + base64.b64encode(b"u:p").decode()}
        async with session.get(realm, params=wanted, headers=basic) as answer:
            bearer = {"Authorization": f"Bearer {(await answer.json())['token']}"}
        async with session.get(url, headers=bearer) as answer:
            assert answer.status == 200
        async with session.get(url.replace("/a/", "/b/"), headers=bearer) as answer:
            assert answer.status == 401
        assert [each.host for each in registry.requests] == ["registry", "token", "token", "registry", "registry"]


async def test_faults_fit_a_route_and_a_repository_for_some_requests(session: aiohttp.ClientSession) -> None:
    async with container_registry([Image("a", "1"), Image("b", "1")]) as registry:
        registry.faults.inject(HttpStatus(status=429, headers={"Retry-After": "3"}), repository="a", times=1)
        registry.faults.inject(Garbage(body=b"x"), route="catalog")
        registry.faults.inject(Redirect(to="/elsewhere"), route="manifest", repository="b")
        seen = []
        for path in ("a/tags/list", "a/tags/list", "b/tags/list", "_catalog", "b/manifests/1", "a/manifests/1"):
            async with session.get(f"http://{registry.host}/v2/{path}", allow_redirects=False) as answer:
                seen.append(answer.status)
        assert seen == [429, 200, 200, 200, 307, 200]
        registry.faults.clear()
        async with session.get(f"http://{registry.host}/v2/b/manifests/1") as answer:
            assert answer.status == 200
