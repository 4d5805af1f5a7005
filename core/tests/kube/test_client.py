"""The client on the real API server: its verbs, and what is reported of its requests."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from core.tests.kube.objects import ME, config_map
from tests.support.faultproxy import Fault, FaultProxy

from airunway.kube import (
    CLUSTER_ROLE,
    CONFIG_MAP,
    CUSTOM_RESOURCE_DEFINITION,
    DEPLOYMENT,
    NAMESPACE,
    POD,
    SERVICE,
    AlreadyExists,
    BadRequest,
    Client,
    Conflict,
    ConnectionFailed,
    Forbidden,
    Invalid,
    Kind,
    NotFound,
    is_retryable,
    is_served,
    kind_of_crd,
    load_config,
    user_agent_of,
)
from airunway.resource import ObjectKey, Resource
from airunway_testing.controlplane import Cluster

# ------------------------------------------------------------------------------------------------------------ verbs


@pytest.mark.apiserver
async def test_the_life_of_an_object(client: Client, namespace: str) -> None:
    key = ObjectKey(namespace, "a")
    created = await client.create(CONFIG_MAP, config_map(namespace, "a", k="1"), manager=ME)
    assert created["metadata"]["managedFields"][0]["manager"] == ME
    with pytest.raises(AlreadyExists):
        await client.create(CONFIG_MAP, config_map(namespace, "a"))
    assert await client.get(CONFIG_MAP, key) == created
    patched = await client.merge_patch(CONFIG_MAP, key, {"data": {"k": "2"}}, manager="patcher")
    assert patched["data"] == {"k": "2"}
    with pytest.raises(Conflict):
        await client.replace(CONFIG_MAP, created | {"data": {"k": "3"}})
    replaced = await client.replace(CONFIG_MAP, patched | {"data": {"k": "3"}})
    with pytest.raises(Invalid):
        await client.json_patch(CONFIG_MAP, key, [{"op": "test", "path": "/data/k", "value": "no"}])
    await client.json_patch(CONFIG_MAP, key, [{"op": "replace", "path": "/data/k", "value": "4"}])
    with pytest.raises(Conflict, match="UID"):
        await client.delete(CONFIG_MAP, key, uid="some-other-object")
    await client.delete(CONFIG_MAP, key, uid=replaced["metadata"]["uid"], grace_seconds=0)
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAP, key)
    with pytest.raises(NotFound):
        await client.delete(CONFIG_MAP, key)


@pytest.mark.apiserver
async def test_the_servers_clock_is_that_of_its_newest_answer(kubeconfig: Path) -> None:
    async with Client(load_config(kubeconfig=kubeconfig)) as client:
        assert client.server_time is None
        await client.version()
        told = client.server_time
        assert told is not None
        assert abs(told - datetime.now(UTC)) < timedelta(seconds=10)


@pytest.mark.apiserver
async def test_dry_runs_change_nothing(client: Client, namespace: str) -> None:
    key, obj = ObjectKey(namespace, "a"), config_map(namespace, "a", k="1")
    await client.create(CONFIG_MAP, obj, dry_run=True)
    await client.apply(CONFIG_MAP, obj, manager=ME, dry_run=True)
    assert await client.list_all(CONFIG_MAP, namespace=namespace) == []
    before = await client.create(CONFIG_MAP, obj)
    await client.merge_patch(CONFIG_MAP, key, {"data": {"k": "2"}}, dry_run=True)
    await client.json_patch(CONFIG_MAP, key, [{"op": "remove", "path": "/data/k"}], dry_run=True)
    await client.replace(CONFIG_MAP, before | {"data": {}}, dry_run=True)
    await client.delete(CONFIG_MAP, key, dry_run=True)
    assert await client.get(CONFIG_MAP, key) == before


@pytest.mark.apiserver
async def test_apply_conflicts_name_manager_and_field(client: Client, namespace: str) -> None:
    await client.apply(CONFIG_MAP, config_map(namespace, "a", k="1"), manager="first")
    with pytest.raises(Conflict) as caught:
        await client.apply(CONFIG_MAP, config_map(namespace, "a", k="2"), manager="second")
    (cause,) = caught.value.causes
    assert cause["field"] == ".data.k"
    assert "first" in cause["message"]
    live = await client.apply(CONFIG_MAP, config_map(namespace, "a", k="2"), manager="second", force=True)
    assert live["data"]["k"] == "2"


@pytest.mark.apiserver
async def test_strict_validation_refuses_unknown_fields(client: Client, namespace: str, widget: Kind) -> None:
    """Kubernetes words it in two ways, by kind; both say that trying again will not help."""
    obj = {
        "apiVersion": widget.api_version,
        "kind": widget.kind,
        "metadata": {"namespace": namespace, "name": "w"},
        "colour": "red",
    }
    with pytest.raises((BadRequest, Invalid), match="colour") as custom:
        await client.apply(widget, obj, manager=ME)
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": namespace, "name": "s"},
        "spec": {"colour": "red"},
    }
    with pytest.raises((BadRequest, Invalid), match="colour") as built_in:
        await client.apply(SERVICE, service, manager=ME)
    assert not is_retryable(custom.value)
    assert not is_retryable(built_in.value)
    with pytest.raises((BadRequest, Invalid), match="colour"):
        await client.create(SERVICE, service, field_validation="Strict")
    assert await client.create(widget, obj, field_validation="Ignore")


@pytest.mark.apiserver
async def test_an_invalid_object_names_its_fields(client: Client, namespace: str) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": namespace, "name": "s"},
        "spec": {"ports": [{"port": 0}]},
    }
    with pytest.raises(Invalid) as caught:
        await client.apply(SERVICE, service, manager=ME)
    assert "spec.ports[0].port" in {cause["field"] for cause in caught.value.causes}
    assert "spec.ports[0].port" in str(caught.value)


@pytest.mark.apiserver
async def test_subresources(client: Client, namespace: str, widget: Kind) -> None:
    key = ObjectKey(namespace, "w")
    obj: Resource = {
        "apiVersion": widget.api_version,
        "kind": widget.kind,
        "metadata": {"namespace": namespace, "name": "w"},
    }
    await client.apply(widget, obj | {"spec": {"free": 1}, "status": {"phase": "ignored"}}, manager=ME)
    live = await client.apply(widget, obj | {"status": {"phase": "Running"}}, manager=ME, subresource="status")
    assert (live["spec"], live["status"]) == ({"free": 1}, {"phase": "Running"})
    await client.merge_patch(widget, key, {"status": {"a": 1}, "spec": {"free": 2}}, subresource="status")
    await client.json_patch(widget, key, [{"op": "add", "path": "/status/b", "value": 2}], subresource="status")
    live = await client.get(widget, key, subresource="status")
    assert (live["spec"], live["status"]) == ({"free": 1}, {"phase": "Running", "a": 1, "b": 2})
    live = await client.replace(widget, live | {"status": {"c": 3}}, subresource="status")
    assert live["status"] == {"c": 3}


@pytest.mark.apiserver
async def test_pages_and_selectors(client: Client, namespace: str) -> None:
    for number in range(7):
        obj = config_map(namespace, f"c{number}")
        obj["metadata"]["labels"] = {"parity": "odd" if number % 2 else "even"}
        await client.create(CONFIG_MAP, obj)
    pages = [page async for page in client.pages(CONFIG_MAP, namespace=namespace, limit=3)]
    assert [len(page.items) for page in pages] == [3, 3, 1]
    assert [page.remaining for page in pages] == [4, 1, None]
    assert len({page.resource_version for page in pages}) == 1, "all of one moment"
    assert pages[-1].continue_token == ""
    assert all(item["kind"] == "ConfigMap" and item["apiVersion"] == "v1" for page in pages for item in page.items)
    odd = await client.list_all(CONFIG_MAP, namespace=namespace, label_selector="parity=odd")
    assert [obj["metadata"]["name"] for obj in odd] == ["c1", "c3", "c5"]
    one = await client.list_all(CONFIG_MAP, namespace=namespace, field_selector="metadata.name=c2")
    assert [obj["metadata"]["name"] for obj in one] == ["c2"]
    async with aclosing(client.pages(CONFIG_MAP, namespace=namespace, limit=2)) as stream:
        async for page in stream:
            assert len(page.items) == 2
            break  # the page that is being fetched ahead is given up


@pytest.mark.apiserver
async def test_a_watch_brings_changes_bookmarks_and_ends(client: Client, namespace: str) -> None:
    pages = [page async for page in client.pages(CONFIG_MAP, namespace=namespace)]
    version = pages[-1].resource_version
    await client.create(CONFIG_MAP, config_map(namespace, "a"))
    await client.merge_patch(CONFIG_MAP, ObjectKey(namespace, "a"), {"data": {"k": "1"}})
    await client.delete(CONFIG_MAP, ObjectKey(namespace, "a"))
    events = [
        event
        async for event in client.watch(CONFIG_MAP, resource_version=version, namespace=namespace, timeout_seconds=1)
    ]
    assert [event.type for event in events][:3] == ["ADDED", "MODIFIED", "DELETED"]
    assert {event.type for event in events[3:]} <= {"BOOKMARK"}
    assert [int(event.resource_version) for event in events] == sorted(int(e.resource_version) for e in events)


@pytest.mark.apiserver
async def test_discovery(client: Client, widget: Kind) -> None:
    assert await is_served(client, DEPLOYMENT)
    assert await is_served(client, POD)
    assert await is_served(client, widget)
    assert not await is_served(client, Kind(widget.group, "v2", "Widget", "widgets"))
    assert not await is_served(client, Kind(widget.group, "v1", "Gadget", "gadgets"))
    assert not await is_served(client, Kind("no.such.group", "v1", "X", "xs"))
    assert (await client.get_path("/version"))["major"] == "1"
    crd = await client.get(CUSTOM_RESOURCE_DEFINITION, ObjectKey("", f"{widget.plural}.{widget.group}"))
    assert kind_of_crd(crd, "v1") == widget
    with pytest.raises(ValueError, match="no version v9"):
        kind_of_crd(crd, "v9")


@pytest.mark.apiserver
async def test_rights(client: Client, control_plane: Cluster, namespace: str) -> None:
    group = "testers-of-rights"
    await client.apply(
        CLUSTER_ROLE,
        {
            "apiVersion": CLUSTER_ROLE.api_version,
            "kind": "ClusterRole",
            "metadata": {"name": "tests-read-config-maps"},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}],
        },
        manager=ME,
    )
    binding = Kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")
    await client.apply(
        binding,
        {
            "apiVersion": binding.api_version,
            "kind": "RoleBinding",
            "metadata": {"namespace": namespace, "name": "testers"},
            "roleRef": {"apiGroup": binding.group, "kind": "ClusterRole", "name": "tests-read-config-maps"},
            "subjects": [{"apiGroup": binding.group, "kind": "Group", "name": group}],
        },
        manager=ME,
    )

    async def allowed(verb: str, kind: Kind, *, namespace: str = "", name: str = "", subresource: str = "") -> bool:
        return await client.subject_access_review(
            user="ada", groups=[group], verb=verb, kind=kind, namespace=namespace, name=name, subresource=subresource
        )

    for _ in range(200):  # the authorizer follows its own watch
        if await allowed("get", CONFIG_MAP, namespace=namespace):
            break
        await asyncio.sleep(0.02)
    assert await allowed("list", CONFIG_MAP, namespace=namespace, name="x")
    assert not await allowed("create", CONFIG_MAP, namespace=namespace)
    assert not await allowed("get", CONFIG_MAP, namespace="default")
    assert not await allowed("get", CONFIG_MAP)
    assert not await allowed("get", DEPLOYMENT, namespace=namespace, subresource="scale")
    assert await client.subject_access_review(
        user="root", groups=["system:masters"], uid="1", extra={"k": ["v"]}, verb="delete", kind=NAMESPACE
    )

    async with Client(load_config(kubeconfig=control_plane.kubeconfig_for("ada", [group]))) as ada:
        assert await ada.list_all(CONFIG_MAP, namespace=namespace) == []
        with pytest.raises(Forbidden, match="ada"):
            await ada.create(CONFIG_MAP, config_map(namespace, "a"))


# ------------------------------------------------------------------------------------------------- what is reported


@pytest.mark.apiserver
async def test_requests_are_reported_and_named(kubeconfig: Path, namespace: str, proxy: FaultProxy) -> None:
    seen: list[tuple[str, str, int]] = []
    config = load_config(kubeconfig=proxy.kubeconfig)
    async with Client(
        config, user_agent=user_agent_of("tests"), on_request=lambda v, r, code, s: seen.append((v, r, code))
    ) as client:
        key = ObjectKey(namespace, "a")
        await client.create(CONFIG_MAP, config_map(namespace, "a"))
        await client.merge_patch(NAMESPACE, ObjectKey("", namespace), {}, subresource="status")
        with pytest.raises(NotFound):
            await client.get(CONFIG_MAP, ObjectKey(namespace, "b"))
        proxy.inject(Fault("reset", count=2))  # aiohttp itself sends a DELETE again
        with pytest.raises(ConnectionFailed):
            await client.delete(CONFIG_MAP, key)
    assert seen == [
        ("create", "configmaps", 201),
        ("patch", "namespaces/status", 200),
        ("get", "configmaps", 404),
        ("delete", "configmaps", 0),
    ]


@pytest.mark.apiserver
async def test_warnings_of_the_server_reach_the_hook(kubeconfig: Path, namespace: str) -> None:
    warnings: list[str] = []
    async with Client(load_config(kubeconfig=kubeconfig), on_warning=warnings.append) as client:
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"namespace": namespace, "name": "s"},
            "spec": {"ports": [{"port": 80}], "colour": "red"},
        }
        await client.create(SERVICE, service, field_validation="Warn")
    assert warnings == ['unknown field "spec.colour"']


@pytest.mark.apiserver
async def test_warnings_are_logged_once(kubeconfig: Path, namespace: str, caplog: pytest.LogCaptureFixture) -> None:
    async with Client(load_config(kubeconfig=kubeconfig)) as client:
        for name in ("a", "b"):
            obj = config_map(namespace, name) | {"colour": "red"}
            await client.create(CONFIG_MAP, obj, field_validation="Warn")
    assert [r.getMessage() for r in caplog.records if r.levelname == "WARNING"] == [
        'the API server warns: unknown field "colour"'
    ]
