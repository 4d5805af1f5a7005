"""Logs as a kubelet serves them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from airunway.resource import ObjectKey
from airunway_testing.modelservers.logs import Log, log_server

LOG = Log("one", "two")


def find(key: ObjectKey, container: str, *, previous: bool) -> Log:
    if previous or key != ObjectKey("ml", "llama-0") or container != "model":
        raise LookupError(f'container "{container}" not found')
    return LOG


@pytest.fixture
async def ask(tmp_path: Path) -> AsyncIterator[aiohttp.ClientSession]:
    async with (
        log_server(tmp_path, find) as port,
        aiohttp.ClientSession(
            f"https://127.0.0.1:{port}/containerLogs/ml/", connector=aiohttp.TCPConnector(ssl=False)
        ) as session,
    ):
        yield session


async def text(ask: aiohttp.ClientSession, path: str, **query: str) -> tuple[int, str]:
    async with ask.get(path, params=query) as answer:
        return answer.status, await answer.text()


async def test_what_is_asked_for(ask: aiohttp.ClientSession) -> None:
    assert await text(ask, "llama-0/model") == (200, "one\ntwo\n")
    assert await text(ask, "llama-0/model", tailLines="1") == (200, "two\n")
    assert await text(ask, "llama-0/model", tailLines="0") == (200, "")
    assert await text(ask, "llama-0/model", sinceSeconds="60", tailLines="9") == (200, "one\ntwo\n")
    status, stamped = await text(ask, "llama-0/model", timestamps="true", tailLines="1")
    assert (status, stamped.split()[1], stamped[10]) == (200, "two", "T")
    for path, query in (("llama-0/other", {}), ("other/model", {}), ("llama-0/model", {"previous": "true"})):
        status, said = await text(ask, path, **query)
        assert (status, "not found" in said) == (400, True)


async def test_a_log_is_followed_until_its_container_ends(
    ask: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = Log("one")
    monkeypatch.setattr(f"{__name__}.LOG", followed)
    async with ask.get("llama-0/model", params={"follow": "true"}) as answer:
        assert await answer.content.readline() == b"one\n"
        followed.write("two")
        assert await answer.content.readline() == b"two\n"
        followed.write("three")
        followed.ended = True
        async with asyncio.timeout(30):
            assert await answer.content.read() == b"three\n"


def test_old_lines_are_dropped() -> None:
    log = Log(*map(str, range(1500)))
    assert (log.written, len(log.after(0)), log.after(0)[-1][1]) == (1500, 1000, "1499")
    assert [line for _, line in log.after(1498)] == ["1498", "1499"]
    assert log.after(1500) == []
