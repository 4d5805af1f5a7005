"""More events than anybody reads: who is limited, who makes room, and what is never dropped."""

from __future__ import annotations

import asyncio

import pytest
from core.tests.kube.recorders import Clock, events_of, wait_for_events
from core.tests.kube.running import running

from airunway.kube import Client, EventRecorder
from airunway.kube.events import BURST, REFILL
from airunway.resource import Resource
from airunway_testing.eventually import Eventually


@pytest.mark.apiserver
async def test_a_full_table_drops_and_counts(client: Client, namespace: str, subject: Resource) -> None:
    recorder = EventRecorder(client, component="airunway-tests", capacity=3)
    for number in range(5):
        recorder.emit(subject, reason="A", note=str(number))
    recorder.emit(subject, reason="A", note="0")  # known already: counted, not dropped
    assert recorder.dropped == 2
    await recorder.flush()
    assert sorted(e["note"] for e in await events_of(client, namespace)) == ["0", "1", "2"]


def named(namespace: str, name: str) -> Resource:
    """An object that events are about, whether it is there or not."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name, "uid": name}}


@pytest.mark.apiserver
async def test_m10_a_flood_about_one_object_is_limited_and_costs_no_other_its_events(
    client: Client, namespace: str
) -> None:
    clock = Clock()
    recorder = EventRecorder(client, component="airunway-tests", timers=clock, clock=clock.time)
    noisy, quiet = named(namespace, "noisy"), named(namespace, "quiet")
    for number in range(5000):
        recorder.emit(noisy, reason="A", note=f"preset {number}")
    assert recorder.limited == 5000 - BURST
    recorder.emit(quiet, reason="B", note="told all the same")
    clock.advance(REFILL + 1)
    for number in range(3):
        recorder.emit(noisy, reason="A", note=f"later {number}")
    assert recorder.limited == 5000 - BURST + 2
    await recorder.flush(30)
    notes = {event["note"] for event in await events_of(client, namespace)}
    assert notes == {*(f"preset {number}" for number in range(BURST)), "later 0", "told all the same"}
    assert recorder.dropped == 0


@pytest.mark.apiserver
async def test_m10_a_full_table_makes_room_where_the_noise_is(client: Client, namespace: str) -> None:
    recorder = EventRecorder(client, component="airunway-tests", capacity=10)
    for name in ("loud", "soft"):
        for number in range(8 if name == "loud" else 2):
            recorder.emit(named("another-tenant", name), reason="A", note=str(number))
    recorder.emit(named("another-tenant", "loud"), reason="A", note="one more")
    assert recorder.dropped == 1, "the noisiest makes no room for itself"
    for number in range(3):
        recorder.emit(named(namespace, f"mine-{number}"), reason="B", note="mine")
    assert recorder.dropped == 4, "each at the cost of the noisiest"
    await recorder.flush(30)
    assert len(await events_of(client, namespace)) == 3


@pytest.mark.apiserver
async def test_m10_what_was_told_already_makes_room_without_a_loss(
    client: Client, namespace: str, eventually: Eventually
) -> None:
    recorder = EventRecorder(client, component="airunway-tests", capacity=3)
    async with running(recorder):
        for number in range(3):
            recorder.emit(named(namespace, "loud"), reason="A", note=str(number))
        await wait_for_events(client, namespace, lambda events: len(events) == 3)
        await asyncio.sleep(0.05)
        recorder.emit(named(namespace, "soft"), reason="A", note="3")
        await wait_for_events(client, namespace, lambda events: len(events) == 4)
    assert recorder.dropped == 0


@pytest.mark.apiserver
async def test_m10_a_vital_event_is_never_dropped_and_comes_first(client: Client, namespace: str) -> None:
    recorder = EventRecorder(client, component="airunway-tests", capacity=5)
    loud = named(namespace, "loud")
    for number in range(100):
        recorder.emit(loud, reason="A", note=str(number))
    recorder.emit(loud, reason="FinalizerTimeout", note="an orphan", warning=True, vital=True)
    recorder.emit(named(namespace, "x"), reason="FinalizerTimeout", note="another", warning=True, vital=True)
    async with running(recorder):
        events = await wait_for_events(client, namespace, lambda events: len(events) == 7)
    assert sorted(event["note"] for event in events) == ["0", "1", "2", "3", "4", "an orphan", "another"]
    written = sorted(events, key=lambda event: int(event["metadata"]["resourceVersion"]))
    assert [event["reason"] for event in written[:2]] == ["FinalizerTimeout"] * 2


@pytest.mark.apiserver
async def test_m10_one_refused_event_costs_no_other_at_the_end_of_a_process(
    client: Client, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = EventRecorder(client, component="airunway-tests")
    recorder.emit(named("no-such-namespace", "x"), reason="A", note="nowhere")
    for number in range(20):
        recorder.emit(named(namespace, "x"), reason="A", note=str(number))
    await recorder.flush(30)
    assert len(await events_of(client, namespace)) == 20
    assert "the last events were not written, 1 of 21" in caplog.text
