"""Pages of a list become smaller where objects are large or deep: one object must not make its neighbours dear."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from airunway.kube import Kind, MalformedAnswer
from airunway.kube.decoding import MAX_PAGE, TOO_DEEP, Page, read_pages
from airunway.kube.errors import AnswerTooLarge

KIND = Kind(group="example.com", version="v1", kind="Thing", plural="things", namespaced=True)


def deep(levels: int = 3000) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


class Listing:
    """Answers to requests for pages of `texts`, one for each object, as an API server gives them."""

    def __init__(self, texts: list[bytes]) -> None:
        self.texts = texts
        self.asked: list[tuple[int, int]] = []

    def fetch(self, token: str, size: int, most: int | None) -> asyncio.Task[bytes]:
        start = int(token or 0)
        end = min(len(self.texts), start + size) if size else len(self.texts)
        self.asked.append((start, end - start))
        metadata = {"resourceVersion": "1", "continue": str(end) if end < len(self.texts) else ""}
        items = b",".join(self.texts[start:end])
        text = b'{"metadata":' + orjson.dumps(metadata) + b',"items":[' + items + b"]}"

        async def answer() -> bytes:
            if most is not None and len(text) > most:
                raise AnswerTooLarge(f"more than {most} bytes")
            return text

        return asyncio.create_task(answer())


async def read(listing: Listing, *, limit: int) -> list[Page]:
    return [page async for page in read_pages(listing.fetch, kind=KIND, limit=limit)]


def named(number: int, value: Any = None) -> bytes:
    return orjson.dumps({"kind": "Thing", "metadata": {"name": f"t{number}"}, "value": value})


def names_in(pages: list[Page]) -> list[str]:
    return [item["metadata"]["name"] for page in pages for item in page.items]


async def test_usual_pages_are_read_once_each() -> None:
    listing = Listing([named(i) for i in range(250)])
    assert names_in(await read(listing, limit=100)) == [f"t{i}" for i in range(250)]
    assert listing.asked == [(0, 100), (100, 100), (200, 50)]


async def test_m9_a_deep_object_is_cut_alone() -> None:
    texts = [named(i) for i in range(200)]
    texts[50] = b'{"kind":"Thing","metadata":{"name":"t50"},"value":' + deep() + b"}"
    listing = Listing(texts)
    pages = await read(listing, limit=100)
    assert names_in(pages) == [f"t{i}" for i in range(200)]
    (alone,) = [page for page in pages if any(item["metadata"]["name"] == "t50" for item in page.items)]
    assert len(alone.items) == 1
    assert TOO_DEEP in str(alone.items)
    assert len(listing.asked) < 30


@pytest.mark.parametrize("limit", [0, 100])
async def test_pages_of_large_objects_stay_below_the_limit(limit: int) -> None:
    listing = Listing([named(i, "x" * 1_300_000) for i in range(12)])
    pages = await read(listing, limit=limit)
    assert names_in(pages) == [f"t{i}" for i in range(12)]
    assert max(len(page.items) for page in pages) * 1_300_000 <= MAX_PAGE


async def test_a_single_object_is_read_however_large_it_is() -> None:
    assert names_in(await read(Listing([named(0, "x" * (MAX_PAGE + 1)), named(1)]), limit=100)) == ["t0", "t1"]


async def test_what_is_no_json_is_not_asked_for_again() -> None:
    listing = Listing([b"{]"] * 10)
    with pytest.raises(MalformedAnswer):
        await read(listing, limit=5)
    assert len(listing.asked) == 1
