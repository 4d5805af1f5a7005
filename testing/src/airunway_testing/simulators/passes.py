"""Triggers → passes: the loop of a simulated operator. A change of its objects starts a pass.

What a pass does is the simulator's: a function of the object's key. Nothing is decided here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from airunway.kube import Client, Controller, Kind, Reflector, WorkQueue, strip_managed_fields, wait_until_synced
from airunway.resource import ObjectKey, Resource, controller_owner

_SHORTEST_RETRY, _LONGEST_RETRY = 0.005, 1000.0


def retry_delay(failures: int) -> float:
    """Seconds to wait after so many failed passes in a row (one or more), as Go operators do: doubled each time."""
    return min(_LONGEST_RETRY, _SHORTEST_RETRY * 2.0 ** min(failures - 1, 30))


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a pass ended: look again after so many seconds, or with growing delay because it `failed`."""

    requeue_after: float | None = None
    failed: bool = False


class Passes:
    """Runs `reconcile` for each object of `kind` that changed, and for the owner of each object of `owned` that did.

    `reads` are caches that passes look into; that their objects change starts none. All are read once before the first
    pass. `workers` bounds the passes under way at one time; those of one object never overlap.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind,
        reconcile: Callable[[ObjectKey], Awaitable[Outcome]],
        *,
        name: str,
        owned: Sequence[Kind] = (),
        reads: Sequence[Reflector] = (),
        workers: int = 16,
    ) -> None:
        self._name, self._kind, self._reconcile, self._reads = name, kind, reconcile, tuple(reads)
        self._queue: WorkQueue[ObjectKey] = WorkQueue()
        self._controller = Controller(name, self._queue, self._pass, workers=workers)
        self._failures: dict[ObjectKey, int] = {}
        self._triggers = [Reflector(client, each, project=strip_managed_fields()) for each in (kind, *owned)]

    def add(self, key: ObjectKey) -> None:
        """Ask for a pass."""
        self._queue.add(key)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in (*self._reads, *self._triggers):
                group.create_task(reflector.run(), name=f"{self._name}-{reflector.kind.plural}")
            await wait_until_synced(list(self._reads))
            self._triggers[0].add_handler(lambda key, _old, _new: self.add(key))
            for reflector in self._triggers[1:]:
                reflector.add_handler(self._on_owned)
            group.create_task(self._controller.run(), name=self._name)

    def _on_owned(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        owner = controller_owner(new or old or {})
        if owner is not None and owner.get("kind") == self._kind.kind:
            self.add(ObjectKey(key.namespace, str(owner.get("name"))))

    async def _pass(self, key: ObjectKey) -> float | None:
        outcome = await self._reconcile(key)
        if not outcome.failed:
            self._failures.pop(key, None)
            return outcome.requeue_after
        count = self._failures[key] = self._failures.get(key, 0) + 1
        return retry_delay(count)
