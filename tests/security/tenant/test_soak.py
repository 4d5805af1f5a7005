"""Half an hour of dry-run creations with values never seen before (H5): memory must not follow them.

`AIRUNWAY_SOAK_MINUTES` makes it shorter or longer. Run by ``pytest -m soak``; ``-o log_cli_level=INFO`` shows the rate
that was reached, and how memory grew.
"""

from __future__ import annotations

import asyncio
import logging
import os
import statistics
import time
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import pytest

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client
from airunway.resource import Resource

log = logging.getLogger(__name__)

RATE = 200
"""Creations a second."""

SLOPE_MIB = 1.0
"""MiB in ten minutes that a process may grow by."""

OURS = ("controller", "provider-kaito")


class World(Protocol):
    admin: Client

    def resident(self, name: str, what: str = ...) -> float: ...
    def ended(self) -> list[str]: ...


class Build(Protocol):
    def __call__(self, *, webhook: bool) -> AbstractAsyncContextManager[World]: ...


def deployment(number: int) -> Resource:
    """Valid, with text and sizes that no other has."""
    return {
        "apiVersion": "airunway.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": f"soak-{number}", "namespace": "default"},
        "spec": {
            "model": {"id": f"google/gemma-{number}/model.gguf"},
            "engine": {"type": "llamacpp", "args": {"threads": str(number)}},
            "resources": {"memory": f"{16 * 2**30 + number}", "cpu": f"{1_000 + number % 100_000}m"},
            "image": f"ghcr.io/acme/runner:{number}",
            "env": [{"name": f"VALUE_{number}", "value": str(number)}],
        },
    }


def slope(samples: list[tuple[float, float]]) -> float:
    """MiB in ten minutes, by least squares over (seconds, MiB)."""
    return statistics.linear_regression(*zip(*samples, strict=True)).slope * 600


def test_the_slope_is_that_of_the_line() -> None:
    assert slope([(float(second), 100 + second / 600) for second in range(0, 1_200, 10)]) == pytest.approx(1.0)


@pytest.mark.soak
@pytest.mark.apiserver
@pytest.mark.timeout(12 * 3600)
async def test_h5_memory_does_not_grow_with_values_never_seen_before(world: Build) -> None:
    minutes = float(os.environ.get("AIRUNWAY_SOAK_MINUTES", "30"))
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in OURS}
    sent = 0
    async with world(webhook=True) as w:
        started = time.monotonic()

        async def create() -> None:
            """One of several that together keep to the rate, or to what the machine can do."""
            nonlocal sent
            while (elapsed := time.monotonic() - started) < minutes * 60:
                if sent > elapsed * RATE:
                    await asyncio.sleep(0.01)
                    continue
                sent += 1
                await w.admin.create(MODEL_DEPLOYMENT, deployment(sent), dry_run=True)

        async def measure() -> None:
            """The first third is left out: caches fill, and the allocator finds its size."""
            while (elapsed := time.monotonic() - started) < minutes * 60:
                await asyncio.sleep(minutes / 3)
                assert not w.ended(), w.ended()
                if elapsed > minutes * 20:
                    for name in OURS:
                        samples[name].append((elapsed, w.resident(name, "VmRSS")))

        async with asyncio.TaskGroup() as group:
            group.create_task(measure())
            for _ in range(16):
                group.create_task(create())
    slopes = {name: round(slope(found), 2) for name, found in samples.items()}
    resident = {name: (round(found[0][1]), round(found[-1][1])) for name, found in samples.items()}
    told = f"{sent / (minutes * 60):.0f} creations a second; MiB in ten minutes: {slopes}; from, to: {resident}"
    log.info(told)
    assert max(slopes.values()) <= SLOPE_MIB, told
