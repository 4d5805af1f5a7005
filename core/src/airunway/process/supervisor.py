"""Runs the parts of a process (the core, one or several providers); each leads, fails and restarts separately."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Protocol, TypeAlias, runtime_checkable

import kopf

from airunway.kube import Backoff
from airunway.plugins.errors import PluginError
from airunway.process.logs import set_log_fields
from airunway.redaction import printable, redacted

__all__ = ["Application", "Factories", "HasHandlers", "HasRemarks", "Lead", "Supervisor", "Work"]

log = logging.getLogger(__name__)

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
    """Creates and runs all applications of a process; `lead_of` returns the leader election of each.

    A single application ends the process with its own end. Of several, one that ends or whose plugin cannot be used is
    restarted with a growing delay while the others continue; `unready` and the log report its error.
    """

    def __init__(self, makers: Factories, *, lead_of: Callable[[str], Lead]) -> None:
        self._makers = makers
        self._lead_of = lead_of
        self._running: dict[str, Application] = {}
        self._ended: dict[str, str] = {}
        for component in makers:
            try:
                self._running[component] = makers[component]()
            except PluginError as error:  # the other parts continue; errors in options end the start
                if self._alone:
                    raise
                self._ended[component] = f"it cannot be started ({error})"

    @property
    def _alone(self) -> bool:
        return len(self._makers) == 1

    def _serving(self) -> Iterator[tuple[str, HasHandlers]]:
        for component, application in self._running.items():
            if isinstance(application, HasHandlers) and application.serving:
                yield component, application

    def register(self, settings: kopf.OperatorSettings) -> None:
        """Have kopf run the admission server of the part that has one."""
        for _, application in self._serving():
            application.register(settings)

    def unready(self) -> str | None:
        """Why the process cannot work yet, naming each part that cannot; None once it can.

        If a part serves admission, only that part counts: reviews must be answered whatever is wrong with the others.
        """
        deciding = [component for component, _ in self._serving()] or list(self._makers)
        return self._joined((component, self._problem(component)) for component in deciding)

    def remark(self) -> str | None:
        """The problems of parts while the process is ready, or None."""

        def remarks() -> Iterator[tuple[str, str | None]]:
            for component in self._makers:
                yield component, self._problem(component)
                application = self._running.get(component)
                if isinstance(application, HasRemarks):
                    yield component, application.remark()

        return self._joined(remarks())

    def _problem(self, component: str) -> str | None:
        return self._ended.get(component) or self._running[component].unready()

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
            vital = any(component == each for each, _ in self._serving())
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
