"""Write docs/reference/cli.md: every command and option, from the commands themselves.

python -m tools.cli_page [--check]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import typer
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
    yield from _commands(typer.main.get_command(app), ())


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[Command]:
    if hasattr(command, "commands"):
        for name in command.list_commands(None):
            yield from _commands(command.get_command(None, name), (*path, name))
        return
    words = [(p.metavar or p.name.upper(), p.required) for p in command.params if _is(p, "argument")]
    arguments = [word if required else f"[{word}]" for word, required in words]
    options = tuple(_option(p) for p in command.params if _is(p, "option"))
    yield Command(
        name=" ".join(path),
        usage=" ".join(["airunway", *path, *arguments, *(["[OPTIONS]"] if options else [])]),
        help=(command.help or "").strip(),
        options=options,
    )


def _is(parameter: Any, kind: str) -> bool:
    return parameter.param_type_name == kind and not getattr(parameter, "hidden", False)


def _option(parameter: Any) -> Option:
    default = parameter.default
    shown = "" if default in (None, "", False, (), []) else "true" if default is True else str(default)
    return Option(
        spellings=tuple(parameter.opts),
        opposite=tuple(parameter.secondary_opts),
        help=parameter.help or "",
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
