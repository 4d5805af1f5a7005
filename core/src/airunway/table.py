"""Text in columns, as kubectl prints it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from airunway.redaction import printable

__all__ = ["format_table"]


NARROWEST = 24
"""Characters that the last column must have for its texts to be folded."""


def format_table(header: Sequence[str], rows: Iterable[Sequence[str]], *, width: int | None = None) -> str:
    """A header in capitals and rows, aligned: two spaces between columns, no borders, nothing cut.

    Texts are anybody's: control characters and terminal sequences do not come through.

    With a `width` (that of the terminal), the texts of the last column are folded so that no line is longer, if there
    is room for that.
    """
    lines: list[Sequence[str]] = [
        [name.upper() for name in header],
        *([printable(text) for text in row] for row in rows),
    ]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    room = width - sum(widths[:-1]) - 2 * (len(widths) - 1) if width else 0
    if room >= NARROWEST:
        lines = [folded for line in lines for folded in _folded(line, room)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _folded(line: Sequence[str], room: int) -> Iterator[Sequence[str]]:
    """The line, its last text on as many lines as it needs."""
    parts = textwrap.wrap(line[-1], room, break_on_hyphens=False) or [""]
    yield [*line[:-1], parts[0]]
    for part in parts[1:]:
        yield [*([""] * (len(line) - 1)), part]
