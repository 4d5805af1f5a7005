"""M8: every regular expression of the project takes linear time on hostile texts.

The patterns are found, not listed: those that any module or anything in it holds, those written in calls of `re`, and
those of the schemas. A new one cannot escape. Each gets texts made of its own literals and characters, on which a
quadratic one needs billions of steps: the limit is some hundred times the processor time that linear ones take.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import itertools
import pkgutil
import re
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest

import airunway
import airunway_dynamo
import airunway_kaito
import airunway_kuberay
import airunway_llmd
import airunway_vllm
from airunway.api import inferenceproviderconfig, modeldeployment
from airunway.api.crds import schema_of
from airunway.cel import MAX_EXPRESSION_LENGTH
from airunway.status import engine_texts, texts

LENGTH = 60_000
LIMIT_S = 0.3
"""Of processor time, for one text."""

LONGEST = {"airunway.cel._cost._TOKEN": MAX_EXPRESSION_LENGTH}
"""Patterns whose text is never longer: what is longer was refused before."""

SAMPLES = {"CATEGORY_DIGIT": "0", "CATEGORY_WORD": "a", "CATEGORY_SPACE": " ", "CATEGORY_NOT_SPACE": "a"}


class Slow(Exception):
    pass


def modules() -> Iterator[ModuleType]:
    for root in (airunway, airunway_dynamo, airunway_kaito, airunway_kuberay, airunway_llmd, airunway_vllm):
        yield root
        for found in pkgutil.walk_packages(root.__path__, f"{root.__name__}."):
            if not found.name.endswith("__main__"):
                yield importlib.import_module(found.name)


def held(value: object, seen: set[int]) -> Iterator[re.Pattern[Any]]:
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        for inner in itertools.chain(value.keys(), value.values()):
            yield from held(inner, seen)
    elif isinstance(value, list | tuple | set | frozenset):
        for inner in value:
            yield from held(inner, seen)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from held(getattr(value, field.name, None), seen)
    elif isinstance(value, type) and value.__module__.startswith("airunway"):
        yield from held(dict(vars(value)), seen)


def written(module: ModuleType) -> Iterator[re.Pattern[Any]]:
    """Patterns in calls like ``re.sub("…", …)``. One that is put together there must be named where it can be found."""
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
            continue
        if ast.unparse(node.func.value) == "re" and isinstance(node.args[0], ast.Constant):
            # `match` looks at the beginning of a text only.
            yield re.compile((r"\A(?:{})" if node.func.attr == "match" else "{}").format(node.args[0].value))


def schema_patterns(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("pattern"), str):
            yield schema["pattern"]
        for inner in schema.values():
            yield from schema_patterns(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from schema_patterns(inner)


@cache
def patterns() -> dict[str, re.Pattern[Any]]:
    found: dict[str, re.Pattern[Any]] = {}
    known: set[str | bytes] = set()

    def add(name: str, pattern: re.Pattern[Any]) -> None:
        if pattern.pattern not in known:
            known.add(pattern.pattern)
            found[name if name not in found else f"{name} {pattern.pattern!r}"] = pattern

    for module in modules():
        for name, value in vars(module).items():
            for pattern in held(value, set()):
                add(f"{module.__name__}.{name}", pattern)
        for pattern in written(module):
            add(f"{module.__name__}: {pattern.pattern!r}", pattern)
    for kind in (modeldeployment.KIND, inferenceproviderconfig.KIND):
        for text in schema_patterns(schema_of(kind)):
            add(f"{kind}: {text!r}", re.compile(text))
    return found


def runs(parsed: Any) -> Iterator[str]:
    """The literal texts of a parsed pattern, each as long as it goes; what is optional within one is left out."""
    run = ""
    for operation, argument in parsed:
        name = str(operation)
        if name == "LITERAL":
            run += chr(argument)
        elif name != "AT" and not (name in ("MAX_REPEAT", "MIN_REPEAT") and argument[1] == 1):
            yield run
            run = ""
        inner = {
            "SUBPATTERN": 3,
            "MAX_REPEAT": 2,
            "MIN_REPEAT": 2,
            "POSSESSIVE_REPEAT": 2,
            "ASSERT": 1,
            "ASSERT_NOT": 1,
        }
        if name == "BRANCH":
            for branch in argument[1]:
                yield from runs(branch)
        elif name in inner:
            yield from runs(argument[inner[name]])
        elif name == "ATOMIC_GROUP":
            yield from runs(argument)
        elif name == "IN":
            yield from (chr(value) for kind, value in argument if str(kind) == "LITERAL")
            yield from (chr(value[0]) for kind, value in argument if str(kind) == "RANGE")
            yield from (SAMPLES[str(value)] for kind, value in argument if str(value) in SAMPLES)
    yield run


def atoms(pattern: re.Pattern[Any]) -> list[str]:
    """Pieces that the pattern reacts to: its words, longest first, and what separates words."""
    parsed = importlib.import_module("re._parser").parse(pattern.pattern, pattern.flags & ~re.UNICODE)
    found = sorted({run for run in runs(parsed) if run}, key=lambda run: (-len(run), run))
    words, characters = [run for run in found if len(run) > 1], [run for run in found if len(run) == 1]
    return list(dict.fromkeys([*words[:3], *characters[:2], "a", "-", " ", '"']))


def hostile(pattern: re.Pattern[Any], length: int) -> Iterator[str]:
    pieces = atoms(pattern)
    for piece in pieces:
        yield (piece * length)[:length]
    for first, second in itertools.permutations(pieces, 2):
        yield ((first + second) * (length // len(first + second) + 1))[:length]
        yield first + (second * length)[:length] + "\x00"


def slowest(pattern: re.Pattern[Any], length: int = LENGTH) -> str | None:
    """The beginning of a text on which the pattern takes longer than it may; None if there is none."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise Slow

    before = signal.signal(signal.SIGVTALRM, stop)
    try:
        for text in hostile(pattern, length):
            subject: Any = text if isinstance(pattern.pattern, str) else text.encode()
            signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
            try:
                pattern.sub("" if isinstance(pattern.pattern, str) else b"", subject)
                pattern.fullmatch(subject)
            except Slow:
                return text[:80]
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    finally:
        signal.signal(signal.SIGVTALRM, before)
    return None


@pytest.mark.slow
def test_m8_every_pattern_is_linear() -> None:
    slow = {name: slowest(pattern, LONGEST.get(name, LENGTH)) for name, pattern in patterns().items()}
    assert {name: text for name, text in slow.items() if text is not None} == {}


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?i)\b([a-z0-9_-]*(?:token|secret|password))(\"?\s*[=:]\s*\"?)[^\s&\",;]{6,}",
        r"[.,]?\s*(?:no new claims to deallocate, )?preemption: .*$",
        r"(huggingface|hf\.co).*(timed out|ReadTimeout)",
        r'secrets? ".*" not found',
        r" \(last reconcile error: (?P<error>.*)\)\s*$",
        r"a*a*b",
    ],
)
def test_m8_a_quadratic_pattern_is_found(pattern: str) -> None:
    assert slowest(re.compile(pattern)) is not None


def test_m8_the_tables_are_among_what_is_found() -> None:
    tables = (
        *(engine_texts.ENGINE, texts.IMAGE_PULL, texts.SCHEDULING, texts.AUTOSCALING),
        *(texts.CREATION, texts.MOUNT, texts.PROVISIONING),
    )
    known = {pattern.pattern for pattern in patterns().values()}
    assert {row.pattern.pattern for table in tables for row in table} <= known
    assert {"airunway.redaction._ESCAPES", "airunway_kaito.reasons.ERRORS"} <= set(patterns())
    assert len(patterns()) > 80
