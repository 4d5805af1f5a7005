"""Record which arguments a release of vLLM has: the engine's, and those of its own HTTP server.

``python tools/vllm_fields.py vllm-0.22.0-....whl OUTPUT.json`` reads the two classes out of the wheel's sources
(`AsyncEngineArgs` with what it inherits, `FrontendArgs`), without installing or importing anything of it.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import zipfile
from pathlib import Path

_PLACES = {
    "AsyncEngineArgs": ("vllm/engine/arg_utils.py",),
    "FrontendArgs": ("vllm/entrypoints/launchers/cli_args.py", "vllm/entrypoints/openai/cli_args.py"),
}
"""Where the class stands, newest place first."""
_FLAG = re.compile(r"--([a-z][a-z0-9-]*)")


def fields(wheel: Path) -> dict[str, object]:
    """The names by class, with the release. Raises KeyError for a wheel that has none of the known places."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        found: dict[str, object] = {"release": wheel.name.split("-")[1]}
        for name, places in _PLACES.items():
            place = next(place for place in places if place in names)
            source = archive.read(place).decode()
            found[name] = _of_class(source, name) or _of_parser(source)
            if name == "FrontendArgs":
                # What its base has shapes answers; the rest is the HTTP server's. Older releases do not tell.
                found["BaseFrontendArgs"] = _of_class(source, "BaseFrontendArgs")
        return found


def _of_class(source: str, name: str) -> list[str]:
    """Annotated fields of a dataclass, those of its bases in the same file included."""
    classes = {node.name: node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)}
    found: list[str] = []
    waiting = [name]
    while waiting:
        node = classes.get(waiting.pop())
        if node is None:
            continue
        waiting += [base.id for base in node.bases if isinstance(base, ast.Name)]
        found += [
            part.target.id
            for part in node.body
            if isinstance(part, ast.AnnAssign)
            and isinstance(part.target, ast.Name)
            and "ClassVar" not in ast.unparse(part.annotation)
        ]
    return sorted(dict.fromkeys(found))


def _of_parser(source: str) -> list[str]:
    """Flags of ``make_arg_parser``: releases before 0.10 have no class for those of the HTTP server."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    added = [
        call.args[0].value
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr == "add_argument"
        and call.args
        and isinstance(call.args[0], ast.Constant)
        and isinstance(call.args[0].value, str)
    ]
    return sorted({match[1].replace("-", "_") for flag in added if (match := _FLAG.fullmatch(flag))})


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(fields(Path(sys.argv[1])), indent=1) + "\n", encoding="utf-8")
