"""Writes to standard output: objects as documents, lines with colours, a screen that is drawn again."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from airunway.api.names import GROUP
from airunway.redaction import escaped, printable
from airunway.resource import Resource


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


@dataclass(frozen=True)
class Line:
    """A line and its colour."""

    text: str
    style: str = ""
    """``red``, ``yellow``, ``green``, ``cyan``, ``dim`` or ``bold``; empty: as it is."""
    indent: int = 0
    """Columns by which further lines are indented where the text is wrapped."""


def escape_what_cannot_be_encoded() -> None:
    """Have standard output write escapes for characters that it does not have."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def is_ascii() -> bool:
    """Whether standard output takes ASCII only."""
    return not (sys.stdout.encoding or "").lower().startswith("utf")


def wrapped(lines: Iterable[Line], width: int | None) -> Iterator[Line]:
    """The lines, those that are too long as several. Without a width (no terminal) nothing is wrapped."""
    for line in lines:
        if width is None or len(line.text) <= width or width - line.indent < 20:
            yield line
            continue
        parts = textwrap.wrap(
            line.text, width, subsequent_indent=" " * line.indent, break_on_hyphens=False, drop_whitespace=True
        )
        yield from (Line(part, line.style) for part in parts or [""])


class Screen:
    """Standard output. `draw` replaces what is on the terminal."""

    def __init__(self) -> None:
        escape_what_cannot_be_encoded()
        self._terminal = sys.stdout.isatty()
        self._colour = self._terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    @property
    def is_terminal(self) -> bool:
        return self._terminal

    def print(self, lines: Iterable[Line]) -> None:
        """Write lines."""
        sys.stdout.write("".join(f"{self._styled(line)}\n" for line in lines))
        sys.stdout.flush()

    def draw(self, lines: Sequence[Line], *, rows: int) -> None:
        """Write the lines in place of those before, at most `rows` of them."""
        shown = list(lines)
        if len(shown) > rows > 1:
            shown = [*shown[: rows - 1], Line(f"… {len(shown) - rows + 1} more lines", "dim")]
        # Clear from the top instead of going up by lines: a resized terminal wraps them anew.
        sys.stdout.write("\x1b[H\x1b[J" + "\n".join(self._styled(line) for line in shown))
        sys.stdout.flush()

    def _styled(self, line: Line) -> str:
        text = printable(line.text)
        code = _CODES.get(line.style, "") if self._colour else ""
        return f"\x1b[{code}m{text}\x1b[0m" if code and text else text


_CODES = {"red": "31", "yellow": "33", "green": "32", "dim": "2", "bold": "1", "cyan": "36"}
