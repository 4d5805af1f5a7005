"""The static part of the contract: what a provider declares about itself, its kinds and its transformers."""

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
    "namesake_of",
]


class SelectionMode(StrEnum):
    """Whether a provider takes part in automatic selection (spec ruling 7)."""

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
    requires_crd: bool | None = None
    model_cache: bool = False
    cache_helpers: int = 0
    """Pods that mount the model cache besides one for each replica (Ray's head, Dynamo's Frontend)."""
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
    """One way of writing an upstream kind, with the schemas it supports (spec rulings 12 and 27).

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
    """Paths whose change the upstream refuses or ignores on a live object: the object is recreated (ruling 10)."""
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
    accounts: tuple[str, ...] = ()
    """Names of the ServiceAccounts that translations create, with ``{name}`` for the deployment's (``{name}-epp``).
    Each may have a Role and a RoleBinding of the same name, and pods may run as it."""
    installation: Installation = Installation()
