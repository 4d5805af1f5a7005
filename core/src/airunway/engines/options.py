"""Checks a user's engine options against the recorded options of each engine release.

``tools/engine_options`` recorded them from the published packages; they are loaded on first use. A program's record
has everything that its own command line takes, of the engine that is built into it as well: Dynamo's worker parses
vLLM's engine options, and has none of those that ``vllm serve`` adds.

What a recorded release certainly does not parse is refused in ``engine.args``. Otherwise there is only a warning,
because an image may contain a custom build.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, lru_cache
from importlib import resources
from itertools import islice

import orjson

from airunway.api.modeldeployment import ModelDeployment
from airunway.engines.arguments import Option, Remark, options_in

Release = tuple[int, ...]
_TAG = re.compile(r"v?(\d{1,4})\.(\d{1,4})\.(\d{1,4})(?![0-9.])", re.ASCII)
_RUNTIME = re.compile(r"-runtime$")
_LEVELS = ("-O",)
_RAY_SHORT = frozenset({"-tp", "-pp", "-q"})
_MOST = 8
"""Maximum number of remarks on one deployment."""
_LONGEST = 128
"""Maximum number of characters of an option that are checked; the longest recorded option has fewer than 64."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program whose options are recorded."""

    name: str
    """Name of its record."""
    engine: str
    title: str
    """Its name in messages."""
    image: re.Pattern[str] | None = None
    """Pattern at the end of image repositories whose tags contain its release."""
    server: str = ""
    """The program that serves this engine by itself, if this one lacks the options of its HTTP server. The record
    ``<server>.engine`` has those of the engine alone."""
    short: frozenset[str] = frozenset()
    """Short options that are rewritten before parsing."""
    keywords: bool = False
    """It gets keyword arguments instead of a command line, so that a switch may be true or false."""
    levels: tuple[str, ...] = ()
    """Short options with the value attached, which are rewritten before parsing."""


PROGRAMS: Mapping[str, Program] = {
    program.name: program
    for program in (
        Program(name="vllm", engine="vllm", title="vLLM", image=re.compile(r"(^|/)vllm(-openai)?$"), levels=_LEVELS),
        Program(name="sglang", engine="sglang", title="SGLang", image=re.compile(r"(^|/)sglang$")),
        Program(
            name="dynamo.vllm",
            engine="vllm",
            title="Dynamo's vLLM worker",
            image=_RUNTIME,
            server="vllm",
            levels=_LEVELS,
        ),
        Program(name="dynamo.sglang", engine="sglang", title="Dynamo's SGLang worker", image=_RUNTIME),
        Program(name="dynamo.trtllm", engine="trtllm", title="Dynamo's TensorRT-LLM worker", image=_RUNTIME),
        # Ray Serve LLM fills vLLM's argument classes by name; its releases before 2.49 know the engine's only.
        Program(
            name="ray", engine="vllm", title="Ray Serve LLM's vLLM", server="vllm", short=_RAY_SHORT, keywords=True
        ),
        Program(
            name="ray.engine",
            engine="vllm",
            title="the engine of Ray Serve LLM before 2.49, vLLM",
            server="vllm",
            short=_RAY_SHORT,
            keywords=True,
        ),
    )
}
"""By name. The releases of ``ray`` and ``ray.engine`` are vLLM's."""

_TRUTHS = ("true", "false")


def program_of(engine: str, *, dialect: str = "", command: Sequence[str] = ()) -> str:
    """The program that parses the options: a module in `command`, else the engine's; empty if it has no record."""
    module = next((word for word in command if word in PROGRAMS), "")
    return module or (engine if engine in PROGRAMS and not dialect else "")


def release_of(program: str, image: str) -> Release | None:
    """The release in the tag of a program's own image; None for other images and for tags without a release."""
    repository, _, tag = image.partition("@")[0].rpartition(":")
    known = PROGRAMS.get(program)
    if known is None or known.image is None or known.image.search(repository) is None:
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


@dataclass(frozen=True, kw_only=True)
class OptionRemarks:
    """What is wrong with the options of a deployment."""

    errors: tuple[Remark, ...] = ()
    """The program would exit with these."""
    warnings: tuple[Remark, ...] = ()
    """It may know these if it is a custom build."""


def option_remarks(options: Iterable[Option], program: str, release: Release | None) -> OptionRemarks:
    """The `options` that `program` does not have, or not in that form.

    A `release` without a record is checked against the nearest older one; None reports only options that no recorded
    release has. A program without a record gets no remarks. Errors are options in ``engine.args`` that the very release
    does not have, and options of the engine's own HTTP server, which no release of another program has.
    """
    known = PROGRAMS.get(program)
    if known is None:
        return OptionRemarks()
    judged = (
        (option, text)
        for option in options
        if (text := _judged(known, release, option.name[:_LONGEST], given=option.given, is_truth=option.is_truth))
    )
    certain = release is not None and release in map(_numbers, _record(program).releases)
    errors, warnings = [], []
    # The search for a similar name takes a millisecond, so long lists would block the event loop.
    for option, text in islice(judged, _MOST):
        in_args = option.path.startswith("spec.engine.args")
        if is_of_server(program, option.name):
            server = PROGRAMS[known.server].title
            instead = "remove it, or choose a provider that runs this server"
            errors.append(Remark(path=option.path, message=f"{text}: it is of {server}'s own HTTP server; {instead}"))
        elif certain and in_args:
            own = "remove it, or move it to engine.extraArgs if the image is a build of your own that has it"
            errors.append(Remark(path=option.path, message=f"{text}; {own}"))
        else:
            warnings.append(Remark(path=option.path, message=text))
    return OptionRemarks(errors=tuple(errors), warnings=tuple(warnings))


def is_of_server(program: str, option: str) -> bool:
    """Whether an option is of the engine's own server, not of the engine, and no recorded `program` has it."""
    server = PROGRAMS[program].server
    if not server or not _found(server, None, option):
        return False
    return not any(_found(each, None, option) for each in (program, f"{server}.engine"))


def kinds_of(program: str, release: Release | None, option: str) -> frozenset[str]:
    """``flag``, ``switch``, ``value``, ``maybe``: the forms that an option has; empty if it is not known."""
    if program not in PROGRAMS:
        return frozenset()
    position = None if release is None else _record(program).position(release)
    return _found(program, position, option)


def unknown_options(deployment: ModelDeployment) -> Iterator[Remark]:
    """As `option_remarks`, before a provider is selected for the deployment.

    If the image is one of the programs' own, its tag gives the release. Otherwise it reports only options that no
    program for the engine has in any release. It reports nothing without an engine, or if the engine's own program has
    no record.
    """
    engine, image = deployment.spec.engine, deployment.spec.engine.image or deployment.spec.image or ""
    programs = [name for name, program in PROGRAMS.items() if program.engine == engine.type]
    options = [*_given(deployment)]
    for name in programs:
        if (release := release_of(name, image)) is not None:
            found = option_remarks(options, name, release)
            yield from (*found.errors, *found.warnings)
            return
    if engine.type not in programs:
        return
    judged = []
    for name in programs:
        found = option_remarks(options, name, None)
        judged.append({remark.path: remark for remark in (*found.errors, *found.warnings)})
    yield from (remark for path, remark in judged[0].items() if all(path in others for others in judged))


def _given(deployment: ModelDeployment) -> Iterator[Option]:
    """The options in the user's arguments, as they are written."""
    settings = deployment.spec.engine
    for key, value in sorted(settings.args.items()):
        truth = value.lower() in _TRUTHS
        yield Option(path=f"spec.engine.args[{key}]", name=f"--{key}", given=bool(value), is_truth=truth)
    yield from options_in(settings.extra_args)


def _judged(program: Program, release: Release | None, option: str, *, given: bool, is_truth: bool) -> str:
    """What is wrong with an option, or an empty string; `given` says whether it has a value, `is_truth` which kind."""
    record = _record(program.name)
    position = None if release is None else record.position(release)
    if release is not None and position is None:
        return ""  # older than all recorded releases
    if option in program.short or any(option.startswith(short) for short in program.levels):
        return ""
    found = _found(program.name, position, option)
    if not found or (program.keywords and _spelled(option) not in _options(program.name, position)):
        return _unknown(program, record, position, release, option)
    is_value = program.keywords and is_truth and not option.startswith("--no-")
    if given and not is_value and found <= {"flag", "switch"}:
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
    # Parsers accept an unambiguous prefix, those of Dynamo's workers too (its documentation writes --tp).
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
    return next(iter(get_close_matches(name, sorted(_options(program, position)), 1)), "")


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
