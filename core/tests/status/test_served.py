"""The record that a deployment has served: when it is written, what it says, when it no longer counts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from airunway.resource import Resource, format_time
from airunway.status.conditions import served_before, served_record

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def status(record: Resource | None) -> Resource:
    return {"conditions": [record] if record else []}


def record(*, generation: int = 1, at: datetime = NOW) -> Resource:
    found = served_record(None, ready=True, generation=generation, now=at)
    assert found is not None
    return found


def test_it_is_written_with_the_first_readiness_and_stays_through_everything_after() -> None:
    assert served_record(None, ready=False, generation=1, now=NOW) is None
    first = record()
    assert (first["type"], first["status"], first["lastTransitionTime"]) == ("Served", "True", format_time(NOW))
    later = NOW + timedelta(hours=1)
    assert served_record(first, ready=False, generation=2, now=later) == first
    again = served_record(first, ready=True, generation=2, now=later)
    assert again == first | {"observedGeneration": 2}


@pytest.mark.parametrize(
    "broken",
    [{"lastTransitionTime": "nonsense"}, {"reason": ""}, {"message": None}, {"observedGeneration": "1"}],
    ids=lambda broken: next(iter(broken)),
)
@pytest.mark.parametrize("ready", [True, False])
def test_what_of_it_nobody_can_read_is_written_anew(broken: Resource, ready: bool) -> None:
    assert served_record({**record(), **broken}, ready=ready, generation=1, now=NOW) == record()
    without = {key: value for key, value in record().items() if key not in broken}
    assert served_record(without, ready=ready, generation=1, now=NOW) == record()


@pytest.mark.parametrize(
    ("made", "counts"),
    [(None, True), (NOW - timedelta(hours=1), True), (NOW, True), (NOW + timedelta(seconds=1), False)],
)
def test_it_counts_for_the_object_that_served_and_for_no_later_one(made: datetime | None, counts: bool) -> None:
    assert (served_before(status(record()), created=made) is not None) == counts


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"conditions": None},
        {"conditions": [{"type": "Served", "status": "False"}]},
        {"conditions": [{"type": "Ready", "status": "True"}]},
        {"conditions": ["Served"]},
    ],
)
def test_nothing_else_is_taken_for_it(found: Resource) -> None:
    assert served_before(found, created=None) is None


def test_a_generation_that_is_no_number_is_written_anew() -> None:
    before = {"type": "Served", "status": "True", "observedGeneration": False}
    record = served_record(before, ready=False, generation=3, now=datetime(2026, 1, 1, tzinfo=UTC))
    assert record is not None
    assert record["observedGeneration"] == 3
    assert type(record["observedGeneration"]) is int
