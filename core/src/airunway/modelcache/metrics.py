"""Metrics of the model cache: gauges read from the caches, and counts of ended tries (spec/core.md, "Metrics").

Example: an artifact of 134 GB that is Ready has ``airunway_modelartifact_bytes{state="needed"}`` and ``allocated``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice

from airunway.process.metrics import NO_PHASE, OBJECT_LIMIT, OTHER, Metrics, Point
from airunway.quantity import parse_quantity
from airunway.resource import ObjectKey, Resource, condition_of, dig
from airunway.status import Category, category_of
from airunway.status.evidence import parse_moment

__all__ = ["Tries", "artifact_points", "download_points"]

_RESULTS = ("succeeded", "failed")


def artifact_points(artifacts: Sequence[tuple[ObjectKey, Resource]], *, limit: int = OBJECT_LIMIT) -> Iterator[Point]:
    """Counts of all ModelArtifacts; series of the first `limit` of them, in the cache's order, which is stable."""
    by_namespace: Counter[tuple[str, str]] = Counter()
    for key, artifact in artifacts:
        phase = _phase(artifact)
        namespace = key.namespace
        if (namespace, phase) not in by_namespace and len(by_namespace) >= limit:
            namespace = OTHER
        by_namespace[namespace, phase] += 1
    for labels, number in by_namespace.items():
        yield "airunway_modelartifact_total", labels, number
    for key, artifact in islice(artifacts, limit):
        yield "airunway_modelartifact_phase", (*key, _phase(artifact)), 1.0
        users = dig(artifact, "status", "users")
        yield "airunway_modelartifact_users", tuple(key), float(users) if isinstance(users, int) else 0.0
        for state, count in _bytes(artifact):
            yield "airunway_modelartifact_bytes", (*key, state), count


def download_points(*, running: int, queued: int) -> Iterator[Point]:
    """Downloads that have one of the slots of ``--max-downloads``, and those that wait for one."""
    yield "airunway_model_downloads", ("running",), running
    yield "airunway_model_downloads", ("queued",), queued


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


def _phase(artifact: Resource) -> str:
    return str(dig(artifact, "status", "phase", default=NO_PHASE))


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
    failed = category_of(str(condition.get("reason"))) is not Category.PROGRESS
    return condition.get("status") == "False" and failed and dig(status, "download", "attempts") is not None


def _try(status: Resource) -> tuple[object, ...]:
    return dig(status, "download", "attempts"), dig(status, "download", "lastAttemptTime")
