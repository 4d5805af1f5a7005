"""S3, or a store with its API, as a source of files."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from urllib.parse import quote, urlencode, urlsplit

from airunway_downloader.client import Client, Response, failure_of_status
from airunway_downloader.failures import Failure, SourceChanged
from airunway_downloader.files import Budget, Filters, Listing, RemoteFile, Uri, chosen, in_path, prefix_of

_MOST_PAGES = 2000
_NO_BODY = hashlib.sha256(b"").hexdigest()
_REGION = re.compile(r"[a-z0-9-]{2,32}")
_WRONG_KEYS = {
    *("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "TokenRefreshRequired"),
    *("InvalidSecurity", "AuthorizationHeaderMalformed"),
}
_SLOW_DOWN = {"SlowDown", "Throttling", "TooManyRequests", "RequestLimitExceeded"}


@dataclass(frozen=True, kw_only=True)
class Keys:
    """Credentials of S3."""

    access: str
    secret: str
    session: str = ""


def signed(
    method: str, url: str, headers: Mapping[str, str], *, keys: Keys, region: str, now: datetime
) -> dict[str, str]:
    """The headers that sign a request without a body (AWS Signature Version 4), besides those given."""
    parts = urlsplit(url)
    moment = now.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    added = {"x-amz-content-sha256": _NO_BODY, "x-amz-date": moment}
    if keys.session:
        added["x-amz-security-token"] = keys.session
    host = parts.netloc.rpartition("@")[2].removesuffix(":443" if parts.scheme == "https" else ":80")
    every = {"host": host, **{name.lower(): value.strip() for name, value in (*headers.items(), *added.items())}}
    names = ";".join(sorted(every))
    lines = "".join(f"{name}:{every[name]}\n" for name in sorted(every))
    query = "&".join(sorted(parts.query.split("&"))) if parts.query else ""
    canonical = "\n".join([method, parts.path or "/", query, lines, names, _NO_BODY])
    scope = f"{moment[:8]}/{region}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{keys.secret}".encode()
    for word in scope.split("/"):
        key = hmac.digest(key, word.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    authorization = f"AWS4-HMAC-SHA256 Credential={keys.access}/{scope},SignedHeaders={names},Signature={signature}"
    return {**added, "Authorization": authorization}


class Bucket:
    """The objects of a bucket below a prefix, which is a folder or one object."""

    def __init__(
        self,
        uri: Uri,
        *,
        filters: Filters,
        client: Client,
        environment: Mapping[str, str],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._uri, self._filters, self._client, self._now = uri, filters, client, now
        self._region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1"
        self._endpoint = environment.get("AWS_ENDPOINT_URL", "").rstrip("/")
        access, secret = (environment.get(f"AWS_{name}", "").strip() for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"))
        session = environment.get("AWS_SESSION_TOKEN", "").strip()
        # Without keys requests are anonymous, which public buckets allow.
        self._keys = Keys(access=access, secret=secret, session=session) if access and secret else None

    def listing(self) -> Listing:
        """The objects as they are now. Raises Failure."""
        files = chosen(self._objects(), self._uri, self._filters)
        return Listing(revision="", files=files)

    def check_access(self, listing: Listing) -> None:
        """Whether an object may be read: the right to list is another one. Raises Failure."""
        self.described(listing.files[0])

    def described(self, file: RemoteFile) -> RemoteFile:
        """The file with the checksums that S3 has of it. Raises Failure."""
        headers = {"If-Match": file.etag, "x-amz-checksum-mode": "ENABLED"}
        with self._ask("HEAD", _path(file.key), headers=headers) as response:
            if response.status != 200:
                raise self._failure(response, file.key)
            sha256, sha1, crc32 = (_checksum(response.headers, name) for name in ("sha256", "sha1", "crc32"))
            return replace(file, sha256=sha256, sha1=sha1, crc32=crc32)

    @contextmanager
    def open(self, file: RemoteFile, *, offset: int) -> Iterator[Response]:
        """The file from an offset on, if it is still the one of the list. Raises Failure."""
        headers = {"If-Match": file.etag, **({"Range": f"bytes={offset}-"} if offset else {})}
        with self._ask("GET", _path(file.key), headers=headers) as response:
            if response.status not in (200, 206, 416):
                raise self._failure(response, file.key)
            yield response

    def unchanged(self, listing: Listing) -> bool:
        """Whether the list is still the same. Raises Failure."""
        return self.listing().files == listing.files

    def _objects(self) -> list[RemoteFile]:
        found: list[RemoteFile] = []
        token, budget = "", Budget(self._uri)
        for _ in range(_MOST_PAGES):
            query = {"list-type": "2", "prefix": prefix_of(self._uri.path)} | (
                {"continuation-token": token} if token else {}
            )
            with self._ask("GET", "", query=query) as response:
                if response.status != 200:
                    raise self._failure(response, "")
                page = _xml(response)
            new = [self._file(each) for each in page.iter("Contents")]
            budget.take(entries=len(new), size=response.read)
            found += new
            token = page.findtext("NextContinuationToken") or ""
            if page.findtext("IsTruncated") != "true":
                break
            if not token:
                raise Failure("ServerError", f"{response.host} ends a list of objects in the middle")
        else:
            raise Failure("InvalidSpec", f"{self._uri} has more than {_MOST_PAGES} pages of objects")
        folders = (each for each in found if not (each.key.endswith("/") and each.size == 0))
        return self._relative([replace(each, path=each.key) for each in folders])

    def _relative(self, files: list[RemoteFile]) -> list[RemoteFile]:
        """Paths below the prefix; one object keeps its name."""
        path, found = self._uri.path, in_path(files, self._uri.path)
        one = any(each.key == path for each in found)
        folder = path.rpartition("/")[0] if one else path
        return [replace(each, path=each.key[len(folder) + 1 :] if folder else each.key) for each in found]

    def _file(self, element: ET.Element) -> RemoteFile:
        key, size, etag = (element.findtext(name) for name in ("Key", "Size", "ETag"))
        if not key or size is None or not size.isdecimal() or len(size) > 18 or not etag:
            raise Failure("ServerError", f"{self._uri}: the list states no size or version of {key!r}")
        return RemoteFile(path=key, key=key, size=int(size), etag=etag)

    @contextmanager
    def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[Response]:
        for again in (True, False):
            url = self._address(path) + (f"?{urlencode(sorted(query.items()), quote_via=quote)}" if query else "")
            given = dict(headers or {})
            signature = (
                signed(method, url, given, keys=self._keys, region=self._region, now=self._now()) if self._keys else {}
            )
            # A signature is for one host: a redirect of S3 is an error that names the region.
            with self._client.request(method, url, headers=given, credentials=signature, follow=False) as response:
                region = response.headers.get("x-amz-bucket-region", "")
                other = _REGION.fullmatch(region) and region != self._region
                if again and response.status in (301, 307, 400) and other and not self._endpoint:
                    self._region = region
                    continue
                yield response
                return

    def _address(self, path: str) -> str:
        bucket = self._uri.repository
        if self._endpoint:
            return f"{self._endpoint}/{bucket}/{path}"
        if "." in bucket:  # certificates are for one label
            return f"https://s3.{self._region}.amazonaws.com/{bucket}/{path}"
        return f"https://{bucket}.s3.{self._region}.amazonaws.com/{path}"

    def _failure(self, response: Response, key: str) -> Failure:
        code = message = ""
        body = response.body()
        if body:  # a HEAD has none
            try:
                error = _parsed(body)
                code, message = error.findtext("Code") or "", error.findtext("Message") or ""
            except ET.ParseError:
                message = "no error of S3"
        status, what = response.status, f"s3://{self._uri.repository}/{key}" if key else str(self._uri)
        said = " ".join(word for word in (code, message) if word) or str(status)
        if status == 412 or (status == 404 and key):  # it was in the list
            return SourceChanged(f"{what} changed while it was fetched")
        if status == 404:
            return Failure("SourceNotFound", f"{what} does not exist at {response.host}: {said}")
        if status == 429 or code in _SLOW_DOWN:
            return Failure(
                "RateLimited",
                f"{response.host} limits requests: {said}",
                retry_after=failure_of_status(response).retry_after,
            )
        if code in _WRONG_KEYS or status == 401:
            return Failure("Unauthorized", f"{response.host} refuses the keys of AWS_ACCESS_KEY_ID: {said}")
        if status == 403 and self._keys is None:
            return Failure("Unauthorized", f"{response.host} wants keys for {what}: set AWS_ACCESS_KEY_ID. {said}")
        if status == 403:
            return Failure("Forbidden", f"the keys may not read {what}: {said}")
        if status == 400:
            return Failure("InvalidSpec", f"{response.host} refuses the request for {what}: {said}")
        return failure_of_status(response)


def _path(key: str) -> str:
    return quote(key, safe="/-_.~")


def _xml(response: Response) -> ET.Element:
    try:
        return _parsed(response.body())
    except ET.ParseError:
        raise Failure("ServerError", f"{response.host} sent an answer that is not XML") from None


def _parsed(body: bytes) -> ET.Element:
    """The document without its namespaces. Raises ParseError."""
    if b"<!DOCTYPE" in body or b"<!ENTITY" in body:  # S3 has none, and entities can grow
        raise ET.ParseError("a document type")
    root = ET.fromstring(body)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root


def _checksum(headers: Mapping[str, str], name: str) -> str:
    """A checksum of the whole object in hex; empty where S3 has none, or one of its parts' checksums."""
    text = headers.get(f"x-amz-checksum-{name}", "")
    if headers.get("x-amz-checksum-type", "FULL_OBJECT") != "FULL_OBJECT" or "-" in text:
        return ""
    try:
        return base64.b64decode(text, validate=True).hex()
    except ValueError:
        return ""
