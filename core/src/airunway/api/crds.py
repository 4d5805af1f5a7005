"""Generates the CustomResourceDefinitions from the types and the rules.

``python -m airunway.api.crds`` writes them into the package (``api/crds/*.yaml``), where charts and users find them; a
test fails if the files are stale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from airunway.api import (
    inferenceproviderconfig,
    modelartifact,
    modeldeployment,
    modelsource,
    modeltemplate,
    runtimeconfig,
)
from airunway.api._deployment_status import UNSEEN
from airunway.api.base import ApiModel
from airunway.api.names import GROUP, VERSION
from airunway.api.rules import MODEL_DEPLOYMENT_RULES, ValidationRule
from airunway.resource import Resource, copy_of


def _column(name: str, path: str, description: str, *, type: str = "string", wide: bool = False) -> Resource:
    column = {"name": name, "type": type, "jsonPath": path, "description": description}
    return {**column, "priority": 1} if wide else column


@dataclass(frozen=True, kw_only=True)
class _Definition:
    model: type[ApiModel]
    short_name: str
    namespaced: bool
    columns: tuple[Resource, ...]
    categories: tuple[str, ...] = ("airunway",)
    rules: tuple[ValidationRule, ...] = ()
    scale: Resource | None = None
    unseen: Resource | None = None
    selectable: tuple[str, ...] = ()
    undefaulted: str = ""
    """Path of a part of the schema in which the API server writes no defaults: absent must stay absent."""

    @property
    def kind(self) -> str:
        return str(self.model.model_fields["kind"].default)


_AGE = _column("Age", ".metadata.creationTimestamp", "Time since the object was created.", type="date")

_CONFIG_COLUMNS = (
    _column("Storage-Class", ".status.storageClassName", "StorageClass of claims that name none."),
    _column(
        "Routing",
        ".spec.routing.enabled",
        "Whether models are routed with a path; empty: as each deployment says.",
        type="boolean",
    ),
    _column("Used-By", ".status.usedBy", "Deployments whose settings come from this config.", type="integer"),
    _AGE,
)

_MODEL = ".*['model.id','revision.template.spec.model.id','templateRef.modelName']"
"""Id of the model: ``spec.model.id``, else that of the template as the core recorded it in the status, else the model
that was asked for. Of the values that a path finds a column shows the first, and a union finds them in its own order. A
path has to start with a dot, hence the wildcard, which is spec and status here.
"""

_TEMPLATE_COLUMNS = (
    _column("Phase", ".status.phase", "State as one word."),
    _column("Model", ".spec.modelName", "Model of the template."),
    _column("Hardware", ".status.hardware.summary", "GPUs of one replica."),
    _column("Warm", ".status.cache.summary", "Copies of the weights that are complete."),
    _AGE,
    _column("Metric", ".spec.metric", "What it is tuned for.", wide=True),
    _column("Precision", ".spec.precision", "Precision of the weights.", wide=True),
    _column("Reason", ".status.reason", "Why, as one word.", wide=True),
    _column("Message", ".status.message", "Why the state is what it is.", wide=True),
)

_ALL = (
    _Definition(
        short_name="md",
        namespaced=True,
        categories=("airunway", "all"),
        model=modeldeployment.ModelDeployment,
        columns=(
            _column("Phase", ".status.phase", "State as one word."),
            _column("Model", _MODEL, "Model that is served."),
            _column("Engine", ".status.engine.type", "Engine in use."),
            _column("Provider", ".status.provider.name", "Provider in use."),
            _column("Ready", ".status.replicas.summary", "Ready and wanted replicas."),
            _column("Reason", ".status.reason", "Why the state is what it is, as one word."),
            _AGE,
            _column("Endpoint", ".status.endpoint.url", "Address in the cluster.", wide=True),
            _column(
                "Share",
                ".status.gateway.group.share",
                "Percent of the requests that its group shares.",
                type="integer",
                wide=True,
            ),
            _column("Message", ".status.message", "Why the state is what it is.", wide=True),
        ),
        rules=MODEL_DEPLOYMENT_RULES,
        scale={
            "specReplicasPath": ".spec.scaling.replicas",
            "statusReplicasPath": ".status.replicas.desired",
            "labelSelectorPath": ".status.selector",
        },
        selectable=(".status.phase", ".status.provider.name"),
        unseen=UNSEEN,
    ),
    _Definition(
        short_name="ipc",
        namespaced=False,
        model=inferenceproviderconfig.InferenceProviderConfig,
        columns=(
            _column(
                "Ready",
                '.status.conditions[?(@.type=="Available")].status',
                "Whether it takes deployments: it is ready, and the core hears of it.",
            ),
            _column("Version", ".status.version", "Version of the provider."),
            _column("Reports", ".status.ready", "Whether the provider itself says that it is ready.", wide=True),
            _column("Upstream", ".status.upstreamCRDVersion", "API version of the upstream."),
            _column(
                "Heartbeat", ".status.lastHeartbeat", "Time since the provider was last known to run.", type="date"
            ),
            _AGE,
        ),
    ),
    _Definition(
        short_name="artc",
        namespaced=True,
        model=runtimeconfig.RuntimeConfig,
        columns=_CONFIG_COLUMNS,
        rules=runtimeconfig.RUNTIME_CONFIG_RULES,
    ),
    _Definition(
        short_name="arcrtc",
        namespaced=False,
        model=runtimeconfig.ClusterRuntimeConfig,
        columns=_CONFIG_COLUMNS,
        rules=runtimeconfig.CLUSTER_RUNTIME_CONFIG_RULES,
    ),
    _Definition(
        short_name="mart",
        namespaced=True,
        model=modelartifact.ModelArtifact,
        columns=(
            _column("Phase", ".status.phase", "State as one word."),
            _column("Source", ".spec.source.uri", "Where the weights come from."),
            _column("Progress", ".status.progress.percentage", "Part that was fetched, in percent.", type="integer"),
            _column("Size", ".status.allocatedSize", "Size of the claim."),
            _column("Used-By", ".status.users", "Deployments that use the weights.", type="integer"),
            _AGE,
            _column("Reason", ".status.reason", "Why, as one word.", wide=True),
            _column("Message", ".status.message", "Why the state is what it is.", wide=True),
        ),
        rules=modelartifact.MODEL_ARTIFACT_RULES,
        selectable=(".status.phase",),
    ),
    _Definition(
        short_name="mtpl",
        namespaced=True,
        model=modeltemplate.ModelTemplate,
        columns=_TEMPLATE_COLUMNS,
        rules=modeltemplate.MODEL_TEMPLATE_RULES,
        selectable=(".status.phase",),
        undefaulted="spec.defaults",
    ),
    _Definition(
        short_name="cmtpl",
        namespaced=False,
        model=modeltemplate.ClusterModelTemplate,
        columns=_TEMPLATE_COLUMNS,
        rules=modeltemplate.CLUSTER_MODEL_TEMPLATE_RULES,
        selectable=(".status.phase",),
        undefaulted="spec.defaults",
    ),
    _Definition(
        short_name="msrc",
        namespaced=False,
        model=modelsource.ModelSource,
        columns=(
            _column("Phase", ".status.phase", "State as one word."),
            _column("Models", ".status.models", "Templates made from this source.", type="integer"),
            _column("Last-Scan", ".status.lastSyncTime", "Time since the last scan.", type="date"),
            _AGE,
            _column("Registry", ".spec.registry", "Registry that is scanned.", wide=True),
            _column("Reason", ".status.reason", "Why, as one word.", wide=True),
            _column("Message", ".status.message", "Why the state is what it is.", wide=True),
        ),
        rules=modelsource.MODEL_SOURCE_RULES,
    ),
)
DEFINITIONS: Mapping[str, _Definition] = {definition.kind: definition for definition in _ALL}
"""Our kinds, by name."""


def custom_resource_definitions() -> list[Resource]:
    """Returns all CRDs of the group, as new ``apiextensions.k8s.io/v1`` objects."""
    return [copy_of(definition) for definition in _definitions()]


@cache
def _definitions() -> tuple[Resource, ...]:
    """All CRDs, made once: pydantic takes a tenth of a second for their schemas."""
    return tuple(_definition(definition) for definition in _ALL)


def schema_of(kind: str) -> Resource:
    """Returns the structural schema of a kind, without its CEL rules. Raises KeyError for a kind of another group."""
    return _schema(DEFINITIONS[kind])


def to_yaml(objects: Sequence[Resource]) -> str:
    """Returns the objects as one YAML stream."""
    return yaml.safe_dump_all(objects, sort_keys=True, explicit_start=True, width=120, allow_unicode=True)


def write(folder: Path) -> list[Path]:
    """Writes each CRD into `folder` as ``<group>_<plural>.yaml``; returns the paths."""
    paths = []
    for crd in custom_resource_definitions():
        path = folder / f"{GROUP}_{crd['spec']['names']['plural']}.yaml"
        path.write_text(to_yaml([crd]), encoding="utf-8")
        paths.append(path)
    return paths


def _definition(definition: _Definition) -> Resource:
    kind = definition.kind
    plural = f"{kind.lower()}s"
    schema = _schema(definition)
    for rule in definition.rules:
        _node(schema, rule.path).setdefault("x-kubernetes-validations", []).append(_validation(rule))
    version: Resource = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, **({"scale": definition.scale} if definition.scale else {})},
        "additionalPrinterColumns": list(definition.columns),
    }
    if definition.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in definition.selectable]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [definition.short_name],
                "categories": list(definition.categories),
            },
            "scope": "Namespaced" if definition.namespaced else "Cluster",
            "versions": [version],
        },
    }


def _schema(definition: _Definition) -> Resource:
    parts = {name: structural_schema(_part(definition.model, name)) for name in ("spec", "status")}
    schema: Resource = {
        "type": "object",
        "description": definition.model.__doc__ or "",
        "properties": {
            "apiVersion": {
                "type": "string",
                "description": f"Version of the schema of this object: {GROUP}/{VERSION}.",
            },
            "kind": {"type": "string", "description": f"Kind of this object: {definition.kind}."},
            "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
            "spec": parts["spec"],
            "status": parts["status"],
        },
    }
    if definition.undefaulted:
        _remove_defaults(_node(schema, definition.undefaulted))
    if definition.unseen is not None:
        schema["properties"]["status"]["default"] = copy_of(definition.unseen)
    if definition.model.model_fields["spec"].is_required():
        schema["required"] = ["spec"]
    return schema


def _part(model: type[ApiModel], field: str) -> type[ApiModel]:
    part = model.model_fields[field].annotation
    if not (isinstance(part, type) and issubclass(part, ApiModel)):
        raise SchemaError(f"{model.__name__}.{field} is not a type of the API")
    return part


def _node(schema: Resource, path: str) -> Resource:
    for step in path.split(".") if path else ():
        schema = schema["properties"][step.removesuffix("[*]")]
        if step.endswith("[*]"):
            schema = schema["items"]
    return schema


def _remove_defaults(schema: Resource) -> None:
    schema.pop("default", None)
    for child in (*schema.get("properties", {}).values(), schema.get("items")):
        if isinstance(child, dict):
            _remove_defaults(child)


def _validation(rule: ValidationRule) -> Resource:
    validation: Resource = {"rule": rule.expression, "message": rule.message, "reason": rule.reason}
    if rule.unless_unchanged:
        # `oldSelf` is optional then, because it does not exist when the object is created.
        field = rule.unless_unchanged
        same = f"oldSelf.hasValue() && oldSelf.value().{field} == self.{field}"
        validation |= {"rule": f"({same}) || ({rule.expression})", "optionalOldSelf": True}
    if rule.message_expression:
        validation["messageExpression"] = rule.message_expression
    if rule.field:
        validation["fieldPath"] = rule.field
    return validation


_KEPT = frozenset(
    {
        "description",
        "enum",
        "format",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minimum",
        "pattern",
        "type",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
        "x-kubernetes-preserve-unknown-fields",
    }
)
_DROPPED = frozenset({"additionalProperties", "default", "title", "x-airunway-required", "x-airunway-server-default"})
_LEAST = {"int32": -(2**31), "int64": -(2**63)}
_MOST = {"int32": 2**31 - 1, "int64": 2**63 - 1}
_SHAPE = frozenset({"$ref", "allOf", "anyOf", "const", "items", "properties", "required"})


class SchemaError(TypeError):
    """A type of the API cannot be expressed as a structural schema."""


def structural_schema(model: type[ApiModel]) -> Resource:
    """Returns the structural schema of `model`: no references, no unions, only marked defaults.

    Raises SchemaError for what a CRD cannot express (real unions, recursion, an unknown keyword).
    """
    document = model.model_json_schema(by_alias=True, mode="validation")
    definitions = document.pop("$defs", {})
    return _convert(document, definitions, model.__name__, ())


def _convert(node: Resource, definitions: Resource, path: str, open_refs: tuple[str, ...]) -> Resource:
    node = _without_null(node, path)
    if reference := node.get("$ref"):
        name = reference.rsplit("/", 1)[-1]
        if name in open_refs:
            raise SchemaError(f"{path}: {name} contains itself")
        outer = {key: value for key, value in node.items() if key != "$ref"}
        return _convert({**definitions[name], **outer}, definitions, path, (*open_refs, name))
    unknown = node.keys() - _KEPT - _DROPPED - _SHAPE
    if unknown:
        raise SchemaError(f"{path}: keyword {sorted(unknown)[0]!r} has no place in a structural schema")
    schema = {key: value for key, value in node.items() if key in _KEPT}
    if node.get("x-airunway-server-default"):
        schema["default"] = node["default"]
    for keyword, limits in (("minimum", _LEAST), ("maximum", _MOST)):
        if schema.get(keyword) == limits.get(schema.get("format", "")):
            schema.pop(keyword, None)  # the format implies this limit
    if schema.get("type") == "object":
        _convert_object(schema, node, definitions, path, open_refs)
    elif schema.get("type") == "array":
        schema["items"] = _convert(node["items"], definitions, f"{path}[*]", open_refs)
        schema.setdefault("x-kubernetes-list-type", "atomic")
    elif "type" not in schema and "x-kubernetes-int-or-string" not in schema:
        raise SchemaError(f"{path}: no type")
    return schema


def _convert_object(
    schema: Resource, node: Resource, definitions: Resource, path: str, open_refs: tuple[str, ...]
) -> None:
    properties: dict[str, Any] = node.get("properties", {})
    if properties:
        schema["properties"] = {
            name: _convert(child, definitions, f"{path}.{name}", open_refs) for name, child in properties.items()
        }
        marked = {name for name, child in properties.items() if child.get("x-airunway-required")}
        if required := sorted(marked | set(node.get("required", ()))):
            schema["required"] = required
    elif "x-kubernetes-preserve-unknown-fields" not in schema:
        schema["additionalProperties"] = _convert(node["additionalProperties"], definitions, f"{path}.*", open_refs)


def _without_null(node: Resource, path: str) -> Resource:
    """Converts ``X | None`` to X: in Kubernetes an optional field is absent, not null."""
    if "anyOf" not in node:
        return node
    variants = [variant for variant in node["anyOf"] if variant.get("type") != "null"]
    if len(variants) != 1:
        raise SchemaError(f"{path}: a union of {len(variants)} types")
    outer = {key: value for key, value in node.items() if key != "anyOf"}
    return {**variants[0], **outer}


if __name__ == "__main__":
    write(Path(__file__).parent / "crds")
