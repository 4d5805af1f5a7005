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
    """A kind as it is served in the cluster (or as assumed for a preview): version and transformer.

    A kind without transformers has one without a name. `verified` is False while nobody has shown that the transformer
    fits the schema: then everything is dry-run first.
    """

    api_version: str
    transformer: Transformer
    schema_hash: str = ""
    verified: bool = True


@dataclass(frozen=True, kw_only=True)
class SecretKey:
    """One key of a Secret in the deployment's namespace."""

    name: str
    key: str


@dataclass(frozen=True, kw_only=True)
class RuntimeSettings:
    """The effective runtime config of a deployment, as far as pods need it (spec/platform.md).

    `env` are entries as in a container, `labels` those that propagate to pods, `image_pull_secrets` names of Secrets,
    `token` the Hugging Face token that is used where the deployment names none.
    """

    env: tuple[Resource, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    image_pull_secrets: tuple[str, ...] = ()
    token: SecretKey | None = None


@dataclass(frozen=True, kw_only=True)
class ModelCache:
    """Weights that are in the cluster already: the claim, the folder in it, and where a pod is to mount it.

    With `offline` nothing may be fetched from the model hub. `read_only` is how pods mount it.
    """

    claim: str
    sub_path: str = ""
    mount_path: str = "/model-cache"
    read_only: bool = True
    offline: bool = True


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """The gateway that will route to the deployment. `uses_pool`: through an InferencePool, not through a Service."""

    name: str
    namespace: str
    uses_pool: bool = False


S = TypeVar("S", default=Any)


@dataclass(frozen=True, kw_only=True)
class Context(Generic[S]):
    """All that a translation may know besides the deployment itself.

    `engine` is the resolved engine. `upstream` is the primary kind as it is to be written; `served` has every kind of
    the manifest that is served now, by `UpstreamKind.key`. `settings` is the dataclass that the manifest names.
    `live_kind` is the kind (by `UpstreamKind.key`) of the primary object that exists, empty where there is none: a
    provider that may begin a plan with either of two kinds keeps to it what runs.
    `kubernetes` is the cluster's version, `now` the only clock.
    """

    contract_version: str = CONTRACT_VERSIONS[0]
    engine: str
    upstream: Upstream
    served: Mapping[str, Upstream] = field(default_factory=dict)
    live_kind: str = ""
    runtime: RuntimeSettings = RuntimeSettings()
    cache: ModelCache | None = None
    gateway: Gateway | None = None
    settings: S
    kubernetes: tuple[int, int] = (1, 30)
    now: datetime

    def has(self, feature: str) -> bool:
        """Whether the upstream's generation can express something, by the name that its transformer gives it."""
        return feature in self.upstream.transformer.features


# ----------------------------------------------------------------------------------------------- what a plugin says


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


@dataclass(frozen=True, kw_only=True)
class Interruption:
    """A part of the primary object that can be changed in place, and not without an outage.

    `value` is anything that JSON can say; `message` what is said before another value of it is written, empty where
    there is no outage this time (other replicas go on).
    """

    value: object
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Translation:
    """The complete desired objects, the primary first; the others are made in their order, before it.

    `replace_on` names what else needs a new primary object when its value changes (component names, roles): anything
    that JSON can say.
    `overrides_at` says where in the primary object parts of ``spec.provider.overrides`` belong, by their paths
    (``{"resource": "spec.template.resource"}``; the longest path counts). What is not named is merged as it stands.
    `interrupts` names what takes the model away for a while when it changes in place; that is said before.
    """

    objects: tuple[Resource, ...]
    replace_on: Mapping[str, object] = field(default_factory=dict)
    overrides_at: Mapping[str, str] = field(default_factory=dict)
    interrupts: Mapping[str, Interruption] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Component:
    """One tracked thing. It becomes the condition ``<name>Ready``.

    `ready` None: nothing is known. `reason` is CamelCase, from the reason registry or new (a new one counts as a fault
    of the workload); its category alone decides what it does to the phase. `waits`: for something else that comes
    first. `partial`: the rest serves without it, so that it degrades and never fails. `role` is the value of the
    manifest's role label on its pods: what they show is as partial as it is. `firsthand`: the upstream has it from the
    engine itself, inside of what runs: no pod has to show it (else a pod's fault that no pod shows is outdated).
    """

    name: str
    ready: bool | None
    reason: str
    message: str = ""
    waits: bool = False
    partial: bool = False
    role: str = ""
    firsthand: bool = False


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
    """Where the model is served inside the cluster: a Service of the deployment's namespace.

    `url` is the upstream's own address where that is none of such a Service (``http://gateway.kserve.svc/team/llama``):
    it stands in the status as it is. `service` and `port` are then those behind it, where there are any.
    """

    service: str = ""
    port: int = 0
    scheme: str = "http"
    url: str = ""


@dataclass(frozen=True, kw_only=True)
class Pool:
    """The InferencePool that a route may point to, in the deployment's namespace, and the port its members serve on."""

    name: str
    port: int


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What exists in the cluster for the deployment.

    `primary` is the primary object or None; `objects` everything of the manifest's kinds that was seen of it, primary
    and read-only kinds included; `events` those that the manifest asked for, oldest first; `applied` when we changed
    the primary last.
    """

    primary: Resource | None
    objects: tuple[Resource, ...] = ()
    events: tuple[EventFacts, ...] = ()
    applied: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What ``translate_status`` reads out of the upstream. The status library makes phase and conditions of it.

    `components` has at least one. `current` is False while what runs is not yet known to be what the newest spec asked
    for. `selector` selects the serving pods where our own label and the serving role do not. `dead` says why only a new
    object can help: the next generation of the deployment makes it anew. `look_again` is a number of seconds after
    which time alone changes the answer. `refused` is why the upstream refuses the newest spec while what it made of the
    one before serves on: the deployment is Degraded for that reason, never Failed, and keeps its endpoint. The
    components then say how what serves is, and `current` is False.
    """

    components: tuple[Component, ...]
    replicas: Replicas | None = None
    endpoint: Endpoint | None = None
    current: bool = True
    warnings: tuple[Finding, ...] = ()
    selector: str = ""
    pool: Pool | None = None
    dead: str = ""
    look_again: float | None = None
    refused: Finding | None = None
