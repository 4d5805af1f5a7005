"""The shell of a long-running process: kopf brings start-up, signals, login and clean-up; we bring what runs inside.

kopf watches nothing here and keeps no state (docs/decisions/0001-kopf-is-the-process-shell.md).
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kopf

from airunway import __version__
from airunway.gc_tuning import short_gc_pauses
from airunway.kube import Client, ClusterConfig, LeaderElector, user_agent_of
from airunway.process.effective_settings import PART_OF, EffectiveSettings
from airunway.process.metrics import Metrics
from airunway.process.parts import Application, Lead, Makers, Parts, Work
from airunway.process.probes import metrics_server, probe_server
from airunway.process.tls_buffers import small_tls_buffers

__all__ = ["Application", "Lead", "Parts", "ShellSettings", "Work", "serve"]

log = logging.getLogger(__name__)

STOP_GRACE = 10.0
"""Seconds that an application gets to say goodbye."""

SLOW_START = 3.0
"""Seconds after which a process that is not ready says why."""

_LOOK_AGAIN = 0.05

_TURN = 0.001
"""Seconds after which a thread has to let another one go on: the event loop waits for as long after each system call
while a page of metrics is made.
"""


@dataclass(frozen=True, kw_only=True)
class ShellSettings:
    """What every process of ours has: `component` names it in requests and logs."""

    component: str
    health_address: str = "0"
    metrics_address: str = "0"
    leader_election: bool = False
    namespace: str = "airunway-system"
    identity: str = ""
    effective: Mapping[str, EffectiveSettings] = field(default_factory=dict)
    """What the Lease of each part publishes, by the part's component."""
    ready_file: Path | None = None
    """Created once the application is ready: for whoever started the process and has no probe to ask."""


async def serve(
    config: ClusterConfig, make: Callable[[Client], Makers], settings: ShellSettings, *, metrics: Metrics
) -> None:
    """Run the applications that `make` gives until SIGTERM, SIGINT or their own end; an end nobody asked for is raised.

    The process ends with its only application: a dead one behind a living probe would be the worst of both. Where there
    are several each ends for itself (`Parts`). `metrics` are those that they count in. Raises OSError for an address
    that cannot be listened on.
    """
    what = f"{settings.component} {__version__}"
    log.info("%s starts as %s, with the API server at %s", what, settings.identity or "itself", config.server)
    async with AsyncExitStack() as stack:
        stack.enter_context(short_gc_pauses())
        sys.setswitchinterval(_TURN)
        small_tls_buffers()
        await stack.enter_async_context(metrics_server(settings.metrics_address, metrics))
        agent = user_agent_of(settings.component)
        client = await stack.enter_async_context(Client(config, user_agent=agent, on_request=metrics.on_request))
        application = Parts(make(client), lead_of=lambda component: _leader(component, client, settings, metrics))
        gaps = asyncio.create_task(metrics.gaps.run(), name="loop gaps")
        stack.callback(gaps.cancel)
        work = asyncio.create_task(application.run(), name=settings.component)
        stop = asyncio.Event()
        work.add_done_callback(lambda _: stop.set())
        await stack.enter_async_context(
            probe_server(
                settings.health_address,
                live=lambda: "the application has ended" if work.done() else None,
                ready=application.unready,
                remark=application.remark,
            )
        )
        settling = asyncio.create_task(_when_ready(application, settings.ready_file), name="settling")
        try:
            await _kopf(config, application, work, stop)
        finally:
            settling.cancel()
            await _finish(work)
            log.info("%s stops", what)
    if not work.cancelled() and (error := work.exception()) is not None:
        raise error


async def _kopf(config: ClusterConfig, application: Parts, work: asyncio.Task[None], stop: asyncio.Event) -> None:
    registry = kopf.OperatorRegistry()
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.process.ultimate_exiting_timeout = 2 * STOP_GRACE

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return await _connection_info(config)

    @kopf.on.cleanup(registry=registry)
    async def cleanup(**_: Any) -> None:
        await _finish(work)

    application.register(settings)
    await kopf.operator(registry=registry, settings=settings, clusterwide=True, stop_flag=stop)


async def _finish(work: asyncio.Task[None]) -> None:
    """Cancel the application and give it time for its farewell; what it raises is looked at by the caller."""
    work.cancel()
    with suppress(TimeoutError):
        async with asyncio.timeout(STOP_GRACE):
            await asyncio.wait([work])


def _leader(component: str, client: Client, settings: ShellSettings, metrics: Metrics) -> Lead:
    on_leading = metrics.on_leading(component)
    if not settings.leader_election:

        async def at_once(work: Work) -> None:
            on_leading(True)
            await work()

        return at_once
    effective = settings.effective.get(component)
    return LeaderElector(
        client,
        name=component,
        namespace=settings.namespace,
        identity=settings.identity,
        on_change=on_leading,
        labels=dict([PART_OF]),
        annotations=effective.annotations() if effective is not None else None,
    ).run


async def _when_ready(application: Parts, ready_file: Path | None) -> None:
    """Wait until the application can work, and log what it waits for: somebody's pod does not become ready."""
    waited, told = 0.0, ""
    while (problem := application.unready()) is not None:
        if waited >= SLOW_START and problem != told:
            log.warning("not ready yet: %s", problem)
            told = problem
        await asyncio.sleep(_LOOK_AGAIN)
        waited += _LOOK_AGAIN
    log.info("ready")
    gc.freeze()  # the program itself, and the first fill of the caches
    if ready_file is not None:
        ready_file.touch()


async def _connection_info(config: ClusterConfig) -> kopf.ConnectionInfo:
    """Our connection in kopf's terms; kopf reads the lists of API groups with it and nothing else."""
    credential = await config.credentials.credential()
    certificate = credential.certificate
    return kopf.ConnectionInfo(
        server=config.server,
        ca_data=b64encode(config.ca_data) if config.ca_data else None,
        insecure=config.insecure_skip_tls_verify or None,
        token=credential.token or None,
        username=credential.username or None,
        password=credential.password or None,
        certificate_data=b64encode(certificate.certificate) if certificate else None,
        private_key_data=b64encode(certificate.key) if certificate else None,
        proxy_url=config.proxy_url or None,
    )
