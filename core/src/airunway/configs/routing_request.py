"""Whether a route was asked for, and under which path (spec/platform.md, "Routing")."""

from __future__ import annotations

from enum import StrEnum

from airunway.configs.path_template import PathTemplateError, render_path
from airunway.configs.resolution import EffectiveConfig
from airunway.resource import Resource, dig

__all__ = ["RoutingRequest", "path_of", "routing_request"]


class RoutingRequest(StrEnum):
    """What is to be made for a deployment."""

    OFF = "Off"
    """Nothing."""
    WHERE_POSSIBLE = "WherePossible"
    """The model-name rule, where both APIs are served and one Gateway is usable; no condition."""
    REQUIRED = "Required"
    """Path rule and model-name rule; a missing piece is a condition."""


def routing_request(deployment: Resource, config: EffectiveConfig | None) -> RoutingRequest:
    """Returns what deployment and config together ask for. Total for any JSON.

    A ``false`` of the config counts where the deployment does not say ``enabled``, also if it has a path template.
    """
    enabled = dig(deployment, "spec", "gateway", "enabled")
    default = config.routing.enabled if config is not None else None
    if enabled is False or (default is False and enabled is not True):
        return RoutingRequest.OFF
    template = dig(deployment, "spec", "gateway", "pathTemplate")
    if enabled is True or default is True or template not in (None, ""):
        return RoutingRequest.REQUIRED
    return RoutingRequest.WHERE_POSSIBLE


def path_of(deployment: Resource, config: EffectiveConfig | None) -> str:
    """Returns the deployment's path: by its own template, the config's, else ``/<namespace>/<uid>``.

    Raises PathTemplateError, and nothing else, if there is no such path.
    """
    template = dig(deployment, "spec", "gateway", "pathTemplate")
    if template not in (None, "") and not isinstance(template, str):
        raise PathTemplateError("spec.gateway.pathTemplate must be text")
    template = template or (config.routing.path_template if config is not None else None)
    return render_path(template or "/{.metadata.namespace}/{.metadata.uid}", deployment)
