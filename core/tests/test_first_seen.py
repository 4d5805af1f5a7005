"""M5: clocks of two machines differ by up to ten minutes, and no outcome does."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunway.api import names
from airunway.controller.decision import SILENT_AFTER
from airunway.controller.reconciler import orphaned_finalizers
from airunway.first_seen import SKEW, FirstSeen
from airunway.resource import Resource, format_time, parse_time
from airunway.selection.facts import STALE_AFTER, ProviderFacts, provider_facts

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SKEWS = st.integers(-600, 600).map(lambda seconds: timedelta(seconds=seconds))


class Watch:
    """The time of day where we are."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


class Observer:
    """What the core knows of a provider from its config: `restart` forgets it, as a new process does."""

    def __init__(self, clock: Watch) -> None:
        self.clock = clock
        self.restart()

    def restart(self) -> None:
        self.ages: FirstSeen[str] = FirstSeen(self.clock)

    def facts(self, heartbeat: datetime) -> ProviderFacts:
        config = {"metadata": {"name": "tiny"}, "status": {"ready": True, "lastHeartbeat": format_time(heartbeat)}}
        found = provider_facts(config)
        return replace(found, heard=self.ages.since("tiny", found.heartbeat, doubted=SILENT_AFTER))

    def silence(self, heartbeat: datetime) -> timedelta:
        silence = self.facts(heartbeat).silence(self.clock())
        assert silence is not None
        return silence


@given(SKEWS, st.integers(0, 8))
def test_m5_a_provider_that_beats_is_never_silent_and_a_dead_one_is_after_its_time(skew: timedelta, beats: int) -> None:
    clock = Watch()
    observer = Observer(clock)
    beat = clock.now + skew
    for _ in range(beats):
        assert observer.silence(beat) == timedelta()
        clock.now += MINUTE
        beat = clock.now + skew
    observer.silence(beat)
    clock.now += STALE_AFTER - timedelta(seconds=1)
    assert observer.silence(beat) < STALE_AFTER
    clock.now += timedelta(seconds=1)
    assert observer.silence(beat) == STALE_AFTER, "exactly three intervals are no longer fresh"
    clock.now += SILENT_AFTER - STALE_AFTER
    assert observer.silence(beat) == SILENT_AFTER


@given(SKEWS)
def test_m5_an_observer_that_restarts_and_restarts_keeps_no_dead_provider_alive(skew: timedelta) -> None:
    clock = Watch()
    observer = Observer(clock)
    beat = clock.now + skew
    for _ in range(60):  # it never lives long enough to see five minutes of silence
        clock.now += MINUTE
        observer.restart()
        silence = observer.silence(beat)
    assert silence >= SILENT_AFTER
    fresh = clock.now + skew
    assert observer.silence(fresh) == timedelta(), "and when the provider is back, it is back"


@pytest.mark.parametrize("ahead", [timedelta(minutes=16), timedelta(days=365_000)])
def test_m5_a_heartbeat_in_the_future_keeps_nobody_alive(ahead: timedelta) -> None:
    clock = Watch()
    observer = Observer(clock)
    forged = START + ahead
    observer.silence(START)
    assert observer.silence(forged) == timedelta(), "it was written just now: it says as much as any other"
    clock.now += SILENT_AFTER
    assert observer.silence(forged) == SILENT_AFTER
    observer.restart()
    assert observer.silence(forged) >= SILENT_AFTER, "of what was found nobody knows how old it is"


def deleted(at: datetime) -> Resource:
    finalizers = [names.provider_finalizer("tiny")]
    return {"metadata": {"deletionTimestamp": format_time(at), "finalizers": finalizers}}


@given(SKEWS)
def test_m5_a_deleted_deployment_has_its_five_minutes_whatever_the_api_server_s_clock_says(skew: timedelta) -> None:
    clock = Watch()
    ages: FirstSeen[str] = FirstSeen(clock)
    deployment = deleted(clock.now + skew)
    said = parse_time(deployment["metadata"]["deletionTimestamp"])

    def look() -> tuple[tuple[str, ...], float | None]:
        return orphaned_finalizers(deployment, {}, since=ages.since("x", said), now=clock())

    assert look() == ((), 300.0)
    clock.now += timedelta(minutes=4)
    assert look() == ((), 60.0)
    clock.now += MINUTE
    assert look() == ((names.provider_finalizer("tiny"),), None)
    for _ in range(30):
        clock.now += MINUTE
        ages = FirstSeen(clock)
        again = look()
    assert again == ((names.provider_finalizer("tiny"),), None), "a restart begins anew, but not for ever"


def test_m5_what_carries_no_time_is_as_old_as_our_sight_of_it() -> None:
    clock = Watch()
    ages: FirstSeen[str] = FirstSeen(clock)
    assert ages.since("x", None) == START
    clock.now += MINUTE
    assert ages.since("x", None) == START
    assert ages.since("x", START) == clock.now, "another value is another event"
    ages.forget("x")
    assert ages.since("x", START - SKEW - MINUTE) == START - MINUTE
