"""What an OpenAI-compatible server answers, line by line: text, counts of tokens, errors. Whatever it sends.

    reader = AnswerReader(Task.CHAT)
    pieces = [piece for text in lines for piece in reader.line(text)] + list(reader.end())

A stream of events and one JSON document are read alike. A piece never raises: what is no answer becomes its `error`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import orjson

from airunway.redaction import bounded, printable
from airunway.resource import Resource, dig, is_integer, list_at
from airunway.unseen import Unseen
from airunway.view.base import ViewModel, word

SHOWN = 200
"""Bytes that are shown of what is no answer."""

MOST_DOCUMENT = 8 * 2**20
"""Characters that are kept of an answer that is no stream."""

_LARGEST = 2**53
_MOST_MODELS = 1000
_MOST_RANKED = 10_000


class Task(StrEnum):
    """What a model is asked for."""

    CHAT = "chat"
    COMPLETION = "completion"
    EMBEDDING = "embedding"
    RERANK = "rerank"


PATHS: Mapping[Task, str] = {
    Task.CHAT: "/v1/chat/completions",
    Task.COMPLETION: "/v1/completions",
    Task.EMBEDDING: "/v1/embeddings",
    Task.RERANK: "/v1/rerank",
}
"""Where each task is asked for, in the order in which they are tried where a server does not say which it has."""

_CAPABILITIES = {
    "chat": Task.CHAT,
    "completion": Task.CHAT,  # llama.cpp: it generates, so it also answers a chat
    "multimodal": Task.CHAT,
    "generate": Task.CHAT,
    "embed": Task.EMBEDDING,
    "embedding": Task.EMBEDDING,
    "embeddings": Task.EMBEDDING,
    "rerank": Task.RERANK,
    "score": Task.RERANK,
}


@dataclass(frozen=True, kw_only=True)
class Usage(ViewModel):
    """What the server counted."""

    prompt: int | None
    """Tokens of the request; None: the server does not say it."""
    completion: int | None
    """Tokens of the answer; None: the server does not say it."""
    cached: int | None = None
    """Tokens of the request that were in the prefix cache; None: the server does not say it."""


@dataclass(frozen=True, kw_only=True)
class Ranked(ViewModel):
    """One document of a rerank answer."""

    index: int
    """Its place in the request, from 0."""
    score: float
    """Its relevance."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A part of an answer."""

    text: str = ""
    """Text as the model wrote it: not yet fit for a terminal."""
    reasoning: str = ""
    """Text of the model's reasoning, where the server parts it from the answer."""
    usage: Usage | None = None
    """Counts of tokens; the last ones of an answer count."""
    finish: str = ""
    """Why the answer ended, such as ``stop`` or ``length``."""
    embedding: tuple[float, ...] = ()
    """An embedding."""
    ranked: tuple[Ranked, ...] = ()
    """Documents by relevance."""
    error: str = ""
    """What is wrong, as one plain sentence; nothing comes after it."""


@dataclass(frozen=True, kw_only=True)
class AnswerView(ViewModel):
    """One answer, and how fast it came."""

    task: str
    """``chat``, ``completion``, ``embedding`` or ``rerank``."""
    model: str
    """Served name of the model."""
    text: str
    """The answer, with its line breaks; empty for an embedding or a rerank answer."""
    reasoning: str
    """The model's reasoning, where the server parts it from the answer."""
    embedding: tuple[float, ...]
    """The embedding."""
    ranked: tuple[Ranked, ...]
    """Documents by relevance."""
    finish: str
    """Why it ended, such as ``stop`` or ``length``; empty if the server does not say it."""
    usage: Usage | Unseen
    """What the server counted."""
    seconds: float
    """From the request to the end of the answer."""
    first_token: float | Unseen
    """Seconds from the request to the first token."""
    tokens_per_second: float | Unseen
    """Tokens after the first one, by the server's count, for each second between the first and the last one."""


@dataclass(kw_only=True)
class Answer:
    """Collects the pieces of one answer, with the moments at which they came."""

    task: Task
    """What was asked for."""
    model: str
    """Served name of the model."""
    started: float
    """When the request was sent, in seconds of any clock."""
    _texts: list[str] = field(default_factory=list)
    _reasoning: list[str] = field(default_factory=list)
    _piece: Piece = field(default_factory=Piece)
    _first: float | None = None
    _last: float = 0.0

    def add(self, piece: Piece, moment: float) -> None:
        """Take a piece that came at that moment, by the clock of `started`."""
        if piece.text or piece.reasoning:
            self._first = moment if self._first is None else self._first
            self._last = moment
        self._texts.append(piece.text)
        self._reasoning.append(piece.reasoning)
        self._piece = Piece(
            usage=piece.usage or self._piece.usage,
            finish=piece.finish or self._piece.finish,
            embedding=piece.embedding or self._piece.embedding,
            ranked=piece.ranked or self._piece.ranked,
        )

    @property
    def text(self) -> str:
        """The text so far, as the model wrote it."""
        return "".join(self._texts)

    def view(self, moment: float) -> AnswerView:
        """Returns the answer that ended at that moment."""
        usage = self._piece.usage
        return AnswerView(
            task=self.task.value,
            model=word(self.model),
            text=plain_text(self.text),
            reasoning=plain_text("".join(self._reasoning)),
            embedding=self._piece.embedding,
            ranked=self._piece.ranked,
            finish=self._piece.finish,
            usage=usage or Unseen(what="usage", why="the server sent no counts of tokens"),
            seconds=round(moment - self.started, 4),
            first_token=round(self._first - self.started, 4)
            if self._first is not None
            else Unseen(what="first token", why="the answer has no text"),
            tokens_per_second=self._speed(),
        )

    def _speed(self) -> float | Unseen:
        usage = self._piece.usage
        if usage is None or usage.completion is None:
            return Unseen(what="tokens per second", why="the server sent no count of the answer's tokens")
        if self._first is None or usage.completion < 2 or self._last <= self._first:
            return Unseen(what="tokens per second", why="the answer came in one part")
        return round((usage.completion - 1) / (self._last - self._first), 2)


def counts_of(view: AnswerView) -> list[str]:
    """Returns how fast an answer came and what the server counted, as words."""
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


def request_body(
    task: Task,
    *,
    model: str,
    messages: Sequence[Mapping[str, str]],
    documents: Sequence[str] = (),
    max_tokens: int | None = None,
) -> Resource:
    """Returns the body of a request; `messages` are ``role`` and ``content``, of which the last one is the prompt."""
    prompt = messages[-1]["content"] if messages else ""
    limit: Resource = {} if max_tokens is None else {"max_tokens": max_tokens}
    stream: Resource = {"stream": True, "stream_options": {"include_usage": True}}
    if task is Task.CHAT:
        return {"model": model, "messages": [dict(each) for each in messages], **limit, **stream}
    if task is Task.COMPLETION:
        return {"model": model, "prompt": prompt, **limit, **stream}
    if task is Task.EMBEDDING:
        return {"model": model, "input": prompt}
    return {"model": model, "query": prompt, "documents": list(documents)}


def plain_text(text: str) -> str:
    """Returns a model's text for a terminal: line breaks and tabs stay, other control characters do not.

    Nothing else is changed: what looks like a credential is the model's own.
    """
    if text.isprintable():
        return text
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(map(_without_controls, line.split("\t"))) for line in lines)


def _without_controls(text: str) -> str:
    # `printable` removes blanks at the end, which a piece in the middle of a sentence needs.
    return text if text.isprintable() else printable(f"{text}|").removesuffix("|")


def error_text(text: str) -> str:
    """Returns the beginning of what a server sent, as one plain line."""
    return bounded(text.strip(), SHOWN)


# ----------------------------------------------------------------------------------------- which models, which tasks


def models_of(document: object) -> tuple[str, ...]:
    """Returns the ids in the answer of ``/v1/models``; empty for anything else."""
    found = (dig(each, "id") for each in list_at(document, "data")[:_MOST_MODELS])
    return tuple(each for each in found if isinstance(each, str) and each)


def tasks_of(models: object, schema: object = None) -> tuple[Task, ...]:
    """Returns what a server advertises, best first; empty if it says nothing.

    `models` is the answer of ``/v1/models`` (llama.cpp and infinity list capabilities in it), `schema` that of
    ``/openapi.json`` (vLLM and SGLang list their paths).
    """
    found: set[Task] = set()
    for part in ("data", "models"):
        for each in list_at(models, part)[:_MOST_MODELS]:
            capabilities = dig(each, "capabilities")
            if isinstance(capabilities, list):
                named = (name for name in capabilities if isinstance(name, str))
                found |= {_CAPABILITIES[name] for name in named if name in _CAPABILITIES}
    paths = dig(schema, "paths")
    if not found and isinstance(paths, dict):
        found = {task for task, path in PATHS.items() if path in paths}
    return tuple(task for task in Task if task in found)


# -------------------------------------------------------------------------------------------------------- the answer


class AnswerReader:
    """Reads the lines of one answer. After a piece with an error it ignores what comes."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._data: list[str] = []
        self._event = ""
        self._document: list[str] = []
        self._size = 0
        self._events = False
        self._failed = False
        self._answered = False
        self._finished = False
        self._done = False

    def line(self, text: str) -> Iterator[Piece]:
        """Yields what one line (without its line break) completes."""
        for part in text.split("\r"):
            for piece in self._line(part.removeprefix("\ufeff")):
                if self._failed:
                    return
                self._failed = bool(piece.error)
                yield piece

    def end(self) -> Iterator[Piece]:
        """Yields what the end of the answer completes: an event without its empty line, a document, or an error."""
        if self._failed:
            return
        pieces = [*self._dispatch()] if self._events else [*self._read_document()]
        for piece in pieces:
            self._failed = self._failed or bool(piece.error)
            yield piece
        if not self._failed and self._events and not self._done and not self._finished:
            yield Piece(error="the answer broke off before its end")

    def _line(self, text: str) -> Iterator[Piece]:
        """As `line`, for a line without any line break."""
        if self._done:
            return
        if not self._events and not self._document and text.startswith(("data:", "event:", "id:", "retry:", ":")):
            self._events = True
        if not self._events:
            if text.strip() or self._document:
                self._size += len(text)
                if self._size > MOST_DOCUMENT:
                    yield Piece(error=f"the answer has more than {MOST_DOCUMENT // 2**20} MiB")
                self._document.append(text)
            return
        if not text:
            yield from self._dispatch()
            return
        field, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            # Some servers leave out the empty line between events.
            if len(self._data) == 1 and _is_whole(self._data[0]):
                yield from self._dispatch()
            self._size += len(value)
            if self._size > MOST_DOCUMENT:
                yield Piece(error=f"an event has more than {MOST_DOCUMENT // 2**20} MiB")
            self._data.append(value)
        elif field == "event":
            self._event = value

    def _dispatch(self) -> Iterator[Piece]:
        """Yields what the event says whose lines have come."""
        data, event = "\n".join(self._data), self._event
        self._data, self._event, self._size = [], "", 0
        if not data.strip():
            return
        if data.strip() == "[DONE]":
            self._done = True
            return
        try:
            document = orjson.loads(data)
        except orjson.JSONDecodeError:
            yield Piece(error=f"the server sent an event that is not JSON: {error_text(data)}")
            return
        if event == "error" and (problem := _error_of(document) or error_text(data)):
            yield Piece(error=f"the server sent an error: {problem}")
            return
        yield from self._pieces(document)

    def _read_document(self) -> Iterator[Piece]:
        text = "\n".join(self._document)
        self._document = []
        if not text.strip():
            yield Piece(error="the server sent an empty answer")
            return
        try:
            document = orjson.loads(text)
        except orjson.JSONDecodeError:
            yield Piece(error=f"the server sent something that is not JSON: {error_text(text)}")
            return
        found = [*self._pieces(document)]
        yield from found
        if not self._answered and not any(piece.error for piece in found):
            yield Piece(error=f"the server sent no {self._task.value} answer: {error_text(text)}")

    def _pieces(self, document: object) -> Iterator[Piece]:
        """Yields what a whole document, or a part of a stream, says; nothing for one that says nothing."""
        if problem := _error_of(document):
            yield Piece(error=f"the server sent an error: {problem}")
            return
        usage = _usage_of(dig(document, "usage"))
        if self._task is Task.EMBEDDING:
            piece = Piece(embedding=_embedding(document), usage=usage)
            self._answered = self._answered or bool(piece.embedding)
        elif self._task is Task.RERANK:
            piece = Piece(ranked=_ranked(document), usage=usage)
            self._answered = self._answered or bool(piece.ranked)
        else:
            choices = dig(document, "choices")
            choice = choices[0] if isinstance(choices, list) and choices else None
            # In a stream `delta`, in a document `message`, in completions `text`.
            content = dig(choice, "delta") or dig(choice, "message") or {}
            piece = Piece(
                text=_text(dig(content, "content")) or _text(dig(choice, "text")),
                reasoning=_text(dig(content, "reasoning_content")) or _text(dig(content, "reasoning")),
                finish=word(dig(choice, "finish_reason")),
                usage=usage,
            )
            self._answered = self._answered or isinstance(choice, dict)
            if dig(content, "tool_calls") and not piece.text:
                piece = Piece(text=_calls(dig(content, "tool_calls")), finish=piece.finish, usage=usage)
        # Counts come after the reason for which an answer ends, so what follows is still read. Some send no [DONE].
        self._finished = self._finished or bool(piece.finish)
        if piece != Piece():
            yield piece


def _is_whole(data: str) -> bool:
    """Whether the first line of an event's data is a document of its own."""
    if data.strip() == "[DONE]":
        return True
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    return True


def _error_of(document: object) -> str:
    """The message of an error document of any server; empty if it is none."""
    if not isinstance(document, dict):
        return ""
    error = document.get("error")
    if error:
        found = dig(error, "message") if isinstance(error, dict) else error
        return error_text(found if isinstance(found, str) and found else json.dumps(error)[: 4 * SHOWN])
    if document.get("object") == "error" or "detail" in document:
        found = document.get("message") or document.get("detail")
        return error_text(found if isinstance(found, str) else json.dumps(found)[: 4 * SHOWN])
    return ""


def _usage_of(usage: object) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    found = Usage(
        prompt=_count(usage.get("prompt_tokens")),
        completion=_count(usage.get("completion_tokens")),
        cached=_count(dig(usage, "prompt_tokens_details", "cached_tokens")),
    )
    return None if found.prompt is None and found.completion is None else found


def _count(value: object) -> int | None:
    return value if is_integer(value) and 0 <= value < _LARGEST else None


def _text(value: object) -> str:
    """A text, or a list of parts with texts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(text for each in value if isinstance(text := dig(each, "text"), str))
    return ""


def _calls(calls: object) -> str:
    """Calls of tools as text: this program has no tools, and a user wants to see what the model asks for."""
    names = (dig(each, "function", "name") for each in list_at(calls))
    parts = (dig(each, "function", "arguments") for each in list_at(calls))
    return "".join(text for pair in zip(names, parts, strict=True) for text in pair if isinstance(text, str))


def _embedding(document: object) -> tuple[float, ...]:
    data = dig(document, "data")
    first = data[0] if isinstance(data, list) and data else None
    return tuple(_numbers(dig(first, "embedding")))


def _numbers(values: Any) -> Iterable[float]:
    if not isinstance(values, list) or not all(isinstance(each, int | float) for each in values):
        return ()
    return map(float, values) if all(abs(each) < _LARGEST for each in values) else ()


def _ranked(document: object) -> tuple[Ranked, ...]:
    listed = document if isinstance(document, list) else dig(document, "results") or dig(document, "data")
    found = []
    for each in list_at(listed)[:_MOST_RANKED]:
        index = _count(dig(each, "index"))
        score = dig(each, "relevance_score", default=dig(each, "score"))
        if index is not None and isinstance(score, int | float) and abs(score) < _LARGEST:
            found.append(Ranked(index=index, score=float(score)))
    return tuple(sorted(found, key=lambda each: -each.score))
