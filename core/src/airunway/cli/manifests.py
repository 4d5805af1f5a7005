"""Reads manifests from files and streams: YAML and JSON, with kubectl's rules; and what commands look for in them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import yaml

from airunway.gc_tuning import gc_paused
from airunway.resource import Resource, copy_of, dig, key_of, labels_of, text_at


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


def opened(path: Path) -> AbstractContextManager[TextIO]:
    """The file, or standard input (which stays open) for ``-``. Raises OSError."""
    return nullcontext(sys.stdin) if str(path) == "-" else path.open(encoding="utf-8")


def objects_in(path: Path) -> list[Resource]:
    """The objects of a file (``-``: standard input). Raises ManifestError and OSError."""
    try:
        with opened(path) as stream:
            return list(read_manifests(stream))
    except ManifestError as error:
        raise ManifestError(f"{path}: {error}") from error


@dataclass(frozen=True, kw_only=True)
class Manifests:
    """What a file of deployments has."""

    deployments: list[Resource]
    """Its ModelDeployments; at least one."""
    configs: list[Resource]
    """Its RuntimeConfigs and ClusterRuntimeConfigs, and those of other files."""
    templates: list[Resource]
    """Its ModelTemplates and ClusterModelTemplates."""


def manifests_in(path: Path, others: Sequence[Path] = (), *, namespace: str) -> Manifests:
    """What a file of deployments has, read once, with the runtime configs of `others`.

    Objects without a namespace are in `namespace`. Raises ManifestError (also if there is no deployment, or if one of
    `others` has no runtime config) and OSError.
    """
    objects = list(objects_in(path))
    deployments = [in_namespace(obj, namespace) for obj in objects if obj.get("kind") == "ModelDeployment"]
    if not deployments:
        raise ManifestError(f"{path}: contains no ModelDeployment")
    return Manifests(
        deployments=deployments,
        configs=_with_others(_configs_among(objects, namespace), others, namespace),
        templates=templates_among(objects, namespace=namespace),
    )


def _with_others(configs: list[Resource], others: Sequence[Path], namespace: str) -> list[Resource]:
    for other in others:
        found = _configs_among(objects_in(other), namespace)
        if not found:
            raise ManifestError(f"{other}: contains no RuntimeConfig or ClusterRuntimeConfig")
        configs = [*found, *configs]
    return configs


def _configs_among(objects: Iterable[Resource], namespace: str) -> list[Resource]:
    """The runtime configs among the objects, RuntimeConfigs with their namespace.

    Raises ManifestError for one that an API server would refuse.
    """
    from airunway.validation import validate

    found = []
    for obj in objects:
        if obj.get("kind") in ("RuntimeConfig", "ClusterRuntimeConfig"):
            for violation in validate(obj):
                raise ManifestError(f"{obj['kind']} {text_at(obj, 'metadata', 'name') or '(no name)'}: {violation}")
            found.append(in_namespace(obj, namespace) if obj["kind"] == "RuntimeConfig" else obj)
    return found


def definitions_in(path: Path) -> list[Resource]:
    """The CustomResourceDefinitions of a file (``-``: standard input).

    Raises ManifestError (also if there is none, or one is malformed) and OSError.
    """
    from airunway.schema import malformed

    found = [obj for obj in objects_in(path) if obj.get("kind") == "CustomResourceDefinition"]
    if not found:
        raise ManifestError(f"{path}: contains no CustomResourceDefinition")
    for crd in found:
        if problem := malformed(crd):
            raise ManifestError(f"{path}: CustomResourceDefinition {key_of(crd).name}: {problem}")
    return found


def provider_configs_in(path: Path) -> list[Resource]:
    """The InferenceProviderConfigs of a file or of the YAML and JSON files of a directory.

    One without a status counts as ready. Raises ManifestError (also if there is none) and OSError.
    """
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in (".yaml", ".yml", ".json"))
    found = [obj for file in files for obj in objects_in(file) if obj.get("kind") == "InferenceProviderConfig"]
    if not found:
        raise ManifestError(f"{path}: contains no InferenceProviderConfig")
    return [obj if isinstance(obj.get("status"), dict) else {**obj, "status": {"ready": True}} for obj in found]


def templates_among(objects: Iterable[Resource], *, namespace: str) -> list[Resource]:
    """The templates among the objects of a file; a ModelTemplate without a namespace is in `namespace`.

    One without a status counts as Ready: it is judged as if the catalogue had nothing against it. Raises ManifestError.
    """
    from airunway.templates.choice import CLUSTER_KIND, KIND

    found = []
    for obj in objects:
        if obj.get("kind") not in (KIND, CLUSTER_KIND):
            continue
        for part in ("metadata", "spec"):
            if not isinstance(obj.get(part), dict):
                raise ManifestError(f"{obj['kind']}: {part}: must be an object")
        metadata = {key: value for key, value in (dig(obj, "metadata") or {}).items() if key != "namespace"}
        if obj["kind"] == KIND:
            metadata["namespace"] = dig(obj, "metadata", "namespace") or namespace or "default"
        status = obj["status"] if dig(obj, "status", "phase") else {"phase": "Ready"}
        found.append({**obj, "metadata": metadata, "status": status})
    return found


def templates_in(files: Sequence[Path], *, namespace: str) -> list[Resource]:
    """The templates of files. Raises ManifestError (also if there is none) and OSError."""
    found = [each for file in files for each in templates_among(objects_in(file), namespace=namespace)]
    if not found:
        raise ManifestError(f"{', '.join(map(str, files))}: no ModelTemplate or ClusterModelTemplate in it")
    return found


def namespace_labels_in(path: Path) -> dict[str, dict[str, str]]:
    """The labels of the Namespaces in a file, by name; empty for standard input, which was consumed already."""
    if str(path) == "-":
        return {}
    return {key_of(obj).name: labels_of(obj) for obj in objects_in(path) if obj.get("kind") == "Namespace"}


def in_namespace(obj: Resource, namespace: str) -> Resource:
    """A copy of the object, in `namespace` (empty: default) if it names none."""
    copied = copy_of(obj)
    metadata = copied.get("metadata")
    if isinstance(metadata, dict):
        metadata["namespace"] = metadata.get("namespace") or namespace or "default"
    return copied
