"""What the API server, or a second deployment, would make of the objects that a provider writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import fields, is_dataclass, replace
from typing import Any

from airunway.api.modeldeployment import defaulted_spec
from airunway.plugins.contract import RuntimeSettings
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource, dig
from airunway.runtime.translate import check_overrides
from airunway.schema import dropped, refusals
from airunway.selection.facts import request_of
from airunway.selection.provider import evaluate_rules
from airunway_testing.conformance.cases import NAME, Base, context_of, judged, merged_spec

_MOST = 3
"""Sentences about one object."""

Schemas = Mapping[tuple[str, str], Resource]
"""The schemas of the CRDs that come with simulators, by apiVersion and kind."""


def refused_objects(host: ProviderHost, asked: Sequence[Base], schemas: Schemas) -> Iterator[str]:
    """What the CRDs do not take of the objects of plain deployments."""
    named: set[str] = set()
    for base in asked:
        for obj in judged(host, base, base.spec).objects:
            if "status" in obj and obj["kind"] not in named:
                named.add(obj["kind"])
                yield f"{base.name}: translate_spec writes a status of the {obj['kind']}: leave it to the upstream"
            for sentence in _refusals(obj, schemas)[:_MOST]:
                if sentence not in named:
                    named.add(sentence)
                    yield f"{base.name}: the CRD of {obj['kind']} does not take what translate_spec writes: {sentence}"


def refused_overrides(host: ProviderHost, asked: Sequence[Base], schemas: Schemas) -> Iterator[str]:
    """Overrides of the manifest's schema that are merged where the CRD of the primary object has no such field."""
    schema, bases = host.manifest.override_schema, _of_each_kind(host, asked, schemas)
    for path, value in _samples(schema):
        overrides: Any = value
        for step in reversed(path):
            overrides = {step: overrides}
        checked = check_overrides(overrides, schema)
        if checked.errors or not checked.merge:  # a pattern that the sample does not fit; a key that is not merged
            continue
        for base, before in bases:
            found = judged(host, base, merged_spec(base.spec, {"provider": {"overrides": overrides}})).objects
            if not found:
                continue
            new = [place for place in _unknown(found[0], schemas) if place not in before]
            if new:
                yield (
                    f"spec.provider.overrides.{'.'.join(path)} is merged into the {found[0]['kind']} at {new[0]}, a "
                    "field that its CRD does not have: say where it belongs in Translation.overrides_at, or mark the "
                    "key with overrides.typed if the translation reads it itself"
                )
                break


def _of_each_kind(host: ProviderHost, asked: Sequence[Base], schemas: Schemas) -> list[tuple[Base, list[str]]]:
    """A plain deployment for each kind of primary object, with the fields of it that the CRD does not have."""
    found: dict[str, tuple[Base, list[str]]] = {}
    for base in asked:
        for primary in judged(host, base, base.spec).objects[:1]:
            found.setdefault(primary["kind"], (base, _unknown(primary, schemas)))
    return list(found.values())


def fixed_names(host: ProviderHost, asked: Sequence[Base]) -> Iterator[str]:
    """Objects that have one name for all deployments: only the first deployment of a namespace gets them."""
    named: set[tuple[str, str]] = set()
    for base in asked:
        one, other = (
            {(obj["kind"], obj["metadata"]["name"]) for obj in judged(host, base, base.spec, name=name).objects}
            for name in (NAME, f"{NAME}-2")
        )
        for kind, name in sorted((one & other) - named):
            named.add((kind, name))
            yield (
                f"{base.name}: the {kind} {name!r} has that name whatever the deployment is called, so that a second "
                "deployment of the namespace gets none: derive the name from deployment.metadata.name (derived_name)"
            )


def changed_arguments(host: ProviderHost, asked: Sequence[Base]) -> Iterator[str]:
    """What hooks change of the context: it is shared by all deployments."""
    named: set[str] = set()
    given = {"nodeSelector": {"a": "b"}, "podTemplate": {"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}}}}
    for base in asked:
        runtime = RuntimeSettings(env=({"name": "A", "value": "1"},), labels={"org.example/a": "b"})
        context = replace(context_of(host, base), runtime=runtime)
        before = deepcopy((context.settings, context.runtime))
        spec = merged_spec(base.spec, given)
        if judged(host, base, spec, context=context).blockers:
            judged(host, base, base.spec, context=context)
        for what, was, now in zip(("settings", "runtime"), before, (context.settings, context.runtime), strict=True):
            for name in _differences(was, now):
                path = f"context.{what}.{name}"
                if path not in named:
                    named.add(path)
                    yield f"{base.name}: a hook changes {path}, which all deployments share: copy it first"


def wrong_rules(host: ProviderHost) -> Iterator[str]:
    """Selection rules that cannot be evaluated for a plain deployment."""
    rules = [(rule.condition, rule.priority) for rule in host.manifest.selection_rules]
    engine = host.manifest.engines[0].name
    for result in evaluate_rules(rules, request_of(defaulted_spec({"model": {"id": "org/model"}}, engine=engine))):
        if result.value is None:
            yield f"manifest.selection_rules: {result.condition!r} cannot be evaluated: {result.error}"


def _refusals(obj: Resource, schemas: Schemas) -> list[str]:
    schema = schemas.get((str(obj.get("apiVersion")), str(obj.get("kind"))))
    return refusals(obj, schema) if schema is not None else []


def _unknown(obj: Resource, schemas: Schemas) -> list[str]:
    schema = schemas.get((str(obj.get("apiVersion")), str(obj.get("kind"))))
    return list(map(str, dropped(obj, schema))) if schema is not None else []


def _differences(before: object, now: object) -> list[str]:
    if not is_dataclass(before):
        return []
    return [field.name for field in fields(before) if getattr(before, field.name) != getattr(now, field.name)]


def _samples(schema: Resource, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Each key of a schema of overrides below which is no other, with a value that its type takes."""
    below = dig(schema, "properties", default={})
    for key, described in below.items():
        yield from _samples(_of_words(described), (*path, key))
    if path and not below and "additionalProperties" not in schema:
        yield path, _sample(schema)


def _of_words(schema: object) -> Resource:
    """A schema with keywords; ``true`` describes nothing of use here."""
    return schema if isinstance(schema, dict) else {}


def _sample(schema: Resource) -> object:
    if choices := schema.get("enum"):
        return choices[0]
    kind = schema.get("type")
    match kind[0] if isinstance(kind, list) else kind:
        case "integer" | "number":
            return max(1, schema.get("minimum", 1))
        case "boolean":
            return True
        case "array":
            return [_sample(_of_words(schema.get("items")))]
        case "object":
            return {key: _sample(_of_words(each)) for key, each in dig(schema, "properties", default={}).items()}
        case _:
            return "1"
