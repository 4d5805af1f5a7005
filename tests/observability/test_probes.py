"""What the probes of real processes answer in trouble: restarts help nobody whose API server is away."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import aiohttp
import pytest
from tests.support.faultproxy import Fault, FaultProxy

pytestmark = pytest.mark.apiserver

Eventually = Callable[..., Awaitable[None]]
Start = Callable[..., AbstractAsyncContextManager[tuple[str, str]]]

COMMANDS = {"core": ("controller",), "provider": ("provider", "run", "kaito")}


async def answer(http: aiohttp.ClientSession, url: str) -> tuple[int, str]:
    """Status and text; 0 as long as nobody listens."""
    try:
        async with http.get(url) as response:
            return response.status, await response.text()
    except aiohttp.ClientConnectionError:
        return 0, ""


@pytest.mark.parametrize("component", COMMANDS)
async def test_a_process_without_an_api_server_lives_and_says_what_it_waits_for(
    component: str, installed: None, kubeconfig: Path, namespace: str, tmp_path: Path, start: Start,
    eventually: Eventually,
) -> None:  # fmt: skip
    log = tmp_path / f"{component}.log"
    async with FaultProxy(kubeconfig) as proxy, aiohttp.ClientSession() as http:
        proxy.inject(Fault("reset", count=None))
        async with start(log, namespace, proxy.kubeconfig, *COMMANDS[component]) as (_, probes):

            async def warned() -> bool:
                return "not ready yet" in log.read_text()

            await eventually(warned, otherwise=log.read_text)
            assert await answer(http, f"{probes}/livez") == (200, "ok")
            status, text = await answer(http, f"{probes}/readyz")
            assert status == 503
            assert "have not been read yet" in text or "not registered yet" in text
            proxy.clear()

            async def ready() -> bool:
                return await answer(http, f"{probes}/readyz") == (200, "ok")

            await eventually(ready, otherwise=log.read_text)
    assert "ready" in [json.loads(line)["msg"] for line in log.read_text().splitlines()]


@pytest.mark.slow
async def test_the_core_stays_ready_and_loses_its_lease_when_the_api_server_goes(
    installed: None, kubeconfig: Path, namespace: str, tmp_path: Path, start: Start, eventually: Eventually
) -> None:
    log = tmp_path / "core.log"
    async with (
        FaultProxy(kubeconfig) as proxy,
        aiohttp.ClientSession() as http,
        start(log, namespace, proxy.kubeconfig, "controller") as (metrics, probes),
    ):

        async def leads(value: float) -> bool:
            leader = f'airunway_leader{{component="airunway-controller"}} {value}'
            return leader in (await answer(http, metrics))[1]

        await eventually(lambda: leads(1.0))
        assert await answer(http, f"{probes}/readyz") == (200, "ok")
        proxy.inject(Fault("reset", count=None))
        proxy.cut_all()
        await eventually(lambda: leads(0.0))
        assert await answer(http, f"{probes}/livez") == (200, "ok")
        status, text = await answer(http, f"{probes}/readyz")
        assert (status, text.startswith("ok; airunway-controller: lease ")) == (200, True), text
        proxy.clear()
        await eventually(lambda: leads(1.0))
    lost = [line for line in map(json.loads, log.read_text().splitlines()) if line["level"] == "error"]
    assert lost, "the core and its gateway part have a Lease each"
    assert all(line["msg"].endswith("it could not be renewed in time; standing by") for line in lost)
