"""What we say of an object under a schema is what a real API server does with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from airunway.api.crds import custom_resource_definitions
from airunway.kube import CUSTOM_RESOURCE_DEFINITION, ApiError, Client, Invalid, Kind, is_served
from airunway.resource import ObjectKey, Resource, is_true
from airunway.schema import defaulted, dropped, fields_of, gained, has_rules, malformed, pruned, refusals
from airunway_testing.eventually import PATIENCE
from airunway_testing.operator import remove_definition

pytestmark = pytest.mark.apiserver

ODD = Kind("upgrades.testing.airunway.ai", "v1", "Odd", "odds")
CRD = ObjectKey("", f"{ODD.plural}.{ODD.group}")
SCHEMA: Resource = {
    "type": "object",
    "required": ["metadata", "spec"],
    "properties": {
        "metadata": {"type": "object"},
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "default": 3},
                "name": {"type": "string", "maxLength": 5, "pattern": "^[a-z]+$"},
                "colour": {"type": "string", "enum": ["red", "blue"]},
                "nothing": {"type": "string", "nullable": True},
                "port": {"x-kubernetes-int-or-string": True},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "parts": {
                    "type": "array",
                    "maxItems": 2,
                    "items": {
                        "type": "object",
                        "required": ["id"],
                        "properties": {"id": {"type": "string"}, "weight": {"type": "number", "default": 0.5}},
                    },
                },
                "shapes": {
                    "type": "object",
                    "additionalProperties": {
                        "type": "object",
                        "properties": {"sides": {"type": "integer", "default": 4}},
                    },
                },
                "pod": {
                    "type": "object",
                    "x-kubernetes-embedded-resource": True,
                    "properties": {"spec": {"type": "object", "properties": {"image": {"type": "string"}}}},
                },
                "one": {
                    "type": "object",
                    "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                    "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
                },
            },
        },
    },
}
POD: Resource = {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a.b/c": "d"}}}
SPECS: dict[str, Any] = {
    "empty": {},
    "all of it": {
        "size": 1,
        "name": "abc",
        "colour": "red",
        "nothing": None,
        "port": "http",
        "labels": {"a.b/c": "d"},
        "parts": [{"id": "a"}, {"id": "b", "weight": 1}],
        "shapes": {"x": {}},
        "one": {"a": "a"},
    },
    "a port that is a number": {"port": 80},
    "an unknown field": {"shape": "round", "size": 1},
    "an unknown field of an item": {"parts": [{"id": "a", "x": {"y": 1}}, {"id": "b"}]},
    "an unknown field in a map": {"shapes": {"a.b/c": {"sides": 3, "colour": "red"}}},
    "anything where anything may be": {"free": {"a": {"b": [1, {"c": None}]}}},
    "an embedded object": {"pod": {**POD, "spec": {"image": "a", "node": "b"}, "more": 1}},
    "too small": {"size": 0},
    "of another type": {"size": "1"},
    "too long": {"name": "abcdef"},
    "of no pattern": {"name": "ABC"},
    "none of the choices": {"colour": "green"},
    "too many": {"parts": [{"id": "a"}, {"id": "b"}, {"id": "c"}]},
    "without what is needed": {"parts": [{"weight": 1}]},
    "both of two": {"one": {"a": "a", "b": "b"}},
    "a map with a number": {"labels": {"a": 1}},
    "a boolean for a port": {"port": True},
}
NULLS: dict[str, Any] = {
    "a null where none may be": {"name": None},
    "a null where there is a default": {"size": None},
    "a null beside the one of two": {"one": {"a": "a", "b": None}},
    "a null in an item": {"parts": [{"id": "a", "weight": None}]},
    "a null for what is needed": {"parts": [{"id": None}]},
    "a null in a map": {"labels": {"a.b/c": None}},
}
"""A server-side apply refuses what a create drops."""


@pytest.fixture
async def odd(client: Client) -> AsyncIterator[None]:
    """A CRD with everything that a structural schema can say."""
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}}
    spec = {
        "group": ODD.group,
        "scope": "Namespaced",
        "names": {"kind": ODD.kind, "plural": ODD.plural, "singular": "odd"},
        "versions": [version],
    }
    body = {"apiVersion": CUSTOM_RESOURCE_DEFINITION.api_version, "kind": CUSTOM_RESOURCE_DEFINITION.kind}
    await client.create(CUSTOM_RESOURCE_DEFINITION, {**body, "metadata": {"name": CRD.name}, "spec": spec})
    async with asyncio.timeout(PATIENCE):
        while not is_true(await client.get(CUSTOM_RESOURCE_DEFINITION, CRD), "Established"):
            await asyncio.sleep(0.02)
        while not await is_served(client, ODD):
            await asyncio.sleep(0.02)
    yield
    await remove_definition(client, CRD.name)


async def test_what_is_dropped_added_and_refused_is_what_the_api_server_does(
    odd: None, client: Client, namespace: str
) -> None:
    for number, (what, spec) in enumerate((SPECS | NULLS).items()):
        metadata = {"name": f"odd-{number}", "namespace": namespace}
        obj = {"apiVersion": ODD.api_version, "kind": ODD.kind, "metadata": metadata, "spec": spec}
        refused = ""
        try:
            await client.apply(ODD, obj, manager="strict", dry_run=True)
        except ApiError as error:
            refused = str(error)
        assert bool(refusals(obj, SCHEMA)) is bool(refused), (what, refusals(obj, SCHEMA), refused)
        if what in NULLS:
            continue
        try:
            made = await client.create(ODD, obj, field_validation="Ignore")
        except Invalid:
            assert refusals(pruned(obj, SCHEMA), SCHEMA), what
            continue
        assert made["spec"] == defaulted(pruned(obj, SCHEMA), SCHEMA)["spec"], what


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"apiVersion": "apiextensions.k8s.io/v1beta1"}, "its apiVersion is 'apiextensions.k8s.io/v1beta1'"),
        ({"spec": "text"}, "spec.versions is no list of versions"),
        ({"spec": {"versions": []}}, "spec.versions is no list of versions"),
        ({"spec": {"versions": ["v1"]}}, "spec.versions[0] is no version with a name"),
        ({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": []}}]}}, "openAPIV3Schema is no schema"),
        (
            {"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"properties": {"spec": "object"}}}}]}},
            "spec.versions[0].schema.openAPIV3Schema.properties.spec is no schema",
        ),
        (
            {"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"items": [], "type": "array"}}}]}},
            "spec.versions[0].schema.openAPIV3Schema.items is no schema",
        ),
    ],
)
def test_what_is_no_crd_is_told_by_the_field_that_keeps_it_from_being_one(wrong: Resource, said: str) -> None:
    crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", **wrong}
    assert said in malformed(crd)


def test_ours_are_crds() -> None:
    assert {malformed(crd) for crd in custom_resource_definitions()} == {""}


def test_paths_are_told_as_people_write_them() -> None:
    obj = {"spec": {"shape": 1, "parts": [{"id": "a"}, {"id": "b", "x": {"y": 1}}]}}
    assert dropped(obj, SCHEMA) == ["spec.parts[1].x", "spec.shape"]
    assert gained(obj, SCHEMA) == ["spec.parts[0].weight=0.5", "spec.parts[1].weight=0.5", "spec.size=3"]
    assert "spec.parts[].id" in set(fields_of(SCHEMA))
    assert "spec.shapes.*.sides" in set(fields_of(SCHEMA))
    wrong = {"spec": {"size": 0, "parts": [{}]}}
    assert refusals(wrong, SCHEMA) == [
        "spec.parts[0]: 'id' is a required property",
        "spec.size: 0 is less than the minimum of 1",
    ]


def test_rules_in_cel_are_seen_and_not_judged() -> None:
    assert not has_rules(SCHEMA)
    spec = {"type": "object", "x-kubernetes-validations": [{"rule": "false"}]}
    assert has_rules({"type": "object", "properties": {"spec": spec}})
    assert not has_rules({"type": "object", "properties": {"x-kubernetes-validations": {"type": "string"}}})
