"""What Ray Serve LLM of a release calls the deployments that it makes, and what they do by themselves.

Read out of the sources in Ray's wheels (2.44.0 to 2.60.0, each release named here and the last one before it) and held
against what the builders of 2.44.1, 2.49.2, 2.56.0 and 2.60.0 really make (``make test-ray``). A wrong name would be
fatal: Ray refuses a configuration that names a deployment which does not exist.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from airunway.sdk import ModelDeployment, Version, newest, served_name_of

__all__ = [
    "DECODE_NAME",
    "PREFILL_NAME",
    "RELEASES",
    "TOKENS_SINCE",
    "Release",
    "deployment_name",
    "numbers",
    "release_of",
    "vllm_of",
]

PREFILL_NAME, DECODE_NAME = "Prefill:", "Decode:"
"""Before the model's name, in every release that has the builder (``prefill_decode*``: `build_pd_openai_app`)."""

TOKENS_SINCE: Version = (2, 52, 0)
"""The first release that can ask for a token (``RAY_AUTH_MODE``)."""


@dataclass(frozen=True, kw_only=True)
class Release:
    """`model` stands before the model's name where one deployment serves it; `ingress` takes the requests; `proxy`
    stands between it and prefill and decode (empty: nothing does).
    """

    model: str
    ingress: str
    proxy: str = ""


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
"""By the release that has it first; what is said of one holds until another is in the table."""


def release_of(version: str) -> Release | None:
    """What is known of a version such as ``2.56.0``; None where it is not known, or older than all in the table."""
    found = numbers(version)
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
    """The release of vLLM in an image of Ray's own (``ray-llm``) with that version of Ray; None where nobody tells.

    By the wheels, whose extra ``llm`` names one release of vLLM since 2.56. To 2.55 they name the lowest that will do,
    and which newer one an image was built with stands in no wheel.
    """
    found = numbers(version)
    return _PINNED.get(found[:2]) if found is not None and _IMAGE.search(image) else None


def numbers(version: str) -> Version | None:
    """``(2, 56, 0)``, or None where there is no version."""
    parts = version.split(".")
    if len(parts) != 3 or any(len(part) > 4 for part in parts):
        return None
    return int(parts[0]), int(parts[1]), int(parts[2])


def deployment_name(prefix: str, deployment: ModelDeployment) -> str:
    """How Ray Serve LLM calls the deployment of a model: some characters of its name stand for paths and attributes."""
    return prefix + served_name_of(deployment).replace("/", "--").replace(".", "_")
