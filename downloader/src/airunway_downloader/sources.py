"""What a source of files can do, and which one a URI names."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from airunway_downloader.client import Client, Response
from airunway_downloader.failures import Failure
from airunway_downloader.files import Filters, Listing, RemoteFile, Uri
from airunway_downloader.hub import Hub
from airunway_downloader.s3 import Bucket


class Source(Protocol):
    """Files to list and fetch. Everything raises Failure."""

    def listing(self) -> Listing:
        """The files to fetch, as they are now."""

    def check_access(self, listing: Listing) -> None:
        """Raises Failure where the files are listed and may not be fetched."""

    def described(self, file: RemoteFile) -> RemoteFile:
        """The file with the digests that the source has."""

    def open(self, file: RemoteFile, *, offset: int) -> AbstractContextManager[Response]:
        """The file from an offset on: an answer with status 200, 206 or 416."""

    def unchanged(self, listing: Listing) -> bool:
        """Whether the source still has the same files."""


def source_of(uri: Uri, *, revision: str, filters: Filters, client: Client, environment: Mapping[str, str]) -> Source:
    """The source that a URI names. Raises Failure."""
    if uri.scheme == "hf":
        return Hub(uri, revision=revision, filters=filters, client=client, environment=environment)
    if revision:
        raise Failure("InvalidSpec", f"{uri}: S3 has no revisions; leave revision empty")
    return Bucket(uri, filters=filters, client=client, environment=environment)
