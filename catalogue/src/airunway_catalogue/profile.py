"""Reads what an image reported in its dry run: a profile, and where the weights are. Pure and total.

Example: ``{"profile": {"metadata": {"precision": "fp8"}}, "models": [{"name": "org/m", "source": "hf://org/m"}]}``. A
list counts by its first entry. Anything else is no report, and the reason says why.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

import orjson

from airunway.api.modeltemplate import MAX_SOURCES
from airunway.redaction import bounded, redacted
from airunway.resource import Resource, dig

__all__ = ["MAX_DEPTH", "MAX_OUTPUT", "Report", "Unreadable", "read_report"]

MAX_OUTPUT = 4096
"""Bytes of a termination message."""

MAX_DEPTH = 16
"""Levels of a profile."""

_GB = 10**9
_URI = re.compile(r"hf://[^/\s]+/[^/\s]+(/[^/\s]+)*|s3://[^/\s]+(/[^/\s]+)*/?")
_SIZE = re.compile(r"[0-9]{1,6}(\.[0-9]{1,3})?([KMGT]i?)?", re.ASCII)
_LONGEST_URI, _LONGEST_ID = 1024, 512


@dataclass(frozen=True, kw_only=True)
class Report:
    """What an image reported."""

    profile: Resource = field(hash=False)
    """``status.profile``."""
    sources: tuple[Resource, ...] = field(default=(), hash=False)
    """``status.modelSources``."""


class Unreadable(ValueError):
    """Why an output is no report, as a sentence."""


def read_report(text: object) -> Report:
    """The report in a termination message. Raises Unreadable."""
    if not isinstance(text, str) or not text.strip():
        raise Unreadable(
            "the image ended without an output: it must write its JSON to the file of AIRUNWAY_TERMINATION_LOG"
        )
    size = len(text.encode(errors="replace"))
    if size > MAX_OUTPUT:
        raise Unreadable(f"the output has {size} bytes; at most {MAX_OUTPUT} are read")
    found = _decoded(text)
    if isinstance(found, list):
        if not found:
            raise Unreadable("the output is an empty list: the image has no profile for this model")
        found = found[0]
    if not isinstance(found, dict):
        raise Unreadable(f"the output is no JSON object: it begins with {_begin(text)}")
    profile = found.get("profile")
    if not isinstance(profile, dict):
        raise Unreadable("the output has no object 'profile'")
    if _depth(profile) > MAX_DEPTH:
        raise Unreadable(f"the profile is nested more than {MAX_DEPTH} levels deep")
    return Report(profile=profile, sources=tuple(_sources(found)))


def _decoded(text: str) -> object:
    try:
        return orjson.loads(text)  # refuses NaN, and nesting beyond its limit
    except (orjson.JSONDecodeError, RecursionError) as error:
        cut = " (it may have been cut at 4 KiB)" if len(text.encode(errors="replace")) >= MAX_OUTPUT - 4 else ""
        raise Unreadable(f"the output is no JSON{cut}: it begins with {_begin(text)}") from error


def _begin(text: str) -> str:
    return repr(bounded(redacted(text.strip()[:80]), 120))


def _depth(value: object) -> int:
    """The levels of a value; without recursion."""
    deepest, left = 0, [(value, 1)]
    while left:
        each, depth = left.pop()
        deepest = max(deepest, depth)
        if isinstance(each, dict):
            left.extend((inner, depth + 1) for inner in each.values())
        elif isinstance(each, list):
            left.extend((inner, depth + 1) for inner in each)
    return deepest


def _sources(report: Resource) -> list[Resource]:
    """Where the weights are, by ``modelSources`` or ``models``. Raises Unreadable for an entry that is none."""
    listed = report.get("modelSources")
    listed = report.get("models") if listed is None else listed
    if listed is None:
        return []
    if not isinstance(listed, list):
        raise Unreadable("modelSources of the output is no list")
    if len(listed) > MAX_SOURCES:
        raise Unreadable(f"the output has {len(listed)} model sources; at most {MAX_SOURCES} are possible")
    return [_source(entry, position) for position, entry in enumerate(listed)]


def _source(entry: object, position: int) -> Resource:
    where = f"model source {position} of the output"
    uri = dig(entry, "uri") or dig(entry, "source")
    if not isinstance(uri, str) or len(uri) > _LONGEST_URI or not _URI.fullmatch(uri) or _climbs(uri):
        raise Unreadable(f"{where} has no uri hf://owner/name or s3://bucket/prefix: {_begin(str(uri))}")
    found: Resource = {"uri": uri}
    name = dig(entry, "modelId") or dig(entry, "name")
    if name is not None:
        if not isinstance(name, str) or not name or len(name) > _LONGEST_ID or not name.isprintable():
            raise Unreadable(f"{where} has a model id that cannot be: {_begin(str(name))}")
        found["modelId"] = name
    size = _size(entry, where)
    if size:
        found["size"] = size
    return found


def _climbs(uri: str) -> bool:
    return not uri.isprintable() or any(part in (".", "..") for part in uri.partition("://")[2].split("/"))


def _size(entry: object, where: str) -> str:
    """The size as a quantity: ``size``, or ``size_gb`` as a number; empty if neither is there."""
    given, gigabytes = dig(entry, "size"), dig(entry, "size_gb")
    if given is not None:
        if not isinstance(given, str) or not _SIZE.fullmatch(given):
            raise Unreadable(f"{where} has a size that is no quantity such as 140Gi: {_begin(str(given))}")
        return given
    if gigabytes is None:
        return ""
    number = isinstance(gigabytes, int | float) and not isinstance(gigabytes, bool)
    if not number or not math.isfinite(gigabytes) or not 0 < gigabytes < 1e6:
        raise Unreadable(f"{where} has a size_gb that is no number of gigabytes: {_begin(str(gigabytes))}")
    return str(max(1, math.ceil(gigabytes * _GB)))
