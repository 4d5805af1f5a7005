"""``airunway logs`` prints what all containers of a deployment write, and what crashed ones wrote last."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from airunway.cli.cluster import Access, about_deployment, duration, fail, remark
from airunway.cli.options import cluster_options, deployment_argument, namespace_option
from airunway.cli.parameters import Command, IntRange, option
from airunway.cli.printing import escape_what_cannot_be_encoded
from airunway.redaction import sanitized
from airunway.resource import ObjectKey

if TYPE_CHECKING:
    from airunway.kube import Client
    from airunway.snapshots.logs import LogOptions, Run

TAIL = 200
"""Lines of each container that are printed without ``--all`` and ``--tail``."""


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
    from airunway.snapshots.logs import LogFollower, LogOptions

    wanted = LogOptions(
        role=role,
        previous=previous,
        tail=None if all_ else TAIL if tail is None else tail,
        since_seconds=max(1, round(duration(since).total_seconds())) if since else None,
    )
    escape_what_cannot_be_encoded()

    async def work(client: Client, key: ObjectKey) -> None:
        if follow:
            await LogFollower(client, key, wanted, remark=remark).run(_print)
        else:
            await _once(client, key, wanted)

    about_deployment(target, work, namespace=namespace, access=Access(kubeconfig, context))


async def _once(client: Client, key: ObjectKey, wanted: LogOptions) -> None:
    from airunway.kinds import MODEL_DEPLOYMENT
    from airunway.snapshots.logs import epitaphs, no_role, read_events, read_pods, roles_of, runs_of

    deployment = await client.get(MODEL_DEPLOYMENT, key)
    pods = await read_pods(client, deployment)
    roles = roles_of(pods, deployment)
    if wanted.role and pods and wanted.role not in roles:
        fail(no_role(key, wanted.role, roles))
    if not wanted.previous:
        events = await read_events(client, deployment)
        for unseen in events.unseen:
            why = f"you have no right to {unseen.right}: ask for the ClusterRole view there"
            shown = "not all shown" if events.items else "not shown"
            remark(f"ends of pods that are gone are {shown}: {why if unseen.right else unseen.why}")
        for epitaph in epitaphs(deployment, pods, events.items):
            remark(f"pod {epitaph.pod} is gone, and its log with it; its end was reported as:")
            click.echo(f"[{sanitized(epitaph.pod)} {sanitized(epitaph.container)}] {sanitized(epitaph.text)}")
    runs = list(runs_of(pods, deployment, role=wanted.role, previous=wanted.previous, follow=False))
    if not runs:
        what = "container that ended before" if wanted.previous and pods else "pods"
        remark(f"md/{key.name} in namespace {key.namespace} has no {what}: airunway status md/{key.name} shows why")
    for run in runs:
        await _print_run(client, run, wanted)


async def _print_run(client: Client, run: Run, wanted: LogOptions) -> None:
    """Print the log of one run. Raises KubeError if not only this log cannot be read."""
    from airunway.kube import ApiError, Forbidden

    if run.waiting:
        remark(f"[{run.prefix}] no log yet: {run.waiting}")
        return
    if run.previous:
        remark(f"[{run.prefix}] the run before, which ended with {run.ending}:")
    lines = client.logs(
        run.pod, container=run.container, previous=run.previous, tail=wanted.tail, since_seconds=wanted.since_seconds
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


async def _print(queue: asyncio.Queue[tuple[str, str]]) -> None:
    while True:
        _write(*await queue.get())
        for _ in range(queue.qsize()):
            _write(*queue.get_nowait())
        sys.stdout.flush()
        await asyncio.sleep(0)
