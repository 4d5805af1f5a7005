"""``airunway provider check``: what the API server would refuse, and what one deployment would take from another."""

from dataclasses import dataclass, field, replace
from typing import Any

from tests.support.toy_variants import toy_host, usual

from airunway.plugins.host import ProviderHost
from airunway.sdk import Context, ModelDeployment, SelectionRule, Translation, overrides
from airunway_testing.conformance.cases import bases
from airunway_testing.conformance.subject import Subject
from airunway_testing.conformance.written import (
    changed_arguments,
    fixed_names,
    refused_objects,
    refused_overrides,
    wrong_rules,
)
from airunway_testing.toy.provider import Settings


def writing(**spec: Any) -> ProviderHost:
    """A toy with further fields of its spec."""

    def translate_spec(deployment: ModelDeployment, context: Context[Any]) -> Translation:
        found = usual(deployment, context)
        found.objects[0]["spec"].update(spec)
        return found

    return toy_host(translate_spec=translate_spec)


def test_a_field_that_the_crd_does_not_have_and_one_of_another_type_are_named_once() -> None:
    host = writing(colour="red", replicas="two")
    assert list(refused_objects(host, bases(host), Subject(host).schemas)) == [
        f"vllm: the CRD of Toy does not take what translate_spec writes: {what}"
        for what in ("spec.colour: the schema has no such field", "spec.replicas: 'two' is not of type 'integer'")
    ]


def test_a_status_is_the_upstream_s() -> None:
    def translate_spec(deployment: ModelDeployment, context: Context[Any]) -> Translation:
        found = usual(deployment, context)
        found.objects[0]["status"] = {}
        return found

    host = toy_host(translate_spec=translate_spec)
    (said,) = refused_objects(host, bases(host), Subject(host).schemas)
    assert said == "vllm: translate_spec writes a status of the Toy: leave it to the upstream"


def test_any_schema_of_overrides_can_be_read() -> None:
    schema = {"properties": {"a": True, "b": {"type": "array", "items": True}}}
    host = toy_host(override_schema=schema)
    for said in refused_overrides(host, bases(host), Subject(host).schemas):
        assert "is merged into the Toy" in said


def test_an_override_belongs_where_the_crd_has_it() -> None:
    word = overrides.keys(word=overrides.TEXT)
    host = toy_host(override_schema=word)
    (said,) = refused_overrides(host, bases(host), Subject(host).schemas)
    assert said.startswith("spec.provider.overrides.word is merged into the Toy at word, a field that its CRD does not")
    typed = toy_host(override_schema=overrides.keys(word=overrides.typed(overrides.TEXT)))
    assert list(refused_overrides(typed, bases(typed), Subject(typed).schemas)) == []

    def placed(deployment: ModelDeployment, context: Context[Any]) -> Translation:
        return replace(usual(deployment, context), overrides_at={"word": "spec.model"})

    fits = toy_host(override_schema=word, translate_spec=placed)
    assert list(refused_overrides(fits, bases(fits), Subject(fits).schemas)) == []


def test_a_name_that_all_deployments_share_is_named() -> None:
    def translate_spec(deployment: ModelDeployment, context: Context[Any]) -> Translation:
        found = usual(deployment, context)
        next(obj for obj in found.objects if obj["kind"] == "ConfigMap")["metadata"]["name"] = "toy-settings"
        return found

    host = toy_host(translate_spec=translate_spec)
    (said,) = fixed_names(host, bases(host))
    assert said.startswith("vllm: the ConfigMap 'toy-settings' has that name whatever the deployment is called")


@dataclass(frozen=True, kw_only=True)
class Placed(Settings):
    selector: dict[str, str] = field(default_factory=dict)


def test_settings_that_a_hook_changes_would_reach_the_next_deployment() -> None:
    def translate_spec(deployment: ModelDeployment, context: Context[Any]) -> Translation:
        context.settings.selector.update(deployment.spec.node_selector)
        context.runtime.labels.update(deployment.spec.pod_template.metadata.labels)  # type: ignore[attr-defined]
        return usual(deployment, context)

    host = toy_host(settings=Placed, translate_spec=translate_spec)
    assert [said.partition(",")[0] for said in changed_arguments(host, bases(host))] == [
        "vllm: a hook changes context.settings.selector",
        "vllm: a hook changes context.runtime.labels",
    ]


def test_a_rule_that_cannot_be_evaluated_is_named() -> None:
    rules = ("spec.engine.type == 'vllm'", "spec.engine.typ == 'vllm'", "spec.engine.type ==")
    host = toy_host(selection_rules=tuple(SelectionRule(condition=rule) for rule in rules))
    said = list(wrong_rules(host))
    assert [rule in sentence for rule, sentence in zip(rules[1:], said, strict=True)] == [True, True]
