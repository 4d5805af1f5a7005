"""Probes and metrics over HTTP."""

from __future__ import annotations

import asyncio
import errno
import gzip
import os
import re
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airunway.process import probes
from airunway.process.metric_catalogue import MetricsRole
from airunway.process.metrics import Metrics
from airunway.process.probes import LIMITS, MAX_AGE, SCRAPES, MetricsCache, metrics_server, parse_address, probe_server
from airunway_testing.eventually import PATIENCE


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


class Counted(Metrics):
    """MetricsCache that take as long as the test wants, and how many were made at a time."""

    def __init__(self) -> None:
        super().__init__("tests")
        self.made, self.at_once, self.most_at_once = 0, 0, 0
        self.wait = asyncio.Event()
        self.wait.set()
        self.padding = b""

    async def page(self, accept: str = "") -> tuple[bytes, str]:
        self.made, self.at_once = self.made + 1, self.at_once + 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await self.wait.wait()
        self.at_once -= 1
        body, content_type = await super().page(accept)
        return body + self.padding, content_type


async def test_m13_one_page_serves_all_who_ask_within_a_second() -> None:
    now = 100.0
    metrics = Counted()
    pages = MetricsCache(metrics, clock=lambda: now)
    accepts = ["", *(f"application/openmetrics-text; version=1.0.{number}" for number in range(50))]
    await asyncio.gather(*(pages.get(accept) for accept in accepts * 4))
    assert (metrics.made, metrics.most_at_once) == (2, 1), "one for each form, not at the same time"
    now += MAX_AGE
    page = await pages.get("")
    assert metrics.made == 3
    assert gzip.decompress(page.compressed) == page.body


async def test_m13_too_many_scrapes_at_a_time_are_told_to_come_back() -> None:
    metrics = Counted()
    metrics.wait.clear()
    async with metrics_server("127.0.0.1:0", metrics) as port:
        url = f"http://127.0.0.1:{port}/metrics"
        first = [asyncio.create_task(get(url)) for _ in range(SCRAPES)]
        while metrics.at_once < 1:
            await asyncio.sleep(0.01)
        async with asyncio.timeout(PATIENCE):
            while (await get(url))[0] != 503:
                await asyncio.sleep(0.01)
        metrics.wait.set()
        assert {status for status, _, _ in await asyncio.gather(*first)} == {200}
        assert (await get(url))[0] == 200


async def test_m13_who_does_not_read_keeps_nobody_out_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "SCRAPE_PATIENCE", 0.5)
    metrics = Counted()
    metrics.padding = b"#" * 2**24
    async with metrics_server("127.0.0.1:0", metrics) as port:
        idle = [await asyncio.open_connection("127.0.0.1", port, limit=2**10) for _ in range(SCRAPES)]
        for _, writer in idle:
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(PATIENCE):
            while (await get(f"http://127.0.0.1:{port}/metrics"))[0] != 200:
                await asyncio.sleep(0.05)
        for _, writer in idle:
            writer.close()


async def test_m13_long_label_values_are_cut_and_stay_different() -> None:
    metrics = Metrics("tests", role=MetricsRole.CORE)
    ids = ["org/" + "x" * 2000 + end for end in "ab"]
    metrics.add_source(
        "info", lambda: [("airunway_modeldeployment_info", ("ns", "same", "", "", each), 1.0) for each in ids]
    )
    body, _ = await metrics.page()
    lines = [line for line in body.decode().splitlines() if line.startswith("airunway_modeldeployment_info")]
    values = {line.partition('model="')[2].partition('"')[0] for line in lines}
    assert len(values) == 2
    assert {len(value) for value in values} == {128}


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


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
async def test_without_a_host_both_families_are_answered(host: str) -> None:
    """A cluster may have IPv6 only."""
    if host == "[::1]" and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    async with probe_server(":0", live=lambda: None, ready=lambda: None) as port:
        assert (await get(f"http://{host}:{port}/livez"))[0] == 200


async def test_where_ipv6_is_switched_off_ipv4_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(address: tuple[str, int], *, family: socket.AddressFamily, **options: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EADDRNOTAVAIL, "cannot assign requested address")
        return create(address, family=family, **options)

    create = socket.create_server
    monkeypatch.setattr(socket, "create_server", without)
    async with probe_server(":0", live=lambda: None, ready=lambda: None) as port:
        assert (await get(f"http://127.0.0.1:{port}/livez"))[0] == 200


@pytest.mark.parametrize(
    ("text", "where"),
    [("0", None), (":8081", ("", 8081)), ("127.0.0.1:1", ("127.0.0.1", 1)), ("[::1]:65535", ("::1", 65535))],
)
def test_addresses(text: str, where: tuple[str, int] | None) -> None:
    assert parse_address(text) == where


@given(st.text().filter(lambda text: ":" not in text and text != "0"))
@example(":65536")
@example(":99999999999999999999")
@example(":-1")
@example(":\u0663")
def test_what_is_no_address_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is not an address"):
        parse_address(text)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("no-such-host.invalid:0", "(Name or service not known|nodename nor servname|Temporary failure|No address)"),
        (f"{'a' * 64}.b:0", "not a host name$"),
        ("192.0.2.1:0", f"{os.strerror(errno.EADDRNOTAVAIL)}$"),
    ],
)
async def test_an_address_on_which_nothing_can_listen_is_named(address: str, reason: str) -> None:
    with pytest.raises(OSError, match=rf"cannot listen on {re.escape(address)}: {reason}"):
        async with probe_server(address, live=lambda: None, ready=lambda: None):
            pass


# ------------------------------------------------------------------------------------------- M2: half-open connections


_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_QUEUED = 512
"""Of those, how many may still wait in the system's backlog at the end."""

_SERVER = """
import asyncio, sys
from airunway.process.metrics import Metrics
from airunway.process.probes import metrics_server, probe_server

async def main():
    probes = probe_server("127.0.0.1:0", live=lambda: None, ready=lambda: None)
    async with probes as probed, metrics_server("127.0.0.1:0", Metrics("tests")) as shown:
        print(probed, shown, flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


@contextmanager
def serving() -> Iterator[tuple[int, dict[str, int]]]:
    """Both servers in a process of their own, whose memory is theirs alone: its pid, and the ports by path."""
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        probed, shown = map(int, process.stdout.readline().split())
        try:
            yield process.pid, {"/livez": probed, "/metrics": shown}
        finally:
            process.kill()


def resident(pid: int, line: str = "VmRSS") -> float:
    """MiB that a process has (VmRSS), or ever had (VmHWM)."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(rf"^{line}:\s+(\d+) kB", text, flags=re.MULTILINE)[0]) / 1024


async def half_open(port: int) -> _Streams | None:
    """A connection that has begun a request; None where the other side has ended it already."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**10)
    except OSError:
        return None
    writer.write(b"GET /livez HTTP/1.1\r\nHost: a\r\nX-")
    return reader, writer


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize(
    ("path", "flood"), [pytest.param("/livez", 8_000, marks=pytest.mark.slow), ("/livez", 3_000), ("/metrics", 3_000)]
)
async def test_m2_thousands_of_half_open_heads_cost_next_to_no_memory_and_keep_nobody_out(
    path: str, flood: int
) -> None:
    """Each was kept for ever, at 13 KiB: a pod that reaches the port could fill the memory of the core."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = flood + 512 if hard == resource.RLIM_INFINITY else min(flood + 512, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    flood, answers, opened = min(flood, wanted - 512), list[int](), list[_Streams | None]()
    try:
        with serving() as (pid, ports):
            url = f"http://127.0.0.1:{ports[path]}{path}"
            async with asyncio.timeout(PATIENCE):
                answers.append((await get(url))[0])
            before = resident(pid)
            left = iter(range(flood))

            async def attack() -> None:
                for _ in left:
                    opened.append(await half_open(ports[path]))

            async def ask() -> None:
                while len(opened) < flood:
                    async with asyncio.timeout(PATIENCE):
                        answers.append((await get(url))[0])
                    await asyncio.sleep(0.05)

            async with asyncio.TaskGroup() as group:
                for _ in range(64):
                    group.create_task(attack())
                group.create_task(ask())
            assert set(answers) == {200}
            assert resident(pid, "VmHWM") - before <= 8
            ended = sum(each is None or each[0].at_eof() or each[0].exception() is not None for each in opened)
            assert ended >= flood - 2 * LIMITS.connections - _QUEUED, "those that came first had to go"
    finally:
        for _, writer in filter(None, opened):
            writer.transport.abort()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "LIMITS", replace(LIMITS, head_seconds=0.2, connections=4))


@pytest.mark.parametrize("sent", [b"", b"GET /li", b"GET /livez HTTP/1.1\r\nHost: a\r\nX-"])
async def test_m2_a_head_that_does_not_come_ends_with_408(short: None, sent: bytes) -> None:
    async with probe_server("127.0.0.1:0", live=lambda: None, ready=lambda: None) as port:
        assert port is not None
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        async with asyncio.timeout(PATIENCE):
            assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        writer.close()


async def test_m2_a_scrape_that_is_worked_on_stays_whatever_comes(short: None) -> None:
    metrics = Counted()
    metrics.wait.clear()
    async with metrics_server("127.0.0.1:0", metrics) as port:
        assert port is not None
        scrape = asyncio.create_task(get(f"http://127.0.0.1:{port}/metrics"))
        while metrics.at_once < 1:
            await asyncio.sleep(0.01)
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(reader.read() for reader, _ in idle[:10]))
        metrics.wait.set()
        assert (await scrape)[0] == 200
        for _, writer in idle:
            writer.transport.abort()


async def test_m2_what_is_turned_away_is_in_the_log_once(short: None, caplog: pytest.LogCaptureFixture) -> None:
    async with probe_server("127.0.0.1:0", live=lambda: None, ready=lambda: None) as port:
        assert port is not None
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(reader.read() for reader, _ in idle))
        for _, writer in idle:
            writer.transport.abort()
    (line,) = [record for record in caplog.records if "turned away" in record.message]
    assert line.message.startswith("the port of the probes has turned away 1 connections")
