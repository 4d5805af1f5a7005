"""Facts of public models that are in the wheel, and of those that a cluster adds in ConfigMaps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Any

import orjson

from airunway.resource import Resource, dig, key_of
from airunway.sizing.checkpoint import Checkpoint, read_checkpoint
from airunway.sizing.values import MAX_CONFIG, ModelConfigError

CATALOGUE_LABEL = "airunway.ai/model-catalogue"
"""Label of ConfigMaps with further models; its value is ``true``."""

_MOST = 1000
"""Entries of one ConfigMap that are read."""


@cache
def _bundled() -> Mapping[str, Mapping[str, Any]]:
    data = resources.files("airunway.sizing").joinpath("catalogue.json").read_bytes()
    return {entry["id"].lower(): entry for entry in orjson.loads(data)}


def catalogue() -> tuple[str, ...]:
    """The ids of the models in the wheel."""
    return tuple(entry["id"] for entry in _bundled().values())


def nearest(model: str) -> Mapping[str, Any] | None:
    """The wheel's entry of that model id, regardless of capitals; None if there is none."""
    return _bundled().get(model.lower())


def of_entry(entry: Mapping[str, Any], *, origin: str) -> Checkpoint:
    """The facts of an entry: ``id``, ``config`` and one of ``parameters``, ``size`` (bytes), or neither.

    Raises ModelConfigError for an entry that is malformed.
    """
    model, config = entry.get("id"), entry.get("config")
    if not isinstance(model, str) or not model or len(model) > 512:
        raise ModelConfigError(origin, "id", "must be a text of at most 512 characters")
    if not isinstance(config, Mapping):
        raise ModelConfigError(origin, f"{model}.config", "must be an object")
    numbers = {name: _number(entry, name, origin=origin, model=model) for name in ("parameters", "size")}
    details = ", ".join(str(entry[name])[:200] for name in ("source", "date") if entry.get(name))
    return read_checkpoint(
        config,
        model=model,
        source=f"{origin}: {details}" if details else origin,
        parameters=numbers["parameters"],
        size=numbers["size"],
        licence=str(entry.get("licence") or "")[:100],
    )


def entries_of_config_maps(objects: Iterable[Resource]) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """The entries of labelled ConfigMaps by lower-case id, each with the ConfigMap's name as origin.

    Each value of a ConfigMap's data is JSON: one entry, or a list of entries. Raises ModelConfigError.
    """
    found: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for obj in objects:
        data = obj.get("data")
        for key, text in sorted(data.items()) if isinstance(data, Mapping) else ():
            origin = f"ConfigMap {key_of(obj)}, {key}"
            for entry in _decoded(text, origin):
                found.setdefault(str(dig(entry, "id", default="")).lower(), (origin, entry))
    return found


def _decoded(text: object, origin: str) -> list[dict[str, Any]]:
    raw = str(text).encode(errors="replace")
    if len(raw) > MAX_CONFIG:
        raise ModelConfigError(origin, "", f"it has {len(raw):,} bytes; at most {MAX_CONFIG:,} are read")
    try:
        decoded = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise ModelConfigError(origin, "", f"it is not JSON: {error}") from error
    entries = decoded if isinstance(decoded, list) else [decoded]
    if len(entries) > _MOST or not all(isinstance(entry, dict) for entry in entries):
        raise ModelConfigError(origin, "", f"it must be an object, or a list of at most {_MOST:,} objects")
    return entries


def _number(entry: Mapping[str, Any], name: str, *, origin: str, model: str) -> int | None:
    value = entry.get(name)
    if value is None:
        return None
    if type(value) is not int or not 1 <= value < 2**53:
        raise ModelConfigError(origin, f"{model}.{name}", "must be a whole number from 1")
    return value
