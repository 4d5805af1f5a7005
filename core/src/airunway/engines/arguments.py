"""Converts a deployment's engine settings into command-line arguments; program, model and port are `sdk.launch`'s.

Upstreams that start engines in Python (Ray Serve LLM) get them as keyword arguments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, prod
from typing import Any

from airunway.api.modeldeployment import ModelDeployment
from airunway.engines.tables import FlagTable, flag_table

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
"""The length is limited because arguments may become keys of a YAML document, which allows 1,024 characters."""


_NAMED = re.compile(r"--?[A-Za-z]")


@dataclass(frozen=True, kw_only=True)
class Remark:
    """A message about one field of the deployment; providers convert it into a finding."""

    path: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option that a user sets, as it reaches the program."""

    path: str
    """The field that sets it."""
    name: str
    """With its leading dashes."""
    given: bool
    """Whether it has a value."""
    is_truth: bool = False
    """Whether that value is true or false."""


@dataclass(frozen=True, kw_only=True)
class Instead:
    """What a program has in place of an option of the engine's own server."""

    option: str = ""
    """The program's option for it, without dashes; empty: none, and the engine's own option is left out."""
    values: Mapping[str, str] = field(default_factory=dict)
    """The program's names for values that it calls otherwise."""
    keeps: bool = False
    """Whether the engine's own option is passed as well."""
    refusal: str = ""
    """Why the option cannot be honoured, and what to do; empty: it can, or nothing depends on it."""


@dataclass(frozen=True, kw_only=True)
class EngineArguments:
    """The command-line arguments of an engine, without program and model."""

    argv: tuple[str, ...] = ()
    errors: tuple[Remark, ...] = ()
    """Arguments that must not be passed on; `argv` is unusable if there are any."""
    warnings: tuple[Remark, ...] = ()
    """Settings that have no effect with this engine."""
    doubts: tuple[Remark, ...] = ()
    """What may keep the engine from starting."""
    options: tuple[Option, ...] = ()
    """The user's options among them, which the program may not know."""
    tensor_parallel: int = 1
    """The number of GPUs over which these arguments split tensors."""


def literal(text: str) -> str:
    """`text` escaped for an argument or variable, because the kubelet expands ``$(NAME)`` and replaces ``$$`` by ``$``.

    Use it for data (ids, names, references). Arguments and variables that a user writes keep Kubernetes' meaning.
    """
    return text.replace("$", "$$")


def engine_arguments(
    deployment: ModelDeployment,
    *,
    engine: str,
    dialect: str = "",
    served_name: str = "",
    gpus: int = 0,
    stages: int = 1,
    consumed: Collection[str] = (),
    instead: Mapping[str, Instead] | None = None,
    whole: Callable[[str], str] = str,
    kinds: Callable[[str], frozenset[str]] | None = None,
) -> EngineArguments:
    """The arguments for ``spec.engine``: derived flags in fixed order, ``args`` by key, then ``extraArgs``.

    A key of ``args``, or a flag in ``extraArgs``, overrides the flag derived from a field. An ``args`` entry with an
    empty value is a bare flag. `served_name` is the name to serve under (empty: the engine chooses), `gpus` the number
    of GPUs over which a model's layers are split, `stages` the number of pipeline stages with that many GPUs each, and
    `consumed` the keys of ``args`` that the provider uses itself.

    Raises UnknownEngineError if no flag table exists for engine and dialect.
    """
    table = flag_table(engine, dialect)
    settings = deployment.spec.engine
    argv: list[str] = []
    errors: list[Remark] = []
    warnings: list[Remark] = []

    args = {key: value for key, value in sorted(settings.args.items()) if key not in consumed}
    given = given_flags(deployment, consumed=consumed)

    for path, flag, value, wish in _derived(deployment, table, served_name=served_name, gpus=gpus, stages=stages):
        if not flag:
            if path and wish in table.notes:
                field = path.rpartition(".")[2]
                warnings.append(
                    Remark(path=path, message=f"{field} is ignored for {table.title} ({table.notes[wish]})")
                )
            continue
        winner = next((given[name] for name in _spellings(table, flag, wish) if name in given), "")
        if not winner:
            argv += _words(flag, value, joined=table.joined)
        elif path:
            warnings.append(Remark(path=path, message=f"{path} gives way to {winner}, which sets the same flag"))

    options: list[Option] = []
    for key, value in args.items():
        path = f"spec.engine.args[{key}]"
        problem = _refusal(table, f"--{key}", value) or _flag_as_value(table, key, value)
        if not _KEY.fullmatch(key):
            rule = "it must start with a letter or digit, contain only those, '.', '-' and '_', and have at most 128"
            problem = f"invalid engine arg key {key[:128]!r}: {rule}"
        if problem:
            errors.append(Remark(path=path, message=problem))
        for name, text in _carried(path, key, value, _of(instead, key, whole), given, errors):
            flag, text = _switched(f"--{name}", text, kinds) if kinds is not None else (f"--{name}", text)
            if flag:
                argv += _words(flag, text, joined=table.joined)
            if flag and not problem:
                truth = text.lower() in _TRUTHS
                options.append(Option(path=path, name=flag, given=bool(text), is_truth=truth))
    words = settings.extra_args
    for i, flag in _flags(words):
        if error := _refusal(table, flag, value_after(words, i)):
            errors.append(Remark(path=f"spec.engine.extraArgs[{i}]", message=error))
    words, places = _carried_words(words, lambda name: _of(instead, name, whole), given, errors, joined=table.joined)
    argv += words
    return EngineArguments(
        argv=tuple(argv),
        errors=tuple(errors),
        warnings=tuple(warnings),
        options=(*options, *options_in(words, places)),
        doubts=tuple(_split_wider(table, argv, given, gpus=gpus * stages)),
        tensor_parallel=_size_of(table, table.tensor_parallel, argv),
    )


def _carried(
    path: str,
    name: str,
    value: str,
    found: Instead | None,
    given: Mapping[str, str],
    errors: list[Remark],
) -> list[tuple[str, str]]:
    """The options, with their values, by which a program is told what the engine's own option says."""
    if found is None:
        return [(name, value)]
    if found.refusal:
        errors.append(Remark(path=path, message=found.refusal))
        return []
    own = [(name, value)] if found.keeps else []
    # The program's own option wins if the user sets both.
    if not found.option or found.option in given:
        return own
    return [*own, (found.option, found.values.get(value, value))]


def _of(instead: Mapping[str, Instead] | None, name: str, whole: Callable[[str], str]) -> Instead | None:
    """What the program has for an option, by its name or the beginning of it."""
    return (instead.get(plain(name)) or instead.get(whole(plain(name)))) if instead else None


def _carried_words(
    words: Sequence[str],
    instead: Callable[[str], Instead | None],
    given: Mapping[str, str],
    errors: list[Remark],
    *,
    joined: bool,
) -> tuple[list[str], list[int]]:
    """``extraArgs`` with the program's options in place of those of the engine's own server, and the position in
    ``extraArgs`` from which each word comes.
    """
    made: list[str] = []
    places: list[int] = []
    i = 0
    while i < len(words):
        name, equals, value = words[i].partition("=")
        found = instead(name) if is_flag(words[i]) else None
        if found is None:
            made.append(words[i])
            places.append(i)
            i += 1
            continue
        follows = "" if equals else value_after(words, i)
        for option, text in _carried(
            f"spec.engine.extraArgs[{i}]", plain(name), value or follows, found, given, errors
        ):
            made += _words(f"--{option}", text, joined=joined)
        places += [i] * (len(made) - len(places))
        i += 2 if follows else 1
    return made, places


def value_after(words: Sequence[str], position: int) -> str:
    """The value of the flag at that position: after its ``=``, else the next word if that is no flag."""
    _, equals, value = words[position].partition("=")
    if equals:
        return value
    following = words[position + 1] if position + 1 < len(words) else ""
    return "" if is_flag(following) else following


_TRUTHS = ("true", "false")


def _switched(flag: str, value: str, kinds: Callable[[str], frozenset[str]]) -> tuple[str, str]:
    """A flag that takes no value, with ``true`` or ``false`` as value: the flag alone, its opposite, or nothing."""
    if value.lower() not in _TRUTHS or not (found := kinds(flag)) or not found <= {"flag", "switch"}:
        return flag, value
    if value.lower() == "true":
        return flag, ""
    opposite = f"--no-{flag.lstrip('-')}"
    if found == {"flag"}:
        return "", ""
    return (opposite, "") if kinds(opposite) else (flag, value)


def options_in(words: Sequence[str], places: Sequence[int] | None = None) -> Iterator[Option]:
    """The options of ``extraArgs``; `places` are the words' positions there (default: they are all of it)."""
    for i, flag in _flags(words):
        if _NAMED.match(flag):
            path = f"spec.engine.extraArgs[{i if places is None else places[i]}]"
            yield Option(path=path, name=flag, given=bool(value_after(words, i)) or "=" in words[i])


def _flags(words: Sequence[str]) -> list[tuple[int, str]]:
    """Position and name of every flag."""
    return [(i, word.partition("=")[0]) for i, word in enumerate(words) if is_flag(word)]


def given_flags(deployment: ModelDeployment, *, consumed: Collection[str] = ()) -> dict[str, str]:
    """The user's flags, without leading dashes and with ``-`` for ``_``, and the field that sets each.

    `consumed` are keys of ``args`` that the provider uses itself.
    """
    settings = deployment.spec.engine
    given = {plain(key): f"spec.engine.args[{key}]" for key in sorted(settings.args) if key not in consumed}
    given.update((plain(flag), f"spec.engine.extraArgs[{i}]") for i, flag in _flags(settings.extra_args))
    return given


def _derived(
    deployment: ModelDeployment, table: FlagTable, *, served_name: str, gpus: int, stages: int
) -> Iterator[tuple[str, str, str, str]]:
    """Path of the field, flag (empty: the engine has none), value (empty: a bare flag), and the setting's name.

    The path is empty if the user did not explicitly request the setting.
    """
    settings = deployment.spec.engine
    if served_name:
        asked = "spec.model.servedName" if deployment.spec.model.served_name else ""
        yield asked, table.served_name, literal(served_name), "served_name"
    if settings.context_length is not None:
        yield "spec.engine.contextLength", table.context_length, str(settings.context_length), "context_length"
    if settings.trust_remote_code:
        yield "spec.engine.trustRemoteCode", table.trust_remote_code, "", "trust_remote_code"
    if settings.enable_prefix_caching is not None:
        flag = table.prefix_caching if settings.enable_prefix_caching else table.no_prefix_caching
        yield "spec.engine.enablePrefixCaching", flag, "", "prefix_caching"
    if settings.enforce_eager:
        yield "spec.engine.enforceEager", table.enforce_eager, "", "enforce_eager"
    # The product of both is the number of GPUs, so a user who sets one of them overrides both.
    wish = "parallelism" if stages > 1 else "tensor_parallel"
    if gpus > 1:
        yield "", table.tensor_parallel, str(gpus), wish
    if stages > 1:
        yield "", table.pipeline_parallel, str(stages), wish


def _spellings(table: FlagTable, flag: str, wish: str) -> list[str]:
    """Every spelling, without dashes, of flags that set the same option as `flag`."""
    pairs = {
        "prefix_caching": (table.prefix_caching, table.no_prefix_caching),
        "parallelism": (table.tensor_parallel, table.pipeline_parallel),
    }
    flags = dict.fromkeys((flag, *pairs.get(wish, ())))
    return [plain(spelling) for each in flags if each for spelling in (each, *table.synonyms.get(each, ()))]


def _split_wider(table: FlagTable, argv: Sequence[str], given: Mapping[str, str], *, gpus: int) -> Iterator[Remark]:
    """The field of a flag of the user's that splits a model over more than its `gpus`, and what to write instead."""
    flags = [flag for flag in (table.tensor_parallel, table.pipeline_parallel) if flag]
    ways = prod(_size_of(table, flag, argv) for flag in flags)
    path = next((given[name] for flag in flags for name in _spellings(table, flag, "") if name in given), "")
    if path and 0 < gpus < ways:
        text = (
            f"it splits the model over {ways} GPUs, and there {'is' if gpus == 1 else 'are'} {gpus}: set gpu.count to "
            f"{ways}, or remove the flag, which follows from gpu.count"
        )
        yield Remark(path=path, message=text)


def _size_of(table: FlagTable, flag: str, argv: Sequence[str]) -> int:
    """The size set by the last spelling of a flag; 1 if there is none or it is not a number."""
    names, size = _spellings(table, flag, ""), ""
    for word, following in zip(argv, [*argv[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        if name.startswith("-") and plain(name) in names:
            size = value if equals else following
    return max(1, int(size)) if size.isascii() and size.isdigit() and len(size) < 8 else 1


def _refusal(table: FlagTable, flag: str, value: str) -> str:
    """Why the provider cannot pass on that flag with that value, or an empty string."""
    name = plain(flag)
    for reserved in sorted(table.reserved):
        if _means(table, flag, reserved):
            return (
                f"engine arg {name!r} sets {reserved!r}, which AI Runway sets itself so that Service, probes and model "
                f"fit together; remove it"
            )
    if _means(table, flag, HOST) and (value in ("", "localhost", "::1") or value.startswith("127.")):
        return (
            f"engine arg {name!r} must be an address at which probes and Service arrive, and {value!r} is none: write "
            "'::' for IPv6 or '0.0.0.0' for IPv4, or remove it"
        )
    return ""


HOST = "host"
"""The plain name of the flag for the address on which an engine listens."""


def names_host(deployment: ModelDeployment, table: FlagTable) -> bool:
    """Whether the user says on which address the engine listens."""
    return any(_means(table, f"--{name}", HOST) for name in given_flags(deployment))


def _means(table: FlagTable, flag: str, name: str) -> bool:
    """Whether a flag is the one with that plain name, or an abbreviation of it.

    Abbreviations have two dashes; the engine itself refuses ambiguous ones.
    """
    short = plain(flag)
    return short == name or (table.prefixes and flag.startswith("--") and short != "" and name.startswith(short))


def _flag_as_value(table: FlagTable, key: str, value: str) -> str:
    """Why that value of ``args`` cannot be passed on, or an empty string.

    If flag and value are two words, the engine parses a value with a leading dash as a flag.
    """
    if table.joined or not is_flag(value):
        return ""
    return (
        f"the value of engine arg {key!r} begins with '-', so that {table.title} takes it for a flag of its own: "
        "write each flag as a key"
    )


def is_flag(word: str) -> bool:
    """Whether a word of a command line is a flag, and not a value or a negative number."""
    return word.startswith("-") and not word.lstrip("-")[:1].isdigit()


def plain(flag: str) -> str:
    """A flag without leading dashes and with ``-`` for ``_``, as argparse-like programs compare flags."""
    return flag.lstrip("-").replace("_", "-")


def _words(flag: str, value: str, *, joined: bool) -> list[str]:
    if not value:
        return [flag]
    return [f"{flag}={value}"] if joined else [flag, value]


_DEEPEST = 32
"""Maximum number of opening brackets in a value; a value with more stays a text."""

_LONGEST = 128
"""Maximum length of a name in characters: YAML keys have at most 1,024, and no engine has flags that long."""


@dataclass(frozen=True, kw_only=True)
class KeywordArguments:
    """Arguments by their Python names."""

    values: dict[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    """Sentences about words that are not valid arguments."""


def keyword_arguments(words: Sequence[str], *, short: Mapping[str, str] | None = None) -> KeywordArguments:
    """The keyword arguments of a command line: ``--max-model-len=8192`` becomes ``max_model_len: 8192``.

    A flag without a value is True, one with the prefix ``--no-`` is False. Values that parse as JSON numbers, booleans
    or other JSON are converted; others are texts, as are quoted numbers (``"123"``). `short` maps short flags to names.
    The last of several words for one argument wins.
    """
    values: dict[str, Any] = {}
    problems: list[str] = []
    rest = list(reversed(words))
    while rest:
        flag, given, text = rest.pop().partition("=")
        name = flag.lstrip("-").replace("-", "_")
        name = (short or {}).get(name, name)
        if not flag.startswith("-") or len(name) > _LONGEST or not name.isidentifier():
            whole, dot, key = flag[:_LONGEST].lstrip("-").partition(".")
            remedy = "write it as one flag with one value"
            if dot and whole:
                given_text = f'{{"{key}": ...}}' if "." not in key else "{...}"
                remedy = f"write the whole of {whole} as JSON text: {whole}: '{given_text}'"
            problems.append(f"{flag[:64]!r} cannot be set by name: {remedy}")
            if not given and rest and not is_flag(rest[-1]) and dot:
                rest.pop()
        elif given or (rest and not is_flag(rest[-1])):
            values[name] = _value(text if given else rest.pop())
        elif name.startswith("no_"):
            values[name[3:]] = False
        else:
            values[name] = True
    return KeywordArguments(values=values, problems=tuple(problems))


def _value(text: str) -> Any:
    if text in ("True", "False"):
        return text == "True"
    if text.count("[") + text.count("{") > _DEEPEST:
        return text
    try:
        return json.loads(text, parse_constant=str, parse_float=_finite)
    except ValueError:
        return text


def _finite(digits: str) -> float | str:
    """A float that JSON can express; the digits as text if it is too large."""
    value = float(digits)
    return value if isfinite(value) else digits
