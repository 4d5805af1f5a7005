"""Engine flags: one table per engine, a user's own flag wins, nothing that breaks the Service gets through."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunway.api.modeldeployment import ModelDeployment, parse_deployment
from airunway.engines.arguments import engine_arguments, literal
from airunway.engines.tables import FLAG_TABLES, UnknownEngineError, flag_table


def deployment(engine: dict[str, Any] | None = None, **model: Any) -> ModelDeployment:
    spec = {"model": {"id": "org/model", **model}, "engine": engine or {}}
    return parse_deployment({"metadata": {"name": "m", "namespace": "default"}, "spec": spec})


EVERYTHING = {"contextLength": 8192, "trustRemoteCode": True, "enablePrefixCaching": False, "enforceEager": True}


@pytest.mark.parametrize(
    ("engine", "dialect", "argv"),
    [
        (
            "vllm",
            "",
            "--served-model-name=n --max-model-len=8192 --trust-remote-code --no-enable-prefix-caching --enforce-eager "
            "--tensor-parallel-size=4",
        ),
        (
            "sglang",
            "",
            "--served-model-name=n --context-length=8192 --trust-remote-code --disable-radix-cache "
            "--disable-cuda-graph --tp-size=4",
        ),
        ("trtllm", "", "--served_model_name=n --trust_remote_code --tp_size=4"),
        ("trtllm", "dynamo", "--served-model-name=n --tensor-parallel-size=4"),
        ("llamacpp", "", "--alias n --ctx-size 8192"),
        ("llamacpp", "localai", "--context-size=8192"),
    ],
)
def test_every_setting_in_every_engine(engine: str, dialect: str, argv: str) -> None:
    found = engine_arguments(deployment(EVERYTHING), engine=engine, dialect=dialect, served_name="n", gpus=4)
    assert found.argv == tuple(argv.split())
    assert found.errors == ()


@pytest.mark.parametrize(
    ("engine", "switched_on"), [("vllm", ("--enable-prefix-caching",)), ("sglang", ()), ("llamacpp", ())]
)
def test_prefix_caching_is_a_flag_only_where_it_was_set(engine: str, switched_on: tuple[str, ...]) -> None:
    assert engine_arguments(deployment(), engine=engine).argv == ()
    assert engine_arguments(deployment({"enablePrefixCaching": True}), engine=engine).argv == switched_on


def test_one_gpu_needs_no_tensor_parallel_flag() -> None:
    assert engine_arguments(deployment(), engine="vllm", gpus=1).argv == ()


def test_what_an_engine_cannot_do_is_said_by_field() -> None:
    found = engine_arguments(deployment(EVERYTHING), engine="trtllm")
    assert {remark.path: remark.message for remark in found.warnings} == {
        "spec.engine.contextLength": (
            "contextLength is ignored for TensorRT-LLM (must be configured at engine build time)"
        ),
        "spec.engine.enablePrefixCaching": (
            "enablePrefixCaching is ignored for TensorRT-LLM (block reuse is set in its kv_cache_config, not by a flag)"
        ),
        "spec.engine.enforceEager": (
            "enforceEager is ignored for TensorRT-LLM (CUDA graphs are set in its configuration file, not by a flag)"
        ),
    }


@pytest.mark.parametrize(("engine", "dialect"), sorted(FLAG_TABLES))
def test_no_setting_is_dropped_in_silence(engine: str, dialect: str) -> None:
    for field, value in EVERYTHING.items():
        found = engine_arguments(deployment({field: value}), engine=engine, dialect=dialect)
        said = [remark.path for remark in found.warnings]
        assert found.argv or said == [f"spec.engine.{field}"], field


def test_a_served_name_that_cannot_be_set_is_said_only_if_asked_for() -> None:
    asked = engine_arguments(deployment(servedName="n"), engine="llamacpp", dialect="localai", served_name="n")
    assert [remark.path for remark in asked.warnings] == ["spec.model.servedName"]
    derived = engine_arguments(deployment(), engine="llamacpp", dialect="localai", served_name="model")
    assert derived.warnings == ()


def test_args_are_sorted_and_an_empty_value_is_a_bare_flag() -> None:
    args = {"quantization": "awq", "enable-chunked-prefill": "", "gpu-memory-utilization": "0.9"}
    found = engine_arguments(deployment({"args": args, "extraArgs": ["--seed", "7"]}), engine="vllm")
    expected = ("--enable-chunked-prefill", "--gpu-memory-utilization=0.9", "--quantization=awq", "--seed", "7")
    assert found.argv == expected


@pytest.mark.parametrize(
    ("engine", "own", "derived"),
    [
        ("vllm", {"args": {"max-model-len": "4096"}}, {"contextLength": 8192}),
        ("vllm", {"args": {"max_model_len": "4096"}}, {"contextLength": 8192}),
        ("vllm", {"extraArgs": ["--max-model-len=4096"]}, {"contextLength": 8192}),
        ("vllm", {"extraArgs": ["--max-model-len", "4096"]}, {"contextLength": 8192}),
        ("vllm", {"args": {"enable-prefix-caching": ""}}, {"enablePrefixCaching": False}),
        ("vllm", {"args": {"no-enable-prefix-caching": ""}}, {"enablePrefixCaching": True}),
        ("vllm", {"args": {"no-trust-remote-code": ""}}, {"trustRemoteCode": True}),
        ("llamacpp", {"extraArgs": ["-c", "4096"]}, {"contextLength": 8192}),
    ],
)
def test_a_flag_of_the_users_own_wins_and_the_field_is_named(
    engine: str, own: dict[str, Any], derived: dict[str, Any]
) -> None:
    alone = engine_arguments(deployment(own), engine=engine)
    both = engine_arguments(deployment({**own, **derived}), engine=engine)
    assert both.argv == alone.argv
    assert [remark.path for remark in both.warnings] == [f"spec.engine.{next(iter(derived))}"]


def test_an_own_tensor_parallel_size_wins_without_a_remark() -> None:
    found = engine_arguments(deployment({"extraArgs": ["-tp", "2"]}), engine="vllm", gpus=4)
    assert (found.argv, found.warnings) == (("-tp", "2"), ())


@pytest.mark.parametrize(
    ("engine", "dialect", "settings", "path"),
    [
        ("vllm", "", {"args": {"port": "80"}}, "spec.engine.args[port]"),
        ("vllm", "", {"args": {"host": "127.0.0.1"}}, "spec.engine.args[host]"),
        ("vllm", "", {"args": {"uds": "/tmp/s"}}, "spec.engine.args[uds]"),
        ("vllm", "", {"args": {"por": "80"}}, "spec.engine.args[por]"),
        ("vllm", "", {"extraArgs": ["--seed=7", "--port=80"]}, "spec.engine.extraArgs[1]"),
        ("vllm", "", {"extraArgs": ["--host", "::1"]}, "spec.engine.extraArgs[0]"),
        ("sglang", "", {"args": {"model_path": "x"}}, "spec.engine.args[model_path]"),
        ("llamacpp", "", {"extraArgs": ["-m", "/x.gguf"]}, "spec.engine.extraArgs[0]"),
        ("llamacpp", "localai", {"args": {"address": ":80"}}, "spec.engine.args[address]"),
        ("vllm", "", {"args": {"-x": "1"}}, "spec.engine.args[-x]"),
        ("vllm", "", {"args": {"a b": "1"}}, "spec.engine.args[a b]"),
        ("vllm", "", {"args": {"größe": "1"}}, "spec.engine.args[größe]"),
        ("vllm", "", {"args": {"seed=1 --port": "1"}}, "spec.engine.args[seed=1 --port]"),
        ("vllm", "", {"args": {"": "1"}}, "spec.engine.args[]"),
    ],
)
def test_arguments_that_would_break_the_service_or_are_no_flags(
    engine: str, dialect: str, settings: dict[str, Any], path: str
) -> None:
    found = engine_arguments(deployment(settings), engine=engine, dialect=dialect)
    assert [error.path for error in found.errors] == [path]


def test_values_are_not_mistaken_for_flags() -> None:
    found = engine_arguments(deployment({"extraArgs": ["--seed", "-1", "port"]}), engine="vllm")
    assert found.errors == ()
    assert found.argv == ("--seed", "-1", "port")


def test_keys_that_the_provider_uses_up_are_no_flags() -> None:
    settings = {"args": {"ggufUrl": "https://e.org/m.gguf", "threads": "8"}}
    found = engine_arguments(deployment(settings), engine="llamacpp", dialect="localai", consumed=("ggufUrl",))
    assert found.argv == ("--threads=8",)


def test_an_unknown_engine_is_named_with_the_known_ones() -> None:
    with pytest.raises(
        UnknownEngineError, match=r"'tgi'.*llamacpp, llamacpp localai, sglang, trtllm, trtllm 1.0, .*dynamo, .*vllm"
    ):
        flag_table("tgi")


KEYS = st.from_regex(r"[a-z][a-z0-9-]{0,12}", fullmatch=True)


@given(
    args=st.dictionaries(KEYS, st.text(max_size=12), max_size=6),
    extra=st.lists(st.text(max_size=12), max_size=4),
    table=st.sampled_from(sorted(FLAG_TABLES)),
)
def test_one_word_per_argument_whatever_is_in_it(
    args: dict[str, str], extra: list[str], table: tuple[str, str]
) -> None:
    engine, dialect = table
    settings = {**EVERYTHING, "args": args, "extraArgs": extra}
    found = engine_arguments(deployment(settings), engine=engine, dialect=dialect, served_name="a b;c", gpus=2)
    reordered = {**settings, "args": dict(reversed(args.items()))}
    again = engine_arguments(deployment(reordered), engine=engine, dialect=dialect, served_name="a b;c", gpus=2)
    assert found == again
    assert found.argv[len(found.argv) - len(extra) :] == tuple(extra)
    for key, value in args.items():
        joined = flag_table(engine, dialect).joined
        words = [f"--{key}"] if not value else [f"--{key}={value}"] if joined else [f"--{key}", value]
        assert all(word in found.argv for word in words)


@pytest.mark.parametrize(
    ("engine", "dialect", "settings", "path"),
    [
        ("llamacpp", "", {"args": {"verbose": "--port"}, "extraArgs": ["8081"]}, "spec.engine.args[verbose]"),
        ("llamacpp", "", {"args": {"seed": "-m"}}, "spec.engine.args[seed]"),
        ("vllm", "", {"args": {"ho": "::1"}}, "spec.engine.args[ho]"),
        ("vllm", "", {"args": {"p": "80"}}, "spec.engine.args[p]"),
        ("vllm", "", {"extraArgs": ["--ho=::1"]}, "spec.engine.extraArgs[0]"),
        ("vllm", "", {"extraArgs": ["--config=/model/config.yaml"]}, "spec.engine.extraArgs[0]"),
        ("vllm", "", {"args": {"conf": "/model/config.yaml"}}, "spec.engine.args[conf]"),
        ("sglang", "", {"args": {"config": "/model/config.yaml"}}, "spec.engine.args[config]"),
    ],
)
def test_l4_no_reserved_flag_comes_as_a_value_an_abbreviation_or_in_a_file(
    engine: str, dialect: str, settings: dict[str, Any], path: str
) -> None:
    found = engine_arguments(deployment(settings), engine=engine, dialect=dialect)
    assert [remark.path for remark in found.errors] == [path]


@pytest.mark.parametrize(
    ("engine", "settings"),
    [
        ("llamacpp", {"args": {"seed": "-1", "temp": "-0.5", "verbose": ""}}),
        ("llamacpp", {"extraArgs": ["-c", "4096", "--n-predict", "-1"]}),
        ("vllm", {"extraArgs": ["-tp", "2", "-pp", "2", "-O3", "-h"]}),
        ("vllm", {"args": {"chat-template": "--x"}}),
        ("trtllm", {"args": {"config": "/c.yaml"}}),
    ],
)
def test_l4_numbers_short_flags_and_joined_values_stay(engine: str, settings: dict[str, Any]) -> None:
    assert engine_arguments(deployment(settings), engine=engine).errors == ()


def expanded(word: str, variables: dict[str, str]) -> str:
    """As the kubelet does it (k8s.io/kubernetes/third_party/forked/golang/expansion)."""
    return re.sub(
        r"\$(?:\$|\(([^)]*)\))",
        lambda found: "$" if found[1] is None else variables.get(found[1], found[0]),
        word,
    )


@given(st.text(alphabet="$()TOKEN a", max_size=12))
def test_l5_data_arrives_as_it_is(text: str) -> None:
    assert expanded(literal(text), {"TOKEN": "secret", "T": "x", "": "y"}) == text


def test_l5_a_served_name_is_data_and_the_user_s_own_arguments_are_not() -> None:
    settings = {"args": {"api-key": "$(KEY)"}, "extraArgs": ["--x=$(X)"]}
    found = engine_arguments(deployment(settings), engine="vllm", served_name="a/$(HF_TOKEN)")
    assert found.argv == ("--served-model-name=a/$$(HF_TOKEN)", "--api-key=$(KEY)", "--x=$(X)")
