"""The snapshot of a cluster that all checks read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from airunway.doctor.components import ProcessDeployment
from airunway.resource import ObjectKey, Resource, is_true, key_of, labels_of
from airunway.selection import AVAILABLE, STALE_AFTER, provider_facts

__all__ = ["GATEWAY_GROUP", "POOL_GROUPS", "Call", "Right", "Served", "Snapshot", "Unseen"]

GATEWAY_GROUP = "gateway.networking.k8s.io"
POOL_GROUPS = ("inference.networking.k8s.io", "inference.networking.x-k8s.io")
"""Groups of the InferencePool: that of its release, and the one before."""

Served = Mapping[str, Mapping[str, Mapping[str, str]]]
"""Kinds that the API server serves: group → version → kind → plural. A group that was asked for and is not there is
empty."""


@dataclass(frozen=True, kw_only=True)
class Unseen:
    """A part of the snapshot that could not be read, and why."""

    part: str
    what: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Right:
    """Something that an account is meant to be allowed (or, with `wanted` False, not to be)."""

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
        """What the verb is about, in words."""
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        if self.subresource:
            what = f"{what}/{self.subresource}"
        named = f" {self.name}" if self.name else ""
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{what}{named}{where}"


@dataclass(frozen=True, kw_only=True)
class Call:
    """What became of a rehearsed creation, by which the API server calls every webhook that has a say.

    `failed` are the server's words where a webhook could not be called.
    """

    failed: str = ""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The cluster at one moment. None stands for what could not be read (`unseen` says why), never for what is absent.

    `now` is the API server's clock, `ahead` by how much it is ahead of ours. `plugins` are the versions of the provider
    plugins that are installed here.
    """

    server: str
    kubernetes: tuple[int, int]
    now: datetime
    ahead: timedelta = timedelta()
    namespace: str
    plugins: Mapping[str, str]
    namespaces: Mapping[str, Resource | None] | None = None
    """Those that something names; None for one that is not there."""
    definitions: Mapping[str, Resource] | None = None
    """Our CRDs that are there, by name."""
    components: tuple[ProcessDeployment, ...] | None = None
    pods: tuple[Resource, ...] | None = None
    """Those of the namespace."""
    replica_sets: tuple[Resource, ...] | None = None
    """Those of the namespace."""
    releases: tuple[Resource, ...] | None = None
    """Metadata of the Secrets in which Helm keeps the releases of the namespace; of their content nothing is read."""
    elsewhere: tuple[ProcessDeployment, ...] | None = None
    """Components in other namespaces, by the label of our charts."""
    accounts: Mapping[ObjectKey, bool] | None = None
    """The ServiceAccounts of the components, and whether they are there."""
    leases: Mapping[str, Resource] | None = None
    """Those of the namespace, by name."""
    configurations: Mapping[str, Resource] | None = None
    """ValidatingWebhookConfigurations that are ours, by name."""
    endpoints: Mapping[ObjectKey, int | None] | None = None
    """How many endpoints of the Services of our webhooks are ready; None for a Service that is not there."""
    call: Call | None = None
    rights: Mapping[Right, bool] | None = None
    policies: tuple[Resource, ...] | None = None
    """Every ValidatingAdmissionPolicy."""
    bindings: tuple[Resource, ...] | None = None
    """Every ValidatingAdmissionPolicyBinding."""
    guards: Mapping[str, tuple[Resource, ...]] | None = None
    """The policies and bindings that guard the account of each component here, as this release has them, by the name of
    the component; of one that is installed without them, or in another release, there is nothing."""
    providers: tuple[Resource, ...] | None = None
    """Every InferenceProviderConfig."""
    served: Served | None = None
    controllers: Mapping[str, tuple[Resource, ...]] | None = None
    """The Deployments in the namespaces where providers say that their upstream lives."""
    nodes: tuple[Resource, ...] | None = None
    storage_classes: tuple[Resource, ...] | None = None
    gateway_classes: tuple[Resource, ...] | None = None
    """None of them where the Gateway API is not installed."""
    deployments: tuple[Resource, ...] | None = None
    unseen: tuple[Unseen, ...] = ()

    @cached_property
    def registered(self) -> list[str]:
        return [key_of(config).name for config in self.providers or ()]

    @cached_property
    def cores(self) -> list[ProcessDeployment]:
        return [component for component in self.components or () if component.core]

    def labels_of(self, namespace: str) -> Mapping[str, str]:
        """The labels of one of the `namespaces`, as far as they are known."""
        return labels_of((self.namespaces or {}).get(namespace) or {})

    @cached_property
    def runs_outside(self) -> bool:
        """Whether AI Runway runs without any Deployment, as processes that the cluster knows nothing of (a sandbox): a
        provider is heard of, the core has judged it since, and no Deployment here or elsewhere runs a part.
        """
        if self.components is None or self.components or self.elsewhere is None or self.elsewhere:
            return False
        judged = (provider_facts(config) for config in self.providers or () if is_true(config, AVAILABLE))
        return any(each.heartbeat is not None and self.now - each.heartbeat < STALE_AFTER for each in judged)
