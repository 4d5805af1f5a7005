"""Reads manifests from texts: YAML and JSON, with kubectl's rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TextIO

import yaml

from airunway.gc_tuning import gc_paused
from airunway.resource import Resource


class ManifestError(ValueError):
    """A file is not a Kubernetes manifest; the message gives the position."""


_FREE_EXPANSION = 2**20
"""Characters by which aliases may enlarge any document."""


_DEPTH = 250
"""Levels of nested lists and maps. Schemas of upstreams have fewer than 100; the parser crashes at about 10,000."""

# libyaml if PyYAML was built with it: the CRDs of some upstreams have megabytes.
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    """Loads YAML like kubectl: dates are texts, 2.0 is 2, duplicate keys are refused."""

    def construct_yaml_float(self, node: Any) -> float:
        value: float = super().construct_yaml_float(node)
        return int(value) if value.is_integer() else value

    def construct_document(self, node: Any) -> Any:
        once, expanded = _sizes(node)
        if expanded > 10 * once + _FREE_EXPANSION:
            text = "its aliases (*name) expand it to more than ten times its size: use fewer aliases"
            raise yaml.constructor.ConstructorError(None, None, text, node.start_mark)
        return super().construct_document(node)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [str(key.value) for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        if len(set(keys)) < len(keys):
            twice = next(key for index, key in enumerate(keys) if key in keys[:index])
            raise yaml.constructor.ConstructorError(None, None, f"duplicate key {twice}", node.start_mark)
        return super().construct_mapping(node, deep)


_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_yaml_float)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _sizes(root: Any) -> tuple[int, int]:
    """The size of a document (characters, and 8 for each node) as written, and with its aliases expanded.

    Each node is visited once, however many aliases point to it.
    """
    known: dict[int, int] = {}

    def size(node: Any) -> int:
        if id(node) not in known:
            known[id(node)] = 0  # an alias to its own ancestor: constructing the document refuses it
            value = node.value
            parts = (part for entry in value for part in (entry if isinstance(entry, tuple) else (entry,)))
            below = len(value) if isinstance(value, str) else sum(size(part) for part in parts)
            own[id(node)] = 8 + (len(value) if isinstance(value, str) else 0)
            known[id(node)] = 8 + below
        return known[id(node)]

    own: dict[int, int] = {}
    expanded = size(root)
    return sum(own.values()), expanded


def read_manifests(stream: TextIO) -> Iterator[Resource]:
    """The objects of a YAML or JSON stream; a List is split into its items. Raises ManifestError."""
    try:
        text = stream.read()
        with gc_paused():
            _refuse_depth(text)
            documents = list(yaml.load_all(text, Loader=_Loader))
        for document in documents:
            if document is None:
                continue
            obj = json.loads(json.dumps(document))  # keys become text, as in Kubernetes
            if not isinstance(obj, dict):
                raise ManifestError("a document is not an object")
            items = obj.get("items") if obj.get("kind") == "List" else None
            for item in items if isinstance(items, list) else [obj]:
                if not isinstance(item, dict):
                    raise ManifestError("an item of a List is not an object")
                yield item
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ManifestError(f"{where}{getattr(error, 'problem', None) or error}") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise ManifestError(f"not a manifest: {error}") from error


def _refuse_depth(text: str) -> None:
    """Raises ManifestError for a document nested deeper than `_DEPTH`, YAMLError for text that is not YAML."""
    depth = 0
    for event in yaml.parse(text, Loader=_Base):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEPTH:
                where = f"line {event.start_mark.line + 1}: " if event.start_mark else ""
                raise ManifestError(f"{where}lists and maps are nested more than {_DEPTH} levels deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
