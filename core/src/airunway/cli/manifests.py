"""Reads the manifests of files and streams, and what commands look for in them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from airunway.resource import Resource, copy_of, dig, key_of, labels_of, text_at
from airunway.tools.manifests import ManifestError, read_manifests


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
