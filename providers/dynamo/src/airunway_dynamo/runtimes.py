"""What starts a worker: images, modules, and the flags of its role, by the release of the runtime image. Data.

Flags follow the image, not the operator: vLLM's workers were told their role in three ways so far.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from airunway.sdk import NIXL_TRANSFER, Version, canonical_json, tag_of

__all__ = ["EVENTS", "IMAGES", "OWN_FLAGS", "ROLES", "RUNTIMES", "is_release"]

Flags = tuple[tuple[str, ...], ...]
"""Each flag with its values, if it has any."""

IMAGES = {"0.4.1": "0.5.1", "0.6": "0.7.1", "0.8": "0.9.1", "1.0": "1.0.1", "1.1": "1.1.1"}
"""The release of the images that goes with older operators, by the first that a transformer is for; never changed."""


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """How Dynamo runs one engine. `staged`: over several nodes each is a stage of a pipeline."""

    image: str
    module: str
    model: str
    dialect: str = ""
    newer: str = ""
    """The dialect of releases from 1.3 on."""
    staged: bool = False


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
"""Flags that say what a worker is: the deployment's mode says that."""


def _json(**fields: object) -> str:
    return canonical_json(fields).decode()


def _mode(role: str, *more: tuple[str, ...]) -> Flags:
    return (("--disaggregation-mode", role), *more)


_BOTH = ("prefill", "decode")
_NIXL = ("--kv-transfer-config", _json(**NIXL_TRANSFER))
_SGLANG = (
    ("--disaggregation-transfer-backend", "nixl"),
    ("--disaggregation-bootstrap-port", "12345"),
    ("--host", "0.0.0.0"),
)
_TRANSFER = {"backend": "DEFAULT"}
# The one that prefills hands each request over as soon as it is done: nothing to overlap with.
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
"""The flags of workers that prefill or decode only, by engine and the first release of the image that has them."""

_VLLM_EVENTS = _json(publisher="zmq", topic="kv-events", endpoint="tcp://*:20080", enable_kv_cache_events=True)
_SGLANG_EVENTS = _json(publisher="zmq", topic="kv-events", endpoint="tcp://*:5557")
EVENTS: Mapping[str, Mapping[Version, Flags]] = {
    # The oldest publish what they cache unasked.
    "vllm": {(0, 0, 0): (), (1, 0, 0): (("--kv-events-config", _VLLM_EVENTS),)},
    "sglang": {(0, 0, 0): (("--kv-events-config", _SGLANG_EVENTS),)},
    # 1.6 still takes the old name (recorded), for that release only.
    "trtllm": {(0, 0, 0): (("--publish-events-and-metrics",),), (1, 6, 0): (("--publish-kv-events",),)},
}
"""Those by which a router learns what a worker has cached."""


# No number of a pre-release begins with 0.
_SEMANTIC = re.compile(r"v?\d{1,4}\.\d{1,4}\.\d{1,4}(?!-(.*\.)?0\d+(\.|$))([-+][0-9A-Za-z.+-]+)?", re.ASCII)


def is_release(image: str) -> bool:
    """Whether the operator can read the release off the tag, too: it takes semantic versions only."""
    return _SEMANTIC.fullmatch(tag_of(image)) is not None
