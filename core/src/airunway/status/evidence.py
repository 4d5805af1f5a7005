"""What a root cause is found in: pods, events, claims and jobs, projected to the few fields that tell something.

The projections are total: any JSON gives facts, with every field that is missing or of another type left out. Texts are
cut and interned here, so that a cache of facts costs about one kilobyte for a pod that runs well.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from airunway.redaction import bounded, tail
from airunway.resource import Resource, controller_owner, dig, labels_of, parse_time, uid_of

__all__ = [
    "TEXT_LIMIT",
    "ClaimFacts",
    "ContainerFacts",
    "Ending",
    "EventFacts",
    "Evidence",
    "JobFacts",
    "PodFacts",
    "Reported",
    "Unscheduled",
    "claim_facts",
    "event_facts",
    "job_facts",
    "parse_moment",
    "pod_facts",
]

TEXT_LIMIT = 2048
"""Characters kept of a text that Kubernetes or an engine wrote: the end of a container's last words, as of its log."""

_REVISION_LABELS = ("controller-revision-hash", "pod-template-hash")


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """How a container ended: ``state.terminated`` or ``lastState.terminated``."""

    code: int
    reason: str = ""
    message: str = ""
    finished: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerFacts:
    """One container of a pod, app or init. `waiting` and `message` are those of ``state.waiting``; `started` is when
    the one that runs now did.
    """

    name: str
    image: str = ""
    init: bool = False
    ready: bool = False
    running: bool = False
    started: datetime | None = None
    restarts: int = 0
    waiting: str = ""
    message: str = ""
    ended: Ending | None = None
    last: Ending | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Unscheduled:
    """The condition ``PodScheduled=False``, as the scheduler wrote it."""

    reason: str
    message: str
    since: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PodFacts:
    """A pod. `ready_since` is the last transition of its condition ``Ready``, whichever way it went.

    `revision` tells pods of one template from those of another; `owner` is kind and name of the controller. `role` is
    what the pod does in its deployment (empty: what all do), and `serves` whether that is answering requests.
    """

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
    unscheduled: Unscheduled | None = None
    revision: str = ""
    owner: tuple[str, str] = ("", "")
    role: str = ""
    serves: bool = True
    claims: tuple[str, ...] = ()
    containers: tuple[ContainerFacts, ...] = ()

    @property
    def alive(self) -> bool:
        """Whether it is meant to run: neither over nor on its way out."""
        return not self.deleting and self.phase not in ("Succeeded", "Failed")

    @property
    def crew(self) -> tuple[tuple[str, str], str]:
        """Pods of one crew can take each other's place: one controller, one role (a head and its workers share one)."""
        return self.owner, self.role

    @property
    def unready_again(self) -> bool:
        """Whether it became unready while a container ran that runs still: then it was ready before."""
        since = self.ready_since
        if self.ready or since is None:
            return False
        return any(not c.init and c.started is not None and c.started < since for c in self.containers)


@dataclass(frozen=True, kw_only=True, slots=True)
class EventFacts:
    """An event: a warning, or one that a plugin asked for.

    `kind`, `namespace`, `name` and `uid` are those of the object that it is about.
    """

    kind: str
    namespace: str
    name: str
    uid: str = ""
    reason: str = ""
    note: str = ""
    first: datetime | None = None
    last: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaimFacts:
    """A PersistentVolumeClaim."""

    namespace: str
    name: str
    phase: str = ""
    storage_class: str = ""
    created: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class JobFacts:
    """A Job; `failed` is the reason of its condition ``Failed``, empty while it has not failed."""

    namespace: str
    name: str
    failed: str = ""
    message: str = ""
    since: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Reported:
    """What somebody else says is wrong: a component of the provider, or the provider runtime itself.

    `reason` is one of the reason registry; `object` is ``Kind/namespace/name``; `since` is None where it is not known.
    """

    reason: str
    object: str = ""
    message: str = ""
    since: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything that is known around one deployment at one moment.

    `events` are about the given pods and claims, and about workloads whose pods belong to the deployment. `served` is
    whether the deployment has served before. `reports` are other parties' words. `secrets` are the Secrets that the
    deployment names, each with the path of the field that does.
    """

    pods: tuple[PodFacts, ...] = ()
    events: tuple[EventFacts, ...] = ()
    claims: tuple[ClaimFacts, ...] = ()
    jobs: tuple[JobFacts, ...] = ()
    reports: tuple[Reported, ...] = ()
    served: bool = False
    secrets: Mapping[str, str] = field(default_factory=dict)


def pod_facts(obj: Resource, *, role_label: str = "", serving_roles: Collection[str] = ()) -> PodFacts:
    """The facts of a Pod. Its role is the value of `role_label`; one without serves, and so do the `serving_roles`."""
    status = _object(dig(obj, "status"))
    conditions = {_text(c.get("type")): c for c in _objects(status.get("conditions"))}
    ready, scheduled = conditions.get("Ready", {}), conditions.get("PodScheduled", {})
    owner = controller_owner(obj) or {}
    labels = labels_of(obj)
    labels = labels if isinstance(labels, dict) else {}
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
        name=_text(dig(obj, "metadata", "name")),
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
        claims=tuple(sorted(_claims_of(obj))),
        containers=tuple(_containers_of(status)),
    )


def event_facts(obj: Resource) -> EventFacts:
    """The facts of an Event of ``events.k8s.io/v1``."""
    regarding = _object(dig(obj, "regarding"))
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
        name=_text(regarding.get("name")),
        uid=_text(regarding.get("uid")),
        reason=_word(dig(obj, "reason")),
        note=_long(dig(obj, "note")),
        first=first,
        last=last,
    )


def claim_facts(obj: Resource) -> ClaimFacts:
    """The facts of a PersistentVolumeClaim."""
    return ClaimFacts(
        namespace=_word(dig(obj, "metadata", "namespace")),
        name=_text(dig(obj, "metadata", "name")),
        phase=_word(dig(obj, "status", "phase")),
        storage_class=_word(dig(obj, "spec", "storageClassName")),
        created=parse_moment(dig(obj, "metadata", "creationTimestamp")),
    )


def job_facts(obj: Resource) -> JobFacts:
    """The facts of a Job."""
    failed = next(
        (
            c
            for c in _objects(dig(obj, "status", "conditions"))
            if c.get("type") == "Failed" and c.get("status") == "True"
        ),
        None,
    )
    if failed is None:
        return JobFacts(namespace=_word(dig(obj, "metadata", "namespace")), name=_text(dig(obj, "metadata", "name")))
    return JobFacts(
        namespace=_word(dig(obj, "metadata", "namespace")),
        name=_text(dig(obj, "metadata", "name")),
        failed=_word(failed.get("reason")) or "Failed",
        message=_long(failed.get("message")),
        since=parse_moment(failed.get("lastTransitionTime")),
    )


def _containers_of(status: Resource) -> Iterator[ContainerFacts]:
    for list_ in ("initContainerStatuses", "containerStatuses"):
        for container in _objects(status.get(list_)):
            waiting = _object(dig(container, "state", "waiting"))
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
    for volume in _objects(dig(pod, "spec", "volumes")):
        if name := _word(dig(volume, "persistentVolumeClaim", "claimName")):
            yield name


def _object(value: object) -> Resource:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[Resource]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def parse_moment(value: object) -> datetime | None:
    """A time in UTC; None for one so far away that arithmetic with it would overflow."""
    moment = parse_time(value)
    return moment.astimezone(UTC) if moment is not None and 1970 <= moment.year < 9000 else None


def _word(value: object) -> str:
    """A text that many objects share."""
    return sys.intern(bounded(value)) if isinstance(value, str) else ""


def _long(value: object) -> str:
    """A text whose end says most: an engine's traceback, an error that wraps others. Credentials go at the door."""
    return tail(_text(value), TEXT_LIMIT)
