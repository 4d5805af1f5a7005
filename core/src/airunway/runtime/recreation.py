"""Which changes of a deployment recreate its upstream object, and which interrupt it (spec rulings 9 and 10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from airunway.api import names
from airunway.api.modeldeployment import ModelDeployment
from airunway.plugins.contract import Interruption
from airunway.resource import (
    Resource,
    annotations_of,
    canonical_json,
    digest,
)
from airunway.runtime.state import is_primary

__all__ = [
    "INTERRUPTS_ON_CHANGE",
    "REPLACE_ON_CHANGE",
    "identity_of",
    "interruption_record",
    "interruptions",
    "recreate_causes",
    "replacement_record",
]


REPLACE_ON_CHANGE = f"{names.GROUP}/replace-on-change"
"""Annotation: JSON map of digests of everything whose change needs a new object, in three groups.

They are digests of what *we* requested, not of the live object, because upstream webhooks set further fields, and a
value that we no longer set must count as a change. ``deployment`` is its identity; ``topology`` is the plugin's
``replace_on``; ``object`` are paths of the object itself, which are valid in one API version only.
"""


INTERRUPTS_ON_CHANGE = f"{names.GROUP}/interrupts-on-change"
"""Annotation of the primary object: JSON map of what interrupts serving when it changes in place, with a digest and the
message (`Interruption`).
"""


_SHORT = 8


def identity_of(deployment: ModelDeployment, engine: str) -> dict[str, object]:
    """The fields whose change replaces the upstream object (004 §4.11)."""
    spec = deployment.spec
    return {
        "spec.model.id": spec.model.id or "",
        "spec.model.source": spec.model.source,
        "spec.engine.type": engine,
        "spec.serving.mode": spec.serving.mode,
    }


def replacement_record(values: Mapping[str, Mapping[str, object]]) -> str:
    """Returns the value of `REPLACE_ON_CHANGE`: a digest of each of `values`, by group; empty if there are none."""
    digests = {
        group: {name: digest(value, length=_SHORT) for name, value in named.items()}
        for group, named in values.items()
        if named
    }
    return canonical_json(digests).decode() if digests else ""


def interruption_record(interrupts: Mapping[str, Interruption]) -> str:
    """Returns the value of `INTERRUPTS_ON_CHANGE`: a digest of each value, with the message when it changes."""
    outages = {name: [digest(found.value, length=_SHORT), found.message] for name, found in interrupts.items()}
    return canonical_json(outages).decode()


def recreate_causes(live: Resource, desired: Resource) -> list[str]:
    """What changed that cannot be changed in place: fields of the deployment, or paths of the upstream object.

    Empty if the change can be applied, if there is none, or if the annotation was removed (an apply restores it).
    """
    before, after = _recorded(live), _recorded(desired)
    groups = ["deployment", "topology"]
    if live.get("apiVersion") == desired.get("apiVersion") or not is_primary(live):
        groups.append("object")  # paths of another version would all differ
    causes = []
    for group in groups:
        old, new = before.get(group, {}), after.get(group, {})
        # Only paths in both records: one that a newer provider has begun to record is no change of the deployment.
        causes += [name for name in old.keys() & new.keys() if old[name] != new[name]]
    return sorted(causes)


def interruptions(live: Resource, desired: Resource) -> list[str]:
    """The messages about outages to announce before `live` is changed to `desired` in place."""
    before, after = _recorded_outages(live), _recorded_outages(desired)
    changed = (name for name in before.keys() & after.keys() if before[name][0] != after[name][0])
    return [after[name][1] for name in sorted(changed) if after[name][1]]


def _recorded_outages(obj: Resource) -> dict[str, tuple[str, str]]:
    return {
        name: (entry[0], entry[1])
        for name, entry in _noted(obj, INTERRUPTS_ON_CHANGE).items()
        if isinstance(entry, list) and len(entry) == 2 and all(isinstance(part, str) for part in entry)
    }


def _recorded(obj: Resource) -> dict[str, dict[str, str]]:
    groups = _noted(obj, REPLACE_ON_CHANGE)
    return {name: values for name, values in groups.items() if isinstance(values, dict)}


def _noted(obj: Resource, annotation: str) -> dict[str, Any]:
    """The JSON map in an annotation; empty if there is none or it is invalid (any user may have written it)."""
    text = annotations_of(obj).get(annotation)
    try:
        found = orjson.loads(text) if isinstance(text, str) else None
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}
