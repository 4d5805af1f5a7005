"""The facts about a provider that selection uses, read from an InferenceProviderConfig."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from airunway.api.names import GROUP, provider_of_finalizer, provider_of_manager
from airunway.cel import CelError, DataSize, size_of
from airunway.engines.tasks import GENERATE
from airunway.resource import (
    Resource,
    annotations_of,
    condition_of,
    dig,
    entries_at,
    finalizers_of,
    key_of,
    list_at,
    parse_time,
)

HEARTBEAT_INTERVAL = timedelta(seconds=60)
"""How often a provider sends a heartbeat (docs/providers/contract.md)."""

STALE_AFTER = 3 * HEARTBEAT_INTERVAL
"""A provider without a heartbeat for this time gets no new deployments (docs/selection.md)."""

AVAILABLE = "Available"
"""Condition of an InferenceProviderConfig: whether the provider takes new deployments.

The core writes it, because a provider that has stopped cannot report that: its own ``status.ready`` stays as it was.
"""

DISAGGREGATED = "disaggregated"


@dataclass(frozen=True, kw_only=True)
class EngineFacts:
    """One entry of ``spec.capabilities.engines``."""

    name: str
    modes: frozenset[str]
    gpu: bool
    cpu: bool
    flags: frozenset[str]
    """Names of its boolean capabilities that are true."""
    tasks: frozenset[str] = frozenset({GENERATE})
    """Tasks of models that it runs."""
    makes_pool: bool = False
    """Whether the provider makes the InferencePool of a route itself."""

    def lacks(self, request: Request) -> list[str]:
        """The capabilities, other than device and serving mode, that a deployment needs and it does not have."""
        return [*sorted(request.needs - self.flags), *([f"task {request.task}"] * (request.task not in self.tasks))]


@dataclass(frozen=True, kw_only=True)
class UpstreamFacts:
    """The kind that the provider creates for a deployment: the first entry of ``spec.upstream``."""

    group: str
    version: str
    """May be empty."""
    kind: str


@dataclass(frozen=True, kw_only=True)
class ProviderFacts:
    """A provider, reduced to what selection and admission use."""

    name: str
    ready: bool
    """``status.ready``."""
    heartbeat: datetime | None
    """``status.lastHeartbeat``."""
    explicit_only: bool
    """Whether it is used only if the spec names it."""
    engines: tuple[EngineFacts, ...]
    rules: tuple[tuple[str, int], ...]
    """Its selection rules: condition and priority."""
    title: str = ""
    """Its name for people (``KAITO``)."""
    installed: bool = True
    """False if the provider reports that its upstream is not installed (condition ``UpstreamInstalled``)."""
    upstream: UpstreamFacts | None = None
    translation: Resource | None = field(default=None, hash=False)
    """``status.translation``: how it writes a new deployment; None: it has not said so."""
    heard: datetime | None = None
    """When the heartbeat arrived by the reader's clock, which may differ from the provider's; None: use `heartbeat`."""

    def engine(self, name: str) -> EngineFacts | None:
        return next((engine for engine in self.engines if engine.name == name), None)

    def silence(self, now: datetime) -> timedelta | None:
        """Returns the time since the last heartbeat; None if there was none (then `ready` alone counts)."""
        return None if self.heartbeat is None else now - (self.heard or self.heartbeat)

    def is_silent(self, limit: timedelta, *, now: datetime) -> bool:
        """Returns whether the last heartbeat was `limit` ago or longer."""
        silence = self.silence(now)
        return silence is not None and silence >= limit

    def is_stale(self, now: datetime) -> bool:
        """Returns whether the last heartbeat is so old that the provider gets no new deployments."""
        return self.is_silent(STALE_AFTER, now=now)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a deployment requests."""

    spec: Resource
    """The fully defaulted spec."""
    gpu: bool
    mode: str
    needs: frozenset[str] = frozenset()
    """Capability flags that it needs."""
    task: str = GENERATE
    """The task of its model."""

    @cached_property
    def size(self) -> DataSize | str:
        """The size of the spec for the cost of rules, or why no rule can be evaluated on it; measured once."""
        try:
            return size_of({"spec": self.spec})
        except CelError as error:
            return str(error)


def provider_facts(config: Resource) -> ProviderFacts:
    """Reads a config; skips entries of a wrong shape (the CRD's schema refuses them anyway)."""
    engines = []
    for entry in list_at(config, "spec", "capabilities", "engines"):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            continue
        engines.append(
            EngineFacts(
                name=entry["name"],
                modes=frozenset(mode for mode in list_at(entry, "servingModes") if isinstance(mode, str)),
                gpu=entry.get("gpuSupport") is True,
                cpu=entry.get("cpuSupport") is True,
                flags=frozenset(key for key, value in entry.items() if value is True),
                tasks=frozenset(task for task in list_at(entry, "tasks") or [GENERATE] if isinstance(task, str)),
                makes_pool=dig(entry, "gateway", "managesInferencePool") is True,
            )
        )
    rules = [
        (rule["condition"], rule["priority"] if isinstance(rule.get("priority"), int) else 0)
        for rule in list_at(config, "spec", "selectionRules")
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
        translation=found if isinstance(found := dig(config, "status", "translation"), dict) else None,
    )


def engine_entry(config: Resource | None, deployment: Resource) -> Resource | None:
    """Returns a config's entry for the engine that a deployment uses; None if there is none."""
    used = dig(deployment, "status", "engine", "type")
    engines = entries_at(config, "spec", "capabilities", "engines")
    return next((entry for entry in engines if entry.get("name") == used), None)


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
    """Returns what a fully defaulted spec requests."""
    mode = dig(spec, "serving", "mode", default="aggregated")
    count = dig(spec, "resources", "gpu", "count", default=0)
    needs = set()
    autoscaling = dig(spec, "scaling", "autoscaling")
    fewest = dig(spec, "scaling", "replicas") if autoscaling is None else dig(autoscaling, "minReplicas")
    if mode != DISAGGREGATED and fewest == 0:
        needs.add("scaleToZero")
    if dig(spec, "model", "cache", "mode", default="None") != "None":
        needs.add("modelCache")
    if dig(spec, "model", "source") == "oci":
        needs.add("imageVolumes")
    gpu, task = mode == DISAGGREGATED or count > 0, dig(spec, "model", "task", default=GENERATE)
    return Request(spec=spec, gpu=gpu, mode=mode, needs=frozenset(needs), task=task)


REFUSED_BY = f"{GROUP}/refused-by"
"""The metadata field in which cached objects keep the result of `refused_by`; no object of an API server has it."""

_WORDS = 192
"""Characters of a refusal that are kept: refusals of 32 providers fit into ``status.selection``."""

_CONDITION = "ProviderCompatible"
_OWNED = f'k:{{"type":"{_CONDITION}"}}'


@dataclass(frozen=True, kw_only=True)
class ProviderRefusal:
    """A provider's refusal of one generation of a deployment."""

    generation: int
    reason: str
    message: str


def is_undecided(deployment: Resource) -> bool:
    """Whether another provider may still be chosen: the spec names none, and no upstream object exists."""
    if dig(deployment, "spec", "provider", "name") or dig(deployment, "status", "provider", "resourceName"):
        return False
    return not any(map(provider_of_finalizer, finalizers_of(deployment)))


def holder_of(deployment: Resource) -> str | None:
    """The provider whose finalizer a deployment has, where its status has been lost: its objects may serve.

    A user may set a finalizer, too: it stands for the provider's name wherever the name would be judged.
    """
    holders = [name for each in finalizers_of(deployment) if (name := provider_of_finalizer(each))]
    return holders[0] if len(holders) == 1 and not condition_of(deployment, "Validated") else None


def refusals(deployment: Resource) -> dict[str, ProviderRefusal]:
    """Returns the refusals of the present generation by provider: those recorded, and that of the present provider."""
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


def is_refusal_open(deployment: Resource) -> bool:
    """Whether ``ProviderCompatible=False`` of this generation may yet be overtaken by another selection.

    Either the provider that refuses is not the selected one any more, which has not answered yet; or the core has not
    answered: it selects another provider, or records that all refuse and this one stays. Without recorded candidates
    (another selector has chosen) no answer comes.
    """
    generation, condition = dig(deployment, "metadata", "generation"), condition_of(deployment, _CONDITION) or {}
    if condition.get("status") != "False" or condition.get("observedGeneration") != generation:
        return False
    if dig(deployment, "spec", "provider", "name") or dig(deployment, "status", "provider", "resourceName"):
        return False
    present, refusing = dig(deployment, "status", "provider", "name"), refused_by(deployment)
    if refusing and present not in refusing:
        return True
    weighed = [
        each for each in entries_at(deployment, "status", "selection", "candidates") if each.get("name") == present
    ]
    recorded = any(dig(each, "refusal", "generation") == generation for each in weighed)
    return bool(weighed) and not recorded and is_undecided(deployment)


def refused_by(deployment: Resource) -> tuple[str, ...]:
    """Returns the providers that own ``ProviderCompatible=False`` of this generation.

    When another provider is chosen, the condition stays for a moment, and the new provider may report the same. Only
    the field's managers show whose it is.
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
        for entry in entries_at(deployment, "metadata", "managedFields")
        if dig(entry, "fieldsV1", "f:status", "f:conditions", _OWNED) is not None
    ]
    return tuple(sorted({owner for owner in owners if owner}))


def _refusal(condition: Mapping[str, object], generation: int) -> ProviderRefusal:
    message = str(condition.get("message", ""))
    if len(message) > _WORDS:
        message = f"{message[: _WORDS - 1]}…"
    return ProviderRefusal(generation=generation, reason=str(condition.get("reason", ""))[:_WORDS], message=message)
