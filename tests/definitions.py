"""Our CRDs as other releases have them."""

from __future__ import annotations

from typing import Any

from airunway.resource import Resource, copy_of


def with_types_only(crd: Resource) -> Resource:
    """The CRD as the Go project's is: types and enums, hardly a limit, no rule."""
    crd = copy_of(crd)
    pending: list[Any] = [crd["spec"]["versions"]]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            for key in ("x-kubernetes-validations", "maxLength", "maxItems", "maxProperties", "pattern"):
                if not isinstance(node.get(key), dict):
                    node.pop(key, None)
        pending.extend(node.values() if isinstance(node, dict) else node if isinstance(node, list) else ())
    return crd
