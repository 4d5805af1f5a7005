"""Probes and metrics over HTTP."""

from __future__ import annotations

import socket

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunway.process.metrics import Metrics
from airunway.process.probes import metrics_server, parse_address, probe_server


async def get(url: str, **headers: str) -> tuple[int, str, str]:
    async with aiohttp.ClientSession() as http, http.get(url, headers=headers) as answer:
        return answer.status, answer.headers["Content-Type"], await answer.text()


async def test_probes_say_what_is_wrong() -> None:
    problems: dict[str, str | None] = {"live": None, "ready": "the caches are empty"}
    async with probe_server("127.0.0.1:0", live=lambda: problems["live"], ready=lambda: problems["ready"]) as port:
        assert (await get(f"http://127.0.0.1:{port}/livez"))[::2] == (200, "ok")
        assert (await get(f"http://127.0.0.1:{port}/readyz"))[::2] == (503, "the caches are empty")
        problems["ready"] = None
        assert (await get(f"http://127.0.0.1:{port}/readyz"))[::2] == (200, "ok")
        assert (await get(f"http://127.0.0.1:{port}/metrics"))[0] == 404


async def test_metrics_are_served_in_both_formats() -> None:
    async with metrics_server("127.0.0.1:0", Metrics("tests")) as port:
        url = f"http://127.0.0.1:{port}/metrics"
        status, content_type, text = await get(url)
        assert (status, content_type.split(";")[0]) == (200, "text/plain")
        assert 'airunway_build_info{component="tests"' in text
        status, content_type, text = await get(url, Accept="application/openmetrics-text; version=1.0.0")
        assert (status, content_type.split(";")[0]) == (200, "application/openmetrics-text")
        assert text.endswith("# EOF\n")


async def test_nothing_is_served_where_it_is_switched_off() -> None:
    async with metrics_server("0", Metrics("tests")) as port:
        assert port is None


async def test_an_address_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OSError, match=f"cannot listen on {address}: "):
            async with metrics_server(address, Metrics("tests")):
                pass


@pytest.mark.parametrize(
    ("text", "where"),
    [("0", None), (":8081", ("0.0.0.0", 8081)), ("127.0.0.1:1", ("127.0.0.1", 1)), ("[::1]:2", ("::1", 2))],
)
def test_addresses(text: str, where: tuple[str, int] | None) -> None:
    assert parse_address(text) == where


@given(st.text().filter(lambda text: ":" not in text and text != "0"))
def test_what_is_no_address_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is not an address"):
        parse_address(text)
