"""Switches as programs written in Go take them: ``--leader-elect=true``, ``--enable-provider-selector=false``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.core import TyperCommand

__all__ = ["SwitchCommand"]

_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})
"""The words of Go's ``strconv.ParseBool``."""


class SwitchCommand(TyperCommand):
    """A command whose switches may be given a value, besides ``--switch`` and ``--no-switch``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        opposites = {
            word: (parameter.secondary_opts or [""])[0]
            for parameter in self.params
            if getattr(parameter, "is_flag", False)
            for word in parameter.opts
        }
        return super().parse_args(ctx, list(_plain(args, opposites)))


def _plain(args: list[str], opposites: dict[str, str]) -> Iterator[str]:
    """The arguments with values of switches as switches; a switch without an opposite is off by being left out."""
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
