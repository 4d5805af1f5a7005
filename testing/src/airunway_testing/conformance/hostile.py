"""Whatever a user writes arrives as data, or is refused: no word of it becomes two, a key, or part of a command.

Each text stands in each field once, next to a harmless word in the same place. What is written for the two has to be
the same but for the text itself; a text inside of another document (JSON or YAML in a field) is looked for in there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import yaml

from airunway.api.modeldeployment import ParseError
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource, dig
from airunway.runtime.judgement import Judgement
from airunway_testing.conformance.cases import Base, bases, judged, merged_spec
from airunway_testing.conformance.fields import plain

__all__ = ["HOSTILE", "PLACES", "hostile_faults"]

HOSTILE = (
    "; rm -rf *",
    "$(cat secret)",
    "${HOME}",
    "`id`",
    "' || true '",
    '"}, "command": ["sh"]',
    "a\nb: c\n- d",
    "a\tb\x00c",
    "{{ .Values }}%s%n",
    "--flag=x --other",
    "größe ✓ \u202e",
    "x" * 10_240,
)
"""Texts with which shells, templates, documents and flags are led astray, and one that is merely long.

None has a slash: after the last one of a model's id its served name begins.
"""

_HARMLESS = "harmless"
_WITH_DIGEST = re.compile(r"(.+-)[0-9a-f]{6,64}")
"""A name that says what is in an object."""
_SHELLS = frozenset(("sh", "bash", "ash", "dash", "zsh"))

PLACES: Mapping[str, Callable[[str], Resource]] = {
    "spec.model.id": lambda text: {"model": {"id": f"o/{text}"}},
    "spec.model.servedName": lambda text: {"model": {"servedName": text}},
    "spec.engine.args, a value": lambda text: {"engine": {"args": {"seed": text}}},
    "spec.engine.args, a key": lambda text: {"engine": {"args": {text: "1"}}},
    "spec.engine.extraArgs": lambda text: {"engine": {"extraArgs": ["--tokenizer", f"o/{text}"]}},
    "spec.env[].name": lambda text: {"env": [{"name": text, "value": "1"}]},
    "spec.env[].value": lambda text: {"env": [{"name": "A", "value": text}]},
    "spec.image": lambda text: {"image": text},
    "spec.secrets.huggingFaceToken": lambda text: {"secrets": {"huggingFaceToken": text}},
    "spec.podTemplate.metadata.labels": lambda text: {"podTemplate": {"metadata": {"labels": {"a": text}}}},
    "spec.podTemplate.metadata.annotations": lambda text: {"podTemplate": {"metadata": {"annotations": {text: text}}}},
    "spec.nodeSelector": lambda text: {"nodeSelector": {"a": text}},
}
"""Where a text can stand in a deployment, by the field."""


def hostile_faults(host: ProviderHost, asked: Sequence[Base] | None = None) -> Iterator[str]:
    """What a text can do with this provider, one sentence for each field of each deployment (default: those of
    `bases`); nothing if all is well. Raises PluginFault.
    """
    places = {**PLACES, **_overrides(host)}
    for base in bases(host) if asked is None else asked:
        for field, place in places.items():
            harmless = _judged(host, base, place(_HARMLESS))
            for text in HOSTILE:
                found = _judged(host, base, place(text))
                if found is None:
                    continue
                at = f"{base.name}: {field} with {text[:24]!r}"
                if harmless is None:
                    yield f"{at} is taken, where a plain word is refused"
                    break
                if (where := _strays(harmless, found, text)) is not None:
                    yield f"{at} changes more than its own value, at {where}: hand it over as one word or one value"
                    break


def _judged(host: ProviderHost, base: Base, change: Resource) -> Judgement | None:
    """None for a deployment that is refused."""
    try:
        found = judged(host, base, merged_spec(base.spec, change))
    except ParseError:
        return None
    return None if found.blockers else found


def _overrides(host: ProviderHost) -> dict[str, Callable[[str], Resource]]:
    """Each override that the provider's schema knows, and one that it does not."""

    def at(path: tuple[str, ...]) -> Callable[[str], Resource]:
        def place(text: str) -> Resource:
            found: Any = text
            for step in reversed(path):
                found = {step or text: found}
            return {"provider": {"overrides": found}}

        return place

    paths = [*_leaves(host.manifest.override_schema), ("",)]
    return {f"spec.provider.overrides.{'.'.join(step or '*' for step in path)}": at(path) for path in paths}


def _leaves(schema: Resource) -> Iterator[tuple[str, ...]]:
    """The paths of a schema of overrides below which is no other; "" stands for a key that the user chooses."""
    below = dict(dig(schema, "properties", default={}))
    if others := schema.get("additionalProperties"):
        below[""] = others
    for key, described in below.items():
        for path in _leaves(described) if isinstance(described, dict) else [()]:
            yield (key, *path)
    if not below:
        yield ()


def _strays(harmless: Judgement, found: Judgement, text: str) -> str | None:
    """The first place at which two judgements differ by more than the text that stands for the harmless word."""
    before, after = ([plain(obj) for obj in judgement.objects] for judgement in (harmless, found))
    return next(chain(_differences(before, after, text, "objects"), _shells(after, "objects")), None)


def _differences(before: Any, after: Any, text: str, at: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        wanted = {key.replace(_HARMLESS, text): key for key in before}
        if wanted.keys() != after.keys():
            yield at
        else:
            for key, value in after.items():
                yield from _differences(before[wanted[key]], value, text, f"{at}.{wanted[key]}")
    elif isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            yield at
        else:
            for i, pair in enumerate(zip(before, after, strict=True)):
                yield from _differences(*pair, text, f"{at}[{i}]")
    elif not isinstance(before, str) or not isinstance(after, str):
        if before != after:
            yield at
    elif before != after:
        yield from _in_a_text(before, after, text, at)


def _in_a_text(before: str, after: str, text: str, at: str) -> Iterator[str]:
    document = _document(before)
    if isinstance(document, dict | list):
        yield from _differences(document, _document(after), text, f"{at}, in it")
    elif after not in _with(before, text) and not (_stem(before) and _stem(before) == _stem(after)):
        yield at


def _stem(name: str) -> str:
    """What a name begins with that ends in a digest; empty for another one."""
    found = _WITH_DIGEST.fullmatch(name)
    return found[1] if found else ""


def _with(before: str, text: str) -> tuple[str, ...]:
    """What may come of a text with the harmless word: ``$$`` is a kubelet's way to write one that it leaves alone."""
    return before.replace(_HARMLESS, text), before.replace(_HARMLESS, text.replace("$", "$$"))


def _document(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None


def _shells(node: Any, at: str) -> Iterator[str]:
    """Commands that hand words to a shell."""
    if isinstance(node, dict):
        command = node.get("command")
        if isinstance(command, list) and command and str(command[0]).rpartition("/")[2] in _SHELLS:
            yield f"{at}.command"
        for key, value in node.items():
            yield from _shells(value, f"{at}.{key}")
    elif isinstance(node, list):
        for i, value in enumerate(node):
            yield from _shells(value, f"{at}[{i}]")
