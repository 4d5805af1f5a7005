"""The manager of a long-running process: start, probes, metrics, leader election and shutdown.

kopf handles signals, login and clean-up, and runs the admission server; it watches nothing
(docs/decisions/0001-kopf-is-the-process-shell.md).
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from asyncio import sslproto
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
from airunway.process.probes import metrics_server, probe_server
from airunway.process.supervisor import Application, Factories, Lead, Supervisor, Work

__all__ = ["BUFFER", "Application", "Lead", "ManagerSettings", "Supervisor", "Work", "serve", "small_tls_buffers"]

log = logging.getLogger(__name__)


BUFFER = 32 * 2**10
"""Bytes per connection: two TLS records."""


def small_tls_buffers() -> None:
    """Limit the buffers of every TLS connection that asyncio opens or accepts from now on.

    The class and its attribute are not documented. They are the same from Python 3.11 to 3.14, and a test fails if they
    change; then connections only need more memory.
    """
    sslproto.SSLProtocol.max_size = BUFFER


STOP_GRACE = 10.0
"""Seconds that an application has for its clean-up."""

SLOW_START = 3.0
"""Seconds after which a process that is not ready logs why."""

_LOOK_AGAIN = 0.05

_TURN = 0.001
"""Seconds after which a thread must yield to another one (the switch interval): while a metrics page is made, the event
loop waits that long after each system call.
"""


@dataclass(frozen=True, kw_only=True)
class ManagerSettings:
    """The settings of every process."""

    component: str
    """The name of the process in requests and logs."""
    health_address: str = "0"
    """Where to serve the probes; ``0``: nowhere."""
    metrics_address: str = "0"
    """Where to serve the metrics; ``0``: nowhere."""
    leader_election: bool = False
    namespace: str = "airunway-system"
    """The namespace of the Leases."""
    identity: str = ""
    """The holder identity in the Leases."""
    effective: Mapping[str, EffectiveSettings] = field(default_factory=dict)
    """What the Lease of each part publishes, by component."""
    ready_file: Path | None = None
    """A file that is created once the application is ready, for tools that cannot use the probe."""


async def serve(
    config: ClusterConfig, make: Callable[[Client], Factories], settings: ManagerSettings, *, metrics: Metrics
) -> None:
    """Run the applications of `make` until SIGTERM, SIGINT or their own end. An unexpected end is raised.

    A process with one application ends with it; several applications are restarted separately (`Supervisor`). `metrics`
    are those of the process. Raises OSError for an address on which the process cannot listen.
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
        application = Supervisor(make(client), lead_of=lambda component: _leader(component, client, settings, metrics))
        lag = asyncio.create_task(metrics.event_loop_lag.run(), name="event loop lag")
        stack.callback(lag.cancel)
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


async def _kopf(config: ClusterConfig, application: Supervisor, work: asyncio.Task[None], stop: asyncio.Event) -> None:
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
    """Cancel the application and wait for its clean-up; the caller handles its exception."""
    work.cancel()
    with suppress(TimeoutError):
        async with asyncio.timeout(STOP_GRACE):
            await asyncio.wait([work])


def _leader(component: str, client: Client, settings: ManagerSettings, metrics: Metrics) -> Lead:
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


async def _when_ready(application: Supervisor, ready_file: Path | None) -> None:
    """Wait until the application is ready; log the reason if that takes long."""
    waited, logged = 0.0, ""
    while (problem := application.unready()) is not None:
        if waited >= SLOW_START and problem != logged:
            log.warning("not ready yet: %s", problem)
            logged = problem
        await asyncio.sleep(_LOOK_AGAIN)
        waited += _LOOK_AGAIN
    log.info("ready")
    gc.freeze()  # the modules and the first content of the caches
    if ready_file is not None:
        ready_file.touch()


async def _connection_info(config: ClusterConfig) -> kopf.ConnectionInfo:
    """Our connection for kopf, which uses it only to list the API groups."""
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
