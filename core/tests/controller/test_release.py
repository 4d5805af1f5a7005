"""Which finalizers the core takes off a deleted deployment, and when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from airunway.api import names
from airunway.controller.reconciler import OrphanFinalizer, orphaned_finalizers
from airunway.kube import Client, EventRecorder
from airunway.process.deployment_cache import DeploymentProjection
from airunway.resource import Resource, copy_of, format_time
from airunway.selection.facts import ProviderFacts

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
OURS = names.provider_finalizer("tiny")


def deleted(ago: timedelta, *finalizers: str) -> Resource:
    return {"metadata": {"deletionTimestamp": format_time(NOW - ago), "finalizers": [OURS, *finalizers]}}


def tiny(*, heard: timedelta | None, ready: bool = True) -> dict[str, ProviderFacts]:
    heartbeat = None if heard is None else NOW - heard
    return {
        "tiny": ProviderFacts(name="tiny", ready=ready, explicit_only=False, heartbeat=heartbeat, engines=(), rules=())
    }


def left(ago: timedelta, providers: dict[str, ProviderFacts], *finalizers: str) -> object:
    """What there is to take off a deployment that was deleted so long ago."""
    return orphaned_finalizers(deleted(ago, *finalizers), providers, since=NOW - ago, now=NOW)


LONG, SHORT = timedelta(minutes=6), timedelta(minutes=4)


@pytest.mark.parametrize(
    ("providers", "gone"),
    [
        pytest.param({}, True, id="not registered"),
        pytest.param(tiny(heard=LONG), True, id="silent"),
        pytest.param(tiny(heard=LONG, ready=False), True, id="stopped"),
        pytest.param(tiny(heard=SHORT), False, id="heard of lately"),
        pytest.param(tiny(heard=SHORT, ready=False), False, id="in trouble"),
        pytest.param(tiny(heard=None), False, id="without heartbeats"),
        pytest.param(tiny(heard=None, ready=False), True, id="registered by hand"),
    ],
)
def test_only_a_provider_that_is_gone_is_stood_in_for(providers: dict[str, ProviderFacts], gone: bool) -> None:
    assert left(LONG, providers) == (((OURS,) if gone else ()), None)


def test_it_is_waited_for_five_minutes_from_the_deletion() -> None:
    assert left(SHORT, {}) == ((), 60.0)
    assert left(timedelta(minutes=5), {}) == ((OURS,), None)


def test_finalizers_of_others_are_none_of_our_business() -> None:
    others = ("example.org/mine", "airunway.ai/something", "foregroundDeletion")
    assert left(LONG, {}, *others) == ((OURS,), None)
    two = (names.provider_finalizer("other"),)
    assert left(LONG, {}, *two) == ((OURS, *two), None)


def test_what_is_not_deleted_is_held() -> None:
    assert orphaned_finalizers({"metadata": {"finalizers": [OURS]}}, {}, since=NOW, now=NOW) == ((), None)


async def test_the_core_comes_back_by_itself_when_the_five_minutes_are_over() -> None:
    """Nobody touches a deployment in a namespace that is being deleted."""
    now, deployment, patches = NOW, deleted(timedelta()), list[object]()
    deployment["metadata"] |= {"name": "a", "namespace": "b", "uid": "u"}

    async def json_patch(kind: object, key: object, operations: list[Resource], *, manager: str) -> Resource:
        patches.append(operations[-1]["value"])
        return copy_of(deployment)

    releaser = OrphanFinalizer(
        client=cast("Client", SimpleNamespace(json_patch=json_patch)),
        providers={},
        events=cast("EventRecorder", SimpleNamespace(emit=lambda *_, **__: None)),
        clock=lambda: now,
    )
    assert await releaser.release(deployment) == 300.0
    now += SHORT
    assert await releaser.release(deployment) == 60.0
    assert patches == []
    now += timedelta(minutes=1)
    assert await releaser.release(deployment) is None
    assert patches == [[]]


async def test_h1_a_thousand_finalizers_that_a_user_made_up_are_one_write_and_a_few_events() -> None:
    """With a write and an event each, one object would keep the API server busy for minutes."""
    live = deleted(timedelta(hours=1), *(names.provider_finalizer(f"x{i}") for i in range(1_000)), "example.org/mine")
    live["metadata"] |= {"name": "a", "namespace": "b", "uid": "u"}
    patches: list[list[Resource]] = []
    events: list[str] = []

    async def find(kind: object, key: object) -> Resource:
        return copy_of(live)

    async def json_patch(kind: object, key: object, operations: list[Resource], *, manager: str) -> Resource:
        patches.append(operations)
        return copy_of(live)

    def emit(obj: Resource, *, reason: str, note: str, **more: object) -> None:
        events.append(note)

    cached = DeploymentProjection([names.CORE_MANAGER])(copy_of(live))
    releaser = OrphanFinalizer(
        client=cast("Client", SimpleNamespace(find=find, json_patch=json_patch)),
        providers={},
        events=cast("EventRecorder", SimpleNamespace(emit=emit)),
        clock=lambda: NOW,
    )
    assert await releaser.release(cached) is None
    assert [operations[-1]["value"] for operations in patches] == [["example.org/mine"]]
    assert patches[0][0] == {"op": "test", "path": "/metadata/finalizers", "value": live["metadata"]["finalizers"]}
    assert "provider 'tiny' is not registered" in events[0]
    assert 1 <= len(events) <= 4
