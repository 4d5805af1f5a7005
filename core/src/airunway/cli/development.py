"""The commands for development and tests. They come with `airunway-testing`; the core has their names alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer
from typer.core import TyperGroup

__all__ = ["CommandTree", "ProviderTree"]

COMMANDS = {
    "controlplane": "A Kubernetes control plane on this machine.",
    "simulate": "Play an upstream operator, for development and tests.",
    "sandbox": "Run all of AI Runway on this machine.",
}
OF_PROVIDERS = {
    "new": "Write the skeleton of a provider that runs.",
    "check": "Say what is wrong with an installed provider.",
}
"""Commands of ``airunway provider`` for those who write one."""


class CommandTree(TyperGroup):
    """The commands of the core, and those of `airunway-testing`, imported when they are first asked for."""

    borrowed: Mapping[str, str] = COMMANDS
    within: tuple[str, ...] = ()

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *self.borrowed]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.borrowed:
            return super().get_command(ctx, cmd_name)
        command: Any = typer.main.get_command(_development())
        for word in (*self.within, cmd_name):
            command = command.commands[word]
        return command


class ProviderTree(CommandTree):
    """The same for ``airunway provider``."""

    borrowed = OF_PROVIDERS
    within = ("provider",)


def _development() -> typer.Typer:
    """The commands as they are, or, where their distribution is not installed, as ones that say what to install."""
    try:
        from airunway_testing.cli import app
    except ModuleNotFoundError as error:
        if error.name != "airunway_testing":
            raise
        return _missing()
    return app


def _missing() -> typer.Typer:
    app, provider = (typer.Typer(rich_markup_mode=None) for _ in range(2))
    app.add_typer(provider, name="provider")
    anything = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
    for group, commands, words in ((app, COMMANDS, ""), (provider, OF_PROVIDERS, "provider ")):
        for name, summary in commands.items():
            group.command(name, short_help=summary, context_settings=anything)(_told(f"{words}{name}"))
    return app


def _told(name: str) -> Any:
    def tell() -> None:
        typer.echo(f"airunway: `airunway {name}` is not installed: pip install 'airunway[sandbox]'", err=True)
        raise typer.Exit(1)

    return tell
