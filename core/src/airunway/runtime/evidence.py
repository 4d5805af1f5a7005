"""Watches what explains the state of an upstream object: pods, warning events, claims and jobs of our deployments.

The API server selects pods by label. The caches keep only facts about each object, and a deployment is reconciled only
when a fact changes. One watch covers all warning events, and one watch each reason of normal events that the plugin
names; events about other objects are dropped at decoding. Providers in one process share these caches. `Workloads`
reads workloads (StatefulSets, Jobs and so on) on demand, because upstreams do not set our labels on them. Nothing here
writes, and a deployment runs without it: without read access the upstream's status alone counts.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from airunway.api import names
from airunway.kube import (
    DEPLOYMENT,
    EVENT,
    JOB,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    REPLICA_SET,
    STATEFUL_SET,
    AnyReflector,
    Client,
    Forbidden,
    Index,
    Kind,
    NotFound,
)
from airunway.plugins.host import ProviderHost
from airunway.process.caches import Caches, SharedCache
from airunway.resource import ObjectKey, Resource, dig, key_of, labels_of, uid_of
from airunway.status.evidence import (
    EventFacts,
    Evidence,
    PodFacts,
    claim_facts,
    event_facts,
    job_facts,
    parse_moment,
    pod_facts,
)
from airunway.status.scheduling import EVICTED_BY_KUEUE, FAILED_SCALE_UP, NORMAL_REASONS, is_karpenter

# ------------------------------------------------------------------------------------------------- what the caches keep


FACTS = "facts"
"""Key under which a projected object keeps its facts."""


@dataclass(frozen=True, kw_only=True)
class PodProjection:
    """Projects a pod to its facts and the first of `labels` that it carries."""

    labels: tuple[str, ...]
    """Labels that select pods, in order of preference."""
    role_label: str
    """Label whose value is the pod's role."""
    serving_roles: tuple[str, ...]
    """Roles whose pods answer requests."""

    def __call__(self, pod: Resource) -> Resource:
        found = labels_of(pod)
        by = next((label for label in self.labels if label in found), self.labels[0])
        facts = pod_facts(pod, role_label=self.role_label, serving_roles=self.serving_roles)
        return _projected(pod, facts, by=by)


@dataclass(kw_only=True, eq=False)
class EventReader:
    """A subscriber to events."""

    reasons: Mapping[str, frozenset[str]]
    """Reasons of the wanted events, by the kind that an event is about."""
    about: Callable[[EventFacts], tuple[ObjectKey, ...] | None]
    """Returns the deployments that an event is about; None if the event does not concern this reader."""
    knows: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the reader's other caches are complete: before that it cannot tell what an event is about."""


class EventProjection:
    """Projects events that at least one reader wants, each with its deployments by the reader's name."""

    def __init__(self) -> None:
        self._readers: dict[str, EventReader] = {}

    def join(self, name: str, reader: EventReader) -> None:
        self._readers[name] = reader

    def leave(self, name: str, reader: EventReader) -> None:
        """Remove the reader, unless another one has joined under its name since."""
        reader.knows.set()
        if self._readers.get(name) is reader:
            del self._readers[name]

    async def until_all_know(self) -> None:
        """Wait for all readers before events are listed: an unwanted event is dropped, and the watch does not repeat
        it.
        """
        for reader in list(self._readers.values()):
            await reader.knows.wait()

    def __call__(self, event: Resource) -> Resource | None:
        kind, reason = dig(event, "regarding", "kind"), dig(event, "reason")
        if not isinstance(kind, str):
            return None
        readers = {name: each for name, each in self._readers.items() if reason in each.reasons.get(kind, ())}
        if not readers:
            return None
        facts = event_facts(event)
        if facts.note.startswith("Error: "):  # repeats the waiting reason of the container
            return None
        if reason == "FailedScheduling" and kind == "Pod" and not is_karpenter(facts.note):
            return None  # the scheduler's, which is in the pod's status
        owners = {name: reader.about(facts) for name, reader in readers.items()}
        about = {name: keys for name, keys in owners.items() if keys is not None}
        return {**_projected(event, facts), "about": about} if about else None


def project_claim(claim: Resource) -> Resource:
    return _projected(claim, claim_facts(claim))


def project_job(job: Resource) -> Resource:
    return _projected(job, job_facts(job))


def _projected(obj: Resource, facts: object, *, by: str = names.MODEL_DEPLOYMENT) -> Resource:
    """Project an object to its version, its facts, and the label `by` which it was found, with that label's value."""
    metadata = obj.get("metadata") or {}
    kept = {key: metadata.get(key) for key in ("name", "namespace", "uid", "resourceVersion")}
    return {"metadata": kept, FACTS: facts, "by": by, "label": str(labels_of(obj).get(by, ""))}


# --------------------------------------------------------------------------------------- workloads that upstreams make


log = logging.getLogger(__name__)

WORKLOADS = {kind.kind: kind for kind in (STATEFUL_SET, REPLICA_SET, DEPLOYMENT, JOB)}
"""Kinds that create pods from a template, by name."""

_REMEMBERED = 4096


class Workloads:
    """Reads workloads, and caches by uid to which deployment a workload's pods belong (this never changes)."""

    def __init__(self, client: Client, *, labels: Sequence[str]) -> None:
        self._client = client
        self._labels = labels
        self._known: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self._denied = False

    async def makes_pods_of(self, event: EventFacts, *, objects: Collection[str], deployment: ObjectKey) -> bool:
        """Whether the labels of the pod template show that the event's workload creates pods of that deployment.

        `objects` are the names of the deployment's objects that may stand in the pods' labels. If workloads may not be
        read or the event has no uid, the event's object must have one of these names. Raises KubeError if the API
        server cannot answer now.
        """
        if event.uid not in self._known:
            key = ObjectKey(event.namespace, event.name)
            workload = await self._read(WORKLOADS[event.kind], key) if event.uid else None
            if workload is None:
                return event.name in objects
            if uid_of(workload) != event.uid:
                workload = {}  # the event is about an earlier object of this name, which is deleted
            labels = dig(workload, "spec", "template", "metadata", "labels", default={})
            if names.PART in labels:
                labels = {}  # a part's pods (a picker, a download) carry the deployment's name too
            theirs = next((str(labels[key]) for key in self._labels if labels.get(key)), "")
            self._known[event.uid] = (theirs, str(labels.get(names.MODEL_DEPLOYMENT, "")))
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        theirs, ours = self._known[event.uid]
        return ours == deployment.name or theirs in objects

    def knows(self, event: EventFacts) -> bool:
        """Whether `makes_pods_of` answers without a request."""
        return event.uid in self._known or not event.uid or self._denied

    async def rolled_out(self, pods: Iterable[PodFacts]) -> bool:
        """Whether each StatefulSet of the pods exists and has no newer revision than theirs. True if workloads may not
        be read. Raises KubeError.
        """
        revisions: dict[ObjectKey, set[str]] = {}
        for pod in pods:
            kind, name = pod.owner
            if kind == STATEFUL_SET.kind and pod.alive and pod.revision:
                revisions.setdefault(ObjectKey(pod.namespace, name), set()).add(pod.revision)
        for key, state in revisions.items():
            found = await self._read(STATEFUL_SET, key)
            if found is None:
                return True
            observed = dig(found, "status", "observedGeneration", default=0)
            if observed < dig(found, "metadata", "generation", default=0):
                return False
            if state != {dig(found, "status", "updateRevision")}:
                return False
        return True

    async def _read(self, kind: Kind, key: ObjectKey) -> Resource | None:
        """The workload; empty if it does not exist, None if workloads may not be read."""
        if self._denied:
            return None
        try:
            return await self._client.get(kind, key)
        except NotFound:
            return {}
        except Forbidden as error:
            self._denied = True
            log.warning(
                "workloads may not be read (%s): they are recognized by their names, their revisions stay unknown",
                error,
            )
            return None


# ------------------------------------------------------------------------------------------------------- the collector


EVENTS_PER_DEPLOYMENT = 64
"""Number of the newest events that are evaluated."""

EVENTS_KEPT = 256
"""Number of the newest events that a watch keeps for each deployment, and for each namespace of those about claims of
no deployment: any user can write such events.
"""

WORKLOADS_PER_PASS = 64
"""Number of workloads that are read in one pass because of events about them, the newest events first."""

PODS_PER_DEPLOYMENT = 2048
"""Number of pods that are evaluated, the living and newest ones: as many as the largest deployment has (32 × 64)."""

EVENT_AGE = timedelta(hours=1)
"""Events that were not repeated for this long are dropped, whatever the server's own limit is."""

_REASONS = {
    "Pod": frozenset(
        {
            *{"Failed", "InspectFailed", "FailedMount", "FailedAttachVolume", "FailedToRetrieveImagePullSecret"},
            *{"Unhealthy", "FailedScheduling", FAILED_SCALE_UP},
            *NORMAL_REASONS,
        }
    ),
    "PersistentVolumeClaim": frozenset({"ProvisioningFailed"}),
    **{kind: frozenset({"FailedCreate"}) for kind in WORKLOADS},
}
"""Reasons of the events that explain a fault, by the kind that they are about."""

_QUIET = frozenset({"Unhealthy"})
"""Reasons of events that occur at every start. They are evaluated when a pod changes, but trigger no reconcile."""


class EvidenceCollector:
    """Owns the caches and collects the evidence for one deployment from them.

    A pod belongs to a deployment in one of two ways: a pod label of the manifest has the name of an object of the
    deployment as its value, or our own label has the name of the deployment. `known` is set once the deployments are
    read; `deployments(key)` returns the deployment if it is the provider's; `is_named(key)` returns the deployments
    that have an object of this name; `notify(key)` enqueues a deployment.
    """

    def __init__(
        self,
        *,
        caches: Caches,
        host: ProviderHost,
        known: asyncio.Event,
        deployments: Callable[[ObjectKey], Resource | None],
        is_named: Callable[[ObjectKey], Iterable[ObjectKey]],
        notify: Callable[[ObjectKey], None],
        clock: Callable[[], datetime],
    ) -> None:
        manifest = self._manifest = host.manifest
        self._name = host.name
        self._labels = manifest.pod_labels or (names.MODEL_DEPLOYMENT,)
        by_kind = {**_REASONS, **{kind: frozenset(found) for kind, found in manifest.events.items()}}
        self._known = known
        self._deployments = deployments
        self._is_named = is_named
        self._notify = notify
        self._clock = clock
        self.workloads = Workloads(caches.client, labels=self._labels)
        ours = names.MODEL_DEPLOYMENT
        pod = PodProjection(labels=self._labels, role_label=manifest.role_label, serving_roles=manifest.serving_roles)
        self._pods = tuple(
            caches.of(POD, project=pod, label_selector=_pod_selector(label, manifest.pod_labels, host.name))
            for label in self._labels
        )
        self._claims = caches.of(PERSISTENT_VOLUME_CLAIM, project=project_claim, label_selector=ours)
        self._jobs = caches.of(JOB, project=project_job, label_selector=ours)
        self._wanted = caches.one(EventProjection)
        self._reader = EventReader(reasons=by_kind, about=self._about_ours)
        self._wanted.join(self._name, self._reader)
        reasons = sorted({*NORMAL_REASONS, *(reason for wanted in manifest.events.values() for reason in wanted)})
        self._events = tuple(
            caches.of(EVENT, project=self._wanted, field_selector=selector)
            for selector in ("type=Warning", *(f"type=Normal,reason={reason}" for reason in reasons))
        )
        self._pods_by_value = tuple(pods.add_index(_by_label) for pods in self._pods)
        self._pods_by_claim = tuple(pods.add_index(_by_claim) for pods in self._pods)
        self._claims_by_value = self._claims.add_index(_by_label)
        self._jobs_by_value = self._jobs.add_index(_by_label)
        self._events_by_object = tuple(
            events.add_index(lambda event: _by_object(event) if self._name in event["about"] else ())
            for events in self._events
        )
        self._events_by_deployment = tuple(
            events.add_index(lambda event: event["about"].get(self._name, ())) for events in self._events
        )
        for reflector in (*self._pods, self._claims, self._jobs):
            reflector.add_handler(self._on_labelled)
        for events in self._events:
            counted = events.add_index(self._counted_for)
            events.add_handler(partial(self._limit, events, counted))
            events.add_handler(partial(self._on_event, counted))
        self._denied: set[Kind] = set()

    @property
    def reflectors(self) -> tuple[AnyReflector, ...]:
        return (*self._pods, self._claims, self._jobs, *self._events)

    def settled(self) -> bool:
        """Whether everything that may be read was read: before that, absence means nothing."""
        return self._are_settled(self.reflectors)

    def _are_settled(self, reflectors: Iterable[AnyReflector]) -> bool:
        return all(reflector.synced.is_set() or reflector.kind in self._denied for reflector in reflectors)

    def unready(self) -> str | None:
        """Why pods and events cannot be read yet, or None."""
        return None if self.settled() else "pods and events have not been read yet"

    async def read(self) -> None:
        """Nothing to wait for: a pass without evidence says less, and is made again with it."""

    async def until_settled(self) -> None:
        """Return once everything that may be read was read."""
        await self._until_settled(self.reflectors)

    async def _until_settled(self, reflectors: Iterable[AnyReflector]) -> None:
        while not self._are_settled(reflectors):
            await asyncio.sleep(0.05)

    async def run(self) -> None:
        """Watch until cancelled. Events are listed after deployments and the other caches are complete: only events
        about known objects are kept.
        """
        for reflector in self.reflectors:
            reflector.on_restart = partial(self._on_trouble, reflector.kind)
        first = (*self._pods, self._claims, self._jobs)
        try:
            async with asyncio.TaskGroup() as group:
                for reflector in first:
                    group.create_task(reflector.run(), name=f"evidence-{reflector.kind.plural}")
                await self._known.wait()
                await self._until_settled(first)
                self._reader.knows.set()
                await self._wanted.until_all_know()
                for events in self._events:
                    group.create_task(events.run(), name="evidence-events")
        finally:
            self._wanted.leave(self._name, self._reader)

    async def of(self, deployment: Resource, primary: Resource, made: Sequence[Resource] = ()) -> Evidence | None:
        """The evidence for a deployment whose primary object exists; None where pods may not be read.

        `made` are the objects that the upstream created from the primary object: pods may carry their names. Raises
        KubeError if the API server cannot return a workload now.
        """
        if not all(pods.synced.is_set() for pods in self._pods):
            return None
        key = key_of(deployment)
        own = frozenset(key_of(obj).name for obj in (primary, *made))
        pods = tuple(self._pods_of(key, own))
        labelled = (key.namespace, key.name)
        events = list(self._explaining(pods))
        if any(pod.gates for pod in pods):
            of_deployment = _of_all(self._events_by_deployment, key)
            events += [event for event in of_deployment if event.reason == EVICTED_BY_KUEUE and event not in events]
        refusals, unread = await self._refusals(key, primary, own)
        events += refusals
        events.sort(key=_by_time)
        return Evidence(
            pods=pods,
            events=tuple(events[-EVENTS_PER_DEPLOYMENT:]),
            claims=tuple(_facts(self._claims_by_value.get(labelled))),
            jobs=tuple(_facts(self._jobs_by_value.get(labelled))),
            secrets=_secrets_of(deployment["spec"]),
            unread=unread,
        )

    async def _refusals(self, key: ObjectKey, primary: Resource, own: Collection[str]) -> tuple[list[EventFacts], bool]:
        """The events about workloads that make pods of the deployment, and whether some are left for another pass."""
        found, reads = [], 0
        for event in sorted(_of_all(self._events_by_deployment, key), key=_by_time, reverse=True):
            if event.kind not in WORKLOADS or is_history(event, primary):
                continue
            if not self.workloads.knows(event):
                reads += 1
                if reads > WORKLOADS_PER_PASS:
                    continue
            if await self.workloads.makes_pods_of(event, objects=own, deployment=key):
                found.append(event)
        return found, reads > WORKLOADS_PER_PASS

    def events_about(self, objects: Sequence[Resource]) -> tuple[EventFacts, ...]:
        """The events about these objects that the plugin asked for, oldest first."""
        found: dict[EventFacts, None] = {}
        for obj in objects:
            kind, key = str(obj.get("kind")), key_of(obj)
            wanted = self._manifest.events.get(kind, ())
            for event in self._events_about(kind, key) if wanted else ():
                if event.reason in wanted and event.uid in ("", uid_of(obj)):
                    found[event] = None
        return tuple(sorted(found, key=lambda event: (str(event.last), event.reason, event.note)))

    def _pods_of(self, deployment: ObjectKey, objects: Collection[str]) -> list[PodFacts]:
        """The pods of a deployment, each found by the first label that it carries."""
        found: dict[str, PodFacts] = {}
        for label, index in zip(self._labels, self._pods_by_value, strict=True):
            values = (deployment.name,) if label == names.MODEL_DEPLOYMENT else sorted(objects)
            for value in values:
                for pod in _facts(index.get((deployment.namespace, value))):
                    found.setdefault(pod.name, pod)
        return limited(list(found.values()))

    def _explaining(self, pods: Iterable[PodFacts]) -> Iterator[EventFacts]:
        claims = set()
        for pod in pods:
            for event in self._events_about("Pod", ObjectKey(pod.namespace, pod.name)):
                if event.uid in ("", pod.uid):
                    yield event
            claims |= {(pod.namespace, claim) for claim in pod.claims}
        for namespace, name in claims:
            yield from self._events_about("PersistentVolumeClaim", ObjectKey(namespace, name))

    def _events_about(self, kind: str, key: ObjectKey) -> Iterator[EventFacts]:
        return _of_all(self._events_by_object, (kind, key.namespace, key.name))

    # -------------------------------------------------------------------------------------------------- what changes

    def _on_labelled(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        if old is not None and new is not None and old[FACTS] == new[FACTS]:
            return
        for deployment in {owner for obj in (old, new) if obj is not None for owner in self._owners(obj)}:
            self._notify(deployment)

    def _owners(self, obj: Resource) -> Iterator[ObjectKey]:
        """The deployments that a pod, a claim or a job may belong to, by the label with which it was found."""
        named = ObjectKey(key_of(obj).namespace, obj["label"])
        if obj["by"] != names.MODEL_DEPLOYMENT:
            yield from self._is_named(named)
        elif self._deployments(named) is not None:
            yield named

    def _on_event(self, counted: Index, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        if new is None or self._name not in new["about"]:
            return
        facts: EventFacts = new[FACTS]
        if facts.reason in _QUIET:
            return
        if self._is_repeated(counted, new) if old is None else old[FACTS].note == facts.note:
            return  # a higher count is not a change
        for deployment in set(self._about(facts)):
            self._notify(deployment)

    def _about(self, event: EventFacts) -> Iterator[ObjectKey]:
        """The deployments that an event may be about: by the pod's label, by the claim's pods, or by the name."""
        if event.kind == "Pod":
            for pods in self._pods:
                if (pod := pods.get(ObjectKey(event.namespace, event.name))) is not None:
                    yield from self._owners(pod)
                    return
        if event.kind == "PersistentVolumeClaim":
            for index in self._pods_by_claim:
                for pod in index.get((event.namespace, event.name)):
                    yield from self._owners(pod)
            if (claim := self._claims.get(ObjectKey(event.namespace, event.name))) is not None:
                yield from self._owners(claim)
            return
        yield from self._is_named(ObjectKey(event.namespace, event.name))
        yield from self._by_name(event)

    def _by_name(self, event: EventFacts) -> Iterator[ObjectKey]:
        """Our deployments whose name is a prefix of the object's name, the longest first: upstreams append to names."""
        parts = event.name.split("-")
        for length in range(len(parts), 0, -1):
            key = ObjectKey(event.namespace, "-".join(parts[:length]))
            if self._deployments(key) is not None:
                yield key

    # --------------------------------------------------------------------------------------------------- projections

    def _about_ours(self, event: EventFacts) -> tuple[ObjectKey, ...] | None:
        """The deployments that an event is about, or None if it is about none of ours. Events about claims are kept,
        too: they may come before the pod that names the claim.
        """
        if event.last is not None and self._clock() - event.last > EVENT_AGE:
            return None
        about = tuple(dict.fromkeys([*self._about(event), *self._by_name(event)]))
        return about if about or event.kind == PERSISTENT_VOLUME_CLAIM.kind else None

    def _counted_for(self, event: Resource) -> tuple[ObjectKey | str, ...]:
        """What an event is counted for: the first deployment that it is about (the order of `_about_ours`: whose pods,
        claims or objects show it come before those that only have a name like it), else its namespace.

        Another provider may share the cache. What is about a deployment of it is counted by it alone: events about
        nothing that is known must not take its room.
        """
        about = event["about"].get(self._name)
        if about:
            return (about[0],)
        if about is None or any(event["about"].values()):
            return ()
        facts: EventFacts = event[FACTS]
        return (facts.namespace,)

    def _limit(
        self, events: SharedCache, counted: Index, key: ObjectKey, _old: Resource | None, new: Resource | None
    ) -> None:
        """Keeps the newest events of each deployment and namespace. The one that just came stays."""
        for value in self._counted_for(new) if new is not None else ():
            if counted.count(value) > EVENTS_KEPT:
                others = (event for event in counted.get(value) if key_of(event) != key)
                events.forget(key_of(min(others, key=lambda event: _by_time(event[FACTS]))))

    def _is_repeated(self, counted: Index, event: Resource) -> bool:
        """Whether an event that is not known may be the repetition of one that made way for newer ones.

        It is new if its first observation is later than the oldest event that is kept.
        """
        facts: EventFacts = event[FACTS]
        if facts.first is None or facts.last is None or facts.first >= facts.last:
            return False
        for value in self._counted_for(event):
            others = [each[FACTS].last for each in counted.get(value) if each is not event]
            if len(others) + 1 >= EVENTS_KEPT:
                return facts.first <= min((last for last in others if last is not None), default=facts.first)
        return False

    def _on_trouble(self, kind: Kind, cause: str) -> None:
        if cause in ("Forbidden", "Unauthorized") and kind not in self._denied:
            self._denied.add(kind)
            log.warning("%s may not be read (%s): root causes that they show stay unknown", kind, cause)


def _pod_selector(label: str, declared: Sequence[str], provider: str) -> str:
    """The selector of the pods with that label.

    Pods with our own label may be those of another provider or of a part: if the manifest declares no
    label, the runtime labels the pods and the provider's name must match. A declared label that is ours may be on pods
    that the upstream labels, so only the pods of parts are left out.
    """
    if label != names.MODEL_DEPLOYMENT:
        return label
    return f"{label},!{names.PART}" if declared else f"{label},{names.PROVIDER}={provider}"


def is_history(event: EventFacts, primary: Resource) -> bool:
    """Whether an event ended before the primary object was created: then it is about an earlier object of that name."""
    made_at = parse_moment(dig(primary, "metadata", "creationTimestamp"))
    return made_at is not None and event.last is not None and event.last < made_at


def limited(pods: list[PodFacts]) -> list[PodFacts]:
    """The pods of one deployment; if there are too many, the living and newest. Evicted pods pile up, and any user can
    copy a label.
    """
    if len(pods) <= PODS_PER_DEPLOYMENT:
        return pods
    by_age = sorted(pods, key=lambda pod: (not pod.alive, -pod.created.timestamp() if pod.created else 0.0))
    return by_age[:PODS_PER_DEPLOYMENT]


def _secrets_of(spec: Resource) -> dict[str, str]:
    """The Secrets that a deployment's spec names, each with the path of the field."""
    found: dict[str, str] = {}
    for position, variable in enumerate(dig(spec, "env", default=[])):
        name = dig(variable, "valueFrom", "secretKeyRef", "name")
        if isinstance(name, str):
            found.setdefault(name, f"spec.env[{position}]")
    for position, reference in enumerate(dig(spec, "imagePullSecrets", default=[])):
        name = dig(reference, "name")
        if isinstance(name, str):
            found.setdefault(name, f"spec.imagePullSecrets[{position}]")
    token = dig(spec, "secrets", "huggingFaceToken")
    if isinstance(token, str) and token:
        found[token] = "spec.secrets.huggingFaceToken"
    return found


def _facts(objects: Iterable[Resource]) -> list[Any]:
    return [obj[FACTS] for obj in objects]


def _by_time(event: EventFacts) -> tuple[datetime, str, str, str, str]:
    """The order of events, oldest first; those without a time before all others."""
    return event.last or datetime.min.replace(tzinfo=UTC), event.kind, event.name, event.reason, event.note


def _of_all(indexes: Iterable[Index], value: Hashable) -> Iterator[EventFacts]:
    """The facts that several indexes have under one value."""
    for index in indexes:
        yield from _facts(index.get(value))


def _by_label(obj: Resource) -> Iterator[tuple[str, str]]:
    yield key_of(obj).namespace, obj["label"]


def _by_claim(pod: Resource) -> Iterator[tuple[str, str]]:
    facts: PodFacts = pod[FACTS]
    for claim in facts.claims:
        yield facts.namespace, claim


def _by_object(event: Resource) -> Iterator[tuple[str, str, str]]:
    facts: EventFacts = event[FACTS]
    yield facts.kind, facts.namespace, facts.name
