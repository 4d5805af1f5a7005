"""The client against the real API server, and against answers that only middle boxes give."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web

from airunway.kube import (
    CLUSTER_ROLE,
    CONFIG_MAP,
    CUSTOM_RESOURCE_DEFINITION,
    DEPLOYMENT,
    NAMESPACE,
    POD,
    SERVICE,
    AlreadyExists,
    ApiError,
    BadRequest,
    Client,
    ClusterConfig,
    Conflict,
    ConnectionFailed,
    Forbidden,
    Gone,
    Invalid,
    Kind,
    KubeError,
    MalformedAnswer,
    NotFound,
    RequestTimedOut,
    ServerError,
    TooManyRequests,
    TransportError,
    Unauthorized,
    api_error,
    is_retryable,
    kind_of_crd,
    load_config,
    retry_after_of,
    user_agent_of,
)
from airunway.kube.errors import LONGEST_HINT
from airunway.resource import ObjectKey, Resource
from airunway_testing.controlplane import Cluster
from airunway_testing.controlplane.certificates import new_authority
from airunway_testing.faultproxy import Fault, FaultProxy

ME = "airunway-tests"


def config_map(namespace: str, name: str, **data: str) -> Resource:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": namespace, "name": name},
        "data": data,
    }


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
    assert await client.is_served(DEPLOYMENT)
    assert await client.is_served(POD)
    assert await client.is_served(widget)
    assert not await client.is_served(Kind(widget.group, "v2", "Widget", "widgets"))
    assert not await client.is_served(Kind(widget.group, "v1", "Gadget", "gadgets"))
    assert not await client.is_served(Kind("no.such.group", "v1", "X", "xs"))
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
        decision = await client.subject_access_review(
            user="ada", groups=[group], verb=verb, kind=kind, namespace=namespace, name=name, subresource=subresource
        )
        return decision.allowed

    for _ in range(200):  # the authorizer follows its own watch
        if await allowed("get", CONFIG_MAP, namespace=namespace):
            break
        await asyncio.sleep(0.02)
    assert await allowed("list", CONFIG_MAP, namespace=namespace, name="x")
    assert not await allowed("create", CONFIG_MAP, namespace=namespace)
    assert not await allowed("get", CONFIG_MAP, namespace="default")
    assert not await allowed("get", CONFIG_MAP)
    assert not await allowed("get", DEPLOYMENT, namespace=namespace, subresource="scale")
    decision = await client.subject_access_review(
        user="root", groups=["system:masters"], uid="1", extra={"k": ["v"]}, verb="delete", kind=NAMESPACE
    )
    assert decision.allowed
    assert not decision.denied

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


# ------------------------------------------------------------------------------------------------------------ trouble


@pytest.mark.apiserver
@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Fault("status", status=400), BadRequest),
        (Fault("status", status=401), Unauthorized),
        (Fault("status", status=403), Forbidden),
        (Fault("status", status=404), NotFound),
        (Fault("status", status=405), ApiError),
        (Fault("status", status=409), Conflict),
        (Fault("status", status=409, reason="AlreadyExists"), AlreadyExists),
        (Fault("status", status=410), Gone),
        (Fault("status", status=422), Invalid),
        (Fault("status", status=429, retry_after=7), TooManyRequests),
        (Fault("status", status=500), ServerError),
        (Fault("status", status=503), ServerError),
        (Fault("reset", count=2), ConnectionFailed),
        (Fault("lose-answer", count=2), ConnectionFailed),
        (Fault("hang"), RequestTimedOut),
        (Fault("garbage"), MalformedAnswer),
    ],
    ids=lambda value: f"{value.action} {value.status}" if isinstance(value, Fault) else "",
)
async def test_each_trouble_has_its_exception(
    fault: Fault, expected: type[KubeError], proxied: Client, proxy: FaultProxy
) -> None:
    proxy.inject(fault)
    with pytest.raises(expected) as caught:
        await proxied.list_all(NAMESPACE)
    error = caught.value
    assert type(error) is expected
    if isinstance(error, ApiError):
        assert error.status == fault.status
        assert error.message == f"injected {fault.status}"
        assert retry_after_of(error) == (fault.retry_after or 0)
        assert is_retryable(error) == (fault.status in (409, 429, 500, 503))
    else:
        assert isinstance(error, TransportError)
        assert is_retryable(error)
        assert "/api/v1/namespaces" in str(error) or "namespaces" in str(error)
        assert retry_after_of(error) == 0
    assert await proxied.list_all(NAMESPACE), "and the next request is fine"


async def test_a_refused_connection() -> None:
    async with Client(ClusterConfig(server="http://127.0.0.1:1")) as client:
        with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1"):
            await client.get_path("/version")


async def test_a_client_that_is_not_open_says_so() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await Client(ClusterConfig(server="http://127.0.0.1:1")).get_path("/version")


@asynccontextmanager
async def answering(status: int, body: bytes, **headers: str) -> AsyncIterator[Client]:
    """A server that always gives the same answer."""

    async def serve(_: web.Request) -> web.Response:
        return web.Response(status=status, body=body, headers=headers)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    async with Client(ClusterConfig(server=f"http://{host}:{port}")) as client:
        yield client
    await runner.cleanup()


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (502, b"<html>bad gateway</html>", "<html>bad gateway</html>"),
        (502, b"", ""),
        (500, b"\xff\xfe", "��"),
        (500, b"[1, 2]", ""),
        (500, b'{"message": 3, "details": 4, "reason": null}', "3"),
        (302, b"", ""),
    ],
)
async def test_error_answers_of_middle_boxes(status: int, body: bytes, message: str) -> None:
    async with answering(status, body) as client:
        with pytest.raises(ApiError) as caught:
            await client.get_path("/version")
    assert caught.value.status == status
    assert caught.value.message == message
    assert caught.value.details == {}
    assert caught.value.causes == []
    assert str(status) in str(caught.value)


@pytest.mark.parametrize("value", ["x", "-1", "Wed, 21 Oct 2026 07:28:00 GMT", ""])
async def test_a_retry_after_that_is_no_number_is_ignored(value: str) -> None:
    async with answering(429, b"{}", **{"Retry-After": value}) as client:
        with pytest.raises(TooManyRequests) as caught:
            await client.get_path("/version")
    assert caught.value.retry_after is None


@pytest.mark.parametrize("value", ["301", "9999999999", "0" * 20 + "9" * 400])
async def test_l8_a_server_s_hint_parks_nothing_for_longer_than_five_minutes(value: str) -> None:
    async with answering(429, b"{}", **{"Retry-After": value}) as client:
        with pytest.raises(TooManyRequests) as caught:
            await client.get_path("/version")
    assert caught.value.retry_after == LONGEST_HINT == 300


@pytest.mark.parametrize("value", ["٣", "²", "1" * 5000 + "x"])
async def test_l8_digits_that_http_does_not_know_are_no_number(value: str) -> None:
    async with answering(429, b"{}", **{"Retry-After": value}) as client:
        with pytest.raises(ApiError) as caught:
            await client.get_path("/version")
    assert caught.value.retry_after is None


@pytest.mark.parametrize("hint", [301, 10**400, 1e300, float("inf")])
def test_l8_a_hint_in_a_status_is_bounded_whatever_its_size(hint: float) -> None:
    error = api_error(429, {"details": {"retryAfterSeconds": hint}})
    assert error.retry_after == 300


async def test_s9_a_cluster_s_new_authority_is_read_once_the_old_one_no_longer_fits(tmp_path: Path) -> None:
    authorities = [new_authority(tmp_path / f"ca-{number}", name="cluster") for number in (1, 2)]
    pairs = [each.server(tmp_path / f"s{n}", name="api", hosts=["127.0.0.1"]) for n, each in enumerate(authorities)]
    mounted = tmp_path / "ca.crt"
    mounted.write_bytes(authorities[0].files.certificate.read_bytes())

    async def version(_: web.Request) -> web.Response:
        return web.json_response({"major": "1"})

    app = web.Application()
    app.router.add_get("/version", version)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        ports = []
        for pair in pairs:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(pair.certificate, pair.key)
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
            ports.append(runner.addresses[-1][1])
        config = ClusterConfig(
            server=f"https://127.0.0.1:{ports[1]}", ca_data=mounted.read_bytes(), ca_file=mounted
        )  # the server has its new certificate already
        async with Client(config) as client:
            with pytest.raises(ConnectionFailed):
                await client.get_path("/version")
            for content in (b"", b"half a fi"):
                mounted.write_bytes(content)
                with pytest.raises(ConnectionFailed):
                    await client.get_path("/version")
                assert client.config.ca_data == config.ca_data, "what cannot be used replaces nothing"
            mounted.write_bytes(authorities[1].files.certificate.read_bytes())
            with pytest.raises(ConnectionFailed):
                await client.get_path("/version")
            assert await client.get_path("/version") == {"major": "1"}
    finally:
        await runner.cleanup()


async def test_a_redirect_is_not_followed() -> None:
    """Credentials must not go where an answer points."""
    async with answering(307, b"", Location="http://127.0.0.1:1/stolen") as client:
        with pytest.raises(ApiError) as caught:
            await client.get_path("/version")
    assert caught.value.status == 307


def test_details_of_a_status() -> None:
    body = {"reason": "TooManyRequests", "details": {"retryAfterSeconds": 3, "causes": [{"field": "a"}, 5]}}
    error = api_error(429, body)
    assert (error.retry_after, error.causes) == (3.0, [{"field": "a"}])
    assert api_error(429, body, retry_after=1.0).retry_after == 1.0
    assert not is_retryable(ValueError("not ours"))


# ------------------------------------------------------------------------------------------------------------ kinds


@pytest.mark.parametrize(
    ("kind", "where", "path"),
    [
        (POD, {"namespace": "n", "name": "a"}, "/api/v1/namespaces/n/pods/a"),
        (POD, {}, "/api/v1/pods"),
        (
            DEPLOYMENT,
            {"namespace": "n", "name": "a", "subresource": "status"},
            "/apis/apps/v1/namespaces/n/deployments/a/status",
        ),
        (NAMESPACE, {"name": "a"}, "/api/v1/namespaces/a"),
        (NAMESPACE, {"namespace": "n", "name": "a"}, "/api/v1/namespaces/a"),
        (CLUSTER_ROLE, {"name": "system:a b?c"}, "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Aa%20b%3Fc"),
    ],
)
def test_paths(kind: Kind, where: dict[str, str], path: str) -> None:
    assert kind.path(**where) == path


@pytest.mark.parametrize("name", [".", "..", "a/b", "../secrets", "a%2fb"])
def test_names_that_would_change_the_path(name: str) -> None:
    with pytest.raises(ValueError, match="not a name"):
        POD.path(namespace="n", name=name)
    with pytest.raises(ValueError, match="not a name"):
        POD.path(namespace=name)


def test_addresses_that_are_none() -> None:
    with pytest.raises(ValueError, match="needs a namespace"):
        POD.path(name="a")
    assert (POD.api_version, DEPLOYMENT.api_version) == ("v1", "apps/v1")
    assert (str(POD), str(DEPLOYMENT)) == ("pods", "deployments.apps")


@pytest.mark.apiserver
async def test_a_write_without_a_name(client: Client, namespace: str) -> None:
    nameless: Resource = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace}}
    writes: list[Callable[[], Awaitable[object]]] = [
        lambda: client.apply(CONFIG_MAP, nameless, manager=ME),
        lambda: client.replace(CONFIG_MAP, nameless),
        lambda: client.merge_patch(CONFIG_MAP, ObjectKey(namespace, ""), {}),
        lambda: client.json_patch(CONFIG_MAP, ObjectKey(namespace, ""), []),
        lambda: client.delete(CONFIG_MAP, ObjectKey(namespace, "")),  # would be the whole collection
        lambda: client.get(CONFIG_MAP, ObjectKey(namespace, "")),
    ]
    for write in writes:
        with pytest.raises(ValueError, match=r"metadata\.name"):
            await write()
    generated = nameless | {"metadata": {"namespace": namespace, "generateName": "g-"}}
    assert (await client.create(CONFIG_MAP, generated))["metadata"]["name"].startswith("g-")
