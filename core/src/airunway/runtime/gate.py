"""Whether a pass may write: what runtime config, model cache, claims and gateway allow (docs/runtime-configs.md). Pure.

Example: a config gets another variable while the deployment serves. Core and provider compute the same new hash, so
the gate is open, and the pods keep their settings (`pod_settings`). As long as the two see different configs, the gate
is closed: what runs is reported and not changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from airunway.api import names
from airunway.api.rules import MODEL_CACHE_PATH
from airunway.artifacts.deployments import CONDITION, SUB_PATH, request_of, wants_cache
from airunway.configs.resolution import CONFIG_READY, EffectiveConfig, RoutingRequest, routing_request
from airunway.plugins.contract import Finding, Gateway, ModelCache, RuntimeSettings
from airunway.plugins.host import ProviderHost
from airunway.plugins.settings import runtime_settings
from airunway.resource import Resource, condition_of, dig, labels_of, parse_time
from airunway.runtime.report import CACHE_COMPONENT, STORAGE_COMPONENT, StepResult
from airunway.runtime.state import ClusterState
from airunway.sdk.pods import ONE_POD
from airunway.status.reasons import Category, category_of
from airunway.status.rollup import Fault
from airunway.templates.expansion import TEMPLATE_READY

DISAGREEMENT = timedelta(seconds=30)
"""How long core and provider may see different runtime configs before the status says so."""

DIFFERENT = "core and provider see different runtime configs"
"""How the message about a disagreement begins."""

_HARMLESS = ("PvcPending", "DryRun", "Suspended")
"""Reasons of StorageReady=False with which the first object can be made, or is not made anyway."""


@dataclass(frozen=True, kw_only=True)
class Gate:
    """Whether a pass may write, as far as config, model cache and gateway are concerned."""

    config: EffectiveConfig | None = None
    """The effective config; None: there is none, or it is not known yet."""
    pods: RuntimeSettings = field(default_factory=RuntimeSettings)
    """The pod settings that a new primary object gets."""
    cache: ModelCache | None = None
    """The model cache that a new primary object mounts; while its weights are still to come, that which it would."""
    gateway: Gateway | None = None
    """The gateway for which a new primary object is made."""
    closed: bool = False
    """Nothing is written; what runs is read and reported."""
    results: tuple[StepResult, ...] = ()
    """Why it is closed; empty: another result or a condition of the core says it, or it is too early to say."""
    warnings: tuple[Finding, ...] = ()
    """What the status says although the deployment serves."""
    again: float | None = None
    """Seconds after which time alone changes the gate."""
    frozen: bool = False
    """The config cannot be used: what exists keeps its recorded settings, also after a change of the spec."""
    late: StepResult | None = None
    """What is reported if the gate is closed and the newest spec has not been applied; None: it waits for a config."""
    planned: str = ""
    """What a dry run says about the model cache; empty without one."""


def gate_of(state: ClusterState, host: ProviderHost, *, edited: bool) -> Gate:
    """The gate for a deployment whose spec is valid: first the config, then the model cache, then the gateway.

    `edited`: the spec has changed, in anything but replica counts, ``gateway``, ``suspend`` and the name of the config,
    since the primary object was written; True without one.
    """
    if dig(state.deployment, "spec", "templateRef") is not None:
        # Its template is not resolved: the condition of the core is a fault of its own.
        text = "The newest spec is applied once it is known what its template gives: see the condition TemplateReady"
        return Gate(closed=True, late=waits_for_config(text))
    gate = _config_gate(state)
    if gate.closed:
        return gate
    pods = runtime_settings(gate.config, labels_of(state.deployment), reserved=host.manifest.reserved_labels)
    changed = edited or (state.renamed and not gate.frozen)
    gate = with_cache(replace(gate, pods=pods), state, host, changed=changed)
    if gate.closed:
        return gate
    if state.primary is None and (why := claims_hinder(state)) is not None:
        result = StepResult(
            component=STORAGE_COMPONENT, reason="PvcPending", message=why, blocks_ready=True, pending=True
        )
        return replace(gate, closed=True, results=(result,) if why else ())
    return _with_gateway(gate, state, host)


def _config_gate(state: ClusterState) -> Gate:
    if condition_of(state.deployment, CONFIG_READY) is None:
        return Gate()
    condition, config = state.condition(CONFIG_READY) or {}, state.config
    unready = condition.get("status") == "False"
    if unready and condition.get("reason") != "InvalidSpec":  # the condition is a fault of its own: `core_faults`
        text = "The newest spec is applied once the runtime config can be used: see the condition RuntimeConfigReady"
        return Gate(closed=True, late=waits_for_config(text))
    if state.disagrees:
        return _waiting_for_config(state)
    if config is not None and (config.too_large or unready):
        problem = next((p for p in config.problems if p.field == "spec.env"), next(iter(config.problems), None))
        about = f": {problem.field}: {problem.message}" if problem is not None else ""
        why = f"{config.title} cannot be used{about}"
        if state.primary is not None:
            return Gate(config=config, frozen=True, warnings=(Finding(path="", reason="InvalidSpec", message=why),))
        unusable = StepResult(component="RuntimeConfig", reason="InvalidSpec", message=why, blocks_ready=True)
        return Gate(config=config, closed=True, results=() if unready else (unusable,))
    return Gate(config=config, closed=unready and state.primary is None)


def _waiting_for_config(state: ClusterState) -> Gate:
    since = state.disagrees_since or state.now
    left = (since + DISAGREEMENT - state.now).total_seconds()
    if left > 0:
        return Gate(closed=True, again=left)
    theirs, ours = (found[:12] or "none" for found in state.config_hashes)
    text = f"{DIFFERENT}: the core's has the hash {theirs}, the provider's {ours}; nothing is changed meanwhile"
    if state.served:
        return Gate(closed=True, warnings=(Finding(path="", reason="WaitingForConfig", message=text),))
    return Gate(closed=True, results=(waits_for_config(text, since=since),))


def waits_for_config(text: str, *, since: datetime | None = None) -> StepResult:
    """The result while nothing is written because core and provider do not see the same config."""
    return StepResult(
        component="RuntimeConfig", reason="WaitingForConfig", message=text, blocks_ready=True, since=since
    )


def _with_gateway(gate: Gate, state: ClusterState, host: ProviderHost) -> Gate:
    """The gate with the gateway. It is decided once, before the primary object is made, and only where a route was
    asked for and the provider itself makes the pool.
    """
    request = routing_request(state.deployment, gate.config)
    if state.primary is not None:
        # Switched off, the record stays: the provider keeps what the live object has until the spec changes.
        kept = state.recorded.gateway if state.recorded is not None and request is not RoutingRequest.OFF else None
        return replace(gate, gateway=kept)
    status = state.deployment.get("status") or {}
    engine = dig(status, "engine", "type", default="")
    manages = any(
        bool((each.gateway or {}).get("managesInferencePool")) for each in host.manifest.engines if each.name == engine
    )
    if not manages or request is not RoutingRequest.REQUIRED or names.GATEWAY_PART not in state.parts:
        return gate
    backend = dig(status, "gateway", "backend")
    condition = state.condition("GatewayReady")
    if backend in ("Pool", "Service"):
        chosen = Gateway(
            name=str(dig(status, "gateway", "gatewayName", default="")),
            namespace=str(dig(status, "gateway", "gatewayNamespace", default="")),
            uses_pool=backend == "Pool",
        )
        return replace(gate, gateway=chosen)
    if condition is not None and category_of(str(condition.get("reason"))) is not Category.PROGRESS:
        return gate  # decided: there is no gateway
    text = "Waiting until the gateway part has decided what the route points to"
    result = StepResult(component="Gateway", reason="WaitingForGateway", message=text, blocks_ready=True, pending=True)
    return replace(gate, closed=True, results=(result,))


def claims_hinder(state: ClusterState) -> str | None:
    """Why the first object of a deployment is not made yet because of its volumes with a size; None if they do not
    hinder it, empty if the condition StorageReady says why.

    A claim that is not bound hinders nothing: some are bound only with their first pod. One that is not made yet does:
    a foreign object may have its name.
    """
    if names.MODEL_CACHE_PART not in state.parts:
        return None
    volumes = dig(state.deployment, "spec", "model", "storage", "volumes")
    if not isinstance(volumes, list) or all(dig(volume, "size") is None for volume in volumes):
        return None
    condition = state.condition("StorageReady")
    if condition is None:
        return "Waiting until the claims of the volumes are created"
    return None if condition.get("status") == "True" or condition.get("reason") in _HARMLESS else ""


# ------------------------------------------------------------------------------------------------------ the model cache


_ON = "start the controller with --model-cache=on (chart airunway: modelCache.enabled: true)"
_WHERE = "the condition ModelCacheReady says how far it is"


def with_cache(gate: Gate, state: ClusterState, host: ProviderHost, *, changed: bool) -> Gate:
    """The gate with the model cache that a new object gets: the one that is Ready, or the one that the live object has.
    It is closed where neither may be used.

    Example: ``llama`` serves from the claim ``llama-cache-1``, which is lost. The part fetches the weights anew under
    ``llama-cache-2``. Until that is Ready the live object keeps ``llama-cache-1``. Then it takes ``llama-cache-2``:
    with the next change of its spec, when the core grants the claim (`controller.waves`), or at once if no pod serves.

    `changed`: the spec has changed, in anything but replica counts, ``gateway`` and ``suspend``, since the live object
    was written; True without one.
    """
    if not _is_asked_for(state, host):
        return gate
    on, found = names.MODEL_CACHE_PART in state.parts, state.condition(CONDITION)
    published = dig(state.deployment, "status", "modelCache")
    status, reason = (found.get("status"), str(found.get("reason"))) if found is not None else (None, "")
    # An edited template changes the effective spec without a new generation. A part of an older release does not say
    # for which template it has answered.
    template = dig(state.deployment, "status", "effectiveTemplate", "hash")
    is_for_this = dig(published, "templateHash") in (None, "", template)
    if on and status == "True" and is_for_this and dig(published, "ready") is True and dig(published, "claimName"):
        ready = _cache(published)
        return replace(gate, cache=ready, planned=f"pods mount claim {ready.claim} at {ready.mount_path}")
    kept = state.recorded.cache if state.recorded is not None else None
    if state.primary is not None and kept is not None and not changed:
        # The part has found, or may still find, that more pods would mount the claim than it allows.
        conflict = on and kept.access_mode in ONE_POD and reason in ("", "AccessModeConflict")
        if not conflict:
            return replace(gate, cache=kept, planned=f"pods keep claim {kept.claim} at {kept.mount_path}")
    is_coming = found is not None and category_of(reason) is Category.PROGRESS
    message = found.get("message") if found is not None else None
    artifact = dig(published, "artifactName") or "of the model"
    claim = dig(published, "claimName") or f"{artifact}-cache"  # it may not exist yet
    to_come = _cache({**(published if isinstance(published, dict) else {}), "claimName": claim})
    if dig(state.deployment, "spec", "suspend") is True or (state.dry_run and is_coming):
        text = f"pods would mount the claim of ModelArtifact {artifact} at {to_come.mount_path}"
        return replace(gate, cache=to_come, planned=f"{text}: {message or 'its weights are not complete yet'}")
    if not on:
        late = f"The newest spec is applied once the model cache part is on: {_ON}"
    elif reason == "AccessModeConflict":
        late = f"The newest spec is not applied: {message}"
    else:
        late = f"The newest spec is applied once the model cache is Ready for it; {_WHERE}"
    waits = StepResult(component=CACHE_COMPONENT, reason="WaitingForModelCache", message=late, blocks_ready=True)
    unanswered = on and (status != "False" or not is_for_this) and state.primary is None
    text = "Waiting until the model cache part has answered for this spec"
    results = (replace(waits, message=text),) if unanswered else ()
    asked = on and is_coming and state.primary is None
    return replace(gate, closed=True, cache=to_come if asked else None, results=results, late=waits)


def assumed_cache(deployment: Resource, config: EffectiveConfig | None, host: ProviderHost) -> ModelCache | None:
    """The cache for a preview without a cluster: the name of the claim is not known before it is made."""
    request = request_of(deployment, config)
    if request is None or not _can_use_one(deployment, host):
        return None
    return _cache(
        {
            "claimName": f"{request.name}-cache",
            "mountPath": MODEL_CACHE_PATH,
            "path": request.path,
            "accessMode": request.access_mode,
        }
    )


def _can_use_one(deployment: Resource, host: ProviderHost) -> bool:
    engine = dig(deployment, "status", "engine", "type", default="")
    return any(each.model_cache for each in host.manifest.engines if each.name == engine)


def _is_asked_for(state: ClusterState, host: ProviderHost) -> bool:
    """Whether the spec asks for a cache, and the engine can use one; else the translation refuses it."""
    return wants_cache(state.deployment) and _can_use_one(state.deployment, host)


def _cache(found: Resource) -> ModelCache:
    """The values of ``status.modelCache``; a part of an older release does not publish the access mode."""
    return ModelCache(
        claim=str(dig(found, "claimName")),
        sub_path=SUB_PATH,
        mount_path=str(dig(found, "mountPath", default="") or MODEL_CACHE_PATH),
        path=str(dig(found, "path", default="")),
        access_mode=str(dig(found, "accessMode", default="")),
    )


# --------------------------------------------------------------------------------------------- conditions of others


def core_faults(state: ClusterState, host: ProviderHost) -> Iterator[Fault]:
    """The faults of conditions that the core and its parts write and that count for the phase.

    An older core, without `RuntimeConfigReady`, has none, except that its model cache is off. What waits for others
    counts until the deployment has served; a fault then degrades it. Routing counts only where it was asked for.
    """
    deployment, ready = state.deployment, condition_of(state.deployment, CONFIG_READY)
    if ready is None:
        yield from cache_faults(state, host)
        return
    invalid = ready.get("reason") == "InvalidSpec" and state.primary is not None
    template = condition_of(deployment, TEMPLATE_READY)
    yield from _faults(state, {"RuntimeConfig": None if invalid else ready, "Template": template})
    yield from cache_faults(state, host)
    routed = routing_request(deployment, state.config) is RoutingRequest.REQUIRED
    gateway = condition_of(deployment, "GatewayReady") or _unanswered(state) if routed else None
    yield from _faults(state, {STORAGE_COMPONENT: condition_of(deployment, "StorageReady"), "Gateway": gateway})


def _faults(state: ClusterState, conditions: Mapping[str, Resource | None]) -> Iterator[Fault]:
    """The faults of conditions, by component."""
    for component, condition in conditions.items():
        if condition is None or condition.get("status") != "False":
            continue
        reason = str(condition.get("reason"))
        if state.served and category_of(reason) is Category.PROGRESS:
            continue
        yield Fault(
            component=component,
            reason=reason,
            message=str(condition.get("message", "")),
            since=parse_time(condition.get("lastTransitionTime")),
            only_degrades=state.served,
        )


def _unanswered(state: ClusterState) -> Resource:
    """What counts where a route was asked for and the gateway part has not answered yet."""
    if names.GATEWAY_PART in state.parts:
        return {"status": "False", "reason": "WaitingForGateway", "message": "The gateway part has not answered yet"}
    text = (
        "A route was asked for, and the gateway part is off: start the controller with --gateway=auto (chart airunway: "
        "gateway.mode: auto)"
    )
    return {"status": "False", "reason": "GatewayNotConfigured", "message": text}


def cache_faults(state: ClusterState, host: ProviderHost) -> Iterator[Fault]:
    """The fault of a cache that was asked for and is not Ready.

    What only waits counts until the deployment has served; a fault then degrades it. The messages of a download that
    is under way stay on the part's condition: its progress must not bring a pass here.
    """
    deployment = state.deployment
    if not _is_asked_for(state, host) or dig(deployment, "spec", "suspend") is True:
        return
    if names.MODEL_CACHE_PART not in state.parts:
        text = f"spec.model.cache.mode asks for a model cache, and the model cache part is off: {_ON}"
        yield Fault(component=CACHE_COMPONENT, reason="ModelCacheNotEnabled", message=text, only_degrades=state.served)
        return
    condition = condition_of(deployment, CONDITION)
    if condition is not None and (text := _fault_text(deployment, str(condition.get("reason")))):
        condition = {**condition, "message": text}
    yield from _faults(state, {CACHE_COMPONENT: condition})


def _fault_text(deployment: Resource, reason: str) -> str:
    """The message for a reason whose condition has progress in its own message; empty for the others."""
    artifact = dig(deployment, "status", "modelCache", "artifactName", default="")
    if reason == "CacheLost":
        return f"The weights of ModelArtifact {artifact} are gone and are fetched again; {_WHERE}"
    if category_of(reason) is Category.PROGRESS:
        return f"Waiting for the weights of ModelArtifact {artifact} ({reason}); {_WHERE}"
    return ""


def cache_reads(deployment: Resource) -> object:
    """What a pass reads of what the core and the part write about the cache; other writes there bring no pass."""
    if not wants_cache(deployment):
        return None
    status, condition = deployment.get("status") or {}, condition_of(deployment, CONDITION) or {}
    reason = str(condition.get("reason"))
    fields = ("status", "reason", "observedGeneration", "lastTransitionTime")
    return (
        status.get("modelCache"),
        status.get("rollout"),
        [condition.get(field) for field in fields],
        None if _fault_text(deployment, reason) else condition.get("message"),
    )
