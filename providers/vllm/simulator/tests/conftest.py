"""Fixtures: the minimal CRD and a simulated controller beside the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from airunway.kube import CUSTOM_RESOURCE_DEFINITION, Client, is_served
from airunway.resource import Resource
from airunway_testing.eventually import Eventually
from airunway_testing.simulators import load_simulator
from airunway_testing.simulators.played import Play, played
from airunway_vllm_simulator.kinds import LEADER_WORKER_SET


@pytest.fixture
async def crd(client: Client, eventually: Eventually) -> None:
    (definition,) = load_simulator("vllm").custom_resource_definitions()
    await client.apply(CUSTOM_RESOURCE_DEFINITION, definition, manager="simulator-tests", force=True)
    await eventually(lambda: is_served(client, LEADER_WORKER_SET))


@pytest.fixture
async def play(client: Client, crd: None, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Play]:
    """The simulated controller, once the test starts it."""
    async with played("vllm", client, caplog) as start:
        yield start


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
