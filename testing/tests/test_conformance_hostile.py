"""What a provider can do wrong with the words of a user, and how it is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from airunway.sdk import Context, ModelDeployment, Resource, Translation
from airunway_testing.conformance.hostile import hostile_faults
from airunway_testing.toy.variants import toy_host, usual


def settled(deployment: ModelDeployment, context: Context[Any], **fields: Any) -> Translation:
    """The toy's usual objects, with these fields in the first one's spec."""
    first, *others = usual(deployment, context).objects
    changed: Resource = {**first, "spec": {**first["spec"], **fields}}
    return Translation(objects=(changed, *others))


def as_words(deployment: ModelDeployment, context: Context[Any]) -> Translation:
    return settled(deployment, context, args=["serve", *str(deployment.spec.model.id).split()])


def as_a_line(deployment: ModelDeployment, context: Context[Any]) -> Translation:
    return settled(deployment, context, command=["/bin/sh", "-c", f"serve {deployment.spec.model.id}"])


def as_a_template(deployment: ModelDeployment, context: Context[Any]) -> Translation:
    return settled(deployment, context, config=f"model: {deployment.spec.model.id}\nport: 80\n")


def as_a_document(deployment: ModelDeployment, context: Context[Any]) -> Translation:
    return settled(deployment, context, config=json.dumps({"model": deployment.spec.model.id, "port": 80}))


def as_a_key(deployment: ModelDeployment, context: Context[Any]) -> Translation:
    return settled(deployment, context, models={str(deployment.spec.model.id).partition("=")[0]: True})


@pytest.mark.parametrize(
    ("translate", "where"),
    [
        (as_words, "objects[0].spec.args"),
        (as_a_line, "objects[0].spec.command"),
        (as_a_template, "objects[0].spec.config"),
        (as_a_key, "objects[0].spec.models"),
    ],
)
def test_a_text_that_becomes_more_than_a_value_is_told_with_its_place(
    translate: Callable[[ModelDeployment, Context[Any]], Translation], where: str
) -> None:
    found = list(hostile_faults(toy_host(translate_spec=translate)))
    assert found
    assert any("spec.model.id" in fault and f"at {where}" in fault for fault in found), found


def test_a_text_inside_a_document_that_is_written_as_one_is_data() -> None:
    assert list(hostile_faults(toy_host(translate_spec=as_a_document))) == []
