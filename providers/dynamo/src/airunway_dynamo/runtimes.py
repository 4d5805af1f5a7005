"""What starts a worker: modules, and the flags of its role, by the release of the runtime image. Data.

Flags follow the image, not the operator: vLLM's workers were told their role in three ways so far.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airunway.sdk import canonical_json

__all__ = ["OWN_FLAGS", "RUNTIMES", "Runtime", "Version", "is_release", "role_flags", "router_flags", "version_in"]

Version = tuple[int, int, int]
Flags = tuple[tuple[str, ...], ...]
"""Each flag with its values, if it has any."""


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """How Dynamo runs one engine. `staged`: over several nodes each is a stage of a pipeline."""

    image: str
    module: str
    model: str
    dialect: str = ""
    staged: bool = False


RUNTIMES: Mapping[str, Runtime] = {
    "vllm": Runtime(image="vllm-runtime", module="dynamo.vllm", model="--model", staged=True),
    "sglang": Runtime(image="sglang-runtime", module="dynamo.sglang", model="--model-path"),
    "trtllm": Runtime(image="tensorrtllm-runtime", module="dynamo.trtllm", model="--model-path", dialect="dynamo"),
}

OWN_FLAGS = frozenset({"disaggregation-mode", "is-prefill-worker", "is-decode-worker"})
"""Flags that say what a worker is: the deployment's mode says that."""


def _json(**fields: object) -> str:
    return canonical_json(fields).decode()


_NIXL = ("--kv-transfer-config", _json(kv_connector="NixlConnector", kv_role="kv_both"))
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


def _mode(role: str, *flags: tuple[str, ...]) -> Flags:
    return (("--disaggregation-mode", role), *flags)


_ROLES: Sequence[tuple[str, Version, Mapping[str, Flags]]] = (
    ("vllm", (0, 0, 0), {"prefill": (("--is-prefill-worker",),)}),
    ("vllm", (0, 6, 1), {"prefill": (("--is-prefill-worker",),), "decode": (("--is-decode-worker",),)}),
    ("vllm", (1, 0, 0), {role: _mode(role, _NIXL) for role in ("prefill", "decode")}),
    ("sglang", (0, 0, 0), {role: _mode(role, *_SGLANG) for role in ("prefill", "decode")}),
    ("trtllm", (0, 0, 0), {role: _mode(role, ("--override-engine-args", said)) for role, said in _TRTLLM.items()}),
)
"""By engine and the first release of the image that has them: the newest row that is not newer than the image."""

_VLLM_EVENTS = _json(publisher="zmq", topic="kv-events", endpoint="tcp://*:20080", enable_kv_cache_events=True)
_SGLANG_EVENTS = _json(publisher="zmq", topic="kv-events", endpoint="tcp://*:5557")
_ROUTERS: Sequence[tuple[str, Version, Flags]] = (
    ("vllm", (0, 0, 0), ()),  # they publish what they cache unasked
    ("vllm", (1, 0, 0), (("--kv-events-config", _VLLM_EVENTS),)),
    ("sglang", (0, 0, 0), (("--kv-events-config", _SGLANG_EVENTS),)),
    ("trtllm", (0, 0, 0), (("--publish-events-and-metrics",),)),
)
"""What a worker is told so that a router by cache knows what it holds; same order."""


def role_flags(engine: str, version: Version, role: str) -> Flags:
    """The flags of a worker of that role; none for one that does both."""
    rows = [flags for name, since, flags in _ROLES if name == engine and since <= version]
    return rows[-1].get(role, ()) if rows else ()


def router_flags(engine: str, version: Version) -> Flags:
    """The flags of a worker whose cache the router is to know."""
    rows = [flags for name, since, flags in _ROUTERS if name == engine and since <= version]
    return rows[-1] if rows else ()


_RELEASE = re.compile(r"v?(\d{1,4})\.(\d{1,4})\.(\d{1,4})([-+.][0-9A-Za-z.+-]*)?", re.ASCII)
_SEMANTIC = re.compile(r"v?\d{1,4}\.\d{1,4}\.\d{1,4}([-+][0-9A-Za-z.+-]+)?", re.ASCII)


def version_in(image: str) -> Version | None:
    """The release that the tag of an image names; None where it names none (``latest``, a digest alone, a branch)."""
    found = _RELEASE.fullmatch(_tag(image))
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def is_release(image: str) -> bool:
    """Whether the operator can read the release off the tag, too: it takes semantic versions only."""
    return _SEMANTIC.fullmatch(_tag(image)) is not None


def _tag(image: str) -> str:
    return image.partition("@")[0].rpartition("/")[2].partition(":")[2]
