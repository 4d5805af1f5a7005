"""``airunway chat`` asks a deployment's model, and shows how fast the answer came."""

from __future__ import annotations

import asyncio
import io
import os
import re
import signal
import sys
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from airunway.cli import completers
from airunway.cli.cluster import Access, about_deployment, duration, fail, remark
from airunway.cli.options import cluster_options, namespace_option, output_option
from airunway.cli.parameters import Command, IntRange, argument, option
from airunway.cli.printing import as_document, escape_what_cannot_be_encoded
from airunway.redaction import bounded
from airunway.resource import dig
from airunway.view.answers import AnswerView, Piece, counts_of, plain_text

if TYPE_CHECKING:
    from airunway.kube import Client
    from airunway.resource import ObjectKey
    from airunway.snapshots.dialogue import Dialogue

LONGEST_PROMPT = 2**20
"""Characters of a prompt."""

_SURROGATES = re.compile("[\ud800-\udfff]")


@click.command(cls=Command)
@argument("target", metavar="md/NAME", shell_complete=completers.deployments, help="A deployment of the cluster.")
@argument(
    "prompt", default=None, metavar="PROMPT", help="The question. Default: a conversation; in a pipe, standard input."
)
@namespace_option()
@option(
    "task",
    "--as",
    default="auto",
    type=click.Choice(["auto", "chat", "completion", "embedding", "rerank"]),
    help="What to ask the model for. Default: what its server advertises.",
)
@option("--model", help="Served name (default: the first that the server lists).")
@option("--system", help="System message of a chat.")
@option("--document", multiple=True, help="Document to rank by its relevance to PROMPT; may be repeated.")
@option("--max-tokens", type=IntRange(min=1), help="At most so many tokens of an answer.")
@option(
    "--timeout", default="5m", metavar="DURATION", help="Longest wait for the first, or the next, part of an answer."
)
@option("--raw", is_flag=True, help="Print the request as a curl command instead.")
@output_option("text", "json", "yaml")
@cluster_options
def chat(
    target: str,
    prompt: str | None,
    *,
    namespace: str,
    task: str,
    model: str,
    system: str,
    document: tuple[str, ...],
    max_tokens: int | None,
    timeout: str,
    raw: bool,
    output: str,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Ask the model of a deployment, through the API server: one answer, or a conversation on a terminal.

    Standard output has the answer as it arrives; standard error the time to the first token, tokens per second, and
    the server's own counts.

    airunway chat md/llama "Why is the sky blue?" -n ml

    airunway chat md/reranker "capital of France" --document Paris --document Rome

    Needs the right to create services/proxy in the namespace (the ClusterRole edit). Your credentials do not reach the
    model.
    """
    if prompt is None and not sys.stdin.isatty():
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="replace")
        prompt = sys.stdin.read(LONGEST_PROMPT + 1)
    prompt = None if prompt is None else _decodable(prompt)
    if prompt is not None and not prompt.strip():
        raise click.BadParameter("the prompt is empty")
    if prompt is not None and len(prompt) > LONGEST_PROMPT:
        raise click.BadParameter(f"the prompt has more than {LONGEST_PROMPT} characters")
    if prompt is None and (raw or output != "text" or document):
        raise click.BadParameter("--raw, --output and --document need a PROMPT")
    from airunway.snapshots.dialogue import DialogueError, DialogueOptions, dialogue_with

    wanted = DialogueOptions(
        task="rerank" if document and task == "auto" else task,
        model=_decodable(model),
        system=_decodable(system),
        documents=tuple(map(_decodable, document or ())),
        max_tokens=max_tokens,
        silence=duration(timeout).total_seconds(),
    )
    if wanted.silence <= 0:
        raise click.BadParameter("--timeout must be longer than 0s")
    escape_what_cannot_be_encoded()

    async def work(client: Client, key: ObjectKey) -> None:
        try:
            talk = await dialogue_with(client, key, wanted, remark=remark)
        except DialogueError as error:
            fail(str(error))
        if prompt is None:
            await _converse(talk)
        elif raw:
            click.echo("\n".join(talk.curl(prompt)))
        elif (found := await _ask(talk, prompt, show=output == "text")) is None:
            raise click.exceptions.Exit(1)
        elif output != "text":
            click.echo(as_document([found.as_resource()], output), nl=False)

    about_deployment([target], work, namespace=namespace, access=Access(kubeconfig, context))


def _decodable(text: str) -> str:
    """The text with U+FFFD for bytes that are no UTF-8: arguments have surrogates for them, and JSON takes none."""
    return _SURROGATES.sub("\ufffd", text)


async def _ask(talk: Dialogue, prompt: str, *, show: bool = True) -> AnswerView | None:
    """Ask and print; None, after a sentence on standard error, if there is no whole answer."""
    from airunway.snapshots.dialogue import DialogueError

    printer = Printer(show)
    try:
        view = await talk.ask(prompt, printer.write)
    except DialogueError as error:
        printer.end()
        remark(f"airunway: {error}")
        return None
    finally:
        printer.end()
    if show:
        print_rest(view, talk.wanted.documents)
    return view


async def _converse(talk: Dialogue) -> None:
    """Ask what is typed until the end of input; Ctrl-C ends an answer, or at the prompt the conversation."""
    remark(f"{talk.model} of md/{dig(talk.deployment, 'metadata', 'name')}; Ctrl-C ends an answer, Ctrl-D the talk")
    terminal = Terminal()
    while True:
        sys.stdout.write("> ")
        sys.stdout.flush()
        typed = await terminal.line()
        if typed is None:
            click.echo()
            return
        if not typed.strip():
            continue
        if len(typed) > LONGEST_PROMPT:
            remark(f"the prompt has more than {LONGEST_PROMPT} characters")
            continue
        await _interruptible(_ask(talk, typed))


async def _interruptible(work: Coroutine[object, object, object]) -> None:
    """Wait for `work`; Ctrl-C ends it, and nothing else."""
    task = asyncio.create_task(work)
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGINT)
    try:
        loop.add_signal_handler(signal.SIGINT, task.cancel)
    except NotImplementedError:  # Windows: Ctrl-C ends the conversation
        await task
        return
    try:
        with suppress(asyncio.CancelledError):
            await task
        if task.cancelled():
            remark("the answer was ended")
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)


# ----------------------------------------------------------------------------------------------------- the terminal


_HEAD = "\x1b[2m"
_END = "\x1b[0m"


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
        click.echo(f"[{shown}{more}]")
        remark(f"{len(view.embedding)} dimensions; -o json prints all")
    for each in view.ranked:
        text = documents[each.index] if each.index < len(documents) else "?"
        click.echo(f"{each.score:.6f}  {bounded(text, 300)}")
    remark("; ".join(counts_of(view)))
