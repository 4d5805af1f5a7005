"""What a provider declares, and the values that pass between the core and its plugin (docs/providers/contract.md).

The values are frozen dataclasses and enums without clients, connections or clocks, so previews, replays and the
conformance suite need no cluster. Providers import them from `airunway.sdk`.
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
    "SelectionMode",
    "SelectionRule",
    "Transformer",
    "Translation",
    "Upstream",
    "UpstreamKind",
    "api_version",
    "kind_key",
    "namesake_of",
]


CONTRACT_VERSIONS: tuple[str, ...] = ("v1",)
"""Versions of this contract that the core supports, newest first; it keeps the last two."""


# --------------------------------------------------------------------------------------------- what a provider declares


class SelectionMode(StrEnum):
    """Whether a provider takes part in automatic selection."""

    AUTO = "Auto"
    EXPLICIT = "Explicit"


@dataclass(frozen=True, kw_only=True)
class EngineCapability:
    """What a provider supports for one engine; becomes an entry of ``spec.capabilities.engines``."""

    name: str
    serving_modes: tuple[str, ...] = ("aggregated",)
    gpu_support: bool = False
    cpu_support: bool = False
    api_formats: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ("generate",)
    """Tasks of models (``spec.model.task``)."""
    requires_crd: bool | None = None
    model_cache: bool = False
    cache_helpers: int = 0
    """Pods that mount the model cache besides one for each replica (Ray's head, Dynamo's Frontend)."""
    image_volumes: bool = False
    """Weights may come from an OCI image: ``context.cache`` then has an `ModelCache.image`."""
    path_routing: bool = False
    scale_to_zero: bool = False
    autoscaling: Literal["Scale", "Own"] = "Scale"
    """Who follows ``scaling.autoscaling``: KEDA, which changes ``scaling.replicas`` (Scale; nothing to translate), or
    the upstream, for which the plugin translates the field (Own)."""
    multi_node: bool = False
    gateway: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class SelectionRule:
    """A rule of automatic selection."""

    condition: str
    """CEL expression over ``spec``."""
    priority: int = 0
    """Score that the provider earns when the condition is true."""


class Reading(StrEnum):
    """How an upstream interprets a text in an object before it uses the value.

    The conformance kit decodes each text as declared and looks for the user's word in the result: a missing escape is a
    fault, and so is a needless one. It trusts the declaration, because it cannot know the upstream.
    """

    PLAIN = "plain"
    """Unchanged. This is the default, also for paths below a declared one."""

    SHELL = "shell"
    """A line of a POSIX shell (``eval``, ``sh -c``): split into words, expanded, executed."""

    GO_TEMPLATE = "go-template"
    """A template of Go's text/template: ``{{ }}`` is executed, also in keys of maps."""

    DIGEST = "digest"
    """A digest of the deployment's request: it is only compared and contains no user text."""


@dataclass(frozen=True, kw_only=True)
class UpstreamKind:
    """A namespaced kind that the provider writes or reads.

    Paths are JSON paths: ``spec.services.*.extraPodSpec`` (every value of a map), ``spec.groups[*].template.spec``
    (every element of a list), ``metadata.annotations[acme.io/digest]`` (a key with dots).
    """

    group: str
    kind: str
    plural: str
    versions: tuple[str, ...]
    """Preferred first."""
    primary: bool = False
    """The kind without which the provider cannot work. A plan may still begin with another kind of the manifest (a
    LeaderWorkerSet instead of a Deployment)."""
    builtin: bool = False
    """Part of Kubernetes: needs no CRD."""
    since: tuple[int, int] = (0, 0)
    """First version of Kubernetes that serves the built-in kind, if not all that we support do (with `required` False).
    """
    required: bool = True
    """False: the provider works without the kind; ``context.served`` contains it if the cluster serves it."""
    write: bool = True
    """False: objects of the kind are only read; `select` finds them."""
    select: str = ""
    """Label on objects that the upstream creates from the primary object, with its name as value; such objects are in
    ``Observed.objects``."""
    immutable: tuple[str, ...] = ()
    """Paths that cannot change in place (a trailing ``.*`` covers the subtree): a change recreates a secondary object.
    For the primary kind they differ by version and belong in its transformers."""
    deletion: Literal["Background", "Foreground"] = "Background"
    """``Foreground`` for a kind that runs pods: the object is gone only after its pods have released their GPUs."""
    namesakes: tuple[str, ...] = ()
    """Kinds of the manifest (by key) in which the upstream creates an object with the same name, or adopts an existing
    one. ``Service/{name}-predictor``: with a name derived from the object's. Before an object of this kind is created,
    these names must be free."""
    pods: tuple[str, ...] = ()
    """Paths of pod specs in an object of the kind, in all of its versions. The admission policies check them; paths of
    built-in kinds are known."""
    containers: tuple[str, ...] = ()
    """Paths of containers outside of those pod specs; checked likewise."""
    probes: tuple[str, ...] = ()
    """Paths of probes outside of containers; the policies refuse one that names a host."""
    annotations: tuple[str, ...] = ()
    """Paths of annotations that the upstream puts on pods, Services and other objects, besides those of the object
    itself and of its pod templates. The policies check the keys (`ProviderManifest.annotations`)."""
    replicas: tuple[str, ...] = ()
    """Paths of numbers of pods, of which the policies refuse absurd ones."""
    unused: tuple[str, ...] = ()
    """Paths that no translation writes and that could contain pods or allow outside access; policies refuse them."""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    """For pod specs without metadata: where the labels of their pods belong, by the path in `pods` (``{"spec.worker":
    "spec.labels"}``; empty if there is no such place)."""
    readings: Mapping[str, str] = field(default_factory=dict, hash=False)
    """How the upstream interprets the texts at a path and below, if not as `Reading.PLAIN` (``{"spec": "go-template",
    "spec.template.containers[*].args": "shell"}``). If several paths cover a text, the outermost reads first."""

    @property
    def key(self) -> str:
        """The key in ``context.served``: ``Workspace.kaito.sh``, or the kind alone for the core group."""
        return kind_key(self.group, self.kind)


def kind_key(group: str, kind: str) -> str:
    """``<Kind>.<group>``, or the kind alone for Kubernetes' core group."""
    return f"{kind}.{group}" if group else kind


def api_version(kind: UpstreamKind, version: str) -> str:
    """The ``apiVersion`` of a version of the kind."""
    return f"{kind.group}/{version}" if kind.group else version


def namesake_of(entry: str, name: str) -> tuple[str, str]:
    """The kind's key and the object's name that an entry of `UpstreamKind.namesakes` means, for an object's name.

    >>> namesake_of("Service/{name}-predictor", "qwen")
    ('Service', 'qwen-predictor')
    """
    key, _, pattern = entry.partition("/")
    return key, pattern.replace("{name}", name) or name


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """One way of writing an upstream kind, with the schemas it supports.

    A released transformer never changes its output for the same input; a change needs a new transformer.
    """

    name: str
    api_version: str
    kind: str = ""
    """CamelCase; empty for the primary kind."""
    schema_hashes: tuple[str, ...] = ()
    """Full or 12-digit sha256 digests of the version's schema without descriptions; none for a built-in kind."""
    features: frozenset[str] = frozenset()
    """What this generation can express; the translation checks for it by name."""
    immutable: tuple[str, ...] = ()
    """Paths whose change the upstream refuses or ignores on a live object: the object is recreated."""
    since: str = ""
    """First upstream release that serves it; empty if unknown."""
    until: str = ""
    """Last upstream release that serves it; empty if unknown."""
    defaults: Mapping[str, object] = field(default_factory=dict, hash=False)
    """Defaults of settings for this transformer, by field name. They apply if the administrator did not change the
    setting: an older transformer keeps its default image (``{"image": "acme/server:1.0"}``)."""


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
    """The settings of a provider without settings."""


@dataclass(frozen=True, kw_only=True)
class ProviderManifest:
    """Static data about a provider; creating one does no I/O."""

    name: str
    version: str
    contract_versions: tuple[str, ...] = ("v1",)
    display_name: str = ""
    description: str = ""
    documentation: str = ""
    """URL."""
    engines: tuple[EngineCapability, ...]
    selection: SelectionMode = SelectionMode.AUTO
    selection_rules: tuple[SelectionRule, ...] = ()
    upstream: tuple[UpstreamKind, ...]
    pod_labels: tuple[str, ...] = ()
    """Label keys of pods whose value is the name of the primary object (or of an object made from it, see
    `UpstreamKind.select`); the first one on a pod identifies it. Empty: our own label ``airunway.ai/model-deployment``,
    which the provider adds to its pod templates."""
    role_label: str = ""
    """Label that distinguishes the pods of one deployment."""
    serving_roles: tuple[str, ...] = ()
    """Values of `role_label` on serving pods: only these make a deployment ready and count as replicas. A pod without
    the label serves."""
    events: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Reasons of events that the plugin needs, by the kind they are about; each reason costs one watch."""
    settings: type = NoSettings
    """Frozen dataclass of the provider's own configuration; every field has a default."""
    override_schema: Resource = field(default_factory=dict)
    """JSON schema of ``spec.provider.overrides``."""
    reserved_labels: tuple[str, ...] = ()
    """Label keys that the upstream sets or selects by, as whole keys or as beginnings that end with ``/``, ``-`` or
    ``.``: labels of a deployment under them are never propagated to its objects and pods."""
    rbac_rules: tuple[Resource, ...] = ()
    """Rights beyond those that follow from the kinds. A Role in a translation may grant only these."""
    annotations: tuple[str, ...] = ()
    """Annotation keys with a domain that translations write besides ``airunway.ai/*``. The policies refuse all other
    keys with a domain unless a ModelDeployment of the namespace sets them, because operators and meshes take orders
    from them."""
    accounts: tuple[str, ...] = ()
    """Names of the ServiceAccounts that translations create, with ``{name}`` for the deployment's (``{name}-epp``).
    Each may have a Role and a RoleBinding of the same name, and pods may run as it."""
    installation: Installation = Installation()


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
class RuntimeSettings:
    """The parts of a deployment's effective runtime config that pods need (docs/runtime-configs.md)."""

    env: tuple[Resource, ...] = ()
    """Entries as in a container's ``env``."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels to add to pods."""
    image_pull_secrets: tuple[str, ...] = ()
    """Names of Secrets."""
    token: str = ""
    """Name of the Secret with the Hugging Face token, for deployments without their own. All of its keys become
    variables; the token's is HF_TOKEN."""
    runtime_class: str = ""
    """RuntimeClass of pods with GPUs, for deployments without their own; empty: the node's default."""


@dataclass(frozen=True, kw_only=True)
class ModelCache:
    """Model weights that are mounted into the pods: from a claim, or from an OCI image that the nodes pull."""

    claim: str = ""
    """Name of the PersistentVolumeClaim."""
    image: str = ""
    """Reference of the image or artifact, which is mounted as an ``image`` volume instead of a claim."""
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

    @property
    def asked_by(self) -> str:
        """The field of the deployment that asks for it."""
        return "spec.model.source" if self.image else "spec.model.cache.mode"


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
    """Whether a provider can honour a deployment; it names every field that would be dropped."""

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
    """Parts whose change makes the model unavailable for a while, by name: in place, or with a primary object of
    another kind.
    """


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
    holds_requests: bool | None = None
    """Whether its endpoint picker holds requests while no replica runs; None: it never does."""


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

    def find(self, kind: str, name: str, *, group: str | None = None) -> Resource | None:
        """The object with that kind and name; None if there is none. `group` tells kinds of the same name apart."""
        for obj in self.objects:
            metadata = obj.get("metadata") if obj.get("kind") == kind else None
            same = group is None or str(obj.get("apiVersion")).rpartition("/")[0] == group
            if same and isinstance(metadata, dict) and metadata.get("name") == name:
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
    observed: bool | None = None
    """Whether the upstream has observed the newest spec, if `up_to_date` also waits for a roll-out; None: as
    `up_to_date`. The status is stale if it has not for five minutes."""
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
