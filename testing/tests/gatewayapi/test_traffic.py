"""Requests through a real Envoy that follows HTTPRoutes and InferencePools (``-m gateway``)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.gatewayapi.envoy import EnvoyError
from tests.support.gatewayapi.picker import PlayedPicker
from tests.support.gatewayapi.traffic import Ground

from airunway.kube import SERVICE
from airunway.resource import ObjectKey, Resource
from airunway_testing.eventually import eventually
from airunway_testing.gatewayapi.kinds import HTTP_ROUTE, INFERENCE_POOL

pytestmark = [pytest.mark.apiserver, pytest.mark.gateway]

MODEL_HEADER = "X-Gateway-Model-Name"


def path_rule(path: str, *backends: Resource) -> Resource:
    rewrite = {"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}}}
    match = {"path": {"type": "PathPrefix", "value": path}}
    return {"matches": [match], "filters": [rewrite], "backendRefs": list(backends)}


def name_rule(model: str, *backends: Resource) -> Resource:
    match = {"headers": [{"type": "Exact", "name": MODEL_HEADER, "value": model}]}
    return {"matches": [match], "backendRefs": list(backends)}


def to_service(name: str) -> Resource:
    return {"name": name, "port": 80}


def to_pool(name: str) -> Resource:
    return {"group": INFERENCE_POOL.group, "kind": INFERENCE_POOL.kind, "name": name}


async def make_service(ground: Ground, name: str, *, port: int = 80, target: int = 0) -> None:
    ports = [{"name": "http", "port": port, "targetPort": target or ground.model_port}]
    metadata = {"name": name, "namespace": ground.namespace}
    spec = {"selector": {"app": name}, "ports": ports}
    await ground.client.create(SERVICE, {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})


async def make_pool(ground: Ground, name: str, *, mode: str = "FailOpen") -> None:
    """The pool, and the Service of its picker."""
    await make_service(ground, f"{name}-picker", port=9002, target=ground.picker_port)
    spec = {
        "selector": {"matchLabels": {"app": name}},
        "targetPorts": [{"number": ground.model_port}],
        "endpointPickerRef": {"name": f"{name}-picker", "port": {"number": 9002}, "failureMode": mode},
    }
    metadata = {"name": name, "namespace": ground.namespace}
    body = {"apiVersion": INFERENCE_POOL.api_version, "kind": INFERENCE_POOL.kind, "metadata": metadata, "spec": spec}
    await ground.client.create(INFERENCE_POOL, body)


async def make_route(ground: Ground, name: str, *rules: Resource, **spec: Any) -> None:
    parents = [{"name": ground.gateway, "sectionName": "http"}]
    body = {
        "apiVersion": HTTP_ROUTE.api_version,
        "kind": HTTP_ROUTE.kind,
        "metadata": {"name": name, "namespace": ground.namespace},
        "spec": {"parentRefs": parents, "rules": list(rules), **spec},
    }
    await ground.client.create(HTTP_ROUTE, body)


async def test_the_model_name_in_a_header_chooses_the_backend(ground: Ground) -> None:
    for name in ("llama", "phi"):
        await ground.server(f"{name}-0", labels={"app": name})
        await make_service(ground, name)
        await make_route(ground, name, name_rule(f"org/{name}", to_service(name)))
    await ground.accepted("llama", "phi")
    body = {"model": "any"}
    for name in ("llama", "phi"):
        answer = await ground.post("/v1/completions", body, {MODEL_HEADER: f"org/{name}"})
        assert (answer.status, answer.server) == (200, f"{name}-0")
    assert (await ground.post("/v1/completions", body, {MODEL_HEADER: "org/LLAMA"})).status == 404
    assert (await ground.post("/v1/completions", body)).status == 404


async def test_the_longest_prefix_wins_and_is_gone_at_the_server(ground: Ground) -> None:
    """R8. A prefix is one of whole segments; the model name counts only where no path rule fits."""
    servers = {}
    for name, path in (("a", "/ml/a"), ("ab", "/ml/a/b"), ("other", "/ml/other")):
        servers[name] = await ground.server(f"{name}-0", labels={"app": name})
        await make_service(ground, name)
        await make_route(ground, name, path_rule(path, to_service(name)), name_rule(name, to_service(name)))
    await ground.accepted("a", "ab", "other")
    for path, name, arrives in (
        ("/ml/a/v1/models?limit=3", "a", "/v1/models?limit=3"),
        ("/ml/a", "a", "/"),
        ("/ml/a/", "a", "/"),
        ("/ml/a/bc/v1/models", "a", "/bc/v1/models"),
        ("/ml/a/b/v1/models", "ab", "/v1/models"),
        ("/ml/other/a%20b", "other", "/a%20b"),
    ):
        answer = await ground.get(path, {MODEL_HEADER: "other"})
        assert (answer.status, answer.server) == (200, f"{name}-0"), path
        assert servers[name].requests[-1].path == arrives
    assert (await ground.get("/ml/ab/v1/models")).status == 404
    assert (await ground.get("/ML/a/v1/models")).status == 404


async def test_r33_the_picker_has_the_path_before_the_rewrite_and_the_server_after_it(ground: Ground) -> None:
    servers = [await ground.server(f"llama-{number}", labels={"app": "llama"}) for number in range(2)]
    await make_pool(ground, "llama")
    await make_route(ground, "llama", path_rule("/ml/llama", to_pool("llama")))
    async with ground.picker("llama", labels={"app": "llama-picker"}) as picker:
        await ground.endpoints("llama", 2)
        await ground.accepted("llama")
        body = {"model": "llama", "prompt": "x" * 200_000}
        answers = [await ground.post("/ml/llama/v1/completions", body) for _ in range(4)]
        assert [answer.status for answer in answers] == [200] * 4, answers
        assert {answer.server for answer in answers} == {"llama-0", "llama-1"}
        assert {(each.path, each.model) for each in picker.requests} == {("/ml/llama/v1/completions", "llama")}
        picked = [each.endpoint for each in picker.requests]
        addresses = {server.name: server.address for server in servers}
        assert [addresses[answer.server] for answer in answers] == picked
        got = [request for server in servers for request in server.requests]
        assert {request.path for request in got} == {"/v1/completions"}
        assert {len(request.body) for request in got} == {len(got[0].body)}
        assert len(got[0].body) > 200_000
        models = await ground.get("/ml/llama/v1/models")
        assert models.status == 200
        assert picker.requests[-1].path == "/ml/llama/v1/models"


async def test_what_a_picker_refuses_is_the_clients_answer(ground: Ground) -> None:
    """As recorded of llm-d-router 0.10 (#28): 400 for what it cannot read, 503 without an endpoint."""
    await ground.server("llama-0", labels={"app": "llama"})
    await make_pool(ground, "llama")
    await make_route(ground, "llama", name_rule("llama", to_pool("llama")))
    async with ground.picker("llama", labels={"app": "llama-picker"}):
        await ground.endpoints("llama", 1)
        await ground.accepted("llama")
        header = {MODEL_HEADER: "llama"}
        assert (await ground.post("/v1/completions", {"prompt": "a"}, header)).status == 400
        assert (await ground.post("/v2/other", {"model": "llama"}, header)).status == 400
        assert (await ground.post("/v1/completions", {"model": "llama"}, header)).status == 200
        await ground.unready("llama-0")
        assert (await ground.post("/v1/completions", {"model": "llama"}, header)).status == 503


async def test_fail_open_goes_on_without_a_picker(ground: Ground) -> None:
    """Before there is a picker, and after it has crashed; see `tests.support.gatewayapi.envoy` about bodies."""
    await ground.server("llama-0", labels={"app": "llama"})
    await make_pool(ground, "llama")
    await make_route(ground, "llama", path_rule("/ml/llama", to_pool("llama")))
    await ground.endpoints("llama", 1)
    await ground.accepted("llama")
    path, body = "/ml/llama/v1/completions", {"model": "llama"}
    assert (await ground.post(path, body)).server == "llama-0"
    async with ground.picker("llama", labels={"app": "llama-picker"}) as picker:
        await _until_asked(ground, picker)
        assert (await ground.post(path, body)).server == "llama-0"
    assert (await ground.get("/ml/llama/v1/models")).server == "llama-0"
    await ground.unready("llama-picker-0")
    assert (await ground.post(path, body)).server == "llama-0"


async def test_fail_close_refuses_without_a_picker(ground: Ground) -> None:
    await ground.server("llama-0", labels={"app": "llama"})
    await make_pool(ground, "llama", mode="FailClose")
    await make_route(ground, "llama", path_rule("/ml/llama", to_pool("llama")))
    await ground.endpoints("llama", 1)
    await ground.accepted("llama")
    assert (await ground.get("/ml/llama/v1/models")).status == 500
    async with ground.picker("llama", labels={"app": "llama-picker"}) as picker:
        await _until_asked(ground, picker)
        assert (await ground.get("/ml/llama/v1/models")).status == 200
    assert (await ground.get("/ml/llama/v1/models")).status == 500


async def _until_asked(ground: Ground, picker: PlayedPicker) -> None:
    async def look() -> bool:
        await ground.get("/ml/llama/v1/models")
        return bool(picker.requests)

    await eventually(look)


async def test_a_path_is_handed_over_without_a_lost_request(ground: Ground) -> None:
    """R7: two routes claim one path; the older has it, and when it goes, the younger serves the next request."""
    for name in ("older", "younger"):
        await ground.server(f"{name}-0", labels={"app": name})
        await make_service(ground, name)
    await make_route(ground, "older", path_rule("/ml/a", to_service("older")))
    await ground.accepted("older")
    await make_route(ground, "younger", path_rule("/ml/a", to_service("younger")))
    await ground.accepted("younger")
    answers = []
    done = asyncio.Event()

    async def ask() -> None:
        while not done.is_set():
            answers.append(await ground.post("/ml/a/v1/completions", {"model": "a"}))

    asking = [asyncio.create_task(ask()) for _ in range(4)]
    await eventually(lambda: len(answers) >= 20)
    await ground.client.delete(HTTP_ROUTE, ObjectKey(ground.namespace, "older"))
    await eventually(lambda: answers[-1].server == "younger-0")
    done.set()
    await asyncio.gather(*asking)
    assert {answer.status for answer in answers} == {200}
    assert answers[0].server == "older-0"
    servers = [answer.server for answer in answers]
    assert {"older-0", "younger-0"} == set(servers)


@pytest.mark.parametrize(
    "model",
    ['a"b', "a\\b", "%{REQ(:path)}", "{{ .Values.x }}", "a: b - c", "ünï/😀", "$(x) `y` ${z}"],
)
async def test_hostile_model_names_reach_envoy_as_data(ground: Ground, model: str) -> None:
    """R30: the rule fits this text and nothing else, and Envoy takes its files."""
    await ground.server("llama-0", labels={"app": "llama"})
    await make_service(ground, "llama")
    await make_route(
        ground, "llama", name_rule(model, to_service("llama")), path_rule("/a(b)*+.$&'!;@,=~", to_service("llama"))
    )
    await ground.accepted("llama")
    assert (await ground.get("/v1/models", {MODEL_HEADER: model})).status == 200
    assert (await ground.get("/v1/models", {MODEL_HEADER: "other"})).status == 404
    answer = await ground.get("/a(b)*+.$&'!;@,=~/v1/models")
    assert (answer.status, '"path": "/v1/models"' in answer.text) == (200, True)
    assert (await ground.get("/abb.$&'!;@,=~/v1/models")).status == 404


async def test_a_backend_that_is_missing_is_an_error_of_the_gateway(ground: Ground) -> None:
    await make_route(ground, "llama", path_rule("/ml/a", to_service("missing")))
    await _until_refused(ground)
    assert (await ground.get("/ml/a/v1/models")).status == 500


async def _until_refused(ground: Ground) -> None:
    async def look() -> bool:
        found = await ground.client.get(HTTP_ROUTE, ObjectKey(ground.namespace, "llama"))
        parents = (found.get("status") or {}).get("parents") or []
        return any(each["reason"] == "BackendNotFound" for entry in parents for each in entry["conditions"])

    await eventually(look)
    await ground.plane.settled()


async def test_a_configuration_that_envoy_refuses_is_an_error(ground: Ground) -> None:
    """Otherwise a test would wait in vain, or pass with the routes from before."""
    await ground.server("llama-0", labels={"app": "llama"})
    await make_service(ground, "llama")
    broken = {"matches": [{"path": {"type": "RegularExpression", "value": "/("}}], "backendRefs": [to_service("llama")]}
    await make_route(ground, "llama", broken)
    with pytest.raises(EnvoyError, match="refuses its configuration"):
        await ground.accepted("llama")
