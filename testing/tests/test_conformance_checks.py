"""``airunway provider check`` where all is well, and where nothing is. Mistakes: test_tutorial.py."""

from typer.testing import CliRunner

from airunway.cli.main import app
from airunway_testing.conformance.checks import fingerprint, problems


def test_the_toy_conforms() -> None:
    assert list(problems("toy")) == []
    assert len(fingerprint("toy")) == 64


def test_a_provider_that_is_not_there_is_one_sentence() -> None:
    done = CliRunner().invoke(app, ["provider", "check", "nosuch"])
    assert (done.exit_code, done.output.count("\n")) == (1, 1)
    assert "no installed distribution provides 'nosuch'" in done.output
