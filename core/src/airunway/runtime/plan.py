"""Completing what a provider translated into objects that can be applied, and seeing what a change needs.

Pure: namespace, owner, labels, hashes; and whether a live object has to be recreated (spec rulings 9 and 10).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from airunway.api import names
from airunway.api.modeldeployment import ModelDeployment
from airunway.resource import (
    Resource,
    annotations_of,
    canonical_json,
    controller_owner,
    digest,
    owner_reference,
    uid_of,
)

__all__ = ["REPLACE_ON_CHANGE", "complete", "identity_of", "is_ours", "propagated_labels", "recreate_causes"]

REPLACE_ON_CHANGE = f"{names.GROUP}/replace-on-change"
"""Annotation on the primary object: JSON map from everything whose change needs a new object to a digest of it.

Digests of what *we* asked for, not of the live object: upstream webhooks fill fields in, and a value that we stop
setting must count as a change.
"""

_HASH_LENGTH = 16
_SHORT = 8


def identity_of(deployment: ModelDeployment, engine: str) -> dict[str, str]:
    """The fields whose change replaces the upstream object (004 §4.11)."""
    spec = deployment.spec
    return {
        "spec.model.id": spec.model.id or "",
        "spec.model.source": spec.model.source,
        "spec.engine.type": engine,
        "spec.serving.mode": spec.serving.mode,
    }


def propagated_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The deployment's own labels that go onto what is made for it: those with our prefix (004 §4.12)."""
    return {key: value for key, value in labels.items() if key.startswith(f"{names.GROUP}/")}


def complete(
    objects: Sequence[Resource],
    deployment: Resource,
    *,
    identity: Mapping[str, str],
    immutable_paths: Sequence[str],
    labels: Mapping[str, str],
    transformer: str,
) -> list[Resource]:
    """The translated objects with namespace, owner reference, labels and hash annotations; the primary stays first.

    `labels` are the propagated ones; the labels that we always set win over them and over the translation's.
    """
    metadata = deployment["metadata"]
    ours = {**labels, names.MANAGED_BY: names.MANAGED_BY_VALUE, names.MODEL_DEPLOYMENT: metadata["name"]}
    result = []
    for position, obj in enumerate(objects):
        meta = dict(obj["metadata"])
        meta["namespace"] = metadata["namespace"]
        meta["labels"] = {**(meta.get("labels") or {}), **ours}
        annotations = dict(meta.get("annotations") or {})
        if position == 0:
            annotations[names.TRANSFORMER] = transformer
            annotations[REPLACE_ON_CHANGE] = canonical_json(_replaceable(obj, identity, immutable_paths)).decode()
        # Hashed before the owner goes in: its uid says whose object this is, not what was asked for.
        hashed = {**obj, "metadata": {**meta, "annotations": annotations}}
        meta["annotations"] = {**annotations, names.SPEC_HASH: digest(hashed, length=_HASH_LENGTH)}
        if uid := uid_of(deployment):  # a preview's deployment has none
            meta["annotations"][names.DEPLOYMENT_UID] = uid
        meta["ownerReferences"] = [owner_reference(deployment)]
        result.append({**obj, "metadata": meta})
    return result


def is_ours(live: Resource, deployment: Resource) -> bool:
    """Whether the object carries an owner reference to exactly this deployment (by uid).

    One that has no controlling owner any more is known by its annotation: the next apply restores the reference.
    """
    uid = deployment["metadata"]["uid"]
    references = (live.get("metadata") or {}).get("ownerReferences") or []
    if any(isinstance(ref, dict) and ref.get("uid") == uid for ref in references):
        return True
    return controller_owner(live) is None and annotations_of(live).get(names.DEPLOYMENT_UID) == uid


def recreate_causes(live: Resource, desired: Resource) -> list[str]:
    """What changed that cannot be changed in place: fields of the deployment, or paths of the upstream object.

    Empty if the change can be applied, if there is none, or if somebody removed the annotation (an apply restores it).
    """
    before, after = _recorded(live), _recorded(desired)
    if before is None or after is None:
        return []
    # Only what both recorded: a path that a newer provider began to track is no change of the deployment.
    return sorted(path for path in before.keys() & after.keys() if before[path] != after[path])


def _replaceable(obj: Resource, identity: Mapping[str, str], paths: Sequence[str]) -> dict[str, str]:
    values: dict[str, object] = {**identity, **{path: _at(obj, path.removesuffix(".*").split(".")) for path in paths}}
    return {path: digest(value, length=_SHORT) for path, value in values.items()}


def _recorded(obj: Resource) -> dict[str, str] | None:
    text = annotations_of(obj).get(REPLACE_ON_CHANGE)
    if text is None:
        return None
    try:
        recorded = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return recorded if isinstance(recorded, dict) else None


def _at(obj: Resource, steps: Sequence[str]) -> object:
    node: object = obj
    for step in steps:
        node = node.get(step) if isinstance(node, dict) else None
    return node
