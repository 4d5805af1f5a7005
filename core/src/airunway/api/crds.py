"""Generates the CustomResourceDefinitions from the types and the rules.

``python -m airunway.api.crds`` writes them into the package (``api/crds/*.yaml``), where charts and users find them; a
test fails if the files are stale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from airunway.api import (
    inferenceproviderconfig,
    modelartifact,
    modeldeployment,
    modelsource,
    modeltemplate,
    runtimeconfig,
)
from airunway.api._base import ApiModel
from airunway.api._deployment_status import UNSEEN
from airunway.api._schema import SchemaError, structural_schema
from airunway.api.names import GROUP, VERSION
from airunway.api.rules import MODEL_DEPLOYMENT_RULES, ValidationRule
from airunway.resource import Resource, copy_of

__all__ = ["custom_resource_definitions", "schema_of", "to_yaml", "write"]


@dataclass(frozen=True, kw_only=True)
class _Column:
    name: str
    path: str
    description: str
    type: str = "string"
    wide: bool = False


@dataclass(frozen=True, kw_only=True)
class _Definition:
    kind: str
    plural: str
    short_name: str
    namespaced: bool
    categories: tuple[str, ...]
    model: type[ApiModel]
    required: tuple[str, ...]
    columns: tuple[_Column, ...]
    rules: tuple[ValidationRule, ...] = ()
    scale: Resource | None = None
    unseen: Resource | None = None
    selectable: tuple[str, ...] = ()
    undefaulted: str = ""
    """Path of a part of the schema in which the API server writes no defaults: absent must stay absent."""


_AGE = _Column(
    name="Age", path=".metadata.creationTimestamp", type="date", description="Time since the object was created."
)

_CONFIG_COLUMNS = (
    _Column(
        name="Storage-Class", path=".status.storageClassName", description="StorageClass of claims that name none."
    ),
    _Column(
        name="Routing",
        path=".spec.routing.enabled",
        type="boolean",
        description="Whether models are routed with a path; empty: as each deployment says.",
    ),
    _Column(
        name="Used-By",
        path=".status.usedBy",
        type="integer",
        description="Deployments whose settings come from this config.",
    ),
    _AGE,
)

_MODEL = ".*['model.id','effectiveTemplate.spec.model.id','templateRef.modelName']"
"""Id of the model: ``spec.model.id``, else that of the template as the core recorded it in the status, else the model
that was asked for. Of the values that a path finds a column shows the first, and a union finds them in its own order. A
path has to start with a dot, hence the wildcard, which is spec and status here.
"""

_TEMPLATE_COLUMNS = (
    _Column(name="Phase", path=".status.phase", description="State as one word."),
    _Column(name="Model", path=".spec.modelName", description="Model of the template."),
    _Column(name="Hardware", path=".status.hardware.summary", description="GPUs of one replica."),
    _Column(name="Warm", path=".status.cache.summary", description="Copies of the weights that are complete."),
    _AGE,
    _Column(name="Metric", path=".spec.metric", description="What it is tuned for.", wide=True),
    _Column(name="Precision", path=".spec.precision", description="Precision of the weights.", wide=True),
    _Column(name="Reason", path=".status.reason", description="Why, as one word.", wide=True),
    _Column(name="Message", path=".status.message", description="Why the state is what it is.", wide=True),
)

_DEFINITIONS = (
    _Definition(
        kind=modeldeployment.KIND,
        plural=modeldeployment.PLURAL,
        short_name="md",
        namespaced=True,
        categories=("airunway", "all"),
        model=modeldeployment.ModelDeployment,
        required=("spec",),
        columns=(
            _Column(name="Phase", path=".status.phase", description="State as one word."),
            _Column(name="Model", path=_MODEL, description="Model that is served."),
            _Column(name="Engine", path=".status.engine.type", description="Engine in use."),
            _Column(name="Provider", path=".status.provider.name", description="Provider in use."),
            _Column(name="Ready", path=".status.replicas.summary", description="Ready and wanted replicas."),
            _Column(name="Reason", path=".status.reason", description="Why the state is what it is, as one word."),
            _AGE,
            _Column(name="Endpoint", path=".status.endpoint.url", description="Address in the cluster.", wide=True),
            _Column(name="Message", path=".status.message", description="Why the state is what it is.", wide=True),
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
        kind=inferenceproviderconfig.KIND,
        plural=inferenceproviderconfig.PLURAL,
        short_name="ipc",
        namespaced=False,
        categories=("airunway",),
        model=inferenceproviderconfig.InferenceProviderConfig,
        required=(),
        columns=(
            _Column(
                name="Ready",
                path='.status.conditions[?(@.type=="Available")].status',
                description="Whether it takes deployments: it is ready, and the core hears of it.",
            ),
            _Column(name="Version", path=".status.version", description="Version of the provider."),
            _Column(name="Upstream", path=".status.upstreamCRDVersion", description="API version of the upstream."),
            _Column(
                name="Heartbeat",
                path=".status.lastHeartbeat",
                type="date",
                description="Time since the provider was last known to run.",
            ),
            _AGE,
        ),
    ),
    _Definition(
        kind=runtimeconfig.KIND,
        plural=runtimeconfig.PLURAL,
        short_name="artc",
        namespaced=True,
        categories=("airunway",),
        model=runtimeconfig.RuntimeConfig,
        required=(),
        columns=_CONFIG_COLUMNS,
        rules=runtimeconfig.RUNTIME_CONFIG_RULES,
    ),
    _Definition(
        kind=runtimeconfig.CLUSTER_KIND,
        plural=runtimeconfig.CLUSTER_PLURAL,
        short_name="arcrtc",
        namespaced=False,
        categories=("airunway",),
        model=runtimeconfig.ClusterRuntimeConfig,
        required=(),
        columns=_CONFIG_COLUMNS,
        rules=runtimeconfig.CLUSTER_RUNTIME_CONFIG_RULES,
    ),
    _Definition(
        kind=modelartifact.KIND,
        plural=modelartifact.PLURAL,
        short_name="mart",
        namespaced=True,
        categories=("airunway",),
        model=modelartifact.ModelArtifact,
        required=("spec",),
        columns=(
            _Column(name="Phase", path=".status.phase", description="State as one word."),
            _Column(name="Source", path=".spec.source.uri", description="Where the weights come from."),
            _Column(
                name="Progress",
                path=".status.progress.percentage",
                type="integer",
                description="Part that was fetched, in percent.",
            ),
            _Column(name="Size", path=".status.allocatedSize", description="Size of the claim."),
            _Column(
                name="Used-By", path=".status.users", type="integer", description="Deployments that use the weights."
            ),
            _AGE,
            _Column(name="Reason", path=".status.reason", description="Why, as one word.", wide=True),
            _Column(name="Message", path=".status.message", description="Why the state is what it is.", wide=True),
        ),
        rules=modelartifact.MODEL_ARTIFACT_RULES,
        selectable=(".status.phase",),
    ),
    _Definition(
        kind=modeltemplate.KIND,
        plural=modeltemplate.PLURAL,
        short_name="mtpl",
        namespaced=True,
        categories=("airunway",),
        model=modeltemplate.ModelTemplate,
        required=("spec",),
        columns=_TEMPLATE_COLUMNS,
        rules=modeltemplate.MODEL_TEMPLATE_RULES,
        selectable=(".status.phase",),
        undefaulted="spec.defaults",
    ),
    _Definition(
        kind=modeltemplate.CLUSTER_KIND,
        plural=modeltemplate.CLUSTER_PLURAL,
        short_name="cmtpl",
        namespaced=False,
        categories=("airunway",),
        model=modeltemplate.ClusterModelTemplate,
        required=("spec",),
        columns=_TEMPLATE_COLUMNS,
        rules=modeltemplate.CLUSTER_MODEL_TEMPLATE_RULES,
        selectable=(".status.phase",),
        undefaulted="spec.defaults",
    ),
    _Definition(
        kind=modelsource.KIND,
        plural=modelsource.PLURAL,
        short_name="msrc",
        namespaced=False,
        categories=("airunway",),
        model=modelsource.ModelSource,
        required=("spec",),
        columns=(
            _Column(name="Phase", path=".status.phase", description="State as one word."),
            _Column(name="Registry", path=".spec.registry", description="Registry that is scanned."),
            _Column(
                name="Models", path=".status.models", type="integer", description="Templates made from this source."
            ),
            _Column(
                name="Last-Sync", path=".status.lastSyncTime", type="date", description="Time since the last scan."
            ),
            _AGE,
            _Column(name="Reason", path=".status.reason", description="Why, as one word.", wide=True),
            _Column(name="Message", path=".status.message", description="Why the state is what it is.", wide=True),
        ),
        rules=modelsource.MODEL_SOURCE_RULES,
    ),
)


def custom_resource_definitions() -> list[Resource]:
    """Returns all CRDs of the group, as new ``apiextensions.k8s.io/v1`` objects."""
    return [copy_of(definition) for definition in _definitions()]


@cache
def _definitions() -> tuple[Resource, ...]:
    """All CRDs, made once: pydantic takes a tenth of a second for their schemas."""
    return tuple(_definition(definition) for definition in _DEFINITIONS)


def schema_of(kind: str) -> Resource:
    """Returns the structural schema of a kind, without its CEL rules. Raises KeyError for a kind of another group."""
    definition = next((d for d in _DEFINITIONS if d.kind == kind), None)
    if definition is None:
        raise KeyError(kind)
    return _schema(definition)


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
    schema = _schema(definition)
    for rule in definition.rules:
        _node(schema, rule.path).setdefault("x-kubernetes-validations", []).append(_validation(rule))
    version: Resource = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, **({"scale": definition.scale} if definition.scale else {})},
        "additionalPrinterColumns": [_column(column) for column in definition.columns],
    }
    if definition.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in definition.selectable]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{definition.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": definition.kind,
                "listKind": f"{definition.kind}List",
                "plural": definition.plural,
                "singular": definition.kind.lower(),
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
    if definition.required:
        schema["required"] = list(definition.required)
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


def _column(column: _Column) -> Resource:
    printed: Resource = {
        "name": column.name,
        "type": column.type,
        "jsonPath": column.path,
        "description": column.description,
    }
    if column.wide:
        printed["priority"] = 1
    return printed


if __name__ == "__main__":
    write(Path(__file__).parent / "crds")
