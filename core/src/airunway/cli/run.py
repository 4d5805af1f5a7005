"""``airunway controller``, ``airunway run`` and ``airunway provider run`` start the core and providers."""

from __future__ import annotations

from typing import Annotated

import typer

from airunway.cli import processes
from airunway.cli.process_options import Common, CoreOptions, ProviderOptions, with_options


@with_options
def controller(core: CoreOptions, common: Common) -> None:
    """Run the core controller: admission, validation, engine and provider selection."""
    processes.run(common, core=core)


@with_options
def run(
    core: CoreOptions,
    given: ProviderOptions,
    common: Common,
    name: Annotated[
        list[str] | None, typer.Argument(metavar="[PROVIDER]...", help="The providers' names (default: all installed).")
    ] = None,
) -> None:
    """Run the core and every installed provider, or these, in one process: for a laptop, or a small cluster.

    They share one connection and one cache of deployments. Each has its own Lease, registration and failures.
    """
    providers = processes.named(name) if name else processes.installed()
    processes.run(common, core=core, providers=providers, given=given)


@with_options
def provider_run(
    given: ProviderOptions,
    common: Common,
    name: Annotated[
        list[str] | None, typer.Argument(metavar="PROVIDER...", help="The providers' names (their entry points).")
    ] = None,
    *,
    all_: Annotated[bool, typer.Option("--all", help="Run every provider that is installed.")] = False,
) -> None:
    """Run providers: register them, translate their deployments, report their status.

    Several run in one process and share its caches; each has its own Lease, registration and failures.
    """
    if all_ == bool(name):
        raise typer.BadParameter("name the providers to run, or use --all")
    processes.run(common, providers=processes.installed() if all_ else processes.named(name or []), given=given)


def provider_list() -> None:
    """The provider plugins that are installed."""
    from airunway.plugins.registry import discover

    found = discover()
    if not found:
        typer.echo("no provider plugins are installed", err=True)
        raise typer.Exit(1)
    width = max(len(distribution.name) for distribution in found)
    for distribution in found:
        typer.echo(f"{distribution.name:<{width}}  {distribution.distribution} {distribution.version}")
