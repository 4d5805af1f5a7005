"""Deployments to ask a provider with: a few that it can run, and for each field of the spec a change of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from airunway.api.modeldeployment import ModelDeploymentSpec
from airunway.api.names import API_VERSION
from airunway.plugins.contract import Context, Gateway, ModelCache, RuntimeSettings
from airunway.plugins.host import ProviderHost, assumed_context
from airunway.resource import Resource
from airunway.runtime.translate import TranslationResult, parsed, translate

NAME = "model"
"""Name of every deployment that is asked about."""

_NAMESPACE = "default"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Base:
    """A deployment that the provider can run, with the engine that the core has resolved for it.

    `settings` are the provider's own, as in a chart; `absent` are optional kinds that the cluster does not have.
    `given` names what the context has from outside of the deployment (`digests.GIVEN`).
    """

    name: str
    engine: str
    spec: Resource
    settings: Mapping[str, Any] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    given: str = ""


@dataclass(frozen=True, kw_only=True)
class Toggle:
    """A change of one field: `before` is what the deployment needs for the field to mean something.

    Of the `values` the first is taken that the deployment does not have already. Both are merged into its spec.
    """

    before: Resource = field(default_factory=dict)
    values: Sequence[Resource]


_ROLE = {"replicas": 1, "gpu": {"count": 1}, "memory": "1Gi", "cpu": "1"}
_WEIGHTS = "oci://registry.example/weights@sha256:{:064}"
_OF_IMAGE = {"source": "oci", "uri": _WEIGHTS.format(1)}
_VOLUME = {"name": "data", "claimName": "claim", "mountPath": "/data"}


def _at(path: str, *values: object, before: Resource | None = None) -> Toggle:
    """The field itself, by its path below the spec."""
    return Toggle(before=before or {}, values=tuple(_nested(path.split("."), value) for value in values))


def _nested(steps: Sequence[str], value: object) -> Resource:
    head, *rest = steps
    return {head: _nested(rest, value) if rest else value}


def _item(path: str, item: Resource, **change: object) -> Toggle:
    """A field of the only item of a list."""
    return _at(path, [{**item, **change}], before=_nested(path.split("."), [item]))


def _volume(**change: object) -> Toggle:
    return _item("model.storage.volumes", _VOLUME, **change)


def _files(kind: str) -> Toggle:
    volumes = [[{"name": "data", kind: {"name": name}, "mountPath": "/data"}] for name in ("files", "other")]
    return _at("model.storage.volumes", volumes[1], before=_nested(["model", "storage", "volumes"], volumes[0]))


def _variable(**change: object) -> Toggle:
    variable = {"name": "A", "value": "1"}
    given = {key: value for key, value in {**variable, **change}.items() if value is not None}
    return _at("env", [given], before={"env": [variable]})


def _role(role: str, **change: object) -> Toggle:
    return _at(f"scaling.{role}", {**_ROLE, **change}, before={"scaling": {role: _ROLE}})


def _roles() -> Iterator[tuple[str, Toggle]]:
    for role in ("prefill", "decode"):
        yield f"spec.scaling.{role}.replicas", _role(role, replicas=2)
        yield f"spec.scaling.{role}.gpu.count", _role(role, gpu={"count": 2})
        yield f"spec.scaling.{role}.gpu.type", _role(role, gpu={"count": 1, "type": "amd.com/gpu"})
        yield f"spec.scaling.{role}.gpu.deviceClass", _role(role, gpu={"count": 1, "deviceClass": "gpu.nvidia.com"})
        yield f"spec.scaling.{role}.memory", _role(role, memory="2Gi")
        yield f"spec.scaling.{role}.cpu", _role(role, cpu="2")
        yield f"spec.scaling.{role}.limits.cpu", _role(role, limits={"cpu": "2"})


TOGGLES: Mapping[str, Toggle] = {
    "spec.model.id": _at("model.id", "org/other/file.gguf"),
    "spec.model.servedName": _at("model.servedName", "other"),
    "spec.model.source": _at("model.source", "custom", "huggingface"),
    "spec.model.uri": _at("model.uri", _WEIGHTS.format(2), before={"model": _OF_IMAGE}),
    "spec.model.task": _at("model.task", "embed"),
    "spec.model.storage.volumes[].name": _volume(name="other"),
    "spec.model.storage.volumes[].claimName": _volume(claimName="other"),
    "spec.model.storage.volumes[].mountPath": _volume(mountPath="/other"),
    "spec.model.storage.volumes[].purpose": _volume(purpose="modelCache"),
    "spec.model.storage.volumes[].readOnly": _volume(readOnly=True),
    "spec.model.storage.volumes[].size": _at(
        "model.storage.volumes",
        [{"name": "data", "size": "1Gi", "mountPath": "/data"}],
        before={"model": {"storage": {"volumes": [_VOLUME]}}},
    ),
    "spec.model.storage.volumes[].configMap.name": _files("configMap"),
    "spec.model.storage.volumes[].secret.name": _files("secret"),
    "spec.engine.image": _at("engine.image", "registry.example/other:1"),
    "spec.engine.contextLength": _at("engine.contextLength", 1234),
    "spec.engine.trustRemoteCode": _at("engine.trustRemoteCode", True),
    "spec.engine.enablePrefixCaching": _at("engine.enablePrefixCaching", False),
    "spec.engine.enforceEager": _at("engine.enforceEager", True),
    "spec.engine.args": _at("engine.args", {"seed": "1"}),
    "spec.engine.extraArgs": _at("engine.extraArgs", ["--seed=1"]),
    "spec.serving.mode": _at("serving.mode", "disaggregated", "aggregated"),
    "spec.scaling.replicas": _at("scaling.replicas", 2),
    "spec.scaling.nodesPerReplica": _at("scaling.nodesPerReplica", 2, before={"resources": {"gpu": {"count": 4}}}),
    **dict(_roles()),
    "spec.resources.gpu.count": _at("resources.gpu.count", 3),
    "spec.resources.gpu.deviceClass": _at(
        "resources.gpu.deviceClass", "gpu.nvidia.com", before={"resources": {"gpu": {"count": 1}}}
    ),
    "spec.resources.gpu.type": _at("resources.gpu.type", "amd.com/gpu", before={"resources": {"gpu": {"count": 1}}}),
    "spec.resources.memory": _at("resources.memory", "3Gi"),
    "spec.resources.cpu": _at("resources.cpu", "3"),
    "spec.resources.limits.cpu": _at("resources.limits.cpu", "5"),
    "spec.resources.extended": _at("resources.extended", {"rdma/ib": "1"}),
    "spec.image": _at("image", "registry.example/other:1"),
    "spec.env[].name": _variable(name="B"),
    "spec.env[].value": _variable(value="2"),
    "spec.env[].valueFrom": _variable(value=None, valueFrom={"fieldRef": {"fieldPath": "metadata.name"}}),
    "spec.podTemplate.metadata.labels": _at("podTemplate.metadata.labels", {"a": "b"}),
    "spec.podTemplate.metadata.annotations": _at("podTemplate.metadata.annotations", {"a": "b"}),
    "spec.workload.metadata.labels": _at("workload.metadata.labels", {"a": "b"}),
    "spec.workload.metadata.annotations": _at("workload.metadata.annotations", {"a": "b"}),
    "spec.secrets.huggingFaceToken": _at("secrets.huggingFaceToken", "token"),
    "spec.nodeSelector": _at("nodeSelector", {"a": "b"}),
    "spec.tolerations": _at("tolerations", [{"key": "a", "operator": "Exists"}]),
    "spec.affinity": _at("affinity", {"nodeAffinity": {}}),
    "spec.topologySpreadConstraints": _at("topologySpreadConstraints", [{"maxSkew": 1}]),
    "spec.serviceAccountName": _at("serviceAccountName", "account"),
    "spec.securityContext.runAsNonRoot": _at("securityContext.runAsNonRoot", True),
    "spec.securityContext.runAsUser": _at("securityContext.runAsUser", 1001),
    "spec.securityContext.runAsGroup": _at("securityContext.runAsGroup", 1001),
    "spec.securityContext.fsGroup": _at("securityContext.fsGroup", 1001),
    "spec.securityContext.capabilities.add": _at("securityContext.capabilities.add", ["IPC_LOCK"]),
    "spec.securityContext.readOnlyRootFilesystem": _at("securityContext.readOnlyRootFilesystem", True),
    "spec.imagePullSecrets": _at("imagePullSecrets", [{"name": "pull"}]),
    "spec.priorityClassName": _at("priorityClassName", "high"),
    "spec.runtimeClassName": _at("runtimeClassName", "nvidia"),
}
"""A change of each field that is a provider's to honour, by its path; ``[]`` stands for the items of a list."""


@dataclass(frozen=True, kw_only=True)
class SettingToggle:
    """A change of what reaches a provider from outside of the deployment: fields of the context that it replaces."""

    context: Mapping[str, Any]
    before: Resource = field(default_factory=dict)
    """What the deployment needs for the setting to mean something."""
    spec: Resource = field(default_factory=dict)
    """What the changed deployment has as well."""


GATEWAY = "a gateway's InferencePool"
"""The setting that only engines with ``managesInferencePool`` learn of: for the others the core makes the pool."""

CACHE = "the claim of a model cache"
"""The setting of which the engine learns the path of the weights too."""

CACHED_FILE = "/model-cache/toggle/file.gguf"

SETTINGS: Mapping[str, SettingToggle] = {
    "RuntimeConfig spec.env": SettingToggle(
        context={"runtime": RuntimeSettings(env=({"name": "AIRUNWAY_TOGGLE", "value": "toggle-value"},))}
    ),
    "RuntimeConfig spec.labelPropagation": SettingToggle(
        context={"runtime": RuntimeSettings(labels={"org.example/toggle": "toggle-value"})}
    ),
    "RuntimeConfig spec.imagePullSecrets": SettingToggle(
        context={"runtime": RuntimeSettings(image_pull_secrets=("toggle-pull",))}
    ),
    "RuntimeConfig spec.secrets.huggingFaceToken": SettingToggle(
        context={"runtime": RuntimeSettings(token="toggle-token")}
    ),
    "RuntimeConfig spec.runtimeClassName": SettingToggle(
        context={"runtime": RuntimeSettings(runtime_class="toggle-class")}, before={"resources": {"gpu": {"count": 1}}}
    ),
    CACHE: SettingToggle(
        context={"cache": ModelCache(claim="toggle-claim", sub_path="model", path=CACHED_FILE)},
        spec={"model": {"cache": {"mode": "Shared"}}},
    ),
    GATEWAY: SettingToggle(context={"gateway": Gateway(name="toggle-gateway", namespace="gateways", uses_pool=True)}),
}
"""A change of each setting that comes to a provider in its context, by its name."""

OF_THE_CORE: Mapping[str, str] = {
    "spec.engine.type": "arrives resolved, as `context.engine`",
    "spec.provider.name": "what brings a deployment to a provider",
    "spec.provider.overrides": "merged into the primary object by the runtime, by the manifest's schema",
    "spec.model.storage.volumes[].storageClassName": "the model cache part makes the claim, which is mounted by name",
    "spec.model.storage.volumes[].accessMode": "the model cache part makes the claim, which is mounted by name",
    "spec.model.cache.mode": "the cache reaches a provider as `context.cache`: see the claim of a model cache",
    "spec.model.cache.artifactName": "part of the cache, which reaches a provider as `context.cache`",
    "spec.model.cache.accessMode": "part of the cache, which reaches a provider as `context.cache`",
    "spec.model.cache.revision": "part of the cache, which reaches a provider as `context.cache`",
    "spec.model.cache.size": "part of the cache, which reaches a provider as `context.cache`",
    "spec.model.cache.caBundle": "part of the cache, which reaches a provider as `context.cache`",
    "spec.model.cache.storageClassName": "part of the cache, which reaches a provider as `context.cache`",
    "spec.scaling.autoscaling": "the runtime writes the scaler and sets `spec.scaling.replicas`; an engine with "
    "``autoscaling: Own`` reads it",
    "spec.gateway": "routing is the core's; where a provider makes the pool, it learns of it as `context.gateway`",
    "spec.runtimeConfigName": "read by the core and the runtime; what pods get of it reaches a provider in its context",
    "spec.suspend": "the runtime deletes the objects; there is nothing to translate",
    "spec.templateRef": "resolved by the core: a provider gets the effective spec",
}
"""Fields that are not a provider's, with everything below them, and why."""

_WHOLE = ("spec.env[].valueFrom", "spec.tolerations", "spec.imagePullSecrets")
"""Kubernetes' own types: they reach a pod as they are, and count as one field."""


def spec_fields() -> tuple[str, ...]:
    """Every field of ``ModelDeployment.spec`` that is no group of fields, by its path."""
    return tuple(_fields(ModelDeploymentSpec, "spec"))


def _fields(model: type[BaseModel], path: str) -> Iterator[str]:
    for name, info in model.model_fields.items():
        here = f"{path}.{to_camel(name)}"
        nested = next((type_ for type_ in _types_in(info.annotation) if issubclass(type_, BaseModel)), None)
        if nested is None or here in _WHOLE:
            yield here
            continue
        listed = any(type_ is list for type_ in _types_in(info.annotation))
        item = f"{here}[]" if listed else here
        if item in _WHOLE:
            yield item
        else:
            yield from _fields(nested, item)


def _types_in(annotation: Any) -> Iterator[type]:
    """The types that an annotation is made of, a list's own first."""
    origin = getattr(annotation, "__origin__", annotation)
    if isinstance(origin, type):
        yield origin
    for part in get_args(annotation):
        yield from _types_in(part)


_IMAGE = "registry.example/engine:1"
_SHAPES: tuple[tuple[str, Resource], ...] = (
    ("", {}),
    (", own image", {"image": _IMAGE}),
    (", own model", {"model": {"source": "custom"}, "image": _IMAGE}),
    (", 16 GPUs", {"resources": {"gpu": {"count": 16}}, "image": _IMAGE}),
    (
        ", disaggregated",
        {
            "serving": {"mode": "disaggregated"},
            "scaling": {"prefill": _ROLE, "decode": _ROLE},
            "resources": {"gpu": {"count": 0}},
            "image": _IMAGE,
        },
    ),
    (
        ", disaggregated, usual image",
        {
            "serving": {"mode": "disaggregated"},
            "scaling": {"prefill": _ROLE, "decode": _ROLE},
            "resources": {"gpu": {"count": 0}},
        },
    ),
)


def bases(host: ProviderHost) -> tuple[Base, ...]:
    """Deployments that this provider runs: for each engine as it is, with an image, large, with roles; on CPU too.

    What a provider refuses is left out: a refusal would hide what it does with a single field.
    """
    return tuple(base for base in _thinkable(host) if not judged(host, base, base.spec).blockers)


def first_refusal(host: ProviderHost, engine: str) -> str:
    """Why the plainest deployment with an engine is refused."""
    refused = (
        each for base in _thinkable(host) if base.engine == engine for each in judged(host, base, base.spec).blockers
    )
    return next((f"{each.path}: {each.message}" for each in refused), "")


def _thinkable(host: ProviderHost) -> Iterator[Base]:
    for engine in host.manifest.engines:
        model = {"id": "org/model/file.gguf" if engine.name == "llamacpp" else "org/model"}
        for shape, spec in _SHAPES:
            if engine.gpu_support:
                yield Base(
                    name=f"{engine.name}{shape}",
                    engine=engine.name,
                    spec=merged_spec({"model": model, "resources": {"gpu": {"count": 1}}}, spec),
                )
        if engine.cpu_support:
            cpu = {"model": model, "resources": {"memory": "4Gi"}, "image": _IMAGE}
            yield Base(name=f"{engine.name} on CPU", engine=engine.name, spec=cpu)


def judged(
    host: ProviderHost, base: Base, spec: Resource, *, context: Context[Any] | None = None, name: str = NAME
) -> TranslationResult:
    """What comes of a deployment with that spec, the runtime's own checks included. Raises PluginFault."""
    deployment = {
        "apiVersion": API_VERSION,
        "kind": "ModelDeployment",
        "metadata": {"name": name, "namespace": _NAMESPACE, "uid": "00000000-0000-0000-0000-000000000000"},
        "spec": spec,
        "status": {"engine": {"type": base.engine}, "parts": ["model-cache"]},
    }
    return translate(host, deployment, parsed(deployment), context or context_of(host, base))


def context_of(host: ProviderHost, base: Base) -> Context[Any]:
    """The context in which a deployment of `base` is translated: one for all changes of it. Raises PluginFault."""
    return assumed_context(host, engine=base.engine, now=NOW, settings=base.settings, absent=base.absent)


def merged_spec(spec: Resource, *changes: Resource) -> Resource:
    """The spec with changes merged in: maps by key, anything else as a whole."""
    merged = dict(spec)
    for change in changes:
        for key, value in change.items():
            old = merged.get(key)
            merged[key] = merged_spec(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged
