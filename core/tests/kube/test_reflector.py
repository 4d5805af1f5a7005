"""The reflector on a real API server: what it follows, keeps, reports, and how it comes back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from core.tests.kube.objects import config_map
from core.tests.kube.reflectors import quick
from core.tests.kube.running import running
from tests.support.faultproxy import Action, Fault, FaultProxy

from airunway.kube import (
    CONFIG_MAP,
    EVENT,
    Backoff,
    Client,
    Kind,
    Reflector,
    load_config,
    strip_managed_fields,
    wait_until_synced,
)
from airunway.resource import ObjectKey, Resource, key_of, labels_of
from airunway_testing.eventually import PATIENCE, Eventually
from airunway_testing.operator import remove_definition


@pytest.mark.apiserver
async def test_it_follows_a_selection(client: Client, namespace: str, eventually: Eventually) -> None:
    await client.create(CONFIG_MAP, config_map(namespace, "a", labels={"app": "x"}, k="1"))
    await client.create(CONFIG_MAP, config_map(namespace, "other"))
    seen: list[tuple[str, str | None, str | None]] = []

    def handler(key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        before, after = (None if obj is None else str(obj["data"]["k"]) for obj in (old, new))
        seen.append((key.name, before, after))

    reflector = Reflector(client, CONFIG_MAP, namespace=namespace, label_selector="app=x")
    reflector.add_handler(handler)
    async with running(reflector):
        await wait_until_synced([reflector], timeout=10)
        key = ObjectKey(namespace, "a")
        found = reflector.get(key)
        assert found is not None
        assert (found["apiVersion"], found["kind"]) == ("v1", "ConfigMap"), "a typed list names the kind once only"
        assert (len(reflector), key in reflector, list(reflector), reflector.keys()) == (1, True, [key], [key])
        assert reflector.values() == [found]
        await client.merge_patch(CONFIG_MAP, key, {"data": {"k": "2"}})
        await eventually(lambda: len(seen) == 2)
        await client.merge_patch(CONFIG_MAP, key, {"metadata": {"labels": {"app": "y"}}})  # leaves the selection
        await eventually(lambda: len(seen) == 3)
        assert seen == [("a", None, "1"), ("a", "1", "2"), ("a", "2", None)]
        assert len(reflector) == 0


@pytest.mark.apiserver
async def test_indexes_and_late_handlers(client: Client, namespace: str, eventually: Eventually) -> None:
    reflector = Reflector(client, CONFIG_MAP, namespace=namespace)
    by_team = reflector.add_index(lambda obj: [team] if (team := labels_of(obj).get("team")) else [])
    async with running(reflector):
        await reflector.synced.wait()
        for name, team in (("a", "red"), ("b", "red"), ("c", "blue")):
            await client.create(CONFIG_MAP, config_map(namespace, name, labels={"team": team}))
        await eventually(lambda: len(reflector) == 3)
        assert {key_of(o).name for o in by_team.get("red")} == {"a", "b"}
        late: list[str] = []
        reflector.add_handler(lambda key, old, new: late.append(key.name))
        assert sorted(late) == ["a", "b", "c"], "a handler that comes late hears of what is there"
        await client.merge_patch(CONFIG_MAP, ObjectKey(namespace, "a"), {"metadata": {"labels": {"team": "blue"}}})
        await client.delete(CONFIG_MAP, ObjectKey(namespace, "b"))
        await eventually(lambda: by_team.get("red") == [])
        assert by_team.keys() == ["blue"]
        assert {key_of(o).name for o in by_team.get("blue")} == {"a", "c"}
        assert all(o["metadata"]["labels"]["team"] == "blue" for o in by_team.get("blue"))


@pytest.mark.apiserver
async def test_a_failing_handler_or_projection_stops_nothing(
    client: Client, namespace: str, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    def project(obj: Resource) -> Resource:
        if obj["metadata"]["name"] == "bad":
            raise LookupError("no projection for bad")
        return obj

    def handler(key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        raise ArithmeticError(f"handler dislikes {key.name}")

    seen: list[str] = []
    reflector = Reflector(client, CONFIG_MAP, namespace=namespace, project=project)
    reflector.add_handler(handler)
    reflector.add_handler(lambda key, old, new: seen.append(key.name))
    with caplog.at_level(logging.ERROR):
        async with running(reflector):
            await reflector.synced.wait()
            await client.create(CONFIG_MAP, config_map(namespace, "bad"))
            await client.create(CONFIG_MAP, config_map(namespace, "good"))
            await eventually(lambda: seen == ["bad", "good"])
    assert {ObjectKey(namespace, "bad"), ObjectKey(namespace, "good")} == set(reflector)
    logged = [(record.getMessage(), record.exc_info) for record in caplog.records]
    assert all(info is not None for _, info in logged), "each with its traceback"
    assert sum("a handler failed" in text for text, _ in logged) == 2
    assert sum("projecting" in text for text, _ in logged) == 1


@pytest.mark.apiserver
async def test_objects_of_no_interest_are_not_kept(
    client: Client, proxied: Client, proxy: FaultProxy, namespace: str, eventually: Eventually
) -> None:
    def project(obj: Resource) -> Resource | None:
        return obj if labels_of(obj).get("mine") == "yes" else None

    for name, mine in (("a", "yes"), ("b", "no")):
        await client.create(CONFIG_MAP, config_map(namespace, name, labels={"mine": mine}))
    seen: list[tuple[str, bool]] = []
    reflector = Reflector(proxied, CONFIG_MAP, namespace=namespace, project=project, backoff=quick())
    reflector.add_handler(lambda key, old, new: seen.append((key.name, new is not None)))
    async with running(reflector):
        await reflector.synced.wait()
        assert seen == [("a", True)]
        # An event from when it was still of interest comes after the one that says it no longer is.
        outage = True
        proxy.inject(Fault("status", status=503, count=None, where=lambda _: outage), Fault("reorder", verb="watch"))
        proxy.cut_all()
        await eventually(lambda: proxy.count("watch") > 1)
        await client.merge_patch(CONFIG_MAP, ObjectKey(namespace, "a"), {"data": {"k": "2"}})
        await client.merge_patch(CONFIG_MAP, ObjectKey(namespace, "a"), {"metadata": {"labels": {"mine": "no"}}})
        await client.merge_patch(CONFIG_MAP, ObjectKey(namespace, "b"), {"metadata": {"labels": {"mine": "yes"}}})
        outage = False
        await eventually(lambda: ObjectKey(namespace, "b") in reflector)
        assert seen == [("a", True), ("a", False), ("b", True)]
        assert reflector.keys() == [ObjectKey(namespace, "b")]


@pytest.mark.apiserver
async def test_objects_larger_than_any_buffer(client: Client, namespace: str, eventually: Eventually) -> None:
    reflector = Reflector(client, CONFIG_MAP, namespace=namespace)
    async with running(reflector):
        await reflector.synced.wait()
        text = "x" * 1_000_000
        for name in ("a", "b"):
            await client.create(CONFIG_MAP, config_map(namespace, name, k=text))
        await eventually(lambda: len(reflector) == 2)
        assert reflector.restarts == 0
        assert all(obj["data"]["k"] == text for obj in reflector.values())


@pytest.mark.apiserver
async def test_a_crd_that_comes_goes_and_comes_back(
    client: Client, namespace: str, eventually: Eventually, install: Callable[[Client, Kind], Awaitable[None]]
) -> None:
    kind = Kind("coming.tests.airunway.ai", "v1", "Guest", "guests")
    name = f"{kind.plural}.{kind.group}"
    gone: list[str] = []
    reflector = Reflector(client, kind, namespace=namespace, backoff=quick())
    reflector.add_handler(lambda key, old, new: gone.append(key.name) if new is None else None)
    async with running(reflector):
        await eventually(lambda: reflector.missing)
        assert not reflector.synced.is_set()
        await install(client, kind)
        await eventually(reflector.synced.is_set)
        assert not reflector.missing
        guest = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"namespace": namespace, "name": "g"}}
        await client.create(kind, guest)
        await eventually(lambda: len(reflector) == 1)

        await remove_definition(client, name)
        await eventually(lambda: reflector.missing)
        await install(client, kind)
        await eventually(lambda: not reflector.missing)
        await eventually(lambda: gone == ["g"])
        assert len(reflector) == 0
        await client.create(kind, guest)
        await eventually(lambda: len(reflector) == 1)
    await remove_definition(client, name)


@pytest.mark.apiserver
async def test_retry_now_ends_the_wait(
    proxied: Client, proxy: FaultProxy, namespace: str, eventually: Eventually
) -> None:
    proxy.inject(Fault("status", status=404, verb="list"))
    reflector = Reflector(proxied, CONFIG_MAP, namespace=namespace, backoff=Backoff(base=3600, cap=3600))
    async with running(reflector):
        await eventually(lambda: reflector.missing)
        reflector.retry_now()
        await eventually(reflector.synced.is_set)


@pytest.mark.apiserver
@pytest.mark.parametrize("action", ["reorder", "repeat-late"])
async def test_a_late_event_does_not_bring_a_deleted_object_back(
    action: Action, client: Client, proxied: Client, proxy: FaultProxy, namespace: str, eventually: Eventually
) -> None:
    await client.create(CONFIG_MAP, config_map(namespace, "a", k="1"))
    reflector = Reflector(proxied, CONFIG_MAP, namespace=namespace, backoff=quick())
    async with running(reflector):
        await reflector.synced.wait()
        outage = True
        proxy.inject(Fault("status", status=503, count=None, where=lambda _: outage))
        proxy.inject(Fault(action, verb="watch"))
        proxy.cut_all()
        await eventually(lambda: proxy.count("watch") > 1)
        await client.merge_patch(CONFIG_MAP, ObjectKey(namespace, "a"), {"data": {"k": "2"}})
        await client.delete(CONFIG_MAP, ObjectKey(namespace, "a"))
        outage = False
        await client.create(CONFIG_MAP, config_map(namespace, "last"))
        await eventually(lambda: ObjectKey(namespace, "last") in reflector)
        assert ObjectKey(namespace, "a") not in reflector
        # A new object of that name is no ghost.
        await client.create(CONFIG_MAP, config_map(namespace, "a", k="3"))
        await eventually(lambda: ObjectKey(namespace, "a") in reflector)


@pytest.mark.apiserver
@pytest.mark.parametrize("action", ["duplicate", "reorder", "repeat-late"])
async def test_a_late_event_does_not_bring_an_old_state_back(
    action: Action, client: Client, proxied: Client, proxy: FaultProxy, namespace: str, eventually: Eventually
) -> None:
    await client.create(CONFIG_MAP, config_map(namespace, "a", k="1"))
    seen: list[str] = []
    reflector = Reflector(proxied, CONFIG_MAP, namespace=namespace, backoff=quick())
    reflector.add_handler(lambda key, old, new: seen.append(new["data"]["k"]) if new else None)
    async with running(reflector):
        await reflector.synced.wait()
        outage = True
        proxy.inject(Fault("status", status=503, count=None, where=lambda _: outage), Fault(action, verb="watch"))
        proxy.cut_all()
        await eventually(lambda: proxy.count("watch") > 1)
        for value in "23":
            await client.merge_patch(CONFIG_MAP, ObjectKey(namespace, "a"), {"data": {"k": value}})
        outage = False
        await client.create(CONFIG_MAP, config_map(namespace, "last", k="last"))
        await eventually(lambda: ObjectKey(namespace, "last") in reflector)
        assert reflector.values()[0]["data"]["k"] == "3"
        assert seen == ["1", "3", "last"] if action == "reorder" else ["1", "2", "3", "last"]


@pytest.mark.apiserver
async def test_retry_after_is_a_lower_bound(
    proxied: Client, proxy: FaultProxy, namespace: str, eventually: Eventually
) -> None:
    proxy.inject(Fault("status", status=429, retry_after=3600, verb="list"))
    reflector = Reflector(proxied, CONFIG_MAP, namespace=namespace, backoff=quick())
    async with running(reflector):
        await eventually(lambda: reflector.restarts == 1)
        await asyncio.sleep(0.5)  # five times what the backoff alone would wait
        assert proxy.count("list") == 1
        reflector.retry_now()
        await eventually(reflector.synced.is_set)


def test_strip_managed_fields_keeps_only_what_was_asked_for() -> None:
    entry = {"manager": "me", "operation": "Apply", "fieldsV1": {}}
    obj = {
        "metadata": {
            "name": "a",
            "managedFields": [entry, {"manager": "kubectl"}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
        }
    }
    assert strip_managed_fields(keep="me")(obj) == {"metadata": {"name": "a", "managedFields": [entry]}}
    assert strip_managed_fields()(obj) == {"metadata": {"name": "a"}}
    assert strip_managed_fields(keep="me")({"metadata": None}) == {"metadata": None}


@pytest.mark.apiserver
async def test_a_quiet_watch_of_events_is_no_dead_one(kubeconfig: Path, namespace: str) -> None:
    """Of events the API server has no cache, and sends no bookmarks: nothing comes for as long as nothing happens."""
    async with FaultProxy(kubeconfig) as proxy:
        config = load_config(kubeconfig=proxy.kubeconfig)
        async with Client(config, user_agent="airunway-tests", watch_inactivity=1.5) as client:
            async with running(Reflector(client, EVENT, namespace=namespace)) as events:
                async with asyncio.timeout(PATIENCE):
                    while sum(1 for request in proxy.requests if request.verb == "watch") < 3:
                        await asyncio.sleep(0.05)
            assert events.restarts == 0
