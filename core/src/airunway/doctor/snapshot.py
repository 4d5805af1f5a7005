"""Everything that the checks look at, read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from airunway.doctor.components import Component
from airunway.resource import ObjectKey, Resource, key_of

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
    namespaces: Mapping[str, bool] | None = None
    """Those that something names, and whether they are there."""
    definitions: Mapping[str, Resource] | None = None
    """Our CRDs that are there, by name."""
    components: tuple[Component, ...] | None = None
    pods: tuple[Resource, ...] | None = None
    """Those of the namespace."""
    elsewhere: tuple[Component, ...] | None = None
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
    guards: tuple[Resource, ...] | None = None
    """ValidatingAdmissionPolicies that guard AI Runway."""
    bindings: frozenset[str] | None = None
    """Names of the policies that some binding puts into force."""
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
    def cores(self) -> list[Component]:
        return [component for component in self.components or () if component.core]
