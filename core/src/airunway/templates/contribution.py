"""What a template gives to a deployment, and which artifacts it keeps warm (docs/catalogue.md). Pure.

A template of ``org/m`` with two GPUs and ``defaults.engine.type: vllm`` gives ``{"model": {"id": "org/m"},
"resources": {"gpu": {"count": 2}}, "engine": {"type": "vllm"}}``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from airunway.artifacts.claims import bucket_name
from airunway.artifacts.deployments import CacheRequest, request_for, request_of
from airunway.configs.resolution import EffectiveConfig, Problem
from airunway.references import is_path
from airunway.resource import (
    Resource,
    canonical_json,
    condition_of,
    dig,
    digest,
    entries_at,
    is_deleting,
    key_of,
    list_at,
    text_at,
)
from airunway.templates.expansion import expand
from airunway.templates.limits import excess_of

MAX_CONTRIBUTION = 16 * 2**10
"""Maximum bytes of JSON: it is recorded in the status of each deployment that uses the template."""

_MOST_NAMED = 4
"""Ignored fields that a message names."""

EXCLUDED = ("model", "templateRef", "gateway", "runtimeConfigName", "suspend")
"""Fields of a deployment's spec that ``defaults`` never gives; nor ``provider.name`` and ``scaling.replicas``."""

_CREDENTIALS = ("secrets", "imagePullSecrets")


@dataclass(frozen=True, kw_only=True)
class Contribution:
    """What a template gives."""

    spec: Resource = field(hash=False)
    """A partial ModelDeployment spec. Not to be changed."""
    hash: str
    """sha256 of the canonical JSON of `spec` without what nodes must have: 64 hexadecimal digits. A node that comes is
    no edit of the template."""
    problems: tuple[Problem, ...] = ()
    """What of the template is ignored."""
    unusable: str = ""
    """Why it cannot be used at all, as the end of a sentence; empty if it can."""

    @property
    def ignored(self) -> list[str]:
        """What of the template is ignored, as texts for a message; not more than a reader of it wants."""
        return [f"{each.field}: {each.message}" for each in self.problems[:_MOST_NAMED]]


def contribution_of(template: Resource) -> Contribution:
    """Returns what a stored ModelTemplate or ClusterModelTemplate gives. Total for any JSON."""
    if (large := excess_of(template)) is not None:
        return Contribution(spec={}, hash=digest({}), unusable=f"{large.path}: {large.message}")
    spec = _plain(template.get("spec"))
    cluster = template.get("kind") == "ClusterModelTemplate"
    problems: list[Problem] = []
    name = spec.get("modelName")
    if isinstance(name, str) and name:
        sources = sources_of(template)
        main = next((each for each in sources if each.get("modelId") == name), sources[0])
        model, unusable = model_of(template, main)
    else:
        model, unusable = {}, "spec.modelName: must name a model"
    given: Resource = {"model": model} if model else {}
    resources = _resources(spec)
    if resources:
        given["resources"] = resources
    if not cluster and isinstance(spec.get("imagePullSecrets"), list):
        given["imagePullSecrets"] = spec["imagePullSecrets"]
    if isinstance(account := spec.get("serviceAccountName"), str) and account:
        given["serviceAccountName"] = account
    defaults = _defaults(spec, cluster=cluster, problems=problems)
    given = expand(defaults, given)
    hash_ = digest(given)
    if terms := _requirements(template):
        required = {"nodeSelectorTerms": [{"matchExpressions": terms}]}
        nodes = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
        given = expand(given, nodes)
    size = len(orjson.dumps(given))
    if size > MAX_CONTRIBUTION:
        unusable = (
            f"spec.defaults: it gives {size} bytes of JSON, of which at most {MAX_CONTRIBUTION} can be recorded on a "
            "deployment"
        )
        given = {"model": model} if model else {}
        hash_ = digest(given)
    return Contribution(spec=given, hash=hash_, problems=tuple(problems), unusable=unusable)


def sources_of(template: Resource) -> tuple[Resource, ...]:
    """Where the weights are: as the spec says, else as discovery found it, else the hub's repository of the model.

    The size is that of the spec alone: what an image reports is an estimate, and too small a claim cannot be filled.
    """
    if named := _listed(template.get("spec")):
        return tuple(named)
    if found := _listed(template.get("status")):
        return tuple({key: value for key, value in each.items() if key != "size"} for each in found)
    name = text_at(template, "spec", "modelName")
    return ({"uri": name if is_path(name) else f"hf://{name}"},)


def _listed(part: object) -> list[Resource]:
    return [each for each in list_at(part, "modelSources") if isinstance(dig(each, "uri"), str)]


def model_of(template: Resource, source: Resource) -> tuple[Resource, str]:
    """``spec.model`` for the weights of one of its sources, and why they cannot be served; empty if they can.

    Weights of the hub are found by their id. A bucket is known to the model cache only, by the name of the artifact
    that the template keeps.
    """
    name, namespace = str(dig(template, "spec", "modelName", default="")), key_of(template).namespace
    warm = bool(namespace) and dig(template, "spec", "caching", "enabled") is True
    uri, size = str(source["uri"]).rstrip("/"), source.get("size")
    unusable = ""
    model: Resource = {"id": name}
    cache: Resource = {"mode": "Shared", **({"size": size} if size else {})}
    if is_path(uri):
        if warm:
            unusable = "spec.modelName: a path has no repository to keep warm: disable caching, or name modelSources"
    elif uri.startswith("hf://"):
        if uri != f"hf://{name}":
            model = {"id": uri.removeprefix("hf://"), "servedName": name}
    elif warm:
        config = text_at(template, "spec", "runtimeConfigName")
        cache["artifactName"] = bucket_name(uri, namespace, config=config)
    else:
        instead = "enable caching, or make" if namespace else "make"
        unusable = (
            f"spec.modelSources: the weights are at {uri}, which no engine fetches by itself: {instead} a "
            "ModelArtifact of that source, and name it in spec.model.cache.artifactName of a deployment of that model"
        )
    return {**model, **({"cache": cache} if warm else {})}, unusable


def _resources(spec: Resource) -> Resource:
    gpu, cpu = dig(spec, "hardware", "gpu"), dig(spec, "hardware", "cpu")
    found: Resource = {}
    if isinstance(gpu, dict):
        kept = {key: gpu[key] for key in ("count", "type") if gpu.get(key)}
        # The catalogue looks for one GPU where no count is given; in disaggregated mode the roles have the GPUs.
        split = dig(spec, "defaults", "serving", "mode") == "disaggregated"
        if "count" not in kept and (gpu.get("model") or gpu.get("minVram")) and not split:
            kept["count"] = 1
        if kept:
            found["gpu"] = kept
    if isinstance(cpu, str | int) and not isinstance(cpu, bool) and cpu:
        found["cpu"] = cpu
    return found


def _requirements(template: Resource) -> list[Any]:
    """What nodes must have, as the catalogue found it; sorted, so that the order of nodes changes no record."""
    return sorted(entries_at(_plain(template.get("status")), "hardware", "requirements"), key=canonical_json)


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


# ---------------------------------------------------------------------------------------- artifacts that are kept warm


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
