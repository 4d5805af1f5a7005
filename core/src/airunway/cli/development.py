"""The commands for development and tests. They come with `airunway-testing`; the core has their names alone."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

__all__ = ["CommandTree"]

COMMANDS = {
    "controlplane": "A Kubernetes control plane on this machine.",
    "simulate": "Play an upstream operator, for development and tests.",
    "sandbox": "Run all of AI Runway on this machine.",
}


class CommandTree(TyperGroup):
    """The commands of the core, and those of `airunway-testing`, imported when they are first asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        group: Any = typer.main.get_command(_development())
        return group.commands[cmd_name]


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
    app = typer.Typer(rich_markup_mode=None)
    anything = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
    for name, summary in COMMANDS.items():
        app.command(name, short_help=summary, context_settings=anything)(_told(name))
    return app


def _told(name: str) -> Any:
    def tell() -> None:
        typer.echo(f"airunway: `airunway {name}` is not installed: pip install 'airunway[sandbox]'", err=True)
        raise typer.Exit(1)

    return tell
