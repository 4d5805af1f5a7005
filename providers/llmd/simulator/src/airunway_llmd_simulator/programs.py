"""Simulates the start of llm-d's programs: which flags and configuration each release accepts (recorded).

A program exits at once if it does not support something: with code 2 for an unknown flag, 1 for a wrong configuration
of a picker, and 0 for a wrong value of a routing sidecar's flag.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The end of a process.

    Programs log the error as one line of JSON with the stack trace (recorded).
    """

    code: int
    """Exit code."""
    words: str
    """Last message."""
    error: str = ""
    """Cause; empty if the message is not logged as JSON."""

    @property
    def line(self) -> str:
        """The last line of the log."""
        if not self.error:
            return self.words
        logged = {"level": "error", "logger": "setup", "caller": "runner/runner.go:235", "msg": self.words}
        return json.dumps({**logged, "error": self.error, "stacktrace": _TRACE}, separators=(",", ":"))


_TRACE = "\n".join(
    f"{package}.{function}\n\t/src/{package}/{function}.go:{number}"
    for package, function, number in (("runner", "Run", 210), ("main", "main", 40), ("runtime", "main", 285))
    for _ in range(6)
)


_POOL_FLAGS = ("pool-name", "pool-namespace", "pool-group", "grpc-health-port", "grpc-port", "secure-serving")
_ROUTER_FLAGS = (
    *_POOL_FLAGS,
    "config-file",
    "tracing",
    "metrics-endpoint-auth",
    "metrics-port",
    "enable-pprof",
    "ha-enable-leader-election",
    "endpoint-selector",
    "endpoint-target-ports",
)
_SCORERS = frozenset(
    {
        "queue-scorer",
        "kv-cache-utilization-scorer",
        "prefix-cache-scorer",
        "max-score-picker",
        "single-profile-handler",
    }
)
_APART = frozenset(
    {
        "active-request-scorer",
        "load-aware-scorer",
        "disagg-headers-handler",
        "disagg-profile-handler",
        "always-disagg-pd-decider",
        "prefix-based-pd-decider",
        "prefill-filter",
        "decode-filter",
    }
)
_OLD, _NEW = "inference.networking.x-k8s.io/v1alpha1", "llm-d.ai/v1alpha1"
_TOP = frozenset({"apiVersion", "kind", "plugins", "schedulingProfiles", "featureGates", "saturationDetector", "data"})


@dataclass(frozen=True, kw_only=True)
class PickerProgram:
    """One release of an endpoint picker."""

    flags: tuple[str, ...] = _ROUTER_FLAGS
    config_versions: tuple[str, ...] = (_OLD, _NEW)
    plugins: frozenset[str] = _SCORERS | _APART
    objectives: bool = True
    """It watches InferenceObjectives and InferenceModelRewrites."""
    always_serves: bool = False
    """It always answers SERVING to a health check without a service name."""

    def start(self, args: Sequence[str], config: str | None) -> Ended | None:
        """The end of the process, or None if it keeps running. `config` is the content of its file, if it has one."""
        unknown = next((flag for flag in _flags(args) if flag not in self.flags), None)
        if unknown is not None:
            return Ended(code=2, words=f"unknown flag: --{unknown}")
        if not {"pool-name", "endpoint-selector"} & set(_flags(args)):
            return Ended(code=1, words="Failed to validate flags: either pool-name or endpoint-selector must be set")
        if "pool-name" not in _flags(args):
            return Ended(code=1, words="Failed to extract GKNN: failed to parse deployment name from pod name")
        problem = next(self._problems(config), None) if config else None
        if problem is None:
            return None
        return Ended(code=1, words="Failed to parse configuration", error=f"failed to parse config - {problem}")

    def _problems(self, config: str) -> Iterator[str]:
        try:
            found = yaml.safe_load(config)
        except yaml.YAMLError as error:
            yield f"failed to decode configuration JSON/YAML: {error}"
            return
        if not isinstance(found, dict):
            return  # an empty file means the defaults
        version, kind = found.get("apiVersion"), found.get("kind")
        if version not in self.config_versions or kind != "EndpointPickerConfig":
            yield f'no kind "{kind}" is registered for version "{version}"'
        for field in found:
            if field not in _TOP:
                yield f'strict decoding error: unknown field "{field}"'
        declared = set()
        for plugin in found.get("plugins") or []:
            type_ = plugin.get("type")
            if type_ not in self.plugins:
                yield f"plugin type '{type_}' is not registered"
            declared |= {type_, plugin.get("name")}
            yield from _parameters(type_, plugin.get("parameters") or {})
        for profile in found.get("schedulingProfiles") or []:
            for entry in profile.get("plugins") or []:
                if entry.get("pluginRef") not in declared:
                    name = profile.get("name")
                    yield f"schedulingProfiles[{name}] references undefined plugin '{entry.get('pluginRef')}'"
                if isinstance(entry.get("weight"), str):
                    yield "json: cannot unmarshal string into Go struct field weight of type float64"


_KNOWN_PARAMETERS = {
    "prefix-cache-scorer": {
        "autoTune",
        "blockSize",
        "blockSizeTokens",
        "maxPrefixBlocksToMatch",
        "lruCapacityPerServer",
    },
    "disagg-profile-handler": {"deciders", "profiles"},
    "prefix-based-pd-decider": {"nonCachedTokens"},
}


def _parameters(type_: Any, given: Mapping[str, Any]) -> Iterator[str]:
    known = _KNOWN_PARAMETERS.get(str(type_), set())
    for field in given:
        if field not in known:
            yield f"failed to create plugin '{type_}': failed to decode parameters: json: unknown field \"{field}\""


_PICKERS = {
    (0, 9): PickerProgram(),
    (0, 10): PickerProgram(),
    (1, 5): PickerProgram(config_versions=(_OLD,), plugins=_SCORERS, objectives=False),
    (1, 6): PickerProgram(flags=_POOL_FLAGS, plugins=frozenset(), objectives=False, always_serves=True),
}


@dataclass(frozen=True, kw_only=True)
class SidecarProgram:
    """One release of the routing sidecar."""

    flags: frozenset[str]
    connectors: tuple[str, ...]

    def start(self, args: Sequence[str]) -> Ended | None:
        """The end of the process, or None if it keeps running."""
        given = _flags(args)
        unknown = next((flag for flag in given if flag not in self.flags), None)
        if unknown is not None:
            return Ended(code=2, words=f"unknown flag: --{unknown}")
        connector = given.get("kv-connector") or given.get("connector") or "nixlv2"
        if connector not in self.connectors:
            choice = ", ".join(self.connectors)
            return Ended(code=0, words=f"Invalid configuration: --kv-connector must be one of: {choice}")
        if "enable-ssrf-protection" in given:
            return Ended(code=0, words="failed to start proxy server: failed to get Kubernetes config")
        return None


_ALWAYS = {
    *("port", "kv-connector", "secure-proxy", "vllm-port", "enable-ssrf-protection", "inference-pool"),
    *("data-parallel-size", "enable-tls"),
}
_BEFORE = {"connector", "prefiller-use-tls"}
_FIRST = ("nixlv2", "shared-storage", "sglang")
_SIDECARS = {
    (0, 7): SidecarProgram(flags=frozenset(_ALWAYS | _BEFORE), connectors=_FIRST),
    (0, 8): SidecarProgram(flags=frozenset(_ALWAYS | _BEFORE), connectors=_FIRST),
    (0, 9): SidecarProgram(
        flags=frozenset(_ALWAYS | _BEFORE | {"tracing", "prefill-max-retries"}), connectors=(*_FIRST, "mooncake")
    ),
    (0, 10): SidecarProgram(
        flags=frozenset(_ALWAYS | {"tracing", "prefill-max-retries", "model-server-port"}),
        connectors=(*_FIRST, "mooncake", "offloading"),
    ),
}


def picker_of(image: str) -> PickerProgram | None:
    """The program in an image, by its tag; None if that release was not recorded."""
    return _PICKERS.get(_release(image))


def sidecar_of(image: str) -> SidecarProgram | None:
    """The program in an image, by its tag; None if that release was not recorded."""
    return _SIDECARS.get(_release(image))


def _release(image: str) -> tuple[int, int]:
    match = re.search(r"[:-]v?(\d+)\.(\d+)(?:\.\d+)?$", image.partition("@")[0])
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _flags(args: Sequence[str]) -> dict[str, str]:
    """Flags with their values, in order. A flag without ``=`` has the next word as value, unless that is a flag too."""
    found: dict[str, str] = {}
    for position, word in enumerate(args):
        if word.startswith("--"):
            name, joined, value = word.removeprefix("--").partition("=")
            after = args[position + 1] if position + 1 < len(args) else ""
            found[name] = value if joined else "" if after.startswith("--") else after
    return found
