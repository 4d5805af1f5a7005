"""What ``airunway explain`` says of a deployment's model template, runtime config, route and model cache.

Environment variables are shown by name only: a value may be a secret.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from airunway.api.modeldeployment import volume_claim_name
from airunway.api.paths import NAMESPACE_MARK
from airunway.api.rules import MODEL_CACHE_PATH
from airunway.artifacts.deployments import CacheRequest
from airunway.artifacts.deployments import request_of as cache_request_of
from airunway.configs.canonical import stored
from airunway.configs.path_template import PathTemplateError
from airunway.configs.resolution import (
    EffectiveConfig,
    RoutingRequest,
    path_of,
    path_template_of,
    routing_request,
)
from airunway.plugins.settings import resolve_among
from airunway.resource import Resource, condition_of, controller_owner, dig, key_of, list_at, text_at
from airunway.revisions.revision import pending_parts
from airunway.routing.rights import MODEL_NAMES, PATH_PREFIXES, RouteRights, granted_by
from airunway.selection.explanation import Explanation
from airunway.selection.facts import ProviderFacts
from airunway.templates.choice import request_of
from airunway.templates.expansion import is_default
from airunway.tools.expanded import Expanded
from airunway.validation.policy import Policy
from airunway.view.deployment import share_of

# --------------------------------------------------------------------------------------------------------- selection


def selection_explanation(
    found: Expanded,
    facts: Sequence[ProviderFacts],
    *,
    now: datetime,
    policy: Policy | None = None,
    labels: Mapping[str, Mapping[str, str]] | None = None,
) -> Explanation:
    """Returns the selection, with the warnings of the provider that the deployment gets; `labels` are by namespace."""
    from airunway.selection import explanation as selection
    from airunway.tools.assignment import asking_plugins, warnings_of

    if found.problem:
        return selection.undecided(found.own, message=found.reason)
    explanation = selection.explain(
        found.deployment,
        facts,
        now=now,
        policy=policy,
        namespace_labels=(labels or {}).get(key_of(found.own).namespace),
        asked=asking_plugins(found.deployment, now=now),
    )
    engine = explanation.engine.engine if explanation.engine is not None else None
    if not explanation.provider or not engine or explanation.violations:
        return explanation
    warnings = warnings_of(found.deployment, explanation.provider, engine, now=now)
    return replace(explanation, warnings=warnings)


# --------------------------------------------------------------------------------------------------------- the template


def template_explanation(found: Expanded) -> Resource:
    """Returns ``template`` of a deployment; empty if it names none."""
    own = found.own.get("spec")
    request = request_of(own) if isinstance(own, dict) else None
    if request is None or not isinstance(own, dict):
        return {}
    record = found.record
    explained: Resource = {"asked": request.text, "found": record is not None and not found.problem}
    if record is not None:
        explained |= {"ref": record.get("ref"), "scope": record.get("scope"), "hash": record.get("hash")}
        given = record.get("spec")
        origin = found.origin
        explained["fields"] = [
            {**entry, "from": origin} for entry in given_fields(given if isinstance(given, dict) else {}, own)
        ]
    if found.problem:
        explained |= {"reason": found.reason, "message": found.problem}
    if (ready := _condition(found.own, "TemplateReady")) is not None:
        explained["ready"] = ready
    elif found.part is not None and found.part.condition is not None and not found.problem:
        explained["message"] = found.part.condition.message
    return {"template": explained}


def given_fields(given: Resource, own: Resource) -> Iterator[Resource]:
    """Each field that a template gives, with its value, and by what of the deployment's own spec it is overridden or
    with what it is merged.
    """
    for field, value in leaves(given):
        entry: Resource = {"field": field, "value": value}
        if by := _overriding(field, given, own):
            entry["overriddenBy"] = by
        elif field.startswith("spec.affinity.") and dig(own, "affinity"):
            entry["mergedWith"] = "spec.affinity"
        yield entry


def _overriding(field: str, given: Resource, own: Resource) -> str:
    """The field of the deployment's own spec that counts instead; empty if none does."""
    engine, other = dig(own, "engine", "type"), dig(given, "engine", "type")
    if engine and other and engine != other and (field.startswith("spec.engine.") or field == "spec.image"):
        return "spec.engine.type"
    path = field.split("[", maxsplit=1)[0].split(".")[1:]
    if path == ["env"]:
        names = [dig(each, "name") for each in list_at(own, "env")]
        return field if field[len("spec.env[") : -1] in names else ""
    if path[0] in ("affinity", "imagePullSecrets"):
        return ""  # both hold, or are merged by name
    value: object = own
    for place, step in enumerate(path):
        value = value.get(step) if isinstance(value, dict) else None
        if value is None:
            return ""
        if not isinstance(value, dict):
            at = tuple(path[: place + 1])
            return "" if is_default(value, at=at) else f"spec.{'.'.join(at)}"
    return ""


# ----------------------------------------------------------------------------------------------------- config and route


_BY_KEY = ("env", "annotations")
_WHOLE = ("gatewayRef", "match", "imagePullSecrets")


def config_explanation(
    deployment: Resource, configs: Sequence[Resource], *, own: Resource | None = None, template: str = ""
) -> Resource:
    """Returns ``runtimeConfig`` and ``routing`` of a deployment; `configs` are those among which its own is looked up.

    `deployment` has the effective spec; `own` is it as its user wrote it, where `template` gives the rest.

    What only a cluster knows (hash in use, Gateway, conditions) is absent for a deployment without a status.
    """
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
    revision = dig(deployment, "status", "revision")
    if config is not None and isinstance(revision, dict):
        explained["podSettingsOf"] = text_at(revision, "settings", "configHash")
        explained["podSettingsCurrent"] = "settings" not in pending_parts(deployment)
        if not explained["podSettingsCurrent"]:
            explained["podSettingsWait"] = "; ".join(list_at(revision, "pending", "changes")) + " wait"
    return {"runtimeConfig": explained, "routing": _routing(deployment, config, configs)}


def _fields(
    deployment: Resource,
    config: EffectiveConfig,
    configs: Sequence[Resource],
    *,
    own: Resource | None,
    template: str,
) -> Iterator[Resource]:
    """Each field of the effective config with its origin, and by what the deployment overrides it."""
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
            for entry in list_at(value):
                yield f"{field}[{dig(entry, 'name')}]", ""
        elif name in _WHOLE:
            yield field, _value_text(value)
        elif name in _BY_KEY and isinstance(value, Mapping):
            yield from ((f"{field}[{key}]", "") for key in value)
        elif isinstance(value, Mapping):
            yield from leaves(value, field)
        else:
            yield field, _value_text(value)


def _value_text(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_value_text(each)}" for key, each in value.items())
    if isinstance(value, list):
        return "; ".join(map(_value_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _overrides(deployment: Resource) -> dict[str, str]:
    """The config's fields that the deployment's spec says itself, with the field that says it."""
    spec = deployment.get("spec")
    found = {}
    for entry in list_at(spec, "env"):
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


def _routing(deployment: Resource, config: EffectiveConfig | None, configs: Sequence[Resource]) -> Resource:
    request = routing_request(deployment, config)
    explained: Resource = {"request": request.value, "because": _because(deployment, config)}
    if request is RoutingRequest.OFF:
        return explained
    namespace = key_of(deployment).namespace
    prefixes, names = granted_by(each for each in configs if each.get("kind") == "ClusterRuntimeConfig")
    rights = RouteRights(config_prefixes=prefixes, config_names=names)
    for field, entries in ((PATH_PREFIXES, prefixes), (MODEL_NAMES, names)):
        if entries is not None:
            explained[field] = [each.replace(NAMESPACE_MARK, namespace or "NAMESPACE") for each in entries]
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
                path = path_of(deployment, config)
                if template.is_default:
                    path = rights.default_path(path, namespace=namespace)
                problem = rights.path_problem(path, namespace=namespace) if namespace else ""
                explained["pathProblem" if problem else "path"] = problem or path
            except PathTemplateError as error:
                explained["pathProblem"] = str(error)
    live = dig(deployment, "status", "gateway")
    if isinstance(live, dict):
        explained |= {key: live[key] for key in ("gatewayNamespace", "gatewayName", "backend", "url") if key in live}
    if share := share_of(deployment):
        explained["share"] = share
    if (ready := _condition(deployment, "GatewayReady")) is not None:
        explained["ready"] = ready
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


# ------------------------------------------------------------------------------------------------------ the model cache


_KEY = (
    ("source.uri", ("source", "uri")),
    ("source.revision", ("source", "revision")),
    ("source.include", ("source", "include")),
    ("source.exclude", ("source", "exclude")),
    ("storageClassName", ("storageClassName",)),
    ("accessMode", ("accessMode",)),
    ("secrets.huggingFaceToken", ("secrets", "huggingFaceToken")),
)
"""The fields of an artifact's spec that its name is made from (docs/model-cache.md)."""


def cache_explanation(deployment: Resource, configs: Sequence[Resource], artifacts: Sequence[Resource]) -> Resource:
    """Returns ``modelCache`` and ``volumes`` of a deployment, each only if it has them.

    `configs` are those among which its own is looked up, `artifacts` the ModelArtifacts of its namespace (none without
    a cluster).
    """
    found: Resource = {}
    request = cache_request_of(deployment, resolve_among(deployment, configs).config)
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
        "mountPath": MODEL_CACHE_PATH,
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
            found.append(f"{label}: {_key_text(here)} here, {_key_text(there)} there")
    own, owner = controller_owner(wanted), controller_owner(other)
    if dig(own, "uid") != dig(owner, "uid"):
        found.append(
            f"it is Dedicated to ModelDeployment {owner.get('name')}" if owner else "it is Shared, this is not"
        )
    return found or ["it was made by a user: name it with spec.model.cache.artifactName to use it"]


def _key_text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value) if value else "none"


def _volumes(deployment: Resource) -> Resource:
    claims = []
    for volume in dig(deployment, "spec", "model", "storage", "volumes"):
        size, claim = dig(volume, "size"), dig(volume, "claimName")
        name = claim or volume_claim_name(key_of(deployment).name, str(dig(volume, "name")))
        claims.append({"name": dig(volume, "name"), "claimName": name, **({"size": str(size)} if size else {})})
    return {"claims": claims, "ready": _condition(deployment, "StorageReady")}


def _condition(deployment: Resource, type_: str) -> Resource | None:
    found = condition_of(deployment, type_)
    return {key: str(found.get(key, "")) for key in ("status", "reason", "message")} if found is not None else None
