"""A part that may not use its Lease never leads: the probe says so."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from core.tests.kube.servers import scripted_server

from airunway.kube import LeaderElector
from airunway.process.manager import Lead, Supervisor
from airunway_testing.eventually import eventually


class Part:
    """Leads until it is cancelled; nothing is wrong with itself."""

    def __init__(self, *, serving: bool) -> None:
        self.serving = serving

    def unready(self) -> str | None:
        return None

    def register(self, settings: object) -> None:
        """There is nothing to register."""

    async def run(self, lead: Lead) -> None:
        async def work() -> None:
            await asyncio.Event().wait()

        await lead(work)


@pytest.mark.parametrize("serving", [False, True])
async def test_a_part_that_may_never_lead_is_named(serving: bool) -> None:
    """Only the part that serves admission stays ready: reviews must be answered whatever is wrong."""
    now = 0.0

    async def refuse(_: web.Request) -> web.Response:
        return web.json_response({"reason": "Forbidden", "message": "leases is forbidden"}, status=403)

    async with scripted_server(refuse) as client:
        elector = LeaderElector(client, namespace="n", name="a", identity="me", clock=lambda: now)
        parts = Supervisor({"a": lambda: Part(serving=serving)}, lead_of=lambda _: elector.run, electors={"a": elector})
        task = asyncio.create_task(parts.run())
        await eventually(lambda: parts.remark() is not None)
        problem = "lease n/a: leases is forbidden (403 Forbidden)"
        assert (parts.remark(), parts.unready()) == (problem, None)
        now = 30.0
        assert (parts.remark(), parts.unready()) == (problem, None if serving else problem)
        task.cancel()
        await asyncio.wait([task])
