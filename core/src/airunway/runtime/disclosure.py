"""What of the objects of a plan may be published: a ConfigMap is read by many who may not read what it describes.

Pure. Values of environment variables are left out altogether, and so are arguments whose name speaks of a secret; every
other text goes through the redaction that all foreign texts go through (`status/texts.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from airunway.resource import Resource
from airunway.words import redacted

__all__ = ["PLAN_LIMIT", "plan_data", "shown"]

HIDDEN = "***"

PLAN_LIMIT = 900 * 1024
"""Bytes of a plan: the API server takes 1 MiB of data in a ConfigMap, and etcd 1.5 MiB of an object."""

_NOTES_LIMIT = 64 * 1024
"""Bytes of the actions, and of the refusals, at most."""

_ENVIRONMENTS = frozenset(("env", "env_vars", "envVars", "envs"))
_ARGUMENTS = frozenset(("args", "command", "extraArgs"))
_SECRET = re.compile(r"(?i)token|secret|passw|api[_-]?key|credential|private[_-]?key|access[_-]?key|signature|auth")


def plan_data(desired: Sequence[Resource], *, actions: Sequence[str], refusals: Sequence[str]) -> dict[str, str]:
    """The data of the plan's ConfigMap: at most PLAN_LIMIT bytes, with a note where something was left out."""
    data = {
        "actions.txt": _cut("\n".join(actions), _NOTES_LIMIT),
        "refusals.txt": _cut("\n".join(map(redacted, refusals)), _NOTES_LIMIT),
    }
    left = PLAN_LIMIT - sum(len(text.encode()) for text in data.values())
    objects = yaml.safe_dump_all([shown(obj) for obj in desired], sort_keys=False, allow_unicode=True)
    return {"objects.yaml": _cut(objects, left), **data}


def shown(node: Any, name: str = "") -> Any:
    """`node` as it may be published; `name` is the key that it stands under."""
    if isinstance(node, Mapping):
        if name in _ENVIRONMENTS:  # by name, as Ray's runtime_env has it
            return {key: HIDDEN if isinstance(value, str) else shown(value) for key, value in node.items()}
        return {key: shown(value, str(key)) for key, value in node.items()}
    if isinstance(node, list | tuple):
        if name in _ENVIRONMENTS:
            return [_variable(item) for item in node]
        return _arguments(node) if name in _ARGUMENTS else [shown(item) for item in node]
    return redacted(node) if isinstance(node, str) else node


def _variable(item: Any) -> Any:
    if isinstance(item, Mapping) and "value" in item:
        return {**{key: shown(value) for key, value in item.items()}, "value": HIDDEN}
    return shown(item)


def _arguments(items: Sequence[Any]) -> list[Any]:
    """Arguments, without the value of ``--api-key=value`` and of ``--api-key value``."""
    said: list[Any] = []
    hides = False
    for item in items:
        if not isinstance(item, str):
            said.append(shown(item))
            hides = False
            continue
        flag, given, _ = item.partition("=")
        if hides and not item.startswith("-"):
            said.append(HIDDEN)
            hides = False
        elif given and _SECRET.search(flag):
            said.append(f"{flag}={HIDDEN}")
            hides = False
        else:
            said.append(redacted(item))
            hides = not given and item.startswith("-") and _SECRET.search(flag) is not None
    return said


def _cut(text: str, limit: int) -> str:
    """`text` up to the last whole line within `limit` bytes, and a line that says so where something is missing."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= limit:
        return encoded.decode()
    note = f"\n# cut: these are the first lines of {len(encoded)} bytes, of which a plan holds {limit}\n"
    kept = encoded[: limit - len(note)].decode(errors="ignore")
    return (kept.rpartition("\n")[0] or kept) + note
