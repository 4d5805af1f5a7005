"""How workers are started, as data: images, modules and role flags by release of the runtime image.

Flags depend on the image, not on the operator: vLLM's workers have had three ways of setting their role so far.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from airunway.sdk import NIXL_TRANSFER, Version, canonical_json, tag_of

Flags = tuple[tuple[str, ...], ...]
"""Each flag, followed by its values if it has any."""

IMAGES = {"0.4.1": "0.5.1", "0.6": "0.7.1", "0.8": "0.9.1", "1.0": "1.0.1", "1.1": "1.1.1"}
"""The image release for older operators, by the first operator release of a transformer; never changed."""


NEWEST: Version = (9999, 0, 0)
"""Stands for the release of an image whose tag names none."""


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """How Dynamo runs one engine."""

    image: str
    """Name of the runtime image."""
    module: str
    """Python module that starts a worker."""
    model: str
    """Flag before the model."""
    dialect: str = ""
    """Dialect of releases before 1.3, and of transformers without `FLAGS_BY_RELEASE`; empty: the engine's own."""
    newer: str = ""
    """Dialect of releases from 1.3 on; empty: the engine's own."""
    staged: bool = False
    """Over several nodes, each node is a pipeline stage."""


RUNTIMES: Mapping[str, Runtime] = {
    "vllm": Runtime(image="vllm-runtime", module="dynamo.vllm", model="--model", staged=True),
    "sglang": Runtime(image="sglang-runtime", module="dynamo.sglang", model="--model-path"),
    "trtllm": Runtime(
        image="tensorrtllm-runtime",
        module="dynamo.trtllm",
        model="--model-path",
        dialect="dynamo",
        newer="dynamo-1.3",
    ),
}

OWN_FLAGS = frozenset({"disaggregation-mode", "is-prefill-worker", "is-decode-worker"})
"""Flags for a worker's role, which the deployment's serving mode determines."""


def _json(**fields: object) -> str:
    return canonical_json(fields).decode()


def _mode(role: str, *more: tuple[str, ...]) -> Flags:
    return (("--disaggregation-mode", role), *more)


_BOTH = ("prefill", "decode")
_NIXL = ("--kv-transfer-config", _json(**NIXL_TRANSFER))
_SGLANG = (
    ("--disaggregation-transfer-backend", "nixl"),
    ("--disaggregation-bootstrap-port", "12345"),
)
_TRANSFER = {"backend": "DEFAULT"}
# A prefill worker hands each request over when it is done, so there is nothing to overlap with.
_TRTLLM = {
    "prefill": _json(cache_transceiver_config=_TRANSFER, disable_overlap_scheduler=True),
    "decode": _json(cache_transceiver_config=_TRANSFER),
}

ROLES: Mapping[str, Mapping[Version, Mapping[str, Flags]]] = {
    "vllm": {
        (0, 0, 0): {"prefill": (("--is-prefill-worker",),)},
        (0, 6, 1): {"prefill": (("--is-prefill-worker",),), "decode": (("--is-decode-worker",),)},
        (1, 0, 0): {role: _mode(role, _NIXL) for role in _BOTH},
    },
    "sglang": {(0, 0, 0): {role: _mode(role, *_SGLANG) for role in _BOTH}},
    "trtllm": {(0, 0, 0): {role: _mode(role, ("--override-engine-args", _TRTLLM[role])) for role in _BOTH}},
}
"""The flags of prefill and decode workers, by engine and the first image release that has them."""

_VLLM_EVENTS = _json(publisher="zmq", topic="kv-events", endpoint="tcp://*:20080", enable_kv_cache_events=True)
_SGLANG_EVENTS = _json(publisher="zmq", topic="kv-events", endpoint="tcp://*:5557")
EVENTS: Mapping[str, Mapping[Version, Flags]] = {
    # The oldest releases publish cache events by default.
    "vllm": {(0, 0, 0): (), (1, 0, 0): (("--kv-events-config", _VLLM_EVENTS),)},
    "sglang": {(0, 0, 0): (("--kv-events-config", _SGLANG_EVENTS),)},
    # 1.6 also accepts the old name, as the last release (recorded).
    "trtllm": {(0, 0, 0): (("--publish-events-and-metrics",),), (1, 6, 0): (("--publish-kv-events",),)},
}
"""Flags that make a worker publish cache events for the router."""


# In a semantic version, numbers of a pre-release have no leading zero.
_SEMANTIC = re.compile(r"v?\d{1,4}\.\d{1,4}\.\d{1,4}(?!-(.*\.)?0\d+(\.|$))([-+][0-9A-Za-z.+-]+)?", re.ASCII)


def is_release(image: str) -> bool:
    """Whether the operator can read the release from the tag too: it accepts semantic versions only."""
    return _SEMANTIC.fullmatch(tag_of(image)) is not None
