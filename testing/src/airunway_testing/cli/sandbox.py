"""``airunway sandbox``: starting it, showing it, ending it."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, Reflector, load_config, user_agent_of
from airunway.resource import Resource
from airunway_testing.controlplane import ControlPlaneError, Level
from airunway_testing.sandbox.demo import Outcome, demonstrate, follow
from airunway_testing.sandbox.errors import SandboxError
from airunway_testing.sandbox.samples import TYPO
from airunway_testing.sandbox.stack import Sandbox, has_catalogue, sandbox
from airunway_testing.sandbox.table import Row, as_text, row_of, short

_STYLES = {"Running": "green", "Failed": "red", "Degraded": "yellow", "Deploying": "cyan"}


def run_sandbox(
    *,
    demo: bool,
    level: Level,
    providers: Sequence[str],
    upstream_crds: Path | None,
    kubeconfig: Path | None,
    context: str | None,
    keep: bool,
    patience: float,
    together: bool | None,
    gateway: bool | None,
    storage: bool | None = None,
    catalogue: bool | None = None,
) -> int:
    """Run the sandbox until Ctrl-C, or its demonstration to the end; returns the exit code.

    Without a word about the `gateway` it has one, unless it demonstrates or the cluster is another one's. Without a
    word about `storage` it has some, unless the cluster is another one's or starts no pods. Without a word about the
    `catalogue` it has it where it has storage and the catalogue is installed, unless it demonstrates.
    """
    storage = kubeconfig is None and level == "cluster" if storage is None else storage
    gateway = not demo and kubeconfig is None if gateway is None else gateway
    installed = has_catalogue()
    if catalogue and not installed:
        raise click.BadParameter("--catalogue needs the catalogue: pip install airunway-catalogue")
    without = catalogue is None and storage and not demo and not installed
    catalogue = storage and not demo and installed if catalogue is None else catalogue
    if demo and level == "api":
        raise click.BadParameter("--demo shows pods being scheduled: it needs --level cluster")
    screen = _Screen()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with sandbox(
            level=level,
            say=screen.say,
            providers=providers,
            kubeconfig=kubeconfig,
            context=context,
            upstream_crds=upstream_crds,
            keep=keep,
            patience=patience,
            together=together,
            gateway=gateway,
            storage=storage,
            catalogue=catalogue,
        ) as box:
            if without:
                screen.say("There is no catalogue of templates: pip install airunway-catalogue adds it.")
            return _demo(box, screen, patience=patience) if demo else _stay(box, screen)
    except (SandboxError, ControlPlaneError) as error:
        click.echo(f"airunway sandbox: {error}", err=True)
        return 1
    except KeyboardInterrupt:
        screen.say("Stopped; nothing is left behind.")
        return 0 if not demo else 130


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


class _Screen:
    """Lines with the seconds since the start; on a terminal a table that lives, elsewhere a line for each change."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._console = Console(highlight=False, soft_wrap=True)
        self._seen: dict[str, Row] = {}
        self._live: Live | None = None
        self._lock = threading.Lock()

    def say(self, text: str) -> None:
        with self._lock:
            self._console.print(f"[{time.monotonic() - self._started:5.1f} s] {text}", markup=False)

    def watch(self) -> Live | None:
        """The context in which `show` draws a table, on a terminal."""
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
        return self._live

    def show(self, deployments: list[Resource]) -> None:
        rows = [row_of(deployment) for deployment in deployments]
        if self._live is not None:
            self._live.update(_table(rows), refresh=True)
            return
        for row in rows:
            if self._seen.get(row.name) != row:
                self._seen[row.name] = row
                self.say(f"  {row.name}: {row.phase} {row.reason} {row.ready} {row.message}".rstrip())


def _table(rows: list[Row]) -> Table:
    table = Table(box=None, pad_edge=False, expand=True)
    for name in ("NAME", "ENGINE", "PROVIDER", "PHASE", "READY", "REASON"):
        table.add_column(name, no_wrap=True)
    table.add_column("MESSAGE", overflow="fold", ratio=1)
    for row in rows:
        style = _STYLES.get(row.phase, "")
        phase = f"[{style}]{row.phase}[/]" if style else row.phase
        table.add_row(row.name, row.engine, row.provider, phase, row.ready, row.reason, row.message)
    return table


def _demo(box: Sandbox, screen: _Screen, *, patience: float) -> int:
    with ExitStack() as stack:
        live = screen.watch()
        if live is not None:
            stack.enter_context(live)
        outcomes = asyncio.run(
            demonstrate(box.kubeconfig, [*box.samples, TYPO], patience=patience, show=screen.show, say=screen.say)
        )
    if problem := box.failed():
        raise SandboxError(problem)
    click.echo()
    click.echo(as_text([row_of(o.deployment) for o in outcomes if o.deployment is not None]))
    click.echo()
    for outcome in outcomes:
        click.echo(_line(outcome))
    return 0 if all(outcome.ok for outcome in outcomes) else 1


def _line(outcome: Outcome) -> str:
    mark = "as shown" if outcome.ok else "NOT AS EXPECTED"
    ending = "refused" if outcome.deployment is None else row_of(outcome.deployment).phase
    said = outcome.deployment is not None and short(outcome.text) == outcome.text  # in the table
    text = "" if said else f"\n    {outcome.text}"
    return f"{outcome.sample.name}: {outcome.sample.shows}: {ending} ({mark}){text}"


def _stay(box: Sandbox, screen: _Screen) -> int:
    screen.say("The sandbox is up. In another terminal:")
    apply = [f"kubectl apply -f {sample.path}" for sample in box.samples[:1]]
    asked = [f'airunway chat md/{sample.name} "why is the sky blue"' for sample in box.samples[:1] if box.answers]
    templates = [f"cd {box.manifests} && kubectl apply -f source.yaml -f template.yaml"] if box.manifests else []
    watch = "kubectl get md -o wide --watch"
    # In another terminal no virtual environment is active.
    programs = [f"export PATH={Path(sys.prefix) / 'bin'}:$PATH"] if sys.prefix != sys.base_prefix else []
    for command in (f"export KUBECONFIG={box.kubeconfig}", *programs, *apply, watch, *asked, *templates):
        screen.say(f"    {command}")
    screen.say(f"Logs are in {box.logs}; Ctrl-C stops everything.")
    with ExitStack() as stack:
        live = screen.watch()
        if live is not None:
            stack.enter_context(live)
        asyncio.run(_follow_until_stopped(box, screen))
    return 0


async def _follow_until_stopped(box: Sandbox, screen: _Screen) -> None:
    async with Client(load_config(kubeconfig=box.kubeconfig), user_agent=user_agent_of("sandbox")) as client:
        following = asyncio.create_task(follow(Reflector(client, MODEL_DEPLOYMENT), screen.show))
        try:
            while not following.done():
                if problem := box.failed():
                    raise SandboxError(problem)
                await asyncio.sleep(1.0)
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
