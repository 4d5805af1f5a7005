"""Every field that the Go project's 0.7 has in a ModelDeployment's spec is there, as wide as it is there or wider.

The table is that project's API as it was studied: a field's type, its values where they are limited, and what it means
where it is left out. What differs is on purpose: any engine name instead of four, because third parties
bring engines, and no default for `enablePrefixCaching`, because absent means the engine's own.
"""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from airunway.api.crds import schema_of
from airunway.api.modeldeployment import defaulted_spec
from airunway.api.rules import MODEL_DEPLOYMENT_RULES
from airunway.resource import Resource, dig

FIELDS: Resource = yaml.safe_load("""
model.id: {type: string}
model.servedName: {type: string}
model.source: {type: string, enum: [huggingface, custom], default: huggingface}
model.storage.volumes: {type: array, maxItems: 8, keys: [name]}
model.storage.volumes[].name: {type: string, required: true, maxLength: 63}
model.storage.volumes[].claimName: {type: string}
model.storage.volumes[].mountPath: {type: string}
model.storage.volumes[].purpose: {type: string, enum: [modelCache, compilationCache, custom], default: custom}
model.storage.volumes[].readOnly: {type: boolean}
model.storage.volumes[].size: {type: quantity}
model.storage.volumes[].storageClassName: {type: string}
model.storage.volumes[].accessMode:
  {type: string, enum: [ReadWriteOnce, ReadWriteMany, ReadOnlyMany, ReadWriteOncePod]}
provider.name: {type: string}
provider.overrides: {type: object, free: true}
engine.type: {type: string}
engine.image: {type: string}
engine.contextLength: {type: integer}
engine.trustRemoteCode: {type: boolean, absent: false}
engine.enablePrefixCaching: {type: boolean}
engine.enforceEager: {type: boolean, absent: false}
engine.args: {type: object, values: string}
engine.extraArgs: {type: array, items: string}
serving.mode: {type: string, enum: [aggregated, disaggregated], default: aggregated, absent: aggregated}
scaling.replicas: {type: integer, minimum: 0, maximum: 32, default: 1, absent: 1}
scaling.prefill.replicas: {type: integer, minimum: 0, maximum: 32, default: 1}
scaling.prefill.gpu.count: {type: integer, minimum: 0, maximum: 64}
scaling.prefill.gpu.type: {type: string, default: nvidia.com/gpu}
scaling.prefill.memory: {type: quantity, maximum: 4Ti}
scaling.decode.replicas: {type: integer, minimum: 0, maximum: 32, default: 1}
scaling.decode.gpu.count: {type: integer, minimum: 0, maximum: 64}
scaling.decode.gpu.type: {type: string, default: nvidia.com/gpu}
scaling.decode.memory: {type: quantity, maximum: 4Ti}
resources.gpu.count: {type: integer, minimum: 0, maximum: 64, absent: 0}
resources.gpu.type: {type: string, default: nvidia.com/gpu, absent: nvidia.com/gpu}
resources.memory: {type: quantity, maximum: 4Ti}
resources.cpu: {type: quantity, maximum: "512"}
image: {type: string}
env: {type: array}
env[].name: {type: string, required: true}
env[].value: {type: string}
env[].valueFrom.secretKeyRef.key: {type: string, required: true}
env[].valueFrom.configMapKeyRef.key: {type: string, required: true}
env[].valueFrom.fieldRef.fieldPath: {type: string, required: true}
env[].valueFrom.resourceFieldRef.resource: {type: string, required: true}
env[].valueFrom.fileKeyRef.path: {type: string, required: true}
podTemplate.metadata.labels: {type: object, values: string}
podTemplate.metadata.annotations: {type: object, values: string}
secrets.huggingFaceToken: {type: string}
gateway.enabled: {type: boolean}
gateway.modelName: {type: string}
gateway.httpRouteRef: {type: string}
nodeSelector: {type: object, values: string}
tolerations: {type: array}
tolerations[].key: {type: string}
tolerations[].operator: {type: string}
tolerations[].value: {type: string}
tolerations[].effect: {type: string}
tolerations[].tolerationSeconds: {type: integer}
""")


def node(path: str) -> tuple[Resource, bool]:
    """The schema of a field, and whether it is required where it stands."""
    schema, required = schema_of("ModelDeployment")["properties"]["spec"], False
    for step in path.split("."):
        name = step.removesuffix("[]")
        required = name in schema.get("required", [])
        schema = schema["properties"][name]
        if step.endswith("[]"):
            schema = schema["items"]
    return schema, required


@pytest.mark.parametrize("path", list(FIELDS))
def test_the_field_is_there(path: str) -> None:
    wanted: dict[str, Any] = FIELDS[path]
    schema, required = node(path)
    assert ("quantity" if schema.get("x-kubernetes-int-or-string") else schema["type"]) == wanted["type"]
    assert required == wanted.get("required", False)
    assert ("enum" in schema) == ("enum" in wanted)
    assert set(schema.get("enum", ())) >= set(wanted.get("enum", ()))
    assert schema.get("default") == wanted.get("default")
    assert schema.get("minimum", 0) == 0
    assert schema.get("maxItems", 0) in (0, wanted.get("maxItems", schema.get("maxItems", 0)))
    assert schema.get("x-kubernetes-list-map-keys", []) == wanted.get("keys", [])
    assert bool(schema.get("x-kubernetes-preserve-unknown-fields")) == wanted.get("free", False)
    if "values" in wanted:
        assert schema["additionalProperties"]["type"] == wanted["values"]
    if "items" in wanted:
        assert schema["items"]["type"] == wanted["items"]


@pytest.mark.parametrize("path", [path for path, wanted in FIELDS.items() if "maximum" in wanted])
def test_the_ceiling_is_a_rule(path: str) -> None:
    where, _, field = f"spec.{path}".rpartition(".")
    told = [rule.message for rule in MODEL_DEPLOYMENT_RULES if (rule.path, rule.field) == (where, f".{field}")]
    assert f"exceeds maximum allowed ({FIELDS[path]['maximum']})" in told


@pytest.mark.parametrize("path", [path for path, wanted in FIELDS.items() if "absent" in wanted])
def test_what_it_means_to_leave_it_out(path: str) -> None:
    spec = defaulted_spec({"model": {"id": "a"}}, engine=None)
    assert dig(spec, *path.split(".")) == FIELDS[path]["absent"]
