"""Whatever stands in deployments, configs and the statuses of routes, Gateways and pools: a decision, no exception.

``pytest -m soak`` runs 100,000 examples of each.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from random import Random

import pytest
from core.tests.any_json import MANY, anything, changed
from core.tests.routing.builders import ENGINE, FLAGS, asked, deployment, facts, gateway, live_route
from hypothesis import given
from hypothesis import strategies as st

from airunway.configs.resolution import EffectiveConfig, resolve
from airunway.resource import Resource
from airunway.routing.decision import decide
from airunway.routing.intent import Facts, Probe, claims_of, intent_of

KEYS = (
    *("metadata", "name", "namespace", "labels", "annotations", "generation", "uid", "ownerReferences", "spec"),
    *("status", "parents", "parentRef", "parentRefs", "conditions", "type", "reason", "message", "listeners"),
    *("allowedRoutes", "namespaces", "from", "kinds", "addresses", "value", "rules", "backendRefs", "gateway"),
    *("endpoint", "service", "port", "pool", "targetPort", "selector", "matchLabels", "targetPorts", "model"),
    *("gatewayRef", "modelName", "pathTemplate", "servedName", "id", "protocol", "hostname", "controller"),
    *("observedGeneration", "deletionTimestamp", "creationTimestamp", "sectionName", "requestTimeout", "enabled"),
)
VALUES = ("True", "False", "Accepted", "ResolvedRefs", "Programmed", "HTTP", "All", "gw", "infra", "llama", "ml", 1, 2)
hostile = partial(anything, keys=KEYS, values=VALUES)

CONFIG: Resource = {
    "routing": {"enabled": True, "gatewayRef": {"name": "gw"}, "pathTemplate": "/x", "annotations": {"a.io/b": "c"}},
    "labelPropagation": {"enabled": True, "match": ["*"]},
    "imagePullSecrets": [{"name": "registry"}],
}
DEPLOYMENT = deployment(gateway=asked(gatewayRef={"name": "gw", "namespace": "infra"}, pathTemplate="/x"))
POOLED = facts(engine=ENGINE)
ROUTES = [
    live_route(facts(), Accepted="False:NotAllowedByListeners:no"),
    live_route(POOLED),
    live_route(POOLED, ResolvedRefs="False:BackendNotFound:it is away"),
]
POOL: Resource = {
    "metadata": {**ROUTES[0]["metadata"], "name": "llama"},
    "spec": {"selector": {"matchLabels": {"a": "b"}}, "targetPorts": [{"number": 8000}]},
    "status": {"parents": ROUTES[0]["status"]["parents"]},
}
WORD = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")


def sound(found: Facts) -> str:
    """The reason of a decision that the API server takes: a word as the reason, texts in every field of text."""
    intent_of(found)
    for claim in claims_of(found):
        assert isinstance(claim.value, str)
        assert claim.value
    decision = decide(found)
    if decision.condition is not None:
        assert WORD.fullmatch(decision.condition.reason)
        assert isinstance(decision.condition.message, str)
    for key, value in (decision.gateway or {}).items():
        assert isinstance(value, bool if key == "ready" else str)
    for obj in decision.objects or ():
        assert obj["kind"]
        labels = {**obj["metadata"].get("labels", {}), **obj["metadata"].get("annotations", {})}
        assert all(isinstance(value, str) for value in labels.values())
    return decision.condition.reason if decision.condition is not None else ""


def any_facts(chance: Random) -> Facts:
    """Facts of which every object has wrong values."""

    def maybe(base: Resource) -> Resource | None:
        return changed(chance, base, hostile) if chance.randrange(4) else None

    def config() -> EffectiveConfig | None:
        return resolve("x", namespaced={"spec": maybe(CONFIG)}, cluster=None).config if chance.randrange(3) else None

    return Facts(
        deployment=changed(chance, DEPLOYMENT, hostile, each=20),
        gateways=[changed(chance, gateway(), hostile) for _ in range(chance.randrange(3))],
        route=maybe(chance.choice(ROUTES)),
        user_route=maybe(chance.choice(ROUTES)),
        pool=maybe(POOL),
        provider_pool=maybe(POOL),
        picker=maybe(POOL),
        engine=maybe(ENGINE),
        config=config(),
        pools_served=bool(chance.randrange(2)),
        routes_served=bool(chance.randrange(8)),
        probe=Probe(generation=1, name="inner"),
        flags=FLAGS,
    )


@given(st.randoms())
def test_r30_any_json_in_the_facts_gives_a_decision(chance: Random) -> None:
    sound(any_facts(chance))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_r30_any_of_100_000_facts_gives_a_decision() -> None:
    reasons = {sound(any_facts(Random(seed))) for seed in range(MANY)}
    assert len(reasons) > 12, "the changes reach something"


def any_statuses(chance: Random) -> str:
    """Whatever controllers write about a route, its Gateway and its pool, the condition says something."""

    def status(base: Resource) -> object:
        return changed(chance, base, hostile, each=5) if chance.randrange(4) else hostile(chance)

    route = chance.choice(ROUTES)
    seen = replace(
        POOLED,
        gateways=[{**gateway(), "status": status(gateway()["status"])}],
        route={**route, "status": status(route["status"])},
        pool={**POOL, "status": status(POOL["status"])},
    )
    decision = decide(seen)
    assert decision.condition is not None
    assert decision.condition.status is (decision.gateway or {})["ready"]
    return sound(seen)


@given(st.randoms())
def test_any_status_of_route_gateway_and_pool_gives_a_condition(chance: Random) -> None:
    any_statuses(chance)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_any_of_100_000_statuses_of_route_gateway_and_pool_gives_a_condition() -> None:
    reasons = {any_statuses(Random(seed)) for seed in range(MANY)}
    assert reasons >= {"RouteNotAccepted", "WaitingForGateway"}
