"""The templates in files, for commands that read manifests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from airunway.cli.manifests import ManifestError, objects_in
from airunway.resource import Resource, dig

__all__ = ["templates_among", "templates_in"]


def templates_among(objects: Iterable[Resource], *, namespace: str) -> list[Resource]:
    """The templates among the objects of a file; a ModelTemplate without a namespace is in `namespace`.

    One without a status counts as Ready: it is judged as if the catalogue had nothing against it. Raises ManifestError.
    """
    from airunway.templates import CLUSTER_KIND, KIND

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
