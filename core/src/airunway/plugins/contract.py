"""The values that pass between the core and a provider plugin (spec/contract.md; docs/providers/contract.md).

All are frozen dataclasses without clients, connections or clocks, so previews, replays and the conformance suite need
no cluster. Providers import them from `airunway.sdk`.
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
"""Versions of this contract that the core supports, newest first; it keeps the last two."""


# -------------------------------------------------------------------------------------------- input of a translation


@dataclass(frozen=True, kw_only=True)
class Upstream:
    """A kind as the cluster serves it, or as assumed for a preview."""

    api_version: str
    """The version to write."""
    transformer: Transformer
    """How objects of the kind are written; a transformer without a name if the kind has none."""
    schema_hash: str = ""
    """Digest of the served schema; empty if unknown."""
    verified: bool = True
    """False until the transformer is known to fit the schema; until then a dry run precedes every write."""


@dataclass(frozen=True, kw_only=True)
class SecretKey:
    """One key of a Secret in the deployment's namespace."""

    name: str
    key: str


@dataclass(frozen=True, kw_only=True)
class RuntimeSettings:
    """The parts of a deployment's effective runtime config that pods need (spec/platform.md)."""

    env: tuple[Resource, ...] = ()
    """Entries as in a container's ``env``."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels to add to pods."""
    image_pull_secrets: tuple[str, ...] = ()
    """Names of Secrets."""
    token: SecretKey | None = None
    """The Hugging Face token for deployments without their own."""


@dataclass(frozen=True, kw_only=True)
class ModelCache:
    """Model weights that are already in the cluster."""

    claim: str
    """Name of the PersistentVolumeClaim."""
    sub_path: str = ""
    """Directory in the volume."""
    mount_path: str = "/model-cache"
    """Where pods mount it."""
    path: str = ""
    """Where the weights are in the container: the mount path, or a folder or file below it. Empty: the mount path, or
    the file or folder below it that the model id names."""
    read_only: bool = True
    """Whether pods mount it read-only."""
    offline: bool = True
    """The engine must not download from the model hub."""
    access_mode: str = ""
    """Access mode of the claim; empty: not known. ``ReadWriteOnce`` and ``ReadWriteOncePod`` allow one pod."""


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """The gateway that will route to the deployment."""

    name: str
    namespace: str
    uses_pool: bool = False
    """It routes to an InferencePool, not to a Service."""


S = TypeVar("S", default=Any)


@dataclass(frozen=True, kw_only=True)
class Context(Generic[S]):
    """Everything that a translation may use besides the deployment itself."""

    contract_version: str = CONTRACT_VERSIONS[0]
    engine: str
    """The resolved engine."""
    upstream: Upstream
    """The primary kind, in the version to write."""
    served: Mapping[str, Upstream] = field(default_factory=dict)
    """All kinds of the manifest that the cluster serves, by `UpstreamKind.key`."""
    live_kind: str = ""
    """Kind of the existing primary object (by `UpstreamKind.key`), or empty. A provider that can choose between two
    kinds keeps the existing one."""
    runtime: RuntimeSettings = RuntimeSettings()
    cache: ModelCache | None = None
    gateway: Gateway | None = None
    live: Resource | None = None
    """The existing primary object, as a copy; None if there is none. What cannot be changed while it exists is kept as
    it is there."""
    spec_changed: bool = True
    """Whether the spec has changed, in anything but replica counts, ``gateway`` and ``suspend``, since the existing
    primary object was written; True if there is none."""
    settings: S
    """An instance of the dataclass that the manifest names."""
    kubernetes: tuple[int, int] = (1, 30)
    """Major and minor version of the cluster."""
    now: datetime
    """The current time; hooks must not read another clock."""

    def has(self, feature: str) -> bool:
        """Whether the primary kind's transformer has a feature."""
        return feature in self.upstream.transformer.features


# ------------------------------------------------------------------------------------------------ output of a plugin


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A message about one field."""

    path: str
    """JSON path into the ModelDeployment: ``spec.engine.args.foo``."""
    reason: str
    """CamelCase."""
    message: str
    """What is wrong and what to do."""


@dataclass(frozen=True, kw_only=True)
class Compatibility:
    """Whether a provider can honour a deployment; it names every field that would be dropped (spec ruling 18)."""

    blockers: tuple[Finding, ...] = ()
    """The result would differ from the request, so nothing is created."""
    warnings: tuple[Finding, ...] = ()
    """The result is as requested; these are copied into ``status.warnings``."""

    @property
    def ok(self) -> bool:
        return not self.blockers


@dataclass(frozen=True, kw_only=True)
class Interruption:
    """A part of the primary object whose change in place makes the model unavailable for a while."""

    value: object
    """Its value in this translation, as JSON."""
    message: str = ""
    """Shown before another value is written; empty if other replicas keep serving."""


@dataclass(frozen=True, kw_only=True)
class Translation:
    """The complete desired objects."""

    objects: tuple[Resource, ...]
    """The primary object first. The others are created before it, in their order."""
    replace_on: Mapping[str, object] = field(default_factory=dict)
    """Further values, by name, whose change requires a new primary object (component names, roles); JSON."""
    overrides_at: Mapping[str, str] = field(default_factory=dict)
    """Where parts of ``spec.provider.overrides`` belong in the primary object: target path by path in the overrides.
    The longest path counts; other overrides are merged unchanged. Example: ``{"resource": "spec.template.resource"}``
    merges ``overrides.resource`` there."""
    interrupts: Mapping[str, Interruption] = field(default_factory=dict)
    """Parts whose change in place makes the model unavailable for a while, by name."""


@dataclass(frozen=True, kw_only=True)
class Component:
    """One part of the upstream whose state is tracked. It becomes the condition ``<name>Ready``."""

    name: str
    """Name of the part; CamelCase."""
    ready: bool | None
    """None: the state is unknown."""
    reason: str
    """CamelCase, from the reason registry or new (a new one counts as a fault of the workload). Its category determines
    the phase."""
    message: str = ""
    """What is wrong and what to do."""
    pending: bool = False
    """It cannot start before something else exists: a CRD, a volume, the object itself."""
    only_degrades: bool = False
    """The model is served without it, so a fault makes the deployment Degraded, never Failed."""
    role: str = ""
    """Value of the manifest's role label on its pods. `only_degrades` also applies to faults of those pods."""
    authoritative: bool = False
    """The upstream queried the engine itself, so the fault counts even if no pod shows it."""


@dataclass(frozen=True, kw_only=True)
class Replicas:
    """Serving replicas, without helpers (routers, pickers, heads). Replicas of several components can be added."""

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
    """The Service's port; of a headless Service its target port, because its name resolves to the pods."""
    target_port: int = 0
    """Port of the pods behind the Service, if requests may go to a pod directly (by an InferencePool); 0: they may not,
    or the port is not known."""
    scheme: str = "http"
    url: str = ""
    """The upstream's own address if no such Service has it (``http://gateway.kserve.svc/team/llama``). It is copied
    into the status; `service` and `port` are then those behind it, if any."""


@dataclass(frozen=True, kw_only=True)
class Pool:
    """The InferencePool that a route may point to, in the deployment's namespace, and the port of its members."""

    name: str
    port: int


@dataclass(frozen=True, kw_only=True)
class Observed:
    """The objects and events of a deployment in the cluster."""

    primary: Resource | None
    objects: tuple[Resource, ...] = ()
    """All of the deployment's objects of the manifest's kinds, including the primary object and read-only kinds."""
    events: tuple[EventFacts, ...] = ()
    """Events with the reasons in the manifest, oldest first."""
    applied: datetime | None = None
    """When we last changed the primary object."""

    def find(self, kind: str, name: str) -> Resource | None:
        """The object with that kind and name; None if there is none."""
        for obj in self.objects:
            metadata = obj.get("metadata") if obj.get("kind") == kind else None
            if isinstance(metadata, dict) and metadata.get("name") == name:
                return obj
        return None


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What ``translate_status`` reads from the upstream; the status library derives phase and conditions from it."""

    components: tuple[Component, ...]
    """At least one."""
    replicas: Replicas | None = None
    """None: the upstream does not report them."""
    endpoint: Endpoint | None = None
    """None: the model is not served yet."""
    up_to_date: bool = True
    """False until the running workload is known to match the newest spec."""
    warnings: tuple[Finding, ...] = ()
    """Copied into ``status.warnings``."""
    selector: str = ""
    """Label selector of the serving pods, if our own label and the serving role do not select them."""
    pool: Pool | None = None
    """An InferencePool that a route may point to."""
    unrecoverable: str = ""
    """Why the object cannot recover in place: the next generation of the deployment recreates it."""
    requeue_after: float | None = None
    """Seconds after which the answer changes without any event."""
    refused: Finding | None = None
    """Why the upstream refuses the newest spec while the previous one still serves: Degraded, never Failed, and the
    endpoint stays. `components` then describe the serving spec, and `up_to_date` is False."""
