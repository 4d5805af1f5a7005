"""Which artifacts a template keeps warm, called as those that its deployments ask for (platform.md, "Templates"). Pure.

Example: a template of ``org/m`` with ``caching.enabled`` keeps ``m-4f1c09ab2e``. A deployment with nothing but this
template asks for the artifact of the same name, and finds its weights there.
"""

from __future__ import annotations

from airunway.artifacts.request import CacheRequest, request_for, request_of
from airunway.configs import EffectiveConfig
from airunway.resource import Resource, condition_of, dig, is_deleting, key_of
from airunway.templates.contribution import Contribution, model_of, sources_of

__all__ = ["keeps_warm", "warm_requests"]


def keeps_warm(template: Resource) -> bool:
    """Whether the template uses artifacts: it is namespaced, its caching is on, and it is known where its weights are.

    With ``discovery`` and without sources of its own it waits for what discovery finds.
    """
    if not key_of(template).namespace or is_deleting(template):
        return False
    if dig(template, "spec", "caching", "enabled") is not True:
        return False
    found = dig(template, "spec", "modelSources") or dig(template, "status", "modelSources")
    asks = dig(template, "spec", "discovery") is not None
    return bool(found) or not asks or dig(condition_of(template, "DiscoveryReady"), "status") == "True"


def warm_requests(
    template: Resource, contribution: Contribution, config: EffectiveConfig | None
) -> tuple[CacheRequest, ...]:
    """What the template asks of the model cache under its own effective config, one request for each artifact.

    It is what a deployment with the template alone and with the same config asks for. Total for any JSON.
    """
    if not keeps_warm(template) or contribution.unusable:
        return ()
    metadata = {field: dig(template, "metadata", field) for field in ("name", "namespace", "uid")}
    spec = {**contribution.spec, "runtimeConfigName": dig(template, "spec", "runtimeConfigName")}
    found: dict[str, CacheRequest] = {}
    for source in sources_of(template):
        model, unusable = model_of(template, source)
        if unusable:
            continue
        request: CacheRequest | None
        if name := dig(model, "cache", "artifactName"):
            model = {**model, "id": source.get("modelId") or model["id"]}
            deployment = {"metadata": metadata, "spec": {**spec, "model": model}}
            request = request_for(deployment, config, uri=str(source["uri"]).rstrip("/"), name=str(name))
        else:
            request = request_of({"metadata": metadata, "spec": {**spec, "model": model}}, config)
        if request is not None:
            found.setdefault(request.name, request)
    return tuple(found.values())
