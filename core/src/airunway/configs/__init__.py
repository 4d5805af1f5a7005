"""Runtime configs: which one a deployment follows, its hash, label patterns and path templates. Pure (platform.md)."""

from airunway.configs.canonical import canonical_duration, canonical_quantity, merge, parse_duration
from airunway.configs.path_template import (
    MAX_RENDERED,
    PathTemplateError,
    Template,
    parse_template,
    render_path,
)
from airunway.configs.patterns import is_reserved, matches, pattern_problem
from airunway.configs.resolution import (
    DEFAULT,
    EffectiveConfig,
    Resolution,
    Scope,
    check,
    config_name,
    propagated,
    resolve,
)
from airunway.configs.routing_request import PathTemplate, RoutingRequest, path_of, path_template_of, routing_request
from airunway.configs.settings import (
    CONFIG_READY,
    GRANTED,
    MAX_POD_SETTINGS,
    GatewayChoice,
    Problem,
    Rollout,
    Routing,
    StatusPolicy,
    Storage,
)

__all__ = [
    "CONFIG_READY",
    "DEFAULT",
    "GRANTED",
    "MAX_POD_SETTINGS",
    "MAX_RENDERED",
    "EffectiveConfig",
    "GatewayChoice",
    "PathTemplate",
    "PathTemplateError",
    "Problem",
    "Resolution",
    "Rollout",
    "Routing",
    "RoutingRequest",
    "Scope",
    "StatusPolicy",
    "Storage",
    "Template",
    "canonical_duration",
    "canonical_quantity",
    "check",
    "config_name",
    "is_reserved",
    "matches",
    "merge",
    "parse_duration",
    "parse_template",
    "path_of",
    "path_template_of",
    "pattern_problem",
    "propagated",
    "render_path",
    "resolve",
    "routing_request",
]
