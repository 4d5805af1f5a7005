"""The objects that are made, against the real CRDs of every stored release, and against hostile input."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
import yaml
from core.tests.routing.builders import (
    ENGINE,
    EPP,
    FLAGS,
    asked,
    config,
    deployment,
    facts,
    gateway,
    live_route,
    objects_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from airunway.resource import Resource, is_deleting
from airunway.routing.backends import equalities
from airunway.routing.decision import decide
from airunway.routing.gateways import Detection, choose, gateway_key, gateway_status, verdict_of
from airunway.routing.intent import Facts, Flags, Probe, claims_of, intent_of
from airunway.routing.routes import claims_in
from airunway.schema import defaulted, refusals, schema_in, unknown_fields

CRDS = {
    "HTTPRoute": ("gateway-api", "httproutes.yaml"),
    "InferencePool": ("gateway-api-inference-extension", "inferencepools.yaml"),
}


@cache
def stored(recordings: Path, kind: str) -> dict[str, Resource]:
    """The schemas of v1 in every stored release, by release."""
    folder, file = CRDS[kind]
    found = {}
    for path in sorted((recordings / "upstream-crds" / folder).glob(f"*/{file}")):
        crd = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
        schema = schema_in(crd, "v1")
        if schema is not None:
            found[path.parent.name] = schema
    return found


FULL = facts(
    deployment(gateway=asked(annotations={"a.io/x": "1"}, requestTimeout="1h30m")),
    engine=ENGINE,
    config=config(routing={"gatewayRef": {"name": "gw", "namespace": "infra", "sectionName": "http"}}),
)


@pytest.mark.parametrize("kind", list(CRDS))
@pytest.mark.parametrize("served", [True, False], ids=["with pools", "without pools"])
def test_r1_every_stored_release_takes_the_objects_and_adds_nothing(recordings: Path, kind: str, served: bool) -> None:
    schemas = stored(recordings, kind)
    assert len(schemas) >= 3
    made = objects_of(decide(Facts(**{**vars(FULL), "pools_served": served})))
    for obj in made:
        if obj["kind"] != kind:
            continue
        for release, schema in schemas.items():
            assert refusals(obj, schema) == [], release
            assert [str(field) for field in unknown_fields(obj, schema)] == [], release
            if kind == "HTTPRoute":
                # What the API server would add would look like a change by another writer.
                assert defaulted(obj, schema)["spec"] == obj["spec"], release


PATHS = [
    "/a%20b/c",
    "/v1.2/x",
    "/50%2525",
    "/llama-chat%3Fx%3D1",
    "/a%23b",
    "/a/---/b",
    "/%C3%BCn%C3%AF/x",
    "/" + "x" * 199,
]


@pytest.mark.parametrize("path", PATHS)
def test_r1_rendered_paths_fit_the_schema(recordings: Path, path: str) -> None:
    obj = deployment(gateway=asked())
    made = objects_of(decide(facts(obj)))[-1]
    made["spec"]["rules"][0]["matches"][0]["path"]["value"] = path
    for release, schema in stored(recordings, "HTTPRoute").items():
        assert refusals(made, schema) == [], release


def test_the_path_rule_rewrites_its_prefix_and_has_one_match() -> None:
    (rule, by_name) = objects_of(decide(facts()))[-1]["spec"]["rules"]
    assert len(rule["matches"]) == 1
    assert rule["matches"][0]["path"]["type"] == "PathPrefix"
    assert rule["filters"] == [
        {
            "type": "URLRewrite",
            "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}},
        }
    ]
    assert "filters" not in by_name
    (header,) = by_name["matches"][0]["headers"]
    assert header == {"type": "Exact", "name": "X-Gateway-Model-Name", "value": "Llama-8B"}


# ------------------------------------------------------------------------------------------------------ hostile input

TEXT = st.text(max_size=12)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
KEYS = sorted(
    {
        *("metadata", "name", "namespace", "labels", "annotations", "generation", "uid", "ownerReferences", "spec"),
        *("status", "parents", "parentRef", "parentRefs", "conditions", "type", "reason", "message", "listeners"),
        *("allowedRoutes", "namespaces", "from", "kinds", "addresses", "value", "rules", "backendRefs", "gateway"),
        *("endpoint", "service", "port", "pool", "targetPort", "selector", "matchLabels", "targetPorts", "model"),
        *("gatewayRef", "modelName", "pathTemplate", "servedName", "id", "protocol", "hostname", "controller"),
        *("observedGeneration", "deletionTimestamp", "creationTimestamp", "sectionName", "requestTimeout", "enabled"),
    }
)


def _nested(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.dictionaries(st.sampled_from(KEYS), inner, max_size=6) | st.lists(inner, max_size=3)


LOOKALIKE = st.recursive(
    ANY | st.sampled_from(["True", "False", "Accepted", "HTTP", "All", "gw", "infra", "llama", "ml", 1]),
    _nested,
    max_leaves=25,
)


def mutated(base: Resource) -> st.SearchStrategy[Resource]:
    """The object with some of its values replaced by any JSON."""

    @st.composite
    def change(draw: st.DrawFn) -> Resource:
        def walk(value: object, depth: int) -> object:
            if depth and draw(st.integers(0, 9)) == 0:
                return draw(LOOKALIKE)
            if isinstance(value, dict):
                return {key: walk(entry, depth + 1) for key, entry in value.items()}
            if isinstance(value, list):
                return [walk(entry, depth + 1) for entry in value]
            return value

        found = walk(base, 0)
        assert isinstance(found, dict)
        return found

    return change()


ROUTE = live_route(facts(), Accepted="False:NotAllowedByListeners:no")
POOL: Resource = {
    "metadata": {**ROUTE["metadata"], "name": "llama"},
    "spec": {"selector": {"matchLabels": {"a": "b"}}, "targetPorts": [{"number": 8000}]},
    "status": {"parents": ROUTE["status"]["parents"]},
}
WORD = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")


def sound(found: Facts) -> None:
    """A decision that the API server takes: no exception, a word as the reason, texts in every field of text."""
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


@settings(max_examples=300, deadline=None)
@given(
    obj=mutated(deployment(gateway=asked(gatewayRef={"name": "gw", "namespace": "infra"}, pathTemplate="/x"))),
    gateways=st.lists(mutated(gateway()), max_size=2),
    route=st.none() | mutated(ROUTE),
    pool=st.none() | mutated(POOL),
    engine=st.none() | mutated(ENGINE),
    served=st.booleans(),
)
def test_r30_any_json_gives_a_decision(
    obj: Resource,
    gateways: list[Resource],
    route: Resource | None,
    pool: Resource | None,
    engine: Resource | None,
    served: bool,
) -> None:
    found = Facts(
        deployment=obj,
        gateways=gateways,
        route=route,
        user_route=route,
        pool=pool,
        picker=pool,
        engine=engine,
        pools_served=served,
        probe=Probe(generation=1, name="inner"),
        flags=FLAGS,
    )
    sound(found)
    live = found.own_route
    if live is not None and decide(found).objects is None and not is_deleting(obj):
        # What is left as it is keeps its claims, one of each kind, unless a Gateway is closed to it.
        kept, known = {claim.kind: claim for claim in reversed(claims_in(live))}, set(map(gateway_key, gateways))
        assert {claim for claim in kept.values() if claim.gateway not in known} <= set(claims_of(found))


@settings(max_examples=300, deadline=None)
@given(obj=LOOKALIKE, other=LOOKALIKE, name=TEXT)
def test_any_json_of_gateways_and_routes_gives_a_verdict(obj: object, other: object, name: str) -> None:
    route: Resource = {"metadata": {"name": "a", "namespace": "ml"}, "spec": obj, "status": other}
    verdict_of(route, gateways=[{"metadata": obj, "spec": other, "status": obj}], pool={"status": other})
    choose(
        [{"metadata": obj}, {"metadata": other}], deployment=deployment(), config=None, detection=Detection(flag=name)
    )
    gateway_status(ready=True, target=None, gateway={"spec": obj, "status": other}, namespace="ml")
    equalities(name)


@settings(max_examples=200, deadline=None)
@given(name=TEXT, template=TEXT, annotations=st.dictionaries(TEXT, ANY, max_size=3), timeout=TEXT)
def test_r30_hostile_texts_end_as_data_that_the_schema_takes(
    recordings: Path, name: str, template: str, annotations: dict[str, object], timeout: str
) -> None:
    spec = asked(modelName=name, pathTemplate=template, annotations=annotations, requestTimeout=timeout)
    found = facts(deployment(gateway=spec), flags=Flags(epp_image=EPP))
    sound(found)
    schema = list(stored(recordings, "HTTPRoute").values())[-1]
    for obj in decide(found).objects or ():
        if obj["kind"] == "HTTPRoute":
            assert refusals(obj, schema) == []
