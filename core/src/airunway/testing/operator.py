"""The core, providers and simulated upstreams inside one process: for tests, and for benchmarks of a single part.

What the programs run as processes of their own runs here as tasks, against a real API server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path

from airunway.api.crds import custom_resource_definitions
from airunway.controller.application import CoreApplication, CoreSettings
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import CUSTOM_RESOURCE_DEFINITION, Client, load_config, user_agent_of
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, is_true, key_of
from airunway.runtime.application import ProviderApplication
from airunway.runtime.surroundings import ProviderSettings
from airunway.testing.simulators import Level, simulator_for

__all__ = ["install_definitions", "running_core", "running_provider", "running_simulator", "until"]

PATIENCE = 60.0
"""Seconds that anything here waits at most: a safety net for hung tests, not a measurement."""


async def install_definitions(client: Client, definitions: Sequence[Resource] = ()) -> None:
    """Apply our CRDs and the given ones, and wait until the API server serves them."""
    wanted = [*custom_resource_definitions(), *definitions]
    for definition in wanted:
        await client.apply(CUSTOM_RESOURCE_DEFINITION, definition, manager="airunway-testing", force=True)
    async with asyncio.timeout(PATIENCE):
        for definition in wanted:
            while not is_true(await client.get(CUSTOM_RESOURCE_DEFINITION, key_of(definition)), "Established"):
                await asyncio.sleep(0.02)


@asynccontextmanager
async def running_core(kubeconfig: Path, *, settings: CoreSettings | None = None) -> AsyncIterator[CoreApplication]:
    """The core controller for as long as the context lasts."""
    async with Client(load_config(kubeconfig=kubeconfig), user_agent=user_agent_of("core")) as client:
        application = CoreApplication(client=client, settings=settings)
        async with _running(application.run(_at_once), application.unready):
            yield application


@asynccontextmanager
async def running_provider(
    kubeconfig: Path,
    host: ProviderHost,
    *,
    settings: ProviderSettings | None = None,
    clock: Callable[[], datetime] | None = None,
) -> AsyncIterator[ProviderApplication]:
    """One provider for as long as the context lasts; `clock` is what it takes for the time of day."""
    async with Client(load_config(kubeconfig=kubeconfig), user_agent=user_agent_of(f"provider-{host.name}")) as client:
        application = ProviderApplication(client=client, host=host, settings=settings, clock=clock)
        async with _running(application.run(_at_once), application.unready):
            yield application


@asynccontextmanager
async def running_simulator(
    kubeconfig: Path, host: ProviderHost, *, level: Level, scenario: str = ""
) -> AsyncIterator[None]:
    """The simulated upstream of a provider. Raises LookupError if there is none."""
    kind = host.primary_kind
    simulator = simulator_for(kind.group, kind.kind)
    if simulator is None:
        raise LookupError(f"no simulator acts on {kind.kind} ({kind.group})")
    stop = asyncio.Event()
    async with AsyncExitStack() as stack:
        config = load_config(kubeconfig=kubeconfig)
        client = await stack.enter_async_context(
            Client(config, user_agent=user_agent_of(f"simulated-{simulator.name}"))
        )
        work = asyncio.create_task(simulator.run(client, level=level, scenario=scenario, stop=stop))
        try:
            yield
        finally:
            stop.set()
            await work


async def until(client: Client, key: ObjectKey, holds: Callable[[Resource], bool], *, what: str = "") -> Resource:
    """The ModelDeployment once `holds` is true of it. Raises TimeoutError, with its last status, after a minute."""
    deployment: Resource = {}
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                deployment = await client.get(MODEL_DEPLOYMENT, key)
                if holds(deployment):
                    return deployment
                await asyncio.sleep(0.02)
    except TimeoutError as error:
        raise TimeoutError(
            f"{key}: waited for {what or 'a state'} in vain; status: {deployment.get('status')}"
        ) from error


@asynccontextmanager
async def _running(work: Awaitable[None], unready: Callable[[], str | None]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)
    try:
        async with asyncio.timeout(PATIENCE):
            while unready() is not None:
                if task.done():
                    task.result()
                await asyncio.sleep(0.01)
        yield
        if task.done():
            task.result()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _at_once(work: Callable[[], Awaitable[None]]) -> None:
    await work()
