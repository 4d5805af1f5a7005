"""Reads what an image reported in its dry run: a profile, and where the weights are. Pure and total.

Example: ``{"profile": {"metadata": {"precision": "fp8"}}, "models": [{"name": "org/m", "source": "hf://org/m"}]}``. A
list counts by its first entry. Anything else is no report, and the reason says why.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from json import JSONDecodeError

import orjson

from airunway.api.modeltemplate import MAX_SOURCES
from airunway.redaction import bounded, redacted
from airunway.resource import Resource, dig
from airunway_catalogue.report_script import MAX_MESSAGE, MAX_OUTPUT, PACKED, PARTS, PROBLEM

__all__ = ["MAX_DEPTH", "MAX_PROFILE", "Report", "Unreadable", "read_report"]

MAX_PROFILE = 64 * 2**10
"""Bytes of a profile as JSON: it is part of the template, and etcd stores at most 1.5 MiB."""

MAX_DEPTH = 16
"""Levels of a profile."""

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
    """The report in the termination messages of a pod, which are joined in their order. Raises Unreadable."""
    if not isinstance(text, str) or not text.strip():
        raise Unreadable(
            "the image ended without an output: it must print its report, or write it to the file of "
            "AIRUNWAY_TERMINATION_LOG"
        )
    if text.startswith(PROBLEM):
        raise Unreadable(_problem(text.removeprefix(PROBLEM).split()))
    if text.startswith(PACKED):
        text = _unpacked(text.removeprefix(PACKED))
    size = len(text.encode(errors="replace"))
    if size > MAX_OUTPUT:
        raise Unreadable(f"the output has {size} bytes; at most {MAX_OUTPUT} are read")
    found = _found(text)
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
    if (length := len(orjson.dumps(profile))) > MAX_PROFILE:
        raise Unreadable(f"the profile has {length} bytes as JSON; at most {MAX_PROFILE} are stored")
    return Report(profile=profile, sources=tuple(_sources(found)))


# ----------------------------------------------------------------------------------------------- the script's messages


def _problem(words: list[str]) -> str:
    """What the script found, as a sentence; the words may be anything that an image wrote."""
    kind, *details = (*words[:4], "")
    numbers = [each for each in details if each.isdecimal() and each.isascii() and len(each) <= 12]
    most = len(PARTS) * MAX_MESSAGE
    if kind == "endless":
        return f"the image printed more than {MAX_OUTPUT} bytes, and was ended: it must print its report and end"
    if kind == "large" and len(numbers) == 2:
        return (
            f"the report has {numbers[0]} bytes, and {numbers[1]} when it is compressed; at most {most} can be read: "
            "let the image print one profile (spec.discovery.args), or name the weights in spec.modelSources"
        )
    if kind == "tool" and details[0].isalnum() and numbers:
        return (
            f"the report has {numbers[0]} bytes, and the image has no {details[0][:16]}: without it at most "
            f"{MAX_MESSAGE} bytes can be read"
        )
    if kind == "tool" and details[0].isalnum():
        return (
            f"the image has no {details[0][:16]}, with which its report is read: add it, or let the image write its "
            "report to the file of AIRUNWAY_TERMINATION_LOG"
        )
    return f"the output is no report: it begins with {_begin(PROBLEM + ' '.join(words[:4]))}"


def _unpacked(text: str) -> str:
    """The text that the script compressed, of which no more is unpacked than may be read."""
    inflating = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        found = inflating.decompress(base64.b64decode(text, validate=True), MAX_OUTPUT + 1)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise Unreadable(f"{_CUT} ({len(text)} bytes arrived)") from error
    if len(found) > MAX_OUTPUT:
        raise Unreadable(f"the output has more than {MAX_OUTPUT} bytes, which is the most that is read")
    if not inflating.eof:
        raise Unreadable(f"{_CUT} ({len(text)} bytes arrived)")
    return found.decode(errors="replace")


_CUT = (
    "the compressed output is damaged or was cut: a pod has 12 KiB for its messages, and containers that are injected "
    "into it take their part"
)


# ------------------------------------------------------------------------------------------------ the report in a text


def _found(text: str) -> object:
    """The JSON value that is the text; else the last one on lines of its own that has a profile, else the last one.
    Raises Unreadable.
    """
    try:
        return orjson.loads(text)  # refuses NaN, and nesting beyond its limit
    except (orjson.JSONDecodeError, RecursionError) as error:
        last: object = None
        for found in _values(text):
            if _has_profile(found) or not _has_profile(last):
                last = found
        if last is None:
            cut = " (it may have been cut at 4 KiB)" if len(text.encode(errors="replace")) >= MAX_MESSAGE - 4 else ""
            raise Unreadable(f"the output is no JSON{cut}: it begins with {_begin(text)}") from error
        return last


def _values(text: str) -> Iterator[object]:
    """The objects and lists that begin at the beginning of a line, in their order. Takes time linear in the text."""
    decoder, at, work = json.JSONDecoder(), 0, _WORK * len(text)
    while work > 0 and (start := _START.search(text, at)) is not None:
        begin, at = start.end() - 1, start.end()
        try:
            _, end = decoder.raw_decode(text, begin)
        except JSONDecodeError as error:
            work -= error.pos - begin + 1 + error.pos // 256  # the error counts the lines before it
            continue
        except (RecursionError, ValueError):  # nested too deep, or a number of too many digits
            work -= len(text) - begin
            continue
        work -= end - begin
        with suppress(orjson.JSONDecodeError):  # what the stricter reader refuses, such as NaN
            yield orjson.loads(text[begin:end])
            at = end


_START = re.compile(r"^[{\[]", re.MULTILINE)

_WORK = 8
"""How many times a text is read at most: values that end nowhere would take time quadratic in their number."""


def _has_profile(value: object) -> bool:
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(first, dict) and "profile" in first


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
    """The size as a quantity: ``size``, or ``size_gb`` as a number of GiB; empty if neither is there."""
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
    return str(max(1, math.ceil(gigabytes * 2**30)))
