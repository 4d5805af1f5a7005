"""The record of what a deployment runs with, ``status.revision``, and the one rule of what it keeps. Pure.

A revision has parts, each from one source outside of the deployment's own spec: the values of its template, the
settings of its runtime config, the claim of its model cache, its Gateway, and how its provider writes. Upstream objects
are made from the spec and the revision, and from nothing else.

Example: a deployment serves, and its runtime config gets another variable. `next_revision` keeps the part ``settings``
and notes in ``pending`` that ``env HF_HOME`` waits. The next edit of the deployment's own spec takes it; a wave of
``rollout: Immediately`` takes it earlier.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from airunway.resource import Resource, dig, digest, filled, format_time, list_at, mapping_at, text_at

HASH_LENGTH = 16
"""Hexadecimal digits of the digests of a revision."""

TEMPLATE, SETTINGS, CACHE, GATEWAY, PROVIDER = PARTS = ("template", "settings", "cache", "gateway", "provider")
"""The parts of a revision."""

_WAITING = (TEMPLATE, SETTINGS, CACHE)
"""Parts of which something newer may wait for a wave. The Gateway is decided once, and a provider says itself what is
newer of it.
"""

_LONGEST = 1024
"""Characters of one of ``pending.changes``: the names of all variables of a config may be more."""

_LABELS = {SETTINGS: ("config", "configHash"), TEMPLATE: ("ref", "scope", "hash", "asked")}
"""What of a part only says where it comes from: a part that differs in nothing else is not newer."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the parts would be if all were taken now."""

    taken_for: str
    """Digest of the deployment's own spec (`same_spec.taken_for`)."""
    adopted: str = ""
    """Digest of the last value of the adopt annotation."""
    provider: str = ""
    """The provider that the deployment has; empty while there is none."""
    parts: Mapping[str, Resource] = field(default_factory=dict)
    """The value of each part that has one. A part that is missing gives nothing."""
    undecided: frozenset[str] = frozenset()
    """Parts whose source has not answered yet: a claim without a name, a route without a Gateway."""
    unusable: frozenset[str] = frozenset()
    """Parts whose source cannot be used or is gone: they keep their value."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What decides whether a deployment keeps its parts."""

    served: bool
    """Whether it has served since its objects were made."""
    granted: Collection[str] = ()
    """Parts that a wave lets it take."""
    stranded: bool = False
    """Whether no pod is ready and the claim of its cache is lost."""
    made: bool = False
    """Whether its provider has made an object."""
    rolls_out: Collection[str] = ()
    """Parts that its runtime config lets it take in a wave."""


def revision_in(deployment: Resource) -> Resource:
    """Returns the revision in the status; empty if there is none, or if its hash is not that of its parts: a revision
    that another writer has changed counts for as little as one that is lost.
    """
    found = mapping_at(deployment, "status", "revision")
    hash_ = found.get("hash")
    return found if hash_ in (None, "") or hash_ == hash_of(found) else {}


def hash_of(revision: Resource) -> str:
    """Returns the digest of everything in a revision but its hash and what is pending."""
    return digest({key: value for key, value in revision.items() if key not in ("hash", "pending")}, length=HASH_LENGTH)


def is_changed(current: Resource, wanted: Wanted) -> bool:
    """Whether the user has changed the deployment's own spec, or adopted, since `current` was made."""
    return current.get("takenFor") != wanted.taken_for


def takes(part: str, current: Resource, *, changed: bool, standing: Standing) -> bool:
    """Whether the newest value of a part is taken: the one rule."""
    return (
        not current
        or changed
        or not standing.served
        or part in standing.granted
        or (part == CACHE and standing.stranded)
    )


def next_revision(current: Resource, wanted: Wanted, standing: Standing, *, now: datetime) -> Resource:
    """Returns the revision to publish, with what is newer and not taken as ``pending``.

    Without ``hash`` it is not whole: a part is not decided yet, ``pending.waitsFor`` names it, and no provider may use
    it. That part keeps its earlier value meanwhile, with which the deployment may serve. Empty if a part cannot be used
    and there is no value of it to keep.
    """
    changed = is_changed(current, wanted)
    another = bool(wanted.provider) and text_at(current, PROVIDER, "name") not in ("", wanted.provider)
    changed = changed or another
    open_ = [] if current.get("hash") else list_at(current, "pending", "parts")
    parts: dict[str, Resource] = {}
    missing, restarts = [], False
    for part in PARTS:
        before: Resource = mapping_at(current, part)
        new: Resource = wanted.parts.get(part, {})
        value: Resource = before
        renamed = part == SETTINGS and before.get("config") != new.get("config")  # the user names another config
        if part in wanted.unusable and not current.get("takenFor"):
            return {}
        if part in wanted.unusable:
            pass
        elif part == GATEWAY and current.get("hash") and standing.made and not another:
            value = before if new or not changed else {}  # decided once, for as long as the object lives
        elif part in wanted.undecided:
            # Other values of a template may ask for other weights: the claim is not decided for them yet.
            moved = part == CACHE and parts.get(TEMPLATE, {}) != mapping_at(current, TEMPLATE)
            if changed or moved or not before or part in open_:
                missing.append(part)  # what serves has `before` meanwhile
        elif (
            takes(part, current, changed=changed, standing=standing)
            or part in open_
            or (part == CACHE and restarts)
            or renamed
        ):
            value = new if changed or renamed or not _is_same(part, before, new) else before
        restarts = restarts or not _is_same(part, before, value)  # its pods must not start on a claim that is lost
        if value:
            parts[part] = value
    made: Resource = {"takenFor": wanted.taken_for, **filled(adopted=wanted.adopted), **parts}
    if missing:
        return {**made, "pending": {"waitsFor": missing[0], "parts": missing}}
    made = {"hash": hash_of(made), **made}
    newer = {part: found for part in (*_WAITING, GATEWAY) if (found := _newer(part, made, wanted)) is not None}
    if newer:
        then = {**{key: value for key, value in made.items() if key not in newer}, **filled(**newer)}
        made["pending"] = {
            "hash": hash_of(then),
            "since": text_at(current, "pending", "since") or format_time(now),
            "parts": list(newer),
            "changes": [
                each if len(each) <= _LONGEST else f"{each[: _LONGEST - 1]}…"
                for part in newer
                for each in changes(part, mapping_at(made, part), newer[part])
            ],
            "waitsFor": "rollout" if any(part in standing.rolls_out for part in newer) else "change",
        }
    return made


def _newer(part: str, made: Resource, wanted: Wanted) -> Resource | None:
    """The value of a part that is newer than the one that was made; None if there is none."""
    if part in wanted.unusable or part in wanted.undecided:
        return None
    new, value = wanted.parts.get(part, {}), mapping_at(made, part)
    if part == GATEWAY:  # of this part only its end waits: routing was switched off
        return {} if value and not new else None
    return None if _is_same(part, value, new) else new


def _is_same(part: str, before: Resource, new: Resource) -> bool:
    """Whether two values of a part make the same objects."""
    return _content(part, before) == _content(part, new)


def _content(part: str, value: Resource) -> Resource:
    return {key: each for key, each in value.items() if key not in _LABELS.get(part, ())}


# --------------------------------------------------------------------------------------------- what waits, by name


def changes(part: str, before: Resource, after: Resource) -> Iterator[str]:
    """Yields what differs between two values of a part, by name and never by value: ``env A, B``, ``claim x``."""
    if part == CACHE:
        if before.get("claim") != after.get("claim"):
            yield f"claim {after.get('claim') or 'none'}"
        else:
            yield "the place of the weights"
    elif part == GATEWAY:
        yield "gateway none"
    elif part == TEMPLATE:
        old, new = mapping_at(before, "spec"), mapping_at(after, "spec")
        yield f"template {', '.join(sorted(_leaves(old, new)))}"
    else:
        yield from changed_settings(before, after)


def _leaves(old: Resource, new: Resource, path: str = "", depth: int = 2) -> Iterator[str]:
    for key in old.keys() | new.keys():
        before, after = old.get(key), new.get(key)
        if before == after:
            continue
        if depth > 1 and isinstance(before, dict) and isinstance(after, dict):
            yield from _leaves(before, after, f"{path}{key}.", depth - 1)
        else:
            yield f"{path}{key}"


def changed_settings(before: Resource, after: Resource) -> Iterator[str]:
    """Yields what differs between two parts ``settings``: ``env A, B``, ``the Hugging Face token``."""
    old = {text_at(entry, "name"): entry for entry in list_at(before, "env")}
    new = {text_at(entry, "name"): entry for entry in list_at(after, "env")}
    if variables := _differing(old, new):
        yield f"env {', '.join(variables)}"
    elif list(old) != list(new):
        yield "the order of env"
    for name, text in (
        ("imagePullSecrets", "imagePullSecrets"),
        ("token", "the Hugging Face token"),
        ("runtimeClassName", "runtimeClassName"),
    ):
        if before.get(name) != after.get(name):
            yield text
    if labels := _differing(mapping_at(before, "labels"), mapping_at(after, "labels")):
        yield f"labels {', '.join(labels)}"


def _differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    return [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]


def pending_parts(deployment: Resource) -> frozenset[str]:
    """Returns the parts of which something newer waits."""
    revision = mapping_at(deployment, "status", "revision")
    found = list_at(revision, "pending", "parts") if revision.get("hash") else ()
    return frozenset(each for each in found if each in _WAITING)


def waits_for(deployment: Resource) -> str:
    """Returns the part that is not decided yet; empty if the revision is whole, or if there is none."""
    revision = mapping_at(deployment, "status", "revision")
    return "" if revision.get("hash") else text_at(revision, "pending", "waitsFor")


def is_in_effect(deployment: Resource) -> bool:
    """Whether the provider's objects were written from the revision in the status."""
    hash_ = dig(deployment, "status", "revision", "hash")
    return bool(hash_) and hash_ == dig(deployment, "status", "provider", "revision")
