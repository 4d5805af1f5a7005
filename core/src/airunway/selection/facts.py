"""What selection knows of a provider, read once out of an InferenceProviderConfig."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from airunway.api.names import GROUP, provider_of_finalizer, provider_of_manager
from airunway.cel import DataSize
from airunway.resource import Resource, annotations_of, condition_of, dig, key_of, parse_time
from airunway.selection.rules import size_of_spec

__all__ = [
    "AVAILABLE",
    "HEARTBEAT_INTERVAL",
    "REFUSED_BY",
    "STALE_AFTER",
    "EngineFacts",
    "ProviderFacts",
    "ProviderRefusal",
    "Request",
    "UpstreamFacts",
    "is_available",
    "is_undecided",
    "provider_facts",
    "refusals",
    "refused_by",
    "request_of",
]

HEARTBEAT_INTERVAL = timedelta(seconds=60)
"""How often a provider says that it lives (spec/providers.md)."""

STALE_AFTER = 3 * HEARTBEAT_INTERVAL
"""A provider that has been silent for longer takes no new deployments (spec/core.md, "Selection")."""

AVAILABLE = "Available"
"""Condition of an InferenceProviderConfig: whether the provider takes new deployments. It is the core's, which alone
can say of a provider that is gone that it is not ready: ``status.ready`` is the provider's own word, and stays as it
was."""

DISAGGREGATED = "disaggregated"


@dataclass(frozen=True, kw_only=True)
class EngineFacts:
    """One entry of ``spec.capabilities.engines``; `flags` are the names of its boolean capabilities that are true."""

    name: str
    modes: frozenset[str]
    gpu: bool
    cpu: bool
    flags: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class UpstreamFacts:
    """The kind that the provider makes for a deployment: the first of ``spec.upstream``. `version` may be empty."""

    group: str
    version: str
    kind: str


@dataclass(frozen=True, kw_only=True)
class ProviderFacts:
    """A provider as selection and admission see it."""

    name: str
    ready: bool
    heartbeat: datetime | None
    explicit_only: bool
    engines: tuple[EngineFacts, ...]
    rules: tuple[tuple[str, int], ...]
    title: str = ""
    """Its name as people write it (``KAITO``)."""
    installed: bool = True
    """False where the provider itself says that its upstream is not there (condition ``UpstreamInstalled``)."""
    upstream: UpstreamFacts | None = None
    heard: datetime | None = None
    """When the heartbeat came, by the clock of whoever asks, which may differ from the provider's; None: as it says."""

    def engine(self, name: str) -> EngineFacts | None:
        return next((engine for engine in self.engines if engine.name == name), None)

    def silence(self, now: datetime) -> timedelta | None:
        """How long nothing was heard of it; None if it never sent a heartbeat (then `ready` alone counts)."""
        return None if self.heartbeat is None else now - (self.heard or self.heartbeat)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a deployment asks for: `spec` is fully defaulted (spec ruling 5), `needs` are capability flags."""

    spec: Resource
    gpu: bool
    mode: str
    needs: frozenset[str] = frozenset()

    @cached_property
    def size(self) -> DataSize | str:
        """Of the spec, for the cost of rules: measured once for all providers."""
        return size_of_spec(self.spec)


def provider_facts(config: Resource) -> ProviderFacts:
    """Read a config; entries of a wrong shape are passed over (the CRD's schema refuses them anyway)."""
    engines = []
    for entry in _list(dig(config, "spec", "capabilities", "engines")):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            continue
        engines.append(
            EngineFacts(
                name=entry["name"],
                modes=frozenset(mode for mode in _list(entry.get("servingModes")) if isinstance(mode, str)),
                gpu=entry.get("gpuSupport") is True,
                cpu=entry.get("cpuSupport") is True,
                flags=frozenset(key for key, value in entry.items() if value is True),
            )
        )
    rules = [
        (rule["condition"], rule["priority"] if isinstance(rule.get("priority"), int) else 0)
        for rule in _list(dig(config, "spec", "selectionRules"))
        if isinstance(rule, dict) and isinstance(rule.get("condition"), str)
    ]
    return ProviderFacts(
        name=key_of(config).name,
        ready=dig(config, "status", "ready") is True,
        heartbeat=parse_time(dig(config, "status", "lastHeartbeat")),
        explicit_only=dig(config, "spec", "selection") == "Explicit",
        engines=tuple(engines),
        rules=tuple(rules),
        title=annotations_of(config).get(f"{GROUP}/display-name") or key_of(config).name,
        installed=(condition_of(config, "UpstreamInstalled") or {}).get("status") != "False",
        upstream=_upstream(config),
    )


def is_available(config: Resource) -> bool:
    """Whether a provider takes new deployments: as the core has it, or before that by the provider's own word."""
    judged = condition_of(config, AVAILABLE)
    return dig(config, "status", "ready") is True if judged is None else judged.get("status") == "True"


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _upstream(config: Resource) -> UpstreamFacts | None:
    kinds = dig(config, "spec", "upstream")
    first = kinds[0] if isinstance(kinds, list) and kinds else None
    kind = dig(first, "kind")
    if not isinstance(kind, str):
        return None
    in_use = str(dig(config, "status", "upstreamCRDVersion", default=""))
    group = str(dig(first, "group", default=""))
    versions = dig(first, "versions")
    preferred = str(versions[0]) if isinstance(versions, list) and versions else ""
    version = in_use.removeprefix(f"{group}/") if in_use.startswith(f"{group}/") else preferred
    return UpstreamFacts(group=group, version=version, kind=kind)


def request_of(spec: Resource) -> Request:
    """What a fully defaulted spec asks for."""
    mode = dig(spec, "serving", "mode", default="aggregated")
    count = dig(spec, "resources", "gpu", "count", default=0)
    needs = set()
    if mode != DISAGGREGATED and dig(spec, "scaling", "replicas") == 0:
        needs.add("scaleToZero")
    if dig(spec, "model", "cache", "mode", default="None") != "None":
        needs.add("modelCache")
    return Request(spec=spec, gpu=mode == DISAGGREGATED or count > 0, mode=mode, needs=frozenset(needs))


REFUSED_BY = f"{GROUP}/refused-by"
"""Where a cached object has the answer of `refused_by`, in its metadata; never on an object of an API server."""

_WORDS = 192
"""Characters of a refusal that are kept: those of 32 providers have room in ``status.selection``."""

_CONDITION = "ProviderCompatible"
_OWNED = f'k:{{"type":"{_CONDITION}"}}'


@dataclass(frozen=True, kw_only=True)
class ProviderRefusal:
    """A provider's own words on the deployment of one generation."""

    generation: int
    reason: str
    message: str


def is_undecided(deployment: Resource) -> bool:
    """Whether another provider may be chosen yet: the spec names none, and nothing of the deployment exists."""
    if dig(deployment, "spec", "provider", "name") or dig(deployment, "status", "provider", "resourceName"):
        return False
    return not any(provider_of_finalizer(str(each)) for each in dig(deployment, "metadata", "finalizers", default=[]))


def refusals(deployment: Resource) -> dict[str, ProviderRefusal]:
    """By provider, what was refused of the present generation: as recorded before, and by the present provider."""
    generation = dig(deployment, "metadata", "generation", default=0)
    found = {}
    for candidate in dig(deployment, "status", "selection", "candidates", default=[]):
        entry = dig(candidate, "refusal")
        if isinstance(entry, Mapping) and entry.get("generation") == generation:
            found[str(candidate.get("name"))] = _refusal(entry, generation)
    present = dig(deployment, "status", "provider", "name")
    if present in refused_by(deployment):
        found[present] = _refusal(condition_of(deployment, _CONDITION) or {}, generation)
    return found


def refused_by(deployment: Resource) -> tuple[str, ...]:
    """The providers whose word ``ProviderCompatible=False`` of this generation is.

    The condition stays for a moment when another provider is chosen, and that one may say the same: only the owners of
    the field tell whose it is.
    """
    known = dig(deployment, "metadata", REFUSED_BY)
    if known is not None:
        return tuple(known)
    condition = condition_of(deployment, _CONDITION) or {}
    generation = dig(deployment, "metadata", "generation")
    if condition.get("status") != "False" or condition.get("observedGeneration") != generation:
        return ()
    owners = [
        provider_of_manager(str(entry.get("manager")))
        for entry in dig(deployment, "metadata", "managedFields", default=[])
        if isinstance(entry, Mapping) and dig(entry, "fieldsV1", "f:status", "f:conditions", _OWNED) is not None
    ]
    return tuple(sorted({owner for owner in owners if owner}))


def _refusal(said: Mapping[str, object], generation: int) -> ProviderRefusal:
    message = str(said.get("message", ""))
    if len(message) > _WORDS:
        message = f"{message[: _WORDS - 1]}…"
    return ProviderRefusal(generation=generation, reason=str(said.get("reason", ""))[:_WORDS], message=message)
