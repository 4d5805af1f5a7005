"""What is made of the answers of servers: of usual ones, odd ones, and those of no server at all."""

from __future__ import annotations

import json
from random import Random

import pytest
from core.tests.any_json import anything, changed
from hypothesis import given, settings
from hypothesis import strategies as st

from airunway.resource import Resource
from airunway.view import Unseen
from airunway.view.answers import (
    Answer,
    AnswerReader,
    Piece,
    Ranked,
    Task,
    Usage,
    models_of,
    plain_text,
    request_body,
    tasks_of,
)

DONE = "data: [DONE]"
USAGE = {"prompt_tokens": 4, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}}


def chunk(text: str | None = None, **choice: object) -> str:
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'content': text}, **choice}]})}"


def pieces(*lines: str, task: Task = Task.CHAT) -> list[Piece]:
    reader = AnswerReader(task)
    return [*(piece for line in lines for piece in reader.line(line)), *reader.end()]


def text_of(*lines: str, task: Task = Task.CHAT) -> str:
    """The whole text. Fails for an answer with an error."""
    found = pieces(*lines, task=task)
    assert [piece.error for piece in found if piece.error] == []
    return "".join(piece.text for piece in found)


def error_of(*lines: str, task: Task = Task.CHAT) -> str:
    """The error with which the answer ends: nothing comes after it, and it is a bounded plain line."""
    found = pieces(*lines, task=task)
    assert [bool(piece.error) for piece in found] == [False] * (len(found) - 1) + [True]
    error = found[-1].error
    assert error.isprintable()
    assert len(error) < 400
    return error


def test_a_stream_is_read_piece_by_piece_with_its_counts() -> None:
    usage = f"data: {json.dumps({'choices': [], 'usage': USAGE})}"
    lines = [chunk("Hel"), "", chunk("lo"), "", chunk(None, finish_reason="stop"), "", usage, "", DONE, ""]
    found = pieces(*lines)
    assert [piece.text for piece in found] == ["Hel", "lo", "", ""]
    assert [piece.finish for piece in found] == ["", "", "stop", ""]
    assert found[-1].usage == Usage(prompt=4, completion=2, cached=3)


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([chunk("Hel"), chunk("lo"), DONE], id="no empty lines"),
        pytest.param([chunk("Hel").replace("data: ", "data:"), "", chunk("lo"), "", DONE], id="no blank"),
        pytest.param([f"\ufeff{chunk('Hel')}", "", ": ping", "", chunk("lo"), "", DONE], id="mark and comments"),
        pytest.param([f"{chunk('Hel')}\r\r{chunk('lo')}\r\r{DONE}\r"], id="carriage returns"),
        pytest.param(["event: message", "id: 7", chunk("Hel"), "", chunk("lo"), "", DONE], id="fields"),
        pytest.param(["retry: 10", "", chunk("Hello"), "", DONE, "", chunk("late"), ""], id="after the end"),
        pytest.param(
            [chunk("Hello"), "", chunk(None, finish_reason="stop")], id="neither [DONE] nor a last empty line"
        ),
        pytest.param(['data: {"choices": [{"delta":', 'data: {"content": "Hello"}}]}', "", DONE], id="two data lines"),
        pytest.param(['{"choices": [', '{"message": {"content": "Hello"}}]}'], id="no stream"),
        pytest.param(['{"choices": [{"message": {"content": [{"type": "text", "text": "Hello"}]}}]}'], id="parts"),
    ],
)
def test_what_servers_do_to_streams_makes_no_difference(lines: list[str]) -> None:
    assert text_of(*lines) == "Hello"


def test_completions_reasoning_and_calls_of_tools() -> None:
    assert text_of('data: {"choices": [{"text": "Hello"}]}', "", DONE, task=Task.COMPLETION) == "Hello"
    thought = pieces('data: {"choices": [{"delta": {"reasoning_content": "hm"}}]}', "", DONE)
    assert (thought[0].reasoning, thought[0].text) == ("hm", "")
    call = {"delta": {"tool_calls": [{"function": {"name": "look", "arguments": '{"at": 1}'}}]}}
    assert text_of(f"data: {json.dumps({'choices': [call]})}", "", DONE) == 'look{"at": 1}'


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["<html><body>502 Bad Gateway</body></html>"], "not JSON: <html><body>502 Bad Gateway"),
        (["", "  "], "an empty answer"),
        ([chunk("Hel")], "broke off before its end"),
        ([chunk("Hel"), "", 'data: {"choices": [{"del'], "event that is not JSON"),
        (['data: {"error": {"message": "out of memory", "code": 500}}', "", chunk("late"), "", DONE], "out of memory"),
        (['{"error": "no such model"}'], "no such model"),
        (['{"object": "error", "message": "too long", "code": 400}'], "too long"),
        (['{"detail": [{"msg": "field required"}]}'], "field required"),
        (["event: error", "data: nothing left", ""], "event that is not JSON: nothing left"),
        (["event: error", 'data: {"message": "nothing left"}', ""], "nothing left"),
        (['{"object": "list", "data": []}'], "no chat answer"),
        (["[1, 2]"], "no chat answer"),
        (["null"], "no chat answer"),
        (["[" * 100_000], "not JSON"),
        ([f"data: {'x' * 10_000_000}", ""], "more than 8 MiB"),
        (["x" * 1_000_000] * 9, "more than 8 MiB"),
        (['data: {"error": {"message": "\\u001b]0;owned\\u0007\\u202e token=hf_0123456789abcdef"}}', ""], "error: "),
    ],
)
def test_what_is_no_answer_is_one_sentence(lines: list[str], says: str) -> None:
    assert says in error_of(*lines)


def test_a_stream_of_a_million_lines_takes_no_quadratic_time() -> None:
    assert error_of(*['data: {"a":'] * 1_000_000) != ""


def test_embeddings_and_ranked_documents() -> None:
    document = json.dumps({"data": [{"embedding": [0.5, -1]}], "usage": {"prompt_tokens": 3}})
    (piece,) = pieces(document, task=Task.EMBEDDING)
    assert (piece.embedding, piece.usage) == ((0.5, -1.0), Usage(prompt=3, completion=None))
    for answered in (
        {"results": [{"index": 0, "relevance_score": 0.1}, {"index": 1, "relevance_score": 0.9}]},
        [{"index": 0, "score": 0.1}, {"index": 1, "score": 0.9}, {"index": "x", "score": 1}],
    ):
        (ranked,) = pieces(json.dumps(answered), task=Task.RERANK)
        assert ranked.ranked == (Ranked(index=1, score=0.9), Ranked(index=0, score=0.1))
    assert "no embedding answer" in error_of('{"data": [{"embedding": ["x", null]}]}', task=Task.EMBEDDING)
    assert "no rerank answer" in error_of('{"results": [{"index": -1, "relevance_score": 1}]}', task=Task.RERANK)


def test_counts_that_are_no_counts_are_unknown() -> None:
    for usage in ({"completion_tokens": -1}, {"completion_tokens": True}, {"completion_tokens": 1e9}, [1], "x", {}):
        (piece, *_) = pieces(
            f"data: {json.dumps({'choices': [{'delta': {'content': 'a'}}], 'usage': usage})}", "", DONE
        )
        assert piece.usage is None


def test_times_are_from_the_first_text_on() -> None:
    answer = Answer(task=Task.CHAT, model="llama", started=10.0)
    for text, moment in (("", 10.5), ("a", 11.0), (" b", 12.0), (" c", 13.0)):
        answer.add(Piece(text=text), moment)
    answer.add(Piece(usage=Usage(prompt=4, completion=21)), 14.0)
    view = answer.view(14.0)
    assert (view.text, view.first_token, view.tokens_per_second, view.seconds) == ("a b c", 1.0, 10.0, 4.0)


def test_without_counts_or_text_nothing_is_zero() -> None:
    answer = Answer(task=Task.CHAT, model="llama", started=0.0)
    view = answer.view(1.0)
    assert isinstance(view.usage, Unseen)
    assert isinstance(view.first_token, Unseen)
    assert isinstance(view.tokens_per_second, Unseen)
    answer.add(Piece(text="all at once", usage=Usage(prompt=1, completion=3)), 1.0)
    assert isinstance(answer.view(1.0).tokens_per_second, Unseen)


def test_text_for_a_terminal_keeps_its_form_and_nothing_else() -> None:
    hostile = "def f():\r\n\treturn 1 \x1b]0;owned\x07\x1b[2J\u202e\x9b31m \x00\n"
    assert plain_text(hostile) == "def f():\n\treturn 1   \n"
    assert plain_text(" of ") == " of "
    assert plain_text("of \x07 ") == "of   "
    # A sequence in two pieces: what is left of it is text.
    assert plain_text("a\x1b") + plain_text("[2J") == "a[2J"


def test_what_a_server_advertises() -> None:
    assert models_of({"data": [{"id": "llama"}, {"id": 3}, "x", {"id": "lora"}]}) == ("llama", "lora")
    assert models_of("x") == models_of({"data": {}}) == ()
    assert tasks_of({"models": [{"capabilities": ["completion", "multimodal"]}]}) == (Task.CHAT,)
    assert tasks_of({"data": [{"id": "e", "capabilities": ["embed", "rerank", 3]}]}) == (Task.EMBEDDING, Task.RERANK)
    assert tasks_of({"data": [{"id": "llama"}]}) == ()
    schema: Resource = {"paths": {"/v1/embeddings": {}, "/health": {}}}
    assert tasks_of({"data": [{"id": "llama"}]}, schema) == (Task.EMBEDDING,)


def test_a_request_asks_for_what_the_task_needs() -> None:
    messages = [{"role": "system", "content": "be short"}, {"role": "user", "content": "why?"}]
    chat = request_body(Task.CHAT, model="llama", messages=messages, max_tokens=7)
    assert (chat["messages"], chat["max_tokens"], chat["stream_options"]) == (messages, 7, {"include_usage": True})
    assert request_body(Task.COMPLETION, model="llama", messages=messages)["prompt"] == "why?"
    assert request_body(Task.EMBEDDING, model="e", messages=messages) == {"model": "e", "input": "why?"}
    ranks = request_body(Task.RERANK, model="r", messages=messages, documents=["a", "b"])
    assert ranks == {"model": "r", "query": "why?", "documents": ["a", "b"]}


@settings(max_examples=200, deadline=None)
@given(st.randoms())
def test_any_json_is_read(chance: Random) -> None:
    base: Resource = {
        "choices": [{"delta": {"content": "a", "tool_calls": [{"function": {"name": "f"}}]}, "finish_reason": "stop"}],
        "usage": USAGE,
        "data": [{"embedding": [1.0, 2.0]}],
        "results": [{"index": 0, "relevance_score": 0.5}],
    }
    task = chance.choice(list(Task))
    answer = Answer(task=task, model="llama", started=0.0)
    reader = AnswerReader(task)
    for _ in range(3):
        document = json.dumps(changed(chance, base, anything))
        for line in (f"data: {document}", ""):
            for piece in reader.line(line):
                answer.add(piece, 1.0)
    text = json.dumps(answer.view(2.0).as_resource(), ensure_ascii=False)
    assert text.replace("\n", "").replace("\t", "").isprintable()
