"""Inputs and outputs of a pass of the simulated operator, and the protocol of its environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from airunway.resource import Resource, dig


@dataclass(frozen=True, kw_only=True)
class Event:
    """An event about the RayService, or about the RayCluster with the name in `cluster`."""

    type: str
    reason: str
    note: str
    cluster: str = ""


@dataclass(frozen=True, kw_only=True)
class Serve:
    """The answer of a cluster's dashboard."""

    applications: Mapping[str, Resource] | None = None
    """None if the dashboard does not answer."""
    refusal: str = ""
    """Why it refuses the configuration; empty if it accepts it."""


@dataclass
class Memory:
    """The state in the memory of an operator process; empty after a restart."""

    sent: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Configuration of a cluster, and the head that it was sent to."""
    due: dict[str, float] = field(default_factory=dict)
    """When a named action is due, by the clock of the facts."""
    failed: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Why a cluster's pod could not be created."""
    reported: set[tuple[str, str]] = field(default_factory=set)
    """Events that were already reported."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The state that the operator reads at one moment."""

    service: Resource
    now: str
    """RFC 3339."""
    clock: float
    """Seconds since an arbitrary start."""
    memory: Memory
    suffix: Callable[[], str]
    clusters: Mapping[str, Resource] = field(default_factory=dict)
    """RayClusters of the RayService, by name."""
    pods: Mapping[str, Sequence[Resource]] = field(default_factory=dict)
    """Pods by cluster."""
    services: Mapping[str, Resource] = field(default_factory=dict)
    """Services by name."""
    dashboards: Mapping[str, Serve] = field(default_factory=dict)
    endpoints: int = 0
    """Number of ready pods behind the serve Service."""
    heads: Mapping[str, bool] | None = None
    """By cluster, whether its head has a Serve proxy that answers. None: unknown, so the label on the pod counts."""
    demand: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Workers that Ray's own autoscaler wants, by cluster and group."""
    without_account: Mapping[str, str] = field(default_factory=dict)
    """By cluster, the missing ServiceAccount that its head names."""

    def name(self, side: str) -> str:
        return str(dig(self.service, "status", f"{side}ServiceStatus", "rayClusterName", default=""))


@dataclass(frozen=True, kw_only=True)
class _Said:
    event: Event | None = None


@dataclass(frozen=True, kw_only=True)
class Hold(_Said):
    """The whole RayService, written back with other finalizers and with the defaults of Go's types."""

    obj: Resource


@dataclass(frozen=True, kw_only=True)
class WriteStatus(_Said):
    """The status of the RayService, or of the RayCluster with the name in `cluster`."""

    status: Resource
    cluster: str = ""


@dataclass(frozen=True, kw_only=True)
class Create(_Said):
    obj: Resource


@dataclass(frozen=True, kw_only=True)
class Delete(_Said):
    kind: str
    name: str


@dataclass(frozen=True, kw_only=True)
class SetSpec(_Said):
    """A new spec for an existing object: a Service's selector, a RayCluster's groups."""

    obj: Resource


@dataclass(frozen=True, kw_only=True)
class LabelHead(_Said):
    """Whether the head's pod belongs to the serve Service."""

    pod: str
    serves: bool


@dataclass(frozen=True, kw_only=True)
class Send(_Said):
    """A configuration for a cluster's dashboard."""

    cluster: str
    config: str


@dataclass(frozen=True, kw_only=True)
class Tell(_Said):
    """An event without another write."""


Write: TypeAlias = Hold | WriteStatus | Create | Delete | SetSpec | LabelHead | Send | Tell


class World(Protocol):
    """The environment of a pass."""

    async def facts(self) -> Facts | None:
        """The present facts; None if the RayService is gone."""

    async def write(self, write: Write) -> bool:
        """Make the write; False if the object is gone or has changed, which ends the pass.

        The error for a pod that may not be created is added to the memory's `failed`.
        """
