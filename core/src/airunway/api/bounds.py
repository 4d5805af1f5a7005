"""The size limits of a ModelDeployment, and checks whose cost does not depend on the object's size. Pure.

Limits of single fields are also in the CRD (the types use these constants). `excess` checks the limits that a schema
cannot express, on free-form fields and on the whole object, before any other code walks the object. Admission, the
core, the provider runtime and the caches all call it.

Sizes are those of the JSON without white space, in bytes of UTF-8. The limits leave enough room for a provider's preset
with hundreds of variables: the manifests of the Go project have 1 to 3 KiB.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, NamedTuple

import orjson

from airunway.api.names import GROUP
from airunway.json_path import shortened
from airunway.resource import Resource, dig

MAX_SPEC = 32 * 2**10
"""Bytes of a whole spec."""
MAX_LABELS = 4 * 2**10
"""Bytes of the deployment's own labels."""
MAX_ANNOTATIONS = 4 * 2**10
"""Bytes of the deployment's own annotations that AI Runway reads."""
MAX_FINALIZERS = 64
"""Finalizers of the deployment; the user may add them too."""
MAX_DEPTH = 64
"""Deepest nesting of a spec."""
MAX_KEY = 512
"""Characters of a key in a free-form field. The longest keys of Kubernetes itself, those of labels, have 317."""

MAX_ENV = 256
"""Environment variables of a deployment."""
MAX_SHARED_ENV = 128
"""Environment variables of a runtime config, a template or an artifact."""
MAX_TOLERATIONS = 64
"""Tolerations."""
MAX_SECRETS = 16
"""Secrets for pulling images."""
MAX_CONSTRAINTS = 16
"""Topology spread constraints."""
MAX_ENTRIES = 64
"""Entries of a map: labels, annotations, node selector, and the first level of a free-form field."""
MAX_VALUE = 8 * 2**10
"""Characters of a value of an argument, a variable or an annotation."""
MAX_NAME = 317
"""Characters of a name of any kind: the longest in Kubernetes is that of a label with its prefix."""

MAX_CAUSES = 20
"""Problems that are reported for one object, each in at most 1 KiB; the number of the others is reported too."""

EXCESS = "airunway.ai/excess"
"""The field of a cached object that lists what was too large to keep; no object on an API server has it."""

_OUTLINE = (
    ("model", "id"),
    ("model", "source"),
    ("provider", "name"),
    ("engine", "type"),
    ("suspend",),
    ("runtimeConfigName",),
    ("templateRef", "name"),
    ("templateRef", "modelName"),
    ("templateRef", "metric"),
    ("templateRef", "precision"),
    ("model", "servedName"),
    ("gateway", "enabled"),
    ("gateway", "pathTemplate"),
    ("gateway", "modelName"),
    ("gateway", "httpRouteRef"),
    ("gateway", "group"),
    ("gateway", "weight"),
    ("gateway", "gatewayRef", "name"),
    ("gateway", "gatewayRef", "namespace"),
    ("gateway", "gatewayRef", "sectionName"),
)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_LONGEST_OUTLINED = 2048
"""Characters; as many as a model's id may have."""


class Excess(NamedTuple):
    """A limit that an object exceeds."""

    path: str
    """The field."""
    message: str
    """What is wrong, and what to do."""
    reason: str = "FieldValueTooLong"
    """Kubernetes' reason for it."""


class JsonSize(NamedTuple):
    """The size of a JSON value; measuring stops at the first limit that is exceeded."""

    length: int
    """Bytes of the JSON."""
    values: int
    """How many values it has, including nested ones."""
    over: bool = False
    """Whether it exceeds the byte limit; the other numbers are then lower bounds."""
    too_deep: bool = False
    """Whether it is nested too deeply."""
    long_key: str = ""
    """The start of a key that is too long; empty if there is none."""

    @property
    def exceeds(self) -> bool:
        """Whether it exceeds any limit."""
        return self.over or self.too_deep or bool(self.long_key)


def size_of(value: object, *, limit: int) -> JsonSize:
    """Returns the size of a JSON value; work and memory are bounded by `limit` (bytes), for any value.

    The search ends with the first of these: `over` (more than `limit` bytes), `too_deep` (values `MAX_DEPTH` levels
    below the top; scalars and empty objects count as values), `long_key` (a key that is too long).
    """
    length = values = 0
    pending: list[tuple[int, Any]] = [(0, value)]
    while pending:
        level, node = pending.pop()
        values += 1
        if level >= MAX_DEPTH:
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
    """Returns the bytes of a scalar's JSON; for a text that is longer than `limit`, `limit` + 1."""
    if isinstance(value, str):
        if len(value) > limit:
            return limit + 1
        try:
            return len(orjson.dumps(value))
        except orjson.JSONEncodeError:  # half of a surrogate pair, which can only come from a file
            return 6 * len(value) + 2
    if isinstance(value, bool) or value is None:
        return 5 if value is False else 4
    if isinstance(value, int):
        return len(str(value)) if value.bit_length() <= 64 else value.bit_length()
    if isinstance(value, float):
        return len(orjson.dumps(value))
    return len(repr(value))  # a type of YAML that JSON does not have


def is_modest(value: object, *, limit: int) -> bool:
    """Whether `size_of` would surely find no excess; False means that it has to be called.

    This is several times faster, which matters for the events of all objects. Do not use it for values of any size that
    users may write: it serializes the whole value.
    """
    try:
        text = orjson.dumps(value)
    except orjson.JSONEncodeError:  # nested too deeply, or half of a surrogate pair
        return False
    brackets = text.translate(None, _NO_BRACKETS)
    if len(text) + len(brackets) > limit:
        return False
    if len(text) > MAX_KEY and _may_have_long_key(text):
        return False
    for _ in range((MAX_DEPTH - 2) // 2):  # each removes one or two inner levels; brackets in texts only add levels
        if not brackets:
            return True
        brackets = brackets.replace(b"{}", b"").replace(b"[]", b"")
    return False


def is_over(value: object, limit: int) -> bool:
    """Whether a value has more than `limit` bytes, is nested too deeply or has a key that is too long."""
    return not is_modest(value, limit=limit) and size_of(value, limit=limit).exceeds


def limit_texts(metadata: Resource) -> None:
    """Leaves only those with our prefix of too many labels and annotations in an object's metadata, if they fit."""
    for field, limit in (("labels", MAX_LABELS), ("annotations", MAX_ANNOTATIONS)):
        value = metadata.get(field)
        if is_over(value, limit):
            ours = {k: v for k, v in value.items() if k.startswith(f"{GROUP}/")} if isinstance(value, dict) else {}
            metadata[field] = {} if is_over(ours, limit) else ours


def _may_have_long_key(text: bytes) -> bool:
    """Whether more than MAX_KEY bytes of a JSON document are without a quote; escaped quotes are none."""
    plain, half = text.replace(b'\\"', b"  "), MAX_KEY // 2
    # Such a stretch covers one of the windows of half its length; most documents have a quote in each.
    if all(plain.find(b'"', at, at + half) >= 0 for at in range(0, len(plain) - half + 1, half)):
        return False
    return max(map(len, plain.split(b'"'))) > MAX_KEY


def excess(obj: Resource, *, measured: JsonSize | None = None) -> list[Excess]:
    """Returns the limits that a ModelDeployment exceeds, at most one per part; empty if it is safe to walk the object.

    `measured` is `size_of` its spec with the limit `MAX_SPEC`, if it was computed before.
    """
    if noted := noted_excess(obj):
        return noted
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
        message = f"more than {MAX_FINALIZERS}: remove those that no controller needs"
        found.append(Excess("metadata.finalizers", message, "FieldValueTooMany"))
    return [entry for entry in found if entry is not None]


def spec_excess(spec: object) -> Excess | None:
    """Returns the limit that a spec of any kind exceeds; None if it is safe to walk."""
    return _of_spec(spec, size_of(spec, limit=MAX_SPEC))


def noted_excess(obj: Resource) -> list[Excess]:
    """Returns the result of `excess` that a cache stored in its object."""
    noted = obj.get(EXCESS)
    return [Excess(*entry) for entry in noted] if isinstance(noted, list) else []


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
    """Returns the path of the largest field, or of the one with a long key; of free-form fields the first level."""
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
    """Returns the part of a spec that lists and metrics read; a cache keeps only this part of a large spec."""
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
