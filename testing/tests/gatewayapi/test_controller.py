"""The simulated gateway controller on a real API server: statuses as real controllers write them, and its faults."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from tests.support.gatewayapi.releases import API, EXTENSION, gateway_releases

from airunway.kube import SERVICE, Client, Kind
from airunway.resource import ObjectKey, Resource, annotations_of, dig
from airunway_testing.eventually import Eventually
from airunway_testing.gatewayapi.binding import Fault
from airunway_testing.gatewayapi.controller import GatewayController, remove_gateways, running_gateway_controller
from airunway_testing.gatewayapi.kinds import (
    CLASS_NAME,
    CONTROLLER_NAME,
    FAULT,
    GATEWAY,
    GATEWAY_CLASS,
    HTTP_ROUTE,
    INFERENCE_POOL,
    definitions,
    gateway,
    gateway_class,
    listener,
)
from airunway_testing.operator import install_definitions, remove_definition

pytestmark = pytest.mark.apiserver

Show = Callable[[Kind, str], Awaitable[dict[str, str]]]


@pytest.fixture
async def controller(client: Client, kubeconfig: Path) -> AsyncIterator[GatewayController]:
    await install_definitions(client, definitions())
    await remove_gateways(client)
    await client.create(GATEWAY_CLASS, gateway_class())
    async with running_gateway_controller(kubeconfig) as running:
        yield running


def route(
    namespace: str, name: str = "llama", *, fault: str = "", parents: list[Resource] | None = None, **spec: object
) -> Resource:
    rewrite = {"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}}}
    rule = {
        "matches": [{"path": {"type": "PathPrefix", "value": "/ml/a"}}],
        "filters": [rewrite],
        "backendRefs": [{"name": "llama", "port": 80}],
    }
    return {
        "apiVersion": HTTP_ROUTE.api_version,
        "kind": HTTP_ROUTE.kind,
        "metadata": {"name": name, "namespace": namespace, "annotations": {FAULT: fault} if fault else {}},
        "spec": {"parentRefs": parents or [{"name": "inference"}], "rules": [rule], **spec},
    }


def service(namespace: str, name: str = "llama") -> Resource:
    spec = {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8000}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def pool(namespace: str, name: str = "llama") -> Resource:
    spec = {
        "selector": {"matchLabels": {"app": name}},
        "targetPorts": [{"number": 8000}],
        "endpointPickerRef": {"name": f"{name}-picker", "port": {"number": 9002}, "failureMode": "FailOpen"},
    }
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": INFERENCE_POOL.api_version, "kind": INFERENCE_POOL.kind, "metadata": metadata, "spec": spec}


def told(entry: Resource) -> dict[str, tuple[str, str, int]]:
    """Status, reason and generation of each condition."""
    return {each["type"]: (each["status"], each["reason"], each["observedGeneration"]) for each in entry["conditions"]}


async def parents(client: Client, namespace: str, name: str = "llama") -> list[Resource]:
    found = await client.get(HTTP_ROUTE, ObjectKey(namespace, name))
    entries: list[Resource] = dig(found, "status", "parents", default=[])
    return entries


async def the_parent(
    client: Client, eventually: Eventually, namespace: str, reason: str, name: str = "llama"
) -> Resource:
    """The only parent's entry, once one of its conditions has this reason."""

    async def look() -> Resource | None:
        entries = await parents(client, namespace, name)
        return entries[0] if entries and any(each["reason"] == reason for each in entries[0]["conditions"]) else None

    found = await eventually(look)
    assert isinstance(found, dict)
    return found


async def test_a_route_that_all_is_well_with(
    client: Client, namespace: str, controller: GatewayController, eventually: Eventually
) -> None:
    await client.create(SERVICE, service(namespace))
    await client.create(GATEWAY, gateway("inference", namespace))
    made = await client.create(HTTP_ROUTE, route(namespace))
    entry = await the_parent(client, eventually, namespace, "ResolvedRefs")
    assert told(entry) == {"Accepted": ("True", "Accepted", 1), "ResolvedRefs": ("True", "ResolvedRefs", 1)}
    assert entry["controllerName"] == CONTROLLER_NAME
    assert entry["parentRef"] == made["spec"]["parentRefs"][0]

    async def programmed() -> Resource | None:
        found = await client.get(GATEWAY, ObjectKey(namespace, "inference"))
        attached = [each["attachedRoutes"] for each in dig(found, "status", "listeners", default=[])]
        return found if attached == [1] else None

    found = await eventually(programmed)
    assert isinstance(found, dict)
    assert told(found["status"]) == {"Accepted": ("True", "Accepted", 1), "Programmed": ("True", "Programmed", 1)}
    assert found["status"]["addresses"] == [{"type": "IPAddress", "value": "127.0.0.1"}]
    accepted = await client.get(GATEWAY_CLASS, ObjectKey("", CLASS_NAME))
    assert told(accepted["status"])["Accepted"][:2] == ("True", "Accepted")

    changed = {"spec": {"hostnames": ["models.example"]}}
    await client.merge_patch(HTTP_ROUTE, ObjectKey(namespace, "llama"), changed)

    async def observed() -> bool:
        return {each["observedGeneration"] for each in (await parents(client, namespace))[0]["conditions"]} == {2}

    await eventually(observed)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda ns: [route(ns, parents=[{"name": "inference", "sectionName": "https"}])], "NoMatchingParent"),
        (lambda ns: [route(ns, parents=[{"name": "inference", "port": 81}])], "NoMatchingParent"),
        (lambda ns: [route(ns, hostnames=["other.example"])], "NoMatchingListenerHostname"),
        (lambda ns: [route(ns)], "BackendNotFound"),
        (
            lambda ns: [service(ns, "other"), route(ns, rules=[{"backendRefs": [{"name": "other", "port": 81}]}])],
            "BackendNotFound",
        ),
        (
            lambda ns: [route(ns, rules=[{"backendRefs": [{"name": "a", "port": 80, "namespace": "b"}]}])],
            "RefNotPermitted",
        ),
        (lambda ns: [route(ns, rules=[{"backendRefs": [{"name": "a", "kind": "Bucket"}]}])], "InvalidKind"),
        (
            lambda ns: [
                route(
                    ns,
                    rules=[{"backendRefs": [{"group": INFERENCE_POOL.group, "kind": "InferencePool", "name": "away"}]}],
                )
            ],
            "BackendNotFound",
        ),
    ],
)
async def test_reasons_of_refusal(
    client: Client,
    namespace: str,
    controller: GatewayController,
    eventually: Eventually,
    made: Callable[[str], list[Resource]],
    reason: str,
) -> None:
    only = listener(hostname="*.models.example") if reason == "NoMatchingListenerHostname" else listener()
    await client.create(GATEWAY, gateway("inference", namespace, listeners=[only]))
    for obj in made(namespace):
        await client.create(SERVICE if obj["kind"] == "Service" else HTTP_ROUTE, obj)
    entry = await the_parent(client, eventually, namespace, reason)
    assert ("False", reason, 1) in told(entry).values()


async def test_namespaces_that_a_listener_admits(
    client: Client, namespace: str, controller: GatewayController, eventually: Eventually
) -> None:
    """R17: `Same` refuses the others; when the Gateway is changed to admit them, the route is accepted at once."""
    await client.create(GATEWAY, gateway("elsewhere", "default", listeners=[listener(admits="Same")]))
    try:
        await client.create(HTTP_ROUTE, route(namespace, parents=[{"name": "elsewhere", "namespace": "default"}]))
        await the_parent(client, eventually, namespace, "NotAllowedByListeners")
        key = ObjectKey("default", "elsewhere")
        labels = {"kubernetes.io/metadata.name": namespace}
        chosen = listener()
        chosen["allowedRoutes"] = {"namespaces": {"from": "Selector", "selector": {"matchLabels": labels}}}
        await client.merge_patch(GATEWAY, key, {"spec": {"listeners": [chosen]}})
        await the_parent(client, eventually, namespace, "Accepted")
    finally:
        await client.delete(GATEWAY, ObjectKey("default", "elsewhere"))
    await eventually(lambda: _empty(client, namespace))


async def _empty(client: Client, namespace: str) -> bool:
    """A Gateway that is gone leaves no entry."""
    return await parents(client, namespace) == []


async def test_a_pool_has_an_entry_for_each_gateway_that_routes_to_it(
    client: Client, namespace: str, controller: GatewayController, eventually: Eventually
) -> None:
    backend = {"group": INFERENCE_POOL.group, "kind": INFERENCE_POOL.kind, "name": "llama"}
    await client.create(GATEWAY, gateway("inference", namespace))
    await client.create(INFERENCE_POOL, pool(namespace))
    await client.create(HTTP_ROUTE, route(namespace, rules=[{"backendRefs": [backend]}]))

    async def entry(reason: str) -> Resource | None:
        found = await client.get(INFERENCE_POOL, ObjectKey(namespace, "llama"))
        entries: list[Resource] = dig(found, "status", "parents", default=[])
        return next((e for e in entries if any(each["reason"] == reason for each in e["conditions"])), None)

    found = await eventually(lambda: entry("InvalidExtensionRef"))
    assert isinstance(found, dict)
    assert found["parentRef"]["name"] == "inference"
    assert told(found)["Accepted"][:2] == ("True", "Accepted")
    await client.create(SERVICE, service(namespace, "llama-picker"))
    await eventually(lambda: entry("ResolvedRefs"))
    await client.delete(HTTP_ROUTE, ObjectKey(namespace, "llama"))

    async def gone() -> bool:
        found = await client.get(INFERENCE_POOL, ObjectKey(namespace, "llama"))
        return not dig(found, "status", "parents", default=[])

    await eventually(gone)


async def test_entries_of_other_controllers_stay(
    client: Client, namespace: str, controller: GatewayController, eventually: Eventually
) -> None:
    """Two parents, one of a class that another controller has: its entry is that controller's to write."""
    await client.create(GATEWAY, gateway("inference", namespace))
    await client.create(GATEWAY, gateway("theirs", namespace, class_name="theirs"))
    both = [{"name": "theirs"}, {"name": "inference"}]
    made = await client.create(HTTP_ROUTE, route(namespace, parents=both))
    await the_parent(client, eventually, namespace, "Accepted")
    now = "2026-01-01T00:00:00Z"
    condition = {"type": "Accepted", "status": "False", "reason": "Pending", "message": "", "lastTransitionTime": now}
    entry = {"parentRef": made["spec"]["parentRefs"][0], "controllerName": "example.com/x", "conditions": [condition]}
    key = ObjectKey(namespace, "llama")
    mine = await parents(client, namespace)
    await client.merge_patch(HTTP_ROUTE, key, {"status": {"parents": [*mine, entry]}}, subresource="status")
    await client.create(SERVICE, service(namespace))  # now all references are resolved

    async def both_there() -> bool:
        entries = {each["controllerName"]: each for each in await parents(client, namespace)}
        ours = entries[CONTROLLER_NAME]["conditions"]
        return "example.com/x" in entries and all(each["status"] == "True" for each in ours)

    await eventually(both_there)


async def _fault(client: Client, kind: Kind, key: ObjectKey, fault: str) -> None:
    await client.merge_patch(kind, key, {"metadata": {"annotations": {FAULT: fault or None}}})


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault.CLOSED, "NotAllowedByListeners"),
        (Fault.NO_REWRITE, "UnsupportedValue"),
        (Fault.FLAPPING, "Pending"),
        ("no such fault", "UnsupportedValue"),
    ],
)
async def test_faults_that_refuse_a_route_and_their_end(
    client: Client, namespace: str, controller: GatewayController, eventually: Eventually, fault: str, reason: str
) -> None:
    await client.create(SERVICE, service(namespace))
    await client.create(GATEWAY, gateway("inference", namespace, fault=fault))
    await client.create(HTTP_ROUTE, route(namespace))
    await the_parent(client, eventually, namespace, reason)
    await _fault(client, GATEWAY, ObjectKey(namespace, "inference"), "")
    await the_parent(client, eventually, namespace, "Accepted")


async def test_a_gateway_of_no_class_keeps_its_defaults(
    client: Client, namespace: str, controller: GatewayController, eventually: Eventually
) -> None:
    """R16, with the class missing and with the fault; a third Gateway shows that the controller has come by."""
    await client.create(GATEWAY, gateway("classless", namespace, class_name="missing"))
    await client.create(GATEWAY, gateway("unanswered", namespace, fault=Fault.NO_CLASS))
    await client.create(GATEWAY, gateway("inference", namespace))
    await client.create(HTTP_ROUTE, route(namespace, "a", parents=[{"name": "classless"}]))
    await client.create(HTTP_ROUTE, route(namespace, "b", parents=[{"name": "unanswered"}]))
    await client.create(HTTP_ROUTE, route(namespace))
    await the_parent(client, eventually, namespace, "Accepted")
    for name in ("classless", "unanswered"):
        found = await client.get(GATEWAY, ObjectKey(namespace, name))
        assert {each["message"] for each in found["status"]["conditions"]} == {"Waiting for controller"}
    assert await parents(client, namespace, "a") == await parents(client, namespace, "b") == []


async def test_a_silent_gateway_and_one_that_answers_for_an_older_generation(
    client: Client, namespace: str, controller: GatewayController, eventually: Eventually
) -> None:
    """R18: the answer that stands is of the generation before."""
    await client.create(GATEWAY, gateway("inference", namespace))
    await client.create(HTTP_ROUTE, route(namespace, "silent"))
    await client.create(HTTP_ROUTE, route(namespace, "stale"))
    for name in ("silent", "stale"):
        await the_parent(client, eventually, namespace, "Accepted", name)
        key = ObjectKey(namespace, name)
        await _fault(client, HTTP_ROUTE, key, name)
        await client.merge_patch(HTTP_ROUTE, key, {"spec": {"hostnames": ["a.example"]}})
    # A change that only the stale one answers: its backend is there now.
    await client.create(SERVICE, service(namespace))
    stale = await the_parent(client, eventually, namespace, "ResolvedRefs", "stale")
    assert told(stale) == {"Accepted": ("True", "Accepted", 1), "ResolvedRefs": ("True", "ResolvedRefs", 1)}
    silent = (await parents(client, namespace, "silent"))[0]
    assert told(silent)["ResolvedRefs"] == ("False", "BackendNotFound", 1)


async def test_a_partial_answer_and_a_gateway_without_address(
    client: Client, namespace: str, controller: GatewayController, eventually: Eventually
) -> None:
    await client.create(GATEWAY, gateway("inference", namespace))
    await client.create(GATEWAY, gateway("second", namespace, fault=Fault.NO_ADDRESS))
    both = [{"name": "inference"}, {"name": "second"}]
    await client.create(HTTP_ROUTE, route(namespace, fault=Fault.PARTIAL, parents=both))
    entry = await the_parent(client, eventually, namespace, "Accepted")
    assert list(told(entry)) == ["Accepted"]
    assert len(await parents(client, namespace)) == 1

    async def unprogrammed() -> bool:
        found = await client.get(GATEWAY, ObjectKey(namespace, "second"))
        addresses: list[Resource] = dig(found, "status", "addresses", default=[])
        return addresses == [] and told(found["status"])["Programmed"] == ("False", "AddressNotAssigned", 1)

    async def answered() -> bool:
        found = await client.get(GATEWAY, ObjectKey(namespace, "second"))
        return "observedGeneration" in found["status"]["conditions"][0] and await unprogrammed()

    await eventually(answered)
    assert annotations_of(await client.get(GATEWAY, ObjectKey(namespace, "second")))[FAULT] == "no-address"


async def test_pools_that_are_served_later(
    client: Client, namespace: str, controller: GatewayController, eventually: Eventually
) -> None:
    """R14, from the gateway's side: a backend of a kind that is not served, and then is."""
    crd = next(each for each in definitions() if each["spec"]["names"]["kind"] == "InferencePool")
    await remove_definition(client, crd["metadata"]["name"])
    backend = {"group": INFERENCE_POOL.group, "kind": INFERENCE_POOL.kind, "name": "llama"}
    await client.create(GATEWAY, gateway("inference", namespace))
    await client.create(HTTP_ROUTE, route(namespace, rules=[{"backendRefs": [backend]}]))
    try:
        await eventually(lambda: _refused_kind(client, namespace))
    finally:
        await install_definitions(client, definitions())
    await client.create(INFERENCE_POOL, pool(namespace))
    await the_parent(client, eventually, namespace, "ResolvedRefs")


@pytest.mark.slow
async def test_every_stored_release_takes_the_statuses(
    client: Client, kubeconfig: Path, namespace: str, recordings: Path, eventually: Eventually
) -> None:
    """With the upstream's CRDs, validated by the API server: Gateway, route and pool get their entries."""
    gateways, pools = gateway_releases(recordings, API), gateway_releases(recordings, EXTENSION)
    await client.create(SERVICE, service(namespace, "llama-picker"))
    backend = {"group": INFERENCE_POOL.group, "kind": INFERENCE_POOL.kind, "name": "llama"}
    try:
        for number in range(max(len(gateways), len(pools))):
            pair = [*gateways[number : number + 1], *pools[number : number + 1]]
            await install_definitions(client, [each for release in pair for each in release.definitions()])
            await remove_gateways(client)
            await client.create(GATEWAY_CLASS, gateway_class())
            made = await client.create(GATEWAY, gateway("inference", namespace))
            assert {each["message"] for each in made["status"]["conditions"]} == {"Waiting for controller"}
            async with running_gateway_controller(kubeconfig):
                await client.create(INFERENCE_POOL, pool(namespace))
                await client.create(HTTP_ROUTE, route(namespace, rules=[{"backendRefs": [backend]}]))
                await the_parent(client, eventually, namespace, "ResolvedRefs")

                async def answered() -> bool:
                    key, parent = ObjectKey(namespace, "llama"), ObjectKey(namespace, "inference")
                    found = dig(await client.get(INFERENCE_POOL, key), "status", "parents", default=[])
                    status = (await client.get(GATEWAY, parent))["status"]
                    attached = [each["attachedRoutes"] for each in status.get("listeners", [])]
                    return len(found) == 1 and bool(status.get("addresses")) and attached == [1]

                await eventually(answered)
    finally:
        await install_definitions(client, definitions())


async def _refused_kind(client: Client, namespace: str) -> bool:
    entries = await parents(client, namespace)
    reasons = {each["reason"] for entry in entries for each in entry["conditions"]}
    return not reasons.isdisjoint({"InvalidKind", "BackendNotFound"})
