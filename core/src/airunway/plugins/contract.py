"""The values that pass between the core and a provider plugin (spec/providers.md, "The contract").

Frozen dataclasses only: a plugin gets data and gives data. Nothing here holds a client, a connection or a clock, so a
preview, a replay and the conformance suite need no cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from airunway.resource import Resource

__all__ = [
    "CONTRACT_VERSIONS",
    "Compatibility",
    "Component",
    "Context",
    "Endpoint",
    "EngineCapability",
    "Finding",
    "Installation",
    "Observation",
    "Observed",
    "ProviderManifest",
    "Replicas",
    "RuntimeSettings",
    "SelectionMode",
    "SelectionRule",
    "State",
    "Transformer",
    "Upstream",
    "UpstreamKind",
]

CONTRACT_VERSIONS: tuple[str, ...] = ("v1",)
"""Versions of this contract that the core speaks, newest first; it keeps the last two."""


class SelectionMode(StrEnum):
    """Whether a provider takes part in automatic selection (spec ruling 7)."""

    AUTO = "Auto"
    EXPLICIT = "Explicit"


@dataclass(frozen=True, kw_only=True)
class EngineCapability:
    """What a provider can do with one engine; becomes an entry of ``spec.capabilities.engines``."""

    name: str
    serving_modes: tuple[str, ...] = ("aggregated",)
    gpu_support: bool = False
    cpu_support: bool = False
    api_formats: tuple[str, ...] = ()
    requires_crd: bool | None = None
    model_cache: bool = False
    path_routing: bool = False
    scale_to_zero: bool = False
    multi_node: bool = False
    gateway: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class SelectionRule:
    """A CEL expression over ``spec`` and the score that it earns when true."""

    condition: str
    priority: int = 0


@dataclass(frozen=True, kw_only=True)
class UpstreamKind:
    """A kind of the upstream that the provider writes. `versions` are preferred first.

    `primary` marks the one kind that ``translate_spec`` puts first and whose CRD decides readiness.
    `namespaced` kinds only: owner references cannot cross namespaces.
    """

    group: str
    kind: str
    plural: str
    versions: tuple[str, ...]
    requires_crd: bool = True
    primary: bool = False


@dataclass(frozen=True, kw_only=True)
class Installation:
    """How an administrator installs the upstream; shown in the InferenceProviderConfig."""

    description: str = ""
    default_namespace: str = ""
    helm_repos: Sequence[Mapping[str, str]] = ()
    helm_charts: Sequence[Mapping[str, Any]] = ()
    steps: Sequence[Mapping[str, str]] = ()


@dataclass(frozen=True, kw_only=True)
class ProviderManifest:
    """Static data about a provider: no I/O happens to make one.

    `override_schema` is a JSON schema for ``spec.provider.overrides``. `immutable_paths` are JSON paths of the primary
    object (``resource.count``; a trailing ``.*`` covers the subtree) that the upstream refuses or ignores when they
    change on a live object: a change there deletes and recreates it (spec ruling 10). `rbac_rules` are what the
    provider's service account needs beyond what the runtime does, and beyond writing and watching the kinds of
    `upstream`.
    """

    name: str
    version: str
    contract_versions: tuple[str, ...] = ("v1",)
    display_name: str = ""
    description: str = ""
    documentation: str = ""
    engines: tuple[EngineCapability, ...]
    selection: SelectionMode = SelectionMode.AUTO
    selection_rules: tuple[SelectionRule, ...] = ()
    upstream: tuple[UpstreamKind, ...]
    pod_label: str | None = None
    """Label key that the upstream puts on a deployment's pods, with the primary object's name as value."""
    override_schema: Resource = field(default_factory=dict)
    immutable_paths: tuple[str, ...] = ()
    rbac_rules: tuple[Resource, ...] = ()
    installation: Installation = Installation()


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """One way of writing the upstream's objects, and the schemas that it is known to fit (spec ruling 12).

    `schema_hashes` are full or 12-digit sha256 digests of the chosen version's schema without descriptions.
    `features` name what this generation of the schema can express; translation asks for them by name.
    """

    name: str
    api_version: str
    schema_hashes: tuple[str, ...]
    features: frozenset[str] = frozenset()
    releases: str = ""


@dataclass(frozen=True, kw_only=True)
class Upstream:
    """The upstream as found in the cluster (or as assumed for a preview)."""

    api_version: str
    transformer: Transformer
    schema_hash: str = ""
    verified: bool = True


@dataclass(frozen=True, kw_only=True)
class RuntimeSettings:
    """The effective runtime config of a deployment, as far as translation needs it (spec/platform.md)."""

    env: tuple[Resource, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    storage_class: str = ""


@dataclass(frozen=True, kw_only=True)
class Context:
    """All that a translation may know besides the deployment itself.

    `engine` is the resolved engine; `settings` is the provider's own configuration (free-form, from its chart);
    `now` is the only clock.
    """

    contract_version: str = CONTRACT_VERSIONS[0]
    engine: str
    upstream: Upstream | None
    runtime: RuntimeSettings = RuntimeSettings()
    model_cache: Mapping[str, str] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    now: datetime


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something to say about one field: `path` is a JSON path into the ModelDeployment."""

    path: str
    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Compatibility:
    """Whether a provider can honour a deployment; every field that would be dropped is named (spec ruling 18).

    `blockers` change what runs: nothing is created. `warnings` do not: they go to ``status.warnings``.
    """

    blockers: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.blockers


class State(StrEnum):
    """How a component is, worst first (seed 001 orders badness so)."""

    FAILED = "Failed"
    NOT_AVAILABLE = "NotAvailable"
    DEGRADED = "Degraded"
    PENDING = "Pending"
    PROGRESSING = "Progressing"
    UNKNOWN = "Unknown"
    READY = "Ready"


@dataclass(frozen=True, kw_only=True)
class Component:
    """The state of one tracked thing. `reason` is CamelCase, from the reason registry or new: the list is open."""

    name: str
    state: State
    reason: str
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Replicas:
    desired: int = 0
    ready: int = 0
    available: int = 0


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    service: str
    port: int
    scheme: str = "http"


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What exists in the cluster of the objects that ``translate_spec`` asked for.

    `primary` is the primary object or None; `objects` all of them that exist, primary included.
    """

    primary: Resource | None
    objects: tuple[Resource, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What ``translate_status`` reads out of the upstream. The status library makes phase and conditions of it.

    `current` is False while what runs is not yet known to be what the newest spec asked for.
    """

    components: tuple[Component, ...] = ()
    replicas: Replicas | None = None
    endpoint: Endpoint | None = None
    current: bool = True
    warnings: tuple[Finding, ...] = ()
