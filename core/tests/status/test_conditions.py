from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airunway.status import MESSAGE_LIMIT, Condition, written

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
    assert len(result[0]["message"]) == MESSAGE_LIMIT
    assert result[0]["message"].endswith("…")
