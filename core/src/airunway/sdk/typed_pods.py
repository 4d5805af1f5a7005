"""Pods as Kubernetes' Go types write them, so that an operator's own update of an object changes nothing in them.

An operator that is written in Go reads an object into types and writes all of it back. Where a list is atomic, as all
lists in a custom resource without a list type are, a difference anywhere in it makes the operator the owner of the
whole list, and the next apply takes it back: an endless exchange of writes (seen with KAITO 0.12 and ``resources:
{}``). Pure.
"""

from __future__ import annotations

from typing import Any

from airunway.quantity import canonical_quantity
from airunway.resource import Resource
from airunway.sdk.pods import is_pod_spec

__all__ = ["typed_pods"]

_AMOUNTS = frozenset(("limits", "requests", "overhead"))
_KEPT_LISTS = frozenset(("containers", "nodeSelectorTerms"))
_MAPS = frozenset(("labels", "annotations", "nodeSelector", "matchLabels", *_AMOUNTS))
_FLAGS = frozenset(("readOnly", "hostNetwork", "hostPID", "hostIPC", "stdin", "stdinOnce", "tty"))
_NUMBERS = frozenset(
    ("failureThreshold", "hostPort", "initialDelaySeconds", "periodSeconds", "successThreshold", "timeoutSeconds")
)
_TEXTS = frozenset(
    (
        *("dnsPolicy", "hostIP", "hostname", "image", "imagePullPolicy", "medium", "nodeName", "prefix"),
        *("priorityClassName", "protocol", "restartPolicy", "schedulerName", "scheme", "serviceAccount"),
        *("serviceAccountName", "subPath", "subPathExpr", "subdomain", "terminationMessagePath"),
        *("terminationMessagePolicy", "workingDir"),
    )
)
"""Fields that are left out if they are zero. Others are pointers, or have no ``omitempty``."""
_EMPTY_TEXTS_IN = {"tolerations": None, "env": ("value",), "imagePullSecrets": None}
"""Lists of objects in which empty texts are left out: of these fields, or of all (None)."""


def typed_pods(obj: Any) -> Any:
    """Returns a copy of an object of any kind in which each pod spec has that form."""
    if isinstance(obj, list):
        return [typed_pods(item) for item in obj]
    if not isinstance(obj, dict):
        return obj
    if is_pod_spec(obj):
        return _pod(obj)
    return {key: typed_pods(value) for key, value in obj.items()}


def _pod(spec: Resource) -> Resource:
    found = _typed(spec)
    for key in found.keys() & {"initContainers", "containers"}:
        found[key] = [{**item, "resources": item.get("resources", {})} for item in found[key]]
    return found


def _typed(node: Resource) -> Resource:
    found: Resource = {}
    for key, value in node.items():
        if key in _MAPS and isinstance(value, dict):
            if value:
                found[key] = {k: canonical_quantity(v) for k, v in value.items()} if key in _AMOUNTS else dict(value)
        elif not _is_left_out(key, value):
            found[key] = _value(key, value)
    return found


def _is_left_out(key: str, value: object) -> bool:
    if isinstance(value, list):
        return not value and key not in _KEPT_LISTS
    if isinstance(value, bool):
        return not value and key in _FLAGS
    return value is None or (value == 0 and key in _NUMBERS) or (value == "" and key in _TEXTS)


def _value(key: str, value: Any) -> Any:
    if key == "sizeLimit":
        return canonical_quantity(value)
    if isinstance(value, dict):
        found = _typed(value)
        return {"divisor": "0", **found} if key == "resourceFieldRef" else found
    if isinstance(value, list):
        texts = _EMPTY_TEXTS_IN.get(key, ())
        return [_without_empty(_typed(item), texts) if isinstance(item, dict) else item for item in value]
    return value


def _without_empty(item: Resource, texts: tuple[str, ...] | None) -> Resource:
    return {key: value for key, value in item.items() if value != "" or (texts is not None and key not in texts)}
