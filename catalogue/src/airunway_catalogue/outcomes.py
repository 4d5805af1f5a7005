"""Reads what a discovery Job came to: the profile that its image reported, or why there is none. Pure and total.

Example: the Job is Complete, its pod's three containers ended with 0, and their messages together are the report
``{"profile": {"metadata": {"precision": "fp8"}}, "models": [{"name": "org/m", "source": "hf://org/m"}]}``. A list
counts by its first entry. Anything else is no report, and the reason says why.
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
from airunway.artifacts.jobs import end_of, finished
from airunway.redaction import bounded, redacted, tail
from airunway.resource import Resource, annotations_of, dig, list_at, text_at
from airunway_catalogue.discovery import MAX_MESSAGE, MAX_OUTPUT, NO_SHELL, PACKED, PARTS, PROBLEM, SHELL
from airunway_catalogue.names import DISCOVERY, WHY_NO_ENTRYPOINT

_NOT_STARTED = ("StartError", "ContainerCannotRun", "RunContainerError")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a Job came to."""

    report: Report | None = None
    """What the image reported; None: the try failed."""
    reason: str = ""
    """Why it failed: a reason of the registry."""
    message: str = ""
    """Why it failed, as a sentence."""
    shell: bool = True
    """False: the image has no shell to run the script with."""


def has_ended(job: Resource, pod: Resource | None) -> bool:
    """Whether the pod shows what the end of its Job says. The watch of pods may lag behind that of Jobs."""
    ends = _ends(pod)
    return bool(_failing(ends)) if finished(job) == "Failed" else all(part in ends for part in _parts(job))


def outcome_of(job: Resource, pod: Resource | None) -> Outcome:
    """What a Job came to that has ended."""
    ends, note = _ends(pod), _note(job)
    if finished(job) != "Complete" or _failing(ends) or DISCOVERY not in ends:
        failed = _failure(job, ends)
        return Outcome(reason=failed.reason, message=failed.message + note, shell=failed.shell)
    try:
        report = read_report("".join(text_at(ends[part].get("message")) for part in PARTS if part in ends))
    except Unreadable as unreadable:
        return Outcome(reason="JobFailed", message=f"{unreadable}{note}")
    return Outcome(report=report)


def _parts(job: Resource) -> list[str]:
    """The names of the Job's containers."""
    spec = dig(job, "spec", "template", "spec")
    return [text_at(each, "name") for list_ in ("initContainers", "containers") for each in list_at(spec, list_)]


def _ends(pod: Resource | None) -> dict[str, Resource]:
    """How the containers of a pod ended, by name."""
    ends: dict[str, Resource] = {}
    for list_ in ("initContainerStatuses", "containerStatuses"):
        for status in list_at(pod, "status", list_):
            state = dig(status, "state", "terminated")
            if isinstance(state, dict):
                ends[text_at(status, "name")] = state
    return ends


def _failing(ends: dict[str, Resource]) -> str:
    """The first container that failed; empty if none did."""
    return next((part for part in PARTS if part in ends and ends[part].get("exitCode") != 0), "")


def _failure(job: Resource, ends: dict[str, Resource]) -> Outcome:
    """The outcome of a Job of which a container failed, or never ran."""
    part = _failing(ends)
    if not part:
        why = text_at(end_of(job), "message") if finished(job) == "Failed" else ""
        return Outcome(reason="JobFailed", message=f"the Job ended without a result{': ' + why if why else ''}")
    terminated = ends[part]
    if part != DISCOVERY:
        text = f"the container {part}, which reports a part of the output, ended with {_ending(terminated)}"
        return Outcome(reason="JobFailed", message=text)
    if terminated.get("reason") == "OOMKilled":
        text = "the image needed more memory than the 4Gi that a discovery has"
        return Outcome(reason="PodOOMKilled", message=text)
    if terminated.get("reason") in _NOT_STARTED and SHELL in text_at(terminated.get("message")):
        text = f"{NO_SHELL}, with which what it prints is read: it is asked without it next time, and must write its "
        text += "report to the file of AIRUNWAY_TERMINATION_LOG"
        return Outcome(reason="JobFailed", message=text, shell=False)
    return Outcome(reason="JobFailed", message=f"the image ended with {_ending(terminated)}")


def _ending(terminated: Resource) -> str:
    message = tail(text_at(terminated.get("message")).strip(), 400)
    return f"exit code {terminated.get('exitCode')}{': ' + message if message else ''}"


def _note(job: Resource) -> str:
    """What else to say of a failed try whose image ran without the script; empty if it ran with it."""
    why = text_at(annotations_of(job).get(WHY_NO_ENTRYPOINT))
    if not why:
        return ""
    if why == NO_SHELL:
        return f"; {NO_SHELL}: it must write its report to the file of AIRUNWAY_TERMINATION_LOG"
    return (
        f"; what the image prints was not read, because its entrypoint is not known ({bounded(why, 200)}): name it in "
        "spec.discovery.command"
    )


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
