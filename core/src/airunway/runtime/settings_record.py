"""The record on the primary upstream object: the settings that it was made with and keeps (spec ruling 23).

It is the annotation `airunway.ai/runtime-settings`: ``{"for": <digest of the spec>, "config": <name of the runtime
config>, "provider": {...}, "pods": {...}, "cache": {...}, "gateway": {...}}``; what is empty is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson

from airunway.api import names
from airunway.plugins.contract import Gateway, ModelCache, RuntimeSettings
from airunway.plugins.runtime_settings import settings_of_record, settings_record
from airunway.resource import Resource, annotations_of, dig

__all__ = ["Record", "new_record", "read_record"]


@dataclass(frozen=True, kw_only=True)
class Record:
    """What the primary object was made with."""

    lasting: str
    """Digest of the spec, as in `SpecDigests.lasting`."""
    config: str | None = None
    """Name of the runtime config that the spec named; None in a record of a release without runtime configs."""
    provider: Mapping[str, object] = field(default_factory=dict)
    """The provider's own kept settings."""
    pods: RuntimeSettings = field(default_factory=RuntimeSettings)
    """The pod settings of the runtime config."""
    cache: ModelCache | None = None
    """The model cache that its pods mount."""
    gateway: Gateway | None = None
    """The gateway for which the object was made, where the provider decides about a pool."""
    stored: Resource = field(default_factory=dict, compare=False)
    """The record as it was read; empty for a new one."""

    def as_json(self) -> Resource:
        """The value of the annotation."""
        if self.stored:
            return self.stored
        gateway = self.gateway
        parts: Resource = {
            "config": self.config,
            "provider": dict(self.provider),
            "pods": settings_record(self.pods),
            "cache": _cache_record(self.cache) if self.cache is not None else {},
            "gateway": {"name": gateway.name, "namespace": gateway.namespace, "usesPool": gateway.uses_pool}
            if gateway is not None
            else {},
        }
        return {"for": self.lasting, **{key: value for key, value in parts.items() if value}}


def new_record(record: Record, *, before: Record | None) -> Record:
    """Returns the record to write: `before` where it says the same. A record alone is no reason to write."""
    if before is None:
        return record
    same = (before.lasting, dict(before.provider), before.pods, before.cache, before.gateway) == (
        record.lasting,
        dict(record.provider),
        record.pods,
        record.cache,
        record.gateway,
    )
    return before if same and before.config in (None, record.config) else record


def read_record(primary: Resource | None, manager: str) -> Record | None:
    """Returns the record on a primary object; None if there is none, it is no JSON object, or another manager wrote it.

    Total for any JSON: what does not fit counts as empty.
    """
    text = annotations_of(primary or {}).get(names.RUNTIME_SETTINGS)
    if primary is None or not isinstance(text, str) or not _is_ours(primary, names.RUNTIME_SETTINGS, manager):
        return None
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(found, dict):
        return None
    provider, config = found.get("provider"), found.get("config")
    return Record(
        lasting=str(found.get("for", "")),
        config=config if isinstance(config, str) else None,
        provider=provider if isinstance(provider, dict) else {},
        pods=settings_of_record(found.get("pods")),
        cache=_cache_in(found.get("cache")),
        gateway=_gateway_in(found.get("gateway")),
        stored=found,
    )


def _cache_record(cache: ModelCache) -> Resource:
    """What is recorded of a cache; all that is not recorded has its default value in `_cache_in`."""
    found = {
        "claim": cache.claim,
        "subPath": cache.sub_path,
        "mountPath": cache.mount_path,
        "path": cache.path,
        "accessMode": cache.access_mode,
    }
    return {key: value for key, value in found.items() if value}


def _cache_in(found: object) -> ModelCache | None:
    claim, sub, mount, path, mode = (
        dig(found, key, default="") for key in ("claim", "subPath", "mountPath", "path", "accessMode")
    )
    texts = [each for each in (claim, sub, mount, path, mode) if isinstance(each, str)]
    if len(texts) < 5 or not claim or not mount:
        return None
    return ModelCache(claim=claim, sub_path=sub, mount_path=mount, path=path, access_mode=mode)


def _gateway_in(found: object) -> Gateway | None:
    name, namespace = dig(found, "name"), dig(found, "namespace")
    if not isinstance(name, str) or not isinstance(namespace, str):
        return None
    return Gateway(name=name, namespace=namespace, uses_pool=dig(found, "usesPool") is True)


def _is_ours(obj: Resource, annotation: str, manager: str) -> bool:
    """Whether we applied the annotation's current value. A preview's object has no managedFields and counts as ours."""
    entries = dig(obj, "metadata", "managedFields")
    if not isinstance(entries, list):
        return True
    return any(
        dig(entry, "fieldsV1", "f:metadata", "f:annotations", f"f:{annotation}") is not None
        for entry in entries
        if isinstance(entry, dict) and entry.get("manager") == manager
    )
