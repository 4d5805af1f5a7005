"""Tables of the flags of each engine, per program that runs it, and of the flags of its own HTTP server.

Which options a program has at all is recorded (`options.PROGRAMS`). Here is what is done with those of an engine's own
HTTP server where another server takes the requests. vLLM's names are the own fields of its class `FrontendArgs` in
0.7.2, 0.22.0 and 0.29.0, recorded by ``tools/vllm_fields.py`` from the published wheels. Inherited fields shape
answers, and a program that lacks one refuses it. SGLang's names are among the recorded options of its `ServerArgs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

SERVING_PORT = 8000
"""The port of model servers: the default of vLLM, of Dynamo's Frontend and of Ray Serve. KAITO's pods have 5000."""

VLLM_IMAGE = "vllm/vllm-openai:v0.23.0"
"""The image of vLLM where neither a deployment nor a setting names one. A released transformer keeps the image of its
release as a literal, so that a change here restarts nothing."""


class UnknownEngineError(LookupError):
    """No flag table exists for an engine in that dialect."""


@dataclass(frozen=True, kw_only=True)
class FlagTable:
    """The flags of one engine, as one program spells them.

    An empty flag does not exist in that program. If `notes` has a reason for it, requesting it causes a warning;
    otherwise none is needed (SGLang's prefix cache is on by default).
    """

    engine: str
    dialect: str = ""
    title: str
    """Name of the engine in messages."""
    served_name: str = ""
    context_length: str = ""
    trust_remote_code: str = ""
    prefix_caching: str = ""
    no_prefix_caching: str = ""
    enforce_eager: str = ""
    tensor_parallel: str = ""
    pipeline_parallel: str = ""
    reserved: frozenset[str] = frozenset()
    """Flags that only the provider sets, because Service, probes and model depend on them, or because they name a file
    with flags."""
    synonyms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Further spellings of derived flags; a user's spelling overrides the derived flag."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Why the engine has no flag for a setting, by the setting's name."""
    joined: bool = True
    """Whether the program accepts ``--flag=value`` in one word; llama-server needs two words."""
    prefixes: bool = True
    """Whether the program accepts any unambiguous prefix of a flag (Python's argparse does)."""


_TRTLLM_NOTES = {
    "prefix_caching": "block reuse is set in its kv_cache_config, not by a flag",
    "enforce_eager": "CUDA graphs are set in its configuration file, not by a flag",
}
_BUILD_TIME = {"context_length": "must be configured at engine build time"}

_TRTLLM = FlagTable(
    engine="trtllm",
    title="TensorRT-LLM",
    served_name="--served_model_name",
    trust_remote_code="--trust_remote_code",
    tensor_parallel="--tp_size",
    reserved=frozenset({"port"}),
    synonyms={"--tp_size": ("--tensor_parallel_size",)},
    notes={**_BUILD_TIME, **_TRTLLM_NOTES},
    prefixes=False,
)
_TRTLLM_1_3 = replace(_TRTLLM, dialect="1.3", context_length="--max_seq_len", notes=_TRTLLM_NOTES)

_DYNAMO_NOTES = {"trust_remote_code": "the worker has no flag for it", **_TRTLLM_NOTES}
_DYNAMO_TRTLLM = FlagTable(
    engine="trtllm",
    dialect="dynamo",
    title="TensorRT-LLM",
    served_name="--served-model-name",
    tensor_parallel="--tensor-parallel-size",
    pipeline_parallel="--pipeline-parallel-size",
    reserved=frozenset({"model-path", "disaggregation-mode", "endpoint"}),
    notes={**_BUILD_TIME, **_DYNAMO_NOTES},
)

_TABLES = (
    FlagTable(
        engine="vllm",
        title="vLLM",
        served_name="--served-model-name",
        context_length="--max-model-len",
        trust_remote_code="--trust-remote-code",
        prefix_caching="--enable-prefix-caching",
        no_prefix_caching="--no-enable-prefix-caching",
        enforce_eager="--enforce-eager",
        tensor_parallel="--tensor-parallel-size",
        pipeline_parallel="--pipeline-parallel-size",
        reserved=frozenset(
            {"port", "uds", "model", "model-tag", "headless", "config"}
            | {"nnodes", "node-rank", "master-addr", "master-port"}
        ),
        synonyms={
            "--tensor-parallel-size": ("-tp",),
            "--pipeline-parallel-size": ("-pp",),
            "--trust-remote-code": ("--no-trust-remote-code",),
            "--enforce-eager": ("--no-enforce-eager",),
        },
    ),
    FlagTable(
        engine="sglang",
        title="SGLang",
        served_name="--served-model-name",
        context_length="--context-length",
        trust_remote_code="--trust-remote-code",
        # The radix cache is on by default.
        no_prefix_caching="--disable-radix-cache",
        # 0.5.23 accepts it as deprecated; older releases do not know its successors (--disable-decode-cuda-graph and
        # --disable-prefill-cuda-graph). A test fails once a recorded release lacks it.
        enforce_eager="--disable-cuda-graph",
        tensor_parallel="--tp-size",
        reserved=frozenset({"port", "model", "model-path", "config", "nnodes", "node-rank", "dist-init-addr"}),
        synonyms={"--tp-size": ("--tp", "--tensor-parallel-size")},
    ),
    _TRTLLM,
    # By the image's release: the flag for the served name came with 1.3 (NVIDIA/TensorRT-LLM#11711); the flag for the
    # context length is older than all releases in use.
    replace(
        _TRTLLM_1_3,
        dialect="1.0",
        served_name="",
        notes={"served_name": "trtllm-serve has a flag for it from release 1.3 on", **_TRTLLM_NOTES},
    ),
    _TRTLLM_1_3,
    # `python3 -m dynamo.trtllm` has its own command line; dynamo.vllm and dynamo.sglang pass unknown options to the
    # engine's own parser.
    replace(_DYNAMO_TRTLLM, dialect="dynamo-1.3", context_length="--max-seq-len", notes=_DYNAMO_NOTES),
    _DYNAMO_TRTLLM,
    FlagTable(
        engine="llamacpp",
        title="llama.cpp",
        served_name="--alias",
        context_length="--ctx-size",
        reserved=frozenset(
            {"port", "api-prefix", "model", "model-url", "hf-repo", "hf-file", "m", "mu", "hf", "hff"}
            # Further spellings of -hf, and models of Docker's registry.
            | {"hfr", "dr", "docker-repo"}
        ),
        synonyms={"--ctx-size": ("-c",), "--alias": ("-a",)},
        notes={
            "trust_remote_code": "a GGUF file carries no code",
            "prefix_caching": "each slot keeps its prompt cache; no switch fits",
            "enforce_eager": "it has no compiled graphs to switch off",
        },
        joined=False,
        prefixes=False,
    ),
    # Neither llama.cpp table has a tensor parallel flag: llama.cpp splits a model over all visible GPUs by itself.
    # The runner images of the seeds' example 2 are built on LocalAI, which has a different command line.
    FlagTable(
        engine="llamacpp",
        dialect="localai",
        title="the LocalAI runner of llama.cpp",
        context_length="--context-size",
        reserved=frozenset({"address"}),
        synonyms={"--context-size": ("--ctx-size",)},
        notes={
            "served_name": "it names the model after its file",
            "trust_remote_code": "a GGUF file carries no code",
            "prefix_caching": "it has no switch for the prompt cache",
            "enforce_eager": "it has no compiled graphs to switch off",
        },
        prefixes=False,
    ),
)

FLAG_TABLES: Mapping[tuple[str, str], FlagTable] = {(table.engine, table.dialect): table for table in _TABLES}
"""Every table by engine and dialect; the empty dialect is the engine's own program."""


def flag_table(engine: str, dialect: str = "") -> FlagTable:
    """The table of `engine` in `dialect`.

    Raises UnknownEngineError with the known tables.
    """
    table = FLAG_TABLES.get((engine, dialect))
    if table is None:
        known = ", ".join(sorted(" ".join(filter(None, key)) for key in FLAG_TABLES))
        raise UnknownEngineError(f"no flags are known for engine {f'{engine} {dialect}'.strip()!r} (known: {known})")
    return table


@dataclass(frozen=True, kw_only=True)
class Frontend:
    """Flags (without leading dashes) and variables of one engine's HTTP server.

    Flags that every provider sets itself (host, port, a socket) are in the engine's `FlagTable`.
    """

    protecting: frozenset[str]
    """Flags that restrict access to the endpoint or encrypt it. Ignoring one opens an endpoint that the user believes
    closed."""
    others: frozenset[str]
    """Flags about listening, logging or browsers."""
    variables: frozenset[str] = frozenset()
    """Environment variables that protect the endpoint."""


VLLM_FRONTEND = Frontend(
    protecting=frozenset(
        {"api-key", "middleware", "enable-ssl-refresh"}
        | {"ssl-ca-certs", "ssl-cert-reqs", "ssl-certfile", "ssl-ciphers", "ssl-keyfile"}
    ),
    others=frozenset(
        {"allow-credentials", "allowed-headers", "allowed-methods", "allowed-origins", "root-path", "host"}
        | {"enable-log-outputs", "enable-log-deltas", "max-log-len", "log-config-file", "enable-server-load-tracking"}
        | {"api-server-count"}
        | {"disable-fastapi-docs", "enable-offline-docs", "enable-request-id-headers"}
        | {"disable-access-log-for-endpoints", "disable-uvicorn-access-log", "uvicorn-log-level"}
        | {"h11-max-header-count", "h11-max-incomplete-event-size", "sse-keep-alive-interval"}
        | {"disable-frontend-multiprocessing", "enable-flash-late-interaction"}
        | {"data-parallel-supervisor-port", "dp-supervisor-probe-failure-threshold"}
        | {"dp-supervisor-probe-interval-s", "dp-supervisor-probe-timeout-s"}
    ),
    variables=frozenset({"VLLM_API_KEY"}),
)
"""The flags of vLLM's HTTP server (``vllm serve``), for providers that replace it with another server."""

SGLANG_FRONTEND = Frontend(
    protecting=frozenset(
        {"api-key", "admin-api-key", "enable-ssl-refresh"}
        | {"ssl-ca-certs", "ssl-certfile", "ssl-keyfile", "ssl-keyfile-password"}
    ),
    others=frozenset(
        {"enable-http2", "fastapi-root-path", "http2-initial-connection-window-size", "http2-max-concurrent-streams"}
        | {"enable-http-worker-reuseport", "log-level-http", "uvicorn-access-log-exclude-prefixes"}
    ),
)
"""The flags of SGLang's HTTP server (``sglang.launch_server``)."""

FRONTENDS: Mapping[str, Frontend] = {"vllm": VLLM_FRONTEND, "sglang": SGLANG_FRONTEND}
"""The known HTTP servers, by engine."""
