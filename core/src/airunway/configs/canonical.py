"""The canonical form of a runtime config: copy, alias, merge, defaults, units (docs/runtime-configs.md).

``{"defaultStorageClassName": "fast"}`` becomes ``{"storage": {"defaultStorageClassName": "fast", …}, "rollout": …}``.
All of it works on the stored JSON: a field that this release does not know is merged and counts in the hash as well.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from decimal import Context, Decimal
from typing import Any

import orjson

from airunway.quantity import parse_quantity
from airunway.resource import Resource, canonical_json, list_at

MAX_DEPTH = 200
"""Levels of objects and lists in a config that can be read; what is deeper counts as null."""

DEPENDENCY_GRACE_PERIOD = "10s"
CAPACITY_BLOCKED_AFTER = "15m"

DEFAULTS: tuple[tuple[tuple[str, ...], str | int | bool], ...] = (
    (("inherit",), "None"),
    (("rollout",), "OnNextChange"),
    (("maxConcurrentRollouts",), 1),
    (("storage", "pvcHeadroomPercent"), 10),
    (("storage", "accessMode"), "ReadWriteMany"),
    (("labelPropagation", "enabled"), False),
    (("statusPolicy", "dependencyGracePeriod"), DEPENDENCY_GRACE_PERIOD),
    (("statusPolicy", "capacityBlockedAfter"), CAPACITY_BLOCKED_AFTER),
)
"""Path and value of each default. A field of a later release gets none here: both sides of a skew must agree."""

DURATIONS: tuple[tuple[str, ...], ...] = (
    ("routing", "requestTimeout"),
    ("statusPolicy", "dependencyGracePeriod"),
    ("statusPolicy", "capacityBlockedAfter"),
)
"""Paths of the fields that are durations."""

# ----------------------------------------------------------------------------------------------- copy of what is stored


def stored(config: object) -> Resource:
    """Returns a copy of the spec of a stored config with the alias resolved; an empty one if there is no object."""
    spec = config.get("spec") if isinstance(config, dict) else None
    return _without_alias(_copy(spec)) if isinstance(spec, dict) else {}


def _copy(spec: Resource) -> Resource:
    try:
        copied: Resource = orjson.loads(orjson.dumps(spec))
    except (TypeError, ValueError):  # deeper than orjson allows, or a number or text that it does not write
        copied = _readable(spec, MAX_DEPTH)
    return copied


def _readable(value: Any, depth: int) -> Any:
    """Returns a copy that can be written as JSON; what is below `depth` levels becomes null."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**64 else hex(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if depth == 0:
        return None
    if isinstance(value, Mapping):
        return {_readable(str(key), 0): _readable(each, depth - 1) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_readable(each, depth - 1) for each in value]
    return str(type(value))


def _without_alias(spec: Resource) -> Resource:
    alias = spec.get("defaultStorageClassName")
    storage = spec.get("storage")
    if storage is not None and not isinstance(storage, dict):
        return spec  # an API server stores no such thing; nothing of it gets lost
    spec.pop("defaultStorageClassName", None)
    if alias is not None:
        storage = storage or {}
        if storage.get("defaultStorageClassName") is None:
            storage["defaultStorageClassName"] = alias
        spec["storage"] = storage
    return spec


# ---------------------------------------------------------------------------------------------------------------- merge


def _entries_by_name(lower: Any, upper: Any) -> Any:
    """Entries of both lists, one for each name: the whole entry of `upper` where both have it."""
    if not isinstance(upper, list):
        return upper
    found: dict[str | bytes, Any] = {}
    for entry in (*list_at(lower), *upper):
        name = entry.get("name") if isinstance(entry, dict) else None
        found[name if isinstance(name, str) else canonical_json(entry)] = entry
    return list(found.values())


def _whole(lower: Any, upper: Any) -> Any:
    return upper


MERGE_RULES: Mapping[tuple[str, ...], Callable[[Any, Any], Any]] = {
    ("env",): _entries_by_name,
    ("routing", "gatewayRef"): _whole,
    ("autoscaling", "prometheus"): _whole,
}
"""Fields with a rule of their own, which gets the values below and above. Any other field is merged by key where it
is an object, and replaced where it is not (so `routing.annotations` by key, `labelPropagation.match` as a whole)."""


def merge(lower: Resource, upper: Resource, *, at: tuple[str, ...] = ()) -> Resource:
    """Returns `upper` over `lower`, field by field. ``false``, ``0`` and ``""`` win; null counts as absent."""
    merged = {}
    for key in (*lower, *(key for key in upper if key not in lower)):
        below, above = lower.get(key), upper.get(key)
        path = (*at, key)
        over, under = (below, None) if above is None else (above, below)
        if over is None:
            continue
        if path in MERGE_RULES:
            merged[key] = MERGE_RULES[path](under, over)
        elif isinstance(over, dict):
            merged[key] = merge(under if isinstance(under, dict) else {}, over, at=path)
        else:
            merged[key] = over
    return merged


# --------------------------------------------------------------------------------------------------- defaults and units


def canonical(spec: Resource) -> Resource:
    """Returns the spec of a merged config with defaults, and with quantities and durations in their canonical form.

    Works on `spec` itself, which `merge` has made.
    """
    spec = _without_alias(spec)  # it may stand beside a `storage` that only the merge has made an object
    for path, value in DEFAULTS:
        parent = _parent(spec, path, make=True)
        if parent is not None and parent.get(path[-1]) is None:
            parent[path[-1]] = value
    for path in DURATIONS:
        parent = _parent(spec, path)
        if parent is not None and path[-1] in parent:
            parent[path[-1]] = canonical_duration(parent[path[-1]])
    for entry in list_at(spec, "env"):
        reference = _parent(entry, ("valueFrom", "resourceFieldRef", "divisor")) if isinstance(entry, dict) else None
        if reference is not None and "divisor" in reference:
            reference["divisor"] = canonical_quantity(reference["divisor"])
    return spec


def _parent(spec: Resource, path: tuple[str, ...], *, make: bool = False) -> Resource | None:
    node: Any = spec
    for step in path[:-1]:
        if make and node.get(step) is None:
            node[step] = {}
        node = node.get(step)
        if not isinstance(node, dict):
            return None
    return node  # type: ignore[no-any-return]


_DURATION = re.compile(r"(?:[0-9]{1,5}(?:ms|[hms])){1,4}", re.ASCII)
_DURATION_PART = re.compile(r"([0-9]{1,5})(ms|[hms])", re.ASCII)
_MILLISECONDS = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}


def _milliseconds(value: object) -> int | None:
    if not isinstance(value, str) or _DURATION.fullmatch(value) is None:
        return None
    return sum(int(number) * _MILLISECONDS[unit] for number, unit in _DURATION_PART.findall(value))


def parse_duration(value: object) -> timedelta | None:
    """Returns the time of a duration as in the Gateway API (``10s``, ``1h30m``, ``500ms``); None if it is none."""
    milliseconds = _milliseconds(value)
    return None if milliseconds is None else timedelta(milliseconds=milliseconds)


def canonical_duration(value: Any) -> Any:
    """Returns a duration in its largest units (``90s``: ``1m30s``); what is no duration as it is."""
    rest = _milliseconds(value)
    if rest is None:
        return value
    text = ""
    for unit, size in _MILLISECONDS.items():
        count, rest = divmod(rest, size)
        if count > 99_999:
            return value  # more than five digits: the Gateway API would refuse it
        text += f"{count}{unit}" if count else ""
    return text or "0s"


_SUFFIXES: tuple[tuple[str, Decimal], ...] = (
    ("", Decimal(1)),
    *((f"{suffix}i", Decimal(1024) ** power) for power, suffix in enumerate("KMGTPE", start=1)),
    *((suffix, Decimal(10) ** (3 * power)) for power, suffix in enumerate("kMGTPE", start=1)),
    *((suffix, Decimal(10) ** (-3 * power)) for power, suffix in enumerate("mun", start=1)),
)

_EXACT = Context(prec=128)


def canonical_quantity(value: Any) -> Any:
    """Returns a quantity in its shortest spelling (``1024Mi``: ``1Gi``); what is no quantity as it is.

    The divisor of an environment variable is one; Kubernetes accepts only divisors such as ``1Mi``, not ``1048576``.
    """
    try:
        amount = parse_quantity(value)
    except ValueError:
        return value
    if len(str(value)) > 32 or not -30 <= amount.adjusted() <= 30:
        return value
    spelled = [
        f"{int(_EXACT.divide(amount, scale))}{suffix}"
        for suffix, scale in _SUFFIXES
        if not _EXACT.remainder(amount, scale)
    ]
    return min(spelled, key=len) if spelled else value
