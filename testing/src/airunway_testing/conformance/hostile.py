"""Whatever a user writes arrives as data, or is refused: no word of it becomes two, a key, or part of a command.

Each text stands in each field once, next to a harmless word in the same place. What is written for the two has to be
the same but for the text itself; a text inside of another document (JSON or YAML in a field) is looked for in there.
Where a kind's `readings` say that the upstream reads a place before it takes it for a value, what it reads is compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import yaml

from airunway.api.modeldeployment import ParseError
from airunway.owned.objects import identity_in
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource, dig
from airunway.runtime.translate import TranslationResult
from airunway.sdk import Reading
from airunway_testing.conformance.cases import Base, bases, judged, merged_spec
from airunway_testing.conformance.fields import plain
from airunway_testing.conformance.readings import Declared, Steps, declared, decoded, readings_at

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
_DIGEST = re.compile(r"(?:[a-z0-9]+:)?(?:[0-9a-f]{6,128}|[A-Za-z0-9+/_-]{20,88}={0,2})")
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


@dataclass(frozen=True, kw_only=True)
class _Stray:
    """A place at which more than a value changes, by its path from ``objects``, and the cure."""

    at: str
    cure: str

    @property
    def cause(self) -> tuple[str, str]:
        """What strays of several fields and deployments have in common: items of lists are alike."""
        return re.sub(r"(?<!^objects)\[\d+\]", "[*]", self.at), self.cure


@dataclass(kw_only=True)
class _Told:
    """What is told once: the first of its strays, the fields of all, and the deployments."""

    stray: _Stray
    text: str
    fields: dict[str, None]
    bases: dict[str, None]

    def __str__(self) -> str:
        fields, bases = (_some(tuple(names)) for names in (self.fields, self.bases))
        return (
            f"{bases}: {fields} with {self.text[:24]!r} changes more than its own value, at {self.stray.at}: "
            f"{self.stray.cure}"
        )


def _some(names: Sequence[str], most: int = 3) -> str:
    """The first names of many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return "; ".join(names[:most]) + more


def hostile_faults(host: ProviderHost, asked: Sequence[Base] | None = None) -> Iterator[str]:
    """What a text can do with this provider, one sentence for each place of its objects and cure, with the fields and
    deployments that lead there (default: those of `bases`); nothing if all is well. Raises PluginFault.
    """
    places = {**PLACES, **_overrides(host)}
    told: dict[tuple[str, str], _Told] = {}
    puzzling: dict[str, list[str]] = {}
    for base in bases(host) if asked is None else asked:
        for field, place in places.items():
            harmless = _judged(host, base, place(_HARMLESS))
            for text in HOSTILE:
                found = _judged(host, base, place(text))
                if found is None:
                    continue
                if harmless is None:
                    puzzling.setdefault(
                        f"{field} with {text[:24]!r} is taken, where a plain word is refused", []
                    ).append(base.name)
                    break
                if (stray := _strays(host, harmless, found, text)) is not None:
                    entry = told.setdefault(stray.cause, _Told(stray=stray, text=text, fields={}, bases={}))
                    entry.fields[field] = entry.bases[base.name] = None
                    break
    yield from (f"{_some(names)}: {sentence}" for sentence, names in puzzling.items())
    yield from map(str, told.values())


def _judged(host: ProviderHost, base: Base, change: Resource) -> TranslationResult | None:
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


def _strays(host: ProviderHost, harmless: TranslationResult, found: TranslationResult, text: str) -> _Stray | None:
    """The first place at which two judgements differ by more than the text that stands for the harmless word."""
    before, after = ([plain(obj) for obj in judgement.objects] for judgement in (harmless, found))
    if len(before) != len(after):
        return _Stray(at="objects", cure=_AS_ONE)
    for i, (old, new) in enumerate(zip(before, after, strict=True)):
        identity = identity_in(new)
        kind = host.kinds.get((identity.group, identity.kind))
        place = _Place(at=f"objects[{i}]", declared=declared(kind.readings) if kind is not None else ())
        stray = next(chain(_differences(old, new, text, place), _shells(new, place)), None)
        if stray is not None:
            return stray
    return None


_AS_ONE = (
    "hand it over as one word or one value (if the upstream reads this place in a way of its own, say so in the kind's "
    "readings)"
)
_CURES = {
    Reading.SHELL: "a shell reads this place: shlex.quote each word, or hand it over in an environment variable",
    Reading.GO_TEMPLATE: "Go's text/template reads this place: write the word as a constant ({{`…`}}), or let "
    "can_handle refuse '{{'",
    Reading.DIGEST: "this place is declared as a digest: write nothing but one there",
}


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where a value stands: its path for people, the steps to it, and how places of its object are read."""

    at: str
    steps: Steps = ()
    declared: Declared = ()

    def below(self, step: str | int) -> _Place:
        at = f"{self.at}[{step}]" if isinstance(step, int) else f"{self.at}.{step}"
        return replace(self, at=at, steps=(*self.steps, step))

    @property
    def readings(self) -> tuple[Reading, ...]:
        return readings_at(self.steps, self.declared)

    def stray(self) -> _Stray:
        """Of several readings the one that is declared last is the one to quote for first."""
        return _Stray(at=self.at, cure=_CURES[self.readings[-1]] if self.readings else _AS_ONE)


def _differences(before: Any, after: Any, text: str, place: _Place) -> Iterator[_Stray]:
    if isinstance(before, dict) and isinstance(after, dict):
        wanted = {key.replace(_HARMLESS, text): key for key in before}
        if {_key(key, place): key for key in after}.keys() != wanted.keys():
            yield place.stray()
        else:
            for key, value in after.items():
                old = wanted[_key(key, place)]
                yield from _differences(before[old], value, text, place.below(old))
    elif isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            yield place.stray()
        else:
            for i, (old, new) in enumerate(zip(before, after, strict=True)):
                yield from _differences(old, new, text, place.below(i))
    elif not isinstance(before, str) or not isinstance(after, str):
        if before != after:
            yield place.stray()
    elif before != after:
        yield from _in_a_text(before, after, text, place)


def _key(key: str, place: _Place) -> str:
    """A key of a map as it arrives: templates are executed in keys too."""
    if Reading.GO_TEMPLATE not in place.readings:
        return key
    found = decoded(key, (Reading.GO_TEMPLATE,))
    return found if isinstance(found, str) else f"\0{key}"


def _in_a_text(before: str, after: str, text: str, place: _Place) -> Iterator[_Stray]:
    if Reading.DIGEST in place.readings:
        if not (_DIGEST.fullmatch(before) and _DIGEST.fullmatch(after) and len(before) == len(after)):
            yield place.stray()
        return
    if place.readings:
        as_read = _Place(at=place.at)
        old, new = (decoded(each, place.readings) for each in (before, after))
        if next(_differences(old, new, text, as_read), None):
            yield place.stray()
        return
    document = _document(before)
    if isinstance(document, dict | list):
        # What a text in a text is read as, no place says.
        yield from _differences(document, _document(after), text, _Place(at=f"{place.at}, in it"))
    elif after not in _with(before, text) and not (_stem(before) and _stem(before) == _stem(after)):
        yield place.stray()


def _stem(name: str) -> str:
    """What a name begins with that ends in a digest; empty for another one."""
    found = _WITH_DIGEST.fullmatch(name)
    return found[1] if found else ""


def _with(before: str, text: str) -> tuple[str, ...]:
    """What may come of a text with the harmless word: ``$$`` is a kubelet's way to write one that it leaves alone, and
    a name that an upstream derives from it may have others for dots and slashes (Ray's deployments).
    """
    forms = (text, text.replace("$", "$$"), text.replace("/", "--").replace(".", "_"))
    return tuple(before.replace(_HARMLESS, form) for form in forms)


def _document(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None


def _shells(node: Any, place: _Place) -> Iterator[_Stray]:
    """Commands that hand words to a shell, where no reading says so: one that does is checked by what it decodes to."""
    if isinstance(node, dict):
        command = node.get("command")
        if (
            isinstance(command, list)
            and command
            and str(command[0]).rpartition("/")[2] in _SHELLS
            and Reading.SHELL not in place.below("command").readings
        ):
            yield place.below("command").stray()
        for key, value in node.items():
            yield from _shells(value, place.below(key))
    elif isinstance(node, list):
        for i, value in enumerate(node):
            yield from _shells(value, place.below(i))
