"""Whether a route was asked for, and under which path (spec/platform.md, "Routing")."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from airunway.configs.path_template import PathTemplateError, render_path
from airunway.configs.resolution import EffectiveConfig
from airunway.resource import Resource, dig

__all__ = ["PathTemplate", "RoutingRequest", "path_of", "path_template_of", "routing_request"]


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


class PathTemplate(NamedTuple):
    """The template of a deployment's path, and where it comes from."""

    text: object
    """Text, unless the deployment has something else there, which the API server refuses."""
    of_deployment: bool = False
    of_config: bool = False

    @property
    def is_default(self) -> bool:
        """Whether neither the deployment nor its config has a template."""
        return not (self.of_deployment or self.of_config)


def path_template_of(deployment: Resource, config: EffectiveConfig | None) -> PathTemplate:
    """Returns the deployment's own template, else the config's, else that of ``/<namespace>/<uid>``."""
    own = dig(deployment, "spec", "gateway", "pathTemplate")
    if own not in (None, ""):
        return PathTemplate(own, of_deployment=True)
    if config is not None and config.routing.path_template:
        return PathTemplate(config.routing.path_template, of_config=True)
    return PathTemplate("/{.metadata.namespace}/{.metadata.uid}")


def path_of(deployment: Resource, config: EffectiveConfig | None) -> str:
    """Returns the deployment's path, by the template of `path_template_of`.

    Raises PathTemplateError, and nothing else, if there is no such path.
    """
    template = path_template_of(deployment, config).text
    if not isinstance(template, str):
        raise PathTemplateError("spec.gateway.pathTemplate must be text")
    return render_path(template, deployment)
