"""Reads how a provider runs in a cluster from the settings that it publishes on its Lease."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airunway.api import names
from airunway.kube import LEASE, Client, Forbidden
from airunway.process.effective_settings import PART_OF, published_in
from airunway.resource import Resource

__all__ = ["ProviderRun", "provider_run_in", "read_provider_run"]


@dataclass(frozen=True, kw_only=True)
class ProviderRun:
    """How a provider runs, or the defaults that are assumed."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """The provider's settings by name."""
    verify: bool = True
    """Whether objects are written for an unknown upstream schema (``--unknown-schema Verify``)."""
    source: str = ""
    """The Lease that publishes it; empty if none does."""
    assumed: str = ""
    """What could not be read, and why; empty if it was."""


async def read_provider_run(client: Client, provider: str) -> ProviderRun:
    """How a provider runs, from our processes' Leases in all namespaces. Raises KubeError."""
    try:
        return provider_run_in(await client.list_all(LEASE, label_selector="=".join(PART_OF)), provider)
    except Forbidden:
        return _assumed("you may not list Leases in all namespaces")


def provider_run_in(leases: Sequence[Resource], provider: str) -> ProviderRun:
    """How a provider runs according to these Leases."""
    manager = names.provider_manager(provider)
    found = {f"Lease/{each.namespace}/{manager}": each for each in published_in(leases) if each.manager == manager}
    if not found:
        return _assumed(f"no Lease {manager} says how it runs: it has never led, or runs without --leader-elect")
    if len(found) > 1:
        return _assumed(f"several processes run it: {', '.join(found)}")
    ((source, running),) = found.items()
    return ProviderRun(
        settings=running.settings, verify=running.options.get("unknown-schema", "Verify") != "Fail", source=source
    )


def _assumed(why: str) -> ProviderRun:
    return ProviderRun(assumed=f"default settings and --unknown-schema Verify: {why}")
