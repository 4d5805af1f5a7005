"""Which logs ``airunway logs`` reads: every container of every pod, and of a crashed one the run that crashed. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from airunway.resource import ObjectKey, Resource, dig, key_of, uid_of
from airunway.status.evidence import parse_moment
from airunway.view import ContainerRow, PodRow, cause_of, container_names, pod_row, role_of

__all__ = ["Epitaph", "Run", "epitaphs", "roles_of", "runs_of"]

_OF_CONTAINER = re.compile(r"(?:^|: )Pod (\S{1,253}), container (\S{1,63}): (.*)", re.DOTALL)
"""In the message of a root cause, and of an event, where the provider's object comes before it."""
_MOST_EPITAPHS = 3
_LONGEST_REPORT = 4096


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a container: what one request for a log is about."""

    pod: ObjectKey
    """Namespace and name of the pod."""
    uid: str
    """Its uid."""
    container: str
    """The container."""
    restarts: int
    """Its number: how often the container was started before."""
    previous: bool
    """Whether it is the run before the one that is there now."""
    prefix: str
    """What stands before each line: ``role/pod``, and the container where the pod has several."""
    waiting: str
    """Why there is no log yet; empty if there is one."""
    ending: str
    """How the run ended; empty if it has not, or this is not known."""

    @property
    def identity(self) -> tuple[str, str, int]:
        """What tells runs apart."""
        return self.uid, self.container, self.restarts


@dataclass(frozen=True, kw_only=True)
class Epitaph:
    """What is still known of a crashed container whose pod is gone, and its log with it."""

    pod: str
    """Name of the pod that was."""
    container: str
    """The container."""
    text: str
    """How it ended, with the last line that it wrote."""


def roles_of(pods: Iterable[Resource], deployment: Resource) -> set[str]:
    """The roles of the pods, without the empty one."""
    return {role for pod in pods if (role := role_of(pod, deployment))}


def runs_of(
    pods: Iterable[Resource], deployment: Resource, *, role: str, previous: bool, follow: bool
) -> Iterator[Run]:
    """The runs to read, by role and pod, in the order in which containers start.

    With `previous` the run before the current one of each container; with `follow` the current ones; else of a crashed
    container the run that crashed, of others the current one.
    """
    chosen = [pod for pod in pods if not role or role_of(pod, deployment) == role]
    for pod in sorted(chosen, key=lambda pod: (role_of(pod, deployment), key_of(pod))):
        row = pod_row(pod, deployment)
        rows = {container.name: container for container in row.containers}
        names = [name for name, _ in container_names(pod)]
        for name in names:
            run = _run(pod, row, name, rows.get(name), several=len(names) > 1, previous=previous, follow=follow)
            if run is not None:
                yield run


def _run(
    pod: Resource,
    row: PodRow,
    name: str,
    container: ContainerRow | None,
    *,
    several: bool,
    previous: bool,
    follow: bool,
) -> Run | None:
    ended_before = container is not None and container.previous
    if previous and not ended_before:
        return None
    crashed = container is not None and _crashed(container)
    before = previous or (crashed and ended_before and not follow)
    restarts = container.restarts if container is not None else 0
    prefix = f"{row.role}/{row.name}" if row.role else row.name
    ending = ""
    if container is not None and container.ending is not None and (before or not container.previous):
        ending = f"exit code {container.ending.code}" + (
            f" ({container.ending.reason})" if container.ending.reason else ""
        )
    waiting = ""
    if container is None:
        waiting = row.message or row.state
    elif not before and container.state != "Running" and container.ending is None:
        waiting = f"{container.state}: {row.message}" if row.message else container.state
    return Run(
        pod=key_of(pod),
        uid=uid_of(pod),
        container=name,
        restarts=restarts - 1 if before else restarts,
        previous=before,
        prefix=f"{prefix} {name}" if several else prefix,
        waiting=waiting,
        ending=ending,
    )


def _crashed(container: ContainerRow) -> bool:
    """Whether its last end was a failure that it has not recovered from."""
    return container.ending is not None and container.ending.code != 0 and not container.ready


def epitaphs(deployment: Resource, pods: Iterable[Resource], events: Iterable[Resource]) -> list[Epitaph]:
    """The newest ends of containers whose pods are gone, from the status and the events of the deployment."""
    present = {key_of(pod).name: pod for pod in pods}
    told: list[tuple[str, datetime | None]] = []
    if (cause := cause_of(deployment)) is not None:
        told.append((cause.evidence, cause.since))
    for event in events:
        times = (dig(event, "series", "lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
        time = next((moment for text in times if (moment := parse_moment(text)) is not None), None)
        if isinstance(message := event.get("message"), str) and event.get("type") == "Warning":
            told.append((message, time))
    told.sort(key=lambda entry: entry[1].timestamp() if entry[1] is not None else 0.0, reverse=True)
    found: dict[tuple[str, str], Epitaph] = {}
    for text, time in told:
        match = _OF_CONTAINER.search(text[:_LONGEST_REPORT])
        if match is None:
            continue
        pod, container, what = match.groups()
        if pod in present and not _is_of_another(present[pod], deployment, container, time):
            continue  # the pod is there, and so is its log
        found.setdefault((pod, container), Epitaph(pod=pod, container=container, text=what))
    return list(found.values())[:_MOST_EPITAPHS]


def _is_of_another(pod: Resource, deployment: Resource, container: str, time: datetime | None) -> bool:
    """Whether what was reported at that time is about an earlier pod of the same name."""
    created = parse_moment(dig(pod, "metadata", "creationTimestamp"))
    if created is None or time is None or time - created >= timedelta(seconds=1):
        return False
    if time < created:
        return True
    # A pod's age is known in whole seconds. In its first one it tells by itself whether the container has ended.
    rows = pod_row(pod, deployment).containers
    return not any(row.name == container and row.ending is not None for row in rows)
