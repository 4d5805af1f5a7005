"""The played hub: what a client of Hugging Face's API gets from it, and the faults."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator

import aiohttp
import pytest

from airunway_testing.modelhub.hub import Files, Hub, Repository, model_hub
from airunway_testing.modelhub.serving import (
    Bytes,
    CutBody,
    ErrorPage,
    Fault,
    HttpError,
    IgnoredRange,
    LyingSize,
    Pattern,
    Reset,
    ShortBody,
    Slow,
    Stall,
    SwappedWith,
    WrongByte,
)

WEIGHTS = Pattern(300_000, seed=1)
OTHER = Bytes(b"other weights")
FILES: Files = {"config.json": "{}", "model.safetensors": WEIGHTS, "onnx/deep/model.onnx": OTHER}
REPOSITORIES = (
    Repository("acme/llama", FILES),
    Repository("acme/gated", FILES, gated="manual"),
    Repository("acme/private", FILES, private=True),
)
TOKENS = {"hf_granted": ("acme/gated", "acme/private"), "hf_other": ()}


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    async with model_hub(REPOSITORIES, tokens=TOKENS) as running:
        yield running


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def body_of(content: Pattern | Bytes) -> bytes:
    return b"".join(content.read(0, content.size))


async def test_a_large_file_comes_from_the_second_host_without_the_token(
    hub: Hub, session: aiohttp.ClientSession
) -> None:
    url = f"{hub.endpoint}/acme/llama/resolve/main/model.safetensors"
    async with session.head(url, allow_redirects=False) as answer:
        assert answer.status == 302
        assert answer.headers["X-Repo-Commit"] == hub.head("acme/llama")
        assert answer.headers["X-Linked-Size"] == "300000"
        assert answer.headers["X-Linked-Etag"] == f'"{WEIGHTS.sha256}"'
        assert answer.headers["Location"].startswith(hub.cdn)
    async with session.get(url, headers=bearer("hf_granted")) as answer:
        assert hashlib.sha256(await answer.read()).hexdigest() == WEIGHTS.sha256
    seen = [(each.host, each.status, each.authorized, each.sent) for each in hub.requests]
    assert seen == [("hub", 302, False, 0), ("hub", 302, True, 0), ("cdn", 200, False, 300_000)]
    assert hub.bytes_sent("model.safetensors") == 300_000


async def test_a_small_file_comes_from_a_cache_of_the_same_host(hub: Hub, session: aiohttp.ClientSession) -> None:
    async with session.get(f"{hub.endpoint}/acme/llama/resolve/main/config.json") as answer:
        assert await answer.text() == "{}"
        assert (
            answer.headers["ETag"] == '"9e26dfeeb6e641a33dae4961196235bdb965b21b"'
        )  # `git hash-object` of these bytes
    assert [each.status for each in hub.requests] == [307, 200]


async def test_ranges(hub: Hub, session: aiohttp.ClientSession) -> None:
    url, whole = f"{hub.endpoint}/acme/llama/resolve/main/model.safetensors", body_of(WEIGHTS)
    for header, part in (
        ("bytes=299990-", whole[299_990:]),
        ("bytes=10-19", whole[10:20]),
        ("bytes=-5", whole[-5:]),
        ("bytes=1-999999", whole[1:]),
    ):
        async with session.get(url, headers={"Range": header}) as answer:
            assert (answer.status, await answer.read()) == (206, part)
    assert hub.requests[-1].range == "bytes=1-999999"
    async with session.get(url, headers={"Range": "bytes=300000-"}) as answer:
        assert (answer.status, answer.headers["Content-Range"]) == (416, "bytes */300000")
    async with session.get(url, headers={"Range": "bytes=5-", "If-Range": '"another"'}) as answer:
        assert (answer.status, len(await answer.read())) == (200, 300_000)


async def test_a_revision_and_its_tree(hub: Hub, session: aiohttp.ClientSession) -> None:
    async with session.get(f"{hub.endpoint}/api/models/acme/llama/revision/main") as answer:
        found = await answer.json()
    assert found["sha"] == hub.head("acme/llama")
    assert [each["rfilename"] for each in found["siblings"]] == sorted(FILES)
    tree = f"{hub.endpoint}/api/models/acme/llama/tree/{found['sha']}"
    async with session.get(tree, params={"recursive": "true"}) as answer:
        entries = {each["path"]: each for each in await answer.json()}
    assert {path: each["type"] for path, each in entries.items()} == {
        "config.json": "file",
        "model.safetensors": "file",
        "onnx": "directory",
        "onnx/deep": "directory",
        "onnx/deep/model.onnx": "file",
    }
    assert entries["model.safetensors"]["lfs"] == {"oid": WEIGHTS.sha256, "size": 300_000, "pointerSize": 134}
    assert "lfs" not in entries["config.json"]
    async with session.get(tree) as answer:
        assert [each["path"] for each in await answer.json()] == ["config.json", "model.safetensors", "onnx"]
    async with session.get(f"{tree}/onnx/deep") as answer:
        assert [each["path"] for each in await answer.json()] == ["onnx/deep/model.onnx"]


async def test_a_tree_comes_in_pages(session: aiohttp.ClientSession) -> None:
    files = {f"part-{number:04}.txt": str(number) for number in range(7)}
    async with model_hub([Repository("acme/many", files)], page_size=3) as hub:
        url, found, pages = f"{hub.endpoint}/api/models/acme/many/tree/main?recursive=true&expand=true", [], 0
        while url:
            async with session.get(url) as answer:
                found += [each["path"] for each in await answer.json()]
                pages += 1
                url = str(answer.links["next"]["url"]) if "next" in answer.links else ""
    assert (found, pages) == (sorted(files), 3)


async def test_a_branch_moves_and_its_old_commit_stays(hub: Hub, session: aiohttp.ClientSession) -> None:
    old = hub.head("acme/llama")
    new = hub.commit("acme/llama", {**FILES, "config.json": '{"new": true}'})
    for revision, text in (("main", '{"new": true}'), (new, '{"new": true}'), (old, "{}")):
        async with session.get(f"{hub.endpoint}/acme/llama/resolve/{revision}/config.json") as answer:
            assert await answer.text() == text
    hub.set_ref("acme/llama", "refs/pr/1", old)
    async with session.get(f"{hub.endpoint}/api/models/acme/llama/revision/refs%2Fpr%2F1") as answer:
        assert (await answer.json())["sha"] == old


@pytest.mark.parametrize(
    ("path", "token", "status", "code", "message"),
    [
        ("acme/none/resolve/main/a", "", 401, "", "Invalid username or password."),
        ("api/models/acme/none/revision/main", "hf_other", 404, "RepoNotFound", "Repository not found"),
        ("api/models/acme/private/revision/main", "", 401, "", "Invalid username or password."),
        ("api/models/acme/private/revision/main", "hf_other", 404, "RepoNotFound", "Repository not found"),
        ("acme/llama/resolve/main/config.json", "hf_bad", 401, "", "Invalid credentials in Authorization header"),
        ("acme/gated/resolve/main/config.json", "", 401, "GatedRepo", "Please log in."),
        ("acme/gated/resolve/main/config.json", "hf_other", 403, "GatedRepo", "not in the authorized list"),
        ("acme/llama/resolve/main/none.json", "", 404, "EntryNotFound", "Entry not found"),
        ("api/models/acme/llama/tree/main/none", "", 404, "EntryNotFound", "none does not exist"),
        ("api/models/acme/llama/tree/main/config.json", "", 404, "EntryNotFound", "does not exist"),
        ("api/models/acme/llama/revision/v9", "", 404, "RevisionNotFound", "Invalid rev id: v9"),
    ],
)
async def test_refusals(
    hub: Hub, session: aiohttp.ClientSession, path: str, token: str, status: int, code: str, message: str
) -> None:
    async with session.get(f"{hub.endpoint}/{path}", headers=bearer(token)) as answer:
        assert (answer.status, answer.headers.get("X-Error-Code", "")) == (status, code)
        assert message in answer.headers["X-Error-Message"]


async def test_a_granted_token_opens_what_is_gated_or_private(hub: Hub, session: aiohttp.ClientSession) -> None:
    for path in ("acme/gated/resolve/main/model.safetensors", "api/models/acme/private/revision/main"):
        async with session.get(f"{hub.endpoint}/{path}", headers=bearer("hf_granted")) as answer:
            assert answer.status == 200
    async with session.get(f"{hub.endpoint}/api/models/acme/gated/revision/main") as answer:
        assert (await answer.json())["gated"] == "manual"


async def test_a_renamed_repository_redirects_and_a_link_expires(hub: Hub, session: aiohttp.ClientSession) -> None:
    hub.rename("acme/llama", "acme/llama-2")
    async with session.get(f"{hub.endpoint}/acme/llama/resolve/main/config.json") as answer:
        assert (answer.status, await answer.text()) == (200, "{}")
    async with session.get(f"{hub.endpoint}/acme/llama-2/resolve/main/model.safetensors") as answer:
        link = answer.url
    assert link.host == "localhost"
    hub.expire_links()
    async with session.get(link) as answer:
        assert answer.status == 403


def _spoiled(at: int) -> bytes:
    whole = bytearray(body_of(WEIGHTS))
    whole[at] ^= 0xFF
    return bytes(whole)


@pytest.mark.parametrize(
    ("fault", "body"),
    [
        (WrongByte(at=200_000), _spoiled(200_000)),
        (ShortBody(missing=7), body_of(WEIGHTS)[:-7]),
        (SwappedWith(path="onnx/deep/model.onnx"), body_of(OTHER)),
        (Slow(bytes_per_second=10_000_000), body_of(WEIGHTS)),
        (IgnoredRange(), body_of(WEIGHTS)),
        (ErrorPage(text="<html>sorry</html>"), b"<html>sorry</html>"),
    ],
)
async def test_a_wrong_body_comes_once_with_status_200(
    hub: Hub, session: aiohttp.ClientSession, fault: Fault, body: bytes
) -> None:
    hub.inject(fault, path="model.safetensors")
    url = f"{hub.endpoint}/acme/llama/resolve/main/model.safetensors"
    headers = {"Range": "bytes=0-9"} if isinstance(fault, IgnoredRange) else {}
    async with session.get(url, headers=headers) as answer:
        assert (answer.status, await answer.read()) == (200, body)
    async with session.get(url) as answer:
        assert await answer.read() == body_of(WEIGHTS)


async def test_a_cut_body_a_reset_and_a_stall(hub: Hub, session: aiohttp.ClientSession) -> None:
    url = f"{hub.endpoint}/acme/llama/resolve/main/model.safetensors"
    hub.inject(CutBody(after=100_000))
    async with session.get(url) as answer:
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()
    assert hub.bytes_sent() == 100_000
    hub.inject(Reset(), route="resolve", path="model.safetensors", times=2)  # aiohttp asks again once
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await session.get(url)
    hub.inject(Stall(after=70_000))
    async with session.get(url) as answer:
        assert len(await answer.content.readexactly(70_000)) == 70_000
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(answer.content.readany(), 0.05)
    async with session.get(url) as answer:
        assert len(await answer.read()) == 300_000


async def test_statuses_by_route_and_count(hub: Hub, session: aiohttp.ClientSession) -> None:
    hub.inject(HttpError(status=429, retry_after="7"), route="revision", times=2)
    hub.inject(HttpError(status=503), route=None, path="config.json", times=None)
    url = f"{hub.endpoint}/api/models/acme/llama/revision/main"
    seen = []
    for _ in range(3):
        async with session.get(url) as answer:
            seen.append((answer.status, answer.headers.get("Retry-After")))
    assert seen == [(429, "7"), (429, "7"), (200, None)]
    for _ in range(2):
        async with session.get(f"{hub.endpoint}/acme/llama/resolve/main/config.json") as answer:
            assert answer.status == 503
    hub.clear_faults()
    async with session.get(f"{hub.endpoint}/acme/llama/resolve/main/config.json") as answer:
        assert answer.status == 200


async def test_lying_metadata_and_replaced_bytes(hub: Hub, session: aiohttp.ClientSession) -> None:
    hub.inject(LyingSize(by=-5), path="model.safetensors")
    url = f"{hub.endpoint}/acme/llama/resolve/main/model.safetensors"
    async with session.head(url, allow_redirects=False) as answer:
        assert answer.headers["X-Linked-Size"] == "299995"
    async with session.get(f"{hub.endpoint}/api/models/acme/llama/tree/main") as answer:
        assert [each["size"] for each in await answer.json() if each["path"] == "model.safetensors"] == [299_995]
    hub.replace("acme/llama", "model.safetensors", Pattern(300_000, seed=2))
    async with session.get(url) as answer:
        assert await answer.read() == body_of(Pattern(300_000, seed=2))
