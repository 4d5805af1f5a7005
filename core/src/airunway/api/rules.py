"""The validation rules between fields: they are written into the CRDs, and `airunway.validation` evaluates them.

Each rule is CEL, attached to a node of the schema (`path`; ``[*]`` means every item of a list); `self` is the node, and
the rule holds if its expression is true. Rules use only what every evaluator has (`has`, macros, `quantity`) and no
optional syntax. Rules with quantities also exist as a Python function, which is used in process. The messages of
spec/api.md are used word for word; the others say what to do.
"""

from __future__ import annotations

from collections.abc import Iterator

from airunway.api._rule import FORBIDDEN, REQUIRED, ValidationRule, quantity_rules
from airunway.api._storage_rules import storage_rules
from airunway.api.names import MAX_NAME_LENGTH

__all__ = [
    "FORBIDDEN_OVERRIDES",
    "MAX_CPU",
    "MAX_GPUS",
    "MAX_MEMORY",
    "MAX_REPLICAS",
    "MODEL_DEPLOYMENT_RULES",
    "ValidationRule",
]

MAX_GPUS = 64
"""Most GPUs of one replica or worker."""
MAX_REPLICAS = 32
"""Most replicas of a deployment or of one role."""
MAX_CPU = "512"
"""Most CPU of one replica or worker, in cores."""
MAX_MEMORY = "4Ti"
"""Most memory of one replica or worker, in bytes."""

FORBIDDEN_OVERRIDES = frozenset(
    {
        "apiVersion",
        "automountServiceAccountToken",
        "hostIPC",
        "hostNetwork",
        "hostPID",
        "hostPath",
        "kind",
        "metadata",
        "nodeName",
        "runtimeClassName",
        "securityContext",
        "serviceAccount",
        "serviceAccountName",
        "shareProcessNamespace",
        "status",
    }
)
"""Keys that ``spec.provider.overrides`` must not have, at any depth (spec/providers.md, "Overrides").

CEL cannot walk data without a schema, so this rule is not in the CRD: the webhook, the reconciler and
``airunway validate`` apply it.
"""

_GPU_ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}
_DISAGGREGATED = "(has(self.serving) && self.serving.mode == 'disaggregated')"
_HAS_GPUS = (
    "(has(self.resources) && has(self.resources.gpu) && has(self.resources.gpu.count) && self.resources.gpu.count > 0)"
)


def _given(owner: str, field: str) -> str:
    return f"(has({owner}.{field}) && string({owner}.{field}) != '')"


def _name_rules() -> Iterator[ValidationRule]:
    yield ValidationRule(
        path="",
        expression=f"size(self.metadata.name) <= {MAX_NAME_LENGTH}",
        message=f"the name is too long: choose one of at most {MAX_NAME_LENGTH} characters, because pods, services and "
        "routes get names derived from it",
        field=".metadata.name",
        unless_unchanged="metadata.name",
    )
    yield ValidationRule(
        path="",
        expression="self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        message="the name must start with a lower-case letter and have only lower-case letters, digits and '-' after "
        "it (a DNS label, because a Service gets a name derived from it)",
        field=".metadata.name",
        unless_unchanged="metadata.name",
    )


def _gpu_rules() -> Iterator[ValidationRule]:
    for engine, title in _GPU_ENGINES.items():
        yield ValidationRule(
            path="spec",
            expression=f"has(self.templateRef) || !(has(self.engine) && has(self.engine.type)"
            f" && self.engine.type == '{engine}') || {_DISAGGREGATED} || {_HAS_GPUS}",
            message=f"{title} engine requires GPU (set resources.gpu.count > 0)",
            field=".resources.gpu.count",
        )


def _mode_rules() -> Iterator[ValidationRule]:
    yield ValidationRule(
        path="spec",
        expression=f"!{_DISAGGREGATED} || !{_HAS_GPUS}",
        message="Cannot specify both resources.gpu and scaling.prefill/decode",
        field=".resources.gpu",
        reason=FORBIDDEN,
    )
    yield ValidationRule(
        path="spec",
        expression=f"has(self.templateRef) || !{_DISAGGREGATED}"
        " || (has(self.scaling) && has(self.scaling.prefill) && has(self.scaling.decode))",
        message="Disaggregated mode requires scaling.prefill and scaling.decode",
        field=".scaling",
        reason=REQUIRED,
    )
    for role in ("prefill", "decode"):
        absent = f"has(self.templateRef) || !{_DISAGGREGATED} || !has(self.scaling) || !has(self.scaling.{role})"
        node = f"self.scaling.{role}"
        yield ValidationRule(
            path="spec",
            expression=f"{absent} || (has({node}.gpu) && has({node}.gpu.count) && {node}.gpu.count > 0)",
            message=f"Disaggregated mode requires scaling.{role}.gpu.count",
            field=f".scaling.{role}.gpu.count",
            reason=REQUIRED,
        )
        yield ValidationRule(
            path="spec",
            expression=f"{absent} || {_given(node, 'memory')}",
            message=f"Disaggregated mode requires scaling.{role}.memory",
            field=f".scaling.{role}.memory",
            reason=REQUIRED,
        )


def _model_rules() -> Iterator[ValidationRule]:
    template = "has(self.templateRef)"
    has_id = "(has(self.model.id) && self.model.id != '')"
    yield ValidationRule(
        path="spec",
        expression=f"{template} || has(self.model)",
        message="name a model in model.id, or a template in templateRef",
        field=".model",
        reason=REQUIRED,
    )
    yield ValidationRule(
        path="spec",
        expression=f"{template} || !has(self.model) || self.model.source != 'huggingface' || {has_id}",
        message="model.id is required when source is huggingface",
        field=".model.id",
        reason=REQUIRED,
    )
    yield ValidationRule(
        path="spec",
        expression=f"!{template} || !has(self.model) || (!{has_id} && self.model.source == 'huggingface')",
        message="templateRef and model.id exclude each other (and source custom is a model too): keep one of the two",
        field=".templateRef",
        reason=FORBIDDEN,
    )
    named, by_model = (f"(has(self.{field}) && self.{field} != '')" for field in ("name", "modelName"))
    yield ValidationRule(
        path="spec.templateRef",
        expression=f"{named} != {by_model}",
        message="templateRef has either name or modelName",
    )
    yield ValidationRule(
        path="spec.templateRef",
        expression=f"{by_model} || (!has(self.metric) && (!has(self.precision) || self.precision == ''))",
        message="metric and precision choose among the templates of a modelName: leave them out with name",
        field=".metric",
    )


def _field_rules() -> Iterator[ValidationRule]:
    yield from _model_rules()
    yield ValidationRule(
        path="spec",
        expression="!has(self.image) || self.image == '' || !has(self.engine) || !has(self.engine.image)"
        " || self.engine.image == '' || self.image == self.engine.image",
        message="image and engine.image name different images: keep only engine.image",
        field=".image",
    )
    yield ValidationRule(
        path="spec.engine",
        expression="!has(self.type) || self.type.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        message="engine.type is lower-case letters, digits and '-', such as vllm; leave it out to have one selected",
        field=".type",
    )
    yield ValidationRule(
        path="spec",
        expression="!has(self.runtimeConfigName) || self.runtimeConfigName == ''"
        " || self.runtimeConfigName.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",
        message="no RuntimeConfig can have this name: write lower-case letters, digits, '-' and '.'",
        field=".runtimeConfigName",
    )
    in_both = "t.startsWith('--') && t.substring(2).split('=')[0] in self.args"
    yield ValidationRule(
        path="spec.engine",
        expression=f"!has(self.args) || !has(self.extraArgs) || !self.extraArgs.exists(t, {in_both})",
        message="the same flag is set in engine.args and engine.extraArgs: keep one of the two",
        message_expression=f"self.extraArgs.filter(t, {in_both})[0].split('=')[0]"
        " + ' is set in engine.args and in engine.extraArgs: keep one of the two'",
        field=".extraArgs",
    )


def _ceiling_rules() -> Iterator[ValidationRule]:
    for path in ("spec.resources", "spec.scaling.prefill", "spec.scaling.decode"):
        yield _number_rule(f"{path}.gpu", "count", MAX_GPUS)
        yield from quantity_rules(path, "memory", maximum=MAX_MEMORY, example="32Gi")
        yield from quantity_rules(path, "cpu", maximum=MAX_CPU, example="8 or 500m")
    for path in ("spec.scaling", "spec.scaling.prefill", "spec.scaling.decode"):
        yield _number_rule(path, "replicas", MAX_REPLICAS)


def _number_rule(path: str, field: str, maximum: int) -> ValidationRule:
    return ValidationRule(
        path=path,
        expression=f"!has(self.{field}) || self.{field} <= {maximum}",
        message=f"exceeds maximum allowed ({maximum})",
        field=f".{field}",
    )


MODEL_DEPLOYMENT_RULES: tuple[ValidationRule, ...] = (
    *_name_rules(),
    *_gpu_rules(),
    *_mode_rules(),
    *_field_rules(),
    *_ceiling_rules(),
    *storage_rules(),
)
"""All rules of the ModelDeployment that CEL in the CRD can express."""
