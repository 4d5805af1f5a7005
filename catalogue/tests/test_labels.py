"""Labels of images: the shapes in which they come, and what is not accepted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunway_catalogue.labels import MAX_LABEL, MAX_RECOMMENDED, ImageLabels, Recommendation, read_labels

KEY = "ai.airunway.model.recommendedDeployments"
ONE = {"gpuModel": "MI300X", "gpuCount": 1, "precision": "fp8", "metric": "latency"}
TWO = {"gpuModel": "MI325X", "gpuCount": 8, "precision": "fp16", "metric": "throughput"}
READ = [
    Recommendation(gpu_model="MI300X", gpu_count=1, precision="fp8", metric="latency"),
    Recommendation(gpu_model="MI325X", gpu_count=8, precision="fp16", metric="throughput"),
]


def read(text: object, key: str = KEY) -> ImageLabels:
    return read_labels({key: text})


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([ONE, TWO]),
        json.dumps(ONE) + json.dumps(TWO),
        json.dumps(ONE) + ", " + json.dumps(TWO),
        json.dumps(ONE) + "\n" + json.dumps(TWO) + ",",
        repr([ONE, TWO]),
        repr(ONE) + repr(TWO),
        repr(ONE) + ", " + repr(TWO),
        f"({ONE!r}, {TWO!r})",
        json.dumps(ONE) + ", " + repr(TWO),
        json.dumps([ONE]) + repr([TWO]),
        "  \n" + json.dumps([ONE, TWO], indent=2) + "\n ",
    ],
)
def test_json_joined_objects_and_python_quotes_are_the_same(text: str) -> None:
    found = read(text)
    assert list(found.recommended) == READ
    assert found.problems == ()


@pytest.mark.parametrize(
    "entry",
    [
        {"gpu_model": "H100", "gpu_count": "2"},
        {"gpuModel": "H100", "gpuCount": 2},
        {"GPU-Model": "H100", "GPU_COUNT": 2},
        {"gpu": " H100 ", "gpus": 2, "metric": "", "precision": None, "other": {"deep": [1]}},
    ],
)
def test_fields_have_several_spellings(entry: dict[str, Any]) -> None:
    assert read(json.dumps(entry)).recommended == (Recommendation(gpu_model="H100", gpu_count=2),)


def test_all_fields() -> None:
    entry = {**ONE, "metric": "Latency", "description": "a\nb\x1b[2Jc", "optimized": True, "gpuType": "amd.com/gpu"}
    [found] = read(json.dumps(entry)).recommended
    assert (found.metric, found.optimized, found.gpu_type) == ("latency", True, "amd.com/gpu")
    assert found.description == "a bc"
    assert read("{'type': 'unoptimized'}").recommended[0].optimized is False
    assert read("{'type': 'gpu'}").recommended[0].optimized is None


def test_a_vendor_prefix_says_whose_gpus_are_meant() -> None:
    found = read(json.dumps(ONE), "com.amd.aim.model.recommendedDeployments").recommended
    assert [each.gpu_type for each in found] == ["amd.com/gpu"]
    assert read('{"precision": "fp8"}', "org.amd.silogen.model.recommendedDeployments").recommended[0].gpu_type == ""


def test_the_name_of_the_model_comes_from_the_first_prefix_that_has_one() -> None:
    labels: dict[str, object] = {"com.amd.aim.model.canonicalName": "org/a", "org.amd.silogen.model.canonicalName": "b"}
    assert read_labels(labels).model == "org/a"
    assert read_labels({"com.amd.aim.model.canonicalName": "", "ai.airunway.model.name": "x/y"}).model == "x/y"
    found = read_labels({"com.amd.aim.model.canonicalName": "a b\n"})
    assert found.model == ""
    assert "com.amd.aim.model.canonicalName" in found.problems[0]


def test_an_image_without_labels_recommends_nothing_and_has_no_problem() -> None:
    for labels in ({}, {KEY: ""}, {KEY: "[]"}, {"other": "x"}):
        assert read_labels(labels) == ImageLabels()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hello", "is no object"),
        ("[1, 2]", "1 is no object"),
        ('{"gpuCount": "many"}', "gpuCount 'many' is no number"),
        ('{"gpuCount": -1}', "gpuCount -1"),
        ('{"gpuCount": 65}', "gpuCount 65"),
        ('{"gpuCount": true}', "gpuCount True"),
        ('{"gpuCount": 1.5}', "gpuCount 1.5"),
        ('{"gpuModel": "a/../b"}', "gpuModel 'a/../b'"),
        ('{"gpuModel": ["a"]}', "gpuModel (a Python list)"),
        ('{"metric": "speed"}', "neither latency nor throughput"),
        ('{"precision": "fp8; rm"}', "no precision"),
        ('{"optimized": "maybe"}', "neither true nor false"),
        ('{"gpuModel": "H100"', "ends in the middle"),
        ('{"gpuModel": "H100"}}', "nothing opens"),
        ("{'a': __import__('os').getcwd()}", "neither JSON nor a Python literal"),
        ("{'a': open('/etc/passwd').read()}", "neither JSON nor a Python literal"),
        ("{'a': 1 if True else 2}", "neither JSON nor a Python literal"),
        ("{[]: 1}", "neither JSON nor a Python literal"),
        ("[" * 1000 + "]" * 1000, "nested more than"),
        ("{'a':" * 1000 + "1" + "}" * 1000, "nested more than"),
        ("{" + "-" * 60_000 + "1}", "neither JSON nor a Python literal"),
        ("{" + "1-" * 30_000 + "1}", "neither JSON nor a Python literal"),
        ("[" + "9" * 60_000 + "]", "neither JSON nor a Python literal"),
        ("[0x" + "f" * 60_000 + "]", "is no object"),
        ("x" * 10_000_000, "of which at most"),
        (7, "must be text"),
        ({"a": 1}, "must be text"),
    ],
)
def test_what_cannot_be_read_names_the_label_and_gives_nothing(text: object, said: str) -> None:
    found = read(text)
    assert found.recommended == ()
    assert found.unreadable
    assert any(KEY in problem and said in problem for problem in found.problems), found.problems
    assert all(len(problem) < 600 for problem in found.problems)


def test_one_bad_entry_leaves_the_others() -> None:
    found = read(json.dumps([ONE, {"gpuCount": "x"}, TWO]))
    assert list(found.recommended) == READ
    assert [f"label {KEY}, entry 2" in problem for problem in found.problems] == [True]
    assert not found.unreadable


def test_repetitions_count_once_and_there_is_a_limit() -> None:
    assert len(read(json.dumps([ONE, ONE])).recommended) == 1
    many = [{"gpuModel": f"GPU-{number}"} for number in range(MAX_RECOMMENDED + 10)]
    found = read(json.dumps(many))
    assert len(found.recommended) == MAX_RECOMMENDED
    assert "has 74 entries" in found.problems[0]


def test_a_credential_in_a_label_is_not_shown() -> None:
    found = read("{'gpuModel': 'password=hunter2hunter2/'}")
    assert "hunter2" not in str(found.problems)


@given(st.text(max_size=300) | st.text(alphabet="{}[]()'\",:\\ 1aN-", max_size=MAX_LABEL // 400))
def test_any_text_gives_a_list_and_problems(text: str) -> None:
    found = read(text)
    assert isinstance(found.recommended, tuple)
    assert not found.unreadable or found.problems


@given(
    st.dictionaries(
        st.sampled_from([KEY, "ai.airunway.model.name"]),
        st.recursive(
            st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
        ),
    )
)
def test_any_labels_give_a_result(labels: dict[str, object]) -> None:
    assert isinstance(read_labels(labels), ImageLabels)
