"""Which runtime config and cache a pass works with, and which pod settings it writes (platform.md, "Gate"). Pure.

Example: a config gets another variable while the deployment serves. Core and provider compute the same new hash, so
the gate is open; the pods keep the recorded settings, and a warning names the variable that waits.

The record is an annotation of the primary object. If it is removed or edited, the last one that this process has read
is restored. A process that has not read it compares the object with its translation: the object was made without pod
settings, or with the current ones, if the translation with these gives the same. Otherwise the settings are not known,
and nothing is written until the spec changes in more than replica counts. So a lost annotation never restarts a model,
and never takes its settings away. Where no config was ever in effect (`status.provider.runtimeConfigHash`), there are
no settings to lose, and an object without a record is written as before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from airunway.api import names
from airunway.api.modeldeployment import ModelDeployment
from airunway.configs import CONFIG_READY, GRANTED, EffectiveConfig, RoutingRequest, config_name, routing_request
from airunway.kube import has_content_of
from airunway.owned.objects import named
from airunway.plugins.contract import Finding, Gateway, ModelCache, RuntimeSettings
from airunway.plugins.host import ProviderHost
from airunway.plugins.runtime_settings import changed_settings, runtime_settings
from airunway.resource import Resource, annotations_of, condition_of, dig, labels_of, parse_time
from airunway.runtime.model_cache import cache_faults, cache_verdict
from airunway.runtime.report import STORAGE_COMPONENT, StepResult
from airunway.runtime.state import ClusterState, has_part
from airunway.runtime.translate import SpecDigests, with_counts_of
from airunway.runtime.volume_claims import claims_hinder
from airunway.status import Category, Fault, category_of, served_before
from airunway.status.evidence import parse_moment
from airunway.templates import TEMPLATE_READY

__all__ = [
    "DISAGREEMENT",
    "NEWER_PODS_WAIT",
    "Gate",
    "carried_results",
    "carried_warnings",
    "changed",
    "config_secrets",
    "current_settings",
    "disagree",
    "foreign_faults",
    "gate_of",
    "has_served",
    "is_granted",
    "is_renamed",
    "keeps",
    "not_applied",
    "pods_unknown",
    "pods_wait",
    "was_written_as",
]

DISAGREEMENT = timedelta(seconds=30)
"""How long core and provider may see different runtime configs before the status says so."""

NEWER_PODS_WAIT = "NewerPodSettingsWait"
"""Reason of the warning that newer pod settings wait for a change of the spec."""

_DIFFERENT = "core and provider see different runtime configs"


@dataclass(frozen=True, kw_only=True)
class Gate:
    """Whether a pass may write, as far as config, model cache and gateway are concerned."""

    config: EffectiveConfig | None = None
    """The effective config; None: there is none, or it is not known yet."""
    cache: ModelCache | None = None
    """The model cache that a new primary object mounts."""
    gateway: Gateway | None = None
    """The gateway for which a new primary object is made."""
    closed: bool = False
    """Nothing is written; what runs is read and reported."""
    result: StepResult | None = None
    """Why it is closed; None: another result or a condition of the core says it, or it is too early to say."""
    warning: Finding | None = None
    """What the status says although the deployment serves."""
    again: float | None = None
    """Seconds after which time alone changes the gate."""
    frozen: bool = False
    """The config cannot be used: what exists keeps its recorded settings, also after a change of the spec."""
    late: StepResult | None = None
    """The result while it is closed and what runs is not of the newest spec; None: the one for a config."""
    planned: str = ""
    """What a dry run says about the model cache; empty without one."""


# ----------------------------------------------------------------------------------------------------------- the gate


def gate_of(
    state: ClusterState, host: ProviderHost, typed: ModelDeployment | None, digests: SpecDigests | None
) -> Gate:
    """The gate for a deployment whose spec is valid: first the config, then the model cache, then the gateway.

    `typed` and `digests` are the deployment as plugins see it; None if it cannot be read.
    """
    if dig(state.deployment, "spec", "templateRef") is not None:
        # Its template is not resolved: the condition of the core is a fault of its own.
        text = "The newest spec is applied once it is known what its template gives: see the condition TemplateReady"
        return Gate(closed=True, late=_waits(text))
    gate = _config_gate(state)
    if gate.closed:
        return gate
    is_changed = typed is None or digests is None or changed(state, typed, digests, frozen=gate.frozen)
    cache = cache_verdict(state, host, changed=is_changed)
    gate = replace(gate, cache=cache.cache, planned=cache.planned)
    if cache.closed:
        return replace(gate, closed=True, result=cache.result, late=cache.late)
    if state.primary is None and (why := claims_hinder(state.deployment)) is not None:
        result = StepResult(
            component=STORAGE_COMPONENT, reason="PvcPending", message=why, blocks_ready=True, pending=True
        )
        return replace(gate, closed=True, result=result if why else None)
    return _with_gateway(gate, state, host)


def disagree(state: ClusterState) -> bool:
    """Whether core and provider see different configs for this generation. Without the core's condition (an older
    core) there are no configs.
    """
    condition = condition_of(state.deployment, CONFIG_READY)
    if condition is None or (_is_false(condition, state) and condition.get("reason") != "InvalidSpec"):
        return False
    return not _is_current(condition, state) or _published(state) != _own_hash(state)


def _config_gate(state: ClusterState) -> Gate:
    condition = condition_of(state.deployment, CONFIG_READY)
    if condition is None:
        return Gate()
    config = state.resolution.config if state.resolution is not None else None
    if _is_false(condition, state) and condition.get("reason") != "InvalidSpec":
        return Gate(closed=True)  # the condition is a fault of its own: `foreign_faults`
    if disagree(state):
        return _waiting_for_config(state)
    if config is not None and (config.too_large or _is_false(condition, state)):
        if state.primary is None:
            return Gate(config=config, closed=True, result=None if _is_false(condition, state) else _unusable(config))
        return Gate(config=config, frozen=True, warning=Finding(path="", reason="InvalidSpec", message=_why(config)))
    return Gate(config=config, closed=_is_false(condition, state) and state.primary is None)


def _waiting_for_config(state: ClusterState) -> Gate:
    since = state.disagrees_since or state.now
    left = (since + DISAGREEMENT - state.now).total_seconds()
    if left > 0:
        return Gate(closed=True, again=left)
    ours, theirs = _own_hash(state) or "none", _published(state) or "none"
    text = (
        f"{_DIFFERENT}: the core's has the hash {theirs[:12]}, the provider's {ours[:12]}; nothing is changed meanwhile"
    )
    if has_served(state):
        return Gate(closed=True, warning=Finding(path="", reason="WaitingForConfig", message=text))
    return Gate(closed=True, result=_waits(text, since=since))


def _waits(text: str, *, since: datetime | None = None) -> StepResult:
    return StepResult(
        component="RuntimeConfig", reason="WaitingForConfig", message=text, blocks_ready=True, since=since
    )


def not_applied(
    state: ClusterState, digests: SpecDigests, *, why: str = "", late: StepResult | None = None
) -> StepResult | None:
    """The result for a spec that was not written yet: `late`, by default that the gate of the config is closed; None if
    what runs is of this spec.
    """
    if state.primary is None or annotations_of(state.primary).get(names.WRITTEN_FOR) == digests.wanted:
        return None
    return late or _waits(why or "The newest spec is applied once core and provider see the same runtime config")


def _unusable(config: EffectiveConfig) -> StepResult:
    return StepResult(component="RuntimeConfig", reason="InvalidSpec", message=_why(config), blocks_ready=True)


def _why(config: EffectiveConfig) -> str:
    problem = next((p for p in config.problems if p.field == "spec.env"), next(iter(config.problems), None))
    about = f": {problem.field}: {problem.message}" if problem is not None else ""
    return f"runtime config {config.name} cannot be used{about}"


def _is_false(condition: Resource, state: ClusterState) -> bool:
    return condition.get("status") == "False" and _is_current(condition, state)


def _is_current(condition: Resource, state: ClusterState) -> bool:
    return bool(condition.get("observedGeneration") == dig(state.deployment, "metadata", "generation"))


def _published(state: ClusterState) -> str:
    found = dig(state.deployment, "status", "effectiveRuntimeConfig", "hash")
    return found if isinstance(found, str) else ""


def _own_hash(state: ClusterState) -> str:
    config = state.resolution.config if state.resolution is not None else None
    return config.hash if config is not None else ""


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
    if not manages or request is not RoutingRequest.REQUIRED or not has_part(state.deployment, names.GATEWAY_PART):
        return gate
    backend = dig(status, "gateway", "backend")
    condition = condition_of(state.deployment, "GatewayReady")
    if backend in ("Pool", "Service"):
        chosen = Gateway(
            name=str(dig(status, "gateway", "gatewayName", default="")),
            namespace=str(dig(status, "gateway", "gatewayNamespace", default="")),
            uses_pool=backend == "Pool",
        )
        return replace(gate, gateway=chosen)
    if condition is not None and _is_current(condition, state) and not _waits_for_others(condition):
        return gate  # decided: there is no gateway
    text = "Waiting until the gateway part has decided what the route points to"
    result = StepResult(component="Gateway", reason="WaitingForGateway", message=text, blocks_ready=True, pending=True)
    return replace(gate, closed=True, result=result)


def _waits_for_others(condition: Resource) -> bool:
    return category_of(str(condition.get("reason"))) is Category.PROGRESS


# ------------------------------------------------------------------------------------------------------- pod settings


def current_settings(state: ClusterState, host: ProviderHost, gate: Gate) -> RuntimeSettings:
    """The pod settings that a new primary object gets."""
    return runtime_settings(gate.config, labels_of(state.deployment), reserved=host.manifest.reserved_labels)


def changed(state: ClusterState, typed: ModelDeployment, digests: SpecDigests, *, frozen: bool = False) -> bool:
    """Whether the deployment's own spec has changed, in anything but replica counts, ``gateway`` and ``suspend``, since
    the primary object was written. Another name of a runtime config is such a change, unless that config cannot be
    used (`frozen`): then it counts once the config can be used.
    """
    record = state.recorded
    if record is not None:
        return record.lasting != digests.lasting or (is_renamed(state) and not frozen)
    written_for = annotations_of(state.primary or {}).get(names.WRITTEN_FOR, "")
    return written_for != digests.wanted and with_counts_of(written_for, state.deployment, typed) is None


def is_renamed(state: ClusterState) -> bool:
    """Whether the spec names another runtime config than when the primary object was written."""
    record = state.recorded
    return record is not None and record.config not in (None, config_name(state.deployment))


def has_served(state: ClusterState) -> bool:
    """Whether the present primary object has served."""
    if state.primary is None:
        return False
    created = parse_moment(dig(state.primary, "metadata", "creationTimestamp"))
    return served_before(state.deployment.get("status") or {}, created=created) is not None


def is_granted(deployment: Resource) -> bool:
    """Whether the core lets this deployment take new pod settings now (``rollout: Immediately``, in waves)."""
    granted = dig(deployment, "status", "effectiveRuntimeConfig", "rollout") == GRANTED
    published = dig(deployment, "status", "effectiveRuntimeConfig", "hash")
    # A grant is for one config: what changes after that (labels, a newer provider) is not granted by it.
    return bool(granted and dig(deployment, "status", "provider", "runtimeConfigHash") != published)


def keeps(*, exists: bool, changed: bool, served: bool, granted: bool, frozen: bool = False) -> bool:
    """Whether the primary object keeps the pod settings that it was made with; otherwise it gets the current ones (spec
    ruling 23).

    `exists`: there is a primary object. `served`: it serves or has served. `changed`: the deployment's own spec has
    changed since it was written. `frozen`: the config cannot be used.
    """
    return exists and (frozen or (served and not changed and not granted))


def was_written_as(live: Resource, wanted: Resource, *, manager: str) -> bool:
    """Whether the live object was written with the content of `wanted`, whatever became of our annotations.

    The digest of the last write proves it, also where another writer has changed the object since; otherwise the
    content is compared.
    """
    if annotations_of(live).get(names.SPEC_HASH) == annotations_of(wanted).get(names.SPEC_HASH):
        return True
    return has_content_of(wanted, live, manager=manager)


def pods_unknown(primary: Resource) -> Finding:
    """The warning that nothing is written because it is not known with which pod settings the object was made."""
    text = (
        f"the annotation {names.RUNTIME_SETTINGS} of {named(primary)} is missing or was edited, and the object differs "
        "from what the current runtime config gives: nothing is written until the spec changes in more than replica "
        f"counts, or the annotation {names.ADOPT} gets a new value; then the current settings are used"
    )
    return Finding(path="", reason="PodSettingsUnknown", message=text)


def pods_wait(used: RuntimeSettings, current: RuntimeSettings, *, name: str) -> Finding:
    """The warning that pods keep other settings than the published config's. It has names and no values."""
    what = "; ".join(changed_settings(used, current))
    text = (
        "what was changed for pods takes effect with the next change of the spec, or when the annotation "
        f"{names.ADOPT} gets a new value: {what} (runtime config {name})"
    )
    return Finding(path="", reason=NEWER_PODS_WAIT, message=text)


def config_secrets(state: ClusterState) -> dict[str, str]:
    """The Secrets that the pod settings in use name, each with the field of the RuntimeConfig that names it."""
    record = state.recorded
    if record is None:
        return {}
    of = f" of RuntimeConfig {record.config or config_name(state.deployment)}"
    found: dict[str, str] = {}
    for variable in record.pods.env:
        name = dig(variable, "valueFrom", "secretKeyRef", "name")
        if isinstance(name, str):
            found.setdefault(name, f"spec.env[{variable.get('name')}]{of}")
    for position, name in enumerate(record.pods.image_pull_secrets):
        found.setdefault(name, f"spec.imagePullSecrets[{position}]{of}")
    if record.pods.token is not None:
        found[record.pods.token.name] = f"spec.secrets.huggingFaceToken{of}"
    return found


# ------------------------------------------------------------------------------------- the status while nothing is made


def carried_results(deployment: Resource) -> Iterator[StepResult]:
    """The provider's own conditions as they are: a pass that only waits for the config does not change them."""
    for type_ in ("ProviderCompatible", "ResourceCreated"):
        condition = condition_of(deployment, type_)
        if condition is not None and condition.get("status") in ("True", "False"):
            ok = condition["status"] == "True"
            yield StepResult(
                condition=type_,
                ok=ok,
                reason=str(condition.get("reason")),
                message=str(condition.get("message", "")),
                blocks_ready=not ok,
            )


def carried_warnings(deployment: Resource) -> Iterator[Finding]:
    """The warnings as they are, without one about a disagreement."""
    for text in dig(deployment, "status", "warnings") or ():
        if not str(text).startswith(_DIFFERENT):
            yield Finding(path="", reason="Kept", message=str(text))


# --------------------------------------------------------------------------------------------- conditions of others


def foreign_faults(state: ClusterState, host: ProviderHost) -> Iterator[Fault]:
    """The faults of conditions that the core and its parts write and that count for the phase (spec/status.md).

    An older core, without `RuntimeConfigReady`, has none, except that its model cache is off. What waits for others
    counts until the deployment has served; a fault then degrades it. Routing counts only where it was asked for.
    """
    deployment, served = state.deployment, has_served(state)
    ready = condition_of(deployment, CONFIG_READY)
    if ready is None:
        yield from cache_faults(state, host, served=served)
        return
    config = state.resolution.config if state.resolution is not None else None
    invalid = ready.get("reason") == "InvalidSpec" and state.primary is not None
    if not invalid and (fault := _fault(ready, "RuntimeConfig", served=served)) is not None:
        yield fault
    template = condition_of(deployment, TEMPLATE_READY)
    if template is not None and (fault := _fault(template, "Template", served=served)) is not None:
        yield fault
    yield from cache_faults(state, host, served=served)
    storage = condition_of(deployment, "StorageReady")
    if storage is not None and (fault := _fault(storage, STORAGE_COMPONENT, served=served)) is not None:
        yield fault
    if routing_request(deployment, config) is RoutingRequest.REQUIRED:
        gateway = condition_of(deployment, "GatewayReady") or _unanswered(deployment)
        if (fault := _fault(gateway, "Gateway", served=served)) is not None:
            yield fault


def _unanswered(deployment: Resource) -> Resource:
    """What counts where a route was asked for and the gateway part has not said anything."""
    if has_part(deployment, names.GATEWAY_PART):
        return {"status": "False", "reason": "WaitingForGateway", "message": "The gateway part has not answered yet"}
    text = "A route was asked for, and the gateway part is off: start the controller with --gateway=auto"
    return {"status": "False", "reason": "GatewayNotConfigured", "message": text}


def _fault(condition: Resource, component: str, *, served: bool) -> Fault | None:
    if condition.get("status") != "False":
        return None
    reason = str(condition.get("reason"))
    if served and category_of(reason) is Category.PROGRESS:
        return None
    return Fault(
        component=component,
        reason=reason,
        message=str(condition.get("message", "")),
        since=parse_time(condition.get("lastTransitionTime")),
        only_degrades=served,
    )
