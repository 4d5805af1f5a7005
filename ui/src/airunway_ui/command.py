"""``airunway ui``: the server on this machine, for one person, with their own kubeconfig."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from airunway.cli.options import cluster_options
from airunway.cli.parameters import Command, IntRange, option

if TYPE_CHECKING:
    from airunway_ui.guard import Guard


@click.command(cls=Command, short_help="Open the page: what runs and why not, ask, deploy, edit.")
@option("--port", default=None, type=IntRange(1, 65535), help="Port on 127.0.0.1. Default: one that is free.")
@option("open_", "--open/--no-open", default=True, help="Open the page in a browser.")
@cluster_options
def ui(*, port: int | None, open_: bool, kubeconfig: Path | None, context: str | None) -> None:
    """Open the page of AI Runway: what runs and why something does not, a dialogue with models, deploy and edit.

    It has the rights of your kubeconfig and no others. The server is reachable from this machine only, by a link that
    works once, within 60 seconds; Enter prints another one. Ctrl-C ends it.
    """
    from airunway.kube import KubeError

    try:
        asyncio.run(_serve(port or 0, open_=open_, kubeconfig=kubeconfig, context=context))
    except KeyboardInterrupt:
        raise click.exceptions.Exit(130) from None
    except (KubeError, _Unusable) as error:
        click.echo(f"airunway: {error}", err=True)
        raise click.exceptions.Exit(1) from error


class _Unusable(Exception):
    """The server cannot start; the message is a sentence."""


async def _serve(port: int, *, open_: bool, kubeconfig: Path | None, context: str | None) -> None:
    from aiohttp import web

    from airunway.kube import TransportError, Unauthorized, load_config
    from airunway_ui.guard import Guard
    from airunway_ui.identity import Identity
    from airunway_ui.server import Site, runner_of
    from airunway_ui.watches import Watches

    identity = Identity(load_config(kubeconfig=kubeconfig, context=context))
    server = identity.client.config.server
    try:
        await identity.open()
    except Unauthorized as error:
        await identity.close()
        raise _Unusable(f"{server} rejected the credentials (401): log in again, or use another --context") from error
    except TransportError as error:
        await identity.close()
        raise _Unusable(f"{error}. Check that {server} is the right cluster (--context, --kubeconfig)") from error
    watches = Watches(identity)
    guard = Guard(port=0)
    runner = runner_of(Site(guard=guard, identity=identity, watches=watches))
    try:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        try:
            await site.start()
        except OSError as error:
            raise _Unusable(f"127.0.0.1:{port} cannot be used: {error.strerror}. Choose another --port") from error
        guard.port = runner.addresses[0][1]
        _say(guard)
        if open_ and sys.stdout.isatty():
            _open(guard.link())
        await _until_ended(guard)
    finally:
        await runner.cleanup()
        await watches.close()
        await identity.close()


def _say(guard: Guard) -> None:
    click.echo(f"Open {guard.link()} in a browser of this machine (the link works once, for 60 seconds)")


def _open(link: str) -> None:
    """Open a browser by a file that leads to the link: other users see the arguments of a process."""
    descriptor, name = tempfile.mkstemp(prefix="airunway-", suffix=".html", dir=os.environ.get("XDG_RUNTIME_DIR"))
    with open(descriptor, "w", encoding="utf-8") as file:  # mkstemp makes it readable for its owner only
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0;url={link}"><title>AI Runway</title>')
    asyncio.get_running_loop().call_later(60.0, lambda: Path(name).unlink(missing_ok=True))
    with suppress(webbrowser.Error):
        webbrowser.open(Path(name).as_uri())


async def _until_ended(guard: Guard) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, ended.set)
    if sys.stdin is not None and sys.stdin.isatty():
        loop.add_reader(sys.stdin.fileno(), lambda: _say(guard) if sys.stdin.readline() else ended.set())
    await ended.wait()
