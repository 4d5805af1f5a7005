"""One reconcile pass of the simulated controller, for any `World`: a cluster or a recording.

The pass is level-triggered: it reads the facts, makes the first missing write, reads again, and so on. The order of
writes is as recorded (fact 1): revision, StatefulSet of the leaders, Service, objects of the groups, status.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from airunway.resource import Resource, dig, is_deleting, is_true, key_of, labels_of
from airunway_testing.simulators.passes import Outcome
from airunway_vllm_simulator import names, workload
from airunway_vllm_simulator.groups import Group, failures, groups_of, size_of
from airunway_vllm_simulator.rollout import Scale, next_scale
from airunway_vllm_simulator.status import status_after, summary


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The state that the controller reads at one moment."""

    lws: Resource
    now: str
    """RFC 3339."""
    service: Resource | None = None
    """The Service with the set's name, even with another owner."""
    revisions: Sequence[Resource] = ()
    stateful_sets: Sequence[Resource] = ()
    """Those with the set's label."""
    pods: Sequence[Resource] = ()
    """Those with the set's label."""

    @property
    def leaders(self) -> Resource | None:
        """The StatefulSet of the leaders, if this set owns it."""
        uid = dig(self.lws, "metadata", "uid")
        for found in self.stateful_sets:
            owners = dig(found, "metadata", "ownerReferences", default=[])
            if key_of(found) == key_of(self.lws) and any(owner.get("uid") == uid for owner in owners):
                return found
        return None

    @property
    def groups(self) -> list[Group]:
        return groups_of(self.lws, self.pods, self.stateful_sets, revision=workload.revision_hash(self.lws))


@dataclass(frozen=True, kw_only=True)
class _Said:
    """A write with an optional event."""

    event: tuple[str, str] | None = None
    """Reason and message of the Normal event about the set; None if there is none."""


@dataclass(frozen=True, kw_only=True)
class Create(_Said):
    obj: Resource


@dataclass(frozen=True, kw_only=True)
class ApplyLeaders(_Said):
    """The whole StatefulSet of the leaders, created or changed by server-side apply."""

    obj: Resource


@dataclass(frozen=True, kw_only=True)
class LabelPod(_Said):
    name: str
    labels: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class DeleteLeader(_Said):
    """Delete a leader pod with foreground propagation (its workers first), so that the group is recreated."""

    name: str


@dataclass(frozen=True, kw_only=True)
class WriteStatus(_Said):
    status: Resource


Write: TypeAlias = ApplyLeaders | Create | LabelPod | DeleteLeader | WriteStatus


class World(Protocol):
    """The environment of a pass."""

    async def facts(self) -> Facts | None:
        """The present facts; None if the set is gone."""

    async def write(self, write: Write) -> bool:
        """Make the write; False if the object is gone or has changed, which ends the pass."""


async def reconcile(world: World) -> Outcome:
    """One pass over one LeaderWorkerSet."""
    while True:
        facts = await world.facts()
        if facts is None or is_deleting(facts.lws):
            return Outcome()
        write = next(_writes(facts), None)
        if write is None:
            return Outcome()
        if not await world.write(write):
            return Outcome()


def _writes(facts: Facts) -> Iterator[Write]:
    """The missing writes, in order."""
    lws, digits = facts.lws, workload.revision_hash(facts.lws)
    newest = workload.newest_of(facts.revisions)
    if newest is None or labels_of(newest).get(names.REVISION) != digits:
        what = "a newly created LeaderWorkerSet" if newest is None else "updated LWS"
        said = ("CreatingRevision", f"Creating revision with key {digits} for {what}")
        yield Create(obj=workload.controller_revision(lws, facts.revisions), event=said)
    leaders = facts.leaders
    if leaders is None:
        said = ("GroupsProgressing", f"Created leader statefulset {key_of(lws).name}")
        yield ApplyLeaders(obj=workload.leader_stateful_set(lws, revision=digits), event=said)
        return
    if (changed := _changed_leaders(facts, leaders, digits)) is not None:
        yield changed
    if facts.service is None:
        yield Create(obj=workload.service(lws))
    for failure in failures(lws, facts.pods, facts.stateful_sets):
        yield DeleteLeader(name=failure.leader, event=("RecreateGroup", failure.message))
    yield from _group_writes(facts)
    groups = facts.groups
    status = status_after(lws, leaders, groups, now=facts.now)
    if status != lws.get("status"):
        yield WriteStatus(status=status, event=summary(lws, status, groups))


def _changed_leaders(facts: Facts, leaders: Resource, digits: str) -> ApplyLeaders | None:
    """The next version of the leaders' StatefulSet; None if nothing changes."""
    lws = facts.lws
    before = Scale(
        replicas=int(dig(leaders, "spec", "replicas", default=1)),
        partition=int(dig(leaders, "spec", "updateStrategy", "rollingUpdate", "partition", default=0)),
    )
    changed = labels_of(leaders).get(names.REVISION) != digits
    scale = next_scale(lws, before, facts.groups, changed=changed)
    wanted = workload.leader_stateful_set(lws, revision=digits)
    if scale == before and wanted["metadata"]["labels"] == labels_of(leaders):
        return None
    wanted["spec"]["replicas"] = scale.replicas
    wanted["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = scale.partition
    return ApplyLeaders(obj=wanted, event=_scale_event(key_of(lws).name, before, scale))


def _scale_event(name: str, before: Scale, after: Scale) -> tuple[str, str] | None:
    if after.replicas < before.replicas:
        first, last = f"{name}-{after.replicas}", f"{name}-{before.replicas - 1}"
        text = f"deleting surge replica {last}" if first == last else f"deleting surge replicas from {first} to {last}"
        return "GroupsProgressing", text
    if after.partition < before.partition:
        last_one = before.partition - 1
        which = f"replica {last_one}" if after.partition == last_one else f"replicas {after.partition} to {last_one}"
        return "GroupsUpdating", f"Updating {which}"
    return None


def _group_writes(facts: Facts) -> Iterator[Write]:
    """StatefulSets for leaders without workers, and pod labels that the real controller's webhook would add."""
    present = {key_of(found).name for found in facts.stateful_sets}
    data = {labels_of(r).get(names.REVISION): r["data"] for r in sorted(facts.revisions, key=lambda r: r["revision"])}
    wait = dig(facts.lws, "spec", "startupPolicy") == "LeaderReady"
    for pod in facts.pods:
        if is_deleting(pod):
            continue
        if missing := workload.pod_labels(pod):
            yield LabelPod(name=key_of(pod).name, labels=missing)
        if labels_of(pod).get(names.WORKER_INDEX) != "0" or key_of(pod).name in present:
            continue
        found = data.get(labels_of(pod).get(names.REVISION))
        if found is None or (wait and not is_true(pod, "Ready")) or size_of({"spec": found["spec"]}) == 1:
            continue
        said = ("GroupsProgressing", f"Created worker statefulset for leader pod {key_of(pod).name}")
        yield Create(obj=workload.worker_stateful_set(facts.lws, pod, found), event=said)
