"""Writes to a terminal or a pipe: colours only where they are wanted, a screen that is drawn again, wrapped lines."""

from __future__ import annotations

import io
import os
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from airunway.redaction import printable

__all__ = ["Line", "Screen", "is_ascii", "wrapped"]


@dataclass(frozen=True)
class Line:
    """A line and its colour."""

    text: str
    style: str = ""
    """Style of rich; empty: as it is."""
    indent: int = 0
    """Columns by which further lines are indented where the text is wrapped."""


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
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may not have every character
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
