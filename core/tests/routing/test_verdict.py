"""What gateways wrote, and what it means for a route; where the route answers."""

from __future__ import annotations

from typing import Any

import pytest
from core.tests.routing.builders import answered, facts, gateway, listener, owned, route_of

from airunway.resource import ObjectKey, Resource
from airunway.routing.decision import decide
from airunway.routing.gateways import Target, gateway_status, verdict_of
from airunway.status.rollup import Verdict

ROUTE = owned(route_of(decide(facts())), generation=3)


def told(route: Resource = ROUTE, *gateways: Resource, pool: Resource | None = None) -> Verdict:
    return verdict_of(route, gateways=gateways or [gateway()], pool=pool)


def with_parents(*names: str) -> Resource:
    """The route with several Gateways."""
    refs = [{**ROUTE["spec"]["parentRefs"][0], "name": name} for name in names]
    return {**ROUTE, "spec": {**ROUTE["spec"], "parentRefs": refs}}


@pytest.mark.parametrize(
    ("conditions", "reason", "words"),
    [
        ({}, "RouteAccepted", "Gateway infra/gw"),
        ({"Accepted": "False:NoMatchingParent:no such port"}, "RouteNotAccepted", "NoMatchingParent: no such port"),
        ({"Accepted": "False:UnsupportedValue:no rewrites here"}, "RouteNotAccepted", "UnsupportedValue: no rewrites"),
        ({"ResolvedRefs": "False:BackendNotFound:no Service x"}, "RouteNotAccepted", "BackendNotFound: no Service x"),
        ({"ResolvedRefs": "False:InvalidKind:InferencePool"}, "RouteNotAccepted", "InvalidKind"),
        ({"PartiallyInvalid": "True:UnsupportedValue:rule 0"}, "RouteNotAccepted", "only a part of the route"),
        ({"PartiallyInvalid": "False:Fine:"}, "RouteAccepted", ""),
        ({"Accepted": "Unknown:Pending:in a moment"}, "WaitingForGateway", "in a moment"),
        ({"Accepted": "False:Pending:in a moment"}, "WaitingForGateway", "in a moment"),
        ({"ResolvedRefs": "Unknown:Pending:"}, "WaitingForGateway", "ResolvedRefs"),
    ],
)
def test_r19_the_parents_own_words(conditions: dict[str, str], reason: str, words: str) -> None:
    verdict = told(answered(ROUTE, **conditions))
    assert verdict.reason == reason
    assert verdict.ready == (reason == "RouteAccepted")
    assert words in verdict.message


@pytest.mark.parametrize(
    ("listeners", "to_set"),
    [
        (
            [listener(), listener("https", allowedRoutes={"namespaces": {"from": "Same"}})],
            "spec.listeners[https].allowedRoutes",
        ),
        ([listener(allowedRoutes={})], "kubernetes.io/metadata.name: ml"),
        (
            [listener(allowedRoutes={"namespaces": {"from": "All"}, "kinds": [{"kind": "TLSRoute"}]})],
            "add HTTPRoute to spec.listeners[http].allowedRoutes.kinds",
        ),
        ([listener(allowedRoutes={"namespaces": {"from": "Selector"}})], "spec.listeners[<listener>].allowedRoutes"),
    ],
)
def test_r17_a_listener_that_does_not_admit_the_namespace(listeners: list[Resource], to_set: str) -> None:
    route = answered(ROUTE, Accepted="False:NotAllowedByListeners:namespace not allowed")
    verdict = told(route, gateway(listeners=listeners))
    assert verdict.reason == "RouteNotAccepted"
    assert "namespace not allowed" in verdict.message
    assert to_set in verdict.message


def test_r18_an_answer_about_an_older_generation_is_not_ready() -> None:
    assert told(answered(ROUTE, 2)).reason == "WaitingForGateway"
    assert "generation 3" in told(answered(ROUTE, 2)).message
    assert told(answered(ROUTE, 2, Accepted="False:NoMatchingParent:old")).reason == "WaitingForGateway"
    assert told(answered(ROUTE, 3)).ready


def test_r18_of_two_parents_the_one_that_rejects_is_named() -> None:
    route = with_parents("one", "two")
    both = answered(route)
    assert told(both, gateway("one"), gateway("two")).ready
    accepts, _ = both["status"]["parents"]
    _, rejects = answered(route, Accepted="False:NoMatchingParent:not here")["status"]["parents"]
    verdict = told({**route, "status": {"parents": [accepts, rejects]}}, gateway("one"), gateway("two"))
    assert verdict.reason == "RouteNotAccepted"
    assert "infra/two" in verdict.message
    one_only = told({**route, "status": {"parents": [accepts]}}, gateway("one"), gateway("two"))
    assert one_only.reason == "WaitingForGateway"
    assert "infra/two" in one_only.message


def test_a_refusal_comes_before_another_parents_silence() -> None:
    route = with_parents("silent", "two")
    _, rejects = answered(route, Accepted="False:NoMatchingParent:not here")["status"]["parents"]
    verdict = told({**route, "status": {"parents": [rejects]}}, gateway("silent"), gateway("two"))
    assert verdict.reason == "RouteNotAccepted"


def test_answers_of_gateways_that_the_route_no_longer_names_do_not_count() -> None:
    before = answered(with_parents("gone"), Accepted="False:NoMatchingParent:not here")["status"]["parents"]
    now = answered(ROUTE)
    assert told({**now, "status": {"parents": [*before, *now["status"]["parents"]]}}).ready


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({}, "has no status"),
        (
            {"conditions": [{"type": "Accepted", "status": "False", "reason": "InvalidParameters", "message": "no x"}]},
            "InvalidParameters: no x",
        ),
        (
            {
                "conditions": [
                    {"type": "Accepted", "status": "True"},
                    {"type": "Programmed", "status": "False", "reason": "AddressNotAssigned", "message": "no address"},
                ]
            },
            "AddressNotAssigned: no address",
        ),
        ({"conditions": [{"type": "Accepted", "status": "True"}]}, "has not answered about the route"),
    ],
)
def test_r16_a_gateway_without_an_answer_is_waited_for_in_its_own_words(status: Resource, words: str) -> None:
    verdict = told(ROUTE, gateway(status=status))
    assert verdict.reason == "WaitingForGateway"
    assert words in verdict.message


def test_a_listener_that_does_not_exist_is_named() -> None:
    ref = {**ROUTE["spec"]["parentRefs"][0], "sectionName": "nothing"}
    verdict = told({**ROUTE, "spec": {**ROUTE["spec"], "parentRefs": [ref]}})
    assert verdict.reason == "RouteNotAccepted"
    assert "listener nothing" in verdict.message


def pool_with(condition: Resource, gateway_name: str = "gw") -> Resource:
    return {
        "metadata": {"name": "llama", "namespace": "ml", "generation": 2},
        "status": {
            "parents": [
                {"parentRef": {"kind": "Status", "name": "default"}, "conditions": [{**condition, "status": "False"}]},
                {"parentRef": {"name": gateway_name, "namespace": "infra"}, "conditions": [condition]},
            ]
        },
    }


@pytest.mark.parametrize(
    ("condition", "name", "ready"),
    [
        ({"type": "Accepted", "status": "True"}, "gw", True),
        ({"type": "Accepted", "status": "Unknown", "reason": "Pending"}, "gw", True),
        (
            {"type": "ResolvedRefs", "status": "False", "reason": "InvalidExtensionRef", "message": "no epp"},
            "gw",
            False,
        ),
        ({"type": "Accepted", "status": "False", "reason": "Old", "observedGeneration": 1}, "gw", True),
        ({"type": "Accepted", "status": "False", "reason": "Other"}, "another", True),
    ],
)
def test_what_the_gateway_says_of_the_pool(condition: Resource, name: str, ready: bool) -> None:
    verdict = told(answered(ROUTE), pool=pool_with(condition, name))
    assert verdict.ready == ready
    assert ready or (verdict.reason == "RouteNotAccepted" and "InferencePool llama" in verdict.message)


# ----------------------------------------------------------------------------------------------------------- address


@pytest.mark.parametrize(
    ("listeners", "section", "expected"),
    [
        ([listener()], "", "http://10.0.0.7/p"),
        ([listener(port=8080)], "", "http://10.0.0.7:8080/p"),
        ([listener(hostname="models.example.com")], "", "http://models.example.com/p"),
        ([listener(hostname="*.example.com")], "", "http://10.0.0.7/p"),
        (
            [listener(), listener("tls", protocol="HTTPS", port=443, hostname="m.example.com")],
            "",
            "https://m.example.com/p",
        ),
        ([listener("tls", protocol="HTTPS", port=8443), listener()], "", "http://10.0.0.7/p"),
        ([listener("tls", protocol="HTTPS", port=8443), listener()], "tls", "https://10.0.0.7:8443/p"),
        ([listener(allowedRoutes={}), listener("b", port=81)], "", "http://10.0.0.7:81/p"),
        ([listener(protocol="TCP")], "", None),
        ([], "", None),
    ],
)
def test_the_url_of_a_route(listeners: list[Resource], section: str, expected: str | None) -> None:
    assert status_of(gateway(listeners=listeners), section).get("url") == expected


def status_of(one: Resource, section: str = "") -> dict[str, Any]:
    target = Target(gateway=ObjectKey("infra", "gw"), section=section)
    return gateway_status(ready=True, target=target, gateway=one, namespace="ml", path="/p")


def test_an_address_of_six_parts_stands_in_brackets_and_none_gives_no_url() -> None:
    six = gateway(status={"addresses": [{"value": "fd00::7"}]})
    assert status_of(six)["url"] == "http://[fd00::7]/p"
    assert status_of(six)["endpoint"] == "[fd00::7]"
    assert "url" not in status_of(gateway(status={}))
    named = gateway(status={}, listeners=[listener(hostname="m.example.com")])
    assert status_of(named)["url"] == "http://m.example.com/p"
    assert status_of(named)["gatewayName"] == "gw"
