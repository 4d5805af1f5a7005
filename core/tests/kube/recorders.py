"""Event recorders that tests let run, and what they have written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from airunway.kube import EVENT, Client
from airunway.resource import Resource


class Clock:
    """The recorder's clock for intervals; the loop's own time, plus what the test adds."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.handles: list[tuple[float, Callable[[], object], asyncio.TimerHandle]] = []

    def time(self) -> float:
        return asyncio.get_running_loop().time() + self.ahead

    def call_at(self, when: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        handle = asyncio.get_running_loop().call_at(when - self.ahead, callback)
        self.handles.append((when, callback, handle))
        return handle

    def advance(self, seconds: float) -> None:
        self.ahead += seconds
        due, self.handles = self.handles, []
        for when, callback, handle in due:
            if not handle.cancelled() and handle.when() > asyncio.get_running_loop().time():
                handle.cancel()
                self.call_at(when, callback)


async def events_of(client: Client, namespace: str) -> list[Resource]:
    return await client.list_all(EVENT, namespace=namespace)


async def wait_for_events(
    client: Client, namespace: str, condition: Callable[[list[Resource]], bool]
) -> list[Resource]:
    for _ in range(1000):
        events = await events_of(client, namespace)
        if condition(events):
            return events
        await asyncio.sleep(0.01)
    raise AssertionError(f"it did not happen: {events}")
