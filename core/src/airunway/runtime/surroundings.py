"""What a pass of the provider runtime needs from around it: caches, the upstream as found, configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from airunway.kube import Kind, Overlay
from airunway.plugins.contract import UpstreamKind
from airunway.runtime.children import Children
from airunway.runtime.evidence import EvidenceCollector
from airunway.runtime.upstream import CrdFacts, Installed

__all__ = ["ProviderSettings", "Surroundings", "UpstreamView", "kind_in"]


def kind_in(upstream: UpstreamKind, version: str) -> Kind:
    """The kind as the client addresses it, in one version."""
    return Kind(group=upstream.group, version=version, kind=upstream.kind, plural=upstream.plural, namespaced=True)


@dataclass(frozen=True, kw_only=True)
class ProviderSettings:
    """The provider's own configuration: `values` goes to the plugin as it is."""

    values: Mapping[str, Any] = field(default_factory=dict)
    verify_unknown_schemas: bool = True
    namespaces: tuple[str, ...] = ()


@dataclass(kw_only=True)
class UpstreamView:
    """One upstream kind while its CRD is there: how it is addressed, and what is known of its objects."""

    kind: Kind
    objects: Overlay
    synced: Callable[[], bool]


@dataclass(kw_only=True)
class Surroundings:
    """Shared by all passes; the application keeps it current.

    `views` has an entry for each upstream kind that is served now, by its CamelCase name; `schemas` what is known of
    the CRD of each kind of the manifest, in its order.
    """

    deployments: Overlay
    children: Children
    views: dict[str, UpstreamView]
    installed: Installed
    settings: ProviderSettings
    schemas: tuple[CrdFacts | None, ...] = ()
    evidence: EvidenceCollector | None = None
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    def settled(self) -> bool:
        """Whether every cache was read completely: before that, absence means nothing."""
        known = self.evidence is None or self.evidence.settled()
        return known and all(view.synced() for view in self.views.values())
