"""The URL paths that no deployment gets at a Gateway, because servers or gateways answer them themselves.

A request by model name comes with the path of the server's own API (``/v1/chat/completions``) and a header. In the
Gateway API a longer path comes before a header: a deployment with the path ``/v1`` would take the requests for all
models. So a path must not begin with a segment that a server behind the Gateway, or the Gateway itself, answers.
"""

from __future__ import annotations

_OF_APIS = (
    # OpenAI, with and without the version; Anthropic; KServe's and Triton's protocol; Ollama; KServe's prefix.
    *("v1", "v2", "v3", "v1beta", "v1beta1", "api", "openai"),
    *("audio", "chat", "completion", "completions", "embed", "embed_all", "embedding", "embeddings", "messages"),
    *("responses",),
)
_OF_SERVERS = (
    # vLLM
    *("abort_requests", "classify", "collective_rpc", "detokenize", "inference", "invocations", "is_paused"),
    *("is_scaling_elastic_ep", "is_sleeping", "load", "pause", "ping", "pooling", "rerank", "reset_encoder_cache"),
    *("reset_mm_cache", "reset_prefix_cache", "resume", "scale_elastic_ep", "score", "server_info", "sleep"),
    *("start_profile", "stop_profile", "tokenize", "tokenizer_info", "update_weights", "version", "wake_up"),
    # SGLang and its router
    *("abort_request", "add_worker", "clear_hicache_storage_backend", "close_session", "configure_logging"),
    *("continue_generation", "decode", "dump_expert_distribution_record", "encode", "flush_cache", "freeze_gc"),
    *("generate", "generate_from_file", "generate_stream", "get_load", "get_loads", "get_model_info"),
    *("get_server_info", "get_weights_by_name", "hicache", "init_weights_update_group", "list_workers"),
    *("load_lora_adapter", "model_info", "open_session", "parse_function_call", "pause_generation"),
    *("release_memory_occupation", "remove_worker", "resume_memory_occupation", "separate_reasoning"),
    *("set_internal_state", "set_trace_level", "slow_down", "start_expert_distribution_record"),
    *("stop_expert_distribution_record", "unload_lora_adapter", "update_weight_version"),
    *("update_weights_from_disk", "update_weights_from_distributed", "update_weights_from_ipc"),
    *("update_weights_from_tensor", "vertex_generate", "workers"),
    # llama.cpp
    *("apply-template", "cors-proxy", "infill", "lora-adapters", "props", "reranking", "slots"),
    # TensorRT-LLM, Text Generation Inference, Dynamo, Ray Serve
    *("busy_threshold", "chat_tokenize", "cluster_info", "info", "kv_cache_events", "perf_metrics", "prometheus"),
    *("release_memory", "resume_memory", "steady_clock_offset", "-"),
)
_OF_EVERYTHING = (
    # Probes, metrics and documentation of servers, gateways and meshes
    *("debug", "docs", "favicon.ico", "health", "health_generate", "healthcheck", "healthy", "healthz", "live"),
    *("liveness", "livez", "metrics", "openapi.json", "readiness", "ready", "readyz", "redoc", "robots.txt"),
    *("server-status", "startup", "startupz", "stats", "status", "stub_status", "nginx_status", "swagger"),
    # Administration of Envoy
    *("certs", "clusters", "config_dump", "hot_restart_version", "init_dump", "listeners", "logging", "memory"),
    *("quitquitquit", "drain_listeners", "reset_counters", "runtime", "runtime_modify"),
    # Certificates by ACME and other agreements about a host; signing in at the gateway
    *(".well-known", "oauth2", "logout"),
)

RESERVED_SEGMENTS = tuple(sorted({*_OF_APIS, *_OF_SERVERS, *_OF_EVERYTHING}))
"""First segments of paths that no deployment gets; in lower case, as rendered paths are."""

RESERVED_PATHS = ("/models", "/models/load", "/models/sse", "/models/unload")
"""Paths that no deployment gets, although others begin with the same segment: the list of models of llama.cpp."""

NAMESPACE_MARK = "{namespace}"
"""What stands for the namespace in ``routing.pathPrefixes`` and ``routing.modelNames``."""

ALLOWED = "begin it with another segment, such as /ml"
"""The end of a sentence about a path that is refused."""


def reserved_part(path: str) -> str:
    """What makes a path reserved: itself, or its first segment; empty if a deployment may have it.

    `path` is rendered: in lower case, encoded, without empty segments. The default path of a deployment needs no such
    question: its second segment is a uid, which no server answers, so a namespace may be called ``chat``.
    """
    first = path.strip("/").partition("/")[0]
    if not first or path in RESERVED_PATHS:
        return path or "/"
    return f"/{first}" if first in RESERVED_SEGMENTS else ""


def reserved_pattern() -> str:
    """A regular expression (RE2) of the templates that begin with a reserved literal segment, or are ``/``."""
    alternatives = "|".join(segment.replace(".", "[.]") for segment in RESERVED_SEGMENTS)
    return f"(?i)^/*(({alternatives})(/.*)?)?$"
