"""S3: signatures, pages, versions of objects, checksums, refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from downloader.tests.conftest import FILES, Claim, content, tree_digest
from tests.support.s3 import ObjectStore, object_store

from airunway_downloader.s3 import Keys, signed
from airunway_testing.modelhub.serving import CutBody, HttpError, Slow, Stall, WrongByte

URI = "s3://models/llama"
LARGE = "model-00001-of-00002.safetensors"
OBJECTS = {
    **{f"llama/{path}": data for path, data in FILES.items()},
    "llama-2/config.json": b"other",
    "llama/folder/": b"",
}


@pytest.fixture
async def store(claim: Claim) -> AsyncIterator[ObjectStore]:
    buckets = {"models": OBJECTS, "open": {"a.json": b"{}"}, "closed": {"a.json": b"{}"}}
    async with object_store(buckets, public=frozenset({"open"}), denied=frozenset({"closed"})) as running:
        claim.environment |= running.environment
        yield running


@pytest.mark.parametrize(
    ("url", "headers", "signature"),
    [
        (
            "https://examplebucket.s3.amazonaws.com/test.txt",
            {"Range": "bytes=0-9"},
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            "https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J",
            {},
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ],
)
def test_signatures_are_those_of_amazons_documentation(url: str, headers: dict[str, str], signature: str) -> None:
    keys = Keys(access="AKIAIOSFODNN7EXAMPLE", secret="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    made = signed("GET", url, headers, keys=keys, region="us-east-1", now=datetime(2013, 5, 24, tzinfo=UTC))
    assert made["Authorization"].rpartition("Signature=")[2] == signature


async def test_the_tree_is_what_is_below_the_prefix(store: ObjectStore, claim: Claim) -> None:
    checked = await claim.command("check-size", URI)
    done = await claim.download(URI)
    assert claim.files() == FILES
    assert done.ok["digest"] == tree_digest(FILES)
    assert done.ok["revision"] == checked.ok["revision"] == ""
    assert checked.ok["bytes"] == done.ok["bytes"] == sum(map(len, FILES.values()))


async def test_a_prefix_may_be_one_object(store: ObjectStore, claim: Claim) -> None:
    await claim.download(f"{URI}/tokenizer/vocab.json")
    assert claim.files() == {"vocab.json": FILES["tokenizer/vocab.json"]}


async def test_a40_1001_objects(claim: Claim) -> None:
    objects = {f"many/{number:04}.json": b"%d" % number for number in range(1001)}
    async with object_store({"models": objects}) as store:
        claim.environment |= store.environment
        checked = await claim.command("check-size", "s3://models/many")
    assert checked.ok["files"] == 1001


@pytest.mark.parametrize("uri", ["s3://models/none", "s3://models/llam", "s3://nothing/x"])
async def test_a40_nothing_there(store: ObjectStore, claim: Claim, uri: str) -> None:
    done = await claim.download(uri)
    assert (done.reason, done.code) == ("SourceNotFound", 3)


async def _change_while(store: ObjectStore, claim: Claim, data: bytes, *, always: bool) -> tuple[int, str]:
    """Download while an object changes under it: once, or each time it is asked for."""
    running = asyncio.create_task(claim.download(URI))
    changes = 0
    while not running.done():
        fetched = sum(each.route == "file" and each.path.endswith(LARGE) for each in store.requests)
        if fetched > changes and (always or not changes):
            changes += 1
            store.put("models", f"llama/{LARGE}", data + b"%d" % changes)
        await asyncio.sleep(0)
    done = await running
    return done.code, str(done.message.get("ok", {}).get("digest") or done.reason)


async def test_a40_an_object_that_changes_once_is_listed_and_fetched_again(store: ObjectStore, claim: Claim) -> None:
    store.inject(Slow(bytes_per_second=5_000_000), times=None)
    code, digest = await _change_while(store, claim, content(100, 9), always=False)
    assert (code, digest) == (0, tree_digest({**FILES, LARGE: content(100, 9) + b"1"}))


async def test_a40_an_object_that_always_changes_is_never_ready(store: ObjectStore, claim: Claim) -> None:
    store.inject(Slow(bytes_per_second=5_000_000), times=None)
    assert await _change_while(store, claim, content(300_000, 9), always=True) == (3, "VerificationFailed")


@pytest.mark.parametrize("checksum", [True, False])
async def test_it_goes_on_where_it_ended(store: ObjectStore, claim: Claim, checksum: bool) -> None:
    store.put("models", f"llama/{LARGE}", FILES[LARGE], checksum=checksum, parts=2)
    store.inject(Stall(after=300_000), path=f"llama/{LARGE}", times=None)
    done = await claim.download(URI, AIRUNWAY_STALL_SECONDS="0.3")
    assert done.reason == "Timeout"
    store.clear_faults()
    before, had = len(store.requests), store.bytes_sent(f"llama/{LARGE}")
    assert (await claim.download(URI)).ok["digest"] == tree_digest(FILES)
    (again,) = (each for each in store.requests[before:] if each.route == "file" and each.path.endswith(LARGE))
    assert again.range == f"bytes={had}-"


async def test_a_finished_object_that_has_changed_since_is_fetched_again(store: ObjectStore, claim: Claim) -> None:
    """Same size, and S3 has no checksum: the version is what differs."""
    store.put("models", f"llama/{LARGE}", FILES[LARGE], checksum=False)
    await claim.download(URI)
    (claim.folder / ".airunway/complete.json").unlink()
    changed = content(len(FILES[LARGE]), 77)
    store.put("models", f"llama/{LARGE}", changed, checksum=False)
    assert (await claim.download(URI)).ok["digest"] == tree_digest({**FILES, LARGE: changed})


async def test_wrong_bytes_are_found_by_the_checksum(store: ObjectStore, claim: Claim) -> None:
    store.inject(WrongByte(at=5), path=f"llama/{LARGE}", times=2)
    assert (await claim.download(URI)).ok["digest"] == tree_digest(FILES)
    (claim.folder / "model" / LARGE).unlink()
    store.inject(WrongByte(at=5), path=f"llama/{LARGE}", times=None)
    done = await claim.download(URI)
    assert (done.reason, done.code) == ("VerificationFailed", 3)


async def test_a_cut_body_goes_on(store: ObjectStore, claim: Claim) -> None:
    store.inject(CutBody(after=1000), path=f"llama/{LARGE}")
    assert (await claim.download(URI)).ok["digest"] == tree_digest(FILES)


async def test_access(store: ObjectStore, claim: Claim) -> None:
    async def outcome(uri: str, **environment: str) -> str:
        done = await claim.command("check-size", uri, **environment)
        return done.reason if done.code else "ok"

    none = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    assert await outcome("s3://open", **none) == "ok"
    assert await outcome(URI, **none) == "Unauthorized"
    assert await outcome("s3://closed") == "Forbidden"
    assert await outcome(URI, AWS_SECRET_ACCESS_KEY="wrong") == "Unauthorized"
    assert await outcome(URI, AWS_ACCESS_KEY_ID="AKIAUNKNOWN") == "Unauthorized"


async def test_faults_of_the_list(store: ObjectStore, claim: Claim) -> None:
    for fault, reason in (
        (HttpError(status=503, code="SlowDown"), "RateLimited"),
        (HttpError(status=500, code="InternalError"), "ServerError"),
    ):
        store.clear_faults()
        store.inject(fault, route="list", times=None)
        assert (await claim.download(URI)).reason == reason


async def test_s3_has_no_revisions(store: ObjectStore, claim: Claim) -> None:
    done = await claim.download(URI, "--revision", "main")
    assert (done.reason, done.code) == ("InvalidSpec", 3)
