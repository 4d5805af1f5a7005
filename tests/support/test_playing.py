"""The played engine refuses what a real one could not do with a model cache."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.playing import FILE, Ground, Start, cached_weights, engine_refusal, expanded, play

OFFLINE = {"HF_HUB_OFFLINE": "1"}


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with cached_weights() as found:
        yield found


def start(*words: str, env: dict[str, str] | None = None) -> Start:
    return Start(container="model", words=words, env=OFFLINE if env is None else env)


def test_it_serves_what_it_was_given_under_the_name_that_it_was_given(ground: Ground) -> None:
    report = play(start("vllm", "serve", str(ground.weights), "--port=8000", "--served-model-name=llama"), ground)
    assert (report.weights, report.names) == ((str(ground.weights),), ("llama",))
    assert (report.host, report.port) == ("0.0.0.0", 8000)
    assert report.wrote == (f"{ground.home}/.cache/huggingface/modules", f"{ground.home}/.cache/vllm")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("vllm serve org/model", "would have to fetch 'org/model' from the hub"),
        ("vllm serve {weights}/absent", "absent is not there"),
        ("python3 -m sglang.launch_server --model-path org/model", "would have to fetch 'org/model'"),
        ("python3 -m dynamo.trtllm --model-path {weights}/file.gguf", "loads a folder with config.json"),
        ("trtllm-serve serve {weights}/file.gguf", "loads a folder with config.json"),
        ("llama-server --hf-repo org/model", "would have to fetch org/model"),
        ("llama-server --model={weights}/file.gguf", "invalid argument"),
        ("llama-server --model {weights}", "loads a GGUF file"),
        ("bash -c true", "is no engine"),
        ("vllm serve {weights} --download-dir {weights}/tmp", "cannot write into"),
    ],
)
def test_it_refuses_a_command_line_that_does_not_load_the_cache(ground: Ground, words: str, why: str) -> None:
    assert why in engine_refusal(start(*words.format(weights=ground.weights).split()), ground)


@pytest.mark.parametrize(
    ("env", "why"),
    [
        ({}, "asks the hub for a newer revision"),
        ({**OFFLINE, "HF_HOME": "{weights}"}, "cannot write into"),
        ({**OFFLINE, "VLLM_CACHE_ROOT": "{weights}/kernels"}, "cannot write into"),
    ],
    ids=["the hub is on", "modules below the mount", "kernels below the mount"],
)
def test_it_refuses_variables_that_leave_the_hub_on_or_write_into_the_cache(
    ground: Ground, env: dict[str, str], why: str
) -> None:
    given = {name: value.format(weights=ground.weights) for name, value in env.items()}
    assert why in engine_refusal(start("vllm", "serve", str(ground.weights), env=given), ground)
    assert ground.tree() == ["config.json", FILE]


def test_it_refuses_a_cache_that_it_could_write_to(ground: Ground) -> None:
    ground.weights.chmod(0o777)
    try:
        refused = engine_refusal(start("vllm", "serve", str(ground.weights)), ground)
    finally:
        ground.weights.chmod(0o755)
        (ground.weights / "written").unlink()
        ground.weights.chmod(0o555)
    assert "could write beside the weights" in refused


def test_words_are_expanded_as_the_kubelet_does_it() -> None:
    assert expanded(["$(A)-$$(A)-$(B)-$$$"], {"A": "1"}) == ("1-$(A)-$(B)-$$",)
