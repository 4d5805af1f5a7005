"""KAITO's provider is held against what every provider must hold, as anybody else's."""

from dataclasses import replace

from airunway.plugins.registry import load
from airunway_testing.conformance.cases import bases, judged, merged_spec
from airunway_testing.conformance.checks import problems
from airunway_testing.conformance.hostile import hostile_faults


def test_it_conforms() -> None:
    assert list(problems("kaito")) == []


def test_what_a_user_writes_is_data_in_a_set_of_replicas_too() -> None:
    host = load("kaito")
    pairs = [replace(base, spec=merged_spec(base.spec, {"scaling": {"replicas": 2}})) for base in bases(host)]
    assert {judged(host, base, base.spec).objects[0]["kind"] for base in pairs} == {"InferenceSet"}
    assert list(hostile_faults(host, pairs)) == []
