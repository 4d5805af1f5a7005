"""Completing what a provider translated into objects that can be applied. Pure.

Namespace, owner, labels, and what has to be remembered on the objects themselves: the transformer that wrote them, what
it was written for, and digests of everything whose change needs a new object (spec rulings 9, 10, 26, 27).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import orjson

from airunway.api import names
from airunway.api.modeldeployment import ModelDeployment
from airunway.resource import (
    Resource,
    annotations_of,
    canonical_json,
    controller_owner,
    copy_of,
    dig,
    digest,
    labels_of,
    owner_reference,
    uid_of,
)
from airunway.sdk.pods import pod_templates

__all__ = [
    "REPLACE_ON_CHANGE",
    "Identity",
    "complete",
    "identity_in",
    "identity_of",
    "is_ours",
    "is_primary",
    "propagated_labels",
    "recreate_causes",
    "written_for",
]

REPLACE_ON_CHANGE = f"{names.GROUP}/replace-on-change"
"""Annotation: JSON map from everything whose change needs a new object to a digest of it, in three groups.

Digests of what *we* asked for, not of the live object: upstream webhooks fill fields in, and a value that we stop
setting must count as a change. ``deployment``: its identity; ``topology``: what the plugin says; ``object``: paths of
the object itself, which mean something in one API version only.
"""

_HASH_LENGTH = 16
_SHORT = 8

_NOT_UPSTREAM = ("gateway", "runtimeConfigName")
"""Parts of the spec that never reach an upstream object through its translation."""


class Identity(NamedTuple):
    """What an object is, in whatever version: group, kind, name (all are in the deployment's namespace)."""

    group: str
    kind: str
    name: str


def identity_in(obj: Resource) -> Identity:
    group = str(obj.get("apiVersion")).rpartition("/")[0]
    return Identity(group, str(obj.get("kind")), str(dig(obj, "metadata", "name")))


def identity_of(deployment: ModelDeployment, engine: str) -> dict[str, object]:
    """The fields whose change replaces the upstream object (004 §4.11)."""
    spec = deployment.spec
    return {
        "spec.model.id": spec.model.id or "",
        "spec.model.source": spec.model.source,
        "spec.engine.type": engine,
        "spec.serving.mode": spec.serving.mode,
    }


def written_for(deployment: Resource, typed: ModelDeployment) -> str:
    """Digest of what a translation was asked for: the spec without what never reaches it, the engine, the adoption.

    Without defaults: the API server fills in those of the CRD, a preview does not; and a default that a newer release
    adds must not make every object look as if it was written for something else. `typed` is the same object, parsed.
    """
    essence = typed.spec.to_essence()
    spec = {key: value for key, value in essence.items() if key not in _NOT_UPSTREAM}
    engine = dig(deployment, "status", "engine", "type", default="")
    return digest([spec, engine, annotations_of(deployment).get(names.ADOPT, "")], length=_HASH_LENGTH)


def propagated_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The deployment's own labels that go onto what is made for it: those with our prefix (004 §4.12)."""
    return {key: value for key, value in labels.items() if key.startswith(f"{names.GROUP}/")}


def complete(
    objects: Sequence[Resource],
    deployment: Resource,
    *,
    provider: str,
    transformer: str,
    wanted_for: str,
    identity: Mapping[str, object],
    topology: Mapping[str, object],
    immutable: Sequence[Sequence[str]],
) -> list[Resource]:
    """The translated objects with namespace, owner reference, labels and annotations; the primary stays first.

    `wanted_for` is what the primary is written for (`written_for`). A new one is needed when something of the
    deployment's `identity` or of its `topology` changes; `immutable` has the paths of each object that cannot be
    changed in place. The labels that we set win over propagated ones and over the translation's; those that
    say whose a pod is go into every pod template too.
    """
    metadata = deployment["metadata"]
    whose = names.whose(metadata["name"], provider=provider)
    ours = {**propagated_labels(labels_of(deployment)), **whose}
    result = []
    for position, (translated, paths) in enumerate(zip(objects, immutable, strict=True)):
        obj = _with_pod_labels(translated, whose)
        meta = dict(obj["metadata"])
        meta["namespace"] = metadata["namespace"]
        meta["labels"] = {**(meta.get("labels") or {}), **ours}
        annotations = dict(meta.get("annotations") or {})
        record = {"object": {path: _at(obj, path.removesuffix(".*").split(".")) for path in paths}}
        if position == 0:
            annotations[names.TRANSFORMER] = transformer
            annotations[names.WRITTEN_FOR] = wanted_for
            record |= {"deployment": dict(identity), "topology": dict(topology)}
        digests = {
            group: {name: digest(value, length=_SHORT) for name, value in values.items()}
            for group, values in record.items()
            if values
        }
        if digests:
            annotations[REPLACE_ON_CHANGE] = canonical_json(digests).decode()
        # Hashed before the owner goes in: its uid says whose object this is, not what was asked for.
        hashed = {**obj, "metadata": {**meta, "annotations": annotations}}
        meta["annotations"] = {**annotations, names.SPEC_HASH: digest(hashed, length=_HASH_LENGTH)}
        if uid := uid_of(deployment):  # a preview's deployment has none
            meta["annotations"][names.DEPLOYMENT_UID] = uid
        meta["ownerReferences"] = [owner_reference(deployment)]
        result.append({**obj, "metadata": meta})
    return result


def _with_pod_labels(obj: Resource, whose: Mapping[str, str]) -> Resource:
    if next(pod_templates(obj), None) is None:
        return obj
    obj = copy_of(obj)
    for template in pod_templates(obj):
        meta = template.get("metadata")
        meta = template["metadata"] = dict(meta) if isinstance(meta, dict) else {}
        meta["labels"] = {**(meta.get("labels") or {}), **whose}
    return obj


def is_ours(live: Resource, deployment: Resource, provider: str) -> bool:
    """Whether the object was made by this provider for exactly this deployment (by uid).

    One that has no controlling owner any more is known by its annotation: the next apply restores the reference.
    Objects of the same deployment with another provider's label, or the core's own, are somebody else's.
    """
    if labels_of(live).get(names.PROVIDER) != provider:
        return False
    uid = deployment["metadata"]["uid"]
    references = dig(live, "metadata", "ownerReferences") or []
    if any(isinstance(ref, dict) and ref.get("uid") == uid for ref in references):
        return True
    return controller_owner(live) is None and annotations_of(live).get(names.DEPLOYMENT_UID) == uid


def is_primary(live: Resource) -> bool:
    """Whether an object of ours is the deployment's primary one, whatever its kind and name.

    Its annotation says so; but operators copy annotations onto what they make, which is controlled by them.
    """
    owner = controller_owner(live)
    return names.TRANSFORMER in annotations_of(live) and (owner is None or owner.get("kind") == "ModelDeployment")


def recreate_causes(live: Resource, desired: Resource) -> list[str]:
    """What changed that cannot be changed in place: fields of the deployment, or paths of the upstream object.

    Empty if the change can be applied, if there is none, or if somebody removed the annotation (an apply restores it).
    """
    before, after = _recorded(live), _recorded(desired)
    groups = ["deployment", "topology"]
    if live.get("apiVersion") == desired.get("apiVersion") or not is_primary(live):
        groups.append("object")  # paths of another version would all have changed
    causes = []
    for group in groups:
        old, new = before.get(group, {}), after.get(group, {})
        # Only what both recorded: a path that a newer provider began to track is no change of the deployment.
        causes += [name for name in old.keys() & new.keys() if old[name] != new[name]]
    return sorted(causes)


def _recorded(obj: Resource) -> dict[str, dict[str, str]]:
    text = annotations_of(obj).get(REPLACE_ON_CHANGE)
    try:
        recorded = orjson.loads(text) if isinstance(text, str) else None
    except orjson.JSONDecodeError:
        return {}
    groups = recorded if isinstance(recorded, dict) else {}
    return {name: values for name, values in groups.items() if isinstance(values, dict)}


def _at(obj: Resource, steps: Sequence[str]) -> object:
    node: object = obj
    for step in steps:
        node = node.get(step) if isinstance(node, dict) else None
    return node
