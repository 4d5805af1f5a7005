"""Formats objects as text for standard output."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence

from airunway.api.names import GROUP
from airunway.redaction import escaped, printable
from airunway.resource import Resource

__all__ = ["as_document", "object_name", "terminal_width"]


def terminal_width() -> int | None:
    """The columns of the terminal; None if standard output is no terminal, so that lines are not wrapped."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def object_name(name: str) -> str:
    """A deployment as ``-o name`` prints it, and as kubectl takes it."""
    return printable(f"modeldeployment.{GROUP}/{name}")


def as_document(items: Sequence[Resource], output: str) -> str:
    """Objects as ``json`` (several as a ``List``) or ``yaml`` (one document each); empty for none.

    Control characters are escaped, so that both forms are safe on a terminal.
    """
    if not items:
        return ""
    if output == "json":
        document = items[0] if len(items) == 1 else {"apiVersion": "v1", "kind": "List", "items": list(items)}
        return escaped(json.dumps(document, indent=2, ensure_ascii=False)) + "\n"
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes multi-line texts as blocks, and repeats objects instead of using aliases."""

        def ignore_aliases(self, _data: object) -> bool:
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        # Other characters are escaped, which needs a quoted text.
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style if _is_printable(value) else '"')

    Dumper.add_representer(str, text)
    text_of_all = str(yaml.dump_all(items, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=2**16))
    return "".join(char if _is_printable(char) else f"\\U{ord(char):08x}" for char in text_of_all)


def _is_printable(text: str) -> bool:
    return text.replace("\n", "").isprintable()
