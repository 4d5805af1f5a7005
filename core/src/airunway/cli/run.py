"""``airunway controller``, ``airunway run`` and ``airunway provider run`` start the core and providers."""

from __future__ import annotations

import click

from airunway.cli import completers, processes
from airunway.cli.parameters import Command, SwitchCommand, argument, option
from airunway.cli.process_options import Common, CoreOptions, ProviderOptions, with_options


@click.command(cls=SwitchCommand)
@with_options(core=CoreOptions, common=Common)
def controller(core: CoreOptions, common: Common) -> None:
    """Run the core controller: admission, validation, engine and provider selection."""
    processes.run(common, core=core)


@click.command(cls=SwitchCommand)
@argument(
    "name",
    nargs=-1,
    metavar="[PROVIDER]...",
    shell_complete=completers.providers,
    help="The providers' names (default: all installed).",
)
@with_options(core=CoreOptions, given=ProviderOptions, common=Common)
def run(core: CoreOptions, given: ProviderOptions, common: Common, *, name: tuple[str, ...]) -> None:
    """Run the core and every installed provider, or these, in one process: for a laptop, or a small cluster.

    They share one connection and one cache of deployments. Each has its own Lease, registration and failures.
    """
    providers = processes.named(name) if name else processes.installed()
    processes.run(common, core=core, providers=providers, given=given)


@click.command(cls=SwitchCommand)
@argument(
    "name",
    nargs=-1,
    metavar="PROVIDER...",
    shell_complete=completers.providers,
    help="The providers' names (their entry points).",
)
@option("all_", "--all", is_flag=True, help="Run every provider that is installed.")
@with_options(given=ProviderOptions, common=Common)
def provider_run(given: ProviderOptions, common: Common, *, name: tuple[str, ...], all_: bool) -> None:
    """Run providers: register them, translate their deployments, report their status.

    Several run in one process and share its caches; each has its own Lease, registration and failures.
    """
    if all_ == bool(name):
        raise click.BadParameter("name the providers to run, or use --all")
    processes.run(common, providers=processes.installed() if all_ else processes.named(name), given=given)


@click.command(cls=Command)
def provider_list() -> None:
    """The provider plugins that are installed."""
    from airunway.plugins.registry import discover

    found = discover()
    if not found:
        click.echo("no provider plugins are installed", err=True)
        raise click.exceptions.Exit(1)
    width = max(len(distribution.name) for distribution in found)
    for distribution in found:
        click.echo(f"{distribution.name:<{width}}  {distribution.distribution} {distribution.version}")
