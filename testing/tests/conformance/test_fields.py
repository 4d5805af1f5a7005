"""The toggle test itself: its fields are all there are, and its four outcomes are told apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, get_args

import pytest
from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from typer.testing import CliRunner

from airunway import sdk
from airunway.api.modeldeployment import ModelDeploymentSpec
from airunway.cli.main import app
from airunway.plugins.registry import host_of, load
from airunway_testing import conformance
from airunway_testing.conformance import FIELDS, Outcome, outcome
from airunway_testing.toy.provider import MANIFEST, TRANSFORMERS, provider

OF_OTHERS = ("spec.engine.type", "spec.model.cache", *(f for f in sdk.CORE_FIELDS if f != "spec.serving"))
"""Fields that are no provider's business, or reach it as part of its context."""


def leaves(model: type[BaseModel], path: str) -> Iterator[str]:
    for name, info in model.model_fields.items():
        here = f"{path}.{to_camel(name)}"
        kinds = [kind for kind in _types(info.annotation) if issubclass(kind, BaseModel)]
        if kinds:
            yield from leaves(kinds[0], f"{here}[]" if "list" in str(info.annotation) else here)
        else:
            yield here


def _types(annotation: Any) -> Iterator[type]:
    if isinstance(annotation, type) and not get_args(annotation):
        yield annotation
    for part in get_args(annotation):
        yield from _types(part)


def test_every_field_of_the_spec_is_toggled() -> None:
    every = set(leaves(ModelDeploymentSpec, "spec"))
    assert len(every) > 50
    known = (*FIELDS, *OF_OTHERS)
    assert sorted(field for field in every if not field.startswith(known)) == []
    assert [field for field in FIELDS if not any(leaf.startswith(field) for leaf in every)] == []


def test_the_toy_conforms() -> None:
    assert list(conformance.problems("toy")) == []


def test_the_outcomes_are_told_apart() -> None:
    toy = load("toy")
    assert outcome(toy, "spec.scaling.replicas", engine="vllm") is Outcome.HONOURED
    assert outcome(toy, "spec.serving.mode", engine="vllm") is Outcome.REFUSED
    assert outcome(toy, "spec.env[].name", engine="vllm") is Outcome.NAMED

    def looks_at_all(deployment: sdk.ModelDeployment, context: sdk.Context) -> sdk.Compatibility:
        _ = [variable.name for variable in deployment.spec.env]
        return sdk.Compatibility()

    careless = sdk.Provider(
        replace(MANIFEST, name="careless"),
        TRANSFORMERS,
        can_handle=looks_at_all,
        translate_spec=provider.translate_spec,
        translate_status=provider.translate_status,
    )
    host = host_of("careless", careless)
    assert outcome(host, "spec.env[].name", engine="vllm") is Outcome.LOST
    assert outcome(host, "spec.serving.mode", engine="vllm") is Outcome.LOST


def test_what_a_field_is_part_of_may_be_refused() -> None:
    def no_environment(deployment: sdk.ModelDeployment, context: sdk.Context) -> sdk.Compatibility:
        found = sdk.Finding(path="spec.env", reason="IncompatibleConfiguration", message="no variables here")
        return sdk.Compatibility(blockers=(found,) if deployment.spec.env else ())

    strict = sdk.Provider(
        replace(MANIFEST, name="strict"),
        TRANSFORMERS,
        can_handle=no_environment,
        translate_spec=provider.translate_spec,
        translate_status=provider.translate_status,
    )
    assert outcome(host_of("strict", strict), "spec.env[].value", engine="vllm") is Outcome.REFUSED


def test_a_provider_that_is_not_there_is_one_sentence() -> None:
    done = CliRunner().invoke(app, ["provider", "check", "nosuch"])
    assert (done.exit_code, done.output.count("\n")) == (1, 1)
    assert "no installed distribution provides 'nosuch'" in done.output


def test_a_provider_that_refuses_everything_is_no_subject() -> None:
    with pytest.raises(ValueError, match="toy refuses the plain deployment"):
        outcome(load("toy"), "spec.image", engine="vllm", base={**conformance.plain(load("toy"), "vllm"), **CROWD})


CROWD: dict[str, Any] = {"scaling": {"replicas": 5}}
