"""How large a ModelDeployment may be, and finding out at a cost that does not depend on how large it is.

The one table of these limits. Those of single fields stand in the CRD too (the types name them); what a schema cannot
say, because the field is free-form or because it is about the whole, is found here: by `excess`, before anything else
walks the object. Admission, the core, the provider runtime and the caches all ask it. Pure.

Sizes are those of the JSON without white space, in bytes of UTF-8. The limits leave a provider's preset with hundreds
of variables plenty of room: the manifests of the Go project have 1 to 3 KiB.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, NamedTuple

import orjson

from airunway.json_path import shortened
from airunway.resource import Resource, dig

__all__ = [
    "EXCESS",
    "MAX_ANNOTATIONS",
    "MAX_CAUSES",
    "MAX_CONSTRAINTS",
    "MAX_DEPTH",
    "MAX_ENTRIES",
    "MAX_ENV",
    "MAX_FINALIZERS",
    "MAX_KEY",
    "MAX_LABELS",
    "MAX_NAME",
    "MAX_SECRETS",
    "MAX_SPEC",
    "MAX_TOLERATIONS",
    "MAX_VALUE",
    "Excess",
    "JsonSize",
    "excess",
    "is_modest",
    "noted_excess",
    "outline",
    "size_of",
]

MAX_SPEC = 32 * 2**10
"""Bytes of a whole spec."""
MAX_LABELS = 4 * 2**10
"""Bytes of the deployment's own labels."""
MAX_ANNOTATIONS = 4 * 2**10
"""Bytes of those of the deployment's own annotations that AI Runway reads."""
MAX_FINALIZERS = 64
"""Finalizers of the deployment: its user may write them too."""
MAX_DEPTH = 64
"""Deepest nesting of a spec."""
MAX_KEY = 512
"""Characters of a key in a free-form field. Kubernetes' own longest keys, of labels, have 317."""

MAX_ENV = 256
"""Environment variables."""
MAX_TOLERATIONS = 64
"""Tolerations."""
MAX_SECRETS = 16
"""Secrets for pulling images."""
MAX_CONSTRAINTS = 16
"""Topology spread constraints."""
MAX_ENTRIES = 64
"""Entries of a map: labels, annotations, node selector, and the first level of a free-form field."""
MAX_VALUE = 8 * 2**10
"""Characters of a value: of an argument, a variable, an annotation."""
MAX_NAME = 317
"""Characters of a name of whatever kind: the longest that Kubernetes knows, of a label with its prefix."""

MAX_CAUSES = 20
"""Problems that are told of one object, each in at most 1 KiB; how many more there are is told too."""

EXCESS = "airunway.ai/excess"
"""Where an object in a cache says what of it was too large to be kept. No object on an API server has it."""

_OUTLINE = (("model", "id"), ("model", "source"), ("provider", "name"), ("engine", "type"), ("suspend",))
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_LONGEST_OUTLINED = 2048
"""Characters; as long as a model's id may be."""


class Excess(NamedTuple):
    """A limit that an object is over: the field, what is wrong and what to do, and Kubernetes' reason for it."""

    path: str
    message: str
    reason: str = "FieldValueTooLong"


class JsonSize(NamedTuple):
    """Bytes of the JSON, and how many values it has. What is `over` was not looked at to its end."""

    length: int
    values: int
    over: bool = False
    too_deep: bool = False
    long_key: str = ""


def size_of(value: object, *, limit: int, depth: int = MAX_DEPTH) -> JsonSize:
    """The size of a JSON value; work and memory are bounded by `limit` (bytes), whatever the value is.

    `over` if it has more than `limit` bytes; `too_deep` if values stand `depth` levels below it (a scalar counts, as an
    empty object does); `long_key` is the beginning of a key that is too long. The first of these ends the search.
    """
    length = values = 0
    pending: list[tuple[int, Any]] = [(0, value)]
    while pending:
        level, node = pending.pop()
        values += 1
        if level >= depth:
            return JsonSize(length, values, too_deep=True)
        if isinstance(node, dict):
            length += 2 + 2 * len(node)
            if length > limit:
                return JsonSize(length, values, over=True)
            for key in node:
                if len(key) > MAX_KEY:
                    return JsonSize(length, values, over=len(key) > limit, long_key=key[:MAX_KEY])
                length += _length(key, limit)
            pending.extend((level + 1, child) for child in node.values())
        elif isinstance(node, list):
            length += 2 + len(node)
            if length <= limit:
                pending.extend((level + 1, child) for child in node)
        else:
            length += _length(node, limit)
        if length > limit:
            return JsonSize(length, values, over=True)
    return JsonSize(length, values)


def _length(value: object, limit: int) -> int:
    """Bytes of a scalar's JSON; of a text that is longer than `limit` only that it is."""
    if isinstance(value, str):
        if len(value) > limit:
            return limit + 1
        try:
            return len(orjson.dumps(value))
        except orjson.JSONEncodeError:  # half of a surrogate pair, which only a file can hold
            return 6 * len(value) + 2
    if isinstance(value, bool) or value is None:
        return 5 if value is False else 4
    if isinstance(value, int):
        return len(str(value)) if value.bit_length() <= 64 else value.bit_length()
    if isinstance(value, float):
        return len(orjson.dumps(value))
    return len(repr(value))  # what YAML knows, and JSON does not


def is_modest(value: object, *, limit: int) -> bool:
    """Whether `size_of` would find nothing wrong with a value: True is certain, False only that one has to look.

    Several times as fast, which counts for what every event of every object brings. Not for what anybody may write: the
    JSON of the whole value is made, however large it is.
    """
    try:
        text = orjson.dumps(value)
    except orjson.JSONEncodeError:  # nested too deeply, or half of a surrogate pair
        return False
    # What is between quotes is a text or what stands between two; one with quotes inside counts with its neighbours.
    brackets = text.translate(None, _NO_BRACKETS)
    if len(text) + len(brackets) > limit:
        return False
    if len(text) > MAX_KEY and max(map(len, text.replace(b'\\"', b"  ").split(b'"'))) > MAX_KEY:
        return False
    for _ in range((MAX_DEPTH - 2) // 2):  # the one or two innermost levels each; brackets in texts only add to them
        if not brackets:
            return True
        brackets = brackets.replace(b"{}", b"").replace(b"[]", b"")
    return False


def excess(obj: Resource, *, measured: JsonSize | None = None) -> list[Excess]:
    """The limits that a ModelDeployment is over, at most one of each part; empty for one that may be walked.

    `measured` is the `size_of` its spec with the limit `MAX_SPEC`, where that was asked for already.
    """
    if told := noted_excess(obj):
        return told
    spec = obj.get("spec")
    found = [_of_spec(spec, measured or size_of(spec, limit=MAX_SPEC))]
    for field, limit in (("labels", MAX_LABELS), ("annotations", MAX_ANNOTATIONS)):
        value = dig(obj, "metadata", field)
        if not value:
            continue
        if field == "annotations" and isinstance(value, dict):
            value = {key: text for key, text in value.items() if key.startswith("airunway.ai/")}
        size = size_of(value, limit=limit)
        if size.over or size.long_key:
            message = f"larger than {limit // 2**10} KiB in all: remove what is not needed"
            found.append(Excess(f"metadata.{field}", message))
    finalizers = dig(obj, "metadata", "finalizers")
    if isinstance(finalizers, list) and len(finalizers) > MAX_FINALIZERS:
        message = f"more than {MAX_FINALIZERS}: remove those that nobody waits for"
        found.append(Excess("metadata.finalizers", message, "FieldValueTooMany"))
    return [entry for entry in found if entry is not None]


def noted_excess(obj: Resource) -> list[Excess]:
    """What `excess` found when the object, which is out of a cache, was put there."""
    told = obj.get(EXCESS)
    return [Excess(*entry) for entry in told] if isinstance(told, list) else []


def _of_spec(spec: object, size: JsonSize) -> Excess | None:
    if size.too_deep:
        message = f"nested more than {MAX_DEPTH} deep: no setting needs that, write it flatter"
        return Excess("spec", message, "FieldValueInvalid")
    if size.long_key:
        message = f"a key is longer than {MAX_KEY} characters ({shortened(size.long_key, 64)}): no setting has such"
        return Excess(_heaviest(spec), message)
    if size.over:
        path = _heaviest(spec)
        part = "" if path == "spec" else ", and this is the largest part of it"
        message = (
            f"the spec is larger than {MAX_SPEC // 2**10} KiB{part}: make it smaller, "
            "or keep such data in a volume or a ConfigMap"
        )
        return Excess(path, message)
    return None


def _heaviest(spec: object) -> str:
    """The path of the field that takes most, or that has an unusual key; of a free-form field its first level."""
    path = "spec"
    while isinstance(spec, dict) and path.count(".") < 3:
        most, name = 0, ""
        for key, value in islice(spec.items(), MAX_ENTRIES):
            size = size_of(value, limit=MAX_SPEC)
            weight = 2 * MAX_SPEC if size.long_key or len(key) > MAX_KEY else size.length
            if weight > most:
                most, name = weight, key
        if most <= MAX_SPEC // 2 or len(name) > 64:
            break
        path, spec = f"{path}.{name}", spec[name]
    return path


def outline(spec: object) -> Resource:
    """What lists and metrics read of a spec, and no more: all that a cache keeps at hand of one that is large."""
    kept: Resource = {}
    for path in _OUTLINE:
        value = dig(spec, *path)
        if isinstance(value, bool) or (isinstance(value, str) and len(value) <= _LONGEST_OUTLINED):
            *above, last = path
            node = kept
            for step in above:
                node = node.setdefault(step, {})
            node[last] = value
    return kept
