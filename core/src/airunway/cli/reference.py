"""The reference page of the command line, out of the commands themselves: ``python -m airunway.cli.reference``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import typer

from airunway.cli.main import app

__all__ = ["Command", "Option", "commands", "page"]


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option: its spellings, those of its opposite (``--no-…``; empty if it has none), its help and its default."""

    spellings: tuple[str, ...]
    opposite: tuple[str, ...]
    help: str
    default: str


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command that can be run: its words, its usage, what it says of itself, and its options that are shown."""

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


def page() -> str:
    """The page as Markdown."""
    parts = [
        "# The command line",
        "",
        "Written by `python -m airunway.cli.reference`; `airunway COMMAND --help` says the same.",
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
    typer.echo(page(), nl=False)
