"""The values that pass between the core and a provider plugin (spec/contract.md; docs/providers/contract.md).

Frozen dataclasses only: a plugin gets data and gives data. Nothing here holds a client, a connection or a clock, so a
preview, a replay and the conformance suite need no cluster. Providers import all of it from `airunway.sdk`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic

from typing_extensions import TypeVar

from airunway.plugins.manifest import (
    EngineCapability,
    Installation,
    NoSettings,
    ProviderManifest,
    Reading,
    SelectionMode,
    SelectionRule,
    Transformer,
    UpstreamKind,
    kind_key,
)
from airunway.resource import Resource
from airunway.status.evidence import EventFacts

__all__ = [
    "CONTRACT_VERSIONS",
    "Compatibility",
    "Component",
    "Context",
    "Endpoint",
    "EngineCapability",
    "Finding",
    "Gateway",
    "Installation",
    "Interruption",
    "ModelCache",
    "NoSettings",
    "Observation",
    "Observed",
    "Pool",
    "ProviderManifest",
    "Reading",
    "Replicas",
    "RuntimeSettings",
    "SecretKey",
    "SelectionMode",
    "SelectionRule",
    "Transformer",
    "Translation",
    "Upstream",
    "UpstreamKind",
    "kind_key",
]

CONTRACT_VERSIONS: tuple[str, ...] = ("v1",)
"""Versions of this contract that the core speaks, newest first; it keeps the last two."""


# ------------------------------------------------------------------------------------- what a translation may know


@dataclass(frozen=True, kw_only=True)
class Upstream:
    """A kind as it is served in the cluster, or as assumed for a preview."""

    api_version: str
    """Of the version to write."""
    transformer: Transformer
    """How objects of the kind are written; one without a name for a kind without transformers."""
    schema_hash: str = ""
    """Digest of the served schema; empty where it is not known."""
    verified: bool = True
    """False until the transformer is known to fit the schema: then every write is preceded by a dry run."""


@dataclass(frozen=True, kw_only=True)
class SecretKey:
    """One key of a Secret in the deployment's namespace."""

    name: str
    key: str


@dataclass(frozen=True, kw_only=True)
class RuntimeSettings:
    """The effective runtime config of a deployment, as far as pods need it (spec/platform.md)."""

    env: tuple[Resource, ...] = ()
    """Entries as in a container's ``env``."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that propagate to pods."""
    image_pull_secrets: tuple[str, ...] = ()
    """Names of Secrets."""
    token: SecretKey | None = None
    """The Hugging Face token for deployments that name none."""


@dataclass(frozen=True, kw_only=True)
class ModelCache:
    """Weights that are in the cluster already."""

    claim: str
    """Name of the PersistentVolumeClaim."""
    sub_path: str = ""
    """Folder in the volume."""
    mount_path: str = "/model-cache"
    """Where pods mount it."""
    read_only: bool = True
    """Whether pods mount it read-only."""
    offline: bool = True
    """Nothing may be fetched from the model hub."""


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """The gateway that will route to the deployment."""

    name: str
    namespace: str
    uses_pool: bool = False
    """It routes through an InferencePool, not through a Service."""


S = TypeVar("S", default=Any)


@dataclass(frozen=True, kw_only=True)
class Context(Generic[S]):
    """All that a translation may know besides the deployment itself."""

    contract_version: str = CONTRACT_VERSIONS[0]
    engine: str
    """The resolved engine."""
    upstream: Upstream
    """The primary kind, in the version to write."""
    served: Mapping[str, Upstream] = field(default_factory=dict)
    """Every kind of the manifest that the cluster serves, by `UpstreamKind.key`."""
    live_kind: str = ""
    """Kind of the primary object that exists, by `UpstreamKind.key`, or empty. A provider that can choose between two
    kinds keeps the one that runs."""
    runtime: RuntimeSettings = RuntimeSettings()
    cache: ModelCache | None = None
    gateway: Gateway | None = None
    settings: S
    """An instance of the dataclass that the manifest names."""
    kubernetes: tuple[int, int] = (1, 30)
    """Major and minor version of the cluster."""
    now: datetime
    """The only clock."""

    def has(self, feature: str) -> bool:
        """Whether the upstream's generation can express something, by the name that its transformer gives it."""
        return feature in self.upstream.transformer.features


# ----------------------------------------------------------------------------------------------- what a plugin says


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something to say about one field."""

    path: str
    """JSON path into the ModelDeployment: ``spec.engine.args.foo``."""
    reason: str
    """CamelCase."""
    message: str
    """What is wrong and what to do."""


@dataclass(frozen=True, kw_only=True)
class Compatibility:
    """Whether a provider can honour a deployment; every field that would be dropped is named (spec ruling 18)."""

    blockers: tuple[Finding, ...] = ()
    """Something else than asked for would run: nothing is created."""
    warnings: tuple[Finding, ...] = ()
    """What runs is as asked for: these go into ``status.warnings``."""

    @property
    def ok(self) -> bool:
        return not self.blockers


@dataclass(frozen=True, kw_only=True)
class Interruption:
    """A part of the primary object that can be changed in place, but takes the model away for a while."""

    value: object
    """Its value in this translation: anything that JSON can hold."""
    message: str = ""
    """Shown before another value is written; empty where other replicas go on serving."""


@dataclass(frozen=True, kw_only=True)
class Translation:
    """The complete desired objects.

    Example of `overrides_at`: ``{"resource": "spec.template.resource"}`` merges ``overrides.resource`` there and all
    other overrides as they stand; the longest path counts.
    """

    objects: tuple[Resource, ...]
    """The primary first. The others are made in their order, before it."""
    replace_on: Mapping[str, object] = field(default_factory=dict)
    """What else needs a new primary object when its value changes (component names, roles), as JSON values by name."""
    overrides_at: Mapping[str, str] = field(default_factory=dict)
    """Where in the primary object parts of ``spec.provider.overrides`` belong: JSON path by path."""
    interrupts: Mapping[str, Interruption] = field(default_factory=dict)
    """What takes the model away for a while when it changes in place, by name."""


@dataclass(frozen=True, kw_only=True)
class Component:
    """One part of the upstream that is tracked. It becomes the condition ``<name>Ready``."""

    name: str
    """Name of the part; CamelCase."""
    ready: bool | None
    """None: nothing is known about it."""
    reason: str
    """CamelCase, from the reason registry or new (then a fault of the workload). Its category decides the phase."""
    message: str = ""
    """What is wrong and what to do."""
    pending: bool = False
    """It cannot start before something else exists: a CRD, a volume, the object itself."""
    only_degrades: bool = False
    """The model is served without it: a fault here makes the deployment Degraded, never Failed."""
    role: str = ""
    """Value of the manifest's role label on its pods. `only_degrades` holds for the faults of those pods too."""
    authoritative: bool = False
    """The upstream asked the engine itself, so the fault counts although no pod shows it."""


@dataclass(frozen=True, kw_only=True)
class Replicas:
    """Serving replicas, never helpers (routers, pickers, heads). Those of several components can be added."""

    desired: int = 0
    ready: int = 0
    available: int = 0

    def __add__(self, other: Replicas) -> Replicas:
        return Replicas(
            desired=self.desired + other.desired,
            ready=self.ready + other.ready,
            available=self.available + other.available,
        )


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where the model is served inside the cluster: a Service in the deployment's namespace."""

    service: str = ""
    port: int = 0
    scheme: str = "http"
    url: str = ""
    """The upstream's own address where no such Service has it (``http://gateway.kserve.svc/team/llama``). It goes into
    the status unchanged; `service` and `port` are then the ones behind it, if any."""


@dataclass(frozen=True, kw_only=True)
class Pool:
    """The InferencePool that a route may point to, in the deployment's namespace, and the port its members serve on."""

    name: str
    port: int


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What exists in the cluster for the deployment."""

    primary: Resource | None
    objects: tuple[Resource, ...] = ()
    """All of the deployment's objects of the manifest's kinds, the primary and read-only kinds included."""
    events: tuple[EventFacts, ...] = ()
    """Those that the manifest asks for, oldest first."""
    applied: datetime | None = None
    """When the primary was last changed by us."""

    def find(self, kind: str, name: str) -> Resource | None:
        """The object of that kind and name; None where there is none."""
        for obj in self.objects:
            metadata = obj.get("metadata") if obj.get("kind") == kind else None
            if isinstance(metadata, dict) and metadata.get("name") == name:
                return obj
        return None


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What ``translate_status`` reads out of the upstream. The status library makes phase and conditions of it."""

    components: tuple[Component, ...]
    """At least one."""
    replicas: Replicas | None = None
    """None: the upstream does not say."""
    endpoint: Endpoint | None = None
    """None: the model is not served yet."""
    up_to_date: bool = True
    """False until what runs is known to be what the newest spec asked for."""
    warnings: tuple[Finding, ...] = ()
    """Go into ``status.warnings``."""
    selector: str = ""
    """Label selector of the serving pods, where our own label and the serving role do not select them."""
    pool: Pool | None = None
    """An InferencePool that a route may point to."""
    unrecoverable: str = ""
    """Why the object cannot recover in place: the next generation of the deployment recreates it."""
    requeue_after: float | None = None
    """Seconds after which time alone changes the answer."""
    refused: Finding | None = None
    """Why the upstream refuses the newest spec while the previous one still serves: Degraded, never Failed, and the
    endpoint stays. `components` describe what serves, and `up_to_date` is False."""
