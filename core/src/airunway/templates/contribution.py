"""What a template gives to a deployment: a partial ModelDeployment spec, and its hash (platform.md, "Templates"). Pure.

A template of ``org/m`` with two GPUs and ``defaults.engine.type: vllm`` gives ``{"model": {"id": "org/m"},
"resources": {"gpu": {"count": 2}}, "engine": {"type": "vllm"}}``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from airunway.configs import Problem
from airunway.resource import Resource, canonical_json, dig, digest
from airunway.templates.expansion import expand

__all__ = ["EXCLUDED", "MAX_CONTRIBUTION", "Contribution", "contribution_of"]

MAX_CONTRIBUTION = 16 * 2**10
"""Maximum bytes of JSON: it is recorded in the status of each deployment that uses the template."""

EXCLUDED = ("model", "templateRef", "gateway", "runtimeConfigName", "suspend")
"""Fields of a deployment's spec that ``defaults`` never gives; nor ``provider.name`` and ``scaling.replicas``."""

_CREDENTIALS = ("secrets", "imagePullSecrets")


@dataclass(frozen=True, kw_only=True)
class Contribution:
    """What a template gives."""

    spec: Resource = field(hash=False)
    """A partial ModelDeployment spec. Not to be changed."""
    hash: str
    """sha256 of its canonical JSON: 64 hexadecimal digits."""
    problems: tuple[Problem, ...] = ()
    """What of the template is ignored."""
    unusable: str = ""
    """Why it cannot be used at all, as the end of a sentence; empty if it can."""


def contribution_of(template: Resource) -> Contribution:
    """Returns what a stored ModelTemplate or ClusterModelTemplate gives. Total for any JSON."""
    spec = _plain(template.get("spec"))
    cluster = template.get("kind") == "ClusterModelTemplate"
    problems: list[Problem] = []
    model, unusable = _model(spec, _plain(template.get("status")), cluster=cluster)
    given: Resource = {"model": model} if model else {}
    resources = _resources(spec)
    if resources:
        given["resources"] = resources
    if terms := _requirements(template):
        required = {"nodeSelectorTerms": [{"matchExpressions": terms}]}
        given["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    if not cluster and isinstance(spec.get("imagePullSecrets"), list):
        given["imagePullSecrets"] = spec["imagePullSecrets"]
    if isinstance(account := spec.get("serviceAccountName"), str) and account:
        given["serviceAccountName"] = account
    defaults = _defaults(spec, cluster=cluster, problems=problems)
    given = expand(defaults, given)
    size = len(orjson.dumps(given))
    if size > MAX_CONTRIBUTION:
        unusable = (
            f"spec.defaults: it gives {size} bytes of JSON, of which at most {MAX_CONTRIBUTION} can be recorded on a "
            "deployment"
        )
        given = {"model": model} if model else {}
    return Contribution(spec=given, hash=digest(given), problems=tuple(problems), unusable=unusable)


def _model(spec: Resource, status: Resource, *, cluster: bool) -> tuple[Resource, str]:
    """``spec.model``, and why there is none that can be served."""
    name = spec.get("modelName")
    if not isinstance(name, str) or not name:
        return {}, "spec.modelName: must name a model"
    unusable = ""
    model: Resource = {"id": name}
    source = _source(spec, name) or _source(status, name)
    uri = source.get("uri")
    if isinstance(uri, str) and uri.startswith("hf://") and uri != f"hf://{name}":
        model = {"id": uri.removeprefix("hf://"), "servedName": name}
    elif isinstance(uri, str) and uri and not uri.startswith("hf://"):
        unusable = (
            f"spec.modelSources: the weights are at {uri}, which no engine fetches by itself: make a ModelArtifact of "
            "that source, and name it in spec.model.cache.artifactName of a deployment of that model"
        )
    if not cluster and dig(spec, "caching", "enabled") is True:
        size = source.get("size")
        model["cache"] = {"mode": "Shared", **({"size": size} if size else {})}
    return model, unusable


def _source(part: Resource, name: str) -> Resource:
    """The first source of the weights, that of the model itself where several models are listed."""
    sources = part.get("modelSources")
    listed = [each for each in sources if isinstance(each, dict)] if isinstance(sources, list) else []
    named = [each for each in listed if each.get("modelId") == name]
    return next(iter((*named, *listed)), {})


def _resources(spec: Resource) -> Resource:
    gpu, cpu = dig(spec, "hardware", "gpu"), dig(spec, "hardware", "cpu")
    found: Resource = {}
    if isinstance(gpu, dict):
        kept = {key: gpu[key] for key in ("count", "type") if gpu.get(key)}
        if kept:
            found["gpu"] = kept
    if isinstance(cpu, str | int) and not isinstance(cpu, bool) and cpu:
        found["cpu"] = cpu
    return found


def _requirements(template: Resource) -> list[Any]:
    """What nodes must have, as the catalogue found it; sorted, so that the order of nodes changes no hash."""
    listed = dig(template, "status", "hardware", "requirements")
    found = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    return sorted(found, key=canonical_json)


def _defaults(spec: Resource, *, cluster: bool, problems: list[Problem]) -> Resource:
    defaults = spec.get("defaults")
    if not isinstance(defaults, dict):
        return {}
    refused = [name for name in (*EXCLUDED, *(_CREDENTIALS if cluster else ())) if name in defaults]
    kept = {key: value for key, value in defaults.items() if key not in refused}
    for parent, child in (("provider", "name"), ("scaling", "replicas")):
        inner = kept.get(parent)
        if isinstance(inner, dict) and child in inner:
            refused.append(f"{parent}.{child}")
            kept[parent] = {key: value for key, value in inner.items() if key != child}
    problems.extend(
        Problem(field=f"spec.defaults.{name}", message="a template cannot give this: it is ignored") for name in refused
    )
    return kept


def _plain(value: object) -> Resource:
    """A copy that can be written as canonical JSON; empty if it is no object."""
    if not isinstance(value, dict):
        return {}
    try:
        copied: Resource = orjson.loads(orjson.dumps(value))
    except (TypeError, ValueError):  # deeper than orjson allows, or no JSON
        return {}
    return copied
