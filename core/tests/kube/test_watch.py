"""The watch decoder: any cutting of the stream into chunks gives the same events, and no bytes give a surprise."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunway.kube import ApiError, Gone, KubeError, MalformedAnswer, ServerError, TransportError
from airunway.kube.decoding import WatchEvent, decoded_events

EVENTS = [
    {"type": "ADDED", "object": {"metadata": {"name": "a", "resourceVersion": "1"}, "text": "line\nbreak ü"}},
    {"type": "MODIFIED", "object": {"metadata": {"name": "a", "resourceVersion": "2"}, "pad": "x" * 300}},
    {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "3"}}},
    {"type": "DELETED", "object": {"metadata": {"name": "a", "resourceVersion": "4"}}},
]
STREAM = b"".join(orjson.dumps(event) + b"\n" for event in EVENTS)


def decode(*chunks: bytes) -> list[WatchEvent]:
    async def feed() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    async def collect() -> list[WatchEvent]:
        return [event async for event in decoded_events(feed())]

    return asyncio.run(collect())


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_chunks_may_be_cut_anywhere(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    chunks = [STREAM[a:b] for a, b in itertools.pairwise(places)]
    events = decode(*chunks)
    assert [{"type": e.type, "object": e.object} for e in events] == EVENTS
    assert [e.resource_version for e in events] == ["1", "2", "3", "4"]


@given(st.integers(1, len(STREAM) - 1))
def test_a_cut_stream_gives_the_whole_events_before_the_cut(place: int) -> None:
    part = STREAM[:place]
    whole = part.count(b"\n")
    if part.endswith(b"\n"):
        assert len(decode(part)) == whole
    else:
        assert len(decode(part[: part.rfind(b"\n") + 1])) == whole
        with pytest.raises(TransportError):
            decode(part)


def test_empty_lines_are_no_events() -> None:
    assert decode(b"\n\n", STREAM, b"\n") == decode(STREAM)


@pytest.mark.parametrize(
    ("status", "expected", "code"),
    [
        ({"code": 410, "reason": "Expired", "message": "too old"}, Gone, 410),
        ({"code": 500, "message": "etcd is away"}, ServerError, 500),
        ({"code": "?", "message": "?"}, ServerError, 500),
        ({}, ServerError, 500),
        ("nothing", ServerError, 500),
    ],
)
def test_an_error_event_is_raised_as_what_it_says(status: object, expected: type[ApiError], code: int) -> None:
    with pytest.raises(expected) as caught:
        decode(orjson.dumps({"type": "ERROR", "object": status}) + b"\n")
    assert caught.value.status == code


@pytest.mark.parametrize(
    "line", [b"7", b"null", b"{}", b'{"type": "ADDED"}', b'{"type": "ODD", "object": {"metadata": {}}}', b"{", b"\xff"]
)
def test_a_line_that_is_no_event(line: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        decode(line + b"\n")


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_ours(data: bytes) -> None:
    try:
        decode(data)
    except KubeError:
        return
    assert data.strip(b"\n") == b"", "a stream that is accepted has events or nothing in it"
