"""A deployment that is written: form to YAML and back, what is no deployment, copies, and one beside another."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.pages_of_ui import DEPLOYMENT, MARKUP, Elements, serving

from airunway.resource import LAST_APPLIED, Resource, copy_of, dig
from airunway_ui import drafts
from airunway_ui.drafts import FIELDS, LONGEST, DraftError

HEAD = "apiVersion: airunway.ai/v1alpha1\nkind: ModelDeployment\nmetadata: {name: a, namespace: b}\n"
VALID = f"{HEAD}spec: {{model: {{id: x/y}}}}\n"

WRONG = (
    ("", "0 documents"),
    (f"{VALID}---\n{VALID}", "2 documents"),
    ("a: [b", "line 2, column 1"),
    ("- a", "not an object"),
    ("a: 1\na: 2", "duplicate key a"),
    ("\tx: 1", "line 1"),
    ("apiVersion: v1\nkind: Secret\nmetadata: {}\nspec: {}", "it is a Secret of v1"),
    ("apiVersion: airunway.ai/v1\nkind: ModelDeployment\nmetadata: {}\nspec: {}", "of airunway.ai/v1:"),
    (f"{HEAD}spec: []", "spec: must be an object"),
    (f"{HEAD}spec: {{a: {'[' * 300}", "nested more than 250 levels"),
    (f"x: &a [{'y' * 5000}]\nz: [{', '.join(['*a'] * 5000)}]", "its aliases"),
    ("!!python/object/apply:os.system [id]", "could not determine a constructor"),
    ("x" * (LONGEST + 1), "at most 1,048,576"),
    ("a: \x00", "not allowed"),
)


def test_what_is_no_deployment_is_refused_with_a_reason() -> None:
    for text, reason in WRONG:
        with pytest.raises(DraftError) as caught:
            drafts.read(text)
        assert reason in str(caught.value), text[:80]
        assert len(str(caught.value)) < 600


@given(st.text())
def test_any_text_is_a_deployment_or_refused(text: str) -> None:
    try:
        drafts.read(text)
    except DraftError:
        return
    raise AssertionError("a text at random is no deployment")


def test_the_form_and_the_yaml_say_the_same() -> None:
    draft = drafts.read(VALID)
    values = {
        **drafts.fields_of(draft),
        **{field.name: "7" if field.number else f"v-{field.name}" for field in FIELDS},
    }
    made, errors = drafts.with_fields(draft, values)
    assert errors == {}
    assert drafts.fields_of(made) == values
    assert drafts.read(drafts.text_of(made)) == made
    assert dig(made, "spec", "resources", "gpu", "count") == 7
    emptied, errors = drafts.with_fields(made, {})
    assert (emptied["spec"], errors) == ({}, {}), "an empty field removes its own, and what is empty around it"


def test_a_field_that_the_form_does_not_know_stays() -> None:
    draft = drafts.read(f"{HEAD}spec: {{model: {{id: x/y, task: embed}}, env: [{{name: A, value: '1'}}]}}\n")
    made, _ = drafts.with_fields(draft, {**drafts.fields_of(draft), "model": "z/w"})
    assert made["spec"] == {"model": {"id": "z/w", "task": "embed"}, "env": [{"name": "A", "value": "1"}]}


def test_a_wrong_value_is_said_at_its_field_and_not_taken() -> None:
    draft = drafts.read(VALID)
    wrong = {"gpus": "one", "context": "1e4", "replicas": "٣", "weight": "1.5", "model": "x" * 2000}
    made, errors = drafts.with_fields(draft, {**drafts.fields_of(draft), **wrong})
    assert set(errors) == set(wrong)
    assert made == draft


def test_what_admission_says_is_shown_at_its_field() -> None:
    causes: list[Resource] = [
        {"field": "spec.resources.gpu.count", "message": "should be less than or equal to 64"},
        {"field": "spec.engine.contextLength", "message": "must be positive"},
        {"field": "spec.env[0].name", "message": "elsewhere"},
    ]
    assert set(drafts.errors_at(causes)) == {"gpus", "context"}


def test_an_edit_begins_with_what_was_written_and_keeps_the_rest() -> None:
    live = copy_of(DEPLOYMENT)
    live["metadata"] |= {"resourceVersion": "9", "finalizers": ["f"], "managedFields": [{}]}
    live["metadata"]["annotations"] |= {LAST_APPLIED: "{}"}
    draft = drafts.written(live)
    assert set(draft) == {"apiVersion", "kind", "metadata", "spec"}
    assert draft["metadata"] == {
        "name": "llama",
        "namespace": "ml",
        "labels": {"team": "a"},
        "annotations": {"note": "b"},
    }
    del draft["metadata"]["labels"], draft["metadata"]["annotations"]
    draft["spec"]["scaling"]["replicas"] = 1
    sent = drafts.edited(live, draft)
    assert sent["metadata"]["resourceVersion"] == "9"
    assert sent["metadata"]["finalizers"] == ["f"]
    assert "labels" not in sent["metadata"], "what is removed from the YAML is removed"
    assert sent["metadata"]["annotations"] == {LAST_APPLIED: "{}"}, "what kubectl remembers is not for the page to drop"
    assert (sent["status"], sent["spec"]["scaling"]) == (live["status"], {"replicas": 1})


def test_one_beside_another_gets_no_requests_yet() -> None:
    alone = copy_of(DEPLOYMENT)
    del alone["spec"]["gateway"]
    draft, remark = drafts.beside(alone)
    assert (draft["metadata"]["name"], draft["spec"]["gateway"]) == ("llama-next", {"group": "llama", "weight": 0})
    assert "set its spec.gateway.group to llama" in remark
    draft, remark = drafts.beside(DEPLOYMENT)
    assert (draft["spec"]["gateway"], remark) == ({"group": "chat", "weight": 0}, "")
    long = copy_of(DEPLOYMENT)
    long["metadata"]["name"] = "n" * 63
    assert len(drafts.copied(long, suffix="-copy")["metadata"]["name"]) == 63
    assert drafts.name_of("meta-llama/Llama-3.1-8B") == "llama-3-1-8b"
    assert drafts.name_of("///") == "model"


async def test_wrong_values_come_back_with_their_reason_at_the_field() -> None:
    async with serving() as caller:

        async def sent(path: str, **form: str) -> Elements:
            body = urlencode({"token": caller.guard.token(caller.cookie), **form})
            answer = await caller.send("POST", path, caller.as_browser(), body)
            assert answer.status in (200, 422), answer
            return Elements(answer.body)

        back = await sent("/apply", yaml=VALID, source="form", **{"f-gpus": MARKUP, "f-name": "a", "f-namespace": "b"})
        by_id = {attributes.get("id"): attributes for _, attributes in back.found}
        assert by_id["f-gpus"]["value"] == MARKUP
        assert "is no whole number" in back.text
        assert "script" not in {tag for tag, attributes in back.found if "src" not in attributes}
        broken = await sent("/apply", yaml=f"a: [{MARKUP}", source="yaml")
        assert "line " in broken.text
        assert MARKUP in "".join(broken.texts), "what was typed is there again"
        assert "it needs a name" in (await sent("/check", yaml=VALID.replace("name: a,", ""), source="yaml")).text


async def test_a_question_that_cannot_be_asked_is_said_why() -> None:
    from airunway_ui.ask import _history, _options, _Wrong

    for fields in ({"task": "sing"}, {"max_tokens": "0"}, {"max_tokens": "many"}, {"max_tokens": "9" * 30}):
        with pytest.raises(_Wrong):
            _options(fields)
    for text in (
        "{",
        "{}",
        "[1]",
        '[{"role": "system", "content": "x"}]',
        '[{"role": "user"}]',
        "[" + "{}," * 200 + "{}]",
    ):
        with pytest.raises(_Wrong):
            _history(text)
    assert _history('[{"role": "user", "content": "x", "more": 1}]') == [{"role": "user", "content": "x"}]
    assert _options({"documents": "a\n\n b \n"}).task == "rerank"
