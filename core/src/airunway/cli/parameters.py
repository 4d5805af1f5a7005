"""Classes of commands: their parameters take plain words as they are, without pydantic.

Typer converts every word with pydantic, and its import is a fifth of the time that a command such as `airunway status`
needs. Texts, files and words of a choice need no conversion: only what does, or is wrong, is left to typer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from typer import BadParameter
from typer.core import TyperCommand, TyperGroup


class Command(TyperCommand):
    """A command with such parameters."""

    def get_params(self, ctx: Any) -> list[Any]:
        return [_plain(each) for each in super().get_params(ctx)]


class Group(TyperGroup):
    """A group of commands with such options."""

    def get_params(self, ctx: Any) -> list[Any]:
        return [_plain(each) for each in super().get_params(ctx)]


_PYDANTIC = "Value error, "
"""What pydantic puts before the message of a wrong value."""

_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})
"""The values that Go's ``strconv.ParseBool`` accepts."""


class SwitchCommand(Command):
    """A command that also accepts switches in Go's notation: ``--leader-elect=true``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        opposites = {
            word: (parameter.secondary_opts or [""])[0]
            for parameter in self.params
            if getattr(parameter, "is_flag", False)
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


@dataclass(frozen=True)
class _Conversion:
    """Takes a word as it is, or has typer convert it."""

    descriptor: Any
    """What typer knows of the parameter's type."""
    typers: Callable[[], Any]
    """Returns typer's conversion, which imports pydantic."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        found = _as_is(value, self.descriptor.annotation, any_path=self.descriptor.path_type == "path")
        if found is not None:
            return found
        try:
            return self.typers().coerce(value, param=param, ctx=ctx)
        except BadParameter as error:
            error.message = error.message.removeprefix(_PYDANTIC)
            raise


def _as_is(value: object, annotation: object, *, any_path: bool) -> object:
    """The value of a word, or the values of several; None if it has to be converted or refused.

    With `any_path` a path may be a file or a folder.
    """
    if get_origin(annotation) is list and isinstance(value, list | tuple):
        found = [_as_is(each, *get_args(annotation), any_path=any_path) for each in value]
        return None if None in found else found
    if not isinstance(value, str) or not value.isprintable():
        return None
    if annotation is str or (get_origin(annotation) is Literal and value in get_args(annotation)):
        return value
    if annotation is Path and any_path and (os.access(value, os.R_OK) or not os.path.exists(value)):
        return Path(value)
    return None


@cache  # click compares parameters by identity
def _plain(parameter: Any) -> Any:
    """The same parameter, with `_Conversion`; as it is if this release of typer describes types otherwise.

    Before typer 0.25 nothing asks for a conversion, and nothing imports pydantic.
    """
    descriptor = getattr(parameter, "type_descriptor", None)
    if descriptor is None:
        return parameter
    made = copy(parameter)
    made.get_runtime_param = lambda: _Conversion(descriptor, parameter.get_runtime_param)
    return made
