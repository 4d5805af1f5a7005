"""What ``airunway explain`` says of a deployment's runtime config and its route: what is used, and where it comes from.

Environment variables are shown by name only: a value may be a secret.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from airunway.resource import Resource, condition_of, dig

if TYPE_CHECKING:
    from airunway.configs import EffectiveConfig

__all__ = ["config_explanation", "config_lines", "leaves"]

_BY_KEY = ("env", "annotations")
_WHOLE = ("gatewayRef", "match", "imagePullSecrets")


def config_explanation(
    deployment: Resource, configs: Sequence[Resource], *, own: Resource | None = None, template: str = ""
) -> Resource:
    """Returns ``runtimeConfig`` and ``routing`` of a deployment; `configs` are those among which its own is looked up.

    `deployment` has the effective spec; `own` is it as its user wrote it, where `template` gives the rest.

    What only a cluster knows (hash in use, Gateway, conditions) is absent for a deployment without a status.
    """
    from airunway.configs import GRANTED
    from airunway.plugins.settings import resolve_among

    found = resolve_among(deployment, configs)
    config = found.config
    explained: Resource = {"name": found.name, "found": config is not None}
    if config is not None:
        explained |= {
            **config.status(),
            "fields": list(_fields(deployment, config, configs, own=own, template=template)),
            "problems": [{"field": problem.field, "message": problem.message} for problem in config.problems],
        }
    elif found.missing:
        explained["message"] = f"no RuntimeConfig or ClusterRuntimeConfig '{found.name}' was found"
    in_effect = dig(deployment, "status", "provider", "runtimeConfigHash")
    if config is not None and isinstance(in_effect, str):
        explained["podSettingsOf"] = in_effect
        explained["podSettingsCurrent"] = in_effect == config.hash
        explained["rolloutGranted"] = dig(deployment, "status", "effectiveRuntimeConfig", "rollout") == GRANTED
    return {"runtimeConfig": explained, "routing": _routing(deployment, config)}


def _fields(
    deployment: Resource,
    config: EffectiveConfig,
    configs: Sequence[Resource],
    *,
    own: Resource | None,
    template: str,
) -> Iterator[Resource]:
    """Each field of the effective config with its origin, and by what the deployment overrides it."""
    from airunway.configs.canonical import stored

    named = [each for each in configs if dig(each, "metadata", "name") == config.name]
    layers: list[tuple[str, dict[str, str]]] = []
    for each in named:
        namespaced = each.get("kind") == "RuntimeConfig" and dig(each, "metadata", "namespace") == config.namespace
        if namespaced and config.namespace:
            layers.insert(0, (f"RuntimeConfig {config.namespace}/{config.name}", dict(leaves(stored(each)))))
        elif each.get("kind") == "ClusterRuntimeConfig" and config.scope.value != "Namespace":
            layers.append((f"ClusterRuntimeConfig {config.name}", dict(leaves(stored(each)))))
    overridden = _overrides(deployment)
    by_user = overridden if own is None else _overrides(own)
    for field, value in leaves(config.spec):
        origin = next((name for name, leaves in layers if field in leaves), "default")
        entry: Resource = {"field": field, "value": value, "from": origin}
        if field in overridden:
            entry["overriddenBy"] = overridden[field]
            if field not in by_user:
                entry["overriddenIn"] = template
        yield entry


def leaves(spec: object, path: str = "spec") -> Iterator[tuple[str, str]]:
    """Field and value of everything in a spec; entries of ``env`` by name, without their value."""
    if not isinstance(spec, Mapping):
        return
    for name, value in spec.items():
        field = f"{path}.{name}"
        if name == "env" and path == "spec":
            for entry in value if isinstance(value, list) else ():
                yield f"{field}[{dig(entry, 'name')}]", ""
        elif name in _WHOLE:
            yield field, _text(value)
        elif name in _BY_KEY and isinstance(value, Mapping):
            yield from ((f"{field}[{key}]", "") for key in value)
        elif isinstance(value, Mapping):
            yield from leaves(value, field)
        else:
            yield field, _text(value)


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_text(each)}" for key, each in value.items())
    if isinstance(value, list):
        return "; ".join(map(_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _overrides(deployment: Resource) -> dict[str, str]:
    """The config's fields that the deployment's spec says itself, with the field that says it."""
    spec = deployment.get("spec")
    found = {}
    for entry in _list(dig(spec, "env")):
        found[f"spec.env[{dig(entry, 'name')}]"] = f"spec.env[{dig(entry, 'name')}]"
    if dig(spec, "secrets", "huggingFaceToken"):
        found["spec.secrets.huggingFaceToken"] = "spec.secrets.huggingFaceToken"
    gateway = dig(spec, "gateway")
    for name in ("enabled", "gatewayRef", "pathTemplate", "requestTimeout"):
        if dig(gateway, name) not in (None, "", {}):
            found[f"spec.routing.{name}"] = f"spec.gateway.{name}"
    for key in dig(gateway, "annotations") or ():
        found[f"spec.routing.annotations[{key}]"] = f"spec.gateway.annotations[{key}]"
    return found


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _routing(deployment: Resource, config: EffectiveConfig | None) -> Resource:
    from airunway.configs import PathTemplateError, RoutingRequest, path_of, path_template_of, routing_request

    request = routing_request(deployment, config)
    explained: Resource = {"request": request.value, "because": _because(deployment, config)}
    if request is RoutingRequest.OFF:
        return explained
    own = dig(deployment, "spec", "gateway", "gatewayRef")
    if own or (config is not None and config.routing.gateway is not None):
        explained["gatewayNamedBy"] = "spec.gateway.gatewayRef" if own else "spec.routing.gatewayRef of the config"
    if request is RoutingRequest.REQUIRED:
        template = path_template_of(deployment, config)
        named_by = "spec.gateway.pathTemplate" if template.of_deployment else "spec.routing.pathTemplate of the config"
        explained |= {
            "pathTemplate": str(template.text),
            "pathTemplateFrom": "default" if template.is_default else named_by,
        }
        # Before it is created a deployment has no uid, and no default path.
        if not template.is_default or dig(deployment, "metadata", "uid"):
            try:
                explained["path"] = path_of(deployment, config)
            except PathTemplateError as error:
                explained["pathProblem"] = str(error)
    live = dig(deployment, "status", "gateway")
    if isinstance(live, dict):
        explained |= {key: live[key] for key in ("gatewayNamespace", "gatewayName", "backend", "url") if key in live}
    condition = condition_of(deployment, "GatewayReady")
    if condition is not None:
        explained["ready"] = {key: str(condition.get(key, "")) for key in ("status", "reason", "message")}
    return explained


def _because(deployment: Resource, config: EffectiveConfig | None) -> str:
    enabled = dig(deployment, "spec", "gateway", "enabled")
    default = config.routing.enabled if config is not None else None
    if isinstance(enabled, bool):
        return f"spec.gateway.enabled is {str(enabled).lower()}"
    if default is False:
        return "spec.routing.enabled of the config is false"
    if dig(deployment, "spec", "gateway", "pathTemplate"):
        return "spec.gateway.pathTemplate is set"
    if default is True:
        return "spec.routing.enabled of the config is true"
    return "neither the deployment nor its config asks for a route"


# ---------------------------------------------------------------------------------------------------------------- lines


_REQUESTS = {"Off": "off", "WherePossible": "where possible", "Required": "required"}


def config_lines(explained: Resource, *, warnings: Sequence[str] = ()) -> Iterator[str]:
    """The explanation for people; `warnings` are those of the status that name pod settings that wait."""
    config, routing = explained["runtimeConfig"], explained["routing"]
    if not config["found"]:
        yield f"Config:    none ({config.get('message') or 'no default config: built-in defaults are used'})"
    else:
        reference = config.get("namespaceRef") or config["clusterRef"]
        where = f"{reference['namespace']}/" if reference.get("namespace") else ""
        yield f"Config:    {reference['kind']} {where}{reference['name']} (scope {config['scope']})"
        yield f"           hash {config['hash']}"
        for entry in config["fields"]:
            value = f": {entry['value']}" if entry["value"] else ""
            whose = entry.get("overriddenIn") or "the deployment"
            by = f"; overridden by {whose}'s {entry['overriddenBy']}" if "overriddenBy" in entry else ""
            yield f"  {entry['field']}{value} (from {entry['from']}{by})"
        for problem in config["problems"]:
            yield f"  problem: {problem['field']}: {problem['message']}"
        if config.get("podSettingsCurrent") is False:
            granted = "granted now" if config["rolloutGranted"] else "not granted"
            yield f"  Pods have the settings of {config['podSettingsOf'][:12]}…; new ones wait (rollout: {granted})"
        for warning in warnings:
            yield f"  {warning}"
    yield f"Routing:   {_REQUESTS[routing['request']]} ({routing['because']})"
    if "gatewayName" in routing:
        by = routing.get("gatewayNamedBy") or "the controller's choice"
        yield f"  Gateway: {routing.get('gatewayNamespace', '')}/{routing['gatewayName']} (by {by})"
    elif "gatewayNamedBy" in routing:
        yield f"  Gateway: named by {routing['gatewayNamedBy']}"
    if "path" in routing or "pathTemplate" in routing:
        path = routing.get("path") or routing.get("pathProblem") or "known once the deployment is created"
        yield f"  Path:    {path} (template {routing['pathTemplate']}, from {routing['pathTemplateFrom']})"
    if "backend" in routing:
        yield f"  Backend: {routing['backend']}"
    if "url" in routing and routing.get("ready", {}).get("status") == "True":
        yield f"  URL:     {routing['url']}"
    if ready := routing.get("ready"):
        yield f"  Ready:   {ready['status']} ({ready['reason']}) {ready['message']}".rstrip()
