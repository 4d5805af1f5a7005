"""How each engine is started."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airunway.resource import Resource
from airunway.sdk import Launch, ModelCache, launch, parse_deployment, served_name_of, weights_of

MakeDeployment = Callable[..., Resource]
IMAGE = "acme/vllm:v0.23.0"
"""The default of a provider's setting."""


@pytest.fixture
def start(plain: MakeDeployment) -> Callable[..., Launch]:
    def make(program: str, /, *, port: int = 8000, how: dict[str, Any] | None = None, **spec: Any) -> Launch:
        given = {"image": IMAGE if program == "vllm" else "", **(how or {})}
        return launch(parse_deployment(plain(**spec)), program, port=port, **given)

    return make


@pytest.mark.parametrize(
    ("engine", "image", "command", "args"),
    [
        ("vllm", "", ("vllm", "serve"), ("org/model", "--port=8000")),
        (
            "sglang",
            "lmsysorg/sglang:v0.5",
            ("python3", "-m", "sglang.launch_server"),
            ("--model-path", "org/model", "--host=0.0.0.0", "--port=8000"),
        ),
        ("trtllm", "nvcr.io/x", ("trtllm-serve", "serve"), ("org/model", "--host=0.0.0.0", "--port=8000")),
        (
            "llamacpp",
            "ghcr.io/ggml-org/llama.cpp:server",
            (),
            ("--hf-repo", "org/model", "--host", "0.0.0.0", "--port", "8000"),
        ),
        ("llamacpp", "ghcr.io/runner:latest", (), ("huggingface://org/model/f.gguf", "--address=:8000")),
    ],
    ids=["vllm", "sglang", "trtllm", "llama.cpp's server", "LocalAI's runner"],
)
def test_each_engine_gets_model_and_port_in_its_own_words(
    start: Callable[..., Launch], engine: str, image: str, command: tuple[str, ...], args: tuple[str, ...]
) -> None:
    model = {"id": "org/model/f.gguf"} if "runner" in image else {"id": "org/model"}
    found = start(engine, model=model, **({"image": image} if image else {}))
    assert found.blockers == ()
    assert found.command == command
    assert found.args[: len(args)] == args
    assert found.patience >= 600, "weights of hundreds of gigabytes are loaded in that time"


def test_health_is_asked_by_http_but_llama_cpp_s_only_by_its_socket(start: Callable[..., Launch]) -> None:
    assert start("vllm").readiness == {"httpGet": {"path": "/health", "port": 8000}}
    assert start("llamacpp", image="llama.cpp:server", port=80).readiness == {"tcpSocket": {"port": 80}}


def test_which_image_runs(start: Callable[..., Launch]) -> None:
    own = {"image": "spec", "engine": {"type": "vllm", "image": "engine"}}
    assert start("vllm", how={"image": "setting"}, **own).image == "engine"
    assert start("vllm", how={"image": "setting"}, image="spec").image == "spec"
    assert start("vllm", how={"image": "setting"}).image == "setting"
    assert start("vllm").image == IMAGE
    (missing,) = start("sglang").blockers
    assert (missing.path, "requires spec.image" in missing.message) == ("spec.image", True)


@pytest.mark.parametrize(
    ("spec", "explained"),
    [
        ({}, True),
        ({"resources": {"gpu": {"count": 1}}}, False),
        ({"engine": {"type": "llamacpp"}}, False),
    ],
    ids=["neither GPU nor engine", "a GPU", "an engine"],
)
def test_an_engine_that_was_selected_for_want_of_a_gpu_says_so(
    start: Callable[..., Launch], spec: dict[str, Any], explained: bool
) -> None:
    (missing,) = start("llamacpp", **{"engine": {}, "resources": {}, **spec}).blockers
    assert ("no GPU is requested: set spec.resources.gpu.count" in missing.message) is explained


def test_a_default_image_is_for_nvidia_only(start: Callable[..., Launch]) -> None:
    amd = {"resources": {"gpu": {"count": 1, "type": "amd.com/gpu"}}}
    assert [b.path for b in start("vllm", **amd).blockers] == ["spec.resources.gpu.type"]
    assert start("vllm", image="rocm/vllm", **amd).blockers == ()
    split = {**amd, "serving": {"mode": "disaggregated"}, "scaling": {"prefill": amd["resources"]}}
    assert [b.path for b in start("vllm", **split).blockers] == ["spec.scaling.prefill.gpu.type"]
    del split["scaling"]
    assert start("vllm", **split).blockers == (), "what no worker gets is asked of none"


def test_words_of_the_provider_come_before_the_user_s(start: Callable[..., Launch]) -> None:
    found = start("vllm", how={"extra": ("--kv=x",)}, engine={"type": "vllm", "extraArgs": ["--mine"]})
    assert found.args.index("--port=8000") < found.args.index("--kv=x") < found.args.index("--mine")


@pytest.mark.parametrize(("gpus", "flag"), [(None, "--tensor-parallel-size=4"), (2, "--tensor-parallel-size=2")])
def test_the_gpus_of_a_replica_are_used_together(start: Callable[..., Launch], gpus: int | None, flag: str) -> None:
    found = start("vllm", how={"gpus": gpus}, resources={"gpu": {"count": 4}})
    assert flag in found.args or " ".join(flag.split("=")) in " ".join(found.args)


def test_a_dollar_sign_reaches_the_engine_as_it_was_written(start: Callable[..., Launch]) -> None:
    assert start("vllm", model={"id": "a/$(HF_TOKEN)"}).args[0] == "a/$$(HF_TOKEN)"


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"model": {"id": "--port=80"}}, "spec.model.id"),
        (
            {"model": {"source": "custom"}, "engine": {"type": "llamacpp", "args": {"ggufUrl": "-x"}}},
            "spec.engine.args[ggufUrl]",
        ),
    ],
    ids=str,
)
def test_a_model_is_never_taken_for_a_flag(start: Callable[..., Launch], spec: Resource, path: str) -> None:
    engine = spec.get("engine", {}).get("type", "vllm")
    assert [b.path for b in start(engine, image="llama.cpp:server", **spec).blockers] == [path]


def test_an_image_with_a_model_of_its_own_gets_no_model_and_no_command(start: Callable[..., Launch]) -> None:
    found = start("vllm", model={"source": "custom"}, image="mine")
    assert (found.command, found.args[0], found.blockers) == ((), "--port=8000", ())
    assert [b.path for b in start("vllm", model={"source": "custom"}).blockers] == ["spec.model.source"]
    told = start("vllm", model={"source": "custom", "id": "o/m", "servedName": "n"}, image="mine").warnings
    assert [finding.path for finding in told] == ["spec.model.servedName", "spec.model.id"]


@pytest.mark.parametrize(
    ("url", "words"),
    [("/models/m.gguf", ("--model", "/models/m.gguf")), ("https://e.org/m", ("--model-url", "https://e.org/m"))],
)
def test_the_file_of_a_custom_source_is_named_to_llama_cpp(
    start: Callable[..., Launch], url: str, words: tuple[str, ...]
) -> None:
    engine = {"type": "llamacpp", "args": {"ggufUrl": url}}
    assert start("llamacpp", model={"source": "custom"}, image="llama.cpp:server", engine=engine).args[:2] == words


def test_an_engine_that_nobody_knows_starts_by_itself(start: Callable[..., Launch]) -> None:
    found = start("mystery", image="mine", engine={"type": "mystery", "extraArgs": ["--a"]})
    assert (found.command, found.args, found.blockers) == ((), ("--a",), ())
    assert [b.path for b in start("mystery").blockers] == ["spec.image"]


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ({"id": "org/model"}, "model"),
        ({"id": "model"}, "model"),
        ({"id": "org/model", "servedName": "mine"}, "mine"),
        ({"source": "custom", "servedName": "mine"}, ""),
    ],
    ids=str,
)
def test_the_name_that_clients_use(plain: MakeDeployment, model: Resource, name: str) -> None:
    assert served_name_of(parse_deployment(plain(model=model))) == name


@pytest.mark.parametrize(
    ("tag", "named", "warned"),
    [("1.3.0", True, 0), ("v1.4.2", True, 0), ("1.2.1", False, 1), ("1.3.0rc5", False, 1), ("latest", False, 1)],
)
def test_real_llmd_1_tensorrt_llm_gets_the_flags_of_its_release(
    start: Callable[..., Launch], tag: str, named: bool, warned: int
) -> None:
    """`--served_model_name` came with 1.3: to the others it is no such option, and they end with exit code 2."""
    image = f"nvcr.io/nvidia/tensorrt-llm/release:{tag}"
    how = {"by_release": True}
    found = start("trtllm", how=how, image=image, engine={"type": "trtllm", "contextLength": 8192})
    assert any(word.startswith("--served_model_name=") for word in found.args) is named
    assert "--max_seq_len=8192" in found.args
    assert [finding.path for finding in found.warnings] == ["spec.model.servedName"] * warned
    assert found.command == ("trtllm-serve", "serve")
    told = start("trtllm", how=how, image=image, model={"id": "o/m", "servedName": "mine"}).warnings
    assert [finding.path for finding in told] == ["spec.model.servedName"] * warned


def test_real_llmd_1_what_was_written_before_stays_as_it_was(start: Callable[..., Launch]) -> None:
    found = start("trtllm", image="release:1.2.1", engine={"type": "trtllm", "contextLength": 8192})
    assert any(word.startswith("--served_model_name=") for word in found.args)
    assert not any(word.startswith("--max_seq_len") for word in found.args)


@pytest.mark.parametrize("flag", ["-hfr", "-dr", "--docker-repo", "-hf", "--hf-repo"])
def test_real_llmd_11_no_flag_of_llama_cpp_s_swaps_the_model(start: Callable[..., Launch], flag: str) -> None:
    engine = {"type": "llamacpp", "extraArgs": [flag, "other/model"]}
    (refused,) = start("llamacpp", image="ghcr.io/ggml-org/llama.cpp:server", engine=engine).blockers
    assert (refused.path, refused.reason) == ("spec.engine.extraArgs[0]", "BadArguments")


@pytest.mark.parametrize("flag", ["ssl-certfile", "ssl_keyfile", "ssl-certf"])
def test_a_server_that_answers_https_only_is_refused(start: Callable[..., Launch], flag: str) -> None:
    """Probes, Service and picker ask over HTTP: no pod would get ready."""
    for engine in ("vllm", "sglang"):
        (found,) = start(engine, image="x/y:1", engine={"args": {flag: "/tls/x"}}).blockers
        assert (found.path, found.reason) == (f"spec.engine.args[{flag}]", "BadArguments")
        assert "encrypt at the gateway" in found.message
        assert start(engine, port=0, image="x/y:1", engine={"args": {flag: "/tls/x"}}).blockers == (), (
            "somebody else asks this one"
        )
    assert start("vllm", engine={"args": {"api-key": "x"}}).blockers == ()


# ------------------------------------------------------------------------------------------------ weights of a cache

CACHE = ModelCache(claim="weights", sub_path="model")
LLAMA_SERVER = "ghcr.io/ggml-org/llama.cpp:server"


@pytest.mark.parametrize(
    ("engine", "image", "words"),
    [
        ("vllm", "", ("/model-cache",)),
        ("sglang", "lmsysorg/sglang:v0.5", ("--model-path", "/model-cache")),
        ("trtllm", "nvcr.io/x:1.3.0", ("/model-cache",)),
    ],
)
def test_each_engine_is_told_where_cached_weights_are_and_serves_them_under_the_served_name(
    start: Callable[..., Launch], engine: str, image: str, words: tuple[str, ...]
) -> None:
    given = {"image": image} if image else {}
    found, without = (start(engine, how={"cache": cache}, **given) for cache in (CACHE, None))
    assert found.blockers == ()
    assert found.args[: len(words)] == words
    assert found.args[len(words) :] == without.args[len(words) :], "nothing else changes"
    assert any(word.endswith(("model_name=model", "model-name=model")) for word in found.args)
    assert "org/model" not in found.args


@pytest.mark.parametrize(
    ("model", "path", "weights"),
    [
        ({"id": "org/model"}, "", "/model-cache"),
        ({"id": "org/model/sub"}, "", "/model-cache/sub"),
        ({"id": "org/model/sub/file.gguf"}, "", "/model-cache/sub/file.gguf"),
        ({"id": "org/model"}, "/model-cache/below", "/model-cache/below"),
        ({"id": "org/model/a/b", "cache": {"artifactName": "own"}}, "", "/model-cache"),
    ],
    ids=["the tree", "a folder", "a file", "as the core says", "an artifact of its own"],
)
def test_an_id_that_goes_on_names_what_is_below_the_mount(
    plain: MakeDeployment, model: Resource, path: str, weights: str
) -> None:
    wanted = parse_deployment(plain(model=model))
    assert weights_of(wanted, ModelCache(claim="c", path=path)) == weights
    assert weights_of(wanted, None) == model["id"]


def test_a_path_is_data_and_not_expanded(start: Callable[..., Launch]) -> None:
    assert start("vllm", how={"cache": ModelCache(claim="c", path="/m/$(X)")}).args[0] == "/m/$$(X)"


def test_llama_cpp_loads_the_file_that_the_id_names(start: Callable[..., Launch]) -> None:
    found = start("llamacpp", image=LLAMA_SERVER, model={"id": "o/m/q/f.Q4.gguf"}, how={"cache": CACHE})
    assert found.blockers == ()
    assert found.args == (
        *("--model", "/model-cache/q/f.Q4.gguf"),
        *("--host", "0.0.0.0", "--port", "8000"),
        *("--alias", "f.Q4.gguf"),
    )


def test_llama_cpp_needs_to_know_which_of_several_files(start: Callable[..., Launch]) -> None:
    (refused,) = start("llamacpp", image=LLAMA_SERVER, model={"id": "o/m"}, how={"cache": CACHE}).blockers
    assert refused.path == "spec.model.id"
    assert "/model-cache in the model cache is none: append the file to the id" in refused.message


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("/model-cache/q/f.gguf", "/model-cache/q/f.gguf"),
        ("file:///model-cache/f.gguf", "/model-cache/f.gguf"),
        ("https://example.org/f.gguf", ""),
        ("huggingface://o/m/f.gguf", ""),
        ("/model-cache/../etc/f.gguf", ""),
        ("/model-cache2/f.gguf", ""),
    ],
)
def test_a_gguf_url_names_a_file_of_the_cache_or_is_refused(start: Callable[..., Launch], url: str, word: str) -> None:
    engine = {"type": "llamacpp", "args": {"ggufUrl": url}}
    found = start("llamacpp", image=LLAMA_SERVER, model={"id": "o/m"}, engine=engine, how={"cache": CACHE})
    if word:
        assert (found.blockers, found.args[:2]) == ((), ("--model", word))
        return
    (refused,) = found.blockers
    assert refused.path == "spec.engine.args[ggufUrl]"
    assert "name a file below /model-cache" in refused.message


def test_the_localai_runner_is_refused_by_name(start: Callable[..., Launch]) -> None:
    found = start("llamacpp", image="ghcr.io/runner:latest", model={"id": "o/m/f.gguf"}, how={"cache": CACHE})
    (refused,) = found.blockers
    assert (refused.path, refused.reason) == ("spec.model.cache.mode", "IncompatibleConfiguration")
    assert "the LocalAI runner of llama.cpp" in refused.message
    assert "spec.engine.image" in refused.message


def test_an_engine_that_starts_in_an_unknown_way_cannot_be_told(start: Callable[..., Launch]) -> None:
    (refused,) = start("exotic", image="acme/exotic:1", how={"cache": CACHE}).blockers
    assert refused.path == "spec.model.cache.mode"


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "llamacpp"])
def test_an_image_with_a_model_of_its_own_is_started_as_without_a_cache(
    start: Callable[..., Launch], engine: str
) -> None:
    own: dict[str, Any] = {"image": "acme/own:1", "model": {"source": "custom"}}
    assert start(engine, how={"cache": CACHE}, **own) == start(engine, **own)


def test_a_release_of_tensorrt_llm_that_names_the_model_after_its_folder_is_warned_about(
    start: Callable[..., Launch],
) -> None:
    how: dict[str, Any] = {"cache": CACHE, "by_release": True}
    (warned,) = start("trtllm", image="nvcr.io/x:1.0.0", how=how).warnings
    assert (warned.path, warned.reason) == ("spec.model.servedName", "FieldIgnored")
    assert "the name that TensorRT-LLM gives it (model-cache), not as model" in warned.message
