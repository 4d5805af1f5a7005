"""The runtime configs of a snapshot, and which one an object follows. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from airunway.configs import Resolution, config_name
from airunway.doctor.snapshot import Snapshot
from airunway.plugins.settings import resolve_among
from airunway.resource import Resource, key_of

__all__ = ["configs_by_name", "configs_in", "resolved"]


def configs_in(seen: Snapshot) -> Iterator[tuple[str, Resource]]:
    """Every runtime config with its name in a finding."""
    for config in (*(seen.runtime_configs or ()), *(seen.cluster_runtime_configs or ())):
        key = key_of(config)
        kind = "RuntimeConfig" if key.namespace else "ClusterRuntimeConfig"
        yield "/".join(filter(None, (kind, key.namespace, key.name))), config


def configs_by_name(seen: Snapshot) -> Mapping[str, list[Resource]]:
    """The configs by their name, with the kind that objects of a list lack."""
    found: dict[str, list[Resource]] = defaultdict(list)
    for name, config in configs_in(seen):
        found[key_of(config).name].append({**config, "kind": name.partition("/")[0]})
    return found


def resolved(deployment: Resource, configs: Mapping[str, list[Resource]]) -> Resolution:
    return resolve_among(deployment, configs.get(config_name(deployment), ()))
