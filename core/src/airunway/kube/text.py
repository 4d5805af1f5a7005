"""A stream of bytes as lines of text, of bounded length."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

from airunway.kube.errors import AnswerTooLarge

__all__ = ["LONGEST_LINE", "text_lines"]

LONGEST_LINE = 16 * 2**10
"""Bytes of a line that are kept: as many as container runtimes write into one record of a log."""

_CUT = "…"


async def text_lines(
    chunks: AsyncIterator[bytes], *, longest: int = LONGEST_LINE, most: int | None = None
) -> AsyncGenerator[str, None]:
    """Yields the lines of a stream of chunks, which may be split anywhere; a last line without a line break counts.

    Invalid UTF-8 is replaced. Of a line only `longest` bytes are kept, an ellipsis marks the cut; the rest takes no
    memory. Raises AnswerTooLarge once more than `most` bytes have come.
    """
    kept, cut, total = bytearray(), False, 0
    async for chunk in chunks:
        total += len(chunk)
        if most is not None and total > most:
            raise AnswerTooLarge(f"more than {most} bytes of text")
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            cut = _keep(kept, part, longest) or cut
            yield _decoded(kept, cut)
            kept.clear()
            cut = False
        cut = _keep(kept, rest, longest) or cut
    if kept or cut:
        yield _decoded(kept, cut)


def _keep(kept: bytearray, part: bytes, longest: int) -> bool:
    """Append as much as fits; whether something did not."""
    room = longest - len(kept)
    kept += part[:room]
    return len(part) > room


def _decoded(kept: bytearray, cut: bool) -> str:
    text = kept.removesuffix(b"\r").decode(errors="ignore" if cut else "replace")
    return text + _CUT if cut else text
