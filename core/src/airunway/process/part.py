"""A part of a process: what it reads, who is woken by what, and its work.

Example: the gateway part reads what `GatewayCaches` declares, and has one `Work`, whose eight workers reconcile
deployments. Life cycle, readiness, first lists and the start of a leader are written here, once for all parts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass

from airunway.kube import wait_until_synced
from airunway.process.base_controller import BaseController, Reconcile, not_synced
from airunway.process.caches import Caches, Source, first_problem
from airunway.process.manager import Lead
from airunway.resource import ObjectKey


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class Work:
    """One controller of a part: workers that reconcile the keys of its queue while the part leads."""

    name: str
    """The name of controller and queue."""
    reconcile: Reconcile
    _: KW_ONLY
    workers: int = 1
    provider_of: Callable[[ObjectKey], str] = lambda _: ""
    """The provider of an object, for logs and metrics."""
    begin: Callable[[], None] = _nothing
    """What a new leader does first. It enqueues everything: an earlier leader may have been stopped in any pass."""
    end: Callable[[], None] = _nothing
    """What a leader does last."""


class Part:
    """A part of a process, from start to stop; `component` names it, `instance` names the process.

    A subclass makes its reconcilers, and then says what it reads besides the deployments (`sources`), its controllers
    (`work`), and what else runs while it leads (`tasks`, by name). The part leads once all sources have been read.
    """

    sources: Sequence[Source] = ()
    work: Sequence[Work] = ()
    tasks: Mapping[str, Callable[[], Coroutine[object, object, None]]] = {}

    def __init__(self, caches: Caches, *, component: str, instance: str = "") -> None:
        self._base = BaseController(caches, component=component, instance=instance)
        self._deployments = self._base.deployments
        self.metrics = caches.metrics

    def unready(self) -> str | None:
        """Why the part cannot work yet, or None."""
        return not_synced([self._deployments]) or first_problem(self.sources)

    async def run(self, lead: Lead) -> None:
        """Watch the API server until cancelled; reconcile while leading."""
        await self._base.run(self._follow, lead, self._lead)

    async def _follow(self, group: asyncio.TaskGroup) -> None:
        for source in self.sources:
            group.create_task(source.run(), name=f"{self._base.component}: {type(source).__name__}")
        await wait_until_synced([self._deployments])
        for source in self.sources:
            await source.read()

    async def _lead(self) -> None:
        for work in self.work:
            work.begin()
        try:
            async with asyncio.TaskGroup() as group:
                for name, run in self.tasks.items():
                    group.create_task(run(), name=name)
                for work in self.work:
                    group.create_task(self._controller(work), name=work.name)
        finally:
            for work in self.work:
                work.end()

    async def _controller(self, work: Work) -> None:
        controller = self._base.controller(
            work.name,
            self._base.queues[work.name],
            work.reconcile,
            provider_of=work.provider_of,
            workers=work.workers,
        )
        await controller.run()
