"""kopf is only the shell: it needs no API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from socket import socket

import kopf
import pytest

from airunway.kube import ClusterConfig
from airunway.process.manager import Lead, ManagerSettings, serve
from airunway.process.metrics import Metrics


class Serving:
    """An application that ends once kopf has started its admission server."""

    serving = True

    def __init__(self) -> None:
        self.started = asyncio.Event()

    def register(self, settings: kopf.OperatorSettings) -> None:
        settings.admission.server = self.server

    async def server(self, _: object) -> AsyncIterator[kopf.WebhookClientConfig]:
        self.started.set()
        yield {}
        await asyncio.Event().wait()

    def unready(self) -> str | None:
        return None

    async def run(self, lead: Lead) -> None:
        await self.started.wait()


async def test_admission_is_served_while_the_api_server_is_away() -> None:
    application = Serving()
    away = ClusterConfig(server="https://127.0.0.1:1", tls_server_name="k8s", proxy_url="http://127.0.0.1:1")
    async with asyncio.timeout(20):  # kopf gives up a server after a minute
        await serve(
            away, lambda _: {"core": lambda: application}, ManagerSettings(component="core"), metrics=Metrics("x")
        )
    assert application.started.is_set()


async def test_a_port_that_is_taken_ends_the_process_before_its_work_begins() -> None:
    """A8: the client was closed under the work, and up to 87 lines with tracebacks stood before the cause."""
    application = Serving()
    with socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        settings = ManagerSettings(component="core", health_address=address)
        with pytest.raises(OSError, match=f"cannot listen on {address}: Address already in use"):
            await serve(
                ClusterConfig(server="https://127.0.0.1:1"),
                lambda _: {"core": lambda: application},
                settings,
                metrics=Metrics("x"),
            )
    assert not application.started.is_set()
