"""The evidence for a root cause: pods, events, claims and jobs, reduced to the fields that matter.

The projections are total: they accept any JSON, and leave out every field that is missing or of another type. They also
cut and intern texts, so that the facts of a pod that runs well take about one kilobyte.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from airunway.redaction import bounded, tail
from airunway.resource import (
    Resource,
    controller_owner,
    dig,
    entries_at,
    mapping_at,
    parse_time,
    text_at,
    uid_of,
)

TEXT_LIMIT = 2048
"""Characters kept of a text of Kubernetes or an engine. Its end is kept: a termination message is the end of a log."""

_LONGEST_NAME = 253
_MOST_GATES = 4
"""Gates that are kept, in their order."""

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""Names the queue on pods that Kueue admits; it copies the label there from the workload object."""

_REVISION_LABELS = ("controller-revision-hash", "pod-template-hash")


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """How a container ended: ``state.terminated`` or ``lastState.terminated``."""

    code: int
    """The exit code."""
    reason: str = ""
    message: str = ""
    finished: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerFacts:
    """One container of a pod, app or init."""

    name: str
    image: str = ""
    init: bool = False
    """Whether it is an init container."""
    ready: bool = False
    running: bool = False
    started: datetime | None = None
    """When the instance that runs now was started."""
    restarts: int = 0
    waiting: str = ""
    """``state.waiting.reason``."""
    message: str = ""
    """``state.waiting.message``."""
    ended: Ending | None = None
    """``state.terminated``."""
    last: Ending | None = None
    """``lastState.terminated``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unscheduled:
    """The condition ``PodScheduled=False``, as the scheduler wrote it."""

    reason: str
    message: str
    since: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PodFacts:
    """One pod."""

    namespace: str
    name: str
    uid: str = ""
    created: datetime | None = None
    deleting: bool = False
    phase: str = ""
    reason: str = ""
    message: str = ""
    node: str = ""
    ready: bool = False
    ready_since: datetime | None = None
    """Last transition of the condition ``Ready``, in either direction."""
    unscheduled: Unscheduled | None = None
    revision: str = ""
    """Hash of the pod template: pods of one workload with different revisions have different templates."""
    owner: tuple[str, str] = ("", "")
    """Kind and name of the controller; empty if there is none."""
    role: str = ""
    """What the pod does in its deployment; empty if all pods do the same."""
    serves: bool = True
    """Whether pods of this role answer requests."""
    gates: tuple[str, ...] = ()
    """Names of its scheduling gates."""
    queue: str = ""
    """Kueue's queue, by the pod's label."""
    claims: tuple[str, ...] = ()
    """Names of the PersistentVolumeClaims that it mounts."""
    image_volumes: tuple[str, ...] = ()
    """References of the images that it mounts as volumes."""
    containers: tuple[ContainerFacts, ...] = ()

    @property
    def alive(self) -> bool:
        """Whether the pod should run: it has not ended and is not being deleted."""
        return not self.deleting and self.phase not in ("Succeeded", "Failed")

    @property
    def replica_group(self) -> tuple[tuple[str, str], str]:
        """Controller and role: pods of one group can replace each other. A head and its workers share a controller."""
        return self.owner, self.role

    @property
    def unready_again(self) -> bool:
        """Whether it became unready after a container that still runs had started, so it was ready before."""
        since = self.ready_since
        if self.ready or since is None:
            return False
        return any(not c.init and c.started is not None and c.started < since for c in self.containers)


@dataclass(frozen=True, kw_only=True, slots=True)
class EventFacts:
    """An event: a warning, or an event that a plugin requested."""

    kind: str
    """Kind of the object that the event is about; so are `namespace`, `name` and `uid`."""
    namespace: str
    name: str
    uid: str = ""
    reason: str = ""
    note: str = ""
    first: datetime | None = None
    """When it was first observed."""
    last: datetime | None = None
    """When it was last observed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaimFacts:
    """A PersistentVolumeClaim."""

    namespace: str
    name: str
    phase: str = ""
    created: datetime | None = None
    class_name: str = ""
    """Its StorageClass; empty: it names none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobFacts:
    """A Job."""

    namespace: str
    name: str
    failed: str = ""
    """Reason of its condition ``Failed``; empty while it has not failed."""
    message: str = ""
    since: datetime | None = None
    """When it failed."""


@dataclass(frozen=True, kw_only=True)
class Reported:
    """A problem that another party reports: a component of the provider, or the provider runtime itself."""

    reason: str
    """A reason of the registry."""
    code: str = ""
    """A code of a root cause; empty: that of the reason alone."""
    object: str = ""
    """``Kind/namespace/name``."""
    message: str = ""
    since: datetime | None = None
    """None if it is not known."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything that is known about one deployment at one moment."""

    pods: tuple[PodFacts, ...] = ()
    events: tuple[EventFacts, ...] = ()
    """Events about the given pods and claims, and about workloads whose pods belong to the deployment."""
    claims: tuple[ClaimFacts, ...] = ()
    jobs: tuple[JobFacts, ...] = ()
    reports: tuple[Reported, ...] = ()
    """Problems that other parties report."""
    served: bool = False
    """Whether the deployment has served before."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """The Secrets that the deployment or its runtime config names, each with the field that names it."""
    unread: bool = False
    """Whether there are events about workloads that have not been read yet: too many for one pass."""


def pod_facts(obj: Resource, *, role_label: str = "", serving_roles: Collection[str] = ()) -> PodFacts:
    """Returns the facts of a Pod. `role_label` holds its role; a pod without a role, or of `serving_roles`, serves."""
    status = mapping_at(obj, "status")
    conditions = {text_at(c.get("type")): c for c in entries_at(status, "conditions")}
    ready, scheduled = conditions.get("Ready", {}), conditions.get("PodScheduled", {})
    owner = controller_owner(obj) or {}
    labels = mapping_at(obj, "metadata", "labels")
    role = _word(labels.get(role_label)) if role_label else ""
    unscheduled = None
    if scheduled.get("status") == "False":
        unscheduled = Unscheduled(
            reason=_word(scheduled.get("reason")),
            message=_long(scheduled.get("message")),
            since=parse_moment(scheduled.get("lastTransitionTime")),
        )
    return PodFacts(
        namespace=_word(dig(obj, "metadata", "namespace")),
        name=text_at(obj, "metadata", "name"),
        uid=uid_of(obj),
        created=parse_moment(dig(obj, "metadata", "creationTimestamp")),
        deleting=bool(dig(obj, "metadata", "deletionTimestamp")),
        phase=_word(status.get("phase")),
        reason=_word(status.get("reason")),
        message=_long(status.get("message")),
        node=_word(dig(obj, "spec", "nodeName")),
        ready=ready.get("status") == "True",
        ready_since=parse_moment(ready.get("lastTransitionTime")),
        unscheduled=unscheduled,
        revision=next((_word(labels[name]) for name in _REVISION_LABELS if labels.get(name)), ""),
        owner=(_word(owner.get("kind")), _word(owner.get("name"))),
        role=role,
        serves=not role or not serving_roles or role in serving_roles,
        queue=_word(labels.get(QUEUE_LABEL)),
        gates=tuple(_word(gate.get("name")) for gate in entries_at(obj, "spec", "schedulingGates")[:_MOST_GATES]),
        claims=tuple(sorted(_claims_of(obj))),
        image_volumes=tuple(_image_volumes_of(obj)),
        containers=tuple(_containers_of(status)),
    )


def event_facts(obj: Resource) -> EventFacts:
    """Returns the facts of an Event of ``events.k8s.io/v1``."""
    regarding = mapping_at(obj, "regarding")
    first = parse_moment(dig(obj, "deprecatedFirstTimestamp")) or parse_moment(dig(obj, "eventTime"))
    last = (
        parse_moment(dig(obj, "series", "lastObservedTime"))
        or parse_moment(dig(obj, "deprecatedLastTimestamp"))
        or parse_moment(dig(obj, "eventTime"))
        or first
    )
    return EventFacts(
        kind=_word(regarding.get("kind")),
        namespace=_word(regarding.get("namespace")),
        name=_name(regarding.get("name")),
        uid=_name(regarding.get("uid")),
        reason=_word(dig(obj, "reason")),
        note=_long(own_words(dig(obj, "note"))),
        first=first,
        last=last,
    )


def claim_facts(obj: Resource) -> ClaimFacts:
    """Returns the facts of a PersistentVolumeClaim."""
    return ClaimFacts(
        namespace=_word(dig(obj, "metadata", "namespace")),
        name=text_at(obj, "metadata", "name"),
        phase=_word(dig(obj, "status", "phase")),
        created=parse_moment(dig(obj, "metadata", "creationTimestamp")),
        class_name=text_at(obj, "spec", "storageClassName"),
    )


def job_facts(obj: Resource) -> JobFacts:
    """Returns the facts of a Job."""
    conditions = entries_at(obj, "status", "conditions")
    failed = next((c for c in conditions if c.get("type") == "Failed" and c.get("status") == "True"), None)
    condition = failed or {}
    return JobFacts(
        namespace=_word(dig(obj, "metadata", "namespace")),
        name=text_at(obj, "metadata", "name"),
        failed="" if failed is None else _word(failed.get("reason")) or "Failed",
        message=_long(condition.get("message")),
        since=parse_moment(condition.get("lastTransitionTime")),
    )


def _containers_of(status: Resource) -> Iterator[ContainerFacts]:
    for list_ in ("initContainerStatuses", "containerStatuses"):
        for container in entries_at(status, list_):
            waiting = mapping_at(container, "state", "waiting")
            restarts = container.get("restartCount")
            yield ContainerFacts(
                name=_word(container.get("name")),
                image=_word(container.get("image")),
                init=list_.startswith("init"),
                ready=container.get("ready") is True,
                running=isinstance(dig(container, "state", "running"), dict),
                started=parse_moment(dig(container, "state", "running", "startedAt")),
                restarts=restarts if isinstance(restarts, int) else 0,
                waiting=_word(waiting.get("reason")),
                message=_long(waiting.get("message")),
                ended=_ending(dig(container, "state", "terminated")),
                last=_ending(dig(container, "lastState", "terminated")),
            )


def _ending(terminated: object) -> Ending | None:
    if not isinstance(terminated, dict):
        return None
    code = terminated.get("exitCode")
    return Ending(
        code=code if isinstance(code, int) else 0,
        reason=_word(terminated.get("reason")),
        message=_long(terminated.get("message")),
        finished=parse_moment(terminated.get("finishedAt")),
    )


def _claims_of(pod: Resource) -> Iterator[str]:
    for volume in entries_at(pod, "spec", "volumes"):
        if name := _word(dig(volume, "persistentVolumeClaim", "claimName")):
            yield name


def _image_volumes_of(pod: Resource) -> Iterator[str]:
    for volume in entries_at(pod, "spec", "volumes"):
        if isinstance(reference := dig(volume, "image", "reference"), str):
            yield _word(reference)


def own_words(note: object) -> object:
    """An event's note without the prefix that a client puts before similar events that it has joined."""
    return note.removeprefix("(combined from similar events): ") if isinstance(note, str) else note


def parse_moment(value: object) -> datetime | None:
    """Returns a time in UTC; None if it is so far away that arithmetic with it would overflow."""
    moment = parse_time(value)
    return moment.astimezone(UTC) if moment is not None and 1970 <= moment.year < 9000 else None


def _name(value: object) -> str:
    """A name or uid; empty if it is longer than any that the API server accepts: it checks neither in an Event."""
    return value if isinstance(value, str) and len(value) <= _LONGEST_NAME else ""


def _word(value: object) -> str:
    """A text that many objects share, bounded and interned."""
    return sys.intern(bounded(value)) if isinstance(value, str) else ""


def _long(value: object) -> str:
    """The redacted end of a text; the end says most in a traceback, and in an error that wraps others."""
    return tail(text_at(value), TEXT_LIMIT)


# ---------------------------------------------------------------------------------------- counting the pods that serve


POD_SHOWN = frozenset(
    {
        "ImageNotFound",
        "InvalidImageReference",
        "ImagePullAuthFailure",
        "ImagePullBackOff",
        "RateLimited",
        "CrashLoopBackOff",
        "BadArguments",
        "PodOOMKilled",
        "ProbeTimeout",
        "PodFailed",
        "PodEvicted",
        "FailedScheduling",
        "InsufficientCapacity",
    }
)
"""Reasons that a pod's own status shows. An upstream's report of one of them counts only if no living pod is known.

Upstreams copy these from pods at irregular times and do not clear them: KAITO does not reconcile when a pod changes
(recorded: it kept reporting ``ImagePullError`` for a pod that ran).
"""


@dataclass(frozen=True, kw_only=True)
class PodCounts:
    """Numbers of pods that serve or will serve; pods of jobs, of helper roles, and pods that ended are not counted."""

    living: int = 0
    """Pods that have not ended and are not being deleted."""
    ready: int = 0
    """Living pods of the newest revision, as far as it is known, that are Ready."""
    leaving: int = 0
    """Pods that are being deleted."""

    @property
    def seen(self) -> bool:
        return bool(self.living or self.leaving)


def count_pods(pods: Iterable[PodFacts]) -> PodCounts:
    """Counts the pods. A pod whose revision differs from that of its controller's newest pod is an old one."""
    serving = [pod for pod in pods if pod.serves and pod.owner[0] != "Job" and pod.phase not in ("Succeeded", "Failed")]
    living = [pod for pod in serving if pod.alive]
    newest: dict[object, PodFacts] = {}
    for pod in living:
        known = newest.get(pod.replica_group)
        if known is None or _age_key(pod) > _age_key(known):
            newest[pod.replica_group] = pod
    current = [pod for pod in living if not pod.revision or pod.revision == newest[pod.replica_group].revision]
    return PodCounts(
        living=len(living),
        ready=sum(pod.ready for pod in current),
        leaving=len(serving) - len(living),
    )


def shortage_of(counts: PodCounts, wanted: int | None) -> int:
    """Returns how many ready pods are missing of `wanted`; if `wanted` is None, of the living pods.

    Pods beyond `wanted` belong to an autoscaler or are about to be deleted: they need not be ready.
    """
    return max(0, (counts.living if wanted is None else wanted) - counts.ready)


def _age_key(pod: PodFacts) -> tuple[datetime, str]:
    return pod.created or datetime.min.replace(tzinfo=UTC), pod.name
