"""A local S3 for downloads in tests and the sandbox: ListObjectsV2, GetObject and HeadObject, signed by version 4.

    async with object_store({"models": {"llama/config.json": "{}", "llama/model.gguf": Pattern(2**20)}}) as store:
        environment = store.environment  # AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION
        store.put("models", "llama/config.json", '{"changed": true}')

Buckets are parts of the path, or the first label of the host (``models.localhost``).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import count
from typing import TypeAlias
from urllib.parse import quote, unquote
from xml.sax.saxutils import escape

from aiohttp import web

from airunway_testing.modelhub.serving import (
    Content,
    Fault,
    HttpError,
    Recorder,
    SeenRequest,
    content_of,
    listening,
    respond_with_content,
    respond_with_fault,
)

Buckets: TypeAlias = Mapping[str, Mapping[str, bytes | str | Content]]
"""Contents by key, by name of the bucket."""

_PAGE = 1000
_EMPTY = hashlib.sha256(b"").hexdigest()
_SKEW = timedelta(minutes=15)
_STATUSES = {
    "NoSuchBucket": 404,
    "NoSuchKey": 404,
    "AccessDenied": 403,
    "InvalidAccessKeyId": 403,
    "SignatureDoesNotMatch": 403,
    "RequestTimeTooSkewed": 403,
    "AuthorizationHeaderMalformed": 400,
    "InvalidToken": 400,
    "InvalidArgument": 400,
    "PreconditionFailed": 412,
}


@dataclass(frozen=True, kw_only=True)
class _Object:
    content: Content
    checksum: bool
    """Whether S3 has the object's SHA-256 (the one who uploaded it asked for that)."""
    parts: int
    """Parts of a multipart upload; 0: uploaded at once."""
    modified: datetime

    @cached_property
    def etag(self) -> str:
        """The MD5 of what was uploaded at once; of a multipart upload the MD5 of its parts' MD5, and their number."""
        digest = hashlib.md5(usedforsecurity=False)
        for piece in self.content.read(0, self.content.size):
            digest.update(piece)
        if self.parts:
            return f'"{hashlib.md5(digest.digest(), usedforsecurity=False).hexdigest()}-{self.parts}"'
        return f'"{digest.hexdigest()}"'


class _ErrorAnswer(Exception):
    def __init__(self, code: str, message: str, *, status: int = 0, retry_after: str = "") -> None:
        super().__init__(message)
        self.code, self.status = code, status or _STATUSES[code]
        self.headers = {"Retry-After": retry_after} if retry_after else {}

    def response(self, request: web.Request) -> web.Response:
        resource = f"<Resource>{escape(request.path)}</Resource><RequestId>4442587FB7D0A2F9</RequestId>"
        text = f"{_XML}<Error><Code>{self.code}</Code><Message>{escape(str(self))}</Message>{resource}</Error>"
        body = "" if request.method == "HEAD" else text  # an answer to HEAD has no body
        return web.Response(status=self.status, text=body, content_type="application/xml", headers=self.headers)


_XML = '<?xml version="1.0" encoding="UTF-8"?>\n'


class ObjectStore(Recorder):
    """The running S3. `requests` are what it was asked, with keys as paths; `inject` switches faults on."""

    endpoint: str
    """URL of the store: the value of AWS_ENDPOINT_URL."""
    region = "eu-west-1"
    access_key = "AKIAIOSFODNN7EXAMPLE"
    secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"  # the one of Amazon's documentation

    def __init__(
        self, buckets: Buckets, *, public: frozenset[str], denied: frozenset[str], session_token: str, page_size: int
    ) -> None:
        super().__init__()
        self._public, self._denied, self._page_size = public, denied, page_size
        self.session_token = session_token
        self._versions = count()
        self._buckets: dict[str, dict[str, _Object]] = {}
        for bucket, objects in buckets.items():
            self._buckets[bucket] = {}
            for key, data in objects.items():
                self.put(bucket, key, data)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of a client that has access."""
        token = {"AWS_SESSION_TOKEN": self.session_token} if self.session_token else {}
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": self.region,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            **token,
        }

    # ------------------------------------------------------------------------------------------- what a test changes

    def put(self, bucket: str, key: str, data: bytes | str | Content, *, checksum: bool = True, parts: int = 0) -> None:
        """Make or change an object; without `checksum` S3 has no SHA-256 of it, with `parts` its ETag is no MD5."""
        modified = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=next(self._versions))
        made = _Object(content=content_of(data), checksum=checksum, parts=parts, modified=modified)
        self._buckets[bucket][key] = made

    def delete(self, bucket: str, key: str) -> None:
        """Delete an object."""
        del self._buckets[bucket][key]

    # -------------------------------------------------------------------------------------------------------- routes

    def application(self) -> web.Application:
        """The server."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        bucket, key = self._names(request)
        listing = not key and request.method == "GET"
        seen = SeenRequest(
            host="s3",
            route="list" if listing else "head" if request.method == "HEAD" else "file",
            method=request.method,
            path=request.query.get("prefix", "") if listing else key,
            target=request.raw_path,
            range=request.headers.get("Range", ""),
            authorized="Authorization" in request.headers,
        )
        self.requests.append(seen)
        fault = self.faults.take(seen.route, seen.path)
        if (played := await respond_with_fault(request, seen, fault)) is not None:
            return played
        try:
            objects = self._objects(request, bucket, fault)
            if listing:
                response = self._list(request, bucket, objects)
                seen.status = response.status
                return response
            found = _object(request, objects, key)
        except _ErrorAnswer as error:
            seen.status = error.status
            return error.response(request)
        headers = {"ETag": found.etag, "Last-Modified": found.modified.strftime("%a, %d %b %Y %H:%M:%S GMT")}
        if found.checksum and request.headers.get("x-amz-checksum-mode", "").upper() == "ENABLED" and not seen.range:
            headers["x-amz-checksum-sha256"] = base64.b64encode(bytes.fromhex(found.content.sha256)).decode()
            headers["x-amz-checksum-type"] = "FULL_OBJECT"
        if request.method == "HEAD":
            headers["Content-Length"] = str(found.content.size + self.faults.lie(key))
            seen.status = 200
            return web.Response(headers=headers)
        return await respond_with_content(
            request, seen, found.content, fault, headers=headers, swapped=lambda other: objects[other].content
        )

    def _names(self, request: web.Request) -> tuple[str, str]:
        """Bucket and key, from the path or from the host."""
        path = unquote(request.rel_url.raw_path).lstrip("/")
        host = request.host.partition(":")[0]
        if host.endswith(".localhost"):
            return host.removesuffix(".localhost"), path
        bucket, _, key = path.partition("/")
        return bucket, key

    def _objects(self, request: web.Request, bucket: str, fault: Fault | None) -> Mapping[str, _Object]:
        """The objects of a bucket that the client may read. Raises _ErrorAnswer, also the one that a fault asks for."""
        if isinstance(fault, HttpError):
            code = fault.code or ("SlowDown" if fault.status in (429, 503) else "InternalError")
            raise _ErrorAnswer(code, fault.message, status=fault.status, retry_after=fault.retry_after)
        self._authorize(request, bucket)
        if bucket not in self._buckets:
            raise _ErrorAnswer("NoSuchBucket", "The specified bucket does not exist")
        return self._buckets[bucket]

    def _list(self, request: web.Request, bucket: str, objects: Mapping[str, _Object]) -> web.Response:
        query = request.query
        if query.get("list-type") != "2":
            raise _ErrorAnswer("InvalidArgument", "only list-type=2 is played")
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        most = min(int(query.get("max-keys", self._page_size)), self._page_size)
        start = base64.b64decode(query["continuation-token"]).decode() if "continuation-token" in query else ""
        start = max(start, query.get("start-after", ""))
        encoded = query.get("encoding-type") == "url"
        encode = (lambda text: quote(text, safe="/")) if encoded else escape
        entries: dict[str, _Object | None] = {}
        for key in sorted(objects):
            if key.startswith(prefix):
                head, found, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
                if found:
                    entries[prefix + head + delimiter] = None
                else:
                    entries[key] = objects[key]
        rest = [name for name in entries if name > start]
        page = rest[:most]
        parts = []
        for name in page:
            entry = entries[name]
            if entry is None:
                parts.append(f"<CommonPrefixes><Prefix>{encode(name)}</Prefix></CommonPrefixes>")
                continue
            size = entry.content.size + self.faults.lie(name)
            algorithm = "<ChecksumAlgorithm>SHA256</ChecksumAlgorithm>" if entry.checksum else ""
            parts.append(
                f"<Contents><Key>{encode(name)}</Key><LastModified>{entry.modified:%Y-%m-%dT%H:%M:%S.000Z}</LastModified>"
                f"<ETag>{escape(entry.etag)}</ETag>{algorithm}<Size>{size}</Size><StorageClass>STANDARD</StorageClass>"
                "</Contents>"
            )
        more = len(rest) > most
        token = base64.b64encode(page[-1].encode()).decode() if more else ""
        text = (
            f'{_XML}<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>{bucket}</Name>'
            f"<Prefix>{encode(prefix)}</Prefix><KeyCount>{len(page)}</KeyCount><MaxKeys>{most}</MaxKeys>"
            f"<IsTruncated>{str(more).lower()}</IsTruncated>{'<EncodingType>url</EncodingType>' if encoded else ''}"
            f"{f'<NextContinuationToken>{token}</NextContinuationToken>' if more else ''}{''.join(parts)}"
            "</ListBucketResult>"
        )
        return web.Response(text=text, content_type="application/xml")

    # ------------------------------------------------------------------------------------------------- authorization

    def _authorize(self, request: web.Request, bucket: str) -> None:
        """Verify the signature (version 4, in the header). Raises _ErrorAnswer."""
        header = request.headers.get("Authorization", "")
        if not header:
            if bucket in self._public:
                return
            raise _ErrorAnswer("AccessDenied", "Access Denied")
        scheme, _, rest = header.partition(" ")
        fields = dict(part.strip().partition("=")[::2] for part in rest.split(","))
        if scheme != "AWS4-HMAC-SHA256" or fields.keys() != {"Credential", "SignedHeaders", "Signature"}:
            raise _ErrorAnswer("InvalidArgument", "Unsupported Authorization Type")
        key, _, scope = fields["Credential"].partition("/")
        if key != self.access_key:
            raise _ErrorAnswer(
                "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records."
            )
        if request.headers.get("x-amz-security-token", "") != self.session_token:
            raise _ErrorAnswer("InvalidToken", "The provided token is malformed or otherwise invalid.")
        moment = request.headers.get("x-amz-date", "")
        try:
            skew = datetime.now(UTC) - datetime.strptime(moment, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        except ValueError as error:
            raise _ErrorAnswer(
                "AccessDenied", "AWS authentication requires a valid Date or x-amz-date header"
            ) from error
        if abs(skew) > _SKEW:
            raise _ErrorAnswer(
                "RequestTimeTooSkewed", "The difference between the request time and the time is too large."
            )
        if scope != f"{moment[:8]}/{self.region}/s3/aws4_request":
            message = f"The authorization header is malformed; the region is wrong; expecting '{self.region}'"
            raise _ErrorAnswer("AuthorizationHeaderMalformed", message)
        signed = fields["SignedHeaders"].split(";")
        if "host" not in signed or any(name.startswith("x-amz-") and name not in signed for name in _lower(request)):
            raise _ErrorAnswer("AccessDenied", "There were headers present in the request which were not signed")
        if not hmac.compare_digest(self._signature(request, signed, moment, scope), fields["Signature"]):
            raise _ErrorAnswer(
                "SignatureDoesNotMatch",
                "The request signature we calculated does not match the signature you provided. Check your key.",
            )
        if bucket in self._denied:
            raise _ErrorAnswer("AccessDenied", "Access Denied")

    def _signature(self, request: web.Request, signed: list[str], moment: str, scope: str) -> str:
        path, _, query = request.raw_path.partition("?")
        pairs = sorted(
            (quote(unquote(name), safe="-_.~"), quote(unquote(value), safe="-_.~"))
            for name, _, value in (part.partition("=") for part in query.split("&") if part)
        )
        headers = _lower(request)
        canonical = "\n".join(
            [
                request.method,
                quote(unquote(path), safe="/-_.~"),
                "&".join(f"{name}={value}" for name, value in pairs),
                *(f"{name}:{' '.join(headers.get(name, '').split())}" for name in signed),
                "",
                ";".join(signed),
                headers.get("x-amz-content-sha256", _EMPTY),
            ]
        )
        text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        key = f"AWS4{self.secret_key}".encode()
        for part in scope.split("/"):
            key = hmac.new(key, part.encode(), "sha256").digest()
        return hmac.new(key, text.encode(), "sha256").hexdigest()


def _object(request: web.Request, objects: Mapping[str, _Object], key: str) -> _Object:
    found = objects.get(key)
    if found is None:
        raise _ErrorAnswer("NoSuchKey", "The specified key does not exist.")
    if request.headers.get("If-Match", found.etag) != found.etag:
        raise _ErrorAnswer("PreconditionFailed", "At least one of the pre-conditions you specified did not hold")
    return found


def _lower(request: web.Request) -> dict[str, str]:
    return {name.lower(): value for name, value in request.headers.items()}


@asynccontextmanager
async def object_store(
    buckets: Buckets,
    *,
    public: frozenset[str] = frozenset(),
    denied: frozenset[str] = frozenset(),
    session_token: str = "",
    page_size: int = _PAGE,
    port: int = 0,
) -> AsyncIterator[ObjectStore]:
    """An S3 with these buckets on a free port of this machine (or on `port`) while the context lasts.

    `public` buckets can be read without a key, `denied` ones not even with it. With a `session_token` requests without
    it are refused.
    """
    store = ObjectStore(buckets, public=public, denied=denied, session_token=session_token, page_size=page_size)
    async with listening([store.application()], host="127.0.0.1", ports=[port]) as (found,):
        store.endpoint = f"http://127.0.0.1:{found}"
        yield store
