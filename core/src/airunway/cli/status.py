"""``airunway status`` shows how a deployment is doing, what is below it, and which part is at fault."""

from __future__ import annotations

import asyncio
import shutil
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from airunway.cli.options import Context, Kubeconfig
from airunway.cli.printing import as_document, object_name, terminal_width
from airunway.cli.targets import Namespace, Target, about_deployment, duration

if TYPE_CHECKING:
    from airunway.kube import Client
    from airunway.resource import ObjectKey
    from airunway.view import DeploymentSnapshot, DeploymentView

__all__ = ["FAILED", "LATE", "StatusCommand", "status"]

LATE = 4
"""Exit code of ``--wait``: the time is over."""
FAILED = 5
"""Exit code of ``--wait``: the deployment is Failed or Stalled."""

_PATIENCE = "30m"

Output = Literal["text", "json", "yaml", "name"]


class StatusCommand(TyperCommand):
    """A command whose ``--wait`` may stand without a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        given = [f"--wait={_PATIENCE}" if word == "--wait" else word for word in args[:end]]
        return super().parse_args(ctx, [*given, *args[end:]])


def status(
    target: Target,
    *,
    namespace: Namespace = "",
    watch: Annotated[
        bool,
        typer.Option("--watch", "-w", help="Go on: draw again on a terminal, append what changes in a pipe."),
    ] = False,
    wait: Annotated[
        str,
        typer.Option(
            metavar="[=DURATION]",
            help=f"Wait until the newest spec is Ready, at most so long ({_PATIENCE}). Ends as soon as it has failed.",
        ),
    ] = "",
    output: Annotated[Output, typer.Option("--output", "-o", help="Format.")] = "text",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show how a deployment is doing: root cause and remedy first, then all that is below it, pods with their last end.

    airunway status md/llama -n ml

    airunway status md/llama --wait=10m

    Takes at most 12 requests, however many pods there are; --watch takes none while nothing changes. What you have no
    right to is listed under "Not seen", with the right's name.

    With --wait it exits with 0 when Ready, with 4 when the time is over, with 5 as soon as it is Failed or Stalled.
    """
    patience = duration(wait) if wait else None

    async def work(client: Client, key: ObjectKey) -> int:
        if watch:
            return await _watch(client, key, output, patience)
        code = await _wait(client, key, patience) if patience is not None else 0
        await _show(client, key, output)
        return code

    if code := about_deployment(target, work, namespace=namespace, kubeconfig=kubeconfig, context=context):
        raise typer.Exit(code)


async def _show(client: Client, key: ObjectKey, output: Output) -> None:
    from airunway.snapshots import read_snapshot

    _print(_view(await read_snapshot(client, key)), output)


def _view(snapshot: DeploymentSnapshot) -> DeploymentView:
    from airunway.view import deployment_view

    return deployment_view(snapshot)


def _print(view: DeploymentView, output: Output) -> None:
    from airunway.cli.screens import Screen, is_ascii
    from airunway.cli.status_screen import status_lines

    if output == "name":
        typer.echo(object_name(view.name))
    elif output == "text":
        lines = status_lines(view, now=datetime.now(UTC), width=terminal_width(), ascii_only=is_ascii())
        Screen().print(lines)
    else:
        typer.echo(as_document([view.as_resource()], output), nl=False)


async def _wait(client: Client, key: ObjectKey, patience: timedelta) -> int:
    """Wait for the deployment alone: the exit code. Raises NotFound if it does not exist, or is deleted meanwhile, and
    Forbidden without the right to list and watch it.
    """
    from airunway.kinds import MODEL_DEPLOYMENT
    from airunway.kube import NotFound
    from airunway.snapshots import Watched
    from airunway.view import outcome_of

    await client.get(MODEL_DEPLOYMENT, key)
    changed = asyncio.Event()
    watched = Watched(client, MODEL_DEPLOYMENT, key, changed=changed)
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
            typer.echo()  # what comes next is not to stand in the last line of the screen


async def _follow(client: Client, key: ObjectKey, output: Output, *, ends: bool) -> int:
    from contextlib import aclosing

    from airunway.cli.screens import Line, Screen, is_ascii
    from airunway.cli.status_screen import change_lines, status_lines
    from airunway.snapshots import follow_snapshots
    from airunway.view import outcome_of

    screen = Screen()
    before: DeploymentView | None = None
    async with aclosing(follow_snapshots(client, key)) as snapshots:
        async for snapshot in snapshots:
            if snapshot is None:
                typer.echo(f"md/{key.name} is deleted")
                return FAILED if ends else 0
            view = _view(snapshot)
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
