"""An object that is nested deeper than the decoder goes must not hide its neighbours."""

from __future__ import annotations

import asyncio
import json
import threading
import tracemalloc

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunway.kube.decoding import MAX_DEPTH, TOO_DEEP, decoded, decoded_aside, shallow


def nested(depth: int, inner: str = '"]}"') -> bytes:
    return (b'{"a":' * depth) + inner.encode() + (b"}" * depth)


def depth_of(value: object) -> int:
    depth = 0
    while isinstance(value, dict):
        depth, value = depth + 1, value["a"]
    assert value in (TOO_DEEP, "]}")
    return depth


def test_what_is_too_deep_is_cut_and_the_neighbours_are_whole() -> None:
    text = b'{"items":[{"n":"before \\" ]"},' + nested(3000) + b',{"n":"after"}]}'
    items = decoded(text)["items"]
    assert items[0] == {"n": 'before " ]'}
    assert items[2] == {"n": "after"}
    assert depth_of(items[1]) == MAX_DEPTH - 2


def test_what_the_decoder_can_read_is_left_as_it_is() -> None:
    assert depth_of(decoded(nested(900))) == 900


@pytest.mark.parametrize("text", [b"", b"{", b'{"a":1}}', b'"\\', b"[1,"])
def test_what_is_no_json_stays_an_error(text: bytes) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        decoded(text)


@given(
    st.recursive(
        st.none() | st.integers(-9, 9) | st.text(max_size=8), lambda i: st.lists(i) | st.dictionaries(st.text(), i)
    )
)
def test_any_json_beside_something_too_deep_is_whole(value: object) -> None:
    assert decoded(b"[" + json.dumps(value).encode() + b"," + nested(2000) + b"]")[0] == value


async def test_m9_the_loop_goes_on_while_something_too_deep_is_cut() -> None:
    text = b"[" + nested(3000) + b"," + b",".join([b"[]"] * 400_000) + b"]"
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(others())
    try:
        assert len(await decoded_aside(text)) == 400_001
    finally:
        other.cancel()
    assert turns > 10


async def test_what_is_not_too_deep_needs_no_thread() -> None:
    before = threading.active_count()
    assert await decoded_aside(nested(900)) == decoded(nested(900))
    with pytest.raises(orjson.JSONDecodeError):
        await decoded_aside(b"{")
    assert threading.active_count() == before


def test_what_cannot_be_copied_by_recursion_is_cut() -> None:
    beside = [{"a": 1}, {"b": [2]}]
    value = {"deep": json.loads(nested(300)), "beside": beside}
    assert shallow(value) is value
    assert depth_of(value["deep"]) == 250
    assert value["beside"] == [{"a": 1}, {"b": [2]}]
    assert depth_of(shallow(json.loads(nested(240)))) == 240
    assert shallow("a text") == "a text"


def test_h3b_finding_out_that_nothing_is_too_deep_takes_little_memory() -> None:
    """A review of 1.3 MB is 430,000 objects; writing it as JSON to see whether that is possible took 64 MiB."""
    wide: dict[str, list[object]] = {"many": [{} for _ in range(430_000)]}
    tracemalloc.start()
    try:
        assert shallow(wide) is wide
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 16 * 2**20
