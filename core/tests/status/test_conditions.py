from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airunway.redaction import bounded
from airunway.status.conditions import Condition, as_word, change_of, written

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def test_transition_time_moves_only_with_the_status() -> None:
    first = written([Condition(type="Ready", status=False, reason="Progressing")], previous=[], generation=1, now=NOW)
    later = NOW + timedelta(minutes=1)
    other_reason = written(
        [Condition(type="Ready", status=False, reason="Pulling")], previous=first, generation=2, now=later
    )
    assert other_reason[0]["lastTransitionTime"] == first[0]["lastTransitionTime"]
    assert other_reason[0]["observedGeneration"] == 2
    ready = written(
        [Condition(type="Ready", status=True, reason="Ready")], previous=other_reason, generation=2, now=later
    )
    assert ready[0]["lastTransitionTime"] == "2026-11-21T12:01:00Z"


def test_conditions_are_sorted_and_of_one_type_the_last_wins() -> None:
    result = written(
        [
            Condition(type="B", status=True, reason="First"),
            Condition(type="A", status=None, reason="Dunno"),
            Condition(type="B", status=False, reason="Second"),
        ],
        previous=[],
        generation=1,
        now=NOW,
    )
    assert [(c["type"], c["status"], c["reason"]) for c in result] == [
        ("A", "Unknown", "Dunno"),
        ("B", "False", "Second"),
    ]


def test_messages_are_bounded() -> None:
    result = written(
        [Condition(type="A", status=True, reason="R", message="x" * 5000)], previous=[], generation=1, now=NOW
    )
    assert len(result[0]["message"].encode()) == 1024
    assert result[0]["message"].endswith("…")


@pytest.mark.parametrize(
    "text", ["", "\ud800", "x" * 1024, "ü" * 512, "ü" * 513, "…" * 4000, "\ud800" * 2000, "a\U0001f600" * 600]
)
def test_a_message_is_bounded_in_bytes_and_never_broken_within_a_character(text: str) -> None:
    short = bounded(text)
    assert len(short.encode()) <= 1024
    whole = text.encode(errors="replace")
    assert short == whole.decode() if len(whole) <= 1024 else short.endswith("…")


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ("ImageNotFound", "ImageNotFound"),
        ("Some_thing,else:1", "Some_thing,else:1"),
        ("not ready", "NotReady"),
        ("errno-28", "Errno28"),
        ("1st", "st"),
        ("", "Unknown"),
        ("Ä", "Unknown"),
        ("x" * 2000, "X" + "x" * 255),
    ],
)
def test_a_reason_is_a_word_whoever_said_it(said: str, word: str) -> None:
    """The API server refuses any other, and with it the whole status."""
    assert as_word(said) == word
    result = written([Condition(type="A", status=False, reason=said)], previous=[], generation=1, now=NOW)
    assert result[0]["reason"] == word


def test_a_time_that_is_none_is_replaced() -> None:
    broken: list[Any] = [{"type": "A", "status": "True", "lastTransitionTime": "nonsense"}, {"type": 7}, "A"]
    result = written([Condition(type="A", status=True, reason="R")], previous=broken, generation=1, now=NOW)
    assert result[0]["lastTransitionTime"] == "2026-11-21T12:00:00Z"


@pytest.mark.parametrize(
    ("before", "after", "became_true", "is_new_fault"),
    [
        (None, ("True", "Ready"), True, False),
        (("False", "Starting"), ("True", "Ready"), True, False),
        (("True", "Ready"), ("True", "Ready"), False, False),
        (None, ("False", "Starting"), False, False),
        (None, ("False", "InvalidSpec"), False, True),
        (("True", "Ready"), ("False", "InvalidSpec"), False, True),
        (("False", "Forbidden"), ("False", "InvalidSpec"), False, True),
        (("False", "InvalidSpec"), ("False", "InvalidSpec"), False, False),
        (("Unknown", "InvalidSpec"), ("False", "InvalidSpec"), False, True),
        (("False", "InvalidSpec"), ("Unknown", "InvalidSpec"), False, False),
        (("True", "Ready"), None, False, False),
    ],
)
def test_what_is_new_about_a_condition(
    before: tuple[str, str] | None, after: tuple[str, str] | None, became_true: bool, is_new_fault: bool
) -> None:
    def status(state: tuple[str, str] | None) -> dict[str, Any]:
        return {"conditions": [{"type": "Ready", "status": state[0], "reason": state[1]}] if state else []}

    change = change_of({"status": status(before)}, status(after), "Ready")
    assert (change.became_true, change.is_new_fault) == (became_true, is_new_fault)
