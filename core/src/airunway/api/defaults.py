"""The fully defaulted spec as plain JSON, for selection rules (spec ruling 5)."""

from __future__ import annotations

from airunway.api._base import parse_model
from airunway.api._deployment_spec import ModelDeploymentSpec
from airunway.resource import Resource

__all__ = ["defaulted_spec"]

_FREE_FORM: dict[str, bool | set[str]] = {
    "provider": {"overrides"},
    "affinity": True,
    "topology_spread_constraints": True,
}


def defaulted_spec(spec: Resource, *, engine: str | None) -> Resource:
    """Returns `spec` with every default filled in, and `engine` (the resolved one, if any) as ``engine.type``.

    The result always has the objects that a rule may read (``resources.gpu``, ``serving``, ``scaling``, ``engine``,
    ``provider``, …), and counts, modes, lists and maps. It has ``scaling.prefill``/``decode`` and texts without a
    default (``image``, ``resources.memory``) only if they were given. Quantities are texts, so
    ``quantity(spec.resources.memory)`` works. Raises ParseError if the spec does not fit the schema.
    """
    parsed = parse_model(ModelDeploymentSpec, spec)
    # Free-form parts are copied unchanged: they may be nested deeper than pydantic can write.
    defaulted: Resource = parsed.model_dump(by_alias=True, exclude_none=True, exclude=_FREE_FORM)
    defaulted["provider"]["overrides"] = parsed.provider.overrides
    defaulted["affinity"] = parsed.affinity
    defaulted["topologySpreadConstraints"] = parsed.topology_spread_constraints
    if engine is not None:
        defaulted["engine"]["type"] = engine
    return defaulted
