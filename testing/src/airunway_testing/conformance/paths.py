"""Whether a finding's path is a field of a ModelDeployment: users look for it in their manifest."""

from __future__ import annotations

import re
from functools import cache

from airunway.api.crds import schema_of
from airunway.resource import Resource

_STEP = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")


def is_field(path: str) -> bool:
    """Whether the CRD has a field of that path; "" stands for the deployment as a whole.

    ``[0]`` is an item of a list and ``[key]`` an entry of a map; the items of a list may be left out. Below a field
    that takes anything (``spec.affinity``) there may be anything.
    """
    node = _schema()
    for step in _STEP.finditer(path):
        index, name = step[1], step[2]
        if node.get("type") == "array":
            node = node["items"]
            if index is not None:
                continue
        if name is not None and name in (node.get("properties") or {}):
            node = node["properties"][name]
            continue
        if node.get("x-kubernetes-preserve-unknown-fields"):
            return True
        values = node.get("additionalProperties")
        if not isinstance(values, dict):
            return False
        node = values
    return True


@cache
def _schema() -> Resource:
    return schema_of("ModelDeployment")
