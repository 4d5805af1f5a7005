"""Text in columns, at the width of terminals."""

from __future__ import annotations

import pytest

from airunway.table import format_table

HEADER = ("namespace", "name", "verdict", "phase", "optimized", "tier", "metric", "precision", "against it")
ROW = (
    "(cluster)",
    "llama-70b-mi300x",
    "rejected",
    "NotAvailable",
    "not known",
    "-",
    "latency",
    "bf16",
    "no node " * 20,
)


@pytest.mark.parametrize("columns", [3, 5, 9])
@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_a2_no_line_is_longer_than_the_terminal_and_nothing_is_lost(columns: int, width: int) -> None:
    header, row = (*HEADER[: columns - 1], HEADER[-1]), (*ROW[: columns - 1], ROW[-1])
    lines = format_table(header, [row, row], width=width).split("\n")
    assert max(map(len, lines)) <= width
    words = " ".join(lines).replace(",", "").split()
    assert words.count("no") == 2 * 20
    assert all(words.count(cell.split()[0]) >= 2 for cell in row if cell != "-")


def test_a2_columns_that_do_not_fit_stand_below_with_their_names() -> None:
    lines = format_table(("a", "b", "c"), [("x" * 20, "-", "y" * 30)], width=40).split("\n")
    assert lines == [f"{'A':20}  B", f"{'x' * 20}  -", f"    c: {'y' * 30}"]
