"""Reads releases from image tags, and looks up tables by release."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

__all__ = ["Version", "newest", "release_in", "tag_of", "version_in"]

T = TypeVar("T")
Version = tuple[int, int, int]
"""Major, minor and patch number."""

_RELEASE = re.compile(r"v?(\d{1,4})\.(\d{1,4})\.(\d{1,4})([-+.][0-9A-Za-z.+-]*)?", re.ASCII)


def tag_of(image: str) -> str:
    """The tag of an image, without its digest; empty if it has none."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[2]


def release_in(image: str) -> Version | None:
    """The release in an image's tag; None if there is none (``latest``, a digest alone, a branch)."""
    return version_in(tag_of(image))


def version_in(text: str) -> Version | None:
    """The release in a text such as ``2.56.0`` or ``v1.3.1-cu130``; None if the text is no release."""
    found = _RELEASE.fullmatch(text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def newest(table: Mapping[Version, T], release: Version) -> T:
    """The entry for the newest release in `table` that is not newer than `release`.

    An entry applies until the next release in the table. Raises LookupError for a release older than the table.
    """
    since = max((entry for entry in table if entry <= release), default=None)
    if since is None:
        raise LookupError(f"nothing is known of release {release}: the oldest is {min(table, default=None)}")
    return table[since]
