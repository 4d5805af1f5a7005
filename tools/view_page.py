"""Write docs/reference/view.md: the JSON of ``airunway status -o json``, from the view model's dataclasses.

python -m tools.view_page [--check]
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.generated import ROOT, write

__all__ = ["generated"]

PAGE = "docs/reference/view.md"
SOURCES = ROOT / "core" / "src" / "airunway" / "view"
SHOWN = (
    "DeploymentView",
    "CauseView",
    "RevisionView",
    "ConditionRow",
    "PodRow",
    "ContainerRow",
    "EndingRow",
    "TreeNode",
    "TimelineEntry",
    "Unseen",
    "DeploymentPlan",
    "PlanStep",
    "ExplanationView",
    "CandidateRow",
    "CheckRow",
    "NodesView",
    "NodeRow",
    "GpuGroup",
    "LoadRow",
    "AnswerView",
    "Usage",
    "Ranked",
    "FleetView",
    "FleetRow",
    "FleetGroup",
)
"""The dataclasses, in the order of the page."""

_INTRODUCTION = """# The view as JSON

Generated from the view model (`core/src/airunway/view`). `airunway status md/NAME -o json` prints a DeploymentView,
`airunway diff -f FILE -o json` a DeploymentPlan, `airunway top -o json` a List of LoadRows, `airunway chat -o json` an
AnswerView. Fleet, nodes and explanation are for programs that import
`airunway.view`; `airunway explain` prints its own JSON.

All fields are always present. Texts are single lines, without control characters and what looks like a credential.
Times are RFC 3339 in UTC. `health` is `ok`, `progress`, `unknown` or `problem`. New fields may be added; a field is
not removed or given another meaning without a changelog entry."""

_TYPES = {
    "str": "text",
    "bool": "true or false",
    "int": "number",
    "float": "number",
    "datetime": "time",
    "None": "null",
    "Health": "health",
}


def generated() -> dict[str, str]:
    """The page's text by its path from the root."""
    return {PAGE: _page()}


def _page() -> str:
    classes = {name: node for path in sorted(SOURCES.glob("*.py")) for name, node in _classes(path)}
    parts = [_INTRODUCTION]
    for name in SHOWN:
        node = classes[name]
        parts += ["", f"## {name}", "", _markdown(ast.get_docstring(node) or ""), ""]
        parts += ["| field | type | |", "|---|---|---|"]
        parts += [f"| `{field}` | {type_} | {text} |" for field, type_, text in _fields(node)]
    return "\n".join(parts) + "\n"


def _classes(path: Path) -> Iterator[tuple[str, ast.ClassDef]]:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            yield node.name, node


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, str, str]]:
    """Name, type and meaning of each field: its meaning is the text below it."""
    for field, text in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            assert isinstance(text, ast.Expr), f"{node.name}.{field.target.id} has no docstring"
            yield _camel(field.target.id), _type(ast.unparse(field.annotation)), _markdown(ast.literal_eval(text.value))


def _type(annotation: str) -> str:
    if (found := re.fullmatch(r"tuple\[(\w+), \.\.\.\](?: \| (\w+))?", annotation)) is not None:
        item = _TYPES.get(found[1], found[1])
        return f"list of {item}" + (f", or {found[2]}" if found[2] else "")
    return ", or ".join(_TYPES.get(part, part) for part in annotation.split(" | "))


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _markdown(text: str) -> str:
    return " ".join(text.replace("``", "`").split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(write(generated()))
