"""Our minimal CRDs of the Gateway API refuse what the upstream's own refuse, and take what those take."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.gatewayapi.releases import API, EXTENSION, gateway_releases

from airunway.kube import BadRequest, Client, Invalid, Kind
from airunway.resource import Resource, key_of
from airunway_testing.gatewayapi.kinds import (
    DESTINATION_RULE,
    GATEWAY,
    HTTP_ROUTE,
    INFERENCE_POOL,
    definitions,
    gateway,
    istio_definitions,
    listener,
)
from airunway_testing.operator import install_definitions, remove_definition
from airunway_testing.simulators import discover_simulators


def route(*rules: Resource, parents: list[Resource] | None = None, **spec: object) -> Resource:
    metadata = {"name": "llama", "namespace": "default"}
    body = {"parentRefs": [{"name": "inference"}] if parents is None else parents, "rules": list(rules), **spec}
    return {"apiVersion": HTTP_ROUTE.api_version, "kind": HTTP_ROUTE.kind, "metadata": metadata, "spec": body}


def path_rule(value: str, *, type_: str = "PathPrefix", matches: int = 1) -> Resource:
    rewrite = {"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}}}
    return {
        "matches": [{"path": {"type": type_, "value": value}} for _ in range(matches)],
        "filters": [rewrite],
        "backendRefs": [{"name": "llama", "port": 80}],
    }


def name_rule(header: str = "X-Gateway-Model-Name", value: str = "llama") -> Resource:
    backend = {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "llama"}
    match = {"headers": [{"type": "Exact", "name": header, "value": value}]}
    return {"matches": [match], "backendRefs": [backend], "timeouts": {"request": "10m"}}


def pool(**spec: object) -> Resource:
    reference = {"name": "llama-picker", "port": {"number": 9002}, "failureMode": "FailOpen"}
    body = {
        "selector": {"matchLabels": {"app": "llama"}},
        "targetPorts": [{"number": 8000}],
        "endpointPickerRef": reference,
        **spec,
    }
    metadata = {"name": "llama", "namespace": "default"}
    return {"apiVersion": INFERENCE_POOL.api_version, "kind": INFERENCE_POOL.kind, "metadata": metadata, "spec": body}


def shared_rule(backends: int) -> Resource:
    """A path rule for several deployments."""
    refs = [{"name": f"v{number}", "port": 80, "weight": 9} for number in range(backends)]
    return {**path_rule("/a"), "backendRefs": refs}


TAKEN: dict[str, tuple[Kind, Resource]] = {
    "two backends": (HTTP_ROUTE, route(shared_rule(2))),
    "sixteen backends": (HTTP_ROUTE, route(shared_rule(16))),
    "model name": (HTTP_ROUTE, route(name_rule())),
    "path and model name": (HTTP_ROUTE, route(path_rule("/ml/a%2Db"), name_rule(value="org/model:7b"))),
    "two parents": (HTTP_ROUTE, route(name_rule(), parents=[{"name": "a"}, {"name": "b", "namespace": "infra"}])),
    "two sections of a parent": (
        HTTP_ROUTE,
        route(name_rule(), parents=[{"name": "a", "sectionName": "x"}, {"name": "a", "sectionName": "y"}]),
    ),
    "all that a path may hold": (HTTP_ROUTE, route(path_rule("/a-z_.~!$&'()*+,;=:@%20"))),
    "Gateway": (
        GATEWAY,
        gateway("inference", "default", listeners=[listener(), listener("b", port=81, admits="Same")]),
    ),
    "pool": (INFERENCE_POOL, pool()),
}

REFUSED: dict[str, tuple[Kind, Resource]] = {
    **{
        f"path {value!r}": (HTTP_ROUTE, route(path_rule(value)))
        for value in (
            "a",
            "",
            "//a",
            "/a//b",
            "/a/../b",
            "/a/..",
            "/a/./b",
            "/.",
            "/%2f",
            "/%2F",
            "/a#b",
            "/a b",
            "/ä",
            "/%4",
        )
    },
    "path of 1,025 characters": (HTTP_ROUTE, route(path_rule("/" + "a" * 1024))),
    "rewrite of an exact path": (HTTP_ROUTE, route(path_rule("/a", type_="Exact"))),
    "rewrite with two matches": (HTTP_ROUTE, route(path_rule("/a", matches=2))),
    "rewrite without its field": (HTTP_ROUTE, route({"filters": [{"type": "URLRewrite"}]})),
    "two rewrites": (HTTP_ROUTE, route({**path_rule("/a"), "filters": path_rule("/a")["filters"] * 2})),
    "rewrite of a prefix without the new one": (
        HTTP_ROUTE,
        route({"filters": [{"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplacePrefixMatch"}}}]}),
    ),
    "header with a blank": (HTTP_ROUTE, route(name_rule(header="X Model"))),
    "empty header value": (HTTP_ROUTE, route(name_rule(value=""))),
    "header value of 4,097 characters": (HTTP_ROUTE, route(name_rule(value="a" * 4097))),
    "Service without port": (HTTP_ROUTE, route({"backendRefs": [{"name": "llama"}]})),
    "seventeen backends": (HTTP_ROUTE, route(shared_rule(17))),
    "seventeen rules": (HTTP_ROUTE, route(*[name_rule()] * 17)),
    "no rules": (HTTP_ROUTE, route()),
    "timeout without unit": (HTTP_ROUTE, route({**name_rule(), "timeouts": {"request": "10"}})),
    "timeout with a fraction": (HTTP_ROUTE, route({**name_rule(), "timeouts": {"request": "1.5s"}})),
    "backend timeout longer than all": (
        HTTP_ROUTE,
        route({**name_rule(), "timeouts": {"request": "1s", "backendRequest": "2s"}}),
    ),
    "the same parent twice": (HTTP_ROUTE, route(name_rule(), parents=[{"name": "a"}, {"name": "a"}])),
    "a parent with and without section": (
        HTTP_ROUTE,
        route(name_rule(), parents=[{"name": "a"}, {"name": "a", "sectionName": "x"}]),
    ),
    "parent without name": (HTTP_ROUTE, route(name_rule(), parents=[{"namespace": "a"}])),
    "unknown field": (HTTP_ROUTE, route(name_rule(), parent="a")),
    "hostname with a blank": (HTTP_ROUTE, route(name_rule(), hostnames=["a b"])),
    "Gateway without listeners": (
        GATEWAY,
        {**gateway("inference", "default"), "spec": {"gatewayClassName": "a", "listeners": []}},
    ),
    "two listeners of one name": (GATEWAY, gateway("a", "default", listeners=[listener(), listener(port=81)])),
    "two listeners of one port": (GATEWAY, gateway("a", "default", listeners=[listener(), listener("b")])),
    "listener on port 0": (GATEWAY, gateway("a", "default", listeners=[listener(port=0)])),
    "listener that admits some": (GATEWAY, gateway("a", "default", listeners=[listener(admits="Some")])),
    "pool of every pod": (INFERENCE_POOL, pool(selector={"matchLabels": {}})),
    "pool of a set": (INFERENCE_POOL, pool(selector={"matchExpressions": [{"key": "a", "operator": "Exists"}]})),
    "label value with a blank": (INFERENCE_POOL, pool(selector={"matchLabels": {"app": "a b"}})),
    "pool without port": (INFERENCE_POOL, pool(targetPorts=[])),
    "picker without port": (INFERENCE_POOL, pool(endpointPickerRef={"name": "llama-picker"})),
    "failure mode of another name": (
        INFERENCE_POOL,
        pool(endpointPickerRef={"name": "a", "port": {"number": 1}, "failureMode": "Open"}),
    ),
}

STRICTER = {"no rules", "pool of every pod"}
"""What releases before 1.5 (Gateway API) and 1.1 (Inference Extension) take; ours refuse it as later ones do."""


async def refusals(client: Client, table: dict[str, tuple[Kind, Resource]]) -> dict[str, str]:
    """What the API server says about each object that it refuses."""
    found = {}
    for name, (kind, obj) in table.items():
        try:
            await client.create(kind, obj, dry_run=True, field_validation="Strict")
        except (Invalid, BadRequest) as error:
            found[name] = str(error)
    return found


@pytest.fixture
async def ours(client: Client) -> None:
    await install_definitions(client, definitions())


@pytest.mark.apiserver
async def test_our_crds_take_typical_objects_and_refuse_faulty_ones(client: Client, ours: None) -> None:
    assert await refusals(client, TAKEN) == {}
    assert sorted(await refusals(client, REFUSED)) == sorted(REFUSED)


@pytest.mark.apiserver
async def test_what_no_controller_answers_says_so(client: Client, namespace: str, ours: None) -> None:
    """The text is the one of the upstream's CRDs; `WaitingForGateway` repeats it."""
    made = await client.create(GATEWAY, gateway("inference", namespace))
    conditions = {
        each["type"]: (each["status"], each["reason"], each["message"]) for each in made["status"]["conditions"]
    }
    pending = ("Unknown", "Pending", "Waiting for controller")
    assert conditions == {"Accepted": pending, "Programmed": pending}


@pytest.mark.apiserver
async def test_the_rule_of_istio_takes_what_a_picker_needs(client: Client, namespace: str) -> None:
    await install_definitions(client, istio_definitions())
    tls = {"mode": "SIMPLE", "insecureSkipVerify": True}
    spec = {"host": f"llama-picker.{namespace}.svc.cluster.local", "trafficPolicy": {"tls": tls}}
    body = {"apiVersion": DESTINATION_RULE.api_version, "kind": DESTINATION_RULE.kind}
    metadata = {"name": "llama-picker", "namespace": namespace}
    made = await client.create(
        DESTINATION_RULE, {**body, "metadata": metadata, "spec": spec}, field_validation="Strict"
    )
    assert made["spec"] == spec
    for name in map(dig_name, istio_definitions()):
        await remove_definition(client, name)


def dig_name(definition: Resource) -> str:
    return key_of(definition).name


def test_simulators_that_bring_the_same_crd_bring_one_text() -> None:
    """They are installed on one API server, where two texts would replace each other again and again."""
    found: dict[str, Resource] = {}
    for simulator in discover_simulators().values():
        for definition in simulator.custom_resource_definitions():
            assert found.setdefault(key_of(definition).name, definition) == definition
    assert "httproutes.gateway.networking.k8s.io" in found


# Each pair costs the API server seconds: the releases of the two projects are walked through side by side.
@pytest.mark.apiserver
@pytest.mark.slow
async def test_what_a_stored_release_refuses_ours_refuse_too(client: Client, recordings: Path) -> None:
    """And what ours take, every stored release takes; the few stricter rules of ours are named here."""
    await install_definitions(client, definitions())
    ours = await refusals(client, TAKEN | REFUSED)
    gateways, pools = gateway_releases(recordings, API), gateway_releases(recordings, EXTENSION)
    assert len(gateways) >= 4
    assert len(pools) >= 5
    try:
        for number in range(max(len(gateways), len(pools))):
            pair = [*gateways[number : number + 1], *pools[number : number + 1]]
            await install_definitions(client, [each for release in pair for each in release.definitions()])
            theirs = await refusals(client, TAKEN | REFUSED)
            label = ", ".join(release.label for release in pair)
            assert set(theirs) - set(ours) == set(), label
            assert set(ours) - set(theirs) <= STRICTER, label
    finally:
        await install_definitions(client, definitions())
