"""Every literal path that code reads of our own kinds exists in their CRDs: a renamed field is found here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from airunway.api import crds
from airunway.resource import Resource

ROOT = Path(__file__).parents[2]
READERS = {"dig", "text_at", "list_at", "mapping_at", "int_at"}
KINDS = {
    "deployment": ("ModelDeployment",),
    "artifact": ("ModelArtifact",),
    "template": ("ModelTemplate", "ClusterModelTemplate"),
    "config": ("RuntimeConfig", "ClusterRuntimeConfig", "InferenceProviderConfig"),
    "source": ("ModelSource",),
}
"""What a variable of this name holds, wherever it is an attribute too (``state.deployment``)."""

OF_KUBERNETES = ("core/src/airunway/doctor/",)
"""Where ``deployment`` is a Deployment of the API group apps."""


def literal_paths(source: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Yields line, variable and path of each read whose path is literal and begins at ``spec`` or ``status``."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in READERS):
            continue
        path = [each.value for each in node.args[1:] if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        if node.args and len(path) == len(node.args) - 1 and path and path[0] in ("spec", "status"):
            yield node.lineno, ast.unparse(node.args[0]).rpartition(".")[2], path


@cache
def schema_of(kind: str) -> Resource:
    return crds.schema_of(kind)


def has(schema: Resource, path: list[str]) -> bool:
    """Whether a schema has a field at a path; below a map or an unstructured field there may be any."""
    for field in path:
        if schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("additionalProperties") is True:
            return True
        below = schema.get("properties", {}).get(field) or schema.get("additionalProperties")
        if not isinstance(below, dict):
            return False
        schema = below
    return True


@pytest.mark.parametrize("folder", ["core/src", "catalogue/src"])
def test_paths_that_are_read_of_our_kinds_exist_in_their_crds(folder: str) -> None:
    wrong, seen = [], 0
    for source in sorted((ROOT / folder).rglob("*.py")):
        name = source.relative_to(ROOT).as_posix()
        for line, variable, path in literal_paths(source):
            if variable not in KINDS or (variable == "deployment" and name.startswith(OF_KUBERNETES)):
                continue
            seen += 1
            if not any(has(schema_of(kind), path) for kind in KINDS[variable]):
                wrong.append(f"{name}:{line}: {variable}.{'.'.join(path)}")
    assert wrong == []
    assert seen > 0


def test_a_path_that_no_crd_has_is_found(tmp_path: Path) -> None:
    source = tmp_path / "reads.py"
    source.write_text("dig(state.deployment, 'status', 'provider', 'nmae')\ntext_at(deployment, 'spec', 'image')\n")
    found = {variable: path for _, variable, path in literal_paths(source)}
    paths = [path for _, _, path in literal_paths(source)]
    assert set(found) == {"deployment"}
    assert [has(schema_of("ModelDeployment"), path) for path in paths] == [False, True]
