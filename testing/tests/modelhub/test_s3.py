"""The played S3: listing, objects, signatures, errors as XML."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

import aiohttp
import pytest
from tests.support.s3 import Buckets, ObjectStore, object_store
from yarl import URL

from airunway_testing.modelhub.serving import CutBody, HttpError, LyingSize, Pattern, WrongByte

WEIGHTS = Pattern(200_000, seed=3)
NAMESPACE = "{http://s3.amazonaws.com/doc/2006-03-01/}"
EMPTY = hashlib.sha256(b"").hexdigest()


@pytest.fixture
async def store() -> AsyncIterator[ObjectStore]:
    objects: dict[str, str | Pattern] = {
        "llama/config.json": "{}",
        "llama/model.gguf": WEIGHTS,
        "llama/a b+ü.txt": "odd",
        "other": "1",
    }
    buckets: Buckets = {"models": objects, "open": {"a": "1"}, "closed": {"a": "1"}}
    async with object_store(buckets, public=frozenset({"open"}), denied=frozenset({"closed"})) as running:
        yield running


def signed(
    store: ObjectStore,
    path: str,
    query: dict[str, str] | None = None,
    *,
    method: str = "GET",
    secret: str = "",
    key: str = "",
    moment: datetime | None = None,
) -> tuple[URL, dict[str, str]]:
    """URL and headers of a request, written after the description of signature version 4 in Amazon's documentation."""
    raw_path = quote(path, safe="/-_.~")
    raw_query = "&".join(
        f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in sorted((query or {}).items())
    )
    date = (moment or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    host = urlsplit(store.endpoint).netloc
    scope = f"{date[:8]}/{store.region}/s3/aws4_request"
    names = "host;x-amz-content-sha256;x-amz-date"
    hashed = f"x-amz-content-sha256:{EMPTY}\nx-amz-date:{date}"
    canonical = f"{method}\n{raw_path}\n{raw_query}\nhost:{host}\n{hashed}\n\n{names}\n{EMPTY}"
    text = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    signing = f"AWS4{secret or store.secret_key}".encode()
    for part in scope.split("/"):
        signing = hmac.new(signing, part.encode(), "sha256").digest()
    signature = hmac.new(signing, text.encode(), "sha256").hexdigest()
    credential = f"{key or store.access_key}/{scope}"
    headers = {
        "x-amz-date": date,
        "x-amz-content-sha256": EMPTY,
        "Authorization": f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}",
    }
    return URL(f"{store.endpoint}{raw_path}{'?' if raw_query else ''}{raw_query}", encoded=True), headers


async def code_of(answer: aiohttp.ClientResponse) -> tuple[int, str | None]:
    return answer.status, ElementTree.fromstring(await answer.text()).findtext("Code")


async def test_a_listing_comes_in_pages(session: aiohttp.ClientSession) -> None:
    objects = {f"m/{number:04}": str(number) for number in range(1001)}
    async with object_store({"models": objects}) as store:
        found: list[str] = []
        token, pages = {"list-type": "2", "prefix": "m/"}, 0
        while True:
            url, headers = signed(store, "/models", token)
            async with session.get(url, headers=headers) as answer:
                tree = ElementTree.fromstring(await answer.text())
            pages += 1
            found += [str(each.findtext(f"{NAMESPACE}Key")) for each in tree.iter(f"{NAMESPACE}Contents")]
            if tree.findtext(f"{NAMESPACE}IsTruncated") == "false":
                break
            token["continuation-token"] = str(tree.findtext(f"{NAMESPACE}NextContinuationToken"))
    assert (pages, found) == (2, sorted(objects))


async def test_objects_with_etag_checksum_and_ranges(store: ObjectStore, session: aiohttp.ClientSession) -> None:
    url, headers = signed(store, "/models/llama/a b+ü.txt")
    async with session.get(url, headers=headers) as answer:
        assert await answer.read() == b"odd"
        assert answer.headers["ETag"] == f'"{hashlib.md5(b"odd").hexdigest()}"'
    url, headers = signed(store, "/models/llama/model.gguf")
    whole = b"".join(WEIGHTS.read(0, WEIGHTS.size))
    async with session.get(url, headers={**headers, "Range": "bytes=199990-"}) as answer:
        assert (answer.status, await answer.read()) == (206, whole[199_990:])
    url, headers = signed(store, "/models/llama/config.json", method="HEAD")
    async with session.head(url, headers=headers) as answer:
        assert (answer.status, answer.headers["Content-Length"]) == (200, "2")
    assert [(each.route, each.path, each.sent) for each in store.requests] == [
        ("file", "llama/a b+ü.txt", 3),
        ("file", "llama/model.gguf", 10),
        ("head", "llama/config.json", 0),
    ]


async def test_a_checksum_where_it_is_asked_for_and_known(session: aiohttp.ClientSession) -> None:
    async with object_store({"models": {"a": "1"}}, public=frozenset({"models"})) as store:
        store.put("models", "b", "2", checksum=False, parts=3)
        asking = {"x-amz-checksum-mode": "ENABLED"}
        async with session.get(f"{store.endpoint}/models/a", headers=asking) as answer:
            digest = base64.b64encode(hashlib.sha256(b"1").digest()).decode()
            assert answer.headers["x-amz-checksum-sha256"] == digest
        async with session.get(f"{store.endpoint}/models/b", headers=asking) as answer:
            assert "x-amz-checksum-sha256" not in answer.headers
            assert answer.headers["ETag"].endswith('-3"')


async def test_an_object_that_changes_meanwhile(store: ObjectStore, session: aiohttp.ClientSession) -> None:
    url, headers = signed(store, "/models/llama/config.json")
    async with session.get(url, headers=headers) as answer:
        etag = answer.headers["ETag"]
    store.put("models", "llama/config.json", "[]")
    async with session.get(url, headers={**headers, "If-Match": etag}) as answer:
        assert await code_of(answer) == (412, "PreconditionFailed")
    async with session.get(url, headers=headers) as answer:
        assert (await answer.text(), answer.headers["ETag"] == etag) == ("[]", False)


@pytest.mark.parametrize(
    ("path", "wrong", "status", "code"),
    [
        ("/none/a", {}, 404, "NoSuchBucket"),
        ("/models/none", {}, 404, "NoSuchKey"),
        ("/closed/a", {}, 403, "AccessDenied"),
        ("/models/other", {"secret": "wrong"}, 403, "SignatureDoesNotMatch"),
        ("/models/other", {"key": "AKIANONE"}, 403, "InvalidAccessKeyId"),
        ("/models/other", {"moment": datetime(2020, 1, 1, tzinfo=UTC)}, 403, "RequestTimeTooSkewed"),
    ],
)
async def test_refusals(
    store: ObjectStore, session: aiohttp.ClientSession, path: str, wrong: dict[str, object], status: int, code: str
) -> None:
    url, headers = signed(store, path, **wrong)  # type: ignore[arg-type]
    async with session.get(url, headers=headers) as answer:
        assert await code_of(answer) == (status, code)


async def test_without_a_key_only_a_public_bucket_can_be_read(
    store: ObjectStore, session: aiohttp.ClientSession
) -> None:
    async with session.get(f"{store.endpoint}/open/a") as answer:
        assert await answer.text() == "1"
    async with session.get(f"{store.endpoint}/models/other") as answer:
        assert await code_of(answer) == (403, "AccessDenied")


async def test_faults(store: ObjectStore, session: aiohttp.ClientSession) -> None:
    url, headers = signed(store, "/models/llama/model.gguf")
    store.inject(HttpError(status=503, retry_after="3"))
    async with session.get(url, headers=headers) as answer:
        assert (await code_of(answer), answer.headers["Retry-After"]) == ((503, "SlowDown"), "3")
    store.inject(WrongByte(at=7), path="llama/model.gguf")
    async with session.get(url, headers=headers) as answer:
        assert hashlib.sha256(await answer.read()).hexdigest() != WEIGHTS.sha256
    store.inject(CutBody(after=1000))
    async with session.get(url, headers=headers) as answer:
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()
    store.inject(LyingSize(by=1), path="other")
    url, headers = signed(store, "/models", {"list-type": "2", "prefix": "other"})
    async with session.get(url, headers=headers) as answer:
        assert "<Size>2</Size>" in await answer.text()
