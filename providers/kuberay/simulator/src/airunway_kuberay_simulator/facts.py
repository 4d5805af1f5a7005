"""What a pass of the simulated operator reads and writes: values, and the protocol of its surroundings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from airunway.resource import Resource, dig

__all__ = [
    "Create",
    "Delete",
    "Event",
    "Facts",
    "Hold",
    "LabelHead",
    "Memory",
    "Send",
    "Serve",
    "SetSpec",
    "Tell",
    "World",
    "Write",
    "WriteStatus",
]


@dataclass(frozen=True, kw_only=True)
class Event:
    """An event about the RayService, or about a RayCluster of that name."""

    type: str
    reason: str
    note: str
    cluster: str = ""


@dataclass(frozen=True, kw_only=True)
class Serve:
    """What the dashboard of a cluster answers: its applications (None: nothing), and why it takes no configuration."""

    applications: Mapping[str, Resource] | None = None
    refusal: str = ""


@dataclass
class Memory:
    """What a process of the operator keeps: a new one begins with nothing.

    `sent` is the configuration that a cluster has, with the head that it was sent to; `due` when something named is to
    be done, by the clock of the facts; `failed` why a cluster's pod could not be made; `told` what was said already.
    """

    sent: dict[str, tuple[str, str]] = field(default_factory=dict)
    due: dict[str, float] = field(default_factory=dict)
    failed: dict[str, tuple[str, str]] = field(default_factory=dict)
    told: set[tuple[str, str]] = field(default_factory=set)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the operator reads at one moment. `now` is RFC 3339, `clock` are seconds since any beginning.

    `clusters` are the RayClusters of the RayService by name, `pods` theirs, `services` the Services by name.
    `endpoints` are the ready ones behind the serve Service, `heads` the clusters whose head has a Serve proxy that
    answers (None: nobody says, the label on the pod counts).
    `demand` is what Ray's own autoscaler wants: workers by group and cluster. `without_account` has, by cluster, the
    ServiceAccount that its head names and that is not there.
    """

    service: Resource
    now: str
    clock: float
    memory: Memory
    suffix: Callable[[], str]
    clusters: Mapping[str, Resource] = field(default_factory=dict)
    pods: Mapping[str, Sequence[Resource]] = field(default_factory=dict)
    services: Mapping[str, Resource] = field(default_factory=dict)
    dashboards: Mapping[str, Serve] = field(default_factory=dict)
    endpoints: int = 0
    heads: Mapping[str, bool] | None = None
    demand: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    without_account: Mapping[str, str] = field(default_factory=dict)

    def name(self, side: str) -> str:
        return str(dig(self.service, "status", f"{side}ServiceStatus", "rayClusterName", default=""))


@dataclass(frozen=True, kw_only=True)
class _Said:
    event: Event | None = None


@dataclass(frozen=True, kw_only=True)
class Hold(_Said):
    """The whole RayService, written back with other finalizers, and with what Go's types fill in."""

    obj: Resource


@dataclass(frozen=True, kw_only=True)
class WriteStatus(_Said):
    """The status of an object: the RayService, or a RayCluster of that name."""

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
    """Another spec for an object that is there: a Service's selector, a RayCluster's groups."""

    obj: Resource


@dataclass(frozen=True, kw_only=True)
class LabelHead(_Said):
    """The head's pod is behind the serve Service, or is not."""

    pod: str
    serves: bool


@dataclass(frozen=True, kw_only=True)
class Send(_Said):
    """A configuration for the dashboard of a cluster."""

    cluster: str
    config: str


@dataclass(frozen=True, kw_only=True)
class Tell(_Said):
    """Nothing but the event."""


Write: TypeAlias = Hold | WriteStatus | Create | Delete | SetSpec | LabelHead | Send | Tell


class World(Protocol):
    """What a pass needs of its surroundings."""

    async def facts(self) -> Facts | None:
        """The present facts, or None when the RayService is gone."""

    async def write(self, write: Write) -> bool:
        """Make the write; False when the object went away or changed meanwhile: the pass then ends.

        Why a pod may not be made is put into the memory's `failed`.
        """
