"""Options that an engine's own parser does not know, or not in that form, are named to the user."""

from __future__ import annotations

import time
from typing import Any

import pytest

from airunway.api.modeldeployment import ModelDeployment, parse_deployment
from airunway.engines.arguments import engine_arguments
from airunway.engines.options import (
    PROGRAMS,
    OptionRemarks,
    _options,
    _record,
    kinds_of,
    option_remarks,
    program_of,
    release_of,
    unknown_options,
    whole_option,
)
from airunway.engines.tables import FLAG_TABLES

RELEASE = (0, 23, 0)


def remarks(
    *extra: str, program: str = "vllm", release: tuple[int, ...] | None = RELEASE, **args: str
) -> OptionRemarks:
    engine: dict[str, Any] = {"extraArgs": list(extra), "args": {key.replace("_", "-"): v for key, v in args.items()}}
    deployment = parse_deployment({"metadata": {"name": "a"}, "spec": {"model": {"id": "org/m"}, "engine": engine}})
    return option_remarks(engine_arguments(deployment, engine="vllm").options, program, release)


def said(*extra: str, program: str = "vllm", release: tuple[int, ...] | None = RELEASE, **args: str) -> dict[str, str]:
    found = remarks(*extra, program=program, release=release, **args)
    return {remark.path: remark.message for remark in (*found.errors, *found.warnings)}


def test_what_the_parser_knows_is_not_remarked_on() -> None:
    assert said("--max-num-seqs=4", "-tp=2", "-O3", "--compilation-config.mode", "3", "--no-enforce-eager") == {}
    assert said(max_model_len="8", enforce_eager="", max_num_s="4") == {}, "an unambiguous beginning is taken, too"
    assert said("--max_model_len=8", "8", "-1") == {}


def test_an_unknown_option_is_named_with_the_nearest_one() -> None:
    text = "vLLM 0.23.0 has no --max-model-length; did you mean --max-model-len"
    assert said("--max-model-length=8") == {"spec.engine.extraArgs[0]": text}
    assert said(max_model_length="8") == {
        "spec.engine.args[max-model-length]": f"{text}; remove it, or move it to engine.extraArgs if the image is a "
        "build of your own that has it"
    }


def test_only_what_the_very_release_lacks_is_an_error() -> None:
    """An image may be a build of the user's own, and a release that is not recorded may have more options."""
    assert remarks(nosuchthing="1").errors
    assert not remarks("--nosuchthing=1").errors
    assert not remarks(nosuchthing="1", release=(0, 24, 0)).errors
    assert not remarks(nosuchthing="1", release=None).errors


def test_a_removed_one_and_one_that_comes_later_are_told_by_release() -> None:
    (text,) = said("--num-scheduler-steps=4").values()
    assert "vLLM 0.23.0 has no --num-scheduler-steps; 0.8.5 was the last with it" in text
    (text,) = said("--async-scheduling", release=(0, 8, 5)).values()
    assert "vLLM 0.8.5 has no --async-scheduling; 0." in text
    assert " has it" in text


@pytest.mark.parametrize(
    ("extra", "text"),
    [
        (("--enforce-eager=true",), "--enforce-eager of vLLM takes no value"),
        (("--enforce-eager", "true"), "--enforce-eager of vLLM takes no value"),
        (("--no-max-num-seqs",), "has no --no-max-num-seqs"),
        (("--max-num-seqs",), "--max-num-seqs of vLLM needs a value"),
        (("--max-num-seqs", "--enforce-eager"), "--max-num-seqs of vLLM needs a value"),
    ],
)
def test_wrong_forms(extra: tuple[str, ...], text: str) -> None:
    found = said(*extra)
    assert list(found) == ["spec.engine.extraArgs[0]"]
    assert text in found["spec.engine.extraArgs[0]"]


def test_a_release_that_is_not_recorded_is_judged_by_the_nearest_older_one() -> None:
    (text,) = said(nosuchthing="1", release=(0, 24, 0)).values()
    assert text.startswith("vLLM 0.23.0 has no --nosuchthing (the nearest release to 0.24.0 that is recorded)")
    assert said(nosuchthing="1", release=(0, 1, 0)) == {}, "older than all that is known"


def test_without_a_release_only_what_none_has_is_remarked_on() -> None:
    assert said("--num-scheduler-steps=4", release=None) == {}
    (text,) = said(nosuchthing="1", release=None).values()
    assert text.startswith("no release of vLLM that is recorded (0.8.5 to ")


def test_a_dynamo_worker_has_the_engine_s_options_and_its_own() -> None:
    assert said("--max-num-seqs=4", "--is-prefill-worker", program="dynamo.vllm", release=(0, 7, 1)) == {}
    (text,) = said("--max-model-length=4", program="dynamo.vllm", release=(1, 6, 1)).values()
    assert text == "Dynamo's vLLM worker 1.6.1 has no --max-model-length; did you mean --max-model-len"


@pytest.mark.parametrize("program", ["dynamo.vllm", "ray.engine"])
@pytest.mark.parametrize("release", [None, (1, 6, 1)])
@pytest.mark.parametrize("option", ["lora-modules", "response-role", "tool-parser-plugin", "headless-x", "grpc"])
def test_options_of_the_http_server_are_errors_for_a_program_without_it(
    program: str, release: tuple[int, ...] | None, option: str
) -> None:
    found = remarks(f"--{option}", "x", program=program, release=release)
    if option == "headless-x":
        assert not found.errors, "no program's at all: perhaps a build of the user's own has it"
        return
    (remark,) = found.errors
    assert f"has no --{option}" in remark.message or f"has --{option}" in remark.message
    assert "it is of vLLM's own HTTP server; remove it, or choose a provider that runs this server" in remark.message
    assert not remarks(f"--{option}", "x", release=None).errors, "its own server has it"


def test_options_of_engines_that_are_too_new_are_not_of_the_server() -> None:
    """vLLM 0.33 has it, and no recorded Dynamo builds that release in."""
    assert not remarks("--tool-strict-level=1", release=None).warnings
    assert not remarks("--sleep-mode-backend=1", program="dynamo.vllm", release=None).errors


@pytest.mark.parametrize(
    ("args", "argv"),
    [
        ({"enforce-eager": "true"}, ("--enforce-eager",)),
        ({"enforce-eager": "False"}, ("--no-enforce-eager",)),
        ({"aggregate-engine-logging": "false"}, ()),
        ({"served-model-name": "true"}, ("--served-model-name=true",)),
        ({"no-such-thing": "true"}, ("--no-such-thing=true",)),
    ],
)
def test_a_flag_without_value_may_be_true_or_false(args: dict[str, str], argv: tuple[str, ...]) -> None:
    spec = {"model": {"id": "org/m"}, "engine": {"args": args}}
    deployment = parse_deployment({"metadata": {"name": "a"}, "spec": spec})
    found = engine_arguments(deployment, engine="vllm", kinds=lambda option: kinds_of("vllm", RELEASE, option))
    assert found.argv == argv


def test_programs_and_releases_by_command_and_image() -> None:
    assert program_of("vllm", command=("vllm", "serve")) == "vllm"
    assert program_of("sglang", command=("python3", "-m", "dynamo.sglang")) == "dynamo.sglang"
    assert program_of("trtllm") == ""
    assert program_of("llamacpp", dialect="localai") == ""
    assert release_of("vllm", "docker.io/vllm/vllm-openai:v0.23.0-cu129@sha256:00") == (0, 23, 0)
    assert release_of("vllm", "registry:5000/team/vllm-openai") is None
    assert release_of("vllm", "rayproject/ray-llm:2.56.0") is None
    assert release_of("dynamo.vllm", "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.6.1") == (1, 6, 1)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_flags_that_our_own_tables_write_are_known(engine: str) -> None:
    table = FLAG_TABLES[engine, ""]
    flags = [getattr(table, name) for name in ("served_name", "context_length", "prefix_caching", "no_prefix_caching")]
    flags += [table.trust_remote_code, table.enforce_eager, table.tensor_parallel, table.pipeline_parallel]
    words = [word for flag in flags if flag for word in (flag, "1")]
    unknown = [text for text in said(*words, program=engine, release=(99, 0, 0)).values() if " has no " in text]
    assert unknown == []


def test_real_llmd_11_sglang_s_deprecated_flag_is_still_in_every_recorded_release() -> None:
    """Once it fails, `enforceEager` has to go by release: the successors are not in those before 0.5.23."""
    flag = FLAG_TABLES["sglang", ""].enforce_eager
    record = _record("sglang")
    assert record.options[flag] == (("flag", 0, len(record.releases) - 1),)
    assert "--disable-decode-cuda-graph" in record.options


def test_every_program_is_recorded() -> None:
    for program in PROGRAMS:
        (text,) = said("--surely-no-such-option", program=program, release=(99, 0, 0)).values()
        assert "has no --surely-no-such-option" in text


@pytest.mark.parametrize(
    ("engine", "image", "args", "says"),
    [
        ("vllm", "vllm/vllm-openai:v0.22.0", {"foo-bar": "1"}, ["vLLM 0.22.0 has no --foo-bar"]),
        (
            "vllm",
            "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.3.1",
            {"api-key": "x"},
            ["Dynamo's vLLM worker 1.3.1 has no --api-key: it is of vLLM's own HTTP server"],
        ),
        ("vllm", "", {"max-model-length": "8"}, ["that is recorded (0.8.5 to 0.33.0) has --max-model-length"]),
        ("vllm", "", {"api-key": "x", "num-scheduler-steps": "4", "endpoint": "a.b.c"}, []),
        ("sglang", "team/own:latest", {"max-model-len": "8"}, ["no release of SGLang that is recorded"]),
        ("trtllm", "", {"whatever": "8"}, []),
        (None, "", {"whatever": "8"}, []),
    ],
)
def test_before_anybody_has_decided_who_runs_it(
    engine: str | None, image: str, args: dict[str, str], says: list[str]
) -> None:
    spec = {"model": {"id": "o/m"}, "image": image, "engine": {"type": engine, "args": args}}
    deployment = parse_deployment({"metadata": {"name": "a"}, "spec": spec})
    found = [remark.message for remark in unknown_options(deployment)]
    assert len(found) == len(says)
    assert all(part in text for part, text in zip(says, found, strict=True))


def test_a_list_is_read_and_judged_in_five_milliseconds() -> None:
    """Each of the largest, the first reading included; a pass after it is a hundredth of that."""
    deployment = parse_deployment({"metadata": {"name": "a"}, "spec": {"model": {"id": "o/m"}}})
    for program in ("vllm", "sglang"):
        fastest = min(_reading(deployment, program) for _ in range(5))
        assert fastest < 0.005, f"{program}: {fastest * 1000:.1f} ms"


def _reading(deployment: ModelDeployment, program: str) -> float:
    _record.cache_clear()
    _options.cache_clear()
    begun = time.thread_time()
    whole_option(program, "max-model-len")
    assert option_remarks(engine_arguments(deployment, engine="vllm").options, program, RELEASE) == OptionRemarks()
    return time.thread_time() - begun


def test_a_list_of_thousands_is_judged_without_looking_at_all_of_it() -> None:
    found = said(*(f"--nosuchthing-{number}=1" for number in range(500)))
    assert len(found) == 8
    (text,) = said("--" + "x" * 8_000).values()
    assert text.startswith("vLLM 0.23.0 has no --xxx")
    assert len(text) < 256
