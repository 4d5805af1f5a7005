"""The command tree."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from airunway.cli import options, processes
from airunway.cli.crds import crds
from airunway.cli.development import CommandTree, ProviderTree
from airunway.cli.doctor import doctor
from airunway.cli.explain import explain
from airunway.cli.flags import SwitchCommand
from airunway.cli.install import install, manifests, uninstall, upgrade
from airunway.cli.preflight import preflight
from airunway.cli.render import render
from airunway.cli.schema import schema
from airunway.cli.validate import validate

__all__ = ["app", "main"]

app = typer.Typer(
    name="airunway",
    cls=CommandTree,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its tables cut the names of options off at 80 columns
    context_settings={"help_option_names": ["-h", "--help"]},
)
provider = typer.Typer(cls=ProviderTree, help="Run, inspect and write provider plugins.", no_args_is_help=True)
app.add_typer(provider, name="provider")
for command, summary in (
    (crds, "Print the CustomResourceDefinitions as YAML."),
    (validate, "Check manifests as the API server would, without one."),
    (explain, "Say why a deployment gets its engine and provider, or none."),
    (render, "Print what a provider would create, without a cluster."),
    (doctor, "Say what is wrong with an installation, and what to do."),
    (install, "Install CRDs, core and providers, by helm."),
    (upgrade, "Upgrade what is installed, by helm."),
    (uninstall, "Uninstall core and providers; models stay."),
    (manifests, "Print what core and providers are made of, for kubectl."),
    (preflight, "Say what an upstream's new CRDs would do to what runs."),
):
    app.command(short_help=summary)(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """One Kubernetes API for LLM inference: ModelDeployments, and the providers that run them."""


@app.command()
def version() -> None:
    """Print the version."""
    from airunway import __version__

    typer.echo(f"airunway {__version__}")


@app.command(short_help="Run the core controller.", cls=SwitchCommand)
@options.with_options(options.core, options.common)
def controller(core: options.CoreOptions, common: options.Common) -> None:
    """Run the core controller: admission, validation, engine and provider selection."""
    processes.run(common, core=core)


@app.command("run", short_help="Run the core and every installed provider in one process.", cls=SwitchCommand)
@options.with_options(options.core, options.providers, options.common)
def run_all(
    core: options.CoreOptions,
    given: options.ProviderOptions,
    common: options.Common,
    name: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="The providers' names (default: all installed).")
    ] = None,
) -> None:
    """Run the core and every installed provider, or these, in one process: for a laptop, or a small cluster.

    They share one connection and one cache of deployments. Each leads, registers and fails by itself.
    """
    providers = processes.named(name) if name else processes.installed()
    processes.run(common, core=core, providers=providers, given=given)


@provider.command("run", cls=SwitchCommand)
@options.with_options(options.providers, options.common)
def provider_run(
    given: options.ProviderOptions,
    common: options.Common,
    name: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="The providers' names (their entry points).")
    ] = None,
    *,
    all_: Annotated[bool, typer.Option("--all", help="Run every provider that is installed.")] = False,
) -> None:
    """Run providers: register them, translate their deployments, bring their status back.

    Several run in one process and share what they read; each leads, registers and fails by itself.
    """
    if all_ == bool(name):
        raise typer.BadParameter("name the providers to run, or say --all")
    processes.run(common, providers=processes.installed() if all_ else processes.named(name or []), given=given)


@provider.command("list")
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


provider.command("schema", short_help="Print versions and schema hashes of an upstream's CRD.")(schema)


def main() -> None:
    """The entry point of the `airunway` and `kubectl airunway` commands."""
    name = Path(sys.argv[0]).name
    app(prog_name="kubectl airunway" if name.startswith("kubectl-") else "airunway")
