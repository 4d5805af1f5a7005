"""What commands take of their words, what help shows of options, and what a wrong word is told."""

from __future__ import annotations

import inspect
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from airunway.cli.main import app
from airunway.cli.parameters import DIRECTORY, PATH, Argument, Command, Group, IntRange, Option, argument, option


@click.command(cls=Command)
@argument("names", nargs=-1, required=True, metavar="NAME", help="Names.")
@option("file", "--filename", "-f", multiple=True, type=PATH, help="Files.")
@option("--folder", type=DIRECTORY, envvar="A_FOLDER", help="A folder.")
@option("--count", default=3, type=IntRange(min=1, max=5), help="How many.")
@option("--output", default="text", type=click.Choice(["text", "json"]), help="Format.")
@option("--word", default="", help="A word.")
@option("--on/--off", default=None, help="A switch.")
def example(**given: object) -> None:
    """An example."""
    click.echo(repr(sorted(given.items())))


def ran(*words: str) -> tuple[int, str]:
    done = CliRunner(env={"A_FOLDER": "/nowhere"}).invoke(example, list(words))
    return done.exit_code, done.output


def test_help_shows_types_defaults_bounds_and_environment_variables() -> None:
    code, shown = ran("--help")
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert code == 0
    assert lines[0] == "Usage: example [OPTIONS] {NAME}..."
    assert lines[lines.index("Arguments:") + 1] == "NAME <list[str]> Names. [required]"
    for line in (
        "-f, --filename <list[path]> Files.",
        "--folder <path> A folder. [env var: A_FOLDER]",
        "--count <int range> How many. [default: 3; 1<=x<=5]",
        "--output <text|json> Format. [default: text]",
        "--word <str> A word.",
        "--on / --off A switch.",
    ):
        assert line in lines


def test_words_become_values() -> None:
    wanted = {
        "count": 4,
        "file": (Path("x"),),
        "folder": Path("/nowhere"),
        "names": ("a", "b"),
        "on": False,
        "output": "text",
        "word": "",
    }
    assert ran("a", "b", "-f", "x", "--count", "4", "--off") == (0, f"{sorted(wanted.items())}\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "Missing argument 'NAME'."),
        (["a", "--count", "x"], "Invalid value for '--count': 'x' is not a valid integer."),
        (["a", "--count", "6"], "Invalid value for '--count': 6 is not in the range 1<=x<=5."),
        (["a", "--output", "josn"], "Invalid value for '--output': 'josn' is not one of 'text', 'json'."),
        (["a", "--folder", __file__], "is a file."),
        (["a", "--on=maybe"], "Option '--on' does not take a value."),
        (["a", "--wird", "x"], "No such option '--wird'."),
    ],
)
def test_a_wrong_word_ends_with_2_and_a_sentence(words: list[str], says: str) -> None:
    code, shown = ran(*words)
    assert code == 2
    assert says in shown


def test_an_interrupted_command_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(app), "get_command", lambda *_: interrupted)
    assert CliRunner().invoke(app, ["version"]).exit_code == 130


@click.command
def interrupted() -> None:
    raise KeyboardInterrupt


def test_the_parameters_of_every_command_are_ours_and_those_of_its_function() -> None:
    """Parameters of other classes would be shown in help, and completed, in another way."""
    seen = 0
    waiting: list[click.Command] = [app]
    while waiting:
        command = waiting.pop()
        context = click.Context(command)
        assert isinstance(command, Command | Group), command
        for parameter in command.params:
            assert isinstance(parameter, Option | Argument), (command, parameter)
            seen += 1
        if command.callback is not None and not hasattr(command.callback, "__wrapped__"):  # else by `with_options`
            names = {parameter.name for parameter in command.params if parameter.expose_value}
            assert set(inspect.signature(command.callback).parameters) == names, command
        if isinstance(command, click.Group):
            waiting += filter(None, (command.get_command(context, name) for name in command.list_commands(context)))
    assert seen > 250
