"""Write docs/reference/cli.md: every command and option, from the commands themselves.

python -m tools.cli_page [--check]
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import click
from tools.generated import write

from airunway.cli.main import app

__all__ = ["Command", "Option", "commands", "generated"]

PAGE = "docs/reference/cli.md"


@dataclass(frozen=True, kw_only=True)
class Option:
    """A documented option."""

    spellings: tuple[str, ...]
    opposite: tuple[str, ...]
    """Spellings of ``--no-…``; empty if there are none."""
    help: str
    default: str


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command that can be run, with the options that its help shows."""

    name: str
    usage: str
    help: str
    options: tuple[Option, ...]


def commands() -> Iterator[Command]:
    """Every command, those of groups one by one, in the order of the help."""
    yield from _commands(app, ())


def _commands(command: click.Command, path: tuple[str, ...]) -> Iterator[Command]:
    context = click.Context(command)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if (found := command.get_command(context, name)) is not None:
                yield from _commands(found, (*path, name))
        return
    words = [(each.human_readable_name, each.required) for each in command.params if isinstance(each, click.Argument)]
    arguments = [word if required else f"[{word}]" for word, required in words]
    options = tuple(_option(each) for each in command.params if isinstance(each, click.Option) and not each.hidden)
    yield Command(
        name=" ".join(path),
        usage=" ".join(["airunway", *path, *arguments, *(["[OPTIONS]"] if options else [])]),
        help=inspect.cleandoc(command.help or ""),
        options=options,
    )


def _option(option: click.Option) -> Option:
    default = option.to_info_dict()["default"]
    shown = "" if default in (None, "", False, ()) else "true" if default is True else str(default)
    return Option(
        spellings=tuple(option.opts),
        opposite=tuple(option.secondary_opts),
        help=option.help or "",
        default=shown,
    )


def generated() -> dict[str, str]:
    """The page's text by its path from the root."""
    return {PAGE: _page()}


def _page() -> str:
    parts = [
        "# The command line",
        "",
        "Generated from the commands; `airunway COMMAND --help` shows the same.",
    ]
    for command in commands():
        parts += ["", f"## airunway {command.name}", "", f"`{command.usage}`", "", command.help]
        if command.options:
            parts += ["", "| option | default | |", "|---|---|---|"]
        for option in command.options:
            words = ", ".join(f"`{spelling}`" for spelling in (*option.spellings, *option.opposite))
            default = f"`{option.default}`" if option.default else ""
            parts.append(f"| {words} | {default} | {option.help.replace('|', chr(92) + '|')} |")
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.exit(write(generated()))
