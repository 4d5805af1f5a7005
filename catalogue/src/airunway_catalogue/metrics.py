"""Metrics of the catalogue: gauges read from the caches, and counts of tries that ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from airunway.process.metrics import Metrics, Point, phase_of
from airunway.resource import Resource, condition_of, dig
from airunway_catalogue.source_status import Scan
from airunway_catalogue.template_state import DISCOVERED

_RESULTS = ("succeeded", "failed")


def source_points(sources: Iterable[Resource]) -> Iterator[Point]:
    """Counts of all ModelSources by phase."""
    found = Counter(map(phase_of, sources))
    for phase, number in found.items():
        yield "airunway_modelsources", (phase,), number


class Scans:
    """Counts the scans that end. Every result has a series from the start."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        for result in ("succeeded", "partial", "failed"):
            metrics.count("airunway_source_scans_total", result, by=0)

    def note(self, scan: Scan, *, seconds: float) -> None:
        """Count a scan that took so long."""
        result = "failed" if scan.nothing or scan.missing else "partial" if scan.failed else "succeeded"
        self._metrics.count("airunway_source_scans_total", result)
        self._metrics.observe("airunway_source_scan_duration_seconds", seconds)


class Discoveries:
    """Counts the tries that end, from one status of a template to the next. Every result has a series from the start.

    Only the process that writes the statuses calls it, so that two processes do not count one try twice.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        for result in _RESULTS:
            metrics.count("airunway_discovery_attempts_total", result, by=0)

    def note(self, before: Resource, after: Resource) -> None:
        """Count what ended between two statuses."""
        if _reported(after) and not _reported(before):
            self._metrics.count("airunway_discovery_attempts_total", "succeeded")
        due = dig(after, "discovery", "nextAttemptTime")
        if due is not None and due != dig(before, "discovery", "nextAttemptTime"):
            self._metrics.count("airunway_discovery_attempts_total", "failed")


def _reported(status: Resource) -> bool:
    condition = condition_of({"status": status}, "DiscoveryReady") or {}
    return condition.get("status") == "True" and condition.get("reason") == DISCOVERED
