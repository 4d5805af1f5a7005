"""A list or object that is followed until the user turns out to have no right to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from airunway.kube import Client, Forbidden, Kind, KubeError, Reflector, Unauthorized
from airunway.resource import ObjectKey

__all__ = ["Watched"]

_AGAIN = 60.0
"""Seconds after a 401 in which another one ends the watch: the credentials were read anew in between."""


class Watched:
    """A running cache that ends with its first 403 or second 401, instead of trying again and again.

    - `known` is set once there is an answer: the list, an error, or that the kind is not served. It stays set.
    - `refused` is the error that ended the watch.
    - `error` is what hindered the first list, which is tried again; None once the list was read.
    - `changed`, an event of the caller, is set with each of these, and with every change of an object.
    - `on_error` of the caller gets each error after which the list or watch is tried again.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind,
        key: ObjectKey,
        *,
        label_selector: str = "",
        field_selector: str = "",
        changed: asyncio.Event,
        on_error: Callable[[KubeError], None] | None = None,
    ) -> None:
        self.known = asyncio.Event()
        self.refused: Forbidden | Unauthorized | None = None
        self.error: KubeError | None = None
        self.cache = Reflector(
            client,
            kind,
            namespace=key.namespace,
            label_selector=label_selector,
            field_selector=f"metadata.name={key.name}" if key.name else field_selector,
            on_restart=self._on_restart,
            optional=True,
        )
        self._changed = changed
        self._on_error = on_error
        self._unauthorized_at = float("-inf")
        self.cache.add_handler(lambda *_: changed.set())
        self._tasks = [
            asyncio.create_task(self.cache.run(), name=f"follow-{kind.plural}"),
            asyncio.create_task(self._until_answered()),
        ]

    async def _until_answered(self) -> None:
        await self.cache.answered.wait()
        if self.cache.missing:
            self._tasks[0].cancel()  # the kind is not served; asking for it again and again would be requests at rest
        self.error = None
        self._report()

    def _on_restart(self, cause: str) -> None:
        # A watch goes on after an error without a list, and may then end for another cause.
        error = self.cache.error if type(self.cache.error).__name__ == cause else None
        if isinstance(error, Unauthorized):
            now = asyncio.get_running_loop().time()
            first, self._unauthorized_at = now - self._unauthorized_at > _AGAIN, now
            if first:
                return
        if isinstance(error, Forbidden | Unauthorized):
            self.refused = error
            self._tasks[0].cancel()
            self._report()
            return
        if error is not None and self._on_error is not None:
            self._on_error(error)
        if error is not None and self.error is None and not self.cache.answered.is_set():
            self.error = error
            self._report()

    def _report(self) -> None:
        self.known.set()
        self._changed.set()

    async def close(self) -> None:
        """End the watch."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
