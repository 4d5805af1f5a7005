"""Commands, options and arguments: what help shows of them, and which words a shell completes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)
"""A file or folder, which need not exist."""
DIRECTORY = click.Path(path_type=Path, file_okay=False)
"""A folder, which need not exist."""

_TYPES = {"text": "str", "integer": "int range", "directory": "path"}
"""Names of types in help, where they differ from click's."""

_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})
"""The values that Go's ``strconv.ParseBool`` accepts."""


class IntRange(click.IntRange):
    """An integer within bounds."""

    name = "integer"
    """What the message of a wrong word calls it."""


def _type_of(parameter: click.Parameter) -> str:
    """The type of a parameter in help, such as ``<int range>``, ``<json|yaml>`` or ``<list[path]>``."""
    kind = parameter.type
    name = "|".join(kind.choices) if isinstance(kind, click.Choice) else _TYPES.get(kind.name, kind.name)
    return f"<list[{name}]>" if parameter.multiple or parameter.nargs == -1 else f"<{name}>"


class Option(click.Option):
    """An option whose help has its type after its name."""

    def make_metavar(self, ctx: click.Context) -> str:
        return self.metavar or _type_of(self)


class Argument(click.Argument):
    """An argument with a metavar, whose help has its type after it."""

    def make_metavar(self, ctx: click.Context) -> str:
        name = f"{{{self.human_readable_name}}}" if self.required else f"[{self.human_readable_name}]"
        return f"{name}..." if self.nargs == -1 else name

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        suffix = "  [required]" if self.required else ""
        return f"{self.human_readable_name} {_type_of(self)}", f"{self.help}{suffix}"

    def get_error_hint(self, ctx: click.Context | None) -> str:
        return f"'{self.human_readable_name}'"


def option(*declarations: str, help: str, **settings: Any) -> Callable[[F], F]:
    """A decorator that adds an option; one that takes a text is empty without one.

    Help shows its environment variable, and its default unless that is empty.
    """
    if not settings.keys() & {"default", "is_flag", "multiple", "required", "type"}:
        settings["default"] = ""
    shown = settings.get("default") not in (None, "")
    return click.option(*declarations, cls=Option, help=help, show_default=shown, show_envvar=True, **settings)


def argument(name: str, *, metavar: str, help: str, **settings: Any) -> Callable[[F], F]:
    """A decorator that adds an argument."""
    return click.argument(name, cls=Argument, metavar=metavar, help=help, **settings)


class Command(click.Command):
    """A command."""

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if found := [each.get_help_record(ctx) for each in self.params if isinstance(each, Argument)]:
            with formatter.section("Arguments"):
                formatter.write_dl(found)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Long options only, in alphabetical order."""
        found = super().shell_complete(ctx, incomplete)
        long = (each for each in found if each.value.startswith("--") and each.value != "--help")
        return sorted(long, key=lambda each: each.value)


class Group(click.Group):
    """Commands in the order in which they were added."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, found, rest = super().resolve_command(ctx, args)
        return name, found or Command(name), rest  # a shell completes nothing after an unknown command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return [
            CompletionItem(name, help=(each.short_help or each.help or "").partition("\n")[0])
            for name, each in self.commands.items()
            if name.startswith(incomplete)
        ]


class SwitchCommand(Command):
    """A command that also accepts switches in Go's notation: ``--leader-elect=true``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        opposites = {
            word: (parameter.secondary_opts or [""])[0]
            for parameter in self.params
            if isinstance(parameter, Option) and parameter.is_flag
            for word in parameter.opts
        }
        return super().parse_args(ctx, list(_as_switches(args, opposites)))


def _as_switches(args: list[str], opposites: dict[str, str]) -> Iterator[str]:
    """The arguments with ``--switch=true`` as ``--switch``; ``=false`` is the opposite, or leaves the switch out."""
    for position, argument in enumerate(args):
        if argument == "--":
            yield from args[position:]
            return
        word, _, value = argument.partition("=")
        if word in opposites and value in _TRUE:
            yield word
        elif word in opposites and value in _FALSE:
            yield from filter(None, [opposites[word]])
        else:
            yield argument
