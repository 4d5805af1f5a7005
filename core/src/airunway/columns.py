"""Text in columns, as kubectl prints it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["as_columns"]


def as_columns(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A header in capitals and rows, aligned: two spaces between columns, no borders, nothing cut."""
    lines: list[Sequence[str]] = [[name.upper() for name in header], *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
