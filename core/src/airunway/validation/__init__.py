"""The admission rules, evaluated in process from the CRDs' own definitions (docs/admission.md).

They are the schema, the rules between fields, and the rules that only code can express.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import Any

from airunway.api import modeldeployment
from airunway.api.bounds import MAX_CAUSES, MAX_SPEC, excess, size_of
from airunway.api.crds import DEFINITIONS, schema_of
from airunway.api.names import API_VERSION
from airunway.api.rules import FORBIDDEN_OVERRIDES, ValidationRule
from airunway.cel import CelError, CelProgram, Evaluator, compile_expression
from airunway.json_path import MAX_PATH, entries, shortened
from airunway.resource import Resource, dig
from airunway.schema import BLOCKING, UNKNOWN_FIELD, Check, Violation, compile_schema

__all__ = ["Violation", "bounded_violations", "excesses", "prepare", "validate", "warnings"]

_TEXTS: Resource = {"type": "object", "additionalProperties": {"type": "string"}}
_FREE: Resource = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_METADATA: Resource = {
    "type": "object",
    "properties": {
        "annotations": _TEXTS,
        "creationTimestamp": {"type": "string"},
        "deletionGracePeriodSeconds": {"type": "integer"},
        "deletionTimestamp": {"type": "string"},
        "finalizers": {"type": "array", "items": {"type": "string"}},
        "generateName": {"type": "string"},
        "generation": {"type": "integer"},
        "labels": _TEXTS,
        "managedFields": {"type": "array", "items": _FREE},
        "name": {"type": "string"},
        "namespace": {"type": "string"},
        "ownerReferences": {"type": "array", "items": _FREE},
        "resourceVersion": {"type": "string"},
        "selfLink": {"type": "string"},
        "uid": {"type": "string"},
    },
}
_GENERATED_SUFFIX = "xxxxx"
_LONGEST = 1024
"""Characters of a message."""


def validate(obj: Resource, *, old: Resource | None = None, evaluator: Evaluator | None = None) -> list[Violation]:
    """Returns everything that is wrong with an object of one of our kinds: its fields in order, then the rules.

    `old` is the stored object that `obj` replaces: with it, the rules about changes are checked too. Never raises, for
    any `obj`. `status` is not checked, because users cannot write it.

    An object that is too large to be walked (`airunway.api.bounds`) gets only that violation.
    """
    if not isinstance(obj, dict):
        return [Violation(path="", message="must be an object", reason="FieldValueTypeInvalid")]
    kind = obj.get("kind")
    if obj.get("apiVersion") != API_VERSION or not isinstance(kind, str) or kind not in DEFINITIONS:
        *others, last = DEFINITIONS
        given = f"{kind!s:.100} of {obj.get('apiVersion')!s:.100}"
        message = f"must be {', '.join(others)} or {last} of {API_VERSION}, not {given}"
        return [Violation(path="kind", message=message, reason="FieldValueNotSupported")]
    if kind == modeldeployment.KIND and (large := excesses(obj)):
        return large
    return bounded_violations(_found(obj, kind, old, evaluator))


def excesses(obj: Resource) -> list[Violation]:
    """Returns the size limits that a ModelDeployment exceeds. Fast for any object; never raises."""
    return [Violation(path=path, message=message, reason=reason) for path, message, reason in excess(obj)]


def bounded_violations(found: Sequence[Violation]) -> list[Violation]:
    """Returns the first `MAX_CAUSES` violations, with paths and messages of bounded length."""
    listed = [
        replace(violation, path=shortened(violation.path), message=f"{violation.message[: _LONGEST - 1]}…")
        if len(violation.path) > MAX_PATH or len(violation.message) > _LONGEST
        else violation
        for violation in islice(found, MAX_CAUSES)
    ]
    if len(found) > len(listed):
        last = listed[-1]
        listed[-1] = replace(last, message=f"{last.message} (and {len(found) - len(listed)} more problems)")
    return listed


def _found(obj: Resource, kind: str, old: Resource | None, evaluator: Evaluator | None) -> list[Violation]:
    found: list[Violation] = []
    defaulted = _check(kind)({k: v for k, v in obj.items() if k != "status"}, "", found)
    if not isinstance(defaulted, dict):
        return found
    found.extend(_check_name(defaulted))
    if kind == modeldeployment.KIND:
        found[:] = [_with_place(each) if i < MAX_CAUSES else each for i, each in enumerate(found)]
        found.extend(islice(_forbidden_overrides(dig(obj, "spec", "provider", "overrides")), MAX_CAUSES))
    if not any(violation.reason in BLOCKING for violation in found):
        found.extend(_broken_rules(kind, defaulted, old, evaluator))
    return found


def warnings(obj: Resource) -> list[str]:
    """Returns what admission warns about in a ModelDeployment without refusing it (docs/admission.md). Never raises."""
    found = []
    if dig(obj, "spec", "model", "source") == "custom" and dig(obj, "spec", "model", "servedName"):
        found.append("servedName is ignored for custom source")
    if dig(obj, "spec", "engine", "trustRemoteCode") is True:
        found.append("trustRemoteCode executes remote code: Python code of the model's repository runs in the pods")
    return found


def prepare() -> None:
    """Compiles the schema and rules of ModelDeployments (1/20 s), which the first `validate` would do otherwise."""
    _check(modeldeployment.KIND)
    _programs(modeldeployment.KIND, None)


@cache
def _check(kind: str) -> Check:
    schema = schema_of(kind)
    properties = {**schema["properties"], "metadata": _METADATA}
    del properties["status"]
    return compile_schema({**schema, "properties": properties, "required": [*schema.get("required", []), "metadata"]})


def _check_name(obj: Resource) -> list[Violation]:
    """Checks that there is a name; fills in one like the API server's if `generateName` is set."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or metadata.get("name"):
        return []
    prefix = metadata.get("generateName")
    if isinstance(prefix, str) and prefix:
        metadata["name"] = prefix[: 63 - len(_GENERATED_SUFFIX)] + _GENERATED_SUFFIX
        return []
    return [
        Violation(path="metadata.name", message="name or generateName is required", reason="FieldValueRequired"),
    ]


def _broken_rules(kind: str, obj: Resource, old: Resource | None, evaluator: Evaluator | None) -> Iterator[Violation]:
    before = _before(kind, old) if old is not None else None
    nodes: dict[str, list[tuple[str, Any, Any]]] = {}
    for rule, holds, message in _programs(kind, evaluator):
        if rule.path not in nodes:
            nodes[rule.path] = list(_nodes(obj, before, rule.path))
        for path, value, previous in nodes[rule.path]:
            bindings = {"self": value}
            if rule.unless_unchanged and previous is not None and _is_unchanged(rule.unless_unchanged, value, previous):
                continue
            if rule.is_transition:
                if previous is None:
                    continue
                bindings["oldSelf"] = previous
            if not (rule.check(value, previous) if rule.check is not None else _holds(holds, bindings)):
                yield Violation(
                    path=f"{path}{rule.field}".removeprefix("."),
                    message=_text(message, bindings) or rule.message,
                    reason=rule.reason,
                )


def _before(kind: str, old: Resource) -> object:
    """Returns the old object for the rules about changes; if it is too large, only the model, which they are about."""
    if kind == modeldeployment.KIND and excess(old):
        model = dig(old, "spec", "model")
        if size_of(model, limit=MAX_SPEC).over:
            return None
        old = {**old, "spec": {"model": model}, "metadata": {"name": dig(old, "metadata", "name")}}
    return _check(kind)({k: v for k, v in old.items() if k != "status"}, "", [])


@cache
def _programs(
    kind: str, evaluator: Evaluator | None
) -> list[tuple[ValidationRule, CelProgram | None, CelProgram | None]]:
    """Returns each rule with the programs of its condition (None: its `check` is called) and of its message."""

    def program(rule: ValidationRule, expression: str) -> CelProgram:
        variables = ("self", "oldSelf") if rule.is_transition else ("self",)
        return compile_expression(expression, variables=variables, evaluator=evaluator, trusted=True)

    return [
        (
            rule,
            program(rule, rule.expression) if rule.check is None else None,
            program(rule, rule.message_expression) if rule.message_expression else None,
        )
        for rule in DEFINITIONS[kind].rules
    ]


def _is_unchanged(field: str, value: Any, previous: Any) -> bool:
    steps = field.split(".")
    return bool(dig(value, *steps) == dig(previous, *steps))


def _holds(program: CelProgram | None, bindings: dict[str, Any]) -> bool:
    try:
        return program is not None and program.evaluate(bindings) is True
    except CelError:
        return False  # as in the API server: a rule that cannot be evaluated is violated


def _text(program: CelProgram | None, bindings: dict[str, Any]) -> str:
    if program is None:
        return ""
    try:
        return str(program.evaluate(bindings))
    except CelError:
        return ""  # as in the API server: the fixed message is used instead


def _nodes(obj: Any, old: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yields each existing node at `path`: its own path, its value, and the old value (None if the node is new)."""
    found: list[tuple[str, Any, Any]] = [("", obj, old)]
    for step in path.split(".") if path else ():
        name = step.removesuffix("[*]")
        found = [
            (f"{at}.{name}" if at else name, value[name], previous.get(name) if isinstance(previous, dict) else None)
            for at, value, previous in found
            if name in value
        ]
        if step.endswith("[*]"):
            found = [
                (f"{at}[{index}]", item, _same_name(previous, item))
                for at, value, previous in found
                for index, item in enumerate(value)
            ]
    yield from found


def _same_name(items: Any, item: Any) -> Any:
    """Returns the old item with the same name; all lists that rules read are maps by name."""
    if not isinstance(items, list):
        return None
    return next((old for old in items if isinstance(old, dict) and old.get("name") == item.get("name")), None)


_PLACES = {
    "args": "spec.engine.args or spec.engine.extraArgs",
    "command": "spec.engine.args or spec.engine.extraArgs; an image of your own: spec.model.source custom",
    "gpus": "spec.resources.gpu.count",
    "replicas": "spec.scaling.replicas",
    "serviceAccount": "spec.serviceAccountName",
    "spec.podTemplate.spec": "nodeSelector, tolerations, affinity, runtimeClassName, securityContext and env "
    "into spec, and volumes into spec.model.storage.volumes",
    "spec.resources.limits.memory": "spec.resources.memory, which is request and limit",
    "volumeMounts": "spec.model.storage.volumes, with a mountPath",
    "volumes": "spec.model.storage.volumes",
    **dict.fromkeys(
        ("shmSize", "sharedMemory", "sharedMemorySize", "dshm"),
        "spec.resources.memory: /dev/shm has no limit of its own, and what is in it counts as memory",
    ),
}
"""Where people's pods, and other projects, have fields that a deployment has elsewhere: by path, or by name."""


def _place_of(name: str, path: str) -> str:
    """Where a deployment has what somebody wrote as a field `name` at `path`; empty: nowhere, or it is there."""
    known = dig(schema_of(modeldeployment.KIND), "properties", "spec", "properties", default={})
    place = _PLACES.get(path) or _PLACES.get(name) or (f"spec.{name}" if name in known else "")
    return "" if place == path else place


def _with_place(found: Violation) -> Violation:
    """An unknown field, with the place where it belongs if there is one."""
    place = _place_of(found.path.rpartition(".")[2], found.path) if found.message.startswith(UNKNOWN_FIELD) else ""
    return replace(found, message=f"{UNKNOWN_FIELD}, write {place}") if place else found


def _forbidden_overrides(overrides: object) -> Iterator[Violation]:
    """Yields the keys that no provider accepts, at any depth; nothing below such a key is reported."""
    for path, key, _ in entries(overrides, "spec.provider.overrides", below=lambda key: key not in FORBIDDEN_OVERRIDES):
        if key in FORBIDDEN_OVERRIDES:
            yield Violation(
                path=str(path),
                message=f"{key} cannot be overridden, no provider may let it through: "
                f"{f'write {place}' if (place := _place_of(key, str(path))) else 'remove it'}",
                reason="FieldValueForbidden",
            )
