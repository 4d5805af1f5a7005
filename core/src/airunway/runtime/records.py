"""What the objects of a deployment record of how they were made, as annotations, and what a change of it means. Pure.

- `names.TRANSFORMER` makes an object the primary one.
- `names.REVISION` has the hash of the revision that the primary object was written from.
- `names.WRITTEN_FOR` has the digests of the spec that it was written for (`written_for`).
- `REPLACE_ON_CHANGE` and `INTERRUPTS_ON_CHANGE` have digests of what recreates or interrupts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from airunway.api import names
from airunway.api.modeldeployment import ModelDeployment
from airunway.plugins.contract import Interruption, Transformer
from airunway.resource import Resource, annotations_of, canonical_json, controller_owner, dig, digest, text_at
from airunway.revisions.revision import HASH_LENGTH
from airunway.revisions.same_spec import AUTOSCALING, upstream_spec


def is_primary(live: Resource) -> bool:
    """Whether an object of ours is the deployment's primary one, of any kind and name.

    It has the transformer annotation. Operators copy annotations onto objects that they create; those are controlled by
    another owner.
    """
    owner = controller_owner(live)
    return names.TRANSFORMER in annotations_of(live) and (owner is None or owner.get("kind") == "ModelDeployment")


# ------------------------------------------------------------------------------------ what a translation is written for


def written_for(deployment: Resource, typed: ModelDeployment, *, autoscaling: bool = False) -> str:
    """Digests of a translation's input: of what takes newer things when it changes, as the core has recorded it, and of
    the whole effective spec with its engine.

    `typed` is the same object, parsed; `autoscaling` is whether the plugin translates that field.
    """
    engine = text_at(deployment, "status", "engine", "type")
    essence = typed.spec.to_essence()
    own = [dig(essence, "scaling", AUTOSCALING)] if autoscaling and typed.spec.scaling.autoscaling is not None else []
    wanted = digest([upstream_spec(essence), engine, *own], length=HASH_LENGTH)
    return f"{text_at(deployment, 'status', 'revision', 'takenFor')}.{wanted}"


def _map_in(obj: Resource, annotation: str) -> dict[str, Any] | None:
    """The JSON map in an annotation; None if there is none or it is invalid (any user may have written it)."""
    text = annotations_of(obj).get(annotation)
    try:
        found = orjson.loads(text) if isinstance(text, str) else None
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


# -------------------------------------------------------------------------------- what a change recreates or interrupts


_SHORT = 8


def identity_of(deployment: ModelDeployment, engine: str) -> dict[str, object]:
    """The fields whose change replaces the upstream object."""
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


def recreate_causes(live: Resource, desired: Resource, *, transformers: Sequence[Transformer] = ()) -> list[str]:
    """What changed that cannot be changed in place: fields of the deployment, or paths of the upstream object.

    Empty if the change can be applied, if there is none, or if the annotation was removed (an apply restores it).
    `transformers` tell in which version the live object was written: it may be read in another one that is served.
    """
    before, after = _recorded(live), _recorded(desired)
    groups = ["deployment", "topology"]
    writer = annotations_of(live).get(names.TRANSFORMER)
    written = next((each.api_version for each in transformers if each.name == writer), live.get("apiVersion"))
    if written == desired.get("apiVersion") or not is_primary(live):
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
        for name, entry in (_map_in(obj, names.INTERRUPTS_ON_CHANGE) or {}).items()
        if isinstance(entry, list) and len(entry) == 2 and all(isinstance(part, str) for part in entry)
    }


def _recorded(obj: Resource) -> dict[str, dict[str, str]]:
    groups = _map_in(obj, names.REPLACE_ON_CHANGE) or {}
    return {name: values for name, values in groups.items() if isinstance(values, dict)}
