"""The names of each engine's own metrics, and the queries of autoscalers that are made of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class EngineMetrics:
    """The names of one engine's metrics, the newest release's first. A name that is empty in all releases: none has it.

    A colon in a name is written as an underscore, and ``ray_`` before it is left out: Ray and some clients write it so.
    """

    engine: str
    """Engine as in ``spec.engine.type``; its names begin with it and an underscore."""
    running: tuple[str, ...]
    """Gauge: requests in work."""
    waiting: tuple[str, ...]
    """Gauge: requests in the queue."""
    kv_use: tuple[str, ...]
    """Gauge: part of the KV cache in use, from 0 to 1."""
    tokens: tuple[str, ...]
    """Counter: generated tokens."""
    first_token: tuple[str, ...]
    """Histogram: seconds from a request to its first token."""
    hint: str
    """What makes its server report them, where it does not by default."""
    paths: tuple[str, ...] = ("/metrics",)
    """Where its server reports them."""


ENGINE_METRICS: Mapping[str, EngineMetrics] = {
    each.engine: each
    for each in (
        EngineMetrics(
            engine="vllm",
            running=("vllm_num_requests_running",),
            waiting=("vllm_num_requests_waiting",),
            kv_use=("vllm_kv_cache_usage_perc", "vllm_gpu_cache_usage_perc"),
            tokens=("vllm_generation_tokens_total", "vllm_generation_tokens"),
            first_token=("vllm_time_to_first_token_seconds",),
            hint="vLLM reports them unless it runs with --disable-log-stats",
        ),
        EngineMetrics(
            engine="sglang",
            running=("sglang_num_running_reqs",),
            waiting=("sglang_num_queue_reqs",),
            kv_use=("sglang_token_usage",),
            tokens=("sglang_generation_tokens_total",),
            first_token=("sglang_time_to_first_token_seconds",),
            hint="SGLang reports them with --enable-metrics",
        ),
        EngineMetrics(
            engine="trtllm",
            running=("trtllm_num_requests_running",),
            waiting=("trtllm_num_requests_waiting",),
            kv_use=("trtllm_kv_cache_utilization",),
            tokens=("trtllm_generation_tokens_total",),
            first_token=("trtllm_time_to_first_token_seconds",),
            hint="TensorRT-LLM reports them with return_perf_metrics and enable_iter_perf_stats in its configuration",
            paths=("/prometheus/metrics", "/metrics"),
        ),
        EngineMetrics(
            engine="llamacpp",
            running=("llamacpp_requests_processing",),
            waiting=("llamacpp_requests_deferred",),
            kv_use=("llamacpp_kv_cache_usage_ratio",),
            tokens=("llamacpp_tokens_predicted_total",),
            first_token=(),
            hint="llama.cpp reports them with --metrics",
        ),
    )
}
"""Names by engine, as its releases of 2024 to 2026 have them."""

METRICS_PATHS = ("/metrics", "/prometheus/metrics")
"""All paths of the table."""


# -------------------------------------------------------------------------------------------------------------- queries


_UNSAFE = re.compile(r"[^a-zA-Z0-9_]")
_SPECIAL = re.compile(r"([\\.+*?()|\[\]{}^$])")
_TERM = re.compile(r"([^\s=!,()]{1,317}+)\s*+(?:==?\s*+([^\s,()]{0,63}+)|(?<=\s)in\s*+\(([^()]*+)\))\s*+(?:,|$)")


def pods_matcher(namespace: str, selector: str) -> str:
    """Returns the matchers of the series of the pods that a label selector selects, for ``{…}`` in a query.

    A Prometheus keeps a label of a pod under its name with ``_`` for what it allows in no name. Raises ValueError for a
    selector that is no list of ``key=value`` and ``key in (a,b)``: the query would count others' pods.

    >>> pods_matcher("ml", "airunway.ai/model-deployment=llama,role in (decode,prefill)")
    'namespace="ml",airunway_ai_model_deployment="llama",role=~"decode|prefill"'
    """
    found, position = [f"namespace={_quoted(namespace)}"], 0
    while position < len(selector):
        term = _TERM.match(selector, position)
        if term is None:
            raise ValueError(f"no terms key=value and key in (a,b): {selector!r}")
        key, value, values = _UNSAFE.sub("_", term[1]), term[2], term[3]
        if values is None:
            found.append(f"{key}={_quoted(value)}")
        else:
            found.append(
                f"{key}=~{_quoted('|'.join(_SPECIAL.sub(_escaped, each.strip()) for each in values.split(',')))}"
            )
        position = term.end()
    if len(found) == 1:
        raise ValueError("the selector is empty")
    return ",".join(found)


def _escaped(match: re.Match[str]) -> str:
    return f"\\{match[1]}"


def _quoted(text: str) -> str:
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'


def requests_query(metrics: EngineMetrics, pods: str) -> str:
    """Returns the query for the requests in the engines of `pods` (`pods_matcher`), in work and waiting.

    It has no result while no engine is scraped: that is a fault, and not zero requests.
    """
    return f"{_sum(metrics.running, pods)} + ({_sum(metrics.waiting, pods)} or vector(0))"


def kv_cache_query(metrics: EngineMetrics, pods: str) -> str:
    """Returns the query for the percent of the KV cache in use, summed over the engines of `pods`."""
    return f"100 * ({_sum(metrics.kv_use, pods)})"


def held_query(namespace: str, pool: str) -> str:
    """Returns the query for the requests that the endpoint picker of a pool holds while no replica runs."""
    where = f"namespace={_quoted(namespace)},inference_pool={_quoted(pool)}"
    return f"(sum(llm_d_epp_flow_control_queue_size{{{where}}}) or vector(0))"


def also_at_zero(query: str, namespace: str, pool: str) -> str:
    """Returns `query`, with the result 0 also while no replica runs: the picker of the pool says that none does.

    So a Prometheus that scrapes neither is still a fault, and no model loses its last replica by it.
    """
    where = f"namespace={_quoted(namespace)},name={_quoted(pool)}"
    return f"(({query}) or (sum(llm_d_epp_ready_endpoints{{{where}}}) == 0))"


def _sum(names: tuple[str, ...], pods: str) -> str:
    """The sum of the first of these metrics that there is; engines write a colon after their name, Ray _."""
    found = (f'sum({{__name__=~"{name.replace("_", "[:_]", 1)}",{pods}}})' for name in names)
    return f"({' or '.join(found)})"
