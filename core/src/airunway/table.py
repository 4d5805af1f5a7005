"""Text in columns, as kubectl prints it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from airunway.redaction import printable

NARROWEST = 24
"""Characters that the last column must have so that its texts are wrapped."""


def format_table(header: Sequence[str], rows: Iterable[Sequence[str]], *, width: int | None = None) -> str:
    """Returns a header in capitals and rows, aligned: two spaces between columns, no borders, nothing cut.

    Control characters and terminal sequences are removed from the texts, because users may have written them.

    With a `width` (of the terminal), the texts of the last column are wrapped so that no line is longer. Where there is
    not enough room for that, the columns that do not fit stand below their row, each with its name.
    """
    lines: list[Sequence[str]] = [
        [name.upper() for name in header],
        *([printable(text) for text in row] for row in rows),
    ]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    room = width - sum(widths[:-1]) - 2 * (len(widths) - 1) if width else 0
    if not width or room >= widths[-1]:
        return "\n".join(_aligned(lines, widths))
    if room >= NARROWEST:
        return "\n".join(_aligned([folded for line in lines for folded in _folded(line, room)], widths))
    fitting = max((k for k in range(1, len(widths)) if sum(widths[:k]) + 2 * (k - 1) <= width), default=1)
    found = []
    for line, above in zip(lines, _aligned([line[:fitting] for line in lines], widths), strict=True):
        found.append(above)
        if line is not lines[0]:
            below = zip(header[fitting:], line[fitting:], strict=True)
            text = ", ".join(f"{name}: {value}" for name, value in below if value not in ("", "-"))
            found += textwrap.wrap(text, width, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
    return "\n".join(found)


def _aligned(lines: Iterable[Sequence[str]], widths: Sequence[int]) -> list[str]:
    return ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=False)).rstrip() for line in lines]


def _folded(line: Sequence[str], room: int) -> Iterator[Sequence[str]]:
    """Yields the line, with its last text wrapped to as many lines as it needs."""
    parts = textwrap.wrap(line[-1], room, break_on_hyphens=False) or [""]
    yield [*line[:-1], parts[0]]
    for part in parts[1:]:
        yield [*([""] * (len(line) - 1)), part]
