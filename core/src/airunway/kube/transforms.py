"""Transforms (client-go: TransformFunc): they remove or share parts of objects before a cache keeps them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from typing import Any

import orjson

from airunway.resource import LAST_APPLIED, Resource, dig, uid_of

_MAX_SHARED = 1024
"""How many different field sets, or conditions, are remembered; at the limit all are forgotten."""

_LONGEST_SHARED = 256
"""Characters of a text that is shared; longer texts are rarely equal."""

_PLAIN = frozenset((str, int))
"""Types of the values of a condition. Not bool, because True equals 1."""

_LONGEST_FIELDS = 4096
"""Bytes of a field set that is shared; larger ones are rarely equal, and not ours."""

_MAX_REMEMBERED = 64
"""How many object states are remembered for their second appearance; more than there are writes at a time."""

_DIFFERENT = frozenset({"f:ownerReferences"})
"""Field sets of the metadata that name a uid: no two objects have the same."""


def compact_bytes(text: bytes) -> bytes:
    """The same bytes in a block of their own size, for keeping: orjson returns them in a buffer of whole KiBs."""
    return bytes(memoryview(text))


def strip_managed_fields(keep: str | Collection[str] = ()) -> Callable[[Resource], Resource]:
    """Returns a transform that removes kubectl's copy of the object, and all managedFields entries but those of `keep`.

    Together they are often half of an object. If `keep` names our field manager (or those of all readers of the cache),
    `needs_apply` still works on the result; `changed_fields` does not. Equal field sets are kept once for all objects:
    the objects of one controller differ in values, rarely in fields, and a field set takes more memory than the fields
    that it lists.
    """
    managers = tuple(filter(None, (keep,) if isinstance(keep, str) else keep))
    shared: dict[bytes, Resource] = {}

    def share(entry: Resource) -> Resource:
        fields = entry.get("fieldsV1")
        if isinstance(fields, dict):
            if len(shared) >= _MAX_SHARED:
                shared.clear()
            for part, below in fields.items():
                # Each part on its own: the owner's uid in the metadata differs and would prevent all sharing.
                if part == "f:metadata" and isinstance(below, dict):
                    below.update((k, shared_part(value)) for k, value in list(below.items()) if k not in _DIFFERENT)
                else:
                    fields[part] = shared_part(below)
        return entry

    def shared_part(fields: Resource) -> Resource:
        if not fields:
            return fields
        try:
            text = orjson.dumps(fields)
        except TypeError:  # nested deeper than orjson allows: the fields of a free-form object
            return fields
        if len(text) > _LONGEST_FIELDS:
            return fields
        known = shared.get(text)
        if known is None:
            known = shared[compact_bytes(text)] = fields
        return known

    def project(obj: Resource) -> Resource:
        metadata = obj.get("metadata")
        if not isinstance(metadata, dict):
            return obj
        entries = metadata.get("managedFields")
        if isinstance(entries, list):
            kept = [share(e) for e in entries if isinstance(e, dict) and e.get("manager") in managers]
            if kept:
                metadata["managedFields"] = kept
            else:
                del metadata["managedFields"]
        annotations = metadata.get("annotations")
        if isinstance(annotations, dict):
            annotations.pop(LAST_APPLIED, None)
            if not annotations:
                del metadata["annotations"]
        return obj

    return project


def intern_status() -> Callable[[Resource], Resource]:
    """Returns a transform that keeps equal texts and equal conditions of a status once for all objects.

    Conditions are a third of an object: the same few types, reasons and messages in every one, and the same times if
    many objects change at once.
    """
    shared: dict[tuple[tuple[str, str | int], ...], Resource] = {}

    def share(condition: Any) -> Any:
        if not isinstance(condition, dict):
            return condition
        if not _PLAIN.issuperset(map(type, condition.values())):
            return _with_shared_texts(condition)  # not a plain condition
        known = shared.get(tuple(condition.items()))
        if known is None:
            known = _with_shared_texts(condition)
            shared[tuple(known.items())] = known
        return known

    def project(obj: Resource) -> Resource:
        status = obj.get("status")
        if isinstance(status, dict):
            conditions = status.get("conditions")
            if isinstance(conditions, list):
                if len(shared) >= _MAX_SHARED:
                    shared.clear()
                # Equal conditions already share their texts, so they are handled first.
                rest = {name: part for name, part in status.items() if name != "conditions"}
                status.update(_with_shared_texts(rest), conditions=list(map(share, conditions)))
            else:
                _with_shared_texts(status)
        return obj

    return project


def compact_objects(keep: str | Collection[str]) -> Callable[[Resource], Resource]:
    """Both transforms, one after the other."""
    strip, share = strip_managed_fields(keep), intern_status()
    return lambda obj: share(strip(obj))


def transform_once(project: Callable[[Resource], Resource]) -> Callable[[Resource], Resource]:
    """Returns a transform that runs `project` once for each state of an object.

    Every write of ours comes back as an event. The answer to a write and its event are the same state: the second one
    gets the result of the first, so that the state is kept once. The key includes the apiVersion, because an object
    that is read in two versions of its kind has one uid and resourceVersion but two forms.
    """
    known: dict[tuple[str, str, str], Resource] = {}

    def remembered(obj: Resource) -> Resource:
        uid, version = uid_of(obj), str(dig(obj, "metadata", "resourceVersion", default=""))
        if not uid or not version:
            return project(obj)
        state = (str(obj.get("apiVersion", "")), uid, version)
        if (found := known.pop(state, None)) is not None:
            return found  # a state appears at most twice
        if len(known) >= _MAX_REMEMBERED:
            del known[next(iter(known))]
        known[state] = found = project(obj)
        return found

    return remembered


def _with_shared_texts(part: Resource) -> Resource:
    """Returns `part` with each short text replaced by the one shared copy of it."""
    # An explicit stack instead of recursion: objects of other controllers may be nested to any depth.
    left: list[Any] = [part]
    while left:
        node = left.pop()
        for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
            if isinstance(value, dict | list):
                left.append(value)
            elif type(value) is str and len(value) <= _LONGEST_SHARED:
                node[key] = sys.intern(value)
    return part
