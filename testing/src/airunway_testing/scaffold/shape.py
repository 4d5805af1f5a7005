"""Where an upstream's CRD takes what a model server is made of: pods, replicas, single fields of a container. Pure.

A schema says what may be written, not what the operator does with it: the skeleton that follows from it is a beginning
that the API server takes, and its author goes on from there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from airunway.resource import Resource, dig
from airunway.upgrades.definitions import Definition

Form: TypeAlias = Literal["template", "spec", "fields"]
"""A pod template; a bare pod spec; or fields of a container in the spec itself."""

Path: TypeAlias = tuple[str, ...]

Tree: TypeAlias = dict[str, "str | Tree"]
"""A value to be written: Python expressions by key; the key ``**`` is unpacked."""

FIELDS: Mapping[str, tuple[str, str]] = {
    "image": ("string", "started.image"),
    "image.repository": ("string", 'started.image.removesuffix(f":{tag_of(started.image)}")'),
    "image.tag": ("string", 'tag_of(started.image) or "latest"'),
    "command": ("array", "list(started.command)"),
    "args": ("array", "list(started.args)"),
    "env": ("array", "environment(deployment, context, started)"),
    "resources": ("object", "container_resources(sizing(deployment))"),
    "nodeSelector": ("object", "dict(deployment.spec.node_selector)"),
    "tolerations": ("array", "[each.to_resource() for each in deployment.spec.tolerations]"),
}
"""Fields of a container or its pod that upstreams without pods have in their spec, with their type, and what is written
there."""


class Placeholder(str):
    """The smallest value that the schema takes, for what the author alone knows."""


_TEMPLATES = ("template", "podTemplate", "podTemplateSpec")
_COUNTS = ("readyReplicas", "availableReplicas")
_STATES = ("state", "phase")
_DEPTH = 3


@dataclass(frozen=True, kw_only=True)
class Shape:
    """`place` is where the pods are (for `fields`: the spec itself), `others` are further places that take pods.

    Of these `alike` have to be there, and get the same pods. `unused` are places that can carry pods or containers and
    where nothing is written: these others, lists and maps of pods, and single containers.

    `replicas` are the fields for their number, `labels` and `annotations` those for the pods' where there is no pod
    template (empty: there is none). `fields` are those of `FIELDS` that the spec has. `count` and `state` are fields of
    the status, `conditions` and `generation` say whether it has conditions and observedGeneration.
    """

    form: Form
    place: Path
    others: tuple[Path, ...]
    alike: tuple[Path, ...]
    unused: tuple[Path, ...]
    replicas: tuple[Path, ...]
    labels: Path
    annotations: Path
    fields: tuple[str, ...]
    required: tuple[tuple[Path, str], ...]
    count: str
    state: str
    conditions: bool
    generation: bool

    @property
    def labelled(self) -> bool:
        """Whether the provider can put labels onto the pods; else they are known by a label of the operator's."""
        return self.form == "template" or bool(self.labels)

    def tree(self) -> Tree:
        """The primary object's spec, as expressions."""
        found: Tree = {}
        for path in self.replicas:
            _put(found, path, "deployment.spec.scaling.replicas")
        for place in (self.place, *self.alike) if self.form != "fields" else ():
            _put(found, place, "pod" if self.form == "template" else 'pod["spec"]')
        for name in self.fields:
            _put(found, (*self.place, *name.split(".")), FIELDS[name][1])
        for path, part in ((self.labels, "labels"), (self.annotations, "annotations")):
            if path:
                _put(found, path, f'pod["metadata"].get("{part}", {{}})')
        for path, value in self.required:
            _put(found, path, Placeholder(value))
        return found["spec"] if isinstance(found.get("spec"), dict) else {}  # type: ignore[return-value]


def shape_of(definition: Definition, version: str = "") -> Shape:
    """The shape of a version's schema. Raises DefinitionError for a version that is not served."""
    schema = definition.version(version).schema
    spec, status = (dig(schema, "properties", part, default={}) for part in ("spec", "status"))
    anything = status.get("x-kubernetes-preserve-unknown-fields") is True
    places = sorted(_places(spec, ("spec",)), key=lambda found: _rank(schema, found[0]))
    form: Form = places[0][1] if places else "fields"
    place = places[0][0] if places else ("spec",)
    fields = () if places else tuple(name for name, (kind, _) in FIELDS.items() if _is_field(spec, name, kind))
    replicas = _replicas(schema, place)
    # What has the number of pods in their spec has their labels there too.
    beside = place if replicas and replicas[0][:-1] == place else place[:-1]

    def found_beside(name: str) -> Path:
        return (*beside, name) if form == "spec" and _type(_at(schema, beside), name) == "object" else ()

    alike = tuple(path for path, of in places[1:] if of == form and _must(schema, path, below=place[:-1]))
    shape = Shape(
        form=form,
        place=place,
        others=tuple(path for path, _ in places[1:]),
        alike=alike,
        unused=(),
        replicas=replicas,
        labels=found_beside("labels"),
        annotations=found_beside("annotations"),
        fields=fields,
        required=(),
        count=next((name for name in _COUNTS if anything or _type(status, name) == "integer"), ""),
        state=next((name for name in _STATES if _type(status, name) == "string"), ""),
        conditions=anything or _type(status, "conditions") == "array",
        generation=anything or _type(status, "observedGeneration") == "integer",
    )
    lacking = tuple(_lacking(spec, shape.tree(), ("spec",), skip=place if places else ()))
    written = [*replicas, *(path for path, _ in lacking), *((*place, *name.split(".")) for name in fields)]
    written += [place, *alike] if places else []
    return replace(shape, required=lacking, unused=tuple(_unused(spec, ("spec",), written)))


def _unused(node: Resource, path: Path, written: Sequence[Path]) -> Iterator[Path]:
    """The outermost fields that can carry a pod or a container, of those in and above which nothing is written."""
    for name, below in (node.get("properties") or {}).items():
        here = (*path, name)
        if here in written:
            continue
        if any(each[: len(here)] == here for each in written):
            yield from _unused(below, here, written)
        elif _carries(name, below):
            yield here
        else:
            yield from _unused(below, here, written)


def _carries(name: str, node: Resource) -> bool:
    """Whether a field is a pod, a container, or a list or map with one somewhere in it."""
    if (_is_open(node) and name in _TEMPLATES) or _is_pod(node) or _is_container(node):
        return True
    items = [node.get("items"), node.get("additionalProperties")]
    return any(isinstance(each, dict) and _carries_below(each) for each in items)


def _carries_below(node: Resource) -> bool:
    if _is_pod(node) or _is_container(node):
        return True
    return any(_carries(name, each) or _carries_below(each) for name, each in (node.get("properties") or {}).items())


def _is_pod(node: Resource) -> bool:
    return _type(node, "containers") == "array" or _type(_at(node, ("spec",)), "containers") == "array"


def _is_container(node: Resource) -> bool:
    return _type(node, "image") == "string" and any(
        _type(node, part) == "array" for part in ("args", "command", "env", "envFrom", "volumeMounts")
    )


def _places(node: Resource, path: Path) -> Iterator[tuple[Path, Form]]:
    """Where pods can stand, outside of lists and maps."""
    for name, below in (node.get("properties") or {}).items():
        here = (*path, name)
        if dig(below, "properties", "spec", "properties", "containers") or (_is_open(below) and name in _TEMPLATES):
            yield here, "template"
            continue
        if _type(below, "containers") == "array":
            yield here, "spec"
        if len(path) < _DEPTH:
            yield from _places(below, here)


def _is_open(node: Resource) -> bool:
    return node.get("x-kubernetes-preserve-unknown-fields") is True and not node.get("properties")


def _rank(schema: Resource, path: Path) -> tuple[bool, int, bool, Path]:
    """The first is the place to begin with: one that has to be filled, not deep, called a template."""
    return not _must(schema, path), len(path), path[-1] not in _TEMPLATES, path


def _must(schema: Resource, path: Path, *, below: Path = ("spec",)) -> bool:
    """Whether an object in which `below` stands has to have something at the path."""
    if path[: len(below)] != below:
        return False
    steps = [(path[:depth], step) for depth, step in enumerate(path) if depth >= len(below)]
    return all(step in (_at(schema, above).get("required") or ()) for above, step in steps)


def _replicas(schema: Resource, place: Path) -> tuple[Path, ...]:
    """In the place itself, beside it, or above; none if the upstream has no such field."""
    for depth in range(len(place), 0, -1):
        above = place[:depth]
        node = _at(schema, above)
        if _type(node, "replicas") == "integer":
            return ((*above, "replicas"),)
        if _type(node, "minReplicas") == _type(node, "maxReplicas") == "integer":
            return ((*above, "minReplicas"), (*above, "maxReplicas"))
    return ()


def _at(schema: Resource, path: Path) -> Resource:
    for step in path:
        schema = dig(schema, "properties", step, default={})
    return schema


def _is_field(spec: Resource, name: str, kind: str) -> bool:
    *above, last = name.split(".")
    return _type(_at(spec, tuple(above)), last) == kind


def _type(node: Resource, name: str) -> str:
    return str(dig(node, "properties", name, "type", default=""))


def _lacking(node: Resource, tree: Tree, path: Path, *, skip: Path) -> Iterator[tuple[Path, str]]:
    """What has to be there, and is not yet. Pods are whole."""
    if path == skip:
        return
    for name in node.get("required") or ():
        if name not in tree:
            yield (*path, name), _code(_least(dig(node, "properties", name, default={})))
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _lacking(dig(node, "properties", name, default={}), value, (*path, name), skip=skip)


def _least(node: Resource) -> object:
    """The smallest value that a schema takes, as far as its types say."""
    if "default" in node:
        return node["default"]
    if choices := node.get("enum"):
        return choices[0]
    match node.get("type"):
        case "string":
            return "x" * max(1, int(node.get("minLength", 1)))
        case "integer" | "number":
            return node.get("minimum", 1)
        case "boolean":
            return False
        case "array":
            return [_least(node.get("items") or {})] * int(node.get("minItems", 0))
        case _:
            below = node.get("properties") or {}
            return {name: _least(below.get(name) or {}) for name in node.get("required") or ()}


def _code(value: object) -> str:
    """As Python, the way `ruff format` has it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_code(key)}: {_code(below)}" for key, below in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_code, value)) + "]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _put(tree: Tree, path: Path, value: str) -> None:
    head, *rest = path
    if not rest:
        below = tree.get(head)
        if isinstance(below, dict):
            below["**"] = value
        else:
            tree[head] = value
        return
    below = tree.setdefault(head, {})
    if isinstance(below, str):
        tree[head] = below = {"**": below}
    _put(below, tuple(rest), value)
