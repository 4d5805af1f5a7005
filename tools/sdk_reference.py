"""Write docs/providers/sdk.md: every name that the SDK gives, with signature, docstring and an example that runs.

python -m tools.sdk_reference [--check]

Signatures and docstrings are read from the source, so that types look as they were written. The examples are doctests
in ``sdk_examples.txt``, one section a name; a test runs each after the section ``prelude``.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from tools.generated import write

from airunway import sdk

__all__ = ["EXAMPLES", "PAGE", "PRELUDE", "documented", "examples", "names", "page"]

PAGE = "docs/providers/sdk.md"
EXAMPLES = Path(__file__).with_name("sdk_examples.txt")
PRELUDE = "prelude"
MODULES = ("workloads", "serving", "picker", "conditions", "overrides")
"""Modules of the SDK whose names are used with the module's."""

WIDTH = 100
_SHORT = 60

_SECTIONS = {
    "airunway.plugins.contract": "Values of the contract",
    "airunway.sdk.plugin": "The plugin object",
    "airunway.plugins.hookspecs": "The plugin object",
    "airunway.api.modeldeployment": "The deployment",
    "airunway.api.names": "The deployment",
    "airunway.sdk.deployments": "The deployment",
    "airunway.sdk.fields": "Honoured or reported",
    "airunway.sdk.findings": "Findings about a deployment",
    "airunway.sdk.launch": "Starting an engine",
    "airunway.engines.arguments": "Starting an engine",
    "airunway.engines.tables": "Starting an engine",
    "airunway.sdk.pods": "Pods",
    **dict.fromkeys(("derived_name", "too_long"), "Names"),
    "setting": "Settings",
    "airunway.plugins.errors": "Settings",
    "airunway.resource": "JSON",
    "airunway.status.evidence": "Values of the contract",
    "airunway.sdk": "Modules",
    **dict.fromkeys(("VLLM_FRONTEND", "Frontend"), "Frontend"),
    "Member": "Groups",
    **dict.fromkeys(("Version", "newest", "release_in", "tag_of", "version_in"), "Images"),
    **dict.fromkeys(("absent_component", "primary_component"), "Components"),
    **dict.fromkeys(("generation", "helm_installation", "revised", "with_defaults"), "Manifests"),
}
"""Title of the section for a name, or else for what a module defines."""

_HEAD = """# The SDK

<!-- Generated: python -m tools.sdk_reference -->

What a provider imports, and all of it: `airunway.sdk`. Everything here is pure, and versioned with the
[contract] (docs/providers/contract.md): it only grows. The values of the contract are explained there.

Each example runs as it stands, and a test compares what it shows. All begin with this:
"""


class Entry(NamedTuple):
    """A public name: as it is written after ``from airunway.sdk import *``, where it is defined, and how."""

    name: str
    module: str
    definition: ast.stmt | None
    doc: str


# ---------------------------------------------------------------------------------------------------------- reading


def names() -> list[str]:
    """Every public name, those of the SDK's modules with the module's."""
    return [*sdk.__all__, *(f"{module}.{name}" for module in MODULES for name in getattr(sdk, module).__all__)]


def examples() -> dict[str, str]:
    """The examples, by name."""
    parts = re.split(r"^== (.+)$", EXAMPLES.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {name: text.strip("\n") + "\n" for name, text in zip(parts[::2], parts[1::2], strict=True)}


def documented(name: str) -> Entry:
    """What the source says of a public name. Raises LookupError for a name that nothing defines."""
    module, _, short = name.rpartition(".")
    return _entry(name, f"airunway.sdk.{module}" if module else "airunway.sdk", short)


def _entry(name: str, module: str, short: str) -> Entry:
    body = _tree(module).body
    for position, node in enumerate(body):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                if (alias.asname or alias.name) == short:
                    return _imported(name, node.module, alias.name)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == short:
            return Entry(name, module, node, inspect.cleandoc(ast.get_docstring(node) or ""))
        elif short in _assigned(node):
            return Entry(name, module, node, _text_after(body, position))
    raise LookupError(f"nothing in {module} defines {short}")


def _imported(name: str, module: str, short: str) -> Entry:
    try:
        found = importlib.import_module(f"{module}.{short}")
    except ModuleNotFoundError:
        return _entry(name, module, short)
    return Entry(name, "airunway.sdk", None, inspect.getdoc(found) or "")


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(importlib.import_module(module)))


def _assigned(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _text_after(body: list[ast.stmt], position: int) -> str:
    following = body[position + 1] if position + 1 < len(body) else None
    if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
        return inspect.cleandoc(str(following.value.value))
    return ""


# -------------------------------------------------------------------------------------------------------- signatures


def _signature(entry: Entry) -> str:
    node = entry.definition
    if isinstance(node, ast.FunctionDef):
        return _call(entry.name, node)
    if isinstance(node, ast.ClassDef):
        return "\n".join(_class(node))
    if isinstance(node, ast.AnnAssign):
        value = f" = {text}" if node.value and len(text := _text(node.value)) < _SHORT else ""
        return f"{entry.name}: {_text(node.annotation)}{value}"
    if isinstance(node, ast.Assign):
        text = _text(node.value)
        return f"{entry.name} = {text if len(text) < _SHORT else '…'}"
    return f"from airunway.sdk import {entry.name}"


def _text(node: ast.AST) -> str:
    """Source, with the quotes that the formatter of this repository uses: it formats the page too."""
    return ast.unparse(node).replace("'", '"')


def _call(name: str, node: ast.FunctionDef, *, bound: bool = False) -> str:
    given = node.args
    plain = given.args[1:] if bound else given.args
    defaults = [None] * (len(plain) - len(given.defaults)) + [*given.defaults]
    words = [_argument(arg, default) for arg, default in zip(plain, defaults, strict=True)]
    if given.vararg is not None:
        words.append(f"*{_argument(given.vararg, None)}")
    elif given.kwonlyargs:
        words.append("*")
    words += [_argument(arg, default) for arg, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    if given.kwarg is not None:
        words.append(f"**{_argument(given.kwarg, None)}")
    back = f" -> {_text(node.returns)}" if node.returns is not None and not bound else ""
    line = f"{name}({', '.join(words)}){back}"
    if len(line) <= WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {word},\n" for word in words) + f"){back}"


def _argument(arg: ast.arg, default: ast.expr | None) -> str:
    annotated = f"{arg.arg}: {_text(arg.annotation)}" if arg.annotation is not None else arg.arg
    return annotated if default is None else f"{annotated} = {_text(default)}"


def _class(node: ast.ClassDef) -> Iterator[str]:
    made = next((step for step in node.body if isinstance(step, ast.FunctionDef) and step.name == "__init__"), None)
    if made is not None:
        yield _call(node.name, made, bound=True)
        return
    parents = f"({', '.join(map(_text, node.bases))})" if node.bases else ""
    yield f"class {node.name}{parents}"
    for step in node.body:
        if isinstance(step, ast.AnnAssign):
            default = _text(step.value) if step.value is not None else ""
            shown = f" = {default}" if default and len(default) < _SHORT and "Field(" not in default else ""
            yield f"    {_text(step.target)}: {_text(step.annotation)}{shown}"
        elif isinstance(step, ast.Assign):
            yield f"    {_text(step)}"
        elif isinstance(step, ast.FunctionDef) and not step.name.startswith("_"):
            property_ = any(isinstance(mark, ast.Name) and mark.id == "property" for mark in step.decorator_list)
            returns = _text(step.returns) if step.returns is not None else "None"
            yield f"    {step.name} -> {returns}" if property_ else f"    {_method(step)}"


def _method(node: ast.FunctionDef) -> str:
    returns = f" -> {_text(node.returns)}" if node.returns is not None else ""
    return f"{_call(node.name, node, bound=True)}{returns}"


def _fields(node: ast.stmt | None) -> Iterator[str]:
    """The fields of a class that have a docstring below them."""
    body = node.body if isinstance(node, ast.ClassDef) else []
    for position, step in enumerate(body):
        if isinstance(step, ast.AnnAssign | ast.Assign) and (doc := _text_after(body, position)):
            yield f"- {', '.join(f'`{name}`' for name in _assigned(step))}: {' '.join(doc.split())}"


# --------------------------------------------------------------------------------------------------------- the page


def page() -> str:
    """The page, as Markdown."""
    shown = examples()
    sections: dict[str, list[Entry]] = {title: [] for title in _SECTIONS.values()}
    for name in names():
        entry = documented(name)
        module, _, _ = name.rpartition(".")
        title = f"`{module}`" if module else _SECTIONS.get(name) or _SECTIONS[entry.module]
        sections.setdefault(title, []).append(entry)
    lines = [_HEAD, *_code(shown[PRELUDE], "pycon")]
    for title, entries in sections.items():
        lines += ["", f"## {title}"]
        module = title.strip("`")
        if module in MODULES:
            lines += ["", inspect.getdoc(getattr(sdk, module)) or ""]
        for entry in entries:
            lines += ["", f"### `{entry.name}`", "", *_code(_signature(entry), "python"), "", entry.doc]
            if fields := list(_fields(entry.definition)):
                lines += ["", *fields]
            if entry.name == "labels":
                lines += ["", *_table(sdk.labels)]
            lines += ["", *_code(shown[entry.name], "pycon")]
    return "\n".join([*lines, ""])


def _code(text: str, language: str) -> list[str]:
    return [f"```{language}", text.strip("\n"), "```"]


def _table(module: ModuleType) -> Iterator[str]:
    """The constants of a module that have a docstring."""
    yield "| name | value | meaning |"
    yield "|---|---|---|"
    for name in module.__all__:
        entry, value = _entry(name, module.__name__, name), getattr(module, name)
        if entry.doc and isinstance(value, str):
            yield f"| `{name}` | `{value}` | {' '.join(entry.doc.split())} |"


if __name__ == "__main__":
    sys.exit(write({PAGE: page()}))
