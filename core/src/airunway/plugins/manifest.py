"""The static part of the contract: what a provider declares about itself, its kinds and its ways of writing them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from airunway.resource import Resource

__all__ = [
    "EngineCapability",
    "Installation",
    "NoSettings",
    "ProviderManifest",
    "Reading",
    "SelectionMode",
    "SelectionRule",
    "Transformer",
    "UpstreamKind",
    "api_version",
    "kind_key",
]


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
    """A rule of automatic selection."""

    condition: str
    """CEL expression over ``spec``."""
    priority: int = 0
    """Score that the provider earns when the condition is true."""


class Reading(StrEnum):
    """How an upstream reads a text of an object before anything takes it for a value.

    The conformance kit decodes each text as its place declares and looks for the user's word in the result: a missing
    escape is a fault, and so is a needless one. It trusts the declaration, because it cannot know the upstream.
    """

    PLAIN = "plain"
    """As it is. This is the default, also below a place that is declared."""

    SHELL = "shell"
    """As a line of a POSIX shell (``eval``, ``sh -c``): split into words, expanded, executed."""

    GO_TEMPLATE = "go-template"
    """As a template of Go's text/template: ``{{ }}`` is executed, also in keys of maps."""

    DIGEST = "digest"
    """As a digest of what a deployment asks for: it is only compared and contains no word of a user."""


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
    """The one kind that decides whether the provider can work. A plan may still begin with another kind of the manifest
    (a LeaderWorkerSet instead of a Deployment)."""
    builtin: bool = False
    """Part of Kubernetes: needs no CRD."""
    required: bool = True
    """False: the provider works without the kind; ``context.served`` says whether it exists."""
    write: bool = True
    """False: objects of the kind are only read; they are found by `select`."""
    select: str = ""
    """Label with the primary object's name as value on what the upstream made of it; such objects are in
    ``Observed.objects``."""
    immutable: tuple[str, ...] = ()
    """Paths that cannot change in place (a trailing ``.*`` covers the subtree): a change recreates a secondary object.
    Paths of the primary kind differ by version and stand in its transformers."""
    deletion: Literal["Background", "Foreground"] = "Background"
    """``Foreground`` for a kind that runs pods: gone then means that they have released their GPUs."""
    namesakes: tuple[str, ...] = ()
    """Kinds of the manifest, by their keys, of which the upstream makes an object of the same name itself and adopts an
    existing one: before an object of this kind is made, its name must be free there too."""
    pods: tuple[str, ...] = ()
    """Paths of pod specs in an object of the kind, in all of its versions. The admission policies guard them; those of
    built-in kinds are known."""
    containers: tuple[str, ...] = ()
    """Paths of containers outside of those pod specs; guarded likewise."""
    unused: tuple[str, ...] = ()
    """Paths that could carry pods or open access from outside and that no translation writes; policies refuse them."""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    """For pod specs without metadata: where the labels of their pods go, by the path in `pods`
    (``{"spec.worker": "spec.labels"}``; empty where there is no such place)."""
    readings: Mapping[str, str] = field(default_factory=dict, hash=False)
    """How the upstream reads the texts at a path and below, where not as they are (``{"spec": "go-template",
    "spec.template.containers[*].args": "shell"}``); where several cover a text, the outermost reads first."""

    @property
    def key(self) -> str:
        """How ``context.served`` calls it: ``Workspace.kaito.sh``; the core group's kinds by their name alone."""
        return kind_key(self.group, self.kind)


def kind_key(group: str, kind: str) -> str:
    """``<Kind>.<group>``, or the kind alone where the group is Kubernetes' core group."""
    return f"{kind}.{group}" if group else kind


def api_version(kind: UpstreamKind, version: str) -> str:
    """A version of the kind as it is written into `apiVersion`."""
    return f"{kind.group}/{version}" if kind.group else version


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """One way of writing an upstream kind, and the schemas that it fits (spec rulings 12 and 27).

    A released transformer never changes what it writes for the same input; a change is a new transformer.
    """

    name: str
    api_version: str
    kind: str = ""
    """CamelCase; empty for the primary kind."""
    schema_hashes: tuple[str, ...] = ()
    """Full or 12-digit sha256 digests of the version's schema without descriptions; none for a built-in kind."""
    features: frozenset[str] = frozenset()
    """What this generation can express; translation asks for it by name."""
    immutable: tuple[str, ...] = ()
    """Paths whose change the upstream refuses or ignores on a live object: the object is recreated (ruling 10)."""
    since: str = ""
    """First upstream release that serves it; empty where not known."""
    until: str = ""
    """Last upstream release that serves it; empty where not known."""
    defaults: Mapping[str, object] = field(default_factory=dict, hash=False)
    """Values that settings have for what it writes, by the names of their fields, where the administrator leaves the
    setting at its default: an older transformer keeps its default image (``{"image": "acme/server:1.0"}``)."""


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
    """Static data about a provider; making one does no I/O."""

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
    """Label keys that pods carry with the primary object's name (or that of an object it made, see
    `UpstreamKind.select`) as value; the first that a pod has identifies it. Empty: our own label
    ``airunway.ai/model-deployment``, which the provider puts into its pod templates."""
    role_label: str = ""
    """Label that distinguishes the pods of one deployment."""
    serving_roles: tuple[str, ...] = ()
    """Its values on serving pods: only these make a deployment ready and count as replicas. A pod without the label
    serves."""
    events: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Reasons of events that the plugin wants to see, by the kind they are about; each reason costs one watch."""
    settings: type = NoSettings
    """Frozen dataclass of the provider's own configuration; every field has a default."""
    override_schema: Resource = field(default_factory=dict)
    """JSON schema of ``spec.provider.overrides``."""
    rbac_rules: tuple[Resource, ...] = ()
    """Rights beyond those that follow from the kinds; also the most that a Role of a translation may grant."""
    accounts: tuple[str, ...] = ()
    """Names of the ServiceAccounts that translations make, with ``{name}`` for the deployment's (``{name}-epp``). Each
    may have a Role and a RoleBinding of its name, and pods may run as it."""
    installation: Installation = Installation()
