"""Names of the deployments that Ray Serve LLM creates, by Ray release.

The names come from the sources in Ray's wheels (2.44.0 to 2.60.0; each release in the table and the last one before it)
and were compared with the output of the builders in 2.44.1, 2.49.2, 2.56.0 and 2.60.0 (``make test-ray``). They must be
exact: Ray refuses a configuration that names an unknown deployment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from airunway.sdk import ModelDeployment, Version, newest, served_name_of, version_in

__all__ = [
    "DECODE_NAME",
    "PREFILL_NAME",
    "RELEASES",
    "TOKENS_SINCE",
    "Release",
    "deployment_name",
    "release_of",
    "vllm_of",
]

PREFILL_NAME, DECODE_NAME = "Prefill:", "Decode:"
"""Prefixes of the model's name, in every release with the builder (``prefill_decode*``: `build_pd_openai_app`)."""

TOKENS_SINCE: Version = (2, 52, 0)
"""The first release with token authentication (``RAY_AUTH_MODE``)."""


@dataclass(frozen=True, kw_only=True)
class Release:
    """Names of deployments in one release of Ray."""

    model: str
    """Prefix of the model's name in aggregated mode."""
    ingress: str
    """The deployment that receives the requests."""
    proxy: str = ""
    """The deployment between ingress and prefill and decode; empty if there is none."""


RELEASES: Mapping[Version, Release] = {
    # builders/application_builders.py, deployments/llm/llm_server.py (`LLMDeployment`), deployments/routers/router.py
    (2, 44, 0): Release(model="LLMDeployment:", ingress="LLMRouter"),
    (2, 47, 0): Release(model="LLMDeployment", ingress="LLMRouter"),
    (2, 49, 0): Release(model="LLMServer:", ingress="LLMRouter", proxy="PDProxyServer"),
    # deployments/llm/builder_llm_server.py; from 2.51 on core/server/builder.py, core/ingress/ingress.py
    (2, 50, 0): Release(model="LLMServer:", ingress="OpenAiIngress", proxy="PDProxyServer"),
    # serving_patterns/prefill_decode/builder.py
    (2, 55, 0): Release(model="LLMServer:", ingress="OpenAiIngress"),
}
"""By first release; an entry applies until the next one."""


def release_of(version: str) -> Release | None:
    """The entry for a version such as ``2.56.0``; None if the version is unknown or older than the table."""
    found = version_in(version)
    return newest(RELEASES, found) if found is not None and found >= min(RELEASES) else None


_PINNED: Mapping[tuple[int, int], Version] = {
    (2, 56): (0, 22, 0),
    (2, 57): (0, 25, 1),
    (2, 58): (0, 26, 0),
    (2, 59): (0, 27, 0),
    (2, 60): (0, 29, 0),
}
_IMAGE = re.compile(r"(^|/)ray-llm([:@]|$)")


def vllm_of(version: str, image: str) -> Version | None:
    """The release of vLLM in Ray's own image (``ray-llm``) with that Ray version; None if unknown.

    Since 2.56 the extra ``llm`` of Ray's wheel pins one release of vLLM. Up to 2.55 it gives only a minimum, so the
    release in an image is unknown.
    """
    found = version_in(version)
    return _PINNED.get(found[:2]) if found is not None and _IMAGE.search(image) else None


def deployment_name(prefix: str, deployment: ModelDeployment) -> str:
    """Ray Serve LLM's name for a model's deployment, without characters that have a meaning in paths and attributes."""
    return prefix + served_name_of(deployment).replace("/", "--").replace(".", "_")
