"""The screen of ``airunway chat``: what is typed, an answer as it arrives, and the line of counts."""

from __future__ import annotations

import asyncio
import os
import sys

import typer

from airunway.redaction import bounded
from airunway.view.answers import AnswerView, Piece, plain_text
from airunway.view.unseen import Unseen

__all__ = ["Printer", "Terminal", "print_rest", "remark"]

_HEAD = "\x1b[2m"
_END = "\x1b[0m"


def remark(text: str) -> None:
    """Write a line to standard error."""
    typer.echo(bounded(text), err=True)


class Terminal:
    """Lines that are typed. Waiting for one can be cancelled, unlike a thread that reads."""

    def __init__(self) -> None:
        self._typed = b""
        self._ended = False

    async def line(self) -> str | None:
        """The next line; None at the end of input."""
        while b"\n" not in self._typed and not self._ended:
            await self._read()
        line, found, self._typed = self._typed.partition(b"\n")
        return line.decode(errors="replace") if found or line else None

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        number = sys.stdin.fileno()

        def wake() -> None:
            if not ready.done():
                ready.set_result(None)

        try:
            loop.add_reader(number, wake)
        except NotImplementedError:  # Windows
            self._typed += (await asyncio.to_thread(sys.stdin.readline)).encode()
            self._ended = not self._typed
            return
        try:
            await ready
        finally:
            loop.remove_reader(number)
        read = os.read(number, 65536)
        self._typed += read
        self._ended = not read


class Printer:
    """Writes an answer to standard output as it arrives; the model's reasoning only on a terminal."""

    def __init__(self, show: bool) -> None:
        self._show, self._terminal = show, sys.stdout.isatty()
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        self._head, self._end = ("", "") if plain else (_HEAD, _END)
        self._reasons = self._wrote = False
        self._last = "\n"

    def write(self, piece: Piece) -> None:
        if piece.reasoning and self._show and self._terminal:
            self._write(f"{self._head}{plain_text(piece.reasoning)}{self._end}")
            self._reasons = True
        if piece.text and self._show:
            if self._reasons:
                self._write("\n\n")
                self._reasons = False
            self._write(plain_text(piece.text))

    def _write(self, text: str) -> None:
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()
            self._last = text[-1]

    def end(self) -> None:
        """The next output begins a line."""
        if self._last != "\n":
            self._write("\n")


def print_rest(view: AnswerView, documents: tuple[str, ...]) -> None:
    """What is no text, and the line of counts."""
    if view.embedding:
        shown = ", ".join(f"{number:.6g}" for number in view.embedding[:8])
        more = f", … {len(view.embedding) - 8} more" if len(view.embedding) > 8 else ""
        typer.echo(f"[{shown}{more}]")
        remark(f"{len(view.embedding)} dimensions; -o json prints all")
    for each in view.ranked:
        text = documents[each.index] if each.index < len(documents) else "?"
        typer.echo(f"{each.score:.6f}  {bounded(text, 300)}")
    remark("; ".join(_counts(view)))


def _counts(view: AnswerView) -> list[str]:
    found = []
    if not isinstance(view.first_token, Unseen):
        found.append(f"first token after {view.first_token * 1000:.0f} ms")
        speed = view.tokens_per_second
        found.append(f"tokens/s unknown: {speed.why}" if isinstance(speed, Unseen) else f"{speed:.1f} tokens/s")
    usage = view.usage
    if isinstance(usage, Unseen):
        found.append(f"tokens unknown: {usage.why}")
    else:
        cached = f" ({usage.cached} cached)" if usage.cached else ""
        asked = "?" if usage.prompt is None else str(usage.prompt)
        answered = "?" if usage.completion is None else str(usage.completion)
        found.append(f"{asked} tokens in{cached}, {answered} out")
    found.append(f"{view.seconds:.2f} s in all")
    if view.finish not in ("", "stop"):
        found.append(f"ended by {view.finish}")
    return found
