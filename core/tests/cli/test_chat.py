"""Options of ``airunway chat`` and ``top`` that are refused."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from airunway.cli.chat import LONGEST_PROMPT
from airunway.cli.main import app


@pytest.mark.parametrize(
    ("words", "stdin", "says"),
    [
        (("chat", "md/x", " "), "", "the prompt is empty"),
        (("chat", "md/x"), "", "the prompt is empty"),
        (("chat", "md/x"), "x" * (LONGEST_PROMPT + 1), "the prompt has more than"),
        (("chat", "md/x", "hi", "--timeout", "0s"), "", "--timeout must be longer"),
        (("chat", "md/x", "hi", "--timeout", "soon"), "", "is not a duration"),
        (("chat", "pod/x", "hi"), "", "write md/NAME"),
        (("chat", "md/-rf", "hi"), "", "not a name"),
        (("top", "md/x", "-A"), "", "or use -A"),
        (("top", "--prometheus", "file:///etc/passwd"), "", "needs an http or https URL"),
        (("top", "--window", "0s"), "", "--window must be longer"),
    ],
)
def test_wrong_usage(words: tuple[str, ...], stdin: str, says: str) -> None:
    done = CliRunner().invoke(app, list(words), input=stdin)
    assert done.exit_code == 2
    assert says in " ".join(done.stderr.split())
