"""``Available`` of an InferenceProviderConfig: what the core makes of a provider's word and of its silence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from airunway.controller.provider_configs import availability
from airunway.resource import Resource, format_time
from airunway.selection.facts import STALE_AFTER
from airunway.status.conditions import Condition, written

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
STOPPED = {"type": "Ready", "status": "False", "reason": "Leaving", "message": "The provider was stopped"}


def config(*, ready: bool = True, heartbeat: datetime | None = NOW, conditions: tuple[Resource, ...] = ()) -> Resource:
    status: Resource = {"ready": ready, "conditions": list(conditions)}
    if heartbeat is not None:
        status["lastHeartbeat"] = format_time(heartbeat)
    return {"metadata": {"name": "p"}, "status": status}


def judged(found: Resource, silence: timedelta | None) -> tuple[bool | None, str]:
    condition = availability(found, silence=silence)
    return condition.status, condition.reason


@pytest.mark.parametrize(
    ("found", "silence", "said"),
    [
        (config(), timedelta(), (True, "Ready")),
        (config(), STALE_AFTER - SECOND, (True, "Ready")),
        (config(), STALE_AFTER, (False, "HeartbeatMissing")),
        (config(ready=False, conditions=(STOPPED,)), timedelta(), (False, "Leaving")),
        (config(ready=False), timedelta(), (False, "NotReady")),
        (config(heartbeat=None), None, (True, "Ready")),
        (config(heartbeat=None, ready=False), None, (False, "NotReady")),
    ],
)
def test_ready_follows_the_heartbeat(found: Resource, silence: timedelta | None, said: tuple[bool | None, str]) -> None:
    assert judged(found, silence) == said


def with_condition(found: Resource, condition: Condition) -> Resource:
    entries = written([condition], previous=[], generation=1, now=NOW)
    return {**found, "status": {**found["status"], "conditions": entries}}


def test_what_is_said_stays_the_same_until_something_changes() -> None:
    """Or every heartbeat, and every look at a silent provider, would cost a write."""
    assert availability(config(), silence=SECOND) == availability(config(heartbeat=NOW + SECOND), silence=2 * SECOND)
    assert availability(config(), silence=STALE_AFTER) == availability(config(), silence=10 * STALE_AFTER)


def test_a_core_that_starts_anew_does_not_take_a_silent_provider_for_one_that_is_back() -> None:
    """It has seen no heartbeat change yet, and would take the last one for new."""
    silent = with_condition(config(), availability(config(), silence=STALE_AFTER))
    assert judged(silent, timedelta()) == (False, "HeartbeatMissing")
    back = {**silent, "status": {**silent["status"], "lastHeartbeat": format_time(NOW + SECOND)}}
    assert judged(back, timedelta()) == (True, "Ready")
