"""What a provider can do wrong with the words of a user, and how it is told."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.support.toy_variants import toy_host, usual

from airunway.api.base import ParseError
from airunway.sdk import Compatibility, Context, Finding, ModelDeployment, Reading, Resource, Translation, digest
from airunway_testing.conformance.cases import Base, bases, judged, merged_spec
from airunway_testing.conformance.hostile import HOSTILE, PLACES, hostile_faults
from airunway_testing.conformance.readings import declared, decoded, readings_at
from airunway_testing.toy.provider import MANIFEST, provider


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


# ----------------------------------------------------------------------------------- each text in each field, in groups

FIELDS: dict[str, Callable[[ModelDeployment], str]] = {
    "spec.model.id": lambda d: str(d.spec.model.id).partition("/")[2],
    "spec.model.servedName": lambda d: d.spec.model.served_name or "",
    "spec.engine.args, a value": lambda d: d.spec.engine.args.get("seed") or "",
    "spec.engine.args, a key": lambda d: next(iter(sorted(d.spec.engine.args, key=lambda key: key == "seed")), ""),
    "spec.engine.extraArgs": lambda d: "".join(d.spec.engine.extra_args[1:]).partition("/")[2],
    "spec.env[].name": lambda d: d.spec.env[0].name if d.spec.env else "",
    "spec.env[].value": lambda d: (d.spec.env[0].value or "") if d.spec.env else "",
    "spec.image": lambda d: d.spec.image or "",
    "spec.secrets.huggingFaceToken": lambda d: d.spec.secrets.hugging_face_token or "",
    "spec.podTemplate.metadata.labels": lambda d: d.spec.pod_template.metadata.labels.get("a", ""),
    "spec.nodeSelector": lambda d: d.spec.node_selector.get("a", ""),
}
"""How a provider reads the text of a field of `PLACES`."""


def as_data(deployment: ModelDeployment, context: Context[Any]) -> Translation:
    """Each field as a value of its own, but for the served name, which hides the model's id."""
    texts = {field: read(deployment) for field, read in FIELDS.items()}
    texts["spec.model.id"] = "" if texts["spec.model.servedName"] else texts["spec.model.id"]
    return settled(deployment, context, texts=[texts[field] for field in FIELDS])


@pytest.mark.parametrize("field", FIELDS)
def test_a_fault_of_one_field_with_one_text_is_found(field: str) -> None:
    """Texts of many fields are in one translation: what becomes of one of them is seen all the same."""
    base = Base(name="base", engine="vllm", spec={"model": {"id": "org/model"}, "resources": {"gpu": {"count": 1}}})
    taken = 0
    for text in HOSTILE[::3]:

        def with_fault(deployment: ModelDeployment, context: Context[Any], text: str = text) -> Translation:
            more = ("a word",) if FIELDS[field](deployment) == text else ()
            first, *others = as_data(deployment, context).objects
            spec = first["spec"]
            return Translation(objects=({**first, "spec": {**spec, "texts": [*spec["texts"], *more]}}, *others))

        host = toy_host(translate_spec=with_fault)
        try:
            refused = bool(judged(host, base, merged_spec(base.spec, PLACES[field](text))).blockers)
        except ParseError:
            refused = True
        found = list(hostile_faults(host, [base]))
        expected = f"base: {field} with {text[:24]!r} changes more than its own value, at objects[0].spec.texts"
        assert [fault.partition(": hand it over")[0] for fault in found] == ([] if refused else [expected])
        taken += not refused
    assert taken > 1


def test_a_provider_without_overrides_is_asked_all_the_same() -> None:
    """A text in place of all overrides is no map: the API refuses it."""
    assert list(hostile_faults(toy_host(override_schema={}))) == []


def test_few_translations_for_many_texts() -> None:
    """36 per deployment and 150 fields and texts: a translation of a real provider takes half a millisecond."""
    calls = 0

    def counted(deployment: ModelDeployment, context: Context[Any]) -> Translation:
        nonlocal calls
        calls += 1
        return as_data(deployment, context)

    host = toy_host(translate_spec=counted)
    base, *_ = bases(host)
    calls = 0
    assert list(hostile_faults(host, [base])) == []
    assert 12 < calls < 60


# --------------------------------------------------------------------------------- places that the upstream reads first


def model(deployment: ModelDeployment) -> str:
    return str(deployment.spec.model.id)


def reading(translate: Callable[[ModelDeployment, Context[Any]], Translation], **hooks: Any) -> list[str]:
    """The faults of a toy whose operator evaluates `args`, executes `config` and compares `digest`."""
    toy, *others = MANIFEST.upstream
    places = {"spec.args": "shell", "spec.config": "go-template", "spec.digest": "digest"}
    places |= {"spec.both": "go-template", "spec.both.args[*]": "shell", "spec.both.note": "plain"}
    kinds = (replace(toy, readings=places), *others)
    return list(hostile_faults(toy_host(upstream=kinds, translate_spec=translate, **hooks)))


def no_template(deployment: ModelDeployment, context: Context[Any]) -> Compatibility:
    found = provider.can_handle(deployment, context)
    assert isinstance(found, Compatibility)
    if "{{" not in model(deployment):
        return found
    finding = Finding(path="spec.model.id", reason="IncompatibleConfiguration", message="leave '{{' out")
    return Compatibility(blockers=(*found.blockers, finding))


def test_what_a_shell_reads_is_a_fault_verbatim_and_none_quoted() -> None:
    """KServe's presets: ``eval "exec vllm serve … $@"`` (review of an author, finding 1)."""
    (fault,) = reading(lambda d, c: settled(d, c, args=["serve", model(d)]))
    assert "spec.model.id" in fault
    assert "objects[0].spec.args[1]: a shell reads this place" in fault
    assert reading(lambda d, c: settled(d, c, args=["serve", shlex.quote(model(d))])) == []
    assert reading(lambda d, c: settled(d, c, args=[f"serve --model={shlex.quote(model(d))}"])) == []
    assert reading(lambda d, c: settled(d, c, args=['serve "$MODEL"'], model=model(d))) == []


def test_double_quotes_are_not_enough_for_a_shell() -> None:
    assert reading(lambda d, c: settled(d, c, args=[f'serve "{model(d)}"']))


def test_quotes_that_nobody_reads_are_a_fault() -> None:
    (fault,) = reading(lambda d, c: settled(d, c, words=["serve", shlex.quote(model(d))]))
    assert "objects[0].spec.words[1]: hand it over as one word or one value (if the upstream reads" in fault


def test_a_shell_s_command_is_checked_by_what_it_decodes_to_where_it_is_declared() -> None:
    toy, *others = MANIFEST.upstream
    kinds = (replace(toy, readings={"spec.command": "shell"}), *others)

    def line(word: Callable[[str], str]) -> list[str]:
        def translate(deployment: ModelDeployment, context: Context[Any]) -> Translation:
            return settled(deployment, context, command=["sh", "-c", f"exec serve {word(model(deployment))}"])

        return list(hostile_faults(toy_host(upstream=kinds, translate_spec=translate)))

    assert line(shlex.quote) == []
    assert line(str)


def test_what_a_template_reads_is_a_fault_verbatim_and_none_as_a_constant() -> None:
    def verbatim(deployment: ModelDeployment, context: Context[Any]) -> Translation:
        return settled(deployment, context, config=f"model {model(deployment)}")

    def constant(deployment: ModelDeployment, context: Context[Any]) -> Translation:
        text = model(deployment)
        return settled(deployment, context, config=f"model {{{{ {json.dumps(text, ensure_ascii=False)} }}}}")

    (fault,) = reading(verbatim)
    assert "with '{{ .Values }}%s%n' changes more" in fault
    assert "objects[0].spec.config: Go's text/template reads this place" in fault
    assert reading(constant) == []
    assert reading(verbatim, can_handle=no_template) == []


def test_a_key_of_a_map_is_executed_too() -> None:
    def keyed(deployment: ModelDeployment, context: Context[Any]) -> Translation:
        return settled(deployment, context, both={model(deployment): "a"})

    assert any("Go's text/template" in fault for fault in reading(keyed))
    assert reading(keyed, can_handle=no_template) == []


def test_a_shell_inside_of_a_template_reads_second_and_a_plain_place_nothing() -> None:
    def both(deployment: ModelDeployment, context: Context[Any]) -> Translation:
        text = model(deployment)
        return settled(deployment, context, both={"args": [shlex.quote(text)], "note": text})

    assert any("objects[0].spec.both.args[0]" in fault for fault in reading(both)), "the template is not escaped"
    assert reading(both, can_handle=no_template) == []


def test_a_digest_is_none_of_the_user_s_words() -> None:
    assert reading(lambda d, c: settled(d, c, digest=digest(model(d)))) == []
    (fault,) = reading(lambda d, c: settled(d, c, digest=model(d)))
    assert "objects[0].spec.digest: this place is declared as a digest" in fault
    assert list(hostile_faults(toy_host(translate_spec=lambda d, c: settled(d, c, digest=digest(model(d))))))


def test_one_cause_is_one_line_for_all_fields_and_deployments() -> None:
    def joined(deployment: ModelDeployment, context: Context[Any]) -> Translation:
        spec = deployment.spec
        words = [model(deployment), *(entry.value or "" for entry in spec.env), *spec.engine.extra_args]
        return settled(deployment, context, line=" ".join(f"a,{word}".split(",")[-1] for word in words))

    found = list(hostile_faults(toy_host(translate_spec=joined)))
    assert found
    places = [fault.partition(", at ")[2] for fault in found]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("serve 'a b' c\\ d", ["serve", "a b", "c d"]),
        ("--x='a'\"b\"c", ["--x=abc"]),
        ("''", [""]),
        ("a;b", ["a", {"executed": ";"}, "b"]),
        ("$(id)", [[{"executed": "$"}], {"executed": "("}, "id", {"executed": ")"}]),
        ('"$A"', [["", {"executed": "$"}, "A"]]),
        ("'open", [[{"executed": "'open"}]]),
        ('"a', [["a", {"executed": '"'}]]),
        ("a#b #c", ["a#b", [{"executed": "#"}, "c"]]),
    ],
)
def test_lines_are_read_as_a_shell_reads_them(text: str, words: list[Any]) -> None:
    assert decoded(text, (Reading.SHELL,)) == words


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("plain }} text", "plain }} text"),
        ("a {{ `{{ x }}` }} b", "a {{ x }} b"),
        ('a {{- "b" -}} c', "abc"),
        ('{{"a\\"b"}}', 'a"b'),
        ("{{/* nothing */}}x", "x"),
        ("{{ .Name }}x", [{"executed": [".Name"]}, "x"]),
        ("x{{ open", [{"executed": ["{{ open"]}, "x"]),
    ],
)
def test_templates_are_read_as_go_reads_them(text: str, result: Any) -> None:
    assert decoded(text, (Reading.GO_TEMPLATE,)) == result


def test_places_cover_what_is_below_the_outermost_first() -> None:
    places = declared(
        {
            "spec.template.containers[*].args": "shell",
            "spec": "go-template",
            "spec.note": "plain",
            "metadata.annotations[acme.io/digest]": "digest",
        }
    )
    assert readings_at(("spec", "template", "containers", 0, "args", 2), places) == ("go-template", "shell")
    assert readings_at(("spec", "note", "text"), places) == ()
    assert readings_at(("metadata", "annotations", "acme.io/digest"), places) == ("digest",)
    assert readings_at(("metadata", "name"), places) == ()
