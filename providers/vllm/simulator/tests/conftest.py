"""Fixtures: the minimal CRD and a simulated controller beside the test."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from airunway.kube import CUSTOM_RESOURCE_DEFINITION, Client
from airunway.resource import Resource
from airunway_testing.simulators import Level, load_simulator
from airunway_vllm_simulator.kinds import LEADER_WORKER_SET

PATIENCE = 120.0  # seconds until something that should happen counts as not happening; garbage collection needs 30

Play = Callable[..., Awaitable[None]]
Eventually = Callable[[Callable[[], Awaitable[object]]], Awaitable[object]]


@pytest.fixture
def eventually() -> Eventually:
    """Calls a coroutine function until its result is truthy, and returns that; an AssertionError if it never is."""

    async def wait(look: Callable[[], Awaitable[object]]) -> object:
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while not (found := await look()):
            assert asyncio.get_running_loop().time() < deadline, f"still {found!r} after {PATIENCE} s"
            await asyncio.sleep(0.05)
        return found

    return wait


@pytest.fixture
async def crd(client: Client, eventually: Eventually) -> None:
    (definition,) = load_simulator("vllm").custom_resource_definitions()
    await client.apply(CUSTOM_RESOURCE_DEFINITION, definition, manager="simulator-tests", force=True)
    await eventually(lambda: client.is_served(LEADER_WORKER_SET))


@pytest.fixture
async def play(client: Client, crd: None, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Play]:
    """``await play(level="api", scenario="instant")`` starts the simulated controller; it stops after the test.

    It must not have reported an error by then.
    """
    stop = asyncio.Event()
    tasks: list[asyncio.Task[None]] = []

    async def start(*, level: Level, scenario: str = "") -> None:
        run = load_simulator("vllm").run(client, level=level, scenario=scenario, stop=stop)
        tasks.append(asyncio.create_task(run))

    yield start
    stop.set()
    await asyncio.gather(*tasks)
    assert [record.getMessage() for record in caplog.get_records("call") if record.levelno >= logging.ERROR] == []


@pytest.fixture
def lws(namespace: str) -> Callable[..., Resource]:
    """Makes LeaderWorkerSets for the test's namespace; keyword arguments are fields of the spec."""

    def make(
        name: str = "big", *, size: int = 2, annotations: dict[str, str] | None = None, **spec: object
    ) -> Resource:
        template = {"spec": {"containers": [{"name": "server", "image": "registry.example/vllm:1"}]}}
        group = {"size": size, "leaderTemplate": template, "workerTemplate": template}
        return {
            "apiVersion": LEADER_WORKER_SET.api_version,
            "kind": LEADER_WORKER_SET.kind,
            "metadata": {"name": name, "namespace": namespace, "annotations": annotations or {}},
            "spec": {"leaderWorkerTemplate": group, **spec},
        }

    return make
