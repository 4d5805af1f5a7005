"""The manager of a long-running process: start, probes, metrics, leader election, the parts, and shutdown.

Parts are the core and one or several providers; each leads, fails and restarts separately. kopf handles signals and
clean-up, and runs the admission server; it does not use the API server
(docs/decisions/0001-kopf-is-the-process-shell.md).
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from asyncio import sslproto
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias, runtime_checkable

import kopf
from aiohttp import web

from airunway import __version__
from airunway.api import names
from airunway.gc_tuning import short_gc_pauses
from airunway.kube import Backoff, Client, ClusterConfig, LeaderElector, user_agent_of
from airunway.plugins.errors import PluginError
from airunway.process.effective_settings import PART_OF, EffectiveSettings
from airunway.process.logs import set_log_fields
from airunway.process.metrics import Metrics
from airunway.process.probes import metrics_server, probe_server
from airunway.process.refused_credentials import RefusedCredentials
from airunway.redaction import bounded, printable, redacted

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
    namespace: str = names.DEFAULT_NAMESPACE
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
        credentials = RefusedCredentials()
        on_request = credentials.noting(metrics.on_request)
        client = await stack.enter_async_context(Client(config, user_agent=agent, on_request=on_request))
        electors: dict[str, LeaderElector] = {}

        def lead_of(component: str) -> Lead:
            on_leading = metrics.on_leading(component)
            if not settings.leader_election:
                return partial(_at_once, on_leading)
            electors[component] = _elector(component, client, settings, on_leading)
            return electors[component].run

        application = Supervisor(make(client), lead_of=lead_of, electors=electors, credentials=credentials)
        stop = asyncio.Event()
        # Before the work begins: a port that is taken must not end the process in the middle of it.
        await stack.enter_async_context(
            probe_server(
                settings.health_address,
                live=lambda: "the application has ended" if stop.is_set() else None,
                ready=application.unready,
                remark=application.remark,
            )
        )
        lag = asyncio.create_task(metrics.event_loop_lag.run(), name="event loop lag")
        stack.callback(lag.cancel)
        work = asyncio.create_task(application.run(), name=settings.component)
        work.add_done_callback(lambda _: stop.set())
        settling = asyncio.create_task(_when_ready(application, settings.ready_file), name="settling")
        try:
            await _kopf(application, work, stop)
        finally:
            settling.cancel()
            await _finish(work)
            log.info("%s stops", what)
    if not work.cancelled() and (error := work.exception()) is not None:
        raise error


async def _kopf(application: Supervisor, work: asyncio.Task[None], stop: asyncio.Event) -> None:
    registry = kopf.OperatorRegistry()
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.process.ultimate_exiting_timeout = 2 * STOP_GRACE

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=url)

    @kopf.on.cleanup(registry=registry)
    async def cleanup(**_: Any) -> None:
        await _finish(work)

    application.register(settings)
    async with _api_without_kinds() as url:
        await kopf.operator(registry=registry, settings=settings, clusterwide=True, stop_flag=stop)


async def _finish(work: asyncio.Task[None]) -> None:
    """Cancel the application and wait for its clean-up; the caller handles its exception."""
    work.cancel()
    with suppress(TimeoutError):
        async with asyncio.timeout(STOP_GRACE):
            await asyncio.wait([work])


async def _at_once(on_leading: Callable[[bool], None], work: Work) -> None:
    on_leading(True)
    await work()


def _elector(
    component: str, client: Client, settings: ManagerSettings, on_leading: Callable[[bool], None]
) -> LeaderElector:
    effective = settings.effective.get(component)
    return LeaderElector(
        client,
        name=component,
        namespace=settings.namespace,
        identity=settings.identity,
        on_change=on_leading,
        labels=dict([PART_OF]),
        annotations=effective.annotations() if effective is not None else None,
    )


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


@asynccontextmanager
async def _api_without_kinds() -> AsyncIterator[str]:
    """The URL of an API on the loopback interface that serves no kinds; kopf is logged in to it.

    kopf lists the API groups of its server, reads nothing else, and only then starts the admission server. A failure
    of that list ends the process, and kopf connects less well than our client (no `tls-server-name`, only a minute of
    retries), which reads all that we need from the API server.
    """

    def answering(body: dict[str, list[str]]) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(_: web.Request) -> web.Response:
            response = web.json_response(body)
            response.force_close()  # an idle connection would delay the end of kopf
            return response

        return answer

    app = web.Application()
    app.router.add_get("/api", answering({"versions": []}))
    app.router.add_get("/apis", answering({"groups": []}))
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


# ------------------------------------------------------------------------------------------------------- the parts

RESTART = 1.0, 300.0
"""Seconds until a part that has ended is restarted: the first and the longest delay."""

HEALTHY = 600.0
"""Seconds after which the restart delay of a running part is reset."""

Work: TypeAlias = Callable[[], Awaitable[None]]
Lead: TypeAlias = Callable[[Work], Awaitable[None]]
"""Runs the given work while this process leads; without leader election, at once and until cancelled."""


class Application(Protocol):
    """An application runs until it is cancelled, and does the leader's work through `lead`."""

    async def run(self, lead: Lead) -> None: ...

    def unready(self) -> str | None:
        """Why it cannot work yet, or None. A standby with synced caches is ready."""
        ...


@runtime_checkable
class HasRemarks(Protocol):
    """An application that can be ready and still report a problem."""

    def remark(self) -> str | None: ...


@runtime_checkable
class HasHandlers(Protocol):
    """An application that may need kopf to run an admission server."""

    @property
    def serving(self) -> bool:
        """Whether it needs one: then it alone decides whether the process is ready, and the process ends with it."""
        ...

    def register(self, settings: kopf.OperatorSettings) -> None: ...


Factories: TypeAlias = Mapping[str, Callable[[], Application]]
"""A factory for each part of a process, by the name of its Lease."""


class Supervisor:
    """Creates and runs all applications of a process; `lead_of` returns the leader election of each, and puts its
    elector, if it has one, into `electors`.

    A single application ends the process with its own end. Of several, one that ends or whose plugin cannot be used is
    restarted with a growing delay while the others continue; `unready` and the log report its error.
    """

    def __init__(
        self,
        makers: Factories,
        *,
        lead_of: Callable[[str], Lead],
        electors: Mapping[str, LeaderElector] = MappingProxyType({}),
        credentials: RefusedCredentials | None = None,
    ) -> None:
        self._makers = makers
        self._credentials = credentials or RefusedCredentials()
        self._lead_of = lead_of
        self._electors = electors
        self._alone = len(makers) == 1
        self._of_core = names.PART_MANAGERS if names.CORE_MANAGER in makers else ()
        self._running: dict[str, Application] = {}
        self._ended: dict[str, str] = {}
        for component in makers:
            try:
                self._running[component] = makers[component]()
            except PluginError as error:  # the other parts continue; errors in options end the start
                if self._alone:
                    raise
                self._ended[component] = f"it cannot be started ({error})"

    def _serving(self) -> dict[str, HasHandlers]:
        return {name: part for name, part in self._running.items() if isinstance(part, HasHandlers) and part.serving}

    def register(self, settings: kopf.OperatorSettings) -> None:
        """Have kopf run the admission server of the part that has one."""
        for application in self._serving().values():
            application.register(settings)

    def unready(self) -> str | None:
        """Why the process cannot work yet, naming each part that cannot; None once it can.

        If a part serves admission, only that part counts: reviews must be answered whatever is wrong with the others,
        also if the API server refuses the credentials of the process.
        The core's own parts never count where the core runs: it goes on without them.
        """
        if not self._serving() and (refused := self._credentials.lasting()) is not None:
            return refused
        deciding = self._serving() or [each for each in self._makers if each not in self._of_core]
        return self._joined((component, self._problem(component)) for component in deciding)

    def remark(self) -> str | None:
        """The problems of parts while the process is ready, or None."""

        def remarks() -> Iterator[tuple[str, str | None]]:
            for component in self._makers:
                problem, election = self._problem(component), self._election(component)
                yield component, problem
                if election != problem:
                    yield component, election
                application = self._running.get(component)
                if isinstance(application, HasRemarks):
                    yield component, application.remark()

        return "; ".join(filter(None, (self._credentials.problem(), self._joined(remarks())))) or None

    def _problem(self, component: str) -> str | None:
        problem = self._ended.get(component) or self._running[component].unready()
        if problem is not None or component in self._serving():
            return problem
        elector = self._electors.get(component)
        return self._election(component) if elector is not None and elector.refused else None

    def _election(self, component: str) -> str | None:
        """Why the part could not hold its Lease, or None."""
        elector = self._electors.get(component)
        return bounded(elector.problem) if elector is not None and elector.problem else None

    def _joined(self, problems: Iterable[tuple[str, str | None]]) -> str | None:
        texts = [text if self._alone else f"{component}: {text}" for component, text in problems if text is not None]
        return "; ".join(texts) or None

    async def run(self) -> None:
        """Run all parts until cancelled, or until a part ends that ends the process."""
        if self._alone:
            (component,) = self._makers
            await self._running[component].run(self._lead_of(component))
            return
        async with asyncio.TaskGroup() as group:
            for component in self._makers:
                group.create_task(self._keep(component), name=component)

    async def _keep(self, component: str) -> None:
        """Run a part, and restart it when it has ended."""
        set_log_fields(part=component)
        clock, backoff = asyncio.get_running_loop().time, Backoff(base=RESTART[0], cap=RESTART[1])
        while True:
            begun = clock()
            vital = component in self._serving()
            try:
                application = self._running.get(component)
                if application is None:
                    application = self._running[component] = self._makers[component]()
                self._ended.pop(component, None)
                await application.run(self._lead_of(component))
                error: BaseException = RuntimeError("it has ended without a reason")
            except asyncio.CancelledError as cancelled:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                error = cancelled  # a task that it awaited was cancelled, not this one
            except Exception as raised:  # noqa: BLE001 - logged below; the other parts go on
                error = raised
            if vital:
                raise error if isinstance(error, Exception) else RuntimeError(f"{component} was cancelled from inside")
            if clock() - begun >= HEALTHY:
                backoff.reset()
            delay = backoff.next()
            self._ended[component] = f"it ended and is started again ({_cause(error)})"
            self._running.pop(component, None)
            log.error("%s has ended; again in %.0f s", component, delay, exc_info=error)
            await asyncio.sleep(delay)


def _cause(error: BaseException) -> str:
    """The first exception in a group, on one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return redacted(printable(f"{type(error).__name__}: {error}"))[:512]
