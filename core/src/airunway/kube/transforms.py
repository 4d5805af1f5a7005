"""Transforms (client-go: TransformFunc): what a cache leaves out of the objects that it keeps."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from typing import Any

import orjson

from airunway.resource import Resource, dig, uid_of

__all__ = ["LAST_APPLIED", "compact_objects", "intern_status", "strip_managed_fields", "transform_once"]

_MAX_SHARED = 1024
"""Different field sets, or conditions, that are remembered; when there are more, remembering starts over."""

_LONGEST_SHARED = 256
"""Longer texts are hardly ever equal."""

_PLAIN = frozenset((str, int))
"""Types of the values of a condition. Not bool, which is equal to a number."""

_LONGEST_FIELDS = 4096
"""Bytes of a field set that is shared; larger ones are hardly ever equal, and somebody else's."""

_MAX_REMEMBERED = 64
"""States of objects that may come a second time; more than are written at a time."""

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation in which kubectl keeps a copy of the object as it was applied."""


def strip_managed_fields(keep: str | Collection[str] = ()) -> Callable[[Resource], Resource]:
    """A projection that drops the managedFields entries of everybody but `keep`, and kubectl's copy of the object.

    Together they are often half of an object. With `keep` set to our field manager (or to those of all who read the
    cache), `needs_apply` still works on what is left; `changed_fields` does not. Equal field sets are kept once for all
    objects: those that one controller makes differ in their values, rarely in their fields, and a field set takes more
    memory than what it describes.
    """
    managers = tuple(filter(None, (keep,) if isinstance(keep, str) else keep))
    shared: dict[bytes, Resource] = {}

    def share(entry: Resource) -> Resource:
        fields = entry.get("fieldsV1")
        if isinstance(fields, dict):
            if len(shared) >= _MAX_SHARED:
                shared.clear()
            for part, below in fields.items():
                # By part: an owner's uid among the metadata must not keep all the rest from being shared.
                if part == "f:metadata" and isinstance(below, dict):
                    below.update((key, shared_part(value)) for key, value in list(below.items()))
                else:
                    fields[part] = shared_part(below)
        return entry

    def shared_part(fields: Resource) -> Resource:
        if not fields:
            return fields
        try:
            text = orjson.dumps(fields)
        except TypeError:  # nested deeper than orjson goes: the fields of something free-form
            return fields
        return shared.setdefault(text, fields) if len(text) <= _LONGEST_FIELDS else fields

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
    """A projection that keeps equal texts and equal conditions of a status once for all objects.

    A third of an object are its conditions: the same few types, reasons and messages in every one, and the same times
    where many objects change at once.
    """
    shared: dict[tuple[tuple[str, str | int], ...], Resource] = {}

    def share(condition: Any) -> Any:
        if not isinstance(condition, dict):
            return condition
        if not _PLAIN.issuperset(map(type, condition.values())):
            return _with_shared_texts(condition)  # of unusual make, or nested
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
                # Equal ones have their texts in common already: they are looked for first.
                rest = {name: part for name, part in status.items() if name != "conditions"}
                status.update(_with_shared_texts(rest), conditions=list(map(share, conditions)))
            else:
                _with_shared_texts(status)
        return obj

    return project


def compact_objects(keep: str | Collection[str]) -> Callable[[Resource], Resource]:
    """Both projections, one after the other."""
    strip, share = strip_managed_fields(keep), intern_status()
    return lambda obj: share(strip(obj))


def transform_once(project: Callable[[Resource], Resource]) -> Callable[[Resource], Resource]:
    """The projection, made once for each state of an object: every write of ours comes back as an event.

    Of the answer to a write and of its echo, whichever is second is the first one's result, and is kept once. An object
    that is read in two versions of its kind has one uid and one state, and two forms.
    """
    known: dict[tuple[str, str, str], Resource] = {}

    def remembered(obj: Resource) -> Resource:
        uid, version = uid_of(obj), str(dig(obj, "metadata", "resourceVersion", default=""))
        if not uid or not version:
            return project(obj)
        state = (str(obj.get("apiVersion", "")), uid, version)
        if (found := known.pop(state, None)) is not None:
            return found  # there is no third time
        if len(known) >= _MAX_REMEMBERED:
            del known[next(iter(known))]
        known[state] = found = project(obj)
        return found

    return remembered


def _with_shared_texts(part: Resource) -> Resource:
    """The same, every short text in it being the one that stands for all equal ones."""
    # An explicit list of what is left to do: what others wrote may be nested to any depth.
    left: list[Any] = [part]
    while left:
        node = left.pop()
        for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
            if isinstance(value, dict | list):
                left.append(value)
            elif type(value) is str and len(value) <= _LONGEST_SHARED:
                node[key] = sys.intern(value)
    return part
