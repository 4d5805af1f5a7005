"""Workers that bring keys to where they should be, one pass at a time per key."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable
from time import monotonic
from typing import Generic, Literal, TypeAlias, TypeVar

from airunway.kube.errors import ApiError, Forbidden, Unauthorized, is_retryable, retry_after_of
from airunway.kube.queue import QueueClosed, WorkQueue
from airunway.kube.reflector import AnyReflector

__all__ = ["Controller", "PassResult", "wait_until_synced"]

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

PassResult: TypeAlias = Literal["success", "requeue", "retry", "error"]
"""How a pass ended: nothing more to do; again later as asked; again after a passing failure; again after a bug, or for
want of a right."""


async def wait_until_synced(reflectors: Iterable[AnyReflector], *, timeout: float | None = None) -> None:
    """Returns when every reflector has seen the whole of its kind. Raises TimeoutError after `timeout` seconds."""
    async with asyncio.timeout(timeout):
        for reflector in reflectors:
            await reflector.synced.wait()


class Controller(Generic[K]):
    """Calls `reconcile(key)` for every key that its queue hands out, `workers` keys at a time.

    `reconcile` returns the seconds after which it wants to be called again, or None: its newest answer counts. When it
    raises, the key is retried with backoff: quietly for conflicts, 429, 5xx and transport trouble (not before the
    server's Retry-After), with a traceback for everything else; but of a right that is missing the API server's words
    say all there is to know. No failure stops another key.

    A pass that writes nothing waits for nothing, so it would not let anything else run: before each pass everything
    else that is ready in the process gets its turn, the network included.

    Two hooks for metrics: `on_wait(seconds)`, how long a key waited for a worker; `on_pass(result, seconds)`.
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
        """Works until cancelled, or until the queue is shut down and every pass under way has ended."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._work(), name=f"{self.name}-{number}")

    async def _work(self) -> None:
        while True:
            try:
                key, waited = await self._take()
            except QueueClosed:
                return
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
        """The next key, for one worker at a time: passes of several would otherwise follow each other as one."""
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
            # Something that the pass awaited was cancelled, not we.
            log.exception("%s: the pass for %s was cancelled from inside; retrying", self.name, key)
            self.queue.retry(key)
            return "error"
        except Exception as error:  # whatever is wrong with one key must not stop the others
            if is_retryable(error):
                delay = self.queue.retry(key, retry_after_of(error))
                log.info("%s: %s: %s; again in %.1f s", self.name, key, error, delay)
                return "retry"
            delay = self.queue.retry(key)
            if isinstance(error, Forbidden | Unauthorized):
                self._tell_missing_right(key, error, delay)
            else:
                log.exception("%s: the pass for %s failed; again in %.1f s", self.name, key, delay)
            return "error"
        self.queue.forget(key)
        self.queue.reschedule(key, after)  # the newest pass knows best
        return "success" if after is None else "requeue"

    def _tell_missing_right(self, key: K, error: ApiError, delay: float) -> None:
        """In the API server's words, which say all; a traceback says nothing."""
        log.error("%s: the pass for %s failed: %s; again in %.1f s", self.name, key, error, delay)
