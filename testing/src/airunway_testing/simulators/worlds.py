"""The surroundings of one pass of a simulated operator in a cluster; a recording has others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Facts = TypeVar("Facts")
Write = TypeVar("Write")


class LiveWorld(Generic[Facts, Write]):
    """Each write follows from the facts that were read last, which are `seen`.

    `look` reads them (None: the object is gone); `write` makes a write, and says whether it landed.
    """

    def __init__(
        self, look: Callable[[], Awaitable[Facts | None]], write: Callable[[Facts, Write], Awaitable[bool]]
    ) -> None:
        self._look, self._write = look, write
        self.seen: Facts | None = None

    async def facts(self) -> Facts | None:
        self.seen = await self._look()
        return self.seen

    async def write(self, write: Write) -> bool:
        return self.seen is not None and await self._write(self.seen, write)
