"""Whatever a user writes arrives as data, or is refused: no word of it becomes two, a key, or part of a command.

Each text stands in each field once, next to a harmless word in the same place. What is written for the two has to be
the same but for the text itself; a text inside of another document (JSON or YAML in a field) is looked for in there.
Where a kind's `readings` say that the upstream reads a place before it takes it for a value, what it reads is compared.

A translation takes a text in many fields at once (`_Groups`). Only the fields of a translation in which something is
wrong are asked one by one, so that the sentences name them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

import orjson
import yaml

from airunway.api.base import ParseError
from airunway.owned.objects import identity_in
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource, canonical_json, dig
from airunway.runtime.translate import check_overrides
from airunway.sdk import Reading
from airunway_testing.conformance.cases import Base, bases, context_of, judged, merged_spec
from airunway_testing.conformance.fields import plain
from airunway_testing.conformance.readings import Declared, Steps, declared, decoded, readings_at

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
_WORD = re.compile(rf"{_HARMLESS}(?:\d{{3}})?")
"""The harmless word, or that of one field among several."""
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
class _Entry:
    """One reported cause: the first of its strays, and the fields and deployments of all."""

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
    entries: dict[tuple[str, str], _Entry] = {}
    puzzling: dict[str, list[str]] = {}
    refused: set[tuple[str, str]] = set()
    for base in bases(host) if asked is None else asked:
        judge = _judge(host, base)
        suspects = set(_Groups(judge, places, refused).suspects())
        for field, place in ((field, place) for field, place in places.items() if field in suspects):
            harmless = judge(place(_HARMLESS))
            for text in HOSTILE:
                found = judge(place(text))
                if found is None:
                    continue
                if harmless is None:
                    puzzling.setdefault(
                        f"{field} with {text[:24]!r} is taken, where a plain word is refused", []
                    ).append(base.name)
                    break
                if (stray := _strays(harmless, found, text)) is not None:
                    entry = entries.setdefault(stray.cause, _Entry(stray=stray, text=text, fields={}, bases={}))
                    entry.fields[field] = entry.bases[base.name] = None
                    break
    yield from (f"{_some(names)}: {sentence}" for sentence, names in puzzling.items())
    yield from map(str, entries.values())


@dataclass(frozen=True, kw_only=True)
class _Object:
    """One object of a translation that is compared with the object of another one."""

    content: Resource
    place: _Place
    shell: _Stray | None
    """The first command of it that hands words to a shell."""


def _judge(host: ProviderHost, base: Base) -> Callable[[Resource], list[_Object] | None]:
    """Translates the spec of `base` with a change in it; None for a deployment that is refused."""
    context = context_of(host, base)
    schema = canonical_json(host.manifest.override_schema)

    def judge(change: Resource) -> list[_Object] | None:
        spec = merged_spec(base.spec, change)
        overrides = dig(spec, "provider", "overrides", default=None)
        if isinstance(overrides, dict) and _refused_overrides(schema, canonical_json(overrides)):
            return None
        try:
            found = judged(host, base, spec, context=context)
        except ParseError:
            return None
        return None if found.blockers else [_object(host, obj, f"objects[{i}]") for i, obj in enumerate(found.objects)]

    return judge


@lru_cache(maxsize=4096)
def _refused_overrides(schema: bytes, overrides: bytes) -> bool:
    """The runtime refuses these overrides for any deployment, before it calls the provider."""
    return bool(check_overrides(orjson.loads(overrides), orjson.loads(schema)).errors)


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


class _Groups:
    """Finds the fields of one base in which a text may be more than a value, with few translations.

    A group is a set of fields that can be set together and do not hide each other: every place of the objects at which
    the harmless word of a field stands when the field is set alone has it in the group's translation too. So what a
    text does in a field shows in the translation of the group.
    """

    def __init__(
        self,
        judge: Callable[[Resource], list[_Object] | None],
        places: Mapping[str, Callable[[str], Resource]],
        refused: set[tuple[str, str]],
    ) -> None:
        self._judge = judge
        self._places = places
        self._refused = refused
        """Fields and texts that some base refused: they are asked alone, or each group with them would be refused."""
        self._words = {field: f"{_HARMLESS}{i:03}" for i, field in enumerate(places)}
        self._harmless: dict[tuple[str, ...], list[_Object] | None] = {}
        self._shown: dict[tuple[str, ...], Counter[tuple[str, Steps]]] = {}
        """The places at which the words of these fields stand, if all of them are set."""

    def suspects(self) -> Iterator[str]:
        """Fields that refuse the harmless word, or in which a text changes more than its own value."""
        refusing = [field for field in self._places if self._with_words((field,)) is None]
        yield from refusing
        for group in self._groups(tuple(field for field in self._places if field not in refusing)):
            for text in HOSTILE:
                alone = [field for field in group if (field, text) in self._refused]
                together = tuple(field for field in group if field not in alone)
                for fields in [(field,) for field in alone] + ([together] if together else []):
                    yield from self._suspects(fields, text)

    def _suspects(self, fields: tuple[str, ...], text: str) -> Iterator[str]:
        harmless = self._with_words(fields) if self._fit(fields) else None
        found = self._judge(self._change(fields, lambda _: text)) if harmless is not None else None
        if harmless is not None and found is not None:
            if _strays(harmless, found, text) is not None:
                yield from fields
        elif len(fields) > 1:
            middle = len(fields) // 2
            yield from self._suspects(fields[:middle], text)
            yield from self._suspects(fields[middle:], text)
        else:
            self._refused.add((fields[0], text))

    def _groups(self, fields: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        while fields:
            group: tuple[str, ...] = ()
            for field in fields:
                change = self._places[field](_HARMLESS)
                if all(_disjoint(change, self._places[other](_HARMLESS)) for other in group):
                    group = (*group, field)
            while len(group) > 1 and not self._fit(group):
                shown = self._shown_by(group)
                fitting = tuple(field for field in group if self._shown_by((field,)) <= shown)
                group = fitting if 0 < len(fitting) < len(group) else group[: len(group) // 2]
            yield group
            fields = tuple(field for field in fields if field not in group)

    def _fit(self, fields: tuple[str, ...]) -> bool:
        """Whether these fields, set together, are taken and none hides another."""
        if self._with_words(fields) is None:
            return False
        return len(fields) == 1 or all(self._shown_by((field,)) <= self._shown_by(fields) for field in fields)

    def _shown_by(self, fields: tuple[str, ...]) -> Counter[tuple[str, Steps]]:
        if fields not in self._shown:
            self._shown[fields] = _words_in(self._with_words(fields) or [])
        return self._shown[fields]

    def _with_words(self, fields: tuple[str, ...]) -> list[_Object] | None:
        if fields not in self._harmless:
            self._harmless[fields] = self._judge(self._change(fields, self._words.__getitem__))
        return self._harmless[fields]

    def _change(self, fields: Sequence[str], text_of: Callable[[str], str]) -> Resource:
        return merged_spec({}, *(self._places[field](text_of(field)) for field in fields))


def _disjoint(one: Resource, other: Resource) -> bool:
    """Whether both changes can be merged into one spec, and neither takes anything of the other away."""
    shared = ((one[key], other[key]) for key in one.keys() & other.keys())
    return all(isinstance(a, dict) and isinstance(b, dict) and _disjoint(a, b) for a, b in shared)


def _words_in(objects: Sequence[_Object]) -> Counter[tuple[str, Steps]]:
    """How often each field's word stands at each place of the objects; items of lists are alike."""
    found: Counter[tuple[str, Steps]] = Counter()

    def walk(node: Any, steps: Steps) -> None:
        if isinstance(node, str):
            if _HARMLESS in node:
                found.update((word, steps) for word in _WORD.findall(node))
        elif isinstance(node, dict):
            for key, value in node.items():
                walk(key, (*steps, ""))
                walk(value, (*steps, key))
        elif isinstance(node, list):
            for item in node:
                walk(item, (*steps, 0))

    for i, each in enumerate(objects):
        walk(each.content, (i,))
    return found


def _object(host: ProviderHost, obj: Resource, at: str) -> _Object:
    identity = identity_in(obj)
    kind = host.kinds.get((identity.group, identity.kind))
    place = _Place(at=at, declared=declared(kind.readings) if kind is not None else ())
    return _Object(content=plain(obj), place=place, shell=next(_shells(obj, place), None))


def _strays(harmless: Sequence[_Object], found: Sequence[_Object], text: str) -> _Stray | None:
    """The first place at which two judgements differ by more than the text that stands for the harmless word."""
    if len(harmless) != len(found):
        return _Stray(at="objects", cure=_AS_ONE)
    for old, new in zip(harmless, found, strict=True):
        stray = next(_differences(old.content, new.content, text, new.place), new.shell)
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
        return _Place(at=at, steps=(*self.steps, step), declared=self.declared)

    @property
    def readings(self) -> tuple[Reading, ...]:
        return readings_at(self.steps, self.declared)

    def stray(self) -> _Stray:
        """Of several readings the one that is declared last is the one to quote for first."""
        return _Stray(at=self.at, cure=_CURES[self.readings[-1]] if self.readings else _AS_ONE)


def _differences(before: Any, after: Any, text: str, place: _Place) -> Iterator[_Stray]:
    if before == after:  # nearly all of an object: a field shows in a few places
        return
    if isinstance(before, dict) and isinstance(after, dict):
        wanted = {_said(key, text): key for key in before}
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
    return tuple(_said(before, form) for form in forms)


def _said(before: str, text: str) -> str:
    """The text in place of the harmless words."""
    return _WORD.sub(lambda _: text, before) if _HARMLESS in before else before


_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@lru_cache(maxsize=256)
def _document(text: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError:
        return None


def _shells(obj: Resource, place: _Place) -> Iterator[_Stray]:
    """Commands that hand words to a shell, where no reading says so: one that does is checked by what it decodes to."""
    for steps in _commands(obj, ()):
        at = reduce(_Place.below, steps, place)
        if Reading.SHELL not in at.readings:
            yield at.stray()


def _commands(node: Any, steps: Steps) -> Iterator[Steps]:
    """Where a command is that begins with a shell."""
    if isinstance(node, dict):
        command = node.get("command")
        if isinstance(command, list) and command and str(command[0]).rpartition("/")[2] in _SHELLS:
            yield (*steps, "command")
        for key, value in node.items():
            if isinstance(value, dict | list):
                yield from _commands(value, (*steps, key))
    else:
        for i, value in enumerate(node):
            if isinstance(value, dict | list):
                yield from _commands(value, (*steps, i))
