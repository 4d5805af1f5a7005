"""What others have at a Gateway, what a namespace may have there, and what the Gateway says of itself."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from core.tests.routing.builders import (
    GW,
    NAME,
    NOW,
    PATH,
    asked,
    at,
    config,
    deployment,
    facts,
    gateway,
    kinds_of,
    matches_of,
    message,
    route_of,
    said,
    serving,
    with_pool,
)

from airunway.resource import ObjectKey, Resource
from airunway.routing.claims import Claim, ClaimConflict, ClaimKind
from airunway.routing.decision import decide
from airunway.routing.intent import claims_of
from airunway.routing.rights import RouteRights


def conflict(kind: ClaimKind, value: str) -> ClaimConflict:
    return ClaimConflict(Claim(GW, "", kind, value), ObjectKey("other", "first"))


def test_r10_a_model_name_that_nobody_asked_for_and_another_has_is_a_warning_and_no_condition() -> None:
    decision = decide(facts(deployment(), conflicts=[conflict(ClaimKind.MODEL_NAME, "Llama-8B")]))
    assert (decision.objects, decision.condition) == ((), None)
    (warning,) = (decision.gateway or {})["warnings"]
    assert warning.startswith("model name Llama-8B (held by ModelDeployment other/first)")
    assert "url" not in (decision.gateway or {})


def test_r10_a_model_name_that_was_asked_for_and_another_has_is_a_conflict() -> None:
    named = deployment(gateway={"modelName": "gpt"})
    decision = decide(facts(named, conflicts=[conflict(ClaimKind.MODEL_NAME, "gpt")]))
    assert (decision.objects, said(decision)) == ((), (False, "RouteConflict"))
    assert "other/first" in message(decision)


@pytest.mark.parametrize("more", [{}, {"modelName": "Llama-8B"}], ids=["derived", "named"])
def test_r11_with_the_path_accepted_a_lost_model_name_is_said_and_ready_stays(more: Resource) -> None:
    obj = deployment(gateway=asked(pathTemplate="/ml/a", **more))
    decision = decide(serving(facts(obj, conflicts=[conflict(ClaimKind.MODEL_NAME, "Llama-8B")])))
    assert matches_of(route_of(decision)) == ["/ml/a"]
    assert said(decision) == (True, "RouteAccepted")
    text = "model name Llama-8B (held by ModelDeployment other/first): requests do not reach this deployment by it"
    assert text in message(decision)
    assert [warning[: len(text)] for warning in (decision.gateway or {})["warnings"]] == [text]


def test_r7_a_lost_path_is_a_conflict_and_the_other_rule_is_made() -> None:
    decision = decide(serving(facts(conflicts=[conflict(ClaimKind.PATH, PATH)])))
    assert matches_of(route_of(decision)) == [NAME]
    assert said(decision) == (False, "RouteConflict")
    assert f"path {PATH} (held by ModelDeployment other/first)" in message(decision)


def test_r8_the_path_that_excludes_another_one_is_named() -> None:
    lost = conflict(ClaimKind.PATH, PATH)._replace(held="/ml")
    assert f"path {PATH} (ModelDeployment other/first holds /ml)" in message(decide(serving(facts(conflicts=[lost]))))


def test_r11_a_lost_path_is_no_fault_where_the_model_name_was_asked_for_too() -> None:
    obj = deployment(gateway=asked(pathTemplate="/ml/a", modelName="gpt"))
    decision = decide(serving(facts(obj, conflicts=[conflict(ClaimKind.PATH, "/ml/a")])))
    assert matches_of(route_of(decision)) == ["X-Gateway-Model-Name=gpt"]
    assert said(decision) == (True, "RouteAccepted")
    assert "path /ml/a (held by ModelDeployment other/first)" in message(decision)


def test_r7_both_lost_means_no_route_and_no_new_pool() -> None:
    lost = [conflict(ClaimKind.PATH, PATH), conflict(ClaimKind.MODEL_NAME, "Llama-8B")]
    assert decide(with_pool(conflicts=lost)).objects == ()
    assert kinds_of(decide(replace(serving(with_pool()), conflicts=lost))) == kinds_of(decide(with_pool()))[:-1]


# -------------------------------------------------------------------------------------------------- what it may have


@pytest.mark.parametrize(
    "template",
    ["/", "/v1", "/V1/chat", "v1/{.metadata.name}", "/{.metadata.labels['p']}/x", "/.well-known/a", "/models"],
)
def test_c1_a_path_that_servers_or_gateways_answer_is_not_allowed(template: str) -> None:
    thief = deployment(gateway=asked(pathTemplate=template), metadata={"labels": {"p": "Health"}})
    decision = decide(facts(thief))
    assert decision.objects == ()
    assert said(decision) == (False, "PathNotAllowed")
    assert message(decision).startswith("spec.gateway.pathTemplate: the path ")
    assert [claim.kind for claim in claims_of(facts(thief))] == [ClaimKind.MODEL_NAME]


def test_a_namespace_that_is_called_as_a_path_of_servers_has_its_default_paths() -> None:
    named = deployment(namespace="v1", gateway=asked())
    assert matches_of(route_of(decide(facts(named))))[0].startswith("/v1/")


PREFIXES = RouteRights(config_prefixes=("/ml/{namespace}",))


def test_with_prefixes_every_other_path_is_refused_and_the_message_has_what_is_allowed() -> None:
    for template in ("/ml", "/ml/other", "/ml/ml-2/x", "/mine/{.metadata.namespace}"):
        decision = decide(facts(deployment(gateway=asked(pathTemplate=template)), rights=PREFIXES))
        assert said(decision) == (False, "PathNotAllowed")
        assert "allowed by routing.pathPrefixes of a ClusterRuntimeConfig: /ml/ml)" in message(decision)
    allowed = decide(facts(deployment(gateway=asked(pathTemplate="/ml/ml/{.metadata.name}")), rights=PREFIXES))
    assert matches_of(route_of(allowed))[0] == "/ml/ml/llama"
    default = decide(facts(deployment("chat", "talk", gateway=asked()), rights=PREFIXES))
    assert matches_of(route_of(default))[0] == f"/ml/talk/{deployment()['metadata']['uid']}"


def test_config_and_policy_must_both_allow_a_path() -> None:
    both = replace(PREFIXES, policy_prefixes=("/ml/*/public",))
    of_one = decide(facts(deployment(gateway=asked(pathTemplate="/ml/ml/x")), rights=both))
    assert "pathPrefixes of the policy: /ml/*/public" in message(of_one)
    of_both = decide(facts(deployment(gateway=asked(pathTemplate="/ml/ml/public/x")), rights=both))
    assert matches_of(route_of(of_both))[0] == "/ml/ml/public/x"


def test_a_model_name_that_the_namespace_may_not_have_gets_no_rule_and_no_claim() -> None:
    rights = RouteRights(policy_names=("{namespace}-*",))
    with_path = serving(facts(deployment(gateway=asked(pathTemplate="/x/y")), rights=rights))
    decision = decide(with_path)
    assert matches_of(route_of(decision)) == ["/x/y"]
    assert said(decision) == (True, "RouteAccepted")
    denied = "the model name 'Llama-8B' is not allowed in namespace 'ml' (allowed by modelNames of the policy: ml-*)"
    assert denied in message(decision)
    assert [claim.kind for claim in claims_of(with_path)] == [ClaimKind.PATH]
    squatter = decide(facts(deployment(gateway={"modelName": "gpt-4o"}), rights=rights))
    assert (squatter.objects, said(squatter)) == ((), (False, "ModelNameNotAllowed"))
    quiet = decide(facts(deployment(), rights=rights))
    assert (quiet.objects, quiet.condition) == ((), None)
    allowed = decide(facts(deployment(gateway={"modelName": "ml-gpt"}), rights=rights))
    assert matches_of(route_of(allowed)) == ["X-Gateway-Model-Name=ml-gpt"]


def test_nothing_changes_while_it_is_not_known_what_the_namespace_may_have() -> None:
    base = serving(facts())
    decision = decide(replace(base, rights=None))
    assert (decision.objects, said(decision)) == (None, (True, "RouteAccepted"))
    new = decide(facts(rights=None))
    assert (new.objects, said(new)) == (None, (False, "WaitingForValidation"))


# ------------------------------------------------------------------------------------- what the Gateway says of itself


def unprogrammed(seconds: int) -> Resource:
    """A Gateway that has not been programmed for so long."""
    since = (NOW - timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")
    not_yet = {"status": "False", "reason": "AddressNotAssigned", "message": "no address", "lastTransitionTime": since}
    accepted = {"type": "Accepted", "status": "True", "reason": "Accepted"}
    return gateway(status={"conditions": [accepted, {"type": "Programmed", **not_yet}]})


def answering(obj: Resource) -> Resource:
    """The deployment with GatewayReady=True."""
    conditions = [*obj["status"]["conditions"], {"type": "GatewayReady", "status": "True", "reason": "RouteAccepted"}]
    return {**obj, "status": {**obj["status"], "conditions": conditions}}


def test_a_gateway_that_is_not_programmed_for_a_moment_is_a_warning_for_what_answered() -> None:
    base = at(serving(facts()), answering(deployment(gateway=asked())))
    decision = decide(replace(base, gateways=[unprogrammed(4)]))
    assert decision.objects == decide(base).objects
    assert said(decision) == (True, "RouteAccepted")
    (warning,) = (decision.gateway or {})["warnings"]
    assert warning.startswith("Gateway infra/gw is not programmed: AddressNotAssigned: no address")
    assert warning in message(decision)
    assert decision.requeue_after == 6


def test_a_gateway_that_is_not_programmed_after_the_grace_period_is_a_fault_with_its_words() -> None:
    base = at(serving(facts()), answering(deployment(gateway=asked())))
    late = decide(replace(base, gateways=[unprogrammed(10)]))
    assert late.objects == decide(base).objects, "route and pods stay"
    assert said(late) == (False, "GatewayNotProgrammed")
    assert "AddressNotAssigned: no address" in message(late)
    patient = config(statusPolicy={"dependencyGracePeriod": "1m"})
    assert said(decide(replace(base, gateways=[unprogrammed(10)], config=patient))) == (True, "RouteAccepted")


def test_a_gateway_without_an_address_counts_from_when_it_was_seen() -> None:
    programmed = [{"type": type_, "status": "True", "reason": type_} for type_ in ("Accepted", "Programmed")]
    bare = gateway(status={"conditions": programmed})
    base = replace(at(serving(facts()), answering(deployment(gateway=asked()))), gateways=[bare])
    assert said(decide(base)) == (True, "RouteAccepted")
    late = decide(replace(base, unserved={GW: NOW - timedelta(seconds=11)}))
    assert said(late) == (False, "GatewayNotProgrammed")
    assert "Gateway infra/gw has no address" in message(late)


def test_a_route_that_never_answered_waits_for_a_gateway_that_is_not_programmed() -> None:
    base = replace(serving(facts()), gateways=[unprogrammed(4)])
    assert said(decide(base)) == (False, "WaitingForGateway")
    assert decide(base).requeue_after == 6
