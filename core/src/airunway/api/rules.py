"""The validation rules between fields, written once: the CRDs carry them and `airunway.validation` runs them.

Each rule is CEL, attached to a node of the schema (`path`; ``[*]`` stands for every item of a list). It holds where its
expression is true; `self` is the node. Rules use only what every evaluator has (`has`, macros, `quantity`): no optional
syntax. Rules with quantities say the same a second time, as a function: in process it runs instead. Messages of
spec/api.md are word for word; the others say what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal

from airunway.api.names import MAX_NAME_LENGTH
from airunway.quantity import MAX_EXPONENT, parse_quantity, same_quantity
from airunway.resource import Resource

__all__ = [
    "FORBIDDEN_OVERRIDES",
    "MAX_CPU",
    "MAX_GPUS",
    "MAX_MEMORY",
    "MAX_REPLICAS",
    "MODEL_DEPLOYMENT_RULES",
    "Rule",
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
        "status",
    }
)
"""Keys that ``spec.provider.overrides`` must not have, at any depth (spec/providers.md, "Overrides").

CEL cannot walk data without a schema, so this rule is not in the CRD: the webhook, the reconciler and ``airunway
validate`` apply it.
"""

INVALID = "FieldValueInvalid"
REQUIRED = "FieldValueRequired"
FORBIDDEN = "FieldValueForbidden"
# Not FieldValueDuplicate: the API server would leave the message out.

Check = Callable[[Resource, Resource | None], bool]
"""Whether a node holds, given the one that it replaces (None if new). Nodes fit the schema."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule. `field` is the path below the node that an error names; `message_expression`, when given, makes the
    message (with `message` for when it cannot). A rule whose expression has `oldSelf` speaks of changes and runs on
    updates only.

    The API server passes over a rule whose node an update leaves as it was, so that no object is stuck which came in
    before the rule. The object as a whole is never left as it was (its finalizers are part of it): rules on it have
    `unless_unchanged`, the field below it that they are about.

    `check` is the expression as a function of `self` and `oldSelf`: sizes are any user's to vary, and a function costs
    no evaluator's memory or time for each of them.
    """

    path: str
    expression: str
    message: str
    message_expression: str = ""
    field: str = ""
    reason: str = INVALID
    unless_unchanged: str = ""
    check: Check | None = None

    @property
    def is_transition(self) -> bool:
        return "oldSelf" in self.expression


_GPU_ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}
_DISAGGREGATED = "(has(self.serving) && self.serving.mode == 'disaggregated')"
_HAS_GPUS = (
    "(has(self.resources) && has(self.resources.gpu) && has(self.resources.gpu.count) && self.resources.gpu.count > 0)"
)
_SYSTEM_PATHS = ("/dev", "/proc", "/sys", "/etc", "/var/run", "/run")


def _given(owner: str, field: str) -> str:
    return f"(has({owner}.{field}) && string({owner}.{field}) != '')"


_SIZED_VOLUME_DEFAULTS = {
    "mountPath": "({0}.purpose == 'modelCache' ? '/model-cache' : '/compilation-cache')",
    "purpose": "'custom'",
    "accessMode": "'ReadWriteMany'",
}
"""What is meant where a volume with size leaves a field out: to write it down is no change."""


def _effective(owner: str, field: str, default: str) -> str:
    return f"(has({owner}.{field}) && {owner}.{field} != '' ? {owner}.{field} : {default.format(owner)})"


def _name_rules() -> Iterator[Rule]:
    yield Rule(
        path="",
        expression=f"size(self.metadata.name) <= {MAX_NAME_LENGTH}",
        message=f"the name is too long: choose one of at most {MAX_NAME_LENGTH} characters, because pods, services and "
        "routes get names derived from it",
        field=".metadata.name",
        unless_unchanged="metadata.name",
    )
    yield Rule(
        path="",
        expression="self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        message="the name must start with a lower-case letter and have only lower-case letters, digits and '-' after "
        "it (a DNS label, because a Service gets a name derived from it)",
        field=".metadata.name",
        unless_unchanged="metadata.name",
    )


def _gpu_rules() -> Iterator[Rule]:
    for engine, title in _GPU_ENGINES.items():
        yield Rule(
            path="spec",
            expression=f"!(has(self.engine) && has(self.engine.type) && self.engine.type == '{engine}')"
            f" || {_DISAGGREGATED} || {_HAS_GPUS}",
            message=f"{title} engine requires GPU (set resources.gpu.count > 0)",
            field=".resources.gpu.count",
        )


def _mode_rules() -> Iterator[Rule]:
    yield Rule(
        path="spec",
        expression=f"!{_DISAGGREGATED} || !{_HAS_GPUS}",
        message="Cannot specify both resources.gpu and scaling.prefill/decode",
        field=".resources.gpu",
        reason=FORBIDDEN,
    )
    yield Rule(
        path="spec",
        expression=f"!{_DISAGGREGATED} || (has(self.scaling) && has(self.scaling.prefill) && has(self.scaling.decode))",
        message="Disaggregated mode requires scaling.prefill and scaling.decode",
        field=".scaling",
        reason=REQUIRED,
    )
    for role in ("prefill", "decode"):
        absent = f"!{_DISAGGREGATED} || !has(self.scaling) || !has(self.scaling.{role})"
        node = f"self.scaling.{role}"
        yield Rule(
            path="spec",
            expression=f"{absent} || (has({node}.gpu) && has({node}.gpu.count) && {node}.gpu.count > 0)",
            message=f"Disaggregated mode requires scaling.{role}.gpu.count",
            field=f".scaling.{role}.gpu.count",
            reason=REQUIRED,
        )
        yield Rule(
            path="spec",
            expression=f"{absent} || {_given(node, 'memory')}",
            message=f"Disaggregated mode requires scaling.{role}.memory",
            field=f".scaling.{role}.memory",
            reason=REQUIRED,
        )


def _field_rules() -> Iterator[Rule]:
    yield Rule(
        path="spec.model",
        expression="self.source != 'huggingface' || (has(self.id) && self.id != '')",
        message="model.id is required when source is huggingface",
        field=".id",
        reason=REQUIRED,
    )
    yield Rule(
        path="spec",
        expression="!has(self.image) || self.image == '' || !has(self.engine) || !has(self.engine.image)"
        " || self.engine.image == '' || self.image == self.engine.image",
        message="image and engine.image name different images: keep only engine.image",
        field=".image",
    )
    yield Rule(
        path="spec.engine",
        expression="!has(self.type) || self.type.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        message="engine.type is lower-case letters, digits and '-', such as vllm; leave it out to have one selected",
        field=".type",
    )
    yield Rule(
        path="spec",
        expression="!has(self.runtimeConfigName) || self.runtimeConfigName == ''"
        " || self.runtimeConfigName.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",
        message="no RuntimeConfig can have this name: write lower-case letters, digits, '-' and '.'",
        field=".runtimeConfigName",
    )
    in_both = "t.startsWith('--') && t.substring(2).split('=')[0] in self.args"
    yield Rule(
        path="spec.engine",
        expression=f"!has(self.args) || !has(self.extraArgs) || !self.extraArgs.exists(t, {in_both})",
        message="the same flag is set in engine.args and engine.extraArgs: keep one of the two",
        message_expression=f"self.extraArgs.filter(t, {in_both})[0].split('=')[0]"
        " + ' is set in engine.args and in engine.extraArgs: keep one of the two'",
        field=".extraArgs",
    )


def _ceiling_rules() -> Iterator[Rule]:
    for path in ("spec.resources", "spec.scaling.prefill", "spec.scaling.decode"):
        yield _number_rule(f"{path}.gpu", "count", MAX_GPUS)
        yield from _quantity_rules(path, "memory", maximum=MAX_MEMORY, example="32Gi")
        yield from _quantity_rules(path, "cpu", maximum=MAX_CPU, example="8 or 500m")
    for path in ("spec.scaling", "spec.scaling.prefill", "spec.scaling.decode"):
        yield _number_rule(path, "replicas", MAX_REPLICAS)


def _number_rule(path: str, field: str, maximum: int) -> Rule:
    return Rule(
        path=path,
        expression=f"!has(self.{field}) || self.{field} <= {maximum}",
        message=f"exceeds maximum allowed ({maximum})",
        field=f".{field}",
    )


def _quantity_rules(path: str, field: str, *, maximum: str = "", example: str) -> Iterator[Rule]:
    text = f"string(self.{field})"
    absent = f"!has(self.{field}) || {text} == ''"
    yield Rule(
        path=path,
        expression=f"{absent} || (isQuantity({text}) && !quantity({text}).isLessThan(quantity('0')))",
        message=f"invalid resource quantity (write it like {example})",
        field=f".{field}",
        check=lambda node, _: _is_absent(node, field) or ((amount := _amount(node[field])) is not None and amount >= 0),
    )
    if maximum:
        yield Rule(
            path=path,
            expression=f"{absent} || !isQuantity({text}) || quantity({text}).compareTo(quantity('{maximum}')) <= 0",
            message=f"exceeds maximum allowed ({maximum})",
            field=f".{field}",
            check=lambda node, _: _is_absent(node, field) or _is_within(node[field], parse_quantity(maximum)),
        )


def _is_absent(node: Resource, field: str) -> bool:
    return bool(node.get(field, "") == "")


def _amount(value: object) -> Decimal | None:
    """The amount; None for what is no quantity, or one that is out of range."""
    try:
        amount = parse_quantity(value)
    except ValueError:
        return None
    return amount if abs(amount.adjusted()) <= MAX_EXPONENT or not amount else None


def _is_within(value: object, maximum: Decimal) -> bool:
    """False for what is out of range too; what is no quantity is another rule's matter."""
    amount = _amount(value)
    return amount <= maximum if amount is not None else not _is_quantity(value)


def _is_quantity(value: object) -> bool:
    return same_quantity(value, value)


def _is_same_claim(new: Resource, old: Resource | None) -> bool:
    """Whether a volume asks for the claim that the one before it asked for, if that had a size at all."""
    if old is None or not _is_quantity(old.get("size")):
        return True
    size = _amount(old["size"])
    fields = (*_SIZED_VOLUME_DEFAULTS, "storageClassName")
    return (
        size is not None and _amount(new.get("size")) == size and all(_meant(new, f) == _meant(old, f) for f in fields)
    )


def _meant(volume: Resource, field: str) -> object:
    if field == "storageClassName":
        return volume.get(field)
    if value := volume.get(field):
        return value
    if field == "mountPath":
        return "/model-cache" if volume.get("purpose") == "modelCache" else "/compilation-cache"
    return {"purpose": "custom", "accessMode": "ReadWriteMany"}[field]


def _storage_rules() -> Iterator[Rule]:
    item = "spec.model.storage.volumes[*]"
    yield Rule(
        path=item,
        expression="has(self.size) || (has(self.claimName) && self.claimName != '')",
        message="claimName is required when size is not set (name an existing PersistentVolumeClaim)",
        field=".claimName",
        reason=REQUIRED,
    )
    yield from _quantity_rules(item, "size", example="100Gi")
    yield Rule(
        path=item,
        expression="!has(self.size) || !has(self.readOnly) || !self.readOnly",
        message="readOnly must not be true when size is set (a new claim has to be written first)",
        field=".readOnly",
    )
    for field in ("accessMode", "storageClassName"):
        yield Rule(
            path=item,
            expression=f"!has(self.{field}) || has(self.size)",
            message=f"{field} is only applicable when size is set (an existing claim has its own)",
            field=f".{field}",
            reason=FORBIDDEN,
        )
    mount = "!has(self.mountPath) || self.mountPath == ''"
    yield Rule(
        path=item,
        expression=f"{mount} || self.mountPath.startsWith('/')",
        message="mountPath must be an absolute path (start with /)",
        field=".mountPath",
    )
    yield Rule(
        path=item,
        expression="self.purpose != 'custom' || (has(self.mountPath) && self.mountPath != '')",
        message="mountPath is required when purpose is custom",
        field=".mountPath",
        reason=REQUIRED,
    )
    yield Rule(
        path=item,
        expression=f"{mount} || !(self.mountPath == '/' || self.mountPath.contains('//')"
        " || (self.mountPath + '/').contains('/./') || (self.mountPath + '/').contains('/../'))",
        message="mountPath must name a directory below / plainly (without //, . and ..)",
        field=".mountPath",
    )
    for system in _SYSTEM_PATHS:
        yield Rule(
            path=item,
            expression=f"{mount} || !(self.mountPath == '{system}' || self.mountPath.startsWith('{system}/'))",
            message=f"mountPath must not overlap with system path {system}",
            field=".mountPath",
        )
    yield from _storage_list_rules()


def _storage_list_rules() -> Iterator[Rule]:
    storage = "spec.model.storage"
    for purpose in ("modelCache", "compilationCache"):
        yield Rule(
            path=storage,
            expression=f"!has(self.volumes) || self.volumes.filter(v, v.purpose == '{purpose}').size() <= 1",
            message=f"at most one volume with purpose={purpose} is allowed",
            field=".volumes",
        )
    yield Rule(
        path=storage,
        expression="!has(self.volumes) || self.volumes.all(v, !has(v.mountPath) || v.mountPath == ''"
        " || self.volumes.exists_one(w, has(w.mountPath) && w.mountPath == v.mountPath))",
        message="duplicate mount path: every volume needs a mountPath of its own",
        field=".volumes",
    )
    for purpose, path in (("modelCache", "/model-cache"), ("compilationCache", "/compilation-cache")):
        yield Rule(
            path=storage,
            expression=f"!has(self.volumes) || !self.volumes.exists(v, v.purpose == '{purpose}'"
            f" && (!has(v.mountPath) || v.mountPath == '')) || !self.volumes.exists(v, has(v.mountPath)"
            f" && v.mountPath == '{path}')",
            message=f"duplicate mount path: {path} is where the {purpose} volume is mounted by default",
            field=".volumes",
        )
    yield Rule(
        path=storage,
        expression="!has(self.volumes) || self.volumes.all(v, !has(v.claimName) || v.claimName == ''"
        " || self.volumes.exists_one(w, has(w.claimName) && w.claimName == v.claimName))",
        message="duplicate claim name: every volume needs a claim of its own",
        field=".volumes",
    )
    yield Rule(
        path="",
        expression="!has(self.spec.model.storage) || !has(self.spec.model.storage.volumes)"
        " || self.spec.model.storage.volumes.all(v, !has(v.size) || !has(v.claimName) || v.claimName == ''"
        " || v.claimName == self.metadata.name + '-' + v.name)",
        message="claimName must not be set when size is set (the claim is created as <deployment>-<volume>)",
        field=".spec.model.storage.volumes",
        reason=FORBIDDEN,
        unless_unchanged="spec.model",
    )
    old = "!has(oldSelf.storage) || !has(oldSelf.storage.volumes)"
    yield Rule(
        path="spec.model",
        expression=f"{old} || oldSelf.storage.volumes.all(o, !has(o.size) || (has(self.storage)"
        " && has(self.storage.volumes) && self.storage.volumes.exists(v, v.name == o.name)))",
        message="a volume with size cannot be removed: delete the ModelDeployment to give up its claim",
        field=".storage.volumes",
        reason=FORBIDDEN,
    )
    same = " && ".join(
        f"{_effective('self', field, default)} == {_effective('oldSelf', field, default)}"
        for field, default in _SIZED_VOLUME_DEFAULTS.items()
    )
    yield Rule(
        path=f"{storage}.volumes[*]",
        expression=f"!has(oldSelf.size) || !isQuantity(string(oldSelf.size)) || (has(self.size) && {same}"
        " && quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) == 0"
        " && has(self.storageClassName) == has(oldSelf.storageClassName)"
        " && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName))",
        message="a volume with size cannot be changed once its claim exists: delete the ModelDeployment to change it",
        reason=FORBIDDEN,
        check=_is_same_claim,
    )


MODEL_DEPLOYMENT_RULES: tuple[Rule, ...] = (
    *_name_rules(),
    *_gpu_rules(),
    *_mode_rules(),
    *_field_rules(),
    *_ceiling_rules(),
    *_storage_rules(),
)
"""All rules of the ModelDeployment that CEL in the CRD can express."""
