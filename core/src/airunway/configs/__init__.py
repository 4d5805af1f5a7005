"""Runtime configs: which one a deployment follows, its hash, label patterns and path templates. Pure (platform.md)."""

from airunway.configs.canonical import canonical_duration, canonical_quantity, merge, parse_duration
from airunway.configs.path_template import (
    MAX_RENDERED,
    PathTemplateError,
    Template,
    parse_template,
    render_path,
)
from airunway.configs.patterns import matches, pattern_problem
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
from airunway.configs.routing_request import RoutingRequest, path_of, routing_request
from airunway.configs.settings import (
    MAX_POD_SETTINGS,
    GatewayChoice,
    Problem,
    Rollout,
    Routing,
    StatusPolicy,
    Storage,
)

__all__ = [
    "DEFAULT",
    "MAX_POD_SETTINGS",
    "MAX_RENDERED",
    "EffectiveConfig",
    "GatewayChoice",
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
    "matches",
    "merge",
    "parse_duration",
    "parse_template",
    "path_of",
    "pattern_problem",
    "propagated",
    "render_path",
    "resolve",
    "routing_request",
]
