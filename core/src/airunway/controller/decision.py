"""Decides the core's part of a ModelDeployment's status (spec/core.md, "Order of a pass"). Pure.

The reconciler reads the facts from its caches, calls `decide`, and writes the result if it differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from airunway.api import names
from airunway.artifacts.deployments import wants_cache
from airunway.configs import (
    CONFIG_READY,
    DEFAULT,
    GRANTED,
    MAX_POD_SETTINGS,
    EffectiveConfig,
    Resolution,
    Rollout,
    RoutingRequest,
    Scope,
    routing_request,
)
from airunway.controller.templates import TemplatePart
from airunway.resource import (
    Resource,
    annotations_of,
    condition_of,
    dig,
    filled,
    finalizers_of,
    format_time,
    is_true,
    key_of,
)
from airunway.selection import (
    NO_HEALTHY,
    Candidate,
    ProviderFacts,
    ProviderRefusal,
    is_undecided,
    not_installed,
    not_registered,
    recorded,
    refusals,
    select_engine,
    select_provider,
)
from airunway.status import (
    OVERALL,
    SERVED,
    Condition,
    Fault,
    conditions_in,
    overall_conditions,
    parent_conditions,
    roll_up,
    written,
)
from airunway.templates import TEMPLATE_READY
from airunway.validation import Violation
from airunway.validation.policy import Grants

__all__ = [
    "CORE_CONDITIONS",
    "NO_CONFIG",
    "SILENT_AFTER",
    "CoreDecision",
    "Happening",
    "decide",
    "handed_over",
    "has_grant",
]

CORE_CONDITIONS = frozenset(
    {
        "Validated",
        "EngineSelected",
        "ProviderSelected",
        CONFIG_READY,
        TEMPLATE_READY,
        "ConfigValid",
        "AuthValid",
        "DependenciesReachable",
        "Paused",
        "ProviderResponsive",
    }
)
"""Condition types that the core writes; its parts and the providers write all others."""

NO_CONFIG = Resolution(name=DEFAULT, config=None)
"""What a cluster without runtime configs resolves to."""

SILENT_AFTER = timedelta(minutes=5)
"""Time without a heartbeat after which a provider's report counts as outdated (spec/status.md, "Stale")."""

NO_SELECTOR = "No provider specified and provider-selector not installed"


@dataclass(frozen=True, kw_only=True)
class Happening:
    """An event to emit; only for a change, never for a state."""

    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True, kw_only=True)
class CoreDecision:
    """The result of a pass of the core."""

    status: Resource
    """The complete status that the core wants to own."""
    events: tuple[Happening, ...] = ()
    """The events to emit."""


def handed_over(deployment: Resource) -> bool:
    """Whether a provider owns phase, message, reason and ``Ready``.

    It does while `status.observedGeneration` is set, which only providers write; it stops by dropping its status.
    """
    return dig(deployment, "status", "observedGeneration") is not None


def decide(
    deployment: Resource,
    *,
    violations: Sequence[Violation],
    providers: Sequence[ProviderFacts],
    selector: bool,
    now: datetime,
    grants: Grants | None = None,
    resolution: Resolution = NO_CONFIG,
    granted: bool | None = None,
    granted_claim: str = "",
    parts: Sequence[str] = (),
    template: TemplatePart | None = None,
) -> CoreDecision:
    """The core's part of the status.

    `violations` are those of the current spec; `selector` is whether the built-in provider selection is on; `grants`
    are what the namespace may use (None: anything). `resolution` is the runtime config that the deployment follows;
    `granted` is whether it may take that config's pod settings at once (None: as its status says); `granted_claim` is
    the claim with new weights that it may take although it serves (empty: none); `parts` are the parts of the core that
    are on. `template` is the part of its template; `deployment` has the effective spec then.
    """
    template = template or TemplatePart(deployment=deployment, status={})
    config = _config_part(deployment, resolution, granted=granted, parts=parts)
    if granted_claim:
        config = replace(config, status={**config.status, "rollout": {"claimName": granted_claim}})
    if annotations_of(deployment).get(names.PAUSED) == "true":
        decision = _paused(deployment, config, now=now)
    else:
        config = replace(config, status={**config.status, **template.status})
        decision = _decide(
            deployment,
            config,
            template,
            violations=violations,
            providers=providers,
            selector=selector,
            now=now,
            grants=grants or Grants(),
        )
    return replace(decision, events=(*config.events, *decision.events))


def _decide(
    deployment: Resource,
    config: _ConfigPart,
    template: TemplatePart,
    *,
    violations: Sequence[Violation],
    providers: Sequence[ProviderFacts],
    selector: bool,
    now: datetime,
    grants: Grants,
) -> CoreDecision:
    """The decision on a deployment that is not paused."""
    live = deployment.get("status") or {}
    status: Resource = dict(config.status)
    foreign = [config.condition, *([template.condition] if template.condition is not None else [])]
    if violations or template.unresolved:
        # The selection for the last valid spec stays: objects may exist because of it. A provider that a custom
        # selector wrote is left to the selector.
        for kept in ("engine", "provider", "selection") if selector or _chose(deployment) else ("engine", "selection"):
            _keep(status, live, kept)
    if violations:
        text = "Validation failed: " + "; ".join(f"{v.path}: {v.message}" if v.path else v.message for v in violations)
        own = [
            Condition(type="Validated", status=False, reason="ValidationFailed", message=text),
            *foreign,
            *_silence(deployment, providers, now=now),
        ]
        fault = Fault(component="Validated", reason="ValidationFailed", message=text)
        return _decision(deployment, status, own, fault, events=(), now=now)

    own = [
        Condition(type="Validated", status=True, reason="ValidationPassed", message="Schema validation passed"),
        *foreign,
        *_silence(deployment, providers, now=now),
    ]
    if template.unresolved and template.fault is not None:
        return _decision(deployment, status, own, template.fault, events=(), now=now)
    if (hindered := _hindered_handover(deployment, providers, now=now)) is not None:
        return _held_back(deployment, status, own, hindered, now=now)
    before: str | None = dig(live, "provider", "name")
    refused = refusals(deployment) if selector and is_undecided(deployment) else {}
    if before in refused:
        before = None  # it refused and nothing exists yet: the others are considered
    engine = select_engine(deployment, providers, refused=refused, grants=grants, before=before, now=now)
    if engine.engine is None:
        text = f"Engine selection failed: {engine.message}"
        own.append(Condition(type="EngineSelected", status=False, reason="NoEngineSelected", message=text))
        fault = Fault(component="EngineSelected", reason="NoEngineSelected", message=text, pending=True)
        pinned = dig(deployment, "spec", "provider", "name")
        if pinned and all(provider.name != pinned for provider in providers):
            # The missing provider is the reason why there is no engine; report it as if the engine were named.
            fault = _unselected(own, "ProviderNotFound", not_registered(pinned, providers))
        elif not pinned and before:
            # A provider that was selected stays, whatever happens to configs (spec/core.md, "Selection").
            _keep(status, live, "selection")
            if selector:
                own.append(_selected("AutoSelected", f"Provider {before} auto-selected"))
                _keep(status, live, "provider")
        elif not pinned and selector and providers:
            status["selection"] = _candidates(deployment, providers, refused, grants, now)
            if engine.message == NO_HEALTHY:
                fault = _unselected(own, "NoProviderSelected", NO_HEALTHY)
        return _decision(deployment, status, own, fault, events=(), now=now)
    status["engine"] = {"type": engine.engine, "selectedReason": engine.reason}
    explicit = bool(dig(deployment, "spec", "engine", "type"))
    own.append(
        Condition(
            type="EngineSelected",
            status=True,
            reason="ExplicitSelection" if explicit else "AutoSelected",
            message=engine.message,
        )
    )
    fault_or_none, events = _provider(
        deployment,
        status,
        own,
        providers,
        engine=engine.engine,
        before=before,
        refused=refused,
        selector=selector,
        grants=grants,
        now=now,
    )
    if fault_or_none is None:
        fault_or_none = config.fault or template.fault
    if fault_or_none is None:
        name = status["provider"]["name"] if "provider" in status else dig(live, "provider", "name")
        absent = any(provider.name == name and not provider.installed for provider in providers)
        fault_or_none = Fault(
            component="ProviderSelected",
            reason="UpstreamNotInstalled" if absent else "WaitingForProvider",
            message=not_installed(name) if absent else f"Waiting for provider '{name}' to take over",
            pending=True,
        )
    if dig(live, "engine", "type") != engine.engine:
        events = (
            Happening(reason="EngineSelected", message=f"Selected engine '{engine.engine}': {engine.reason}"),
            *events,
        )
    return _decision(deployment, status, own, fault_or_none, events=events, now=now)


# ------------------------------------------------------------------------------------------------------ runtime config


@dataclass(frozen=True, kw_only=True)
class _ConfigPart:
    """What the runtime config adds to a decision."""

    status: Resource
    """``effectiveRuntimeConfig``, ``parts`` and ``rollout``."""
    condition: Condition
    fault: Fault | None = None
    """Set if no provider may work on the deployment because of its config."""
    events: tuple[Happening, ...] = ()


def _config_part(
    deployment: Resource, resolution: Resolution, *, granted: bool | None, parts: Sequence[str]
) -> _ConfigPart:
    config = resolution.config
    reason, problem = "", ""
    if resolution.missing:
        reason, problem = "ConfigNotFound", _not_found(resolution.name, key_of(deployment).namespace)
    elif config is not None and config.too_large and not is_true(deployment, SERVED):
        reason, problem = "InvalidSpec", _too_large(config)
    status = filled(parts=[part for part in parts if part in _asked_for(deployment, config)])
    if config is not None:
        status["effectiveRuntimeConfig"] = {**config.status(), **_rollout(deployment, config, granted=granted)}
    if problem:
        return _ConfigPart(
            status=status,
            condition=Condition(type=CONFIG_READY, status=False, reason=reason, message=problem),
            fault=Fault(component=CONFIG_READY, reason=reason, message=problem, pending=True),
        )
    if config is not None:
        text = f"Uses {_named(config)}"
        if config.too_large:
            text = f"Keeps the settings that its pods have: {_too_large(config)}"
        condition = Condition(type=CONFIG_READY, status=True, reason="ConfigFound", message=text)
        return _ConfigPart(status=status, condition=condition, events=_config_changed(deployment, config))
    text = f"No RuntimeConfig or ClusterRuntimeConfig '{DEFAULT}' exists; built-in defaults are used"
    before = condition_of(deployment, CONFIG_READY) or {}
    known = (before.get("status"), before.get("reason")) == ("True", "UsingDefaults")
    return _ConfigPart(
        status=status,
        condition=Condition(type=CONFIG_READY, status=True, reason="UsingDefaults", message=text),
        events=() if known else (Happening(reason="DefaultRuntimeConfigNotFound", message=text),),
    )


def _config_changed(deployment: Resource, config: EffectiveConfig) -> tuple[Happening, ...]:
    """The event that the deployment follows other settings than before; none where it followed none yet."""
    before = dig(deployment, "status", "effectiveRuntimeConfig", "hash")
    if not before or before == config.hash:
        return ()
    if not is_true(deployment, SERVED):
        then = "the deployment takes its pod settings"
    elif config.rollout is Rollout.IMMEDIATELY:
        then = "the deployment takes its pod settings in its turn (rollout: Immediately)"
    else:
        then = "what serves keeps its pod settings until the deployment's own spec changes (rollout: OnNextChange)"
    return (Happening(reason="RuntimeConfigChanged", message=f"{_named(config)} changed: {then}"),)


def _rollout(deployment: Resource, config: EffectiveConfig, *, granted: bool | None) -> Resource:
    if config.rollout is not Rollout.IMMEDIATELY:
        return {}
    given = has_grant(deployment, hash_=config.hash) if granted is None else granted
    return {"rollout": GRANTED} if given else {}


def has_grant(deployment: Resource, *, hash_: str) -> bool:
    """Whether a deployment was granted the pod settings of the config with this hash, as far as its status says it.

    A grant stays while the config stays as it is: withdrawing it would be a write without an effect. One that is still
    under way when the config changes counts for the new settings: the deployment is disturbed already, and another one
    must not be disturbed beside it. The status does not say whether a deployment that is not Ready was Ready with these
    settings before; a core that has seen it knows that it is not under way.
    """
    effective = dig(deployment, "status", "effectiveRuntimeConfig", default={})
    if dig(effective, "rollout") != GRANTED:
        return False
    in_effect = dig(deployment, "status", "provider", "runtimeConfigHash") == dig(effective, "hash")
    return dig(effective, "hash") == hash_ or not (in_effect and is_true(deployment, "Ready"))


def _asked_for(deployment: Resource, config: EffectiveConfig | None) -> set[str]:
    asked = set()
    if routing_request(deployment, config) is RoutingRequest.REQUIRED:
        asked.add("gateway")
    if wants_cache(deployment) or _has_sized_volume(deployment):
        asked.add("model-cache")
    return asked


def _has_sized_volume(deployment: Resource) -> bool:
    volumes = dig(deployment, "spec", "model", "storage", "volumes")
    return any(dig(volume, "size") is not None for volume in volumes) if isinstance(volumes, list) else False


def _not_found(name: str, namespace: str) -> str:
    return (
        f"spec.runtimeConfigName: there is neither a RuntimeConfig '{name}' in namespace '{namespace}' nor a "
        f"ClusterRuntimeConfig '{name}': create one of them, or name another"
    )


def _named(config: EffectiveConfig) -> str:
    if config.scope is Scope.CLUSTER:
        return f"ClusterRuntimeConfig '{config.name}'"
    own = f"RuntimeConfig '{config.name}' of namespace '{config.namespace}'"
    return f"{own} over ClusterRuntimeConfig '{config.name}'" if config.scope is Scope.MERGED else own


def _too_large(config: EffectiveConfig) -> str:
    return (
        f"env, imagePullSecrets and token of {_named(config)} have more than {MAX_POD_SETTINGS // 1024} KiB of JSON: "
        "put large values into a ConfigMap and name it with valueFrom"
    )


# ----------------------------------------------------------------------------------------------------------- selection


def _hindered_handover(
    deployment: Resource, providers: Sequence[ProviderFacts], *, now: datetime
) -> tuple[str, str] | None:
    """Reason and message why the named provider cannot take over yet; None if it can, or need not.

    A hand-over now would delete the objects of the previous provider, and no provider would create new ones. The
    previous provider's finalizer shows that it has objects.
    """
    named, before = dig(deployment, "spec", "provider", "name"), dig(deployment, "status", "provider", "name")
    if not named or not before or named == before:
        return None
    if names.provider_finalizer(before) not in finalizers_of(deployment):
        return None
    next_ = next((provider for provider in providers if provider.name == named), None)
    stays = f"what provider '{before}' runs stays as it is until then"
    if next_ is None:
        return "ProviderNotFound", f"{not_registered(named, providers)}; {stays}"
    if not next_.installed:
        return "UpstreamNotInstalled", f"{not_installed(named)}; {stays}"
    silence = next_.silence(now)
    if not next_.ready or (silence is not None and silence >= SILENT_AFTER):
        return "WaitingForProvider", f"Provider '{named}' is not ready; {stays}"
    cache = condition_of(deployment, "ModelCacheReady") or {}
    if cache.get("reason") == "CacheLost":  # ruling 31: the next one could not start before the new copy is there
        return "CacheLost", f"The weights are fetched again before provider '{named}' takes over; {stays}"
    return None


def _held_back(
    deployment: Resource, status: Resource, own: list[Condition], hindered: tuple[str, str], *, now: datetime
) -> CoreDecision:
    """The previous selection, and why the named provider has not got the deployment yet."""
    live, (reason, message) = deployment.get("status") or {}, hindered
    for kept in ("engine", "provider", "selection"):
        _keep(status, live, kept)
    chosen = condition_of(deployment, "EngineSelected")
    if chosen is not None and chosen.get("status") == "True":
        words = {key: str(chosen.get(key, "")) for key in ("reason", "message")}
        own.append(Condition(type="EngineSelected", status=True, **words))
    fault = _unselected(own, reason, message)
    return _decision(deployment, status, own, fault, events=(), now=now)


def _provider(
    deployment: Resource,
    status: Resource,
    own: list[Condition],
    providers: Sequence[ProviderFacts],
    *,
    engine: str,
    before: str | None,
    refused: Mapping[str, ProviderRefusal],
    selector: bool,
    grants: Grants,
    now: datetime,
) -> tuple[Fault | None, tuple[Happening, ...]]:
    """Add the provider's part to `status` and `own`; returns the fault, or None, and the events.

    `before` is the provider that stays, if one is selected that has not `refused`.
    """
    explicit = dig(deployment, "spec", "provider", "name")
    live = deployment.get("status") or {}
    if explicit:
        if all(provider.name != explicit for provider in providers):
            return _unselected(own, "ProviderNotFound", not_registered(explicit, providers)), ()
        own.append(_selected("ExplicitSelection", "Provider explicitly specified in spec"))
        return None, _select(status, explicit, "explicit provider selection", before)
    if not selector and grants.providers is not None:
        # Providers read there what the policy denies them, before an external selector can choose one of them.
        status["selection"] = _candidates(deployment, providers, refused, grants, now)
    if before and not selector:
        # A custom selector chose it and owns the field and its condition: we never write them.
        return None, ()
    if before:
        own.append(_selected("AutoSelected", f"Provider {before} auto-selected"))
        _keep(status, live, "selection")
        return None, _select(status, before, dig(live, "provider", "selectedReason", default=""), before)
    if not selector:
        if condition_of(deployment, "ProviderSelected") is None:
            return _unselected(own, "NoProviderSelected", NO_SELECTOR), ()
        return _waiting_for_selector(deployment, own), ()
    choice = select_provider(deployment, providers, engine=engine, grants=grants, refused=refused, now=now)
    status["selection"] = _selection(choice.candidates, live, now)
    if choice.provider is None:
        return _unselected(own, "NoProviderSelected", choice.message), ()
    own.append(_selected("AutoSelected", choice.message))
    return None, _select(status, choice.provider, choice.reason, dig(live, "provider", "name"), refused)


def _waiting_for_selector(deployment: Resource, own: list[Condition]) -> Fault:
    condition = condition_of(deployment, "ProviderSelected") or {}
    if condition.get("message") == NO_SELECTOR:  # written by the core: it stays until a selector writes the condition
        return _unselected(own, "NoProviderSelected", NO_SELECTOR)
    return Fault(component="ProviderSelected", reason="NoProviderSelected", message=NO_SELECTOR, pending=True)


def _selected(reason: str, message: str) -> Condition:
    return Condition(type="ProviderSelected", status=True, reason=reason, message=message)


def _unselected(own: list[Condition], reason: str, message: str) -> Fault:
    own.append(Condition(type="ProviderSelected", status=False, reason=reason, message=message))
    return Fault(component="ProviderSelected", reason=reason, message=message, pending=True)


def _select(
    status: Resource,
    provider: str,
    reason: str,
    before: str | None,
    refused: Mapping[str, ProviderRefusal] | None = None,
) -> tuple[Happening, ...]:
    status["provider"] = {"name": provider, "selectedReason": reason}
    if provider == before:
        return ()
    text = f"Selected provider '{provider}': {reason}"
    if refused and before is not None and before in refused:
        text += f"; provider '{before}' refused: {refused[before].message}"
    return (Happening(reason="ProviderSelected", message=text),)


def _candidates(
    deployment: Resource,
    providers: Sequence[ProviderFacts],
    refused: Mapping[str, ProviderRefusal],
    grants: Grants,
    now: datetime,
) -> Resource:
    """``status.selection`` if no provider is selected."""
    choice = select_provider(deployment, providers, engine=None, grants=grants, refused=refused, now=now)
    return _selection(choice.candidates, deployment.get("status") or {}, now)


def _selection(weighed: Sequence[Candidate], live: Resource, now: datetime) -> Resource:
    """``status.selection``; its time changes only with the candidates, so that an unchanged selection is not
    written.
    """
    candidates = recorded(weighed)
    if dig(live, "selection", "candidates") == candidates:
        return dict(live["selection"])
    return {"candidates": candidates, "evaluatedAt": format_time(now)}


def _silence(deployment: Resource, providers: Sequence[ProviderFacts], *, now: datetime) -> list[Condition]:
    """``ProviderResponsive=False`` while the deployment's provider has sent no heartbeat for `SILENT_AFTER`.

    It is a condition of the core's own, because ``Ready`` is the provider's and stays as last reported. There is no
    such condition while all is well.
    """
    name = dig(deployment, "status", "provider", "name")
    provider = next((provider for provider in providers if provider.name == name), None)
    silence = provider.silence(now) if provider is not None else None
    if silence is None or silence < SILENT_AFTER:
        return []
    text = f"No heartbeat from provider '{name}' for 5 minutes; the status may be stale"
    return [Condition(type="ProviderResponsive", status=False, reason="ProviderStale", message=text)]


def _decision(
    deployment: Resource,
    status: Resource,
    own: list[Condition],
    fault: Fault,
    *,
    events: tuple[Happening, ...],
    now: datetime,
) -> CoreDecision:
    """Complete the status: parent conditions, and the phase as long as no provider owns it."""
    live = deployment.get("status") or {}
    before = conditions_in(live)
    generation = deployment["metadata"].get("generation", 0)
    theirs = [c for c in before if c.get("type") not in CORE_CONDITIONS]
    ours = written(own, previous=before, generation=generation, now=now)
    own = [*own, *parent_conditions([*theirs, *ours])]
    if not handed_over(deployment):
        verdict = roll_up([fault], previous=live.get("phase"), created=False, now=now)
        status |= {"phase": verdict.phase.value, "reason": verdict.reason, "message": verdict.message}
        own.extend(overall_conditions(verdict))
    status["conditions"] = written(own, previous=before, generation=generation, now=now)
    return CoreDecision(status=status, events=events)


def _paused(deployment: Resource, config: _ConfigPart, *, now: datetime) -> CoreDecision:
    """All that the core owns, unchanged but for the runtime config, and ``Paused=True``."""
    live = deployment.get("status") or {}
    status: Resource = dict(config.status)
    for kept in ("engine", "provider", "selection", "effectiveTemplate"):
        _keep(status, live, kept)
    spoken = handed_over(deployment)
    if not spoken:
        status |= {field: live[field] for field in ("phase", "reason", "message") if field in live}
    conditions = conditions_in(live)
    kept_types = CORE_CONDITIONS - {"Paused", CONFIG_READY} | (set() if spoken else set(OVERALL))
    generation = deployment["metadata"].get("generation", 0)
    message = f"Reconciliation is paused by the annotation {names.PAUSED}"
    paused = written(
        [config.condition, Condition(type="Paused", status=True, reason="Paused", message=message)],
        previous=conditions,
        generation=generation,
        now=now,
    )
    before = {c["type"]: c for c in conditions}
    said = [_unless_only_newer(before.get(each["type"]), each) for each in paused]
    status["conditions"] = sorted(
        [*(c for c in conditions if c.get("type") in kept_types), *said], key=lambda c: str(c["type"])
    )
    return CoreDecision(status=status)


def _unless_only_newer(before: Resource | None, condition: Resource) -> Resource:
    """The condition; the one before if only its generation differs: a spec that is edited under a pause is not read."""
    if before is None or condition["type"] != CONFIG_READY:
        return condition
    same = all(before.get(field) == condition[field] for field in ("status", "reason", "message"))
    return before if same else condition


def _chose(deployment: Resource) -> bool:
    """Whether the core itself wrote ``status.provider.name``."""
    entries = dig(deployment, "metadata", "managedFields", default=[])
    ours = [entry for entry in entries if entry.get("manager") == names.CORE_MANAGER]
    return any(dig(entry, "fieldsV1", "f:status", "f:provider", "f:name") is not None for entry in ours)


def _keep(status: Resource, live: Resource, field: str) -> None:
    """Copy what the core wrote earlier; of ``provider`` only the core's two fields."""
    value = live.get(field)
    if not isinstance(value, dict):
        return
    if field == "provider":
        value = {key: value[key] for key in ("name", "selectedReason") if key in value}
    if value:
        status[field] = dict(value)
