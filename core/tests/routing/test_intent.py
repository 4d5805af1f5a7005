"""What a deployment wants: its model name and its claims."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from core.tests.routing.builders import (
    GW,
    NAMELESS,
    PATH,
    PLAIN,
    asked,
    at,
    deployment,
    facts,
    gateway,
    listener,
    matches_of,
    message,
    owned,
    route_of,
    said,
    serving,
)

from airunway.api import names
from airunway.resource import Resource, copy_of
from airunway.routing.claims import Claim, ClaimKind
from airunway.routing.decision import decide
from airunway.routing.gateways import Target
from airunway.routing.intent import Facts, Probe, claims_of


def test_claims_are_of_the_deployment_alone() -> None:
    assert claims_of(facts()) == (
        Claim(GW, "", ClaimKind.PATH, PATH),
        Claim(GW, "", ClaimKind.MODEL_NAME, "Llama-8B"),
    )
    unborn = deployment(gateway=asked(), status={"endpoint": {}, "conditions": []})
    assert claims_of(facts(unborn)) == claims_of(facts())
    assert [claim.kind for claim in claims_of(facts(deployment()))] == [ClaimKind.MODEL_NAME]
    assert claims_of(facts(deployment(gateway=asked(httpRouteRef="mine")))) == ()
    paused = deployment(gateway=asked(), metadata={"annotations": {names.PAUSED: "true"}})
    assert claims_of(facts(paused)) == claims_of(facts())


def stays(base: Facts, obj: Resource, **parts: Any) -> Facts:
    """The facts with a route of before, which the pass leaves as it is."""
    found = replace(serving(base), deployment=obj, **parts)
    assert decide(found).objects is None
    return found


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param({"metadata": {"annotations": {names.PAUSED: "true"}}}, id="paused"),
        pytest.param({"metadata": {"annotations": {names.DRY_RUN: "true"}}}, id="dry run"),
        pytest.param({"metadata": {"generation": 2}}, id="not validated, or invalid"),
        pytest.param({"metadata": {"generation": 2}, "suspend": True}, id="suspended, not validated"),
    ],
)
def test_a_route_that_stays_as_it_is_keeps_its_claims(kept: Resource) -> None:
    before = deployment(gateway=asked(pathTemplate="/before", modelName="before"))
    found = stays(facts(before), deployment(gateway=asked(pathTemplate="/new"), **copy_of(kept)))
    held = {claim.value for claim in claims_of(found)}
    assert {"/before", "before"} <= held
    assert ("/new" in held) is ("suspend" not in kept)


def test_a_route_that_nobody_asked_for_and_that_stays_keeps_its_claim() -> None:
    # A second Gateway without a label: none is chosen now.
    found = stays(facts(deployment()), deployment(), gateways=[gateway(), gateway("second")])
    assert [claim.value for claim in claims_of(found)] == ["Llama-8B"]


def test_a_route_whose_gateway_is_not_known_any_more_keeps_its_claims() -> None:
    found = stays(facts(), deployment(gateway=asked()), gateways=[gateway("a"), gateway("b")])
    assert said(decide(found)) == (False, "NoGateway")
    assert {claim.value for claim in claims_of(found)} == {PATH, "Llama-8B"}


def test_a_route_of_another_owner_claims_nothing_for_the_deployment() -> None:
    foreign = owned(route_of(decide(facts(deployment(gateway=asked(pathTemplate="/theirs"))))), uid="of-another")
    paused = deployment(gateway=asked(), metadata={"annotations": {names.PAUSED: "true"}})
    assert {claim.value for claim in claims_of(facts(paused, route=foreign))} == {PATH, "Llama-8B"}


@pytest.mark.parametrize(
    "only",
    [
        pytest.param({"namespaces": {"from": "Same"}}, id="another namespace"),
        pytest.param({"namespaces": {"from": "None"}}, id="none"),
        pytest.param({"namespaces": {"from": "All"}, "kinds": [{"kind": "GRPCRoute"}]}, id="another kind"),
    ],
)
def test_a_gateway_that_does_not_admit_the_namespace_has_no_claim_of_it(only: Resource) -> None:
    closed = listener(allowedRoutes=only)
    assert claims_of(facts(gateways=[gateway(listeners=[closed])])) == ()
    mixed = claims_of(facts(gateways=[gateway(listeners=[closed, listener("open")])]))
    assert mixed == tuple(claim._replace(section="open") for claim in claims_of(facts()))
    to_closed = deployment(gateway=asked(gatewayRef={"name": "gw", "namespace": "infra", "sectionName": "http"}))
    both = [gateway(listeners=[closed, listener("open")])]
    assert claims_of(facts(to_closed, gateways=both)) == ()
    # A Gateway that does not exist yet is claimed.
    assert claims_of(facts(to_closed, gateways=[]))


def test_a_claim_on_all_listeners_is_one_on_those_that_admit_the_namespace() -> None:
    mixed = [
        gateway(listeners=[listener("public"), listener("internal", allowedRoutes={"namespaces": {"from": "Same"}})])
    ]
    assert {(claim.section, claim.value) for claim in claims_of(facts(gateways=mixed))} == {
        ("public", PATH),
        ("public", "Llama-8B"),
    }


SELECTED = [gateway(listeners=[listener(allowedRoutes={"namespaces": {"from": "Selector"}})])]


def answered(base: Facts, status: str, reason: str) -> Facts:
    """The facts with a route that the Gateway has answered."""
    route = copy_of(serving(base).own_route or {})
    for answer in route["status"]["parents"]:
        for condition in answer["conditions"]:
            if condition["type"] == "Accepted":
                condition.update(status=status, reason=reason)
    return replace(base, route=route)


def test_a_gateway_that_refused_the_namespace_is_not_claimed_until_it_accepts_the_route() -> None:
    """Whom a selector of a listener selects is not read: the Gateway's answer says it."""
    base = facts(gateways=SELECTED)
    assert claims_of(base) == claims_of(facts())
    assert claims_of(answered(base, "False", "NotAllowedByListeners")) == ()
    assert claims_of(answered(base, "True", "Accepted")) == claims_of(facts())
    assert claims_of(answered(base, "False", "NoMatchingParent")) == claims_of(facts())
    # A tenant deletes the refused route: nothing is claimed until there is another answer.
    condition = {"type": "GatewayReady", "status": "False", "reason": "RouteNotAccepted"}
    refused = {"gateway": {"gatewayName": "gw", "gatewayNamespace": "infra"}, "conditions": [condition]}
    before = deployment(gateway=asked(), status=refused)
    assert claims_of(facts(before, gateways=SELECTED)) == ()
    # Nor does it help her to make the deployment lose its condition.
    assert claims_of(replace(base, refused={Target(gateway=GW)})) == ()
    assert claims_of(replace(answered(base, "True", "Accepted"), refused={Target(gateway=GW)})) == claims_of(facts())
    elsewhere = deployment(gateway=asked(), status={**refused, "gateway": {"gatewayName": "other"}})
    assert claims_of(facts(elsewhere, gateways=SELECTED)) == claims_of(facts())


def test_a_route_that_is_edited_and_left_claims_one_path_and_no_listener_that_is_closed_to_it() -> None:
    """A tenant adds paths and parents to her route, and pauses the deployment."""
    paused = deployment(gateway=asked(), metadata={"annotations": {names.PAUSED: "true"}})
    found = stays(facts(), paused)
    route = copy_of(found.own_route or {})
    rule = route["spec"]["rules"][0]
    rule["matches"] = [{"path": {"type": "PathPrefix", "value": f"/{number}"}} for number in range(100)]
    route["spec"]["parentRefs"].append({"name": "theirs", "namespace": "infra"})
    closed = gateway("theirs", listeners=[listener(allowedRoutes={"namespaces": {"from": "Same"}})])
    forged = replace(found, route=route, gateways=[gateway(), closed])
    assert {claim.gateway for claim in claims_of(forged)} == {GW}
    assert len(claims_of(forged)) <= 4, "those of the spec, and one path and one model name of the route"


def test_not_asked_and_without_a_place_claims_nothing() -> None:
    base = facts(deployment(), pools_served=False)
    assert claims_of(base) == ()
    assert claims_of(replace(base, route=serving(facts(deployment())).route)) == claims_of(facts(deployment()))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"model": {"id": "org/a/b/"}}, "b"),
        ({"model": {"id": "org/a", "servedName": "chat"}}, "chat"),
        ({"model": {"id": "org/a", "servedName": "chat"}, "gateway": asked(modelName="named")}, "named"),
        ({"model": NAMELESS, "gateway": asked(modelName="named")}, "named"),
    ],
)
def test_the_model_name(spec: Resource, expected: str) -> None:
    decision = decide(facts(deployment(**{"gateway": asked(), **spec})))
    assert f"X-Gateway-Model-Name={expected}" in matches_of(route_of(decision))
    assert not decision.probe


def test_r27_a_custom_source_is_asked_once_per_generation() -> None:
    obj = deployment(model=NAMELESS, gateway=asked())
    first = decide(facts(obj))
    assert first.probe
    assert matches_of(route_of(first)) == [PATH]
    found = decide(facts(obj, probe=Probe(generation=1, name="inner")))
    assert not found.probe
    assert matches_of(route_of(found)) == [PATH, "X-Gateway-Model-Name=inner"]
    status = {
        "gateway": {"modelName": "inner"},
        "conditions": [
            *obj["status"]["conditions"],
            {"type": "GatewayReady", "status": "True", "observedGeneration": 1},
        ],
    }
    recorded = deployment(model=NAMELESS, gateway=asked(), status=status)
    assert not decide(facts(recorded)).probe
    assert matches_of(route_of(decide(facts(recorded)))) == [PATH, "X-Gateway-Model-Name=inner"]
    newer = copy_of({**recorded, "metadata": {**recorded["metadata"], "generation": 2}})
    newer["status"]["conditions"][0]["observedGeneration"] = 2  # validated
    assert decide(facts(newer)).probe
    assert matches_of(route_of(decide(facts(newer)))) == [PATH, "X-Gateway-Model-Name=inner"]  # until it has answered
    failed = decide(facts(newer, probe=Probe(generation=2, failure="no answer")))
    assert matches_of(route_of(failed)) == [PATH, "X-Gateway-Model-Name=inner"]


def with_recorded_name(*, generation: int, validated: int, observed: int) -> Resource:
    conditions = [
        {"type": "Validated", "status": "True", "observedGeneration": validated},
        {"type": "GatewayReady", "status": "True", "reason": "RouteAccepted", "observedGeneration": observed},
    ]
    status = {"gateway": {"modelName": "inner"}, "conditions": conditions}
    return deployment(model=NAMELESS, gateway=asked(), metadata={"generation": generation}, status=status)


@pytest.mark.parametrize("validated", [1, 2], ids=["not validated yet", "the server cannot answer yet"])
def test_r27_a_status_that_is_written_before_the_answer_keeps_the_generation_of_its_name(validated: int) -> None:
    first = with_recorded_name(generation=1, validated=1, observed=1)
    base = serving(facts(first, probe=Probe(generation=1, name="inner")))
    pending = decide(at(base, with_recorded_name(generation=2, validated=validated, observed=1)))
    assert pending.observed_generation == 1
    # That status is all that another process has: it asks.
    later = at(base, with_recorded_name(generation=2, validated=2, observed=pending.observed_generation))
    assert decide(replace(later, probe=None)).probe
    found = decide(replace(later, probe=Probe(generation=2, name="other")))
    assert (found.observed_generation, (found.gateway or {})["modelName"]) == (None, "other")


def test_r27_a_probe_that_fails_leaves_the_id_else_the_name_is_unknown() -> None:
    failed = Probe(generation=1, failure="no JSON")
    known = decide(facts(deployment(model={**NAMELESS, "id": "org/inner"}, gateway=asked()), probe=failed))
    assert matches_of(route_of(known)) == [PATH, "X-Gateway-Model-Name=org/inner"]
    unknown = decide(serving(facts(deployment(model=NAMELESS, gateway=asked()), probe=failed)))
    assert matches_of(route_of(unknown)) == [PATH]
    assert said(unknown) == (False, "ModelNameUnknown")
    assert "no JSON" in message(unknown)


def test_an_engine_that_ignores_the_served_name_is_asked_too() -> None:
    engine = {**PLAIN, "gateway": {"ignoresServedName": True}}
    assert decide(facts(engine=engine)).probe


@pytest.mark.parametrize("name", ["a\nb", "a\x00", " a", "a\r\nX-Evil: 1"])
def test_r30_a_name_that_no_header_can_have_is_unknown(name: str) -> None:
    decision = decide(facts(deployment(gateway=asked(modelName=name))))
    assert matches_of(route_of(decision)) == [PATH]
    assert said(decision) == (False, "ModelNameUnknown")
