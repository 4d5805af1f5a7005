"""What a pass would change of route, pool and picker, for a dry run. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from airunway.api import names
from airunway.owned.objects import complete, our_labels
from airunway.resource import Resource, annotations_of, text_at, uid_of
from airunway.routing.intent import MARK, Facts

_IN_A_PLAN = ("HTTPRoute", "InferencePool", "Deployment")
"""Kinds of which a dry run says what would become."""


def changes_of(facts: Facts, wanted: Sequence[Resource]) -> dict[str, list[str]]:
    """What would be created, updated and deleted of route, pool and picker."""
    live = dict(zip(_IN_A_PLAN, (facts.route, facts.pool, facts.picker), strict=True))
    found: dict[str, list[str]] = {"create": [], "update": [], "delete": []}
    for obj in wanted:
        kind, name = text_at(obj, "kind"), text_at(obj, "metadata", "name")
        if kind not in _IN_A_PLAN:
            continue
        known = live.pop(kind)
        if known is None:
            found["create"].append(f"{kind} {name}")
        elif facts.own(known) is not None and _is_changed(facts, obj, known):
            found["update"].append(f"{kind} {name}")
    for kind, known in live.items():
        if facts.own(known) is not None:
            found["delete"].append(f"{kind} {text_at(known, 'metadata', 'name')}")
    return found


def _is_changed(facts: Facts, obj: Resource, live: Resource) -> bool:
    """Whether an object of ours would be written otherwise than it was, by the digest that it has."""
    metadata = {"namespace": facts.key.namespace, "name": facts.key.name, "uid": uid_of(facts.deployment)}
    owner = {"apiVersion": names.API_VERSION, "kind": "ModelDeployment", "metadata": metadata}
    made = complete(obj, owner=owner, labels=our_labels(owner, MARK))
    return annotations_of(live).get(names.SPEC_HASH) != annotations_of(made)[names.SPEC_HASH]
