"""The effective spec of a deployment: its own spec over what its template gives (docs/catalogue.md). Pure.

A template gives ``{"model": {"id": "org/m"}, "env": [{"name": "A", "value": "1"}]}``; the deployment says
``{"templateRef": {"name": "t"}, "env": [{"name": "B", "value": "2"}]}``. The effective spec has the model and both
variables, and no reference: what reads it knows nothing of templates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from airunway.api.names import DEFAULT_GPU_TYPE, GROUP
from airunway.resource import Resource, dig
from airunway.templates.choice import request_of

TEMPLATE_READY = "TemplateReady"
"""Condition of a deployment: its template was found, and what it gives is recorded."""

OWN_SPEC = f"{GROUP}/own-spec"
"""Key of a cached deployment's spec without what its template gives; only where it names one."""

MAX_DEPTH = 64
"""Levels down to which objects are merged; below that the deployment's own value counts as a whole."""

_BY_NAME = frozenset({("env",), ("imagePullSecrets",)})
"""Lists whose entries are merged by name."""
_WRITTEN_DEFAULTS = {
    ("resources", "gpu", "type"): DEFAULT_GPU_TYPE,
    ("scaling", "prefill", "gpu", "type"): DEFAULT_GPU_TYPE,
    ("scaling", "decode", "gpu", "type"): DEFAULT_GPU_TYPE,
}
"""Values that the API server writes into a deployment beside what its user gave (``gpu.count``). They are no values of
the user, as far as the stored object says; that of the template counts.
"""
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_MAX_TERMS = 64
"""Node selector terms that a conjunction may have; beyond that only those of the deployment count."""


@dataclass(frozen=True, kw_only=True)
class Expansion:
    """A deployment as it was sent, with what its template gives."""

    deployment: Resource | None = field(hash=False)
    """With its effective spec; None while it is not known what the template gives."""
    origin: str = ""
    """Kind, namespace and name of the template; empty without one."""
    problem: str = ""
    """Why the template cannot be found or used, as a sentence; empty if it can."""


def effective(deployment: Resource) -> Resource:
    """Returns the deployment with its effective spec; the object itself where it names no template or none is recorded.

    ``templateRef`` is in the result only where the record is of another reference than the spec has: the new one is not
    resolved yet. Total for any JSON.
    """
    spec, given = deployment.get("spec"), recorded_contribution(deployment)
    if not isinstance(spec, dict) or given is None:
        return deployment
    merged = expand(spec, given)
    request = request_of(spec)
    if request is not None and dig(deployment, "status", "revision", "template", "asked") == request.digest:
        del merged["templateRef"]
    return {**deployment, "spec": merged}


def own_spec(obj: Resource) -> Resource:
    """The spec as its user wrote it: without what a template gives. `obj` is a cached or a stored deployment."""
    spec = obj.get(OWN_SPEC, obj.get("spec"))
    return spec if isinstance(spec, dict) else {}


def recorded_contribution(deployment: Resource) -> Resource | None:
    """What the template of a deployment gives, as the core recorded it; None without a template or a record."""
    if not isinstance(dig(deployment, "spec", "templateRef"), dict):
        return None
    given = dig(deployment, "status", "revision", "template", "spec")
    return given if isinstance(given, dict) else None


def effective_model(deployment: Resource) -> object:
    """Returns the model id of the effective spec, without merging the rest of it; None if none is known."""
    own = dig(deployment, "spec", "model", "id")
    return own or dig(recorded_contribution(deployment), "model", "id")


def expand(spec: Resource, contribution: Resource) -> Resource:
    """Returns `spec` over `contribution`, both partial ModelDeployment specs.

    Objects are merged field by field, ``env`` and ``imagePullSecrets`` by name; affinities must both hold; of every
    other list and value the deployment's own counts, an explicit ``false``, ``0`` or ``""`` too, but no default that
    the API server has written into it (`is_default`). Where the deployment names another engine than the template,
    nothing of the template's ``engine`` and ``image`` counts: flags and images of one engine do not fit another one.
    """
    lower = contribution
    own_engine, engine = dig(spec, "engine", "type"), dig(contribution, "engine", "type")
    if own_engine and engine and own_engine != engine:
        lower = {key: value for key, value in contribution.items() if key not in ("engine", "image")}
    return _merged(lower, spec, at=())


def is_default(value: object, *, at: tuple[str, ...]) -> bool:
    """Whether a value of a deployment's spec is one that the API server writes where the user gives none."""
    return at in _WRITTEN_DEFAULTS and value == _WRITTEN_DEFAULTS[at]


def _merged(lower: Resource, upper: Resource, *, at: tuple[str, ...]) -> Resource:
    merged = dict(lower)
    for key, value in upper.items():
        merged[key] = _value(lower.get(key), value, at=(*at, key)) if key in lower else value
    return merged


def _value(lower: Any, upper: Any, *, at: tuple[str, ...]) -> Any:
    if at in _BY_NAME and isinstance(lower, list) and isinstance(upper, list):
        return _by_name(lower, upper)
    if isinstance(lower, str) and lower and is_default(upper, at=at):
        return lower
    if not isinstance(lower, dict) or not isinstance(upper, dict) or len(at) >= MAX_DEPTH:
        return upper
    if at == ("scaling", "autoscaling"):
        return upper
    if at == ("affinity",):
        return _affinity(lower, upper)
    return _merged(lower, upper, at=at)


def _by_name(lower: Sequence[Any], upper: Sequence[Any]) -> list[Any]:
    """Entries of both lists, one for each name: that of `upper` where both have it, at the place of the lower one."""
    own = {entry["name"]: entry for entry in upper if isinstance(entry, dict) and isinstance(entry.get("name"), str)}
    merged, seen = [], set()
    for entry in lower:
        name = _name(entry)
        if name is not None and name in own:
            seen.add(name)
            merged.append(own[name])
        else:
            merged.append(entry)
    # An entry without a name is no variable: it stays, so that the validation names it.
    return [*merged, *(entry for entry in upper if _name(entry) not in seen)]


def _name(entry: Any) -> str | None:
    name = entry.get("name") if isinstance(entry, dict) else None
    return name if isinstance(name, str) else None


def _affinity(lower: Resource, upper: Resource) -> Resource:
    merged: Resource = {}
    for kind in dict.fromkeys((*lower, *upper)):
        below, own = lower.get(kind), upper.get(kind)
        if not isinstance(below, dict) or not isinstance(own, dict):
            merged[kind] = own if kind in upper else below
        elif kind == "nodeAffinity":
            merged[kind] = _both(below, own, required=_conjunction)
        else:
            merged[kind] = _both(below, own, required=_joined)
    return merged


def _both(lower: Resource, upper: Resource, *, required: Any) -> Resource:
    merged = {**lower, **upper}
    if _REQUIRED in lower and _REQUIRED in upper:
        merged[_REQUIRED] = required(lower[_REQUIRED], upper[_REQUIRED])
    if _PREFERRED in lower and _PREFERRED in upper:
        merged[_PREFERRED] = _joined(lower[_PREFERRED], upper[_PREFERRED])
    return merged


def _joined(lower: Any, upper: Any) -> Any:
    if not isinstance(lower, list) or not isinstance(upper, list):
        return upper
    return [*lower, *(each for each in upper if each not in lower)]


def _conjunction(lower: Any, upper: Any) -> Any:
    """A node selector for nodes that both select: one term for each pair, since terms are alternatives."""
    below, own = dig(lower, "nodeSelectorTerms"), dig(upper, "nodeSelectorTerms")
    if not isinstance(below, list) or not isinstance(own, list) or not below or len(below) * len(own) > _MAX_TERMS:
        return upper
    if not all(isinstance(each, dict) for each in (*below, *own)):
        return upper
    return {"nodeSelectorTerms": [_term(first, second) for first in below for second in own]}


def _term(first: Resource, second: Resource) -> Resource:
    merged = {**first, **second}
    for key in ("matchExpressions", "matchFields"):
        if key in first and key in second:
            merged[key] = _joined(first[key], second[key])
    return merged
