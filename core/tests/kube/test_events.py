"""Events: what they say, how repetitions are counted, when they are written, and what refuses them."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path

import pytest
from core.tests.kube.recorders import Clock, events_of, wait_for_events
from core.tests.kube.running import running
from hypothesis import given
from hypothesis import strategies as st
from tests.support.faultproxy import Fault, FaultProxy

from airunway.kube import EVENT, NAMESPACE, Client, EventRecorder, load_config
from airunway.kube.events import cut
from airunway.resource import ObjectKey, Resource
from airunway_testing.eventually import PATIENCE, Eventually
from airunway_testing.fixtures import Kubectl


@pytest.mark.apiserver
async def test_an_event_says_what_happened_to_what(client: Client, namespace: str, subject: Resource) -> None:
    async with running(EventRecorder(client, component="airunway-tests", instance="pod-1")) as recorder:
        other = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x-0", "namespace": namespace}}
        recorder.emit(
            subject, reason="SecretNotFound", note="Secret x is not there", warning=True, action="Watch", related=other
        )
        (event,) = await wait_for_events(client, namespace, lambda events: len(events) == 1)
    assert event["related"] == {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": "x-0"}
    assert event["reason"] == "SecretNotFound"
    assert event["note"] == "Secret x is not there"
    assert event["type"] == "Warning"
    assert event["action"] == "Watch"
    assert event["reportingController"] == "airunway-tests"
    assert event["reportingInstance"] == "pod-1"
    assert event["regarding"] == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "namespace": namespace,
        "name": "subject",
        "uid": subject["metadata"]["uid"],
    }
    assert "series" not in event or event["series"] is None


@pytest.mark.apiserver
async def test_repetitions_are_counted_at_growing_intervals(
    client: Client, namespace: str, subject: Resource, eventually: Eventually
) -> None:
    clock, writes = Clock(), [0]

    def on_request(verb: str, resource: str, *_: object) -> None:
        writes[0] += resource == "events" and verb in ("create", "patch")

    client.session.on_request = on_request
    recorder = EventRecorder(client, component="airunway-tests", timers=clock, clock=clock.time)
    async with running(recorder):
        for expected, pause in ((1, 10), (2, 20), (3, 40)):
            for _ in range(50):
                recorder.emit(subject, reason="Drift", note="field x was changed")
            await eventually(lambda expected=expected: writes[0] == expected)  # type: ignore[misc]
            for _ in range(50):
                recorder.emit(subject, reason="Drift", note="field x was changed")
            await asyncio.sleep(0.05)
            assert writes[0] == expected, "not again before the interval is over"
            clock.advance(pause + 1)
        (event,) = await wait_for_events(client, namespace, lambda e: (e[0].get("series") or {}).get("count") == 300)
        assert event["series"]["lastObservedTime"] > event["eventTime"]
        # After a pause it is a new happening.
        clock.advance(400)
        recorder.emit(subject, reason="Drift", note="field x was changed")
        await wait_for_events(client, namespace, lambda events: len(events) == 2)


@pytest.mark.apiserver
async def test_repetitions_while_the_event_is_being_written_wait_their_turn(
    client: Client, proxied: Client, proxy: FaultProxy, namespace: str, subject: Resource, eventually: Eventually
) -> None:
    clock = Clock()
    recorder = EventRecorder(proxied, component="airunway-tests", timers=clock, clock=clock.time)
    proxy.inject(Fault("slow", verb="create", resource="events", seconds=0.1))
    async with running(recorder):
        recorder.emit(subject, reason="A", note="one")
        await eventually(lambda: proxy.count("create", "events") == 1)
        recorder.emit(subject, reason="A", note="one")
        await wait_for_events(client, namespace, lambda events: len(events) == 1)
        await asyncio.sleep(0.05)
        assert proxy.count("patch") == 0
        clock.advance(11)
        await eventually(lambda: proxy.count("patch") == 1)


@pytest.mark.apiserver
async def test_different_happenings_are_different_events(client: Client, namespace: str, subject: Resource) -> None:
    async with running(EventRecorder(client, component="airunway-tests")) as recorder:
        recorder.emit(subject, reason="A", note="one")
        recorder.emit(subject, reason="A", note="two")
        recorder.emit(subject, reason="B", note="one")
        recorder.emit(subject, reason="A", note="one", warning=True)
        await wait_for_events(client, namespace, lambda events: len(events) == 4)


@pytest.mark.apiserver
async def test_kubectl_describe_tells_events_in_the_order_in_which_they_happened(
    client: Client, namespace: str, subject: Resource, kubectl: Kubectl
) -> None:
    recorder = EventRecorder(client, component="airunway-tests")
    for number in range(12):
        recorder.emit(subject, reason="A", note=f"step {number:02}")
    await recorder.flush()
    told = await asyncio.to_thread(kubectl, "describe", "configmap", "subject", "-n", namespace)
    assert re.findall(r"step \d\d", told.stdout) == [f"step {number:02}" for number in range(12)]


@pytest.mark.apiserver
async def test_the_last_events_of_a_process_are_written_with_their_counts(
    client: Client, namespace: str, subject: Resource
) -> None:
    recorder = EventRecorder(client, component="airunway-tests")
    async with running(recorder):
        recorder.emit(subject, reason="A", note="one")
        await wait_for_events(client, namespace, lambda events: len(events) == 1)
        for _ in range(4):
            recorder.emit(subject, reason="A", note="one")  # counted, to be written in ten seconds
    recorder.emit(subject, reason="B", note="last")
    await recorder.flush()
    told = {event["reason"]: (event.get("series") or {}).get("count") for event in await events_of(client, namespace)}
    assert told == {"A": 5, "B": None}


@pytest.mark.apiserver
async def test_what_was_counted_since_an_attempt_without_an_answer_is_told_too(
    client: Client, proxied: Client, proxy: FaultProxy, namespace: str, subject: Resource
) -> None:
    proxy.inject(Fault("lose-answer", verb="create", resource="events"))
    recorder = EventRecorder(proxied, component="airunway-tests")
    recorder.emit(subject, reason="A", note="one")
    await recorder.flush()
    assert len(await events_of(client, namespace)) == 1
    for _ in range(4):
        recorder.emit(subject, reason="A", note="one")
    await recorder.flush()
    (event,) = await events_of(client, namespace)
    assert event["series"]["count"] == 5


@pytest.mark.apiserver
async def test_the_end_of_a_process_does_not_wait_for_an_api_server_that_is_gone(
    kubeconfig: Path, subject: Resource, caplog: pytest.LogCaptureFixture
) -> None:
    async with FaultProxy(kubeconfig) as proxy:
        proxy.inject(Fault("hang", resource="events", count=None))
        # The client itself would wait for an hour: whoever comes back did not wait for it.
        config = load_config(kubeconfig=proxy.kubeconfig)
        async with Client(config, user_agent="airunway-tests", timeout=3600.0) as cut_off:
            recorder = EventRecorder(cut_off, component="airunway-tests")
            recorder.emit(subject, reason="A", note="one")
            async with asyncio.timeout(PATIENCE):
                await recorder.flush()
    assert "the last events were not written" in caplog.text


@pytest.mark.apiserver
async def test_what_happens_again_is_logged_once(
    client: Client, subject: Resource, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = EventRecorder(client, component="airunway-tests")
    with caplog.at_level(logging.INFO):
        for _ in range(100):
            recorder.emit(subject, reason="DriftDetected", note="somebody changed it", warning=True)
    told = [(r.levelname, r.message) for r in caplog.records if r.name == "airunway.kube.events"]
    assert told == [("WARNING", "DriftDetected: somebody changed it")]


@pytest.mark.apiserver
async def test_cluster_scoped_objects_have_their_events_in_default(client: Client, namespace: str) -> None:
    obj = await client.get(NAMESPACE, ObjectKey("", namespace))
    async with running(EventRecorder(client, component="airunway-tests")) as recorder:
        recorder.emit(obj, reason="Seen", note="hello")
        await wait_for_events(
            client, "default", lambda events: any(e["regarding"].get("name") == namespace for e in events)
        )


@pytest.mark.apiserver
async def test_trouble_is_retried_and_makes_no_second_event(
    client: Client, proxied: Client, proxy: FaultProxy, namespace: str, subject: Resource, eventually: Eventually
) -> None:
    clock = Clock()
    recorder = EventRecorder(proxied, component="airunway-tests", timers=clock, clock=clock.time)
    proxy.inject(Fault("lose-answer", resource="events"), Fault("status", status=503, resource="events"))
    async with running(recorder):
        recorder.emit(subject, reason="A", note="one")
        for tries in (1, 2, 3):
            await eventually(lambda tries=tries: sum(r.resource == "events" for r in proxy.requests) == tries)  # type: ignore[misc]
            await asyncio.sleep(0.05)
            clock.advance(30)
        assert proxy.requests[-1].code == 409, "the first attempt had arrived"
        clock.advance(100)
        await asyncio.sleep(0.05)
        assert sum(r.resource == "events" for r in proxy.requests) == 3, "and that settles it"
    assert len(await events_of(client, namespace)) == 1
    assert recorder.failed == 0


@pytest.mark.apiserver
async def test_an_event_that_expired_on_the_server_goes_on_as_a_new_one(
    client: Client, namespace: str, subject: Resource
) -> None:
    clock = Clock()
    recorder = EventRecorder(client, component="airunway-tests", timers=clock, clock=clock.time)
    async with running(recorder):
        recorder.emit(subject, reason="A", note="one")
        (event,) = await wait_for_events(client, namespace, lambda events: len(events) == 1)
        await client.delete(EVENT, ObjectKey(namespace, event["metadata"]["name"]))
        recorder.emit(subject, reason="A", note="one")
        clock.advance(11)
        (again,) = await wait_for_events(client, namespace, lambda events: len(events) == 1)
        assert again["series"]["count"] == 2


@pytest.mark.apiserver
async def test_what_the_server_refuses_is_counted_not_raised(
    client: Client, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    lost = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "no-such-namespace", "name": "x"}}
    recorder = EventRecorder(client, component="airunway-tests")
    with caplog.at_level(logging.WARNING):
        async with running(recorder):
            recorder.emit(lost, reason="A", note="one")
            await eventually(lambda: recorder.failed == 1)
    assert "was not written" in caplog.text


@pytest.mark.apiserver
async def test_notes_and_names_of_any_length(client: Client, namespace: str) -> None:
    name = "n" * 235 + "." + "x" * 17
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name}}
    recorder = EventRecorder(client, component="airunway-tests", instance="i" * 300)
    async with running(recorder):
        recorder.emit(obj, reason="R" * 300, note="ü" * 2000, action="a" * 300)
        (event,) = await wait_for_events(client, namespace, lambda events: len(events) == 1)
    assert event["note"].endswith("…")
    assert recorder.failed == 0


@pytest.mark.apiserver
async def test_ruling_29_events_wait_while_something_else_does_and_not_for_ever(
    client: Client, namespace: str, subject: Resource
) -> None:
    clock, busy, asked = Clock(), True, 0

    def is_busy() -> bool:
        nonlocal asked
        asked += 1
        return busy

    recorder = EventRecorder(client, component="airunway-tests", timers=clock, clock=clock.time, busy=is_busy)
    async with running(recorder):
        recorder.emit(subject, reason="A", note="one")
        recorder.emit(subject, reason="A", note="two")
        while asked < 3:
            await asyncio.sleep(0.01)
        assert await events_of(client, namespace) == []
        busy = False
        await wait_for_events(client, namespace, lambda events: len(events) == 2)
        busy = True
        recorder.emit(subject, reason="A", note="three")
        await wait_for_events(client, namespace, lambda events: len(events) == 3)  # after some seconds, busy or not
        assert busy


@given(st.text(max_size=60), st.integers(3, 50))
def test_cut_keeps_within_the_limit(text: str, limit: int) -> None:
    short = cut(text, limit)
    assert len(short.encode()) <= limit
    if len(text.encode()) <= limit:
        assert short == text
    else:
        assert short.endswith("…")
        assert text.startswith(short[:-1])
