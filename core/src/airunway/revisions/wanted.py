"""What a deployment's revision would be if everything newer were taken now, from what its status and its config say."""

from __future__ import annotations

from collections.abc import Mapping

from airunway.configs.resolution import EffectiveConfig, Resolution, RoutingRequest, propagated, routing_request
from airunway.resource import Resource, condition_of, dig, filled, labels_of, mapping_at, text_at
from airunway.revisions.revision import CACHE, GATEWAY, PROVIDER, SETTINGS, TEMPLATE, Wanted
from airunway.status.reasons import Category, category_of

TOKEN_KEY = "HF_TOKEN"  # the key of a Secret, and no secret
"""Key of the Hugging Face token in its Secret."""

_CACHE_READY = "ModelCacheReady"


def wanted_revision(
    deployment: Resource,
    *,
    current: Resource,
    taken_for: str,
    adopted: str,
    template: Resource,
    template_unusable: bool,
    template_hash: str,
    resolution: Resolution,
    config_unusable: bool,
    provider: str,
    translation: Resource | None,
    wants_cache: bool,
    makes_pool: bool,
    gateway_on: bool,
) -> Wanted:
    """Returns what every part would be now.

    `deployment` has the effective spec; `template` is the newest value of that part, empty without a template;
    `template_hash` is the hash of what the template gives to that spec;
    `translation` is what the provider has published (None: nothing yet); `wants_cache` is whether weights come from a
    claim of the model cache; `makes_pool` is whether the provider makes the pool of the gateway itself.
    """
    parts: dict[str, Resource] = {SETTINGS: settings_part(resolution, labels_of(deployment))}
    undecided, unusable = set(), set()
    if template:
        parts[TEMPLATE] = template
    if template_unusable:
        unusable.add(TEMPLATE)
    if config_unusable:
        unusable.add(SETTINGS)
    if provider and translation is not None:
        parts[PROVIDER] = {"name": provider, **translation}
    else:
        undecided.add(PROVIDER)
    if wants_cache:
        if (cache := _cache_part(deployment, template_hash)) is not None:
            parts[CACHE] = cache
        else:
            undecided.add(CACHE)
    request = routing_request(deployment, resolution.config)
    if request is not RoutingRequest.OFF and (before := mapping_at(current, GATEWAY)):
        parts[GATEWAY] = before
    if makes_pool and gateway_on and request is RoutingRequest.REQUIRED:
        gateway = _gateway_part(deployment)
        if gateway is None:
            undecided.add(GATEWAY)
        elif gateway:
            parts[GATEWAY] = gateway
    return Wanted(
        taken_for=taken_for,
        adopted=adopted,
        provider=provider,
        parts=parts,
        undecided=frozenset(undecided),
        unusable=frozenset(unusable),
    )


def settings_part(resolution: Resolution, labels: Mapping[str, str]) -> Resource:
    """Returns the part ``settings`` of a deployment with these `labels`."""
    config: EffectiveConfig | None = resolution.config
    if config is None:
        return {"config": resolution.name}
    return {
        "config": resolution.name,
        "configHash": config.hash,
        **filled(
            env=[dict(entry) for entry in config.env],
            imagePullSecrets=list(config.image_pull_secrets),
            token={"name": config.token, "key": TOKEN_KEY} if config.token else None,
            labels=propagated(labels, config),
            runtimeClassName=config.runtime_class,
        ),
    }


def _cache_part(deployment: Resource, template_hash: str) -> Resource | None:
    """The claim whose weights are Ready for this spec; None if the model cache part has not answered so."""
    found = mapping_at(deployment, "status", "modelCache")
    condition = condition_of(deployment, _CACHE_READY) or {}
    answered = condition.get("observedGeneration") == dig(deployment, "metadata", "generation")
    ready = condition.get("status") == "True" and found.get("ready") is True
    if not (answered and ready and found.get("claimName") and text_at(found, "templateHash") in ("", template_hash)):
        return None
    return filled(
        artifact=text_at(found, "artifactName"),
        claim=text_at(found, "claimName"),
        path=text_at(found, "path"),
        mountPath=text_at(found, "mountPath"),
        accessMode=text_at(found, "accessMode"),
    )


def _gateway_part(deployment: Resource) -> Resource | None:
    """The Gateway and what its route points to; empty if there is none, None while that is not decided."""
    found = mapping_at(deployment, "status", "gateway")
    if found.get("backend") in ("Pool", "Service"):
        return {
            "name": text_at(found, "gatewayName"),
            "namespace": text_at(found, "gatewayNamespace"),
            "usesPool": found.get("backend") == "Pool",
        }
    condition = condition_of(deployment, "GatewayReady") or {}
    current = condition.get("observedGeneration") == dig(deployment, "metadata", "generation")
    decided = current and category_of(text_at(condition, "reason")) is not Category.PROGRESS
    return {} if decided else None
