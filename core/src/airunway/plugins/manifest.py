"""What a provider says of itself, once: the part of the contract that does not depend on any deployment.

`airunway.plugins.contract` has the values that pass for one; providers import all of both from `airunway.sdk`.
"""

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
    """A CEL expression over ``spec`` and the score that it earns when true."""

    condition: str
    priority: int = 0


class Reading(StrEnum):
    """How an upstream reads a text of an object before anything takes it for a value.

    The conformance kit decodes a text as its place says and looks for the user's word in what comes of it: verbatim
    where it has to be escaped is a fault, and so is the reverse. It takes the declaration for true: it cannot know the
    upstream.
    """

    PLAIN = "plain"
    """As it is: what holds where nothing is declared, also inside of a place that is."""

    SHELL = "shell"
    """As a line of a POSIX shell (``eval``, ``sh -c``): split into words, expanded, executed."""

    GO_TEMPLATE = "go-template"
    """As a source of Go's text/template: what stands in ``{{ }}`` is executed. Keys of maps too."""

    DIGEST = "digest"
    """Compared only: a digest of what a deployment asks for, with no word of a user in it."""


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
    `namesakes` are kinds of the manifest, by their keys, of which the upstream makes an object of the same name itself,
    and takes one that is there for its own: before an object of this kind is made its name must be free there too.
    `pods` are the places of pod specs in an object of the kind, in all of its versions, `containers` those of
    containers outside of them: ``spec.template.spec``, ``spec.services.*.extraPodSpec`` (of every value of a map),
    ``spec.groups[*].template.spec`` (of every element of a list). `unused` are places that could carry pods, or open a
    way from outside, and that no translation writes. The guard of the provider's account looks at the first two and
    refuses what stands at the last; of Kubernetes' own kinds it knows the places by itself.
    `labels` is for pod specs that stand outside of a pod template, so without metadata: by their place in `pods`, the
    place of the map of labels that the upstream puts on those pods (``{"spec.worker": "spec.labels"}``); empty where it
    has none. The runtime writes its labels there, as it does into pod templates.
    `readings` says how the upstream reads the texts at a place and below, where it does not take them as they are:
    ``{"spec": "go-template", "spec.template.containers[*].args": "shell"}``; where several cover a text the outermost
    reads first. ``[key]`` is a key with dots in it: ``metadata.annotations[acme.io/digest]``.
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
    namesakes: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    readings: Mapping[str, str] = field(default_factory=dict, hash=False)

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
    `rbac_rules` are rights beyond those that follow from the kinds (a Role can only grant what its maker has), and all
    that a Role of its translations may grant.
    `accounts` are the names of the ServiceAccounts that its translations make, ``{name}`` in place of the deployment's
    (``{name}-epp``): a Role and RoleBinding of the same name may go with each, and pods may run as it.
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
    accounts: tuple[str, ...] = ()
    installation: Installation = Installation()
