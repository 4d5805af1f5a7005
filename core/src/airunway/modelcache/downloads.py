"""How far running downloads are, asked over HTTP on the pods' addresses; and metrics of artifacts and tries."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

import aiohttp
import orjson

from airunway.artifacts.jobs import PROGRESS_PORT, downloads
from airunway.modelcache.caches import ArtifactCaches, artifact_of
from airunway.process.jobs import Slots
from airunway.process.metrics import OBJECT_LIMIT, Metrics, Point, phase_of, phase_points
from airunway.quantity import parse_quantity
from airunway.resource import ObjectKey, Resource, condition_of, dig, text_at, uid_of
from airunway.status.conditions import is_fault
from airunway.status.evidence import parse_moment

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


def running_downloads(caches: ArtifactCaches, slots: Slots) -> list[Running]:
    """The downloads whose pod runs and has an address: of each artifact its newest pod, and no more than there are
    slots, those with a slot first. Any user may make pods that look like ours, and each would be asked.
    """
    named = {artifact_of(pod): None for pod in caches.pods.values() if downloads(pod) and _address(pod)}
    found: list[Running] = []
    for key in sorted(named, key=lambda each: not slots.has(each)):
        if len(found) >= slots.most:
            break
        artifact = caches.artifact(key)
        own = caches.owned(artifact).pods if artifact is not None else ()
        pods = [pod for pod in own if downloads(pod) and _address(pod)]
        if artifact is not None and pods:
            newest = max(pods, key=lambda pod: text_at(pod, "metadata", "creationTimestamp"))
            found.append(Running(artifact=key, uid=uid_of(artifact), ip=_address(newest)))
    return found


def _address(pod: Resource) -> str:
    """The address of a pod that runs; empty if it has none."""
    return text_at(pod, "status", "podIP") if dig(pod, "status", "phase") == "Running" else ""


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


# ------------------------------------------------------------------------------------------------------------- metrics


_RESULTS = ("succeeded", "failed")


def artifact_points(artifacts: Sequence[tuple[ObjectKey, Resource]]) -> Iterator[Point]:
    """Counts of all ModelArtifacts; series of the first of them, in the cache's order, which is stable."""
    yield from phase_points("airunway_modelartifacts", artifacts)
    for key, artifact in islice(artifacts, OBJECT_LIMIT):
        yield "airunway_modelartifact_phase", (*key, phase_of(artifact)), 1.0
        users = dig(artifact, "status", "users")
        yield "airunway_modelartifact_users", tuple(key), float(users) if isinstance(users, int) else 0.0
        for state, count in _bytes(artifact):
            yield "airunway_modelartifact_bytes", (*key, state), count


def _bytes(artifact: Resource) -> Iterator[tuple[str, float]]:
    status = artifact.get("status")
    total = dig(status, "completed", "bytes") or dig(status, "progress", "totalBytes")
    if isinstance(needed := total or dig(status, "discoveredSizeBytes"), int):
        yield "needed", float(needed)
    with suppress(ValueError):  # no claim yet
        yield "allocated", float(parse_quantity(dig(status, "allocatedSize")))
    done = dig(status, "progress", "downloadedBytes")
    if dig(status, "phase") == "Progressing" and isinstance(done, int):
        yield "downloading", float(done)


class Tries:
    """Counts the tries that end, from one status of an artifact to the next. Every result has a series from the start.

    Only the process that writes the statuses calls it, so that two processes do not count one try twice.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        for result in _RESULTS:
            metrics.count("airunway_model_download_attempts_total", result, by=0)

    def note(self, before: Resource, after: Resource) -> None:
        """Count what ended between two statuses."""
        done, known = dig(after, "completed"), dig(before, "completed", "claimUID")
        if isinstance(done, dict) and done.get("claimUID") != known:
            self._metrics.count("airunway_model_download_attempts_total", "succeeded")
            began, ended = parse_moment(dig(before, "download", "lastAttemptTime")), parse_moment(done.get("at"))
            if began is not None and ended is not None and began <= ended:
                self._metrics.observe("airunway_model_download_duration_seconds", (ended - began).total_seconds())
        elif _failed(after) and (not _failed(before) or _try(before) != _try(after)):
            self._metrics.count("airunway_model_download_attempts_total", "failed")


def _failed(status: Resource) -> bool:
    condition = condition_of({"status": status}, "DownloadReady") or {}
    return is_fault(condition) and dig(status, "download", "attempts") is not None


def _try(status: Resource) -> tuple[object, ...]:
    return dig(status, "download", "attempts"), dig(status, "download", "lastAttemptTime")
