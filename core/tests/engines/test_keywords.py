"""Command-line arguments by their names in Python."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunway.engines.arguments import keyword_arguments


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["--max-model-len=8192"], {"max_model_len": 8192}),
        (["--gpu-memory-utilization", "0.9"], {"gpu_memory_utilization": 0.9}),
        (["--enforce-eager"], {"enforce_eager": True}),
        (["--no-enable-prefix-caching"], {"enable_prefix_caching": False}),
        (["--quantization=awq", "--dtype", "bfloat16"], {"quantization": "awq", "dtype": "bfloat16"}),
        (["--seed", "-1"], {"seed": -1}),
        (["--flag=True", "--other=false"], {"flag": True, "other": False}),
        (['--kv-transfer-config={"kv_connector": "X"}'], {"kv_transfer_config": {"kv_connector": "X"}}),
        (['--revision="123"'], {"revision": "123"}),
        (["--revision=0123", "--a=1e999", "--b=NaN"], {"revision": "0123", "a": "1e999", "b": "NaN"}),
        (["-tp", "2"], {"tensor_parallel_size": 2}),
        (["--a=1", "--a=2"], {"a": 2}),
        (["--a="], {"a": ""}),
    ],
)
def test_words_become_names_and_values(words: list[str], values: dict[str, Any]) -> None:
    found = keyword_arguments(words, short={"tp": "tensor_parallel_size"})
    assert (found.values, found.problems) == (values, ())


@pytest.mark.parametrize(
    "words",
    [["llama"], ["--a", "1", "2"], ["--compilation-config.level=3"], ["-"], ["--=x"], [f"--{'x' * 129}=1"]],
)
def test_what_has_no_name_is_a_problem(words: list[str]) -> None:
    (problem,) = keyword_arguments(words).problems
    assert "cannot be set by name" in problem


@given(st.lists(st.text(max_size=12) | st.sampled_from(["--a", "--b=[", "--c=" + "[" * 5000, "-x"]), max_size=6))
def test_any_words_give_something_that_json_can_say(words: list[str]) -> None:
    found = keyword_arguments(words)
    assert json.loads(json.dumps(found.values, allow_nan=False)) == found.values
