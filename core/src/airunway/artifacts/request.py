"""What a deployment asks of the model cache: which artifact, and where its pods find the weights. Pure.

Deployments with equal requests have the same artifact name, whichever comes first (spec/platform.md, "Sharing").
"""

from __future__ import annotations

from dataclasses import dataclass

from airunway.api import names
from airunway.artifacts.names import artifact_name
from airunway.configs import EffectiveConfig, config_name
from airunway.resource import Resource, dig, key_of, owner_reference, uid_of

__all__ = ["MOUNT_PATH", "SUB_PATH", "CacheRequest", "request_for", "request_of"]

MOUNT_PATH = "/model-cache"
"""Where pods mount the claim."""

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
    mount_path: str = MOUNT_PATH
    """Where pods mount the claim."""
    path: str = MOUNT_PATH
    """Where the weights are in a pod."""


def request_of(deployment: Resource, config: EffectiveConfig | None) -> CacheRequest | None:
    """What the deployment asks for under its config; None if it asks for no cache, or for one without a model.

    Total for any JSON.
    """
    cache = dig(deployment, "spec", "model", "cache")
    mode = dig(cache, "mode")
    if mode not in ("Shared", "Dedicated"):
        return None
    model = _text(dig(deployment, "spec", "model", "id")).strip("/")
    named = _text(dig(cache, "artifactName"))
    access = _text(dig(cache, "accessMode")) or (config.storage.access_mode if config is not None else "ReadWriteMany")
    if named:
        return CacheRequest(name=named, access_mode=access, path=_path(model))
    if not model or dig(deployment, "spec", "model", "source") not in (None, "", "huggingface"):
        return None
    uri = f"hf://{model}"
    spec = _spec(deployment, cache, config, uri=uri, model=model, access=access)
    name = _name(deployment, spec, dedicated=mode == "Dedicated")
    artifact = _artifact(deployment, name, spec, dedicated=mode == "Dedicated")
    return CacheRequest(name=name, uri=uri, access_mode=access, artifact=artifact, path=_path(model))


def request_for(deployment: Resource, config: EffectiveConfig | None, *, uri: str, name: str) -> CacheRequest:
    """The request for a shared artifact of weights that no model's id names, such as those of a bucket.

    Total for any JSON.
    """
    model, cache = _text(dig(deployment, "spec", "model", "id")).strip("/"), dig(deployment, "spec", "model", "cache")
    access = _text(dig(cache, "accessMode")) or (config.storage.access_mode if config is not None else "ReadWriteMany")
    spec = _spec(deployment, cache, config, uri=uri, model=model, access=access)
    artifact = _artifact(deployment, name, spec, dedicated=False)
    return CacheRequest(name=name, uri=uri, access_mode=access, artifact=artifact, path=_path(model))


def _path(model: str) -> str:
    """Where the weights are: the mount path, or the file or folder below it that the id names after the repository."""
    below = "/".join(model.split("/")[2:])
    return f"{MOUNT_PATH}/{below}" if below else MOUNT_PATH


def _spec(
    deployment: Resource, cache: object, config: EffectiveConfig | None, *, uri: str, model: str, access: str
) -> Resource:
    spec = deployment.get("spec") or {}
    source = {"uri": uri}
    if revision := _text(dig(cache, "revision")):
        source["revision"] = revision
    token = _text(dig(spec, "secrets", "huggingFaceToken")) or (config.token if config is not None else "")
    made: Resource = {
        "source": source,
        "modelId": model,
        "size": dig(cache, "size"),
        "storageClassName": _text(dig(cache, "storageClassName"))
        or (config.storage.class_name if config is not None else ""),
        "accessMode": access,
        "secrets": {"huggingFaceToken": token} if token else None,
        "nodeSelector": spec.get("nodeSelector"),
        "tolerations": spec.get("tolerations"),
        "runtimeConfigName": config_name(deployment),
    }
    return {key: value for key, value in made.items() if value}


def _name(deployment: Resource, spec: Resource, *, dedicated: bool) -> str:
    source = spec["source"]
    return artifact_name(
        source["uri"],
        key_of(deployment).namespace,
        source.get("revision", ""),
        spec.get("storageClassName", ""),
        spec["accessMode"],
        dig(spec, "secrets", "huggingFaceToken", default=""),
        uid_of(deployment) if dedicated else "",
    )


def _artifact(deployment: Resource, name: str, spec: Resource, *, dedicated: bool) -> Resource:
    labels = {names.MANAGED_BY: names.MANAGED_BY_VALUE, names.PART: names.MODEL_CACHE_PART}
    metadata: Resource = {"name": name, "namespace": key_of(deployment).namespace, "labels": labels}
    if dedicated:
        labels[names.MODEL_DEPLOYMENT] = key_of(deployment).name
        metadata["ownerReferences"] = [owner_reference(deployment)]
    return {"apiVersion": names.API_VERSION, "kind": "ModelArtifact", "metadata": metadata, "spec": spec}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
