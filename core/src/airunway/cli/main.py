"""Builds the command tree."""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import click

from airunway.cli.parameters import Command, Group, option

_COMMANDS = {
    "crds": ("crds:crds", "Print the CustomResourceDefinitions as YAML."),
    "validate": ("validate:validate", "Check manifests as the API server would, without one."),
    "explain": ("explain:explain", "Show why a deployment gets its engine and provider."),
    "diff": ("diff:diff", "Show what an edit would create, update, restart or recreate."),
    "fit": ("fit:fit", "Show whether a model fits on the GPUs, with every term."),
    "new": ("new:new", "Print a manifest for a model; writes nothing."),
    "render": ("render:render", "Print what a provider would create, without a cluster."),
    "doctor": ("doctor:doctor", "Check an installation: what is wrong, and what to do."),
    "install": ("install:install", "Install CRDs, core and providers with helm."),
    "upgrade": ("install:upgrade", "Upgrade the installed releases with helm."),
    "uninstall": ("install:uninstall", "Uninstall core and providers; models stay."),
    "manifests": ("install:manifests", "Print the manifests of core and providers, for kubectl."),
    "preflight": ("preflight:preflight", "Show what an upstream's new CRDs would do to deployments."),
    "status": ("status:status", "Show how a deployment is doing, and which part is at fault."),
    "logs": ("logs:logs", "Print the logs of all containers of a deployment, crashed ones included."),
    "chat": ("chat:chat", "Ask a deployment's model, and show how fast it answers."),
    "top": ("top:top", "Show how busy deployments are, from their engines' metrics."),
    "completion": ("completion:completion", "Print a script that completes words in bash, zsh or fish."),
    "version": ("main:version", "Print the version."),
    "controller": ("run:controller", "Run the core controller."),
    "run": ("run:run", "Run the core and every installed provider in one process."),
    "provider": ("main:provider", "Run, inspect and write provider plugins."),
    "template": ("template:template", "List model templates, and show what they give and which one is chosen."),
}
_COMMANDS_OF_PROVIDERS = {
    "run": (
        "run:provider_run",
        "Run providers: register them, translate their deployments, report their status.",
    ),
    "list": ("run:provider_list", "The provider plugins that are installed."),
    "schema": ("crds:schema", "Print versions and schema hashes of an upstream's CRD."),
}
"""Where each command is, as MODULE:NAME below `airunway.cli`, and what lists of commands say of it."""

_DEVELOPMENT = {
    "controlplane": "A Kubernetes control plane on this machine: no root, no Docker.",
    "simulate": "Play an upstream operator, for development and tests.",
    "sandbox": "Run all of AI Runway on this machine.",
}
_DEVELOPMENT_OF_PROVIDERS = {
    "new": "Write the skeleton of a provider that runs.",
    "check": "Say which rules of the contract an installed provider breaks.",
}
"""Commands for development and tests, with their help, the second ones below ``airunway provider``; the distribution
`airunway-testing` has them.
"""

_ADDONS = {
    "catalogue": "Run the catalogue.",
    "ui": "Open the page: what runs and why not, ask, deploy, edit.",
}
"""Commands of add-ons, with their help; the distribution `airunway-NAME` has each."""

_COLLECTED_AFTER = 10_000
"""Additional containers after which the garbage collector runs: with Python's 700 it does so a hundred times while a
command is imported, walks what stays, and finds next to nothing (a fifteenth of the time of `airunway status`).
"""


@cache
def _imported(place: str) -> click.Command:
    from pkgutil import resolve_name

    found = resolve_name(f"airunway.cli.{place}")
    assert isinstance(found, click.Command)
    return found


@cache
def _borrowed(path: tuple[str, ...]) -> click.Command:
    """The command of another distribution; if that is not installed, one that prints what to install."""
    from importlib.metadata import entry_points

    provided_by = path[0] if path[0] in _ADDONS else "development"
    found = next(iter(entry_points(group="airunway.commands", name=provided_by)), None)
    if found is None:
        return _not_installed(path, install=f"airunway-{path[0]}" if path[0] in _ADDONS else "'airunway[sandbox]'")
    command: click.Command = found.load()
    for word in path if provided_by == "development" else ():
        assert isinstance(command, click.Group)
        command = command.commands[word]
    return command


def _not_installed(path: tuple[str, ...], *, install: str) -> click.Command:
    def missing() -> None:
        click.echo(f"airunway: `airunway {' '.join(path)}` is not installed: pip install {install}", err=True)
        raise click.exceptions.Exit(1)

    # It takes all arguments, so that it always prints what to install.
    anything = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
    return Command(path[-1], callback=missing, context_settings=anything)


class CommandTree(Group):
    """Our commands, and those of `airunway-testing` and of add-ons, each of which is imported when it is called.

    `commands` has a placeholder of each with its summary, for lists and for suggestions after a typing error.
    """

    def __init__(
        self,
        name: str,
        *,
        own: Mapping[str, tuple[str, str]],
        borrowed: Mapping[str, str],
        within: tuple[str, ...] = (),
        **settings: Any,
    ) -> None:
        summaries = {each: summary for each, (_, summary) in own.items()} | dict(borrowed)
        placeholders: dict[str, click.Command] = {
            each: Command(each, short_help=summary) for each, summary in summaries.items()
        }
        super().__init__(name, commands=placeholders, no_args_is_help=True, **settings)
        self._own, self._borrowed, self._within = own, borrowed, within

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self._own:
            return _imported(self._own[cmd_name][0])
        return _borrowed((*self._within, cmd_name)) if cmd_name in self._borrowed else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, for which none is imported."""
        Group(commands=self.commands).format_commands(ctx, formatter)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(130) from None


@click.command(cls=Command)
def version() -> None:
    """Print the version."""
    from airunway import __version__

    click.echo(f"airunway {__version__}")


def _print_version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        ctx.invoke(version)
        ctx.exit()


provider = CommandTree(
    "provider",
    own=_COMMANDS_OF_PROVIDERS,
    borrowed=_DEVELOPMENT_OF_PROVIDERS,
    within=("provider",),
    help=_COMMANDS["provider"][1],
)


@click.command(
    "airunway",
    cls=CommandTree,
    own=_COMMANDS,
    borrowed=_DEVELOPMENT | _ADDONS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version."
)
def app() -> None:
    """One Kubernetes API for LLM inference: ModelDeployments, and the providers that run them."""


def main() -> None:
    """The entry point of the `airunway` and `kubectl airunway` commands."""
    gc.set_threshold(_COLLECTED_AFTER)
    if sys.argv[1:2] == ["__complete"]:
        from airunway.cli.completion import complete

        complete(app, sys.argv[2:])
        return
    name = Path(sys.argv[0]).name
    app(prog_name="kubectl airunway" if name.startswith("kubectl-") else "airunway")


def kubectl_complete() -> None:
    """The entry point ``kubectl_complete-airunway``, which kubectl calls to complete ``kubectl airunway``."""
    from airunway.cli.completion import complete

    complete(app, sys.argv[1:])
