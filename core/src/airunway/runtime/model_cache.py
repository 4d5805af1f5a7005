"""Which model cache a pass works with, and whether it may write before the weights are there (platform.md). Pure.

Example: ``llama`` serves from the claim ``llama-cache-1``, which is lost. The part fetches the weights anew under
``llama-cache-2``. Until that is Ready the live object keeps ``llama-cache-1``. Then it takes ``llama-cache-2``: with
the next change of its spec, when the core grants the claim (`controller.waves`), or at once if no pod serves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from airunway.api import names
from airunway.artifacts.deployments import CONDITION, MOUNT_PATH, SUB_PATH, request_of, wants_cache
from airunway.configs import EffectiveConfig
from airunway.plugins.contract import Finding, ModelCache, Observation
from airunway.plugins.errors import PluginFault
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource, condition_of, dig, parse_time
from airunway.runtime.report import CACHE_COMPONENT, StepResult
from airunway.runtime.state import ClusterState
from airunway.sdk.pods import ONE_POD
from airunway.status import Category, Fault, category_of

__all__ = [
    "NEWER_WEIGHTS_WAIT",
    "CacheVerdict",
    "assumed_cache",
    "cache_faults",
    "cache_reads",
    "cache_verdict",
    "is_claim_granted",
    "newer_weights_wait",
    "still_serves",
]

NEWER_WEIGHTS_WAIT = "NewerWeightsWait"
"""Reason of the warning that a new copy of the weights waits for a grant or a change of the spec."""

_ON = "start the controller with --model-cache=on"
_WHERE = "the condition ModelCacheReady says how far it is"


@dataclass(frozen=True, kw_only=True)
class CacheVerdict:
    """What the model cache allows in a pass."""

    cache: ModelCache | None = None
    """The cache that a new object gets: the one that is Ready, or the one that the live object has."""
    closed: bool = False
    """Nothing is written; what runs is read and reported."""
    result: StepResult | None = None
    """Why it is closed, where no condition of the part says it."""
    late: StepResult | None = None
    """The result where what runs is not of the newest spec."""
    planned: str = ""
    """What a dry run says about the cache: which claim would be mounted."""


def cache_verdict(state: ClusterState, host: ProviderHost, *, changed: bool) -> CacheVerdict:
    """What the cache allows for a deployment whose spec is valid and whose runtime config is known.

    `changed`: the spec has changed, in anything but replica counts, ``gateway`` and ``suspend``, since the live object
    was written; True without one.
    """
    if not _is_asked_for(state, host):
        return CacheVerdict()
    ready, kept = _ready(state), state.recorded.cache if state.recorded is not None else None
    if ready is not None:
        return CacheVerdict(cache=ready, planned=f"pods mount claim {ready.claim} at {ready.mount_path}")
    keeps = state.primary is not None and kept is not None and not changed
    if keeps and kept is not None and not _may_conflict(state, kept):
        return CacheVerdict(cache=kept, planned=f"pods keep claim {kept.claim} at {kept.mount_path}")
    if dig(state.deployment, "spec", "suspend") is True or (state.dry_run and _is_coming(state)):
        cache = _expected(state)
        text = f"pods would mount the claim of ModelArtifact {_artifact(state)} at {cache.mount_path}: {_said(state)}"
        return CacheVerdict(cache=cache, planned=text)
    unanswered = names.MODEL_CACHE_PART in state.parts and (state.condition(CONDITION) or {}).get("status") != "False"
    text = "Waiting until the model cache part has answered for this spec"
    result = _waits(text) if unanswered and state.primary is None else None
    return CacheVerdict(closed=True, result=result, late=_waits(_late(state)))


def assumed_cache(deployment: Resource, config: EffectiveConfig | None, host: ProviderHost) -> ModelCache | None:
    """The cache for a preview without a cluster: the name of the claim is not known before it is made."""
    request = request_of(deployment, config)
    if request is None or not _can_use_one(deployment, host):
        return None
    return _cache(
        {
            "claimName": f"{request.name}-cache",
            "mountPath": request.mount_path,
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


def _ready(state: ClusterState) -> ModelCache | None:
    """The cache that the part has published as Ready for this generation."""
    if names.MODEL_CACHE_PART not in state.parts or (state.condition(CONDITION) or {}).get("status") != "True":
        return None
    found = dig(state.deployment, "status", "modelCache")
    return _cache(found) if dig(found, "ready") is True and dig(found, "claimName") else None


def _expected(state: ClusterState) -> ModelCache:
    """The cache that a deployment without a Ready one would get. Its claim may not exist yet."""
    found = dig(state.deployment, "status", "modelCache")
    claim = dig(found, "claimName") or f"{_artifact(state)}-cache"
    return _cache({**(found if isinstance(found, dict) else {}), "claimName": claim})


def _cache(found: Resource) -> ModelCache:
    """The values of ``status.modelCache``; a part of an older release does not publish the access mode."""
    return ModelCache(
        claim=str(dig(found, "claimName")),
        sub_path=SUB_PATH,
        mount_path=str(dig(found, "mountPath", default="") or MOUNT_PATH),
        path=str(dig(found, "path", default="")),
        access_mode=str(dig(found, "accessMode", default="")),
    )


def _artifact(state: ClusterState) -> str:
    return str(dig(state.deployment, "status", "modelCache", "artifactName", default="") or "of the model")


def _may_conflict(state: ClusterState, kept: ModelCache) -> bool:
    """Whether the part has found, or may still find, that more pods would mount the claim than it allows."""
    if kept.access_mode not in ONE_POD or names.MODEL_CACHE_PART not in state.parts:
        return False
    found = state.condition(CONDITION)
    return found is None or found.get("reason") == "AccessModeConflict"


def _is_coming(state: ClusterState) -> bool:
    found = state.condition(CONDITION)
    return found is not None and category_of(str(found.get("reason"))) is Category.PROGRESS


def _said(state: ClusterState) -> str:
    return str((state.condition(CONDITION) or {}).get("message") or "its weights are not complete yet")


def _waits(text: str) -> StepResult:
    return StepResult(component=CACHE_COMPONENT, reason="WaitingForModelCache", message=text, blocks_ready=True)


def _late(state: ClusterState) -> str:
    if names.MODEL_CACHE_PART not in state.parts:
        return f"The newest spec is applied once the model cache part is on: {_ON}"
    found = state.condition(CONDITION)
    if found is not None and found.get("reason") == "AccessModeConflict":
        return f"The newest spec is not applied: {found.get('message')}"
    return f"The newest spec is applied once the model cache is Ready for it; {_WHERE}"


# ------------------------------------------------------------------------------------------------------- a lost cache


def is_claim_granted(deployment: Resource, cache: ModelCache | None) -> bool:
    """Whether the core lets a deployment that serves take this cache now."""
    return cache is not None and dig(deployment, "status", "rollout", "claimName") == cache.claim


def still_serves(state: ClusterState, observed: Observation | PluginFault | None) -> bool:
    """Whether a pod serves, as far as it is known: then a new copy of the weights is not taken unasked."""
    evidence = state.evidence
    if evidence is None or not isinstance(observed, Observation):
        return True
    if any(pod.alive and pod.serves and pod.ready for pod in evidence.pods):
        return True
    counts = observed.replicas
    return counts.ready > 0 if counts is not None else any(each.ready is True for each in observed.components)


def newer_weights_wait(used: ModelCache | None, ready: ModelCache) -> Finding:
    """The warning that pods keep the claim that they have."""
    text = (
        f"the weights were fetched anew; claim {ready.claim} replaces {used.claim if used else 'none'} when the core "
        "grants it, with the next change of the spec, or at once if no pod serves"
    )
    return Finding(path="", reason=NEWER_WEIGHTS_WAIT, message=text)


# ------------------------------------------------------------------------------------------- what counts for the phase


def cache_faults(state: ClusterState, host: ProviderHost) -> Iterator[Fault]:
    """The fault of a cache that was asked for and is not Ready.

    What only waits counts until the deployment has served; a fault then degrades it. The messages of a download that
    is under way stay on the part's condition: its progress must not bring a pass here.
    """
    deployment, served = state.deployment, state.served
    if not _is_asked_for(state, host) or dig(deployment, "spec", "suspend") is True:
        return
    if names.MODEL_CACHE_PART not in state.parts:
        text = f"spec.model.cache.mode asks for a model cache, and the model cache part is off: {_ON}"
        yield Fault(component=CACHE_COMPONENT, reason="ModelCacheNotEnabled", message=text, only_degrades=served)
        return
    condition = condition_of(deployment, CONDITION) or {}
    reason = str(condition.get("reason"))
    if condition.get("status") != "False" or (served and category_of(reason) is Category.PROGRESS):
        return
    yield Fault(
        component=CACHE_COMPONENT,
        reason=reason,
        message=_fault_text(deployment, reason) or str(condition.get("message", "")),
        since=parse_time(condition.get("lastTransitionTime")),
        only_degrades=served,
    )


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
