"""The SDK's reference page: every name is documented, and every example shows what really comes out."""

from __future__ import annotations

import doctest
from typing import Any

import pytest
from tools.sdk_reference import EXAMPLES, PRELUDE, documented, examples, names, page

SHOWN = examples()


def run(name: str, known: dict[str, Any]) -> str:
    """What differs from what the example shows; the names that it defines are added to `known`."""
    test = doctest.DocTestParser().get_doctest(SHOWN[name], known, name, str(EXAMPLES), 0)
    assert test.examples, f"{name} has no example"
    said: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=said.append, clear_globs=False)
    known.update(test.globs)
    return "".join(said)


@pytest.mark.parametrize("name", [name for name in SHOWN if name != PRELUDE])
def test_the_example_shows_what_comes_out(name: str) -> None:
    known: dict[str, Any] = {"__name__": "example"}
    assert run(PRELUDE, known) == ""
    assert run(name, known) == ""


@pytest.mark.parametrize("name", names())
def test_every_name_has_a_docstring_and_an_example_that_uses_it(name: str) -> None:
    assert documented(name).doc, f"{name} has no docstring where it is defined"
    assert name in SHOWN, f"{name} has no example in tools/sdk_examples.txt"
    assert name in SHOWN[name], f"the example of {name} does not use it"


def test_no_example_is_for_a_name_that_is_gone() -> None:
    assert {*SHOWN} - {PRELUDE} - {*names()} == set()


def test_an_example_that_shows_something_else_is_found() -> None:
    SHOWN["wrong"] = ">>> 1 + 1\n3\n"
    try:
        assert "Expected:" in run("wrong", {})
    finally:
        del SHOWN["wrong"]


def test_the_page_has_a_signature_for_every_name() -> None:
    text = page()
    for name in names():
        assert f"### `{name}`\n\n```python\n" in text
    assert "engine_arguments(\n    deployment: ModelDeployment,\n    *,\n    engine: str,\n" in text
    assert "    deletion: Literal['Background', 'Foreground'] = 'Background'\n" in text
