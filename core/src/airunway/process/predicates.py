"""Predicates: which changes of a ModelDeployment need a reconcile, and which are only echoes of our own writes.

The old and the new object are compared. So a change by others is found whether it arrives as an event of its own or
together with the echo (after a relist or out of order).

Worked example: the provider writes ``status.phase: Running`` and its watch delivers that write: no reconcile. If the
same event also carries a new ``status.provider`` by the core, it needs one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from airunway.api.bounds import EXCESS
from airunway.api.names import GROUP
from airunway.resource import (
    Resource,
    annotations_of,
    condition_of,
    dig,
    finalizers_of,
    is_deleting,
    kept,
    labels_of,
    managed_by,
)


def has_our_prefix(key: str) -> bool:
    """Whether a label or an annotation has our prefix."""
    return key.startswith(f"{GROUP}/")


_IDENTITY = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp")


@dataclass(frozen=True, kw_only=True)
class Reads:
    """What the passes of a part read of an object that others write, declared once: predicates compare it, and a cache
    may drop everything else. There is no resync: a change of what is not declared brings no pass.
    """

    metadata: tuple[str, ...] = ()
    status: tuple[str, ...] = ()
    """Fields of the status, such as ``provider.name``."""
    conditions: tuple[str, ...] = ()
    made: tuple[Callable[[Resource], object], ...] = ()
    """What is made of fields whose other changes do not matter."""

    def of(self, obj: Resource | None) -> tuple[object, ...] | None:
        """What is read of an object, to be compared."""
        if obj is None:
            return None
        return (
            *(dig(obj, "metadata", field) for field in self.metadata),
            *(dig(obj, "status", *path.split(".")) for path in self.status),
            *(condition_of(obj, type_) for type_ in self.conditions),
            *(make(obj) for make in self.made),
        )

    def project(self, obj: Resource) -> Resource:
        """The fields that are read, with what identifies the object; what `made` reads is not kept."""
        status: Resource = {}
        for *above, last in (path.split(".") for path in self.status):
            if (value := dig(obj, "status", *above, last)) is not None:
                node = status
                for step in above:
                    node = node.setdefault(step, {})
                node[last] = value
        return {"metadata": kept(obj.get("metadata"), *_IDENTITY, *self.metadata), "status": status}


@dataclass(frozen=True, kw_only=True)
class RelevantMetadata:
    """The metadata whose changes need a reconcile, in addition to uid and generation."""

    labels: Callable[[str], bool] = lambda _: False
    """Whether a label counts, by its key."""
    annotations: Callable[[str], bool] = has_our_prefix
    """Whether an annotation counts, by its key."""
    finalizers: Callable[[str], bool] = lambda _: False
    """Whether a finalizer counts while the deployment is not being deleted."""
    status: Callable[[Resource], object] | None = None
    """What the reader uses of the status that others write; None: all of it."""
    by_labels: Callable[[Resource], object] = lambda _: None
    """What the reader makes of all labels together; called only for a change of labels."""


def needs_reconcile(old: Resource, new: Resource, *, manager: str, echo: bool, relevant: RelevantMetadata) -> bool:
    """Whether `manager` has to reconcile a deployment that changed from `old` to `new`.

    `echo` is whether `new` is the answer to its own last write: then its own fields of the status are known to it. Both
    objects come from a cache, with the managedFields of `manager`.
    """
    if is_deleting(old) or is_deleting(new) or _relevant(old, relevant) != _relevant(new, relevant):
        return True
    if any(relevant.finalizers(finalizer) for finalizer in set(finalizers_of(old)) ^ set(finalizers_of(new))):
        return True
    if labels_of(old) != labels_of(new) and relevant.by_labels(old) != relevant.by_labels(new):
        return True
    before, after = _owned(old, manager), _owned(new, manager)
    if relevant.status is not None:
        if relevant.status(old) != relevant.status(new):
            return True
        if echo:
            return _taken_over(new, before, after)
        return (_own_part(old, before), before) != (_own_part(new, after), after)
    if echo:
        return _of_others(old, before, after) != _of_others(new, after)
    return (old.get("status"), before) != (new.get("status"), after)


def is_user_edit(old: Resource | None, new: Resource | None) -> bool:
    """Whether a user changed the spec, labels or annotations of an existing object; no deletion, no status."""
    if old is None or new is None or (is_deleting(new) and not is_deleting(old)):
        return False
    return _of_users(old) != _of_users(new)


def _of_users(obj: Resource) -> tuple[object, ...]:
    return dig(obj, "metadata", "generation"), labels_of(obj), annotations_of(obj)


def _relevant(obj: Resource, relevant: RelevantMetadata) -> tuple[object, ...]:
    """The generation stands for the spec. EXCESS is included because the rest of an oversized object is incomplete."""
    labels = {key: value for key, value in labels_of(obj).items() if relevant.labels(key)}
    annotations = {key: value for key, value in annotations_of(obj).items() if relevant.annotations(key)}
    return dig(obj, "metadata", "uid"), dig(obj, "metadata", "generation"), labels, annotations, obj.get(EXCESS)


def _owned(obj: Resource, manager: str) -> Resource:
    """The fields of the status that `manager` has applied, from managedFields."""
    found: Resource = {}
    for entry in managed_by(obj, manager):
        if entry.get("subresource") == "status":
            found |= dig(entry, "fieldsV1", "f:status", default={})
    return found


def _own_part(obj: Resource, owned: Resource) -> Resource:
    """The owned fields of the status; of fields owned in part (conditions, maps), the owned entries."""
    found: Resource = {}
    for name, value in (obj.get("status") or {}).items():
        part = owned.get(f"f:{name}")
        if part is None:
            continue
        if part and isinstance(value, list):
            value = [each for each in value if f'k:{{"type":"{dig(each, "type")}"}}' in part]
        elif part and isinstance(value, dict):
            value = {key: each for key, each in value.items() if f"f:{key}" in part}
        found[name] = value
    return found


def _taken_over(new: Resource, before: Resource, after: Resource) -> bool:
    """Whether another manager now owns a part of the status that was ours."""
    left = _own_part(new, after)
    for name, value in _own_part(new, before).items():
        kept = left.get(name)
        if isinstance(value, list) and isinstance(kept, list):
            if any(each not in kept for each in value):
                return True
        elif isinstance(value, dict) and isinstance(kept, dict):
            if not value.keys() <= kept.keys():
                return True
        elif kept is None and value not in ([], {}):
            return True
    return False


def _of_others(obj: Resource, *owned: Resource) -> Resource:
    """The status without the owned fields; of fields owned in part (conditions, maps), the rest."""
    left: Resource = {}
    for name, value in (obj.get("status") or {}).items():
        parts = [fields[f"f:{name}"] for fields in owned if f"f:{name}" in fields]
        if not all(parts):
            continue  # owned as a whole
        if parts and isinstance(value, list):
            value = [each for each in value if not any(f'k:{{"type":"{dig(each, "type")}"}}' in part for part in parts)]
        elif parts and isinstance(value, dict):
            value = {key: each for key, each in value.items() if not any(f"f:{key}" in part for part in parts)}
        if value not in ([], {}):
            left[name] = value
    return left
