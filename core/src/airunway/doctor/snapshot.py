"""The snapshot of a cluster that all checks read, and the processes of AI Runway that are found in it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from airunway import __version__
from airunway.api import names
from airunway.process.effective_settings import PART_OF, EffectiveSettings
from airunway.resource import (
    ObjectKey,
    Resource,
    annotations_of,
    condition_of,
    dig,
    entries_at,
    is_true,
    key_of,
    labels_of,
    text_at,
)
from airunway.selection.facts import AVAILABLE, provider_facts
from airunway.unseen import Unseen

POOL_GROUPS = ("inference.networking.k8s.io", "inference.networking.x-k8s.io")
"""The groups of InferencePool: the released one and its predecessor."""

Served = Mapping[str, Mapping[str, Mapping[str, str]]]
"""Kinds that the API server serves: group → version → kind → plural. A requested group that does not exist is empty."""

OURS = "=".join(PART_OF)
"""The label selector of our charts' Deployments and our processes' Leases, in all namespaces."""

GUARDED = f"{names.GROUP}/guarded"
"""Annotation of a Deployment whose chart also installs guards for its account (`rbac.admission_policies`). Its value is
the namespace of the core that the guards name.
"""

_NAME_LABEL = "app.kubernetes.io/name"
"""Label of our charts' Deployments: the field manager of the part that it runs."""
_VERSION_LABEL = "app.kubernetes.io/version"
_RELEASE = "meta.helm.sh/release-name"

_OUR_MANAGERS = "airunway-"
"""How the field managers of all parts begin; the label ``part-of`` alone may be on others' Deployments."""


@dataclass(frozen=True, kw_only=True)
class Right:
    """A right that an account should have; with `wanted` False, one that it must not have."""

    user: str
    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    wanted: bool = True

    @property
    def target(self) -> str:
        """The resource of the verb, as text."""
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        if self.subresource:
            what = f"{what}/{self.subresource}"
        named = f" {self.name}" if self.name else ""
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{what}{named}{where}"


@dataclass(frozen=True, kw_only=True)
class SeenPolicyFile:
    """A file that a ConfigMap holds for a process."""

    config_map: ObjectKey
    key: str
    text: str | None
    """Its content; None if ConfigMap or key do not exist."""


@dataclass(frozen=True, kw_only=True)
class ProcessDeployment:
    """A Deployment that runs the core, providers, or both, or an add-on such as the catalogue."""

    key: ObjectKey
    core: bool
    providers: tuple[str, ...] = ()
    """The providers that it runs."""
    add_ons: tuple[str, ...] = ()
    """The field managers of the other parts that it runs: ``airunway-catalogue``."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Its effective options; empty if it has published none."""
    account: str = "default"
    wanted: int = 1
    available: int = 0
    version: str = ""
    """The release that runs; if it has published none, the release of its chart. May be empty."""
    trouble: str = ""
    """The error in the Deployment's own conditions."""
    paused: bool = False
    """Whether its rollout is paused."""
    image: str = ""
    """The image of its first container, as its template has it."""
    config_maps: Mapping[str, str] = field(default_factory=dict)
    """The ConfigMaps that its pods mount as files: mount path → name."""
    overdue: bool = False
    """Whether its pods did not become ready within the Deployment's ``progressDeadlineSeconds``."""
    selector: Mapping[str, str] = field(default_factory=dict)
    """The labels of its pods."""
    release: str = ""
    """Its Helm release."""
    guarded: str = ""
    """The namespace of the core if its chart has installed ValidatingAdmissionPolicies for its account (see `GUARDED`);
    otherwise empty.
    """

    @property
    def user(self) -> str:
        """The name of its account for the API server."""
        return f"system:serviceaccount:{self.key.namespace}:{self.account}"

    @property
    def name(self) -> str:
        """Its name in a finding."""
        return f"Deployment/{self.key.namespace}/{self.key.name}"

    @property
    def known(self) -> bool:
        """Whether it has published its settings."""
        return bool(self.options)

    @property
    def comparable(self) -> bool:
        """Whether it and its guards are of the same release as this command."""
        return self.version in ("", __version__)

    @property
    def leases(self) -> list[str]:
        """The names of the Leases of its parts."""
        parts = {
            names.CORE_MANAGER: self.core,
            names.GATEWAY_MANAGER: self.core and self.has_gateway,
            names.MODEL_CACHE_MANAGER: self.core and self.has_model_cache,
        }
        providers = map(names.provider_manager, self.providers)
        return [*(part for part, on in parts.items() if on), *providers, *self.add_ons]

    def has(self, pod: Resource) -> bool:
        """Whether a pod of its namespace belongs to it."""
        return bool(self.selector) and self.selector.items() <= labels_of(pod).items()

    def option(self, name: str) -> str:
        """The value of an option; empty if it is not set, or not published."""
        return self.options.get(name, "")

    def on(self, switch: str) -> bool:
        return self.option(switch) == "true"

    @property
    def policy_at(self) -> tuple[str, str] | None:
        """The name of the ConfigMap and the key that its policy comes from; None without one, or from elsewhere."""
        folder, _, key = self.option("policy").rpartition("/")
        name = self.config_maps.get(folder) or self.config_maps.get(f"{folder}/")
        return (name, key) if name and key else None

    @property
    def has_gateway(self) -> bool:
        return self.option("gateway") == "auto"

    @property
    def has_model_cache(self) -> bool:
        return self.option("model-cache") == "on"

    @property
    def watched(self) -> tuple[str, ...]:
        """The namespaces that it watches; empty: all."""
        return tuple(name for part in self.options.get("watch-namespaces", "").split(",") if (name := part.strip()))

    @property
    def scope(self) -> str:
        """The watched namespaces as text."""
        return ", ".join(self.watched) or "all namespaces"


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The cluster at one moment. None means that a part could not be read (see `unseen`), never that it is empty."""

    server: str
    kubernetes: tuple[int, int]
    now: datetime
    """The API server's time."""
    ahead: timedelta = timedelta()
    """How far that is ahead of our own clock."""
    namespace: str
    plugins: Mapping[str, str]
    """Versions of the provider plugins installed here, by name."""
    add_ons: frozenset[str] = frozenset()
    """The field managers of the add-ons installed here."""
    namespaces: Mapping[str, Resource | None] | None = None
    """The namespaces that something names; None for one that does not exist."""
    definitions: Mapping[str, Resource] | None = None
    """Our installed CRDs, by name."""
    components: tuple[ProcessDeployment, ...] | None = None
    pods: tuple[Resource, ...] | None = None
    """The pods of the namespace."""
    replica_sets: tuple[Resource, ...] | None = None
    """The ReplicaSets of the namespace."""
    policy_files: Mapping[str, SeenPolicyFile] | None = None
    """The file of the policy in its ConfigMap, by the name of the core that reads it; not those of other volumes."""
    releases: tuple[Resource, ...] | None = None
    """Metadata of the Secrets in which Helm stores the namespace's releases; their content is not read."""
    elsewhere: tuple[ProcessDeployment, ...] | None = None
    """Components in other namespaces, found by the label of our charts."""
    accounts: Mapping[ObjectKey, Resource | None] | None = None
    """The ServiceAccounts of the components; None for one that does not exist."""
    leases: Mapping[str, Resource] | None = None
    """The Leases of the namespace, by name."""
    configurations: Mapping[str, Resource] | None = None
    """Our ValidatingWebhookConfigurations, by name."""
    endpoints: Mapping[ObjectKey, int | None] | None = None
    """Number of ready endpoints of each Service of our webhooks; None for a Service that does not exist."""
    call: str | None = None
    """The API server's message if it could not call a webhook of a dry-run creation; empty if it could."""
    rights: Mapping[Right, bool] | None = None
    policies: tuple[Resource, ...] | None = None
    """Every ValidatingAdmissionPolicy."""
    bindings: tuple[Resource, ...] | None = None
    """Every ValidatingAdmissionPolicyBinding."""
    guards: Mapping[str, tuple[Resource, ...]] | None = None
    """The guards of each component here as this release has them, by the component's name; empty for a component that
    was installed without guards or in another release.
    """
    providers: tuple[Resource, ...] | None = None
    """Every InferenceProviderConfig."""
    served: Served | None = None
    controllers: Mapping[str, tuple[Resource, ...]] | None = None
    """The Deployments in the namespaces in which providers expect their upstream."""
    nodes: tuple[Resource, ...] | None = None
    storage_classes: tuple[Resource, ...] | None = None
    gateway_classes: tuple[Resource, ...] | None = None
    """Empty if the Gateway API is not installed."""
    gateways: tuple[Resource, ...] | None = None
    """Empty if the Gateway API is not installed."""
    picker_roles: Mapping[str, Resource] | None = None
    """The ClusterRole of endpoint pickers by its name; empty if it does not exist."""
    runtime_configs: tuple[Resource, ...] | None = None
    """Every RuntimeConfig; empty if their CRD is not installed."""
    cluster_runtime_configs: tuple[Resource, ...] | None = None
    """Every ClusterRuntimeConfig; empty if their CRD is not installed."""
    deployments: tuple[Resource, ...] | None = None
    artifacts: tuple[Resource, ...] | None = None
    """The ModelArtifacts; empty if their CRD is not installed."""
    templates: tuple[Resource, ...] | None = None
    """The ModelTemplates and ClusterModelTemplates; empty if their CRDs are not installed."""
    sources: tuple[Resource, ...] | None = None
    """The ModelSources; empty if their CRD is not installed."""
    unseen: Mapping[str, tuple[Unseen, ...]] = field(default_factory=dict)
    """What could not be read, by part of the snapshot."""

    @property
    def all_unseen(self) -> tuple[Unseen, ...]:
        """What could not be read of any part."""
        return tuple(each for of_part in self.unseen.values() for each in of_part)

    @cached_property
    def registered(self) -> list[str]:
        return [key_of(config).name for config in self.providers or ()]

    @cached_property
    def cores(self) -> list[ProcessDeployment]:
        return [component for component in self.components or () if component.core]

    def labels_of(self, namespace: str) -> Mapping[str, str]:
        """The labels of one of the `namespaces`; empty if unknown."""
        return labels_of((self.namespaces or {}).get(namespace) or {})

    @cached_property
    def runs_outside(self) -> bool:
        """Whether AI Runway runs without any Deployment, as processes outside of the cluster (a sandbox).

        That is so if no Deployment here or elsewhere runs the core or a provider, a provider sends heartbeats, and the
        core marks it available.
        """
        if self.components is None or self.elsewhere is None:
            return False
        if any(component.core or component.providers for component in (*self.components, *self.elsewhere)):
            return False
        judged = (provider_facts(config) for config in self.providers or () if is_true(config, AVAILABLE))
        return any(each.heartbeat is not None and not each.is_stale(self.now) for each in judged)


def named(kind: str, obj: Resource) -> str:
    """The name of an object in a finding, as ``Kind/namespace/name`` or ``Kind/name``."""
    key = key_of(obj)
    return "/".join(filter(None, (kind, key.namespace, key.name)))


def required_kinds(provider: Resource) -> Iterator[tuple[str, str, list[str]]]:
    """Group, kind and versions of the upstream kinds that a provider requires, by its InferenceProviderConfig."""
    for kind in dig(provider, "spec", "upstream", default=[]):
        if kind.get("requiresCRD") is True:
            yield str(kind.get("group")), str(kind.get("kind")), list(map(str, kind.get("versions") or ()))


def upstream_namespace(provider: Resource) -> str:
    """The namespace in which a provider's upstream is installed, by its InferenceProviderConfig; may be empty."""
    return str(dig(provider, "spec", "installation", "defaultNamespace", default=""))


def components_in(deployments: Sequence[Resource], published: Sequence[EffectiveSettings]) -> list[ProcessDeployment]:
    """The Deployments that run a part of AI Runway, found by their chart's label or by what their pods publish."""
    by_key = {key_of(deployment): deployment for deployment in deployments}
    running: dict[ObjectKey, list[EffectiveSettings]] = {}
    for each in published:
        homes = [key for key in by_key if key.namespace == each.namespace and each.pod.startswith(f"{key.name}-")]
        if homes:
            running.setdefault(max(homes, key=lambda key: len(key.name)), []).append(each)
    found = (_component(deployment, running.get(key, [])) for key, deployment in by_key.items())
    return [component for component in found if component is not None]


def _component(deployment: Resource, published: Sequence[EffectiveSettings]) -> ProcessDeployment | None:
    labels, annotations = labels_of(deployment), annotations_of(deployment)
    # Released Leases are ignored if any is held: their parts have ended. If none is held, the whole process has ended.
    published = [each for each in published if each.held] or published
    managers = {each.manager for each in published}
    if PART_OF in labels.items():
        managers.add(labels.get(_NAME_LABEL, ""))
    core = names.CORE_MANAGER in managers
    providers = tuple(sorted(filter(None, map(names.provider_of_manager, managers))))
    known = {*names.CORE_MANAGERS, *map(names.provider_manager, providers)}
    add_ons = tuple(sorted(each for each in managers - known if each.startswith(_OUR_MANAGERS)))
    if not core and not providers and not add_ons:
        return None
    # A part publishes only its own options, which are no answer for the whole process; the core's come first.
    whole = [each for each in published if each.manager not in names.PART_MANAGERS]
    run = min(whole, key=lambda each: each.manager != names.CORE_MANAGER, default=None)
    pod = dig(deployment, "spec", "template", "spec", default={})
    containers = entries_at(pod, "containers")
    bad = {"Available": "False", "Progressing": "False", "ReplicaFailure": "True"}
    messages = [
        str(condition["message"])
        for condition in dig(deployment, "status", "conditions", default=[])
        if bad.get(str(condition.get("type"))) == condition.get("status") and condition.get("message")
    ]
    return ProcessDeployment(
        key=key_of(deployment),
        core=core,
        providers=providers,
        add_ons=add_ons,
        options=run.options if run is not None else {},
        account=str(dig(deployment, "spec", "template", "spec", "serviceAccountName", default="default")),
        wanted=int(dig(deployment, "spec", "replicas", default=1)),
        available=int(dig(deployment, "status", "availableReplicas", default=0)),
        version=run.version if run is not None else str(labels.get(_VERSION_LABEL, "")),
        trouble=messages[-1] if messages else "",
        overdue=(condition_of(deployment, "Progressing") or {}).get("status") == "False",
        paused=dig(deployment, "spec", "paused") is True,
        image=str(next((dig(each, "image", default="") for each in containers), "")),
        config_maps=dict(_mounted(pod)),
        selector=dig(deployment, "spec", "selector", "matchLabels", default={}),
        release=annotations.get(_RELEASE, ""),
        guarded=annotations.get(GUARDED, ""),
    )


def _mounted(pod: Resource) -> Iterator[tuple[str, str]]:
    """The mount paths of ConfigMaps in a pod's first container, and their names."""
    names_of = {text_at(each, "name"): text_at(each, "configMap", "name") for each in entries_at(pod, "volumes")}
    for container in entries_at(pod, "containers")[:1]:
        for mount in entries_at(container, "volumeMounts"):
            if (name := names_of.get(text_at(mount, "name"))) and not mount.get("subPath"):
                yield text_at(mount, "mountPath"), name
