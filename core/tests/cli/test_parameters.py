"""What a command takes of its words without pydantic is what typer makes of them with it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from airunway.cli.main import app
from airunway.cli.parameters import Command, Group

WORDS = (
    "",
    "x",
    "-",
    "json",
    "JSON",
    "text",
    "yaml",
    "off",
    "api",
    "7",
    "-7",
    "1.5",
    "true",
    "a b",
    "ü",
    "a\nb",
    "\udcff",
)


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Our commands and groups, each with its words."""
    if isinstance(command, Command | Group):
        yield " ".join(path), command
    for name in getattr(command, "commands", {}):
        yield from commands(command.get_command(None, name), (*path, name))


ROOT = typer.main.get_command(app)
COMMANDS = dict(commands(ROOT))


def outcome(parameter: Any, value: object, ctx: Any) -> object:
    """The value, or the message of the error, without what pydantic puts before it."""
    try:
        return parameter.process_value(ctx, value)
    except typer.BadParameter as error:
        return str(error).removeprefix("Value error, ")


def test_a_wrong_word_of_a_choice_is_refused_in_plain_words() -> None:
    command = COMMANDS["status"]
    output = next(each for each in command.get_params(typer.Context(command)) if each.name == "output")
    with pytest.raises(typer.BadParameter) as refused:
        output.process_value(typer.Context(command), "josn")
    assert refused.value.message.startswith("'josn' is not one of 'text', 'json'")


def test_all_commands_take_their_words_so() -> None:
    ours = {
        "",
        "status",
        "top",
        "logs",
        "chat",
        "validate",
        "render",
        "explain",
        "diff",
        "run",
        "provider run",
        "template list",
    }
    assert ours <= COMMANDS.keys()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_value_is_that_of_typer(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x").write_text("a file")
    Path("json").mkdir()
    Path("text").write_text("a file that may not be read")
    # Root may read every file.
    monkeypatch.setattr(os, "access", lambda path, _mode: os.fspath(path) != "text")
    command = COMMANDS[name]
    ctx = typer.Context(command)
    for before, after in zip([*command.params, command.get_help_option(ctx)], command.get_params(ctx), strict=True):
        if before.callback is not None:
            continue
        assert (after.name, after.opts, after.default, after.required) == (
            before.name,
            before.opts,
            before.default,
            before.required,
        )
        several = before.multiple or before.nargs == -1
        for word in WORDS:
            value = (word, "x") if several else word
            found, wanted = outcome(after, value, ctx), outcome(before, value, ctx)
            assert (found, type(found)) == (wanted, type(wanted)), (before.name, word)
        for absent in (None, before.default):
            if not before.required:
                assert outcome(after, absent, ctx) == outcome(before, absent, ctx), before.name


def test_click_gets_the_same_parameters_each_time() -> None:
    """It finds the order in which they were given by identity."""
    command = COMMANDS["status"]
    ctx = typer.Context(command)
    assert [id(each) for each in command.get_params(ctx)] == [id(each) for each in command.get_params(ctx)]
