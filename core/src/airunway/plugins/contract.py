"""The values that pass between the core and a provider plugin (spec/contract.md; docs/providers/contract.md).

Frozen dataclasses only: a plugin gets data and gives data. Nothing here holds a client, a connection or a clock, so a
preview, a replay and the conformance suite need no cluster. Providers import all of it from `airunway.sdk`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, Literal

from typing_extensions import TypeVar

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
    "ModelCache",
    "NoSettings",
    "Observation",
    "Observed",
    "Pool",
    "ProviderManifest",
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


# ------------------------------------------------------------------------------------------- what a provider is


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
    """A namespaced kind that the provider writes, or reads. `versions` are preferred first.

    `primary` marks the one kind that decides whether the provider can work; a plan may begin with an object of another
    kind of the manifest all the same (a LeaderWorkerSet in place of a Deployment).
    `builtin` kinds are part of Kubernetes and need no CRD. With `required` False the provider works without the kind,
    and ``context.served`` says whether it is there.
    `select` is a label: objects of the kind that carry it with the primary object's name as value are what the upstream
    made of that; they are in ``Observed.objects``. `write` False: objects of the kind are only read, so.
    `immutable` are JSON paths (``spec.selector``; a trailing ``.*`` covers the subtree) that cannot be changed in
    place: an object that is not the primary is replaced by itself where one of them changes. Paths of the primary
    differ by version and stand in its transformers.
    `deletion` is ``Foreground`` for what runs pods: gone means that they have let go of their GPUs.
    """

    group: str
    kind: str
    plural: str
    versions: tuple[str, ...]
    primary: bool = False
    builtin: bool = False
    required: bool = True
    write: bool = True
    select: str = ""
    immutable: tuple[str, ...] = ()
    deletion: Literal["Background", "Foreground"] = "Background"

    @property
    def key(self) -> str:
        """How ``context.served`` calls it: ``Workspace.kaito.sh``; the core group's kinds by their name alone."""
        return kind_key(self.group, self.kind)


def kind_key(group: str, kind: str) -> str:
    """``<Kind>.<group>``, or the kind alone where the group is Kubernetes' core group."""
    return f"{kind}.{group}" if group else kind


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """One way of writing an upstream kind, and the schemas that it is known to fit (spec rulings 12 and 27).

    Released ones never change what they write for the same input: a change is a new transformer.
    `kind` is the CamelCase kind, empty for the primary one. `schema_hashes` are full or 12-digit sha256 digests of the
    version's schema without descriptions; a built-in kind has none. `features` name what this generation can express;
    translation asks for them by name. `immutable` are the paths of the object that the upstream refuses or ignores when
    they change on a live one: a change there makes it anew (ruling 10). `since` and `until` are upstream releases, both
    included; empty where they are not known.
    """

    name: str
    api_version: str
    kind: str = ""
    schema_hashes: tuple[str, ...] = ()
    features: frozenset[str] = frozenset()
    immutable: tuple[str, ...] = ()
    since: str = ""
    until: str = ""


@dataclass(frozen=True, kw_only=True)
class Installation:
    """How an administrator installs the upstream; shown in the InferenceProviderConfig."""

    description: str = ""
    default_namespace: str = ""
    helm_repos: Sequence[Mapping[str, str]] = ()
    helm_charts: Sequence[Mapping[str, Any]] = ()
    steps: Sequence[Mapping[str, str]] = ()


@dataclass(frozen=True, kw_only=True)
class NoSettings:
    """The settings of a provider that has none."""


@dataclass(frozen=True, kw_only=True)
class ProviderManifest:
    """Static data about a provider: no I/O happens to make one.

    `override_schema` is a JSON schema for ``spec.provider.overrides``.
    `pod_labels` are label keys that pods of a deployment carry with the primary object's name (or that of an object it
    made, see ``UpstreamKind.select``) as value; a pod is known by the first that it has. Where there are none, pods are
    known by our own label ``airunway.ai/model-deployment``, which the provider puts into its pod templates.
    `role_label` is the label that tells pods of one deployment apart, and `serving_roles` its values on those that
    serve: only these make a deployment ready or count as replicas (a pod without the label serves).
    `events` are those that the plugin wants to see, Warning or Normal, as reasons by the kind that they are about;
    each reason costs one watch.
    `settings` is a frozen dataclass of the provider's own configuration; every field has a default.
    `rbac_rules` are rights beyond those that follow from the kinds (a Role can only grant what its maker has).
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
    pod_labels: tuple[str, ...] = ()
    role_label: str = ""
    serving_roles: tuple[str, ...] = ()
    events: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    settings: type = NoSettings
    override_schema: Resource = field(default_factory=dict)
    rbac_rules: tuple[Resource, ...] = ()
    installation: Installation = Installation()


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
class Translation:
    """The complete desired objects, the primary first; the others are made in their order, before it.

    `replace_on` names what else needs a new primary object when its value changes (component names, roles): anything
    that JSON can say.
    `overrides_at` says where in the primary object parts of ``spec.provider.overrides`` belong, by their paths
    (``{"resource": "spec.template.resource"}``; the longest path counts). What is not named is merged as it stands.
    """

    objects: tuple[Resource, ...]
    replace_on: Mapping[str, object] = field(default_factory=dict)
    overrides_at: Mapping[str, str] = field(default_factory=dict)


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
    """Serving replicas, never helpers (routers, pickers, heads)."""

    desired: int = 0
    ready: int = 0
    available: int = 0


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where the model is served inside the cluster: a Service of the deployment's namespace."""

    service: str
    port: int
    scheme: str = "http"


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
    which time alone changes the answer.
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
