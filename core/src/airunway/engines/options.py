"""Checks a user's engine options against the recorded options of each engine release.

``tools/engine_options`` recorded them from the published packages; they are loaded on first use. Results are only
warnings, because an image may contain a custom build.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, lru_cache
from importlib import resources
from itertools import islice

import orjson

from airunway.api.modeldeployment import ModelDeployment
from airunway.engines.arguments import Remark
from airunway.engines.tables import VLLM_FRONTEND

Release = tuple[int, ...]
_FLAG = re.compile(r"--?[A-Za-z]")
_TAG = re.compile(r"v?(\d{1,4})\.(\d{1,4})\.(\d{1,4})(?![0-9.])", re.ASCII)
_RUNTIME = re.compile(r"-runtime$")
_LEVELS = ("-O",)
_MOST = 8
"""Maximum number of remarks on one deployment."""
_LONGEST = 128
"""Maximum number of characters of an option that are checked; the longest recorded option has fewer than 64."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program whose options are recorded."""

    name: str
    """Name of its record."""
    title: str
    """Its name in messages."""
    image: re.Pattern[str]
    """Pattern at the end of image repositories whose tags contain its release."""
    further: str = ""
    """The program to which it passes options that it does not know."""
    without: frozenset[str] = frozenset()
    """Options (without leading dashes) of `further` that it does not support."""
    levels: tuple[str, ...] = ()
    """Short options with the value attached, which are rewritten before parsing."""


PROGRAMS: Mapping[str, Program] = {
    program.name: program
    for program in (
        Program(name="vllm", title="vLLM", image=re.compile(r"(^|/)vllm(-openai)?$"), levels=_LEVELS),
        Program(name="sglang", title="SGLang", image=re.compile(r"(^|/)sglang$")),
        # It parses vLLM's AsyncEngineArgs, without the options that ``vllm serve`` adds.
        Program(
            name="dynamo.vllm",
            title="Dynamo's vLLM worker",
            image=_RUNTIME,
            further="vllm",
            without=VLLM_FRONTEND.protecting | VLLM_FRONTEND.others,
            levels=_LEVELS,
        ),
        Program(name="dynamo.sglang", title="Dynamo's SGLang worker", image=_RUNTIME, further="sglang"),
        Program(name="dynamo.trtllm", title="Dynamo's TensorRT-LLM worker", image=_RUNTIME),
    )
}


_TRUTHS = ("true", "false")


def program_of(engine: str, *, dialect: str = "", command: Sequence[str] = ()) -> str:
    """The program that parses the options: a module in `command`, else the engine's; empty if it has no record."""
    module = next((word for word in command if word in PROGRAMS), "")
    return module or (engine if engine in PROGRAMS and not dialect else "")


def release_of(program: str, image: str) -> Release | None:
    """The release in the tag of a program's own image; None for other images and for tags without a release."""
    repository, _, tag = image.partition("@")[0].rpartition(":")
    known = PROGRAMS.get(program)
    if known is None or known.image.search(repository) is None:
        return None
    found = _TAG.match(tag)
    return tuple(int(part) for part in found.groups()) if found else None


@dataclass(frozen=True, kw_only=True)
class _Record:
    """The recorded options of one program."""

    releases: tuple[str, ...]
    """Oldest first."""
    options: Mapping[str, tuple[tuple[str, int, int], ...]]
    """For each option, its kinds with the positions of first and last release."""

    def position(self, release: Release) -> int | None:
        """The position of the newest recorded release that is not newer; None if all are newer."""
        older = [i for i, name in enumerate(self.releases) if _numbers(name) <= release]
        return older[-1] if older else None


def option_warnings(
    deployment: ModelDeployment,
    program: str,
    release: Release | None,
    *,
    consumed: Collection[str] = (),
    keywords: bool = False,
) -> Iterator[Remark]:
    """Options in ``spec.engine.args`` and ``extraArgs`` that `program` does not have, or not in that form.

    `consumed` are keys of ``args`` that the provider uses itself. A `release` without a record is checked against the
    nearest older one; None reports only options that no recorded release has. A program without a record gets no
    warnings.
    `keywords`: the program takes keyword arguments instead of a command line, so that a switch in ``args`` may be
    ``true`` or ``false``.
    """
    known = PROGRAMS.get(program)
    if known is None:
        return
    truths = {f"spec.engine.args[{key}]" for key, value in deployment.spec.engine.args.items() if value in _TRUTHS}
    judged = (
        Remark(path=path, message=text)
        for path, option, given in _given(deployment, consumed)
        if (text := _judged(known, release, option, given=given, takes_truth=keywords and path in truths))
    )
    # The search for a similar name takes a millisecond, so long lists would block the event loop.
    yield from islice(judged, _MOST)


def unknown_options(deployment: ModelDeployment) -> Iterator[Remark]:
    """As `option_warnings`, before a provider is selected for the deployment.

    If the image is one of the programs' own, its tag gives the release. Otherwise it reports only options that no
    program for the engine has in any release. It reports nothing without an engine, or if the engine's own program has
    no record.
    """
    engine, image = deployment.spec.engine, deployment.spec.engine.image or deployment.spec.image or ""
    programs = [name for name in PROGRAMS if name.rpartition(".")[2] == engine.type]
    for name in programs:
        if (release := release_of(name, image)) is not None:
            yield from option_warnings(deployment, name, release)
            return
    if engine.type not in programs:
        return
    found = [{remark.path: remark for remark in option_warnings(deployment, name, None)} for name in programs]
    yield from (remark for path, remark in found[0].items() if all(path in others for others in found))


def _given(deployment: ModelDeployment, consumed: Collection[str]) -> Iterator[tuple[str, str, bool]]:
    """Field, option, and whether it has a value, for each option in the user's arguments."""
    settings = deployment.spec.engine
    for key, value in sorted(settings.args.items()):
        if key not in consumed:
            yield f"spec.engine.args[{key}]", f"--{key}", bool(value)
    words = list(settings.extra_args)
    for position, word in enumerate(words):
        if _FLAG.match(word):
            option, equals, _ = word.partition("=")
            follows = position + 1 < len(words) and not _FLAG.match(words[position + 1])
            yield f"spec.engine.extraArgs[{position}]", option[:_LONGEST], bool(equals) or follows


def _judged(program: Program, release: Release | None, option: str, *, given: bool, takes_truth: bool = False) -> str:
    """What is wrong with an option, or an empty string; `given` says whether it has a value.

    `takes_truth`: its value is true or false, and a switch may have that.
    """
    record = _record(program.name)
    position = None if release is None else record.position(release)
    if release is not None and position is None:
        return ""  # older than all recorded releases
    if any(option.startswith(short) for short in program.levels):
        return ""
    found = _found(program.name, position, option)
    if not found and program.further and whole_option(program.further, option) not in program.without:
        found = _found(program.further, None, option)
    if not found:
        return _unknown(program, record, position, release, option)
    if given and not takes_truth and found <= {"flag", "switch"}:
        off = f", or write --no-{option.lstrip('-')} to switch it off" if found == {"switch"} else ""
        return f"{option} of {program.title} takes no value: leave the value empty{off}"
    if not given and found == {"value"}:
        return f"{option} of {program.title} needs a value"
    return ""


def whole_option(program: str, option: str) -> str:
    """The full name, without leading dashes, of an abbreviated option; parsers accept any unambiguous prefix.

    All recorded releases count. An unknown or ambiguous option is returned unchanged.
    """
    options, name = _options(program, None) if program in PROGRAMS else {}, f"--{_spelled(option).lstrip('-')}"
    longer = [] if name in options else [each for each in options if each.startswith(name)]
    return (longer[0] if len(longer) == 1 else name).lstrip("-")


def _found(program: str, position: int | None, option: str) -> frozenset[str]:
    """The kinds of an option, or of the one option with that prefix. Position None: in any release."""
    options, name = _options(program, position), _spelled(option)
    if name in options:
        return options[name]
    # Parsers accept an unambiguous prefix.
    longer = [kinds for each, kinds in options.items() if name.startswith("--") and each.startswith(name)]
    return longer[0] if len(longer) == 1 else frozenset()


def _spelled(option: str) -> str:
    """An option as parsers compare it: ``-`` for ``_``, and without a key into a JSON value (``--a.b.c``)."""
    return option.replace("_", "-").partition(".")[0]


def _unknown(program: Program, record: _Record, position: int | None, release: Release | None, option: str) -> str:
    name = _spelled(option)
    if position is None:
        oldest, newest = record.releases[0], record.releases[-1]
        text = f"no release of {program.title} that is recorded ({oldest} to {newest}) has {option}"
    else:
        judged, asked = record.releases[position], ".".join(map(str, release or ()))
        text = f"{program.title} {judged} has no {option}"
        if _numbers(judged) != release:
            text += f" (the nearest release to {asked} that is recorded)"
        if spans := record.options.get(name):
            first, last = spans[0][1], spans[-1][2]
            text += f"; {record.releases[last]} was the last with it" if last < position else ""
            text += f"; {record.releases[first]} has it" if first > position else ""
    near = _nearest(program.name, position, name)
    return f"{text}; did you mean {near}" if near and near != name else text


@lru_cache(maxsize=256)
def _nearest(program: str, position: int | None, name: str) -> str:
    """The most similar option that the program knows; empty if none is similar. The search takes a millisecond."""
    known = PROGRAMS[program]
    further = set(_options(known.further, None)) if known.further else set()
    names = set(_options(program, position)) | further - {f"--{each}" for each in known.without}
    return next(iter(get_close_matches(name, sorted(names), 1)), "")


@cache
def _record(program: str) -> _Record:
    place = resources.files("airunway.engines") / "recorded" / f"{program}.json"
    found = orjson.loads(place.read_bytes())
    return _Record(
        releases=tuple(found["releases"]),
        options={
            _spelled(name): tuple((kind, a, b) for kind, a, b in spans) for name, spans in found["options"].items()
        },
    )


@cache
def _options(program: str, position: int | None) -> Mapping[str, frozenset[str]]:
    """The options of a release, or of any release (None), with their kinds."""
    return {
        option: kinds
        for option, spans in _record(program).options.items()
        if (kinds := frozenset(kind for kind, first, last in spans if position is None or first <= position <= last))
    }


def _numbers(release: str) -> Release:
    return tuple(int(part) for part in re.findall(r"\d+", release)[:3])
