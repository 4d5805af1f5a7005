"""What happened, in the order in which it happened: conditions that changed, events, ends of containers."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from airunway.resource import Resource, dig
from airunway.status.evidence import parse_moment
from airunway.view.base import View, line, word
from airunway.view.pods import PodRow

__all__ = ["LONGEST", "TimelineEntry", "timeline_of"]

LONGEST = 100
"""Entries that are kept, the newest."""


@dataclass(frozen=True, kw_only=True)
class TimelineEntry(View):
    """Something that happened."""

    time: datetime
    """When; of an event that was repeated, the last time."""
    source: str
    """``condition``, ``event`` or ``ending`` (of a container)."""
    object: str
    """``Kind/name`` of the object that it is about."""
    reason: str
    """One word."""
    message: str
    """A sentence; may be empty."""
    count: int
    """How often; 1 for anything but an event that was repeated."""
    warning: bool
    """Whether it is bad news."""


def timeline_of(deployment: Resource, pods: Iterable[PodRow], events: Iterable[Resource]) -> tuple[TimelineEntry, ...]:
    """Returns the newest entries, oldest first; what has no time is left out."""
    entries = {*_of_conditions(deployment), *_of_events(events), *_of_endings(pods)}
    ordered = sorted(entries, key=lambda entry: (entry.time, entry.source, entry.object, entry.reason, entry.message))
    return tuple(ordered[-LONGEST:])


def _of_conditions(deployment: Resource) -> Iterator[TimelineEntry]:
    name = word(dig(deployment, "metadata", "name"))
    listed = dig(deployment, "status", "conditions")
    for condition in listed[:64] if isinstance(listed, list) else ():
        if not isinstance(condition, dict):
            continue
        time = parse_moment(condition.get("lastTransitionTime"))
        if time is None or time.year == 1970:  # the schema's default, before the first pass
            continue
        yield TimelineEntry(
            time=time,
            source="condition",
            object=f"ModelDeployment/{name}",
            reason=f"{word(condition.get('type'))}={word(condition.get('status'))}",
            message=line(condition.get("message")),
            count=1,
            warning=False,
        )


def _of_events(events: Iterable[Resource]) -> Iterator[TimelineEntry]:
    timed = [(time, event) for event in events if (time := _time_of(event)) is not None]
    # Texts are cleaned of the newest only: a namespace can have ten thousand events.
    for time, event in heapq.nlargest(LONGEST, timed, key=lambda entry: entry[0]):
        count = dig(event, "series", "count") or event.get("count")
        yield TimelineEntry(
            time=time,
            source="event",
            object=f"{word(dig(event, 'involvedObject', 'kind'))}/{word(dig(event, 'involvedObject', 'name'))}",
            reason=word(event.get("reason")),
            message=line(event.get("message")),
            count=count if isinstance(count, int) and count > 0 else 1,
            warning=event.get("type") == "Warning",
        )


def _time_of(event: Resource) -> datetime | None:
    """When an event of ``v1`` happened last."""
    times = (
        dig(event, "series", "lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event.get("firstTimestamp"),
    )
    return next((moment for text in times if (moment := parse_moment(text)) is not None), None)


def _of_endings(pods: Iterable[PodRow]) -> Iterator[TimelineEntry]:
    for pod in pods:
        for container in pod.containers:
            ending = container.ending
            if ending is None or ending.finished is None:
                continue
            yield TimelineEntry(
                time=ending.finished,
                source="ending",
                object=f"Pod/{pod.name}",
                reason=ending.reason or "Terminated",
                message=f"container {container.name} ended with exit code {ending.code}"
                + (f": {ending.message}" if ending.message else ""),
                count=1,
                warning=ending.code != 0,
            )
