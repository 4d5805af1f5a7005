"""Asks running downloads how far they are, over HTTP on the pods' addresses (spec/platform.md, "Steps")."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import aiohttp
import orjson

from airunway.artifacts.jobs import PROGRESS_PORT
from airunway.resource import ObjectKey, Resource, dig

__all__ = ["INTERVAL", "ProgressReader", "Running", "ask"]

log = logging.getLogger(__name__)

INTERVAL = 10.0
"""Seconds between two questions to one download."""

_TIMEOUT = 2.0
"""Seconds for one answer."""

_MOST = 4096
"""Bytes of an answer that are read."""

_AT_A_TIME = 16


@dataclass(frozen=True, kw_only=True)
class Running:
    """A download that runs."""

    artifact: ObjectKey
    """The artifact."""
    uid: str
    """Its uid: an answer for another artifact does not count."""
    ip: str
    """Address of the pod."""


async def ask(session: aiohttp.ClientSession, running: Running) -> Resource | None:
    """The answer of one download; None if there is none that can be used. Never raises for what the pod does."""
    host = f"[{running.ip}]" if ":" in running.ip else running.ip
    url = f"http://{host}:{PROGRESS_PORT}/progress"
    try:
        async with asyncio.timeout(_TIMEOUT), session.get(url, allow_redirects=False) as response:
            body = await response.content.read(_MOST + 1) if response.status == 200 else b""
            found = orjson.loads(body) if 0 < len(body) <= _MOST else None
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
        log.debug("%s: no progress: %s", running.artifact, type(error).__name__)
        return None
    return found if dig(found, "artifact") == running.uid else None


class ProgressReader:
    """The newest answer of every running download. `running()` lists them; `on_change(artifact)` is called where an
    answer differs from the one before.
    """

    def __init__(self, *, running: Callable[[], Iterable[Running]], on_change: Callable[[ObjectKey], None]) -> None:
        self._running = running
        self._on_change = on_change
        self._answers: dict[ObjectKey, Resource] = {}
        self._places = asyncio.Semaphore(_AT_A_TIME)

    def of(self, artifact: ObjectKey, uid: str) -> Resource | None:
        """The newest answer; None if there is none for the artifact with this uid."""
        answer = self._answers.get(artifact)
        return answer if dig(answer, "artifact") == uid else None

    async def run(self) -> None:
        """Ask until cancelled."""
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
            while True:
                running = list(self._running())
                known = {each.artifact for each in running}
                self._answers = {key: answer for key, answer in self._answers.items() if key in known}
                await asyncio.gather(*(self._ask(session, each) for each in running))
                await asyncio.sleep(INTERVAL)

    async def _ask(self, session: aiohttp.ClientSession, running: Running) -> None:
        async with self._places:
            answer = await ask(session, running)
        if answer is not None and answer != self._answers.get(running.artifact):
            self._answers[running.artifact] = answer
            self._on_change(running.artifact)
