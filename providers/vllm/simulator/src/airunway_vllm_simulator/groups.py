"""Derives the groups of a LeaderWorkerSet from its pods and StatefulSets (facts 6, 13 to 16 of the recordings)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from airunway.resource import Resource, dig, is_deleting, is_true, key_of, labels_of, uid_of
from airunway_vllm_simulator import names

_CONTAINERS = ("initContainerStatuses", "containerStatuses")


def size_of(lws: Resource) -> int:
    """Number of pods in one group, the leader included."""
    return int(dig(lws, "spec", "leaderWorkerTemplate", "size", default=1))


def group_index(pod: Resource) -> int:
    """The number of a leader's group, from the ordinal in the pod's name."""
    return int(key_of(pod).name.rpartition("-")[2])


@dataclass(frozen=True, kw_only=True)
class Group:
    """A leader with the StatefulSet of its workers."""

    index: int
    leader: Resource
    workers: Resource | None
    """None if it does not exist."""
    ready: bool
    updated: bool


def groups_of(
    lws: Resource, pods: Iterable[Resource], stateful_sets: Iterable[Resource], *, revision: str
) -> list[Group]:
    """The groups by index, without groups whose workers have no StatefulSet yet (fact 16).

    A group is ready if its leader and all its workers are ready, whatever their revision. It is updated if both have
    this `revision`. Groups being deleted are included (fact 11).
    """
    named = {key_of(found).name: found for found in stateful_sets}
    alone = size_of(lws) == 1
    groups = []
    for leader in pods:
        if labels_of(leader).get(names.WORKER_INDEX) != "0":
            continue
        workers = named.get(key_of(leader).name)
        if not alone and workers is None:
            continue
        parts = [leader] if alone or workers is None else [leader, workers]
        groups.append(
            Group(
                index=group_index(leader),
                leader=leader,
                workers=workers,
                ready=is_true(leader, "Ready") and (alone or _all_ready(workers or {})),
                updated=all(labels_of(part).get(names.REVISION) == revision for part in parts),
            )
        )
    return sorted(groups, key=lambda group: group.index)


def _all_ready(stateful_set: Resource) -> bool:
    wanted = dig(stateful_set, "spec", "replicas", default=1)
    return bool(dig(stateful_set, "status", "readyReplicas", default=0) == wanted)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A pod whose failure causes its group to be recreated."""

    pod: str
    leader: str
    """The leader pod to delete."""

    @property
    def message(self) -> str:
        """The real controller's message; it says "Worker pod" for a leader too (fact 13)."""
        group = self.leader.rpartition("-")[2]
        return f"Worker pod {self.pod} failed, deleted leader pod {self.leader} to recreate group {group}"


def failures(lws: Resource, pods: Sequence[Resource], stateful_sets: Iterable[Resource]) -> Iterator[Failure]:
    """The groups to recreate, each once: a container was restarted, or a worker is being deleted.

    Workers of an earlier leader or of another revision, and groups already being deleted, do not count.
    """
    policy = dig(lws, "spec", "leaderWorkerTemplate", "restartPolicy", default="RecreateGroupOnPodRestart")
    if policy == "None":
        return
    named = {key_of(pod).name: pod for pod in pods}
    owned = {uid_of(found): key_of(found).name for found in stateful_sets}
    done: set[str] = set()
    for pod in pods:
        leader = named.get(_leader_of(pod))
        if leader is None or is_deleting(leader) or key_of(leader).name in done:
            continue
        if labels_of(pod).get(names.REVISION) != labels_of(leader).get(names.REVISION):
            continue
        is_leader = pod is leader
        if not is_leader and _owner(pod) not in owned:
            continue
        if not (_restarted(pod) or (is_deleting(pod) and not is_leader)):
            continue
        if policy == "RecreateGroupAfterStart" and any(
            dig(member, "status", "phase") == "Pending" for member in pods if _leader_of(member) == key_of(leader).name
        ):
            continue
        done.add(key_of(leader).name)
        yield Failure(pod=key_of(pod).name, leader=key_of(leader).name)


def _leader_of(pod: Resource) -> str:
    if labels_of(pod).get(names.WORKER_INDEX) == "0":
        return key_of(pod).name
    return key_of(pod).name.rpartition("-")[0]


def _owner(pod: Resource) -> str:
    owners = dig(pod, "metadata", "ownerReferences", default=[])
    return str(owners[0].get("uid", "")) if owners else ""


def _restarted(pod: Resource) -> bool:
    return any(
        container.get("restartCount", 0) > 0 for field in _CONTAINERS for container in dig(pod, "status", field) or []
    )
