"""What ``airunway explain`` says of a deployment's model cache and volumes: its artifact, how far it is, and with which
other artifacts of the same model it shares nothing, and why.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from airunway.resource import Resource, condition_of, controller_owner, dig, key_of

if TYPE_CHECKING:
    from airunway.artifacts.deployments import CacheRequest

__all__ = ["cache_explanation", "cache_lines"]

_KEY = (
    ("source.uri", ("source", "uri")),
    ("source.revision", ("source", "revision")),
    ("source.include", ("source", "include")),
    ("source.exclude", ("source", "exclude")),
    ("storageClassName", ("storageClassName",)),
    ("accessMode", ("accessMode",)),
    ("secrets.huggingFaceToken", ("secrets", "huggingFaceToken")),
)
"""The fields of an artifact's spec that its name is made from (spec/platform.md, "Sharing")."""


def cache_explanation(deployment: Resource, configs: Sequence[Resource], artifacts: Sequence[Resource]) -> Resource:
    """Returns ``modelCache`` and ``volumes`` of a deployment, each only if it has them.

    `configs` are those among which its own is looked up, `artifacts` the ModelArtifacts of its namespace (none without
    a cluster).
    """
    from airunway.artifacts.deployments import request_of
    from airunway.plugins.runtime_settings import resolve_among

    found: Resource = {}
    request = request_of(deployment, resolve_among(deployment, configs).config)
    if request is not None:
        found["modelCache"] = _cache(deployment, request, artifacts)
    volumes = dig(deployment, "spec", "model", "storage", "volumes")
    if isinstance(volumes, list) and volumes:
        found["volumes"] = _volumes(deployment)
    return found


def _cache(deployment: Resource, request: CacheRequest, artifacts: Sequence[Resource]) -> Resource:
    name = dig(deployment, "status", "modelCache", "artifactName") or request.name
    live = next((artifact for artifact in artifacts if key_of(artifact).name == name), None)
    explained: Resource = {
        "mode": dig(deployment, "spec", "model", "cache", "mode"),
        "artifactName": name,
        "mountPath": request.mount_path,
        "path": request.path,
        "found": live is not None,
        "ready": _condition(deployment, "ModelCacheReady"),
    }
    wanted = live or request.artifact
    if wanted is None:
        return explained
    explained["source"] = {**(dig(wanted, "spec", "source") or {})}
    if live is not None:
        explained["artifact"] = _state(live)
        users = dig(live, "status", "usedBy") or []
        explained["sharedWith"] = [user for user in users if user != key_of(deployment).name]
    explained["notSharedWith"] = [
        {"artifactName": key_of(other).name, "because": because}
        for other in artifacts
        if key_of(other).name != name and _model_of(other) == _model_of(wanted) and (because := _differ(wanted, other))
    ]
    return explained


def _state(artifact: Resource) -> Resource:
    status = artifact.get("status") or {}
    fields = ("phase", "reason", "message", "progress", "download", "allocatedSize", "resolvedRevision", "users")
    return {
        **{field: status[field] for field in fields if field in status},
        **({"claimName": claim} if (claim := status.get("persistentVolumeClaim")) else {}),
    }


def _model_of(artifact: Resource) -> str:
    """Owner and name of the model, or the bucket with its prefix."""
    uri = str(dig(artifact, "spec", "source", "uri", default=""))
    scheme, _, rest = uri.partition("://")
    return f"{scheme}://{'/'.join(rest.split('/')[:2])}" if scheme == "hf" else uri


def _differ(wanted: Resource, other: Resource) -> list[str]:
    """Which parts of the key differ, as ``field: here, there``."""
    found = []
    for label, path in _KEY:
        here, there = dig(wanted, "spec", *path), dig(other, "spec", *path)
        if (here or None) != (there or None):
            found.append(f"{label}: {_text(here)} here, {_text(there)} there")
    own, owner = controller_owner(wanted), controller_owner(other)
    if dig(own, "uid") != dig(owner, "uid"):
        found.append(
            f"it is Dedicated to ModelDeployment {owner.get('name')}" if owner else "it is Shared, this is not"
        )
    return found or ["it was made by a user: name it with spec.model.cache.artifactName to use it"]


def _text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value) if value else "none"


def _volumes(deployment: Resource) -> Resource:
    from airunway.api.modeldeployment import volume_claim_name

    claims = []
    for volume in dig(deployment, "spec", "model", "storage", "volumes"):
        size, claim = dig(volume, "size"), dig(volume, "claimName")
        name = claim or volume_claim_name(key_of(deployment).name, str(dig(volume, "name")))
        claims.append({"name": dig(volume, "name"), "claimName": name, **({"size": str(size)} if size else {})})
    return {"claims": claims, "ready": _condition(deployment, "StorageReady")}


def _condition(deployment: Resource, type_: str) -> Resource | None:
    found = condition_of(deployment, type_)
    return {key: found.get(key) for key in ("status", "reason", "message")} if found is not None else None


# ---------------------------------------------------------------------------------------------------------------- lines


def cache_lines(explained: Resource) -> Iterator[str]:
    """The explanation for people; nothing for a deployment without cache and volumes."""
    if (cache := explained.get("modelCache")) is not None:
        yield from _cache_lines(cache)
    if (volumes := explained.get("volumes")) is not None:
        yield "Volumes:"
        for claim in volumes["claims"]:
            made = f"made with {claim['size']}" if "size" in claim else "an existing one"
            yield f"  {claim['name']}: claim {claim['claimName']} ({made})"
        yield from _ready(volumes["ready"])


def _cache_lines(cache: Resource) -> Iterator[str]:
    source = cache.get("source") or {}
    revision = f" at {source['revision']}" if source.get("revision") else ""
    origin = f" ({source['uri']}{revision})" if source.get("uri") else ""
    yield f"Cache:     {cache['mode']}, ModelArtifact {cache['artifactName']}{origin}"
    artifact = cache.get("artifact")
    if artifact is None:
        yield "  It does not exist" + ("." if cache.get("source") is None else "; it is made for this deployment.")
    else:
        yield f"  State:   {artifact.get('phase', 'none')} ({artifact.get('reason', 'not reconciled yet')})"
        if artifact.get("message"):
            yield f"           {artifact['message']}"
        yield from _progress(artifact)
        if claim := artifact.get("claimName"):
            yield f"  Claim:   {claim} ({artifact.get('allocatedSize', 'size not known yet')})"
    yield f"  Mount:   {cache['mountPath']}, read-only; the weights are at {cache['path']}"
    shared = cache.get("sharedWith")
    if shared is not None:
        yield f"  Shared:  with {', '.join(shared)}" if shared else "  Shared:  with no other deployment"
    for other in cache.get("notSharedWith") or ():
        yield f"  Not shared with ModelArtifact {other['artifactName']} of the same model:"
        for because in other["because"]:
            yield f"    {because}"
    yield from _ready(cache["ready"])


def _progress(artifact: Resource) -> Iterator[str]:
    progress = artifact.get("progress") or {}
    if artifact.get("phase") != "Ready" and "percentage" in progress:
        gigabytes = f"{progress['downloadedBytes'] / 1e9:.1f} of {progress['totalBytes'] / 1e9:.1f} GB"
        speed = f", {progress['bytesPerSecond'] / 1e6:.0f} MB/s" if "bytesPerSecond" in progress else ""
        end = f", done about {progress['estimatedCompletion']}" if "estimatedCompletion" in progress else ""
        yield f"  Done:    {progress['percentage']} % ({gigabytes}{speed}{end})"
    download = artifact.get("download") or {}
    if "nextAttemptTime" in download:
        yield f"  Next:    try {download.get('attempts', 0) + 1} at {download['nextAttemptTime']}"


def _ready(ready: Resource | None) -> Iterator[str]:
    if ready is not None:
        yield f"  Ready:   {ready['status']} ({ready['reason']}) {ready['message'] or ''}".rstrip()
