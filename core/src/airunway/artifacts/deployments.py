"""What a deployment asks of the model cache, and what the part makes and says for it (docs/model-cache.md). Pure.

Deployments with equal requests have the same artifact name, whichever comes first (docs/model-cache.md).

Example: ``llama`` asks for ``mode: Shared`` and no artifact has its weights yet. The decision has the ModelArtifact to
create and ``ModelCacheReady=False/Starting``; once the artifact is Ready, claim and path stand in `status.modelCache`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from airunway.api import names
from airunway.api.bounds import EXCESS
from airunway.api.rules import MODEL_CACHE_PATH
from airunway.artifacts.claims import content_name, is_content_of, is_smaller
from airunway.artifacts.status import is_made
from airunway.configs.resolution import BUILT_IN, EffectiveConfig, config_name
from airunway.references import is_path
from airunway.resource import (
    Resource,
    condition_of,
    controller_owner,
    dig,
    is_deleting,
    is_true,
    key_of,
    mapping_at,
    owner_reference,
    text_at,
    uid_of,
)
from airunway.status.conditions import Condition, is_dry_run, is_paused, is_validated
from airunway.status.reasons import Category, category_of

CONDITION = "ModelCacheReady"
"""The condition that this part writes on deployments that ask for a cache."""

_STEP = 10
"""Percent of a download between two messages on a deployment."""

_SINGLE = frozenset({"ReadWriteOnce", "ReadWriteOncePod"})
"""Access modes of claims that only one pod can mount."""


@dataclass(frozen=True, kw_only=True)
class CacheFacts:
    """Everything that the decision depends on."""

    deployment: Resource
    """The deployment."""
    request: CacheRequest | None
    """What it asks for; None: no cache."""
    artifact: Resource | None = None
    """The ModelArtifact of the request's name; None if there is none."""
    access_mode: str = ""
    """Access mode of the artifact's claim, or what its config gives the next one; empty if there is no artifact."""
    config_unusable: bool = False
    """Whether the deployment's runtime config does not exist, or is not allowed."""
    engine: Resource | None = None
    """The entry of the provider's capabilities for the engine in use; None if it is not known yet."""
    others: int = 0
    """Other deployments that use the artifact, and come first where one pod can mount the claim."""


@dataclass(frozen=True, kw_only=True)
class CacheDecision:
    """What to make and what to say."""

    write_status: bool = True
    """False: the status stays as it is."""
    artifact: Resource | None = None
    """The ModelArtifact to create; None: none is missing."""
    model_cache: Resource | None = None
    """``status.modelCache``; None: it is withdrawn."""
    condition: Condition | None = None
    """``ModelCacheReady``; None: it is withdrawn."""


def is_usable(artifact: Resource) -> bool:
    """Whether the weights are complete on the artifact's claim, whatever else is wrong with the artifact: a runtime
    config that is deleted takes no cache away.
    """
    status = artifact.get("status")
    claim, filled = dig(status, "persistentVolumeClaim"), dig(status, "completed", "claimUID")
    return all(isinstance(each, str) and each for each in (claim, filled)) and not is_deleting(artifact)


def wants_cache(deployment: Resource) -> bool:
    """Whether a deployment asks for a model cache."""
    return dig(deployment, "spec", "model", "cache", "mode") in ("Shared", "Dedicated")


def decide_cache(facts: CacheFacts) -> CacheDecision:
    """The decision for one deployment. Total for any JSON."""
    deployment = facts.deployment
    if is_left_alone(deployment):
        return CacheDecision(write_status=False)
    if facts.request is None:
        return CacheDecision()
    if (waiting := _not_yet(facts)) is not None:
        return waiting
    request, artifact = facts.request, facts.artifact
    if (problem := _problem(facts)) is not None:
        return _for_template(deployment, _no(request, *problem, claim=_kept_claim(facts)))
    if artifact is None:
        return _for_template(deployment, _without_artifact(facts, request))
    return _for_template(deployment, _with_artifact(facts, request, artifact))


def _for_template(deployment: Resource, decision: CacheDecision) -> CacheDecision:
    """The decision with the hash of what the deployment's template gives: an edited template changes the effective spec
    without a new generation, and a provider must know an answer to the spec of before.
    """
    given = text_at(deployment, "status", "effectiveTemplate", "hash")
    if decision.model_cache is None or not given:
        return decision
    return replace(decision, model_cache={**decision.model_cache, "templateHash": given})


def _not_yet(facts: CacheFacts) -> CacheDecision | None:
    """The decision while the config or the provider are not known; None once they are."""
    if facts.engine is None:  # no provider yet, or one that has not registered: its own conditions say so
        return CacheDecision(write_status=False)
    if facts.engine.get("modelCache") is not True:  # the core calls it incompatible, and nothing is made for it
        return CacheDecision()
    if facts.config_unusable:
        text = "The runtime config cannot be used (condition RuntimeConfigReady); the cache waits for it"
        return _no(facts.request, "WaitingForConfig", text, claim=_kept_claim(facts))
    return None


def is_left_alone(deployment: Resource) -> bool:
    """Whether the model cache part leaves everything as it is: the deployment is being deleted or paused, the core has
    not validated this generation, or the object is over the limits of size: it is cached without most of its spec.
    """
    return is_deleting(deployment) or is_paused(deployment) or not is_validated(deployment) or EXCESS in deployment


def _problem(facts: CacheFacts) -> tuple[str, str] | None:
    """Reason and message of what only a change of the spec mends; None if there is nothing."""
    request = facts.request
    assert request is not None, "asked after the request is known"
    mode = _access_mode(facts, request)
    pods = pods_that_mount(facts.deployment, facts.engine)
    if mode in _SINGLE and (pods > 1 or facts.others):
        why = f"{pods} pods of this deployment" if pods > 1 else f"{facts.others} other deployments"
        text = (
            f"the claim of ModelArtifact {request.name} has the access mode {mode}, which one pod can mount, and {why} "
            "would mount it: set spec.model.cache.accessMode to ReadWriteMany with a StorageClass that offers it, or "
            "mode: Dedicated with one replica"
        )
        return "AccessModeConflict", text
    if facts.artifact is not None and _is_derived(facts.deployment, request) and not _is_meant(facts.artifact, request):
        text = (
            f"ModelArtifact {request.name} has the name of the one that is made for {request.uri or 'a template'}, and "
            "is not what the model cache makes: a user created it, or edited what it fetches; delete it, or name one "
            "with spec.model.cache.artifactName"
        )
        return "ResourceConflict", text
    return None


def _is_meant(artifact: Resource, request: CacheRequest) -> bool:
    """Whether an artifact is what the part makes for the request; a template's own one only has its name."""
    wanted = request.artifact
    return is_made(artifact) and (wanted is None or is_content_of(artifact, wanted))


def _is_derived(deployment: Resource, request: CacheRequest) -> bool:
    """Whether the name of the artifact is one that the part gives, for the deployment or for its template."""
    given = text_at(deployment, "status", "revision", "template", "spec", "model", "cache", "artifactName")
    return request.artifact is not None or request.name == given


def _access_mode(facts: CacheFacts, request: CacheRequest) -> str:
    return facts.access_mode or request.access_mode


def _without_artifact(facts: CacheFacts, request: CacheRequest) -> CacheDecision:
    deployment, namespace = facts.deployment, key_of(facts.deployment).namespace
    if request.artifact is None:
        text = (
            f"spec.model.cache.artifactName: there is no ModelArtifact {request.name} in namespace {namespace}; "
            "create it or name another one"
        )
        return _no(request, "ReferenceNotFound", text, claim=_kept_claim(facts))
    if dig(deployment, "spec", "suspend") is True:
        text = "The deployment is suspended; its weights are fetched when it is resumed"
        return _no(request, "Suspended", text, claim=_kept_claim(facts))
    if is_dry_run(deployment):
        text = f"would create ModelArtifact {request.name} for {request.uri}, its claim and its download"
        return _no(request, "DryRun", text)
    if _had_cache(facts):
        text = f"ModelArtifact {request.name} is gone; the weights are fetched again, and what serves goes on"
        return _no(request, "CacheLost", text, claim=_kept_claim(facts), artifact=request.artifact)
    text = f"ModelArtifact {request.name} is created for {request.uri}"
    return _no(request, "Starting", text, artifact=request.artifact)


def _with_artifact(facts: CacheFacts, request: CacheRequest, artifact: Resource) -> CacheDecision:
    if is_usable(artifact):
        claim = artifact["status"]["persistentVolumeClaim"]
        cache = _model_cache(request, claim, ready=True) | {"accessMode": _access_mode(facts, request)}
        text = f"ModelArtifact {request.name} is Ready on claim {claim}{_size_remark(facts, artifact)}"
        condition = Condition(type=CONDITION, status=True, reason="Ready", message=text)
        return CacheDecision(model_cache=cache, condition=condition)
    reason, message = _unready(artifact, request)
    if _had_cache(facts):
        text = f"the cached weights are gone and are fetched again: {message}"
        return _no(request, "CacheLost", text, claim=_kept_claim(facts))
    return _no(request, reason, message)


def _size_remark(facts: CacheFacts, artifact: Resource) -> str:
    """What the message adds where the deployment asks for a larger claim than there is."""
    asked, there = dig(facts.deployment, "spec", "model", "cache", "size"), dig(artifact, "status", "allocatedSize")
    if not is_smaller(there, asked):
        return ""
    return (
        f"; spec.model.cache.size {asked} changes nothing, because the claim exists with {there}: raise spec.size of "
        f"ModelArtifact {key_of(artifact).name}"
    )


def _unready(artifact: Resource, request: CacheRequest) -> tuple[str, str]:
    """Reason and message of an artifact that is not Ready, with its progress in steps of ten percent."""
    status = artifact.get("status") or {}
    # The artifact's own reason is that of its phase ("AuthFailed"); its children say precisely what is wrong.
    children = (condition_of(artifact, name) or {} for name in ("RuntimeConfigReady", "StorageReady", "DownloadReady"))
    faults = [each for each in children if each.get("status") == "False"]
    faults.sort(key=lambda each: category_of(str(each.get("reason"))) is Category.PROGRESS)
    if not faults or status.get("observedGeneration") is None:
        return "Starting", f"ModelArtifact {request.name} has not been reconciled yet"
    # Of two that only wait, the download says more than its claim.
    waits = category_of(str(faults[0].get("reason"))) is Category.PROGRESS
    fault = faults[-1] if waits else faults[0]
    reason, message = str(fault.get("reason")), str(fault.get("message", ""))
    done, total = dig(status, "progress", "percentage"), dig(status, "progress", "totalBytes")
    if waits and isinstance(done, int | float) and isinstance(total, int):
        step = int(done) // _STEP * _STEP
        return reason, f"ModelArtifact {request.name}: {step} % of {_amount(total)} fetched"
    return reason, f"ModelArtifact {request.name}: {message or reason}"


def _had_cache(facts: CacheFacts) -> bool:
    """Whether the weights of this request were complete once and are not any more."""
    before = condition_of(facts.deployment, CONDITION) or {}
    live = _live_cache(facts)
    return bool(live) and (live.get("ready") is True or before.get("reason") == "CacheLost")


def _kept_claim(facts: CacheFacts) -> str:
    """The claim that the status names for the same artifact: what serves goes on with it."""
    return text_at(_live_cache(facts), "claimName")


def _live_cache(facts: CacheFacts) -> Resource:
    """``status.modelCache`` if it is about the artifact of this request; else empty."""
    live = mapping_at(facts.deployment, "status", "modelCache")
    return live if facts.request is not None and live.get("artifactName") == facts.request.name else {}


def _no(
    request: CacheRequest | None, reason: str, text: str, *, claim: str = "", artifact: Resource | None = None
) -> CacheDecision:
    condition = Condition(type=CONDITION, status=False, reason=reason, message=text)
    cache = _model_cache(request, claim, ready=False) if request is not None else None
    return CacheDecision(artifact=artifact, model_cache=cache, condition=condition)


def _model_cache(request: CacheRequest, claim: str, *, ready: bool) -> Resource:
    found = {"claimName": claim} if claim else {}
    return {
        "artifactName": request.name,
        **found,
        "mountPath": MODEL_CACHE_PATH,
        "path": request.path,
        "ready": ready,
    }


def pods_that_mount(deployment: Resource, engine: Resource | None) -> int:
    """How many pods of a deployment mount its cache: its replicas, and the helpers that the provider publishes."""
    helpers = dig(engine, "modelCacheHelpers")
    return sum(_replicas(deployment)) + (helpers if isinstance(helpers, int) else 0)


def _replicas(deployment: Resource) -> Iterator[int]:
    scaling = dig(deployment, "spec", "scaling")
    split = dig(deployment, "spec", "serving", "mode") == "disaggregated"
    for each in [dig(scaling, "prefill"), dig(scaling, "decode")] if split else [scaling]:
        count = dig(each, "replicas")
        yield count if isinstance(count, int) and count >= 0 else 1


def _amount(count: int) -> str:
    """Bytes for people: ``134.6 GB``."""
    value, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit in ("B", "kB") else f"{value:.1f} {unit}"


# --------------------------------------------------------------------------------------------------- what is asked for


SUB_PATH = "model"
"""The folder of the claim that pods mount: the downloader puts the verified tree of the weights there."""


@dataclass(frozen=True, kw_only=True)
class CacheRequest:
    """What a deployment asks for."""

    name: str
    """Name of the artifact, in the deployment's namespace."""
    uri: str = ""
    """Source of the weights; empty if the deployment names an artifact."""
    access_mode: str = "ReadWriteMany"
    """Access mode of the claim, unless the artifact says another one."""
    artifact: Resource | None = None
    """The ModelArtifact to create if there is none of that name; None if the deployment names one."""
    path: str = MODEL_CACHE_PATH
    """Where the weights are in a pod."""


def request_of(deployment: Resource, config: EffectiveConfig | None) -> CacheRequest | None:
    """What the deployment asks for under its config; None if it asks for no cache, or for one without a model. A path
    has no repository: ``/data/model`` is not the repository ``data/model`` of a hub.

    Total for any JSON.
    """
    cache = dig(deployment, "spec", "model", "cache")
    mode = dig(cache, "mode")
    if mode not in ("Shared", "Dedicated"):
        return None
    if is_path(text_at(deployment, "spec", "model", "id")):
        return None
    model = _model(deployment)
    if named := text_at(cache, "artifactName"):
        return CacheRequest(name=named, access_mode=_asked_mode(deployment, config), path=_path(model))
    if not model or dig(deployment, "spec", "model", "source") not in (None, "", "huggingface"):
        return None
    return request_for(deployment, config, uri=f"hf://{model}", dedicated=mode == "Dedicated")


def request_for(
    deployment: Resource, config: EffectiveConfig | None, *, uri: str, name: str = "", dedicated: bool = False
) -> CacheRequest:
    """The request for an artifact of the weights at `uri`; without a `name`, one that follows from what is asked for.

    Total for any JSON.
    """
    model, access = _model(deployment), _asked_mode(deployment, config)
    spec = _spec(deployment, config, uri=uri, model=model, access=access)
    owner = uid_of(deployment) if dedicated else ""
    name = name or content_name(spec, key_of(deployment).namespace, owner=owner)
    artifact = _artifact(deployment, name, spec, dedicated=dedicated)
    return CacheRequest(name=name, uri=uri, access_mode=access, artifact=artifact, path=_path(model))


def _model(deployment: Resource) -> str:
    return text_at(deployment, "spec", "model", "id").strip("/")


def _asked_mode(deployment: Resource, config: EffectiveConfig | None) -> str:
    return text_at(deployment, "spec", "model", "cache", "accessMode") or (config or BUILT_IN).storage.access_mode


def artifact_of(deployment: Resource, request: CacheRequest | None, live: Resource | None) -> CacheRequest | None:
    """The request with the artifact that the deployment uses already, if this part made it, it has the same weights,
    and either is complete, or differs in the StorageClass only and has its claim.

    A new default of its runtime config (a StorageClass; of complete weights an access mode or a token, too) fetches
    nothing again. Before the claim is bound nothing was fetched: a class that does not exist is
    followed no longer.
    """
    if request is None or request.artifact is None or live is None or is_deleting(live):
        return request
    wanted, spec, own = request.artifact["spec"], live.get("spec"), dig(deployment, "spec", "model", "cache")
    token = text_at(deployment, "spec", "secrets", "huggingFaceToken")
    same = (
        dig(spec, "source") == wanted["source"]
        and (controller_owner(live) is None) == (controller_owner(request.artifact) is None)
        and all(text_at(own, field) in ("", dig(spec, field)) for field in ("storageClassName", "accessMode"))
        and token in ("", dig(spec, *_TOKEN))
        and dig(own, "caBundle") in (None, dig(spec, "caBundle"))
    )
    begun = (
        is_true(live, "StorageReady")
        and dig(spec, "accessMode") == wanted["accessMode"]
        and dig(spec, *_TOKEN) == dig(wanted, *_TOKEN)
    )
    kept = same and is_made(live) and (begun or is_usable(live))
    return replace(request, name=key_of(live).name, artifact=live) if kept else request


_TOKEN = ("secrets", "huggingFaceToken")


def _path(model: str) -> str:
    """Where the weights are: the mount path, or the file or folder below it that the id names after the repository."""
    below = "/".join(model.split("/")[2:])
    return f"{MODEL_CACHE_PATH}/{below}" if below else MODEL_CACHE_PATH


def _spec(deployment: Resource, config: EffectiveConfig | None, *, uri: str, model: str, access: str) -> Resource:
    spec = deployment.get("spec") or {}
    cache = dig(spec, "model", "cache")
    source = {"uri": uri}
    if revision := text_at(cache, "revision"):
        source["revision"] = revision
    token = text_at(spec, "secrets", "huggingFaceToken") or (config or BUILT_IN).token
    made: Resource = {
        "source": source,
        "modelId": model,
        "size": dig(cache, "size"),
        "storageClassName": text_at(cache, "storageClassName") or (config or BUILT_IN).storage.class_name,
        "accessMode": access,
        "secrets": {"huggingFaceToken": token} if token else None,
        "nodeSelector": spec.get("nodeSelector"),
        "tolerations": spec.get("tolerations"),
        "runtimeConfigName": config_name(deployment),
        "caBundle": dig(cache, "caBundle"),
    }
    return {key: value for key, value in made.items() if value}


def _artifact(deployment: Resource, name: str, spec: Resource, *, dedicated: bool) -> Resource:
    labels = {names.MANAGED_BY: names.MANAGED_BY_VALUE, names.PART: names.MODEL_CACHE_PART}
    metadata: Resource = {"name": name, "namespace": key_of(deployment).namespace, "labels": labels}
    if dedicated:
        labels[names.MODEL_DEPLOYMENT] = key_of(deployment).name
        metadata["ownerReferences"] = [owner_reference(deployment)]
    return {"apiVersion": names.API_VERSION, "kind": "ModelArtifact", "metadata": metadata, "spec": spec}
