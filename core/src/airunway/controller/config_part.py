"""The part of a pass that says which runtime config a deployment follows. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from airunway.api import names
from airunway.artifacts.deployments import wants_cache
from airunway.configs.resolution import (
    CONFIG_READY,
    DEFAULT,
    MAX_POD_SETTINGS,
    NOT_ALLOWED,
    EffectiveConfig,
    Resolution,
    Rollout,
    RoutingRequest,
    Scope,
    is_published,
    routing_request,
)
from airunway.controller.core_pass import CorePass
from airunway.process.config_policy import not_allowed
from airunway.resource import Resource, condition_of, dig, filled, is_true, kept, key_of, list_at
from airunway.status.conditions import SERVED
from airunway.status.events import Event
from airunway.status.rollup import Fault

_USING_DEFAULTS = "UsingDefaults"
"""Reason of RuntimeConfigReady where the deployment follows no config."""


def follow_config(work: CorePass, resolution: Resolution, *, parts: Sequence[str]) -> None:
    """Add ``effectiveRuntimeConfig``, the ``parts`` that are asked for, and ``RuntimeConfigReady``."""
    deployment, config = work.deployment, resolution.config
    asked = {names.GATEWAY_PART} if routing_request(deployment, config) is RoutingRequest.REQUIRED else set()
    if wants_cache(deployment) or _has_sized_volume(deployment):
        asked.add(names.MODEL_CACHE_PART)
    work.status |= filled(parts=[part for part in parts if part in asked])
    if config is not None:
        work.status["effectiveRuntimeConfig"] = config.status_for_provider(deployment)
    if resolution.missing:
        work.copy_fields("effectiveRuntimeConfig")  # labels on objects, too, stay as they are
        text = (
            f"spec.runtimeConfigName: there is neither a RuntimeConfig '{resolution.name}' in namespace "
            f"'{key_of(deployment).namespace}' nor a ClusterRuntimeConfig '{resolution.name}': create one of them, "
            "or name another"
        )
        _refuse(work, "ConfigNotFound", text)
    elif config is None:
        text = f"No RuntimeConfig or ClusterRuntimeConfig '{DEFAULT}' exists; built-in defaults are used"
        before = condition_of(deployment, CONFIG_READY) or {}
        if (before.get("status"), before.get("reason")) != ("True", _USING_DEFAULTS):
            work.events.append(Event(reason="DefaultRuntimeConfigNotFound", note=text))
        work.add_condition(CONFIG_READY, True, _USING_DEFAULTS, text)
    elif refusal := _refusal_of(work, config):
        _refuse(work, NOT_ALLOWED, refusal)
    elif config.too_large and not is_true(deployment, SERVED):
        _refuse(work, "InvalidSpec", _too_large(config))
    else:
        text = f"Uses {_named(config)}"
        if config.too_large:
            text = f"Keeps the settings that its pods have: {_too_large(config)}"
        work.add_condition(CONFIG_READY, True, "ConfigFound", text)
        _announce_change(work, config)


def _refusal_of(work: CorePass, config: EffectiveConfig) -> str:
    """Why the policy does not allow a config; empty if it does."""
    if work.knows_policy:
        return not_allowed(work.deployment, config, work.grants)
    before = condition_of(work.deployment, CONFIG_READY) or {}
    stays = before.get("reason") == NOT_ALLOWED and is_published(work.deployment, config)
    return str(before.get("message")) if stays else ""


def _refuse(work: CorePass, reason: str, message: str) -> None:
    work.add_condition(CONFIG_READY, False, reason, message)
    work.config_fault = Fault(component=CONFIG_READY, reason=reason, message=message, pending=True)


def _announce_change(work: CorePass, config: EffectiveConfig) -> None:
    """The event that the deployment follows other settings than before; none for the first that it follows."""
    before = dig(work.live, "effectiveRuntimeConfig", default={})
    had_none = (condition_of(work.deployment, CONFIG_READY) or {}).get("reason") == _USING_DEFAULTS
    if before.get("hash") == config.hash or not (before.get("hash") or had_none):
        return
    where = ("scope", "namespaceRef", "clusterRef")
    what = "changed" if kept(before, *where) == kept(config.status(), *where) else "is used now"
    if not is_true(work.deployment, SERVED):
        then = "the deployment takes its pod settings"
    elif config.rollout is Rollout.IMMEDIATELY:
        then = "the deployment takes its pod settings in its turn (rollout: Immediately)"
    else:
        then = "what serves keeps its pod settings until the deployment's own spec changes (rollout: OnNextChange)"
    work.events.append(Event(reason="RuntimeConfigChanged", note=f"{_named(config)} {what}: {then}"))


def _has_sized_volume(deployment: Resource) -> bool:
    volumes = list_at(deployment, "spec", "model", "storage", "volumes")
    return any(dig(volume, "size") not in (None, "") for volume in volumes)


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
