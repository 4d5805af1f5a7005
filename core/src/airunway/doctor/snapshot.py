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
"""The groups of InferencePool: the released one and its predecessor."""

Served = Mapping[str, Mapping[str, Mapping[str, str]]]
"""Kinds that the API server serves: group → version → kind → plural. A requested group that does not exist is empty."""


@dataclass(frozen=True, kw_only=True)
class Unseen:
    """A part of the snapshot that could not be read, and why."""

    part: str
    what: str
    why: str


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
class Call:
    """The result of a dry-run creation, for which the API server calls every webhook for ModelDeployments."""

    failed: str = ""
    """The API server's message if a webhook could not be called."""


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
    namespaces: Mapping[str, Resource | None] | None = None
    """The namespaces that something names; None for one that does not exist."""
    definitions: Mapping[str, Resource] | None = None
    """Our installed CRDs, by name."""
    components: tuple[ProcessDeployment, ...] | None = None
    pods: tuple[Resource, ...] | None = None
    """The pods of the namespace."""
    replica_sets: tuple[Resource, ...] | None = None
    """The ReplicaSets of the namespace."""
    releases: tuple[Resource, ...] | None = None
    """Metadata of the Secrets in which Helm stores the namespace's releases; their content is not read."""
    elsewhere: tuple[ProcessDeployment, ...] | None = None
    """Components in other namespaces, found by the label of our charts."""
    accounts: Mapping[ObjectKey, bool] | None = None
    """The ServiceAccounts of the components, and whether they exist."""
    leases: Mapping[str, Resource] | None = None
    """The Leases of the namespace, by name."""
    configurations: Mapping[str, Resource] | None = None
    """Our ValidatingWebhookConfigurations, by name."""
    endpoints: Mapping[ObjectKey, int | None] | None = None
    """Number of ready endpoints of each Service of our webhooks; None for a Service that does not exist."""
    call: Call | None = None
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
    unseen: tuple[Unseen, ...] = ()

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

        That is so if no Deployment here or elsewhere runs a part, a provider sends heartbeats, and the core marks it
        available.
        """
        if self.components is None or self.components or self.elsewhere is None or self.elsewhere:
            return False
        judged = (provider_facts(config) for config in self.providers or () if is_true(config, AVAILABLE))
        return any(each.heartbeat is not None and self.now - each.heartbeat < STALE_AFTER for each in judged)
