"""``airunway status`` shows how a deployment is doing, what is below it, and which part is at fault."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from airunway.api import names
from airunway.cli import completers
from airunway.cli.cluster import Access, about_deployment, duration, on_cluster_reporting
from airunway.cli.options import cluster_options, deployment_argument, namespace_option, output_option
from airunway.cli.parameters import Command, option
from airunway.cli.printing import Line, Screen, as_document, is_ascii, object_name, terminal_width, wrapped
from airunway.redaction import bounded
from airunway.templates.expansion import TEMPLATE_READY
from airunway.view import (
    DeploymentView,
    EndingRow,
    FleetView,
    Health,
    PodRow,
    TimelineEntry,
    TreeNode,
    Unseen,
    deployment_view,
    fleet_view,
    outcome_of,
    short_age,
)

if TYPE_CHECKING:
    from airunway.kube import Client, KubeError
    from airunway.resource import ObjectKey

LATE = 4
"""Exit code of ``--wait``: the time is over."""
FAILED = 5
"""Exit code of ``--wait``: the deployment is Failed or Stalled."""

_PATIENCE = "30m"

Output = Literal["text", "json", "yaml", "name"]


class StatusCommand(Command):
    """A command whose ``--wait`` may stand without a value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        given = [f"--wait={_PATIENCE}" if word == "--wait" else word for word in args[:end]]
        return super().parse_args(ctx, [*given, *args[end:]])


@click.command(cls=StatusCommand)
@deployment_argument("A deployment. Without one: all, the worst first.", "[md/NAME]")
@namespace_option()
@option("--all-namespaces", "-A", is_flag=True, help="All deployments of all.")
@option("--watch", "-w", is_flag=True, help="Go on: draw again on a terminal, append what changes in a pipe.")
@option(
    "--wait",
    metavar="[=DURATION]",
    shell_complete=completers.deployments,
    help=f"Wait until the newest spec is Ready, at most so long ({_PATIENCE}). Ends as soon as it has failed.",
)
@output_option("text", "json", "yaml", "name")
@cluster_options
def status(
    target: tuple[str, ...],
    *,
    namespace: str,
    all_namespaces: bool,
    watch: bool,
    wait: str,
    output: Output,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Show how a deployment is doing: root cause and remedy first, then all that is below it, pods with their last end.

    airunway status md/llama -n ml

    airunway status md/llama --wait=10m

    airunway status -A

    Without a name, or with -A: all deployments, the worst first, with cause and remedy.

    Takes at most 16 requests, however many pods there are; --watch takes none while nothing changes. What you have no
    right to is listed under "Not seen", with the right's name.

    With --wait it exits with 0 when Ready, with 4 when the time is over, with 5 as soon as it is Failed or Stalled.
    """
    patience = duration(wait) if wait else None
    access = Access(kubeconfig, context)
    if target and all_namespaces:
        raise click.BadParameter("name one deployment, or use -A")
    if not target and (watch or patience is not None):
        raise click.BadParameter("--watch and --wait are about one deployment: name it as md/NAME")

    async def every(client: Client) -> None:
        await _show_all(client, "" if all_namespaces else namespace or client.config.namespace, output)

    if not target:
        on_cluster_reporting(every, namespace=namespace, access=access)
        return

    async def work(client: Client, key: ObjectKey) -> int:
        if watch:
            return await _watch(client, key, output, patience)
        code = await _wait(client, key, patience) if patience is not None else 0
        await _show(client, key, output)
        return code

    if code := about_deployment(target, work, namespace=namespace, access=access):
        raise click.exceptions.Exit(code)


async def _show(client: Client, key: ObjectKey, output: Output) -> None:
    from airunway.snapshots.reading import read_snapshot

    _print(deployment_view(await read_snapshot(client, key)), output)


def _print(view: DeploymentView, output: Output) -> None:
    if output == "name":
        click.echo(object_name(view.name))
    elif output == "text":
        lines = status_lines(view, now=datetime.now(UTC), width=terminal_width(), ascii_only=is_ascii())
        Screen().print(lines)
    else:
        click.echo(as_document([view.as_resource()], output), nl=False)


async def _show_all(client: Client, namespace: str, output: Output) -> None:
    """Show the deployments of a namespace (empty: of all)."""
    from airunway.kinds import MODEL_DEPLOYMENT

    fleet = fleet_view(await client.list_all(MODEL_DEPLOYMENT, namespace=namespace))
    if output == "name":
        for row in fleet.rows:
            click.echo(object_name(row.name))
    elif output == "text":
        lines = fleet_lines(fleet, now=datetime.now(UTC), ascii_only=is_ascii(), namespace=namespace)
        Screen().print(wrapped(lines, terminal_width()))
    else:
        items = [row.as_resource() for row in fleet.rows]
        click.echo(as_document([{"apiVersion": "v1", "kind": "List", "items": items}], output), nl=False)


async def _wait(client: Client, key: ObjectKey, patience: timedelta) -> int:
    """Wait for the deployment alone: the exit code. Each error for which it goes on waiting is named once on standard
    error. Raises NotFound if it does not exist, or is deleted meanwhile, and Forbidden without the right to list and
    watch it.
    """
    from airunway.kinds import MODEL_DEPLOYMENT
    from airunway.kube import NotFound
    from airunway.snapshots.following import Watched
    from airunway.snapshots.reading import Source

    named: set[str] = set()

    def name_once(error: KubeError) -> None:
        text = bounded(f"airunway: waiting for md/{key.name}, which cannot be listed or watched now: {error}")
        if text not in named:
            named.add(text)
            with suppress(OSError):  # the reader of standard error may be gone; the wait goes on
                click.echo(text, err=True)

    await client.get(MODEL_DEPLOYMENT, key)
    changed = asyncio.Event()
    source = Source(content="objects", kind=MODEL_DEPLOYMENT, key=key)
    watched = Watched(client, source, changed=changed, on_error=name_once)
    try:
        async with asyncio.timeout(patience.total_seconds()):
            while True:
                await changed.wait()
                changed.clear()
                if watched.refused is not None:
                    raise watched.refused
                if not watched.cache.synced.is_set():
                    continue
                deployment = watched.cache.get(key)
                if deployment is None:
                    raise NotFound(404, "NotFound", f"{key} was deleted", {"name": key.name})
                outcome = outcome_of(deployment)
                if outcome.done:
                    return 0 if outcome.ready else FAILED
    except TimeoutError:
        return LATE
    finally:
        await watched.close()


async def _watch(client: Client, key: ObjectKey, output: Output, patience: timedelta | None) -> int:
    """Show every change until Ctrl-C; with `patience` until the outcome is known."""
    limit = patience.total_seconds() if patience is not None else None
    try:
        async with asyncio.timeout(limit):
            return await _follow(client, key, output, ends=patience is not None)
    except TimeoutError:
        return LATE
    finally:
        if sys.stdout.isatty():
            click.echo()  # what comes next is not to stand in the last line of the screen


async def _follow(client: Client, key: ObjectKey, output: Output, *, ends: bool) -> int:
    from contextlib import aclosing

    from airunway.snapshots.following import follow_snapshots

    screen = Screen()
    before: DeploymentView | None = None
    async with aclosing(follow_snapshots(client, key)) as snapshots:
        async for snapshot in snapshots:
            if snapshot is None:
                click.echo(f"md/{key.name} is deleted")
                return FAILED if ends else 0
            view = deployment_view(snapshot)
            if output == "text" and screen.is_terminal:
                size = shutil.get_terminal_size()
                lines = status_lines(view, now=datetime.now(UTC), width=size.columns, ascii_only=is_ascii())
                screen.draw(lines, rows=size.lines)
            elif output == "text":
                screen.print(Line(text) for text in change_lines(before, view))
            elif before is None or before != view:
                _print(view, output)
            before = view
            outcome = outcome_of(snapshot.deployment)
            if ends and outcome.done:
                return 0 if outcome.ready else FAILED
    return 0


# ---------------------------------------------------------------------------------------------------- what is printed


_MARKS = {Health.PROBLEM: "✖", Health.PROGRESS: "◌", Health.UNKNOWN: "?", Health.OK: "✔"}
_LETTERS = {Health.PROBLEM: "X", Health.PROGRESS: "~", Health.UNKNOWN: "?", Health.OK: "+"}
_STYLES = {Health.PROBLEM: "red", Health.PROGRESS: "yellow", Health.UNKNOWN: "cyan", Health.OK: "green"}

_UNSEEN_BY_CORE = "WaitingForController"
"""The reason of a deployment that the core has not looked at yet: the default of the CRD."""

_RECENT = 6
"""Entries of the timeline that are shown."""

_WIDEST_NAME = 56
"""Columns of the tree's names; longer ones move the rest of their line."""


def status_lines(view: DeploymentView, *, now: datetime, width: int | None, ascii_only: bool) -> list[Line]:
    """The whole screen. Lines are wrapped to `width`; None: not at all."""
    found = [*_headline(view, now, ascii_only), Line(""), *_facts(view), Line("")]
    found += _tree(view.tree, now, width=width, ascii_only=ascii_only)
    if isinstance(view.pods, Unseen):
        found.append(Line(f"  pods not seen: {_why(view.pods)}", "cyan", 4))
    for title, section in (
        ("Not as it should be", list(_conditions(view, now))),
        ("Recently", list(_recently(view, now))),
        ("Warnings", [Line(f"  {text}", "yellow", 4) for text in view.warnings]),
        ("Not seen", [Line(f"  {each.what}: {_why(each)}", "cyan", 4) for each in view.unseen if each != view.pods]),
    ):
        if section:
            found += [Line(""), Line(f"{title}:", "bold"), *section]
    return list(wrapped(found, width))


def fleet_lines(fleet: FleetView, *, now: datetime, ascii_only: bool, namespace: str) -> Iterator[Line]:
    """All deployments, the worst first, each with its cause and remedy; at the end how many are in each phase."""
    if not fleet.rows:
        yield Line(f"There are no deployments in {f'namespace {namespace}' if namespace else 'the cluster'}.")
        return
    for row in fleet.rows:
        mark = (_LETTERS if ascii_only else _MARKS)[row.health]
        why = row.cause or row.reason
        head = f"{mark} {row.namespace}/{row.name} is {row.phase}"
        head += f": {why}" if row.health is not Health.OK and why not in ("", row.phase) else ""
        head += f" for {short_age(row.since, now)}" if row.since is not None and row.since.year > 1970 else ""
        yield Line(f"{head}, {row.replicas} replicas ready" if row.replicas else head, _STYLES[row.health], 2)
        if row.why:
            yield Line(f"  {row.why}", "", 2)
        if row.remedy:
            yield Line(f"  Remedy: {row.remedy}", "", 2)
    counts = Counter(row.phase for row in fleet.rows)
    total = f"{len(fleet.rows)} deployment{'s' * (len(fleet.rows) != 1)}"
    yield Line("")
    yield Line(f"{total}: {', '.join(f'{count} {phase}' for phase, count in counts.items())}.")


def change_lines(before: DeploymentView | None, now: DeploymentView) -> Iterator[str]:
    """What has changed between two views, a line each: the deployment first, then its pods."""
    if before is None or _state(before) != _state(now):
        cause = f" {now.cause.code} {now.cause.object}" if now.cause is not None else ""
        replicas = f" {now.replicas}" if now.replicas else ""
        yield f"md/{now.name} {now.phase} {now.reason}{replicas}{cause}"
    old = {} if before is None or isinstance(before.pods, Unseen) else {pod.name: pod for pod in before.pods}
    new = {} if isinstance(now.pods, Unseen) else {pod.name: pod for pod in now.pods}
    for name, pod in new.items():
        if name not in old or _pod_state(old[name]) != _pod_state(pod):
            yield " ".join(filter(None, [f"pod/{name}", pod.state, pod.node, _restarts(pod), _ending(pod.ending)]))
    yield from (f"pod/{name} gone" for name in old if name not in new)


def _state(view: DeploymentView) -> tuple[object, ...]:
    cause = (view.cause.code, view.cause.object) if view.cause is not None else None
    return view.phase, view.reason, view.replicas, cause


def _pod_state(pod: PodRow) -> tuple[object, ...]:
    return pod.state, pod.node, pod.restarts, pod.ready


def _headline(view: DeploymentView, now: datetime, ascii_only: bool) -> Iterator[Line]:
    mark = (_LETTERS if ascii_only else _MARKS)[view.health]
    stale = ""
    if not view.current and view.reason != _UNSEEN_BY_CORE:
        stale = " (an older spec: the newest is not reported on yet)"
    if _is_paused(view) and view.phase != "Terminating":  # a pause stops no deletion
        stale = " (as it was when reconciliation was paused)"
    since = view.cause.since if view.cause is not None else view.since
    # Without a root cause the time is that of the condition Ready, and the reason may be newer.
    unready = view.cause is None and any((row.type, row.status) == ("Ready", "False") for row in view.conditions)
    what = ", not Ready for" if unready and view.phase != "Terminating" else " for"
    age = f"{what} {short_age(since, now)}" if since is not None and since.year > 1970 else ""
    why = view.cause.code if view.cause is not None else view.reason
    head = f"{mark} {view.name} in {view.namespace} is {view.phase}{stale}"
    head += f": {why}{age}" if why not in ("", view.phase) else age
    yield Line(head, _STYLES[view.health], 2)
    if view.cause is None:
        if view.message:
            hint = ": `airunway doctor` shows whether it runs" if view.reason == _UNSEEN_BY_CORE else ""
            yield Line(f"  {view.message}{hint}", "", 2)
        yield from _contradiction(view)
        return
    kind, _, rest = view.cause.object.partition("/")
    name = rest.rpartition("/")[2]
    evidence = view.cause.evidence.removeprefix(f"{kind} {name}, ").removeprefix(f"{kind} {name}: ")
    # What the API server refuses has no object yet: the evidence names it.
    yield Line(f"  {view.cause.object}: {evidence}" if view.cause.object else f"  {evidence}", "", 2)
    field = f" (field {view.cause.field})" if view.cause.field else ""
    yield Line(f"  Remedy: {view.cause.remedy or 'see the message above.'}{field}", "", 2)
    if kind == "Pod" and _may_have_logs(view, name):
        yield Line(f"  Logs: airunway logs md/{view.name} -n {view.namespace}", "dim", 2)


def _may_have_logs(view: DeploymentView, pod: str) -> bool:
    """Whether a container of the pod has started; also if pods were not seen."""
    if isinstance(view.pods, Unseen):
        return True
    containers = [container for row in view.pods if row.name == pod for container in row.containers]
    return any(each.state == "Running" or each.ending is not None for each in containers)


def _is_paused(view: DeploymentView) -> bool:
    return any((row.type, row.status) == ("Paused", "True") for row in view.conditions)


def _contradiction(view: DeploymentView) -> Iterator[Line]:
    """Says that fewer pods are ready than the status counts as ready replicas, each of which has a pod at least."""
    ready = int(view.replicas.partition("/")[0] or 0)
    if view.health is not Health.OK or isinstance(view.pods, Unseen) or _is_paused(view):
        return
    serving = [pod for pod in view.pods if pod.role != names.PICKER_COMPONENT and pod.state != "Completed"]
    if not serving or sum(pod.ready for pod in serving) >= ready:
        return
    text = (
        f"  But only {sum(pod.ready for pod in serving)} of its {len(serving)} pods are ready: if this lasts, provider "
        f"{view.provider!r} does not run (kubectl get inferenceproviderconfigs shows its last heartbeat)."
    )
    yield Line(text, "yellow", 2)


def _facts(view: DeploymentView) -> Iterator[Line]:
    yield Line(f"Model:    {view.model or 'none'}", "", 10)
    if (template := view.template) is not None:
        used = f"{template.kind} {template.name}" if template.name else f"none ({template.asked} was asked for)"
        state = f", {TEMPLATE_READY}={template.status} {template.reason}" if template.status else ""
        yield Line(f"Template: {used}{state}", "", 10)
    engine = view.engine or "no engine yet"
    replicas = f", {view.replicas} replicas ready" if view.replicas else ""
    yield Line(f"Runs on:  {engine} by {view.provider or 'no provider yet'}{replicas}", "", 10)
    yield from _waiting(view)
    if view.endpoint:
        yield Line(f"Endpoint: {view.endpoint}", "", 10)
    if view.url:
        needs = f" (requests need the header {view.header})" if view.header else ""
        yield Line(f"Gateway:  {view.url}{needs}", "", 10)
    if view.share:
        yield Line(f"Share:    {view.share}", "", 10)


_WHEN = {
    "change": "with the next change of its spec, or of the annotation airunway.ai/adopt",
    "rollout": "in its turn (rollout: Immediately)",
}


def _waiting(view: DeploymentView) -> Iterator[Line]:
    """What is newer than what it runs with (docs/revisions.md)."""
    revision = view.revision
    if revision is None:
        return
    if revision.pending:
        when = _WHEN.get(revision.waits_for, "")
        yield Line(f"Waiting:  {'; '.join(revision.pending)}: taken {when}", "", 10)
    if revision.newer:
        text = f"Newer:    {'; '.join(revision.newer)}, of provider {view.provider}: taken {_WHEN['change']}"
        yield Line(text, "", 10)


def _tree(root: TreeNode, now: datetime, *, width: int | None, ascii_only: bool) -> list[Line]:
    rows = list(_rows(root, "", "", ascii_only))
    most = _WIDEST_NAME if width is None else min(_WIDEST_NAME, width // 2)
    widest = min(max((len(label) for label, _, _ in rows), default=0), most)
    lines = []
    for label, node, indent in rows:
        text = "  ".join(filter(None, [label.ljust(widest), *_columns(node, now)])).rstrip()
        lines.append(Line(text, "" if node.health is Health.OK else _STYLES[node.health], indent + 4))
        if node.message and node.pod is None:
            lines.append(Line(f"{' ' * (indent + 4)}{node.message}", "dim", indent + 4))
    return lines


def _rows(node: TreeNode, first: str, further: str, ascii_only: bool) -> Iterator[tuple[str, TreeNode, int]]:
    mark = (_LETTERS if ascii_only else _MARKS)[node.health]
    if node.health is Health.OK and not node.state:
        mark = "." if ascii_only else "·"  # it exists, and has no state of its own or was not read
    many = f"{node.count} {node.kind}s: {node.name} …" if node.count > 1 else f"{node.kind} {node.name}"
    role = f" ({node.pod.role})" if node.pod is not None and node.pod.role else ""
    yield f"{first}{mark} {many}{role}", node, len(further)
    corner, tee, bar = ("`- ", "|- ", "|  ") if ascii_only else ("└─ ", "├─ ", "│  ")
    for place, child in enumerate(node.children):
        last = place == len(node.children) - 1
        yield from _rows(child, further + (corner if last else tee), further + ("   " if last else bar), ascii_only)


def _columns(node: TreeNode, now: datetime) -> Iterator[str]:
    if node.state:
        yield node.state
    if node.count > 1 and node.nodes:
        yield f"on {len(node.nodes)} nodes" if len(node.nodes) > 1 else f"on {node.nodes[0]}"
    if node.pod is not None:
        yield node.pod.node or "no node"
        yield _restarts(node.pod)
        ending = _ending(node.pod.ending)
        if ending and node.pod.ending is not None and node.pod.ending.finished is not None:
            ending += f" {short_age(node.pod.ending.finished, now)} ago"
        yield ending


def _restarts(pod: PodRow) -> str:
    return f"{pod.restarts} restart{'' if pod.restarts == 1 else 's'}" if pod.restarts else ""


def _ending(ending: EndingRow | None) -> str:
    return f"ended: {ending.reason or 'Error'}, exit code {ending.code}" if ending is not None else ""


def _conditions(view: DeploymentView, now: datetime) -> Iterator[Line]:
    shown = {view.message, *((view.cause.evidence,) if view.cause is not None else ())}
    for row in view.conditions:
        if row.good or (row.status == "Unknown" and not row.message):
            continue
        age = f" for {short_age(row.since, now)}" if row.since is not None and row.since.year > 1970 else ""
        text = "" if row.message in shown or not row.message else f": {row.message}"
        yield Line(f"  {row.type}={row.status} {row.reason}{age}{text}", "", 4)


def _recently(view: DeploymentView, now: datetime) -> Iterator[Line]:
    if isinstance(view.timeline, Unseen):
        return
    evidence = view.cause.evidence if view.cause is not None else ""
    entries = [e for e in view.timeline if e.source != "condition" and not (evidence and evidence in e.message)]
    for entry in entries[-_RECENT:]:
        yield Line(f"  {_entry(entry, now)}", "", 8)


def _entry(entry: TimelineEntry, now: datetime) -> str:
    often = f" ({entry.count} times)" if entry.count > 1 else ""
    return f"{short_age(entry.time, now)} ago  {entry.object} {entry.reason}{often}: {entry.message}"


def _why(unseen: Unseen) -> str:
    return unseen.why + (f" ({unseen.right})" if unseen.right else "")
