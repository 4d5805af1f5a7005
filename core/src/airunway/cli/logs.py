"""``airunway logs`` prints what all containers of a deployment write, and what crashed ones wrote last."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from airunway.cli.cluster import Access, about_deployment, denied, duration, fail, remark
from airunway.cli.options import cluster_options, deployment_argument, namespace_option
from airunway.cli.parameters import Command, IntRange, option
from airunway.cli.printing import escape_what_cannot_be_encoded
from airunway.redaction import bounded, sanitized
from airunway.resource import ObjectKey, Resource, dig, key_of, uid_of
from airunway.status.evidence import parse_moment
from airunway.view import ContainerRow, PodRow, cause_of, container_names, event_time, pod_row, role_of

if TYPE_CHECKING:
    from airunway.kube import Client
    from airunway.snapshots.following import Watched
    from airunway.snapshots.reading import Source

TAIL = 200
"""Lines of each container that are printed without ``--all`` and ``--tail``."""

_QUEUED = 1000
"""Lines of all containers together that wait to be printed; then the streams wait."""

_AGAIN = 2.0
"""Seconds until a log that broke off is read again."""


@click.command(cls=Command)
@deployment_argument(required=True)
@namespace_option()
@option("--follow", "-f", is_flag=True, help="Go on, also with pods that come later.")
@option("--previous", "-p", is_flag=True, help="Of each container the run before the one that is there now.")
@option("--role", help="Only pods with this role, such as decode.")
@option("all_", "--all", is_flag=True, help=f"Every line, not only the last {TAIL} of a container.")
@option("--tail", type=IntRange(min=0), help=f"So many of the last lines of a container (default: {TAIL}).")
@option("--since", metavar="DURATION", help="Only lines of the last so long, such as 5m.")
@cluster_options
def logs(
    target: tuple[str, ...],
    *,
    namespace: str,
    follow: bool,
    previous: bool,
    role: str,
    all_: bool,
    tail: int | None,
    since: str,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Print the logs of every container of every pod of a deployment, each line after [ROLE/POD CONTAINER].

    Of a container that crashed it is the run that crashed, not the one that is being started. If that pod is gone, what
    the provider reported of its end is printed.

    airunway logs md/llama -n ml

    airunway logs md/llama -f --role decode

    Terminal sequences and what looks like a credential are removed. Remarks go to standard error.
    """
    if follow and previous:
        raise click.BadParameter("--follow and --previous exclude each other: a run that has ended writes nothing more")
    if all_ and tail is not None:
        raise click.BadParameter("--all and --tail exclude each other")
    wanted = _LogOptions(
        role=role,
        previous=previous,
        tail=None if all_ else TAIL if tail is None else tail,
        since_seconds=max(1, round(duration(since).total_seconds())) if since else None,
    )
    escape_what_cannot_be_encoded()

    async def work(client: Client, key: ObjectKey) -> None:
        if follow:
            await _Follower(client, key, wanted).run()
        else:
            await _once(client, key, wanted)

    about_deployment(target, work, namespace=namespace, access=Access(kubeconfig, context))


@dataclass(frozen=True, kw_only=True)
class _LogOptions:
    """What the user asked for."""

    role: str
    previous: bool
    tail: int | None
    since_seconds: int | None


async def _once(client: Client, key: ObjectKey, wanted: _LogOptions) -> None:
    from airunway.kinds import MODEL_DEPLOYMENT

    deployment = await client.get(MODEL_DEPLOYMENT, key)
    pods = await _pods(client, deployment)
    roles = roles_of(pods, deployment)
    if wanted.role and pods and wanted.role not in roles:
        fail(_no_role(key, wanted.role, roles))
    if not wanted.previous:
        for epitaph in epitaphs(deployment, pods, await _events(client, deployment)):
            remark(f"pod {epitaph.pod} is gone, and its log with it; its end was reported as:")
            click.echo(f"[{sanitized(epitaph.pod)} {sanitized(epitaph.container)}] {sanitized(epitaph.text)}")
    runs = list(runs_of(pods, deployment, role=wanted.role, previous=wanted.previous, follow=False))
    if not runs:
        what = "container that ended before" if wanted.previous and pods else "pods"
        remark(f"md/{key.name} in namespace {key.namespace} has no {what}: airunway status md/{key.name} shows why")
    for run in runs:
        await _print_run(client, run, wanted)


def _no_role(key: ObjectKey, role: str, roles: set[str]) -> str:
    known = ", ".join(sorted(roles)) or "they have none"
    return f"no pod of md/{key.name} has the role {bounded(role, 80)!r} (roles: {known})"


async def _print_run(client: Client, run: Run, wanted: _LogOptions) -> None:
    """Print the log of one run. Raises KubeError if not only this log cannot be read."""
    from airunway.kube import ApiError, Forbidden

    if run.waiting:
        remark(f"[{run.prefix}] no log yet: {run.waiting}")
        return
    if run.previous:
        remark(f"[{run.prefix}] the run before, which ended with {run.ending}:")
    lines = client.logs(
        run.pod,
        container=run.container,
        previous=run.previous,
        tail=wanted.tail,
        since_seconds=wanted.since_seconds,
    )
    try:
        async with aclosing(lines) as stream:
            async for line in stream:
                _write(run.prefix, line)
    except Forbidden:
        raise
    except ApiError as error:
        remark(f"[{run.prefix}] its log cannot be read: {error}")
    sys.stdout.flush()


def _write(prefix: str, line: str) -> None:
    sys.stdout.write(f"[{prefix}] {sanitized(line)}\n")


async def _pods(client: Client, deployment: Resource) -> list[Resource]:
    from airunway.snapshots.reading import all_pod_sources

    found: dict[str, Resource] = {}
    for source in all_pod_sources(deployment):
        listed = await client.list_all(
            source.kind, namespace=source.key.namespace, label_selector=source.label_selector
        )
        found |= {uid_of(pod): pod for pod in listed}
    return list(found.values())


async def _events(client: Client, deployment: Resource) -> list[Resource]:
    """The events about this deployment, not an earlier one of its name; none if they may not be read: they only add to
    the logs.
    """
    from airunway.kube import Forbidden
    from airunway.snapshots.reading import EVENT

    key = key_of(deployment)
    selector = f"involvedObject.name={key.name},involvedObject.uid={uid_of(deployment)}"
    try:
        page = await client.first_page(
            EVENT, namespace=key.namespace, field_selector=selector, limit=500, most=8 * 2**20
        )
    except Forbidden as error:
        remark(f"ends of pods that are gone are not shown: {denied(error, key.namespace)}")
        return []
    return page.items


class _Follower:
    """Follows every run of every container, with one queue of bounded length before standard output."""

    def __init__(self, client: Client, key: ObjectKey, wanted: _LogOptions) -> None:
        self._client, self._key, self._wanted = client, key, wanted
        self._queue: asyncio.Queue[tuple[str, str]] = asyncio.Queue(_QUEUED)
        self._tasks: dict[tuple[str, str, int], asyncio.Task[None]] = {}
        self._waits: set[tuple[str, str]] = set()
        self._changed = asyncio.Event()
        self._lists: dict[Source, Watched] = {}
        self._remarked: set[str] = set()
        self._role_checked = self._started = False

    async def run(self) -> None:
        """Print until cancelled. Raises Forbidden without the right to pods or their logs."""
        from airunway.kinds import MODEL_DEPLOYMENT
        from airunway.kube import Forbidden
        from airunway.snapshots.following import Watched
        from airunway.snapshots.reading import Source

        deployment = await self._client.get(MODEL_DEPLOYMENT, self._key)
        await _pods(self._client, deployment)  # its errors are the user's; a watch would try again and again
        source = Source(content="objects", kind=MODEL_DEPLOYMENT, key=self._key)
        watched = Watched(self._client, source, changed=self._changed)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._print())
                while True:
                    self._changed.clear()
                    if (refused := watched.refused) is not None:
                        why = denied(refused, self._key.namespace) if isinstance(refused, Forbidden) else str(refused)
                        self._remark_once(f"pods that come under another label are not followed: {why}")
                    # One that is deleted, or not listed yet, is what it was.
                    deployment = watched.cache.get(self._key) or deployment
                    await self._read(deployment)
                    pods = {uid_of(pod): pod for each in self._lists.values() for pod in each.cache.values()}
                    self._remark_on_role([*pods.values()], deployment)
                    self._adjust([*pods.values()], deployment, group)
                    self._started = True
                    await self._changed.wait()
        finally:
            for each in (watched, *self._lists.values()):
                await each.close()

    async def _read(self, deployment: Resource) -> None:
        """Have a list for every label that the deployment's pods have by now, and none besides. Raises Forbidden."""
        from airunway.snapshots.following import Watched
        from airunway.snapshots.reading import all_pod_sources

        wanted = all_pod_sources(deployment)
        for source in set(self._lists) - set(wanted):
            await self._lists.pop(source).close()
        for source in wanted:
            if source not in self._lists:
                self._lists[source] = Watched(self._client, source, changed=self._changed)
        for source, watched in self._lists.items():
            await watched.known.wait()
            if watched.refused is not None:
                raise watched.refused
            if watched.error is not None:
                self._remark_once(f"pods with {source.label_selector} cannot be listed yet: {watched.error}")

    def _remark_once(self, text: str) -> None:
        if text not in self._remarked:
            self._remarked.add(text)
            remark(text)

    def _remark_on_role(self, pods: list[Resource], deployment: Resource) -> None:
        """Once there are pods, but none with the role that is wanted: which roles there are."""
        role = self._wanted.role
        if not role or not pods or self._role_checked:
            return
        self._role_checked = True
        if role not in (roles := roles_of(pods, deployment)):
            remark(_no_role(self._key, role, roles) + "; waiting for one")

    def _adjust(self, pods: list[Resource], deployment: Resource, group: asyncio.TaskGroup) -> None:
        """Start to follow the runs that are new."""
        for run in runs_of(pods, deployment, role=self._wanted.role, previous=False, follow=True):
            if run.waiting:
                if (run.uid, run.container) not in self._waits:
                    self._waits.add((run.uid, run.container))
                    remark(f"[{run.prefix}] waits: {run.waiting}")
            elif run.identity not in self._tasks:
                self._tasks[run.identity] = group.create_task(self._follow(run, first=not self._started))
        present = {uid_of(pod) for pod in pods}
        for identity in [each for each, task in self._tasks.items() if each[0] not in present and task.done()]:
            del self._tasks[identity]

    async def _follow(self, run: Run, *, first: bool) -> None:
        """Queue the lines of one run until it ends; `first`: it was there already, so only its last lines count."""
        from airunway.kube import BadRequest, Forbidden, KubeError, NotFound

        tail = self._wanted.tail if first else None
        since = self._wanted.since_seconds if first else None
        while True:
            newest = datetime.now(UTC)
            try:
                lines = self._client.logs(run.pod, container=run.container, follow=True, tail=tail, since_seconds=since)
                async with aclosing(lines) as stream:
                    async for line in stream:
                        await self._queue.put((run.prefix, line))
                        newest = datetime.now(UTC)
            except Forbidden:
                raise
            except NotFound:
                return  # the pod is gone
            except BadRequest:
                pass  # the container is not there yet
            except KubeError as error:
                remark(f"[{run.prefix}] the log broke off: {error}")
            else:
                return
            await asyncio.sleep(_AGAIN)
            tail, since = None, max(1, round((datetime.now(UTC) - newest).total_seconds()))

    async def _print(self) -> None:
        while True:
            _write(*await self._queue.get())
            for _ in range(self._queue.qsize()):
                _write(*self._queue.get_nowait())
            sys.stdout.flush()
            await asyncio.sleep(0)


# ------------------------------------------------------------------------------------------------- which runs are read


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
        names = container_names(pod)
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
    ends: list[tuple[str, datetime | None]] = []
    if (cause := cause_of(deployment)) is not None:
        ends.append((cause.evidence, cause.since))
    warnings = [event for event in events if event.get("type") == "Warning"]
    ends += [(text, event_time(event)) for event in warnings if isinstance(text := event.get("message"), str)]
    ends.sort(key=lambda entry: entry[1].timestamp() if entry[1] is not None else 0.0, reverse=True)
    found: dict[tuple[str, str], Epitaph] = {}
    for text, time in ends:
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
