"""Workers that reconcile the keys of a queue, with at most one pass per key at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable
from time import monotonic
from typing import Generic, Literal, TypeAlias, TypeVar

from airunway.kube.errors import Forbidden, Unauthorized, is_retryable, retry_after_of
from airunway.kube.queue import WorkQueue
from airunway.kube.reflector import AnyReflector

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

PassResult: TypeAlias = Literal["success", "requeue", "retry", "error"]
"""How a pass ended.

- ``success``: nothing more to do.
- ``requeue``: it asked to be called again.
- ``retry``: a transient failure; it is called again.
- ``error``: a bug or a missing permission; it is called again.
"""


async def wait_until_synced(reflectors: Iterable[AnyReflector], *, timeout: float | None = None) -> None:
    """Returns when every reflector has read all objects of its kind. Raises TimeoutError after `timeout` seconds."""
    async with asyncio.timeout(timeout):
        for reflector in reflectors:
            await reflector.synced.wait()


async def wait_until_answered(reflectors: Iterable[AnyReflector]) -> None:
    """Returns when it is known of every reflector's kind what there is, or that the server does not serve it."""
    for reflector in reflectors:
        await reflector.answered.wait()


class Controller(Generic[K]):
    """Calls `reconcile(key)` for every key of its queue, `workers` keys at a time.

    `reconcile` returns the seconds after which it wants to be called again, or None; its newest answer counts. If it
    raises, the key is retried with backoff. Conflicts, 429, 5xx and transport errors are logged briefly, and are not
    retried before the server's Retry-After; a new event starts a pass all the same. A missing permission is logged with
    the API server's message, everything else with a traceback. No failure stops other keys.

    Before each pass the event loop runs everything else that is ready, the network included: a pass that writes nothing
    awaits nothing, and a series of them would block the process.

    Hooks for metrics: `on_wait(seconds)` gets the time that a key waited for a worker; `on_pass(result, seconds)` the
    result and duration of a pass.
    """

    def __init__(
        self,
        name: str,
        queue: WorkQueue[K],
        reconcile: Callable[[K], Awaitable[float | None]],
        *,
        workers: int = 16,
        on_wait: Callable[[float], None] | None = None,
        on_pass: Callable[[PassResult, float], None] | None = None,
    ) -> None:
        self.name = name
        self.queue = queue
        self.on_wait = on_wait
        self.on_pass = on_pass
        self._reconcile = reconcile
        self._workers = workers
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        """Works until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._work(), name=f"{self.name}-{number}")

    async def _work(self) -> None:
        while True:
            key, waited = await self._take()
            if self.on_wait is not None:
                self.on_wait(waited)
            started = monotonic()
            try:
                result = await self._pass(key)
            finally:
                self.queue.done(key)
            if self.on_pass is not None:
                self.on_pass(result, monotonic() - started)

    async def _take(self) -> tuple[K, float]:
        """Returns the next key; only one worker at a time, so that the loop runs other tasks between two passes."""
        async with self._turn:
            await asyncio.sleep(0)
            return await self.queue.get_timed()

    async def _pass(self, key: K) -> PassResult:
        try:
            after = await self._reconcile(key)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # The exception comes from a task that the pass awaited; this task itself was not cancelled.
            log.exception("%s: the pass for %s was cancelled from inside; retrying", self.name, key)
            self.queue.retry(key)
            return "error"
        except Exception as error:  # no failure of one key may stop the others
            if is_retryable(error):
                delay = self.queue.retry(key, retry_after_of(error))
                log.info("%s: %s: %s; again in %.1f s", self.name, key, error, delay)
                return "retry"
            delay = self.queue.retry(key)
            if isinstance(error, Forbidden | Unauthorized):  # the API server's message is sufficient: no traceback
                log.error("%s: the pass for %s failed: %s; again in %.1f s", self.name, key, error, delay)  # noqa: TRY400
            else:
                log.exception("%s: the pass for %s failed; again in %.1f s", self.name, key, delay)
            return "error"
        self.queue.forget(key)
        self.queue.reschedule(key, after)  # the newest pass decides
        return "success" if after is None else "requeue"
