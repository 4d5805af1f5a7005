"""A stream of bytes as lines: split anywhere, cut where they are long, refused where they are too many."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from airunway.kube.decoding import text_lines
from airunway.kube.errors import AnswerTooLarge


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


@pytest.mark.parametrize(
    ("parts", "lines"),
    [
        ((b"one\ntwo\n",), ["one", "two"]),
        ((b"o", b"ne\r", b"\n\n", b"tw", b"o"), ["one", "", "two"]),
        ((b"caf\xc3", b"\xa9\n\xff\n"), ["café", "�"]),
        ((b"x" * 5, b"x" * 9, b"y\nshort\n"), ["xxxxxxxx…", "short"]),
        (("1234567é\n".encode(),), ["1234567…"]),
        ((), []),
    ],
)
async def test_lines(parts: tuple[bytes, ...], lines: list[str]) -> None:
    assert [line async for line in text_lines(chunks(*parts), longest=8)] == lines


async def test_too_much_text_is_refused() -> None:
    lines = text_lines(chunks(b"12\n", b"345\n"), most=6)
    assert await anext(lines) == "12"
    with pytest.raises(AnswerTooLarge):
        await anext(lines)
