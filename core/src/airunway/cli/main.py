"""Builds the command tree."""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from airunway.cli.parameters import Command, Group, SwitchCommand

_DEVELOPMENT = {
    "controlplane": "A Kubernetes control plane on this machine: no root, no Docker.",
    "simulate": "Play an upstream operator, for development and tests.",
    "sandbox": "Run all of AI Runway on this machine.",
}
_DEVELOPMENT_OF_PROVIDERS = {
    "new": "Write the skeleton of a provider that runs.",
    "check": "Say what is wrong with an installed provider.",
}
"""Commands for development and tests, with their help, the second ones below ``airunway provider``; the distribution
`airunway-testing` has them.
"""

_ADDONS = {"catalogue": "Run the catalogue."}
"""Commands of add-ons, with their help; the distribution `airunway-NAME` has each."""

_COLLECTED_AFTER = 10_000
"""Additional containers after which the garbage collector runs: with Python's 700 it does so a hundred times while a
command is imported, walks what stays, and finds next to nothing (a fifteenth of the time of `airunway status`).
"""


@dataclass(frozen=True, kw_only=True)
class _Command:
    """A command that is imported when it is called; its function has the command's name."""

    module: str
    """Module below `airunway.cli`."""
    summary: str
    """What lists of commands say of it."""
    function: str = ""
    """Function of the module, if it has not the command's name."""
    cls: type[Command] | str = Command
    """Class that parses its words; a text is the name of a class of the module."""


_COMMANDS = {
    "crds": _Command(module="crds", summary="Print the CustomResourceDefinitions as YAML."),
    "validate": _Command(module="validate", summary="Check manifests as the API server would, without one."),
    "explain": _Command(module="explain", summary="Show why a deployment gets its engine and provider."),
    "diff": _Command(module="diff", summary="Show what an edit would create, update, restart or recreate."),
    "fit": _Command(module="fit", summary="Show whether a model fits on the GPUs, with every term."),
    "new": _Command(module="new", summary="Print a manifest for a model; writes nothing."),
    "render": _Command(module="render", summary="Print what a provider would create, without a cluster."),
    "doctor": _Command(module="doctor", summary="Check an installation: what is wrong, and what to do."),
    "install": _Command(module="install", summary="Install CRDs, core and providers with helm."),
    "upgrade": _Command(module="install", summary="Upgrade the installed releases with helm."),
    "uninstall": _Command(module="install", summary="Uninstall core and providers; models stay."),
    "manifests": _Command(module="install", summary="Print the manifests of core and providers, for kubectl."),
    "preflight": _Command(module="preflight", summary="Show what an upstream's new CRDs would do to deployments."),
    "status": _Command(
        module="status",
        summary="Show how a deployment is doing, and which part is at fault.",
        cls="StatusCommand",
    ),
    "logs": _Command(module="logs", summary="Print the logs of all containers of a deployment, crashed ones included."),
    "chat": _Command(module="chat", summary="Ask a deployment's model, and show how fast it answers."),
    "top": _Command(module="top", summary="Show how busy deployments are, from their engines' metrics."),
    "completion": _Command(module="completion", summary="Print a script that completes words in bash, zsh or fish."),
}
_PROCESSES = {
    "controller": _Command(module="run", summary="Run the core controller.", cls=SwitchCommand),
    "run": _Command(
        module="run",
        summary="Run the core and every installed provider in one process.",
        cls=SwitchCommand,
    ),
}
_GROUPS = {
    "template": _Command(
        module="template", summary="List model templates, and show what they give and which one is chosen."
    )
}
_COMMANDS_OF_PROVIDERS = {
    "run": _Command(
        module="run",
        summary="Run providers: register them, translate their deployments, report their status.",
        function="provider_run",
        cls=SwitchCommand,
    ),
    "list": _Command(module="run", summary="The provider plugins that are installed.", function="provider_list"),
    "schema": _Command(module="crds", summary="Print versions and schema hashes of an upstream's CRD."),
}


@cache
def _imported(name: str, command: _Command) -> Any:
    """The command as typer makes it of its function, or group of commands."""
    module = import_module(f"airunway.cli.{command.module}")
    found = getattr(module, command.function or name)
    cls = getattr(module, command.cls) if isinstance(command.cls, str) else command.cls
    return _made(name, found, short_help=command.summary, cls=cls)


@cache
def _borrowed(path: tuple[str, ...]) -> Any:
    """The command of another distribution; if that is not installed, one that prints what to install."""
    from importlib.metadata import entry_points

    provided_by = path[0] if path[0] in _ADDONS else "development"
    found = next(iter(entry_points(group="airunway.commands", name=provided_by)), None)
    if found is None:
        return _not_installed(path, install=f"airunway-{path[0]}" if path[0] in _ADDONS else "'airunway[sandbox]'")
    command: Any = typer.main.get_command(found.load())
    for word in path if provided_by == "development" else ():
        command = command.commands[word]
    return command


def _not_installed(path: tuple[str, ...], *, install: str) -> Any:
    def command() -> None:
        typer.echo(f"airunway: `airunway {' '.join(path)}` is not installed: pip install {install}", err=True)
        raise typer.Exit(1)

    # It takes all arguments, so that it always prints what to install.
    anything = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
    return _made(path[-1], command, context_settings=anything)


def _made(name: str, found: Any, **settings: Any) -> Any:
    above = typer.Typer(rich_markup_mode=None)
    if isinstance(found, typer.Typer):
        above.add_typer(found, name=name)
    else:
        above.command(name, **settings)(found)
    return typer.main.get_group(above).commands[name]


class CommandTree(Group):
    """Our commands, and those of `airunway-testing` and of add-ons, each of which is imported when it is called.

    `commands` has a placeholder of each with its summary, for lists and for suggestions after a typing error.
    """

    own: Mapping[str, _Command] = _COMMANDS | _PROCESSES | _GROUPS
    borrowed: Mapping[str, str] = _DEVELOPMENT | _ADDONS
    within: tuple[str, ...] = ()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in self.own:
            return _imported(cmd_name, self.own[cmd_name])
        if cmd_name in self.borrowed:
            return _borrowed((*self.within, cmd_name))
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list of commands, for which none is imported."""
        TyperGroup(commands=dict(self.commands)).format_commands(ctx, formatter)


class ProviderTree(CommandTree):
    """The commands of ``airunway provider``, including those of `airunway-testing`."""

    own = _COMMANDS_OF_PROVIDERS
    borrowed = _DEVELOPMENT_OF_PROVIDERS
    within = ("provider",)


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
for name, entry in _GROUPS.items():
    app.add_typer(typer.Typer(help=entry.summary), name=name)
for name, entry in _COMMANDS.items():
    app.command(name, short_help=entry.summary)(lambda: None)


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


@app.command(cls=Command)
def version() -> None:
    """Print the version."""
    from airunway import __version__

    typer.echo(f"airunway {__version__}")


for name, entry in _PROCESSES.items():
    app.command(name, short_help=entry.summary)(lambda: None)
for name, entry in _COMMANDS_OF_PROVIDERS.items():
    provider.command(name, short_help=entry.summary)(lambda: None)
for tree, borrowed in ((provider, _DEVELOPMENT_OF_PROVIDERS), (app, CommandTree.borrowed)):
    for name, summary in borrowed.items():
        tree.add_typer(typer.Typer(help=summary), name=name)


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
