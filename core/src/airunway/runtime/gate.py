"""Whether a pass may write: what revision, model cache and claims allow (docs/revisions.md). Pure.

Example: a config gets another variable while the deployment serves. The core keeps the revision, so the gate is open
and the objects stay. While the revision is not whole, or its weights are not there yet, the gate is closed: what runs
is reported and not changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from airunway.api import names
from airunway.api.rules import MODEL_CACHE_PATH
from airunway.artifacts.deployments import CONDITION, SUB_PATH, request_of, wants_cache
from airunway.configs.patterns import is_reserved
from airunway.configs.resolution import CONFIG_READY, EffectiveConfig, RoutingRequest, routing_request_with
from airunway.plugins.contract import Gateway, ModelCache, RuntimeSettings
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource, condition_of, dig, list_at, mapping_at, parse_time, text_at
from airunway.revisions.revision import CACHE, GATEWAY, SETTINGS
from airunway.runtime.report import CACHE_COMPONENT, GATEWAY_COMPONENT, STORAGE_COMPONENT, StepResult
from airunway.runtime.state import ClusterState
from airunway.sdk.pods import ONE_POD
from airunway.status.reasons import Category, category_of
from airunway.status.rollup import Fault
from airunway.templates.expansion import TEMPLATE_READY

_HARMLESS = ("PvcPending", "DryRun", "Suspended")
"""Reasons of StorageReady=False with which the first object can be made, or is not made anyway."""


@dataclass(frozen=True, kw_only=True)
class Gate:
    """Whether a pass may write."""

    cache: ModelCache | None = None
    """The model cache that the objects mount; while its weights are still to come, that which they would."""
    closed: bool = False
    """Nothing is written; what runs is read and reported."""
    results: tuple[StepResult, ...] = ()
    """Why it is closed; empty: another result or a condition of the core says it."""
    late: StepResult | None = None
    """What is reported if the gate is closed and the newest spec has not been applied."""
    planned: str = ""
    """What a dry run says about the model cache; empty without one."""


def gate_of(state: ClusterState, host: ProviderHost) -> Gate:
    """The gate for a deployment whose spec is valid: first the revision, then the model cache, then the claims."""
    if dig(state.deployment, "spec", "templateRef") is not None:
        # Its template is not resolved: the condition of the core is a fault of its own.
        text = "The newest spec is applied once it is known what its template gives: see the condition TemplateReady"
        return Gate(closed=True, late=waits_for_revision(text))
    gate = Gate(cache=cache_in(state.revision)) if state.revision_hash else _undecided(state, host)
    if state.revision_hash and gate.cache is not None:
        gate = _with_cache(gate, gate.cache, state)
    if not gate.closed and state.primary is None and (why := claims_hinder(state)) is not None:
        result = StepResult(
            component=STORAGE_COMPONENT, reason="PvcPending", message=why, blocks_ready=True, pending=True
        )
        return replace(gate, closed=True, results=(result,) if why else ())
    return gate


def waits_for_revision(text: str) -> StepResult:
    """The result while nothing is written because it is not decided what the deployment runs with."""
    return StepResult(component="Revision", reason="WaitingForRevision", message=text, blocks_ready=True)


def _undecided(state: ClusterState, host: ProviderHost) -> Gate:
    """The gate as long as the core has not decided on all parts of the revision."""
    waits = text_at(state.revision, "pending", "waitsFor")
    if waits == CACHE:
        return _without_claim(state, host)
    if waits == GATEWAY:
        text = "Waiting until the gateway part has decided what the route points to"
        result = StepResult(
            component=GATEWAY_COMPONENT, reason="WaitingForGateway", message=text, blocks_ready=True, pending=True
        )
        return Gate(closed=True, results=(result,) if state.primary is None else (), late=result)
    text = "The newest spec is applied once the core has recorded what it runs with (status.revision)"
    if (state.condition(CONFIG_READY) or {}).get("status") == "False":  # a fault of its own: `core_faults`
        text = "The newest spec is applied once the runtime config can be used: see the condition RuntimeConfigReady"
        return Gate(closed=True, late=waits_for_revision(text))
    result = replace(waits_for_revision(text), pending=True)
    return Gate(closed=True, results=(result,) if state.primary is None else (), late=result)


# ------------------------------------------------------------------------------------------------ parts of a revision


def settings_in(revision: Resource, *, reserved: tuple[str, ...]) -> RuntimeSettings:
    """The pod settings of a revision, without labels that the provider keeps for itself. Total for any JSON."""
    found = mapping_at(revision, SETTINGS)
    labels = {label: value for label, value in mapping_at(found, "labels").items() if isinstance(value, str)}
    return RuntimeSettings(
        env=tuple(each for each in list_at(found, "env") if isinstance(dig(each, "name"), str)),
        labels={label: value for label, value in labels.items() if not is_reserved(label, reserved)},
        image_pull_secrets=tuple(each for each in list_at(found, "imagePullSecrets") if isinstance(each, str)),
        token=text_at(found, "token", "name"),
        runtime_class=text_at(found, "runtimeClassName"),
    )


def cache_in(revision: Resource) -> ModelCache | None:
    """The model cache of a revision; None without one."""
    found = mapping_at(revision, CACHE)
    return _cache({**found, "claimName": found["claim"]}) if text_at(found, "claim") else None


def gateway_in(revision: Resource) -> Gateway | None:
    """The Gateway for which the provider makes a pool; None without one."""
    found = mapping_at(revision, GATEWAY)
    if not text_at(found, "name"):
        return None
    return Gateway(
        name=text_at(found, "name"), namespace=text_at(found, "namespace"), uses_pool=found.get("usesPool") is True
    )


def config_secrets(state: ClusterState) -> dict[str, str]:
    """The Secrets that the settings of the revision name, each with the field of the RuntimeConfig that names it."""
    settings = mapping_at(state.revision, SETTINGS)
    of = f" of RuntimeConfig {text_at(settings, 'config')}"
    found: dict[str, str] = {}
    for variable in list_at(settings, "env"):
        name = text_at(variable, "valueFrom", "secretKeyRef", "name")
        if name:
            found.setdefault(name, f"spec.env[{dig(variable, 'name')}]{of}")
    for position, name in enumerate(list_at(settings, "imagePullSecrets")):
        found.setdefault(str(name), f"spec.imagePullSecrets[{position}]{of}")
    if token := text_at(settings, "token", "name"):
        found[token] = f"spec.secrets.huggingFaceToken{of}"
    return found


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


def _with_cache(gate: Gate, cache: ModelCache, state: ClusterState) -> Gate:
    """The gate with the claim of a whole revision. It is closed until the weights are there for the first objects, and
    for objects of another revision.

    Example: ``llama`` serves from the claim ``llama-cache-1``, which is lost. The part fetches the weights anew under
    ``llama-cache-2``. The core keeps the first claim in the revision until a wave, the next change of the spec, or the
    loss of all pods takes the second.
    """
    on, found = names.MODEL_CACHE_PART in state.parts, state.condition(CONDITION)
    status, reason = (found.get("status"), str(found.get("reason"))) if found is not None else (None, "")
    if state.in_effect:
        # The part has found, or may still find, that more pods would mount the claim than it allows.
        if not (on and cache.access_mode in ONE_POD and reason in ("", "AccessModeConflict")):
            return replace(gate, planned=f"pods keep claim {cache.claim} at {cache.mount_path}")
    elif on and status == "True" and text_at(state.deployment, "status", "modelCache", "claimName") == cache.claim:
        return replace(gate, planned=f"pods mount claim {cache.claim} at {cache.mount_path}")
    elif dig(state.deployment, "spec", "suspend") is True:
        return gate
    return _waits_for_weights(gate, state)


def _without_claim(state: ClusterState, host: ProviderHost) -> Gate:
    """The gate while the claim has no name. What the provider says of its new object does not wait for the weights."""
    found, published = state.condition(CONDITION), mapping_at(state.deployment, "status", "modelCache")
    is_coming = found is not None and category_of(str(found.get("reason"))) is Category.PROGRESS
    artifact = text_at(published, "artifactName") or "of the model"
    to_come = _cache({**published, "claimName": text_at(published, "claimName") or f"{artifact}-cache"})
    if dig(state.deployment, "spec", "suspend") is True or (state.dry_run and is_coming):
        text = f"pods would mount the claim of ModelArtifact {artifact} at {to_come.mount_path}"
        message = found.get("message") if found is not None else None
        return Gate(cache=to_come, planned=f"{text}: {message or 'its weights are not complete yet'}")
    on = names.MODEL_CACHE_PART in state.parts
    asked = on and is_coming and state.primary is None and _can_use_one(state.deployment, host)
    return _waits_for_weights(Gate(cache=to_come if asked else None), state)


def _waits_for_weights(gate: Gate, state: ClusterState) -> Gate:
    on, found = names.MODEL_CACHE_PART in state.parts, state.condition(CONDITION)
    status, reason = (found.get("status"), str(found.get("reason"))) if found is not None else (None, "")
    if not on:
        late = f"The newest spec is applied once the model cache part is on: {_ON}"
    elif reason == "AccessModeConflict":
        late = f"The newest spec is not applied: {found.get('message') if found is not None else ''}"
    else:
        late = f"The newest spec is applied once the model cache is Ready for it; {_WHERE}"
    waits = StepResult(component=CACHE_COMPONENT, reason="WaitingForModelCache", message=late, blocks_ready=True)
    results: tuple[StepResult, ...] = ()
    if state.primary is None and on and status != "False":
        results = (replace(waits, message="Waiting until the model cache part has answered for this spec"),)
    elif state.primary is None and not wants_cache(state.deployment):  # or else `cache_faults` says it
        results = (waits,)
    return replace(gate, closed=True, results=results, late=waits)


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


def is_cached(deployment: Resource, host: ProviderHost) -> bool:
    """Whether the spec asks for a cache, and the engine can use one; else the translation refuses it."""
    return wants_cache(deployment) and _can_use_one(deployment, host)


def _cache(found: Resource) -> ModelCache:
    """The values of ``status.modelCache``, or of a part of a revision."""
    return ModelCache(
        claim=text_at(found, "claimName"),
        sub_path=SUB_PATH,
        mount_path=text_at(found, "mountPath") or MODEL_CACHE_PATH,
        path=text_at(found, "path"),
        access_mode=text_at(found, "accessMode"),
    )


# --------------------------------------------------------------------------------------------- conditions of others


def core_faults(state: ClusterState, host: ProviderHost) -> Iterator[Fault]:
    """The faults of conditions that the core and its parts write and that count for the phase.

    What waits for others counts until the deployment has served; a fault then degrades it. Routing counts only where it
    was asked for.
    """
    deployment, ready = state.deployment, condition_of(state.deployment, CONFIG_READY)
    invalid = ready is not None and ready.get("reason") == "InvalidSpec" and state.primary is not None
    template = condition_of(deployment, TEMPLATE_READY)
    yield from _faults(state, {"RuntimeConfig": None if invalid else ready, "Template": template})
    yield from cache_faults(state, host)
    routed = is_routed(deployment)
    gateway = condition_of(deployment, "GatewayReady") or _unanswered(state) if routed else None
    yield from _faults(state, {STORAGE_COMPONENT: condition_of(deployment, "StorageReady"), GATEWAY_COMPONENT: gateway})


def is_routed(deployment: Resource) -> bool:
    """Whether a route was asked for, by the deployment or by its runtime config."""
    default = dig(deployment, "status", "effectiveRuntimeConfig", "routing")
    request = routing_request_with(deployment, default if isinstance(default, bool) else None)
    return request is RoutingRequest.REQUIRED


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
    if not is_cached(state.deployment, host) or dig(deployment, "spec", "suspend") is True:
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
        [condition.get(field) for field in fields],
        None if _fault_text(deployment, reason) else condition.get("message"),
    )
