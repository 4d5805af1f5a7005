"""Flags of an engine's own HTTP server: without effect where another program takes the requests.

Names of vLLM's are those of its class `FrontendArgs` (its own fields, not those that it inherits: these shape answers)
in 0.7.2, 0.22.0 and 0.29.0, recorded by ``tools/vllm_fields.py`` out of the real wheels; SGLang's are among the options
that are recorded of its `ServerArgs`, to 0.5.23.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["FRONTENDS", "SGLANG_FRONTEND", "VLLM_FRONTEND", "Frontend"]


@dataclass(frozen=True, kw_only=True)
class Frontend:
    """Flags without dashes in front.

    `protecting` ones restrict who may use the endpoint, or encrypt: to ignore one opens what a user believes closed.
    `others` change how the server listens, logs or answers browsers. `variables` of the environment protect, too.
    Flags that every provider sets itself (host, port, a socket) are in the engine's `FlagTable`.
    """

    protecting: frozenset[str]
    others: frozenset[str]
    variables: frozenset[str] = frozenset()


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
"""The flags of vLLM's HTTP server (``vllm serve``), as providers ask for them that put another one in its place."""

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
"""Those that are known, by engine."""
