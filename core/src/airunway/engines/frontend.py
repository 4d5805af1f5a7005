"""Flags of an engine's own HTTP server, which have no effect if another server takes the requests.

vLLM's names are the own fields of its class `FrontendArgs` in 0.7.2, 0.22.0 and 0.29.0, recorded by
``tools/vllm_fields.py`` from the published wheels (inherited fields shape answers and are left out). SGLang's names are
among the recorded options of its `ServerArgs`, up to 0.5.23.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["FRONTENDS", "SGLANG_FRONTEND", "VLLM_FRONTEND", "Frontend"]


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
        {"allow-credentials", "allowed-headers", "allowed-methods", "allowed-origins", "root-path"}
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
