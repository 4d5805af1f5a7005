"""H7: thousands of deployments are read, and gone over, without anything else in the process having to wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from airunway.api import names
from airunway.kube import Client, ClusterConfig, Priority, WorkQueue
from airunway.process import base_controller
from airunway.process.base_controller import BaseController
from airunway.process.caches import Caches
from airunway.process.deployment_cache import DeploymentProjection
from airunway.process.manager import Work
from airunway.process.metrics import Metrics
from airunway.resource import ObjectKey, Resource
from airunway_testing.eventually import PATIENCE

COUNT = 2_000


def _deployment(number: int) -> Resource:
    metadata = {"name": f"d-{number}", "namespace": "n", "uid": f"{number}", "resourceVersion": "7"}
    return {"apiVersion": names.API_VERSION, "kind": "ModelDeployment", "metadata": metadata, "spec": {"model": {}}}


async def _serve(request: web.Request) -> web.StreamResponse:
    """Everything in one page, and a watch that says nothing."""
    if "watch" not in request.query:
        items = [_deployment(number) for number in range(COUNT)]
        return web.json_response({"metadata": {"resourceVersion": "7"}, "items": items})
    response = web.StreamResponse()
    await response.prepare(request)
    await asyncio.Event().wait()
    return response


@asynccontextmanager
async def _following(turns: list[int]) -> AsyncIterator[tuple[BaseController, WorkQueue[ObjectKey], asyncio.Event]]:
    """A follower that leads once the event is set; `turns` has what was read when others had their turn."""
    application = web.Application()
    application.router.add_get("/{path:.*}", _serve)
    async with TestServer(application) as server, Client(ClusterConfig(server=str(server.make_url("")))) as client:
        caches = Caches(client, project=DeploymentProjection([]), metrics=Metrics("tests"))
        follower = BaseController(caches, component="tests")
        queue, leads = follower.queue("tests"), asyncio.Event()

        async def others() -> None:
            while True:
                turns.append(len(follower.deployments))
                await asyncio.sleep(0)

        async def lead(work: Work) -> None:
            await leads.wait()
            await work()

        async def work() -> None:
            follower.enqueue_all("lead", lambda _: True)
            await asyncio.Event().wait()

        async def follow(_: asyncio.TaskGroup) -> None:
            await follower.deployments.synced.wait()

        running = [asyncio.create_task(follower.run(follow, lead, work)), asyncio.create_task(others())]
        try:
            async with asyncio.timeout(PATIENCE):
                await follower.deployments.synced.wait()
                yield follower, queue, leads
        finally:
            for task in running:
                task.cancel()
            await asyncio.wait(running)


async def test_h7_others_have_their_turn_while_a_page_is_read() -> None:
    turns: list[int] = []
    async with _following(turns) as (follower, _, _):
        assert len(follower.deployments) == COUNT
    partly = {read for read in turns if 0 < read < COUNT}
    assert len(partly) >= COUNT / 50


async def test_h7_others_have_their_turn_while_all_are_gone_over() -> None:
    async with _following([]) as (_, queue, leads):
        seen: list[int] = []
        leads.set()
        while queue.depth < COUNT:
            seen.append(queue.depth)
            await asyncio.sleep(0)
        assert len({depth for depth in seen if depth}) >= COUNT / 500
        key = ObjectKey("n", "d-0")
        queue.add(key, Priority.NORMAL)
        assert await queue.get() == key, "what changed comes before what is only looked at again"


async def test_a_standby_goes_over_nothing() -> None:
    """Whoever begins to lead looks at everything."""
    async with _following([]) as (follower, queue, _):
        follower.enqueue_all("cause", lambda _: pytest.fail("nobody leads"))
        for _ in range(100):
            await asyncio.sleep(0)
        assert queue.depth == 0


async def test_what_is_asked_for_twice_before_it_is_begun_is_done_once() -> None:
    async with _following([]) as (follower, queue, leads):
        leads.set()
        while queue.depth < COUNT:
            await asyncio.sleep(0)
        looked: list[str] = []

        def wanted(said: str) -> bool:
            looked.append(said)
            return False

        follower.enqueue_all("cause", lambda _: wanted("first"))
        follower.enqueue_all("cause", lambda _: wanted("second"))
        follower.enqueue_all("other", lambda _: wanted("other"))
        while len(looked) < 2 * COUNT:
            await asyncio.sleep(0)
        assert set(looked) == {"second", "other"}


async def test_edits_of_a_config_with_many_followers_are_damped_and_new_deployments_go_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first edit is acted on at once, and one of many at the end of the rest, with the newest state."""
    monkeypatch.setattr(base_controller, "REST_OF_EACH", 1.0 / COUNT)
    async with _following([]) as (follower, queue, leads):
        leads.set()
        while queue.depth < COUNT:
            await asyncio.sleep(0)
        while queue.depth:
            queue.done(await queue.get())
        rounds: list[int] = []

        def looked(number: int) -> bool:
            rounds.append(number)
            return True

        def edited(number: int) -> None:
            follower.enqueue_all("config", lambda _: looked(number), damped=True)

        edited(1)
        while len(rounds) < COUNT:
            await asyncio.sleep(0)
        new = ObjectKey("team", "new")
        queue.add(new, Priority.NORMAL)
        assert await queue.get() == new, "the followers of the config wait"
        queue.done(new)
        for number in range(2, 40):
            edited(number)
            await asyncio.sleep(0)
        assert set(rounds) == {1}, "the config rests, however often it is edited"
        async with asyncio.timeout(20):
            while len(rounds) < 2 * COUNT:
                await asyncio.sleep(0.01)
        assert set(rounds) == {1, 39}
        follower.enqueue_all("other", lambda _: looked(-1))
        while len(rounds) < 3 * COUNT:
            await asyncio.sleep(0)
