"""From evidence to one root cause. Pure and total: any evidence gives a cause or None, whatever its order.

Precedence: the most specific cause (`Code.tier`), of those the one nearest to the pod, of those the oldest; names
decide between equals. What a pod shows now counts; events only explain it (they outlive what they tell of), except
where no pod exists to show anything: a workload that may not create its pods, a claim without a volume.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import IntEnum

from airunway.status.codes import CODES, code_of_reason
from airunway.status.conditions import MESSAGE_LIMIT, bounded
from airunway.status.containers import ContainerFault, container_finding, probe_finding
from airunway.status.evidence import ClaimFacts, EventFacts, Evidence, JobFacts, PodFacts, Reported
from airunway.status.texts import CREATION, MOUNT, PROVISIONING, SCHEDULING, first_meaning, line_of

__all__ = ["CREATION_PATIENCE", "Distance", "RootCause", "Symptom", "find_root_cause", "find_symptoms", "root_cause_of"]

CREATION_PATIENCE = timedelta(minutes=20)
"""How long a workload controller's refusal counts without being repeated: its retries are up to 17 minutes apart."""

MOUNT_PATIENCE = timedelta(minutes=5)
"""How long an event about a volume counts without being repeated; the kubelet tries every two minutes at least."""

_PREEMPTION = "preemption: "
"""Begins what the scheduler adds on whom it could evict: it buries why there is no node."""

_REFUSAL = re.compile(r"^(?:create Pod \S+ in \S+ \S+ failed error|Error creating): ", re.IGNORECASE)
"""How workload controllers begin: what the message has said already."""

_FOREVER = datetime.max.replace(tzinfo=UTC)
_CREATING = ("ContainerCreating", "PodInitializing")
_POSITIONS = {name: position for position, name in enumerate(CODES)}
_DISK = ("ephemeral", "DiskPressure", "inodes")


class Distance(IntEnum):
    """How far from the pod a symptom was seen."""

    CONTAINER = 0
    POD = 1
    POD_EVENT = 2
    CLAIM = 3
    JOB = 4
    WORKLOAD = 5
    REPORT = 6


@dataclass(frozen=True, kw_only=True)
class Symptom:
    """One thing that is wrong with one object. `code` is empty where the list of root causes has none for it."""

    reason: str
    code: str
    object: str
    field: str = ""
    message: str
    since: datetime | None = None
    distance: Distance

    @property
    def of_pods(self) -> bool:
        """Whether the pods, or that there are none, show it; a report is somebody else's word."""
        return self.distance is not Distance.REPORT


@dataclass(frozen=True, kw_only=True)
class RootCause:
    """The one fault behind all that is wrong.

    `object` is ``Kind/namespace/name``, `field` the JSON path of the deployment to look at (may be empty), `message`
    holds evidence and remedy in at most 1 KiB, `remedy` links to more, `reason` is that of the condition that shows it.
    `of_pods` is as of the symptom.
    """

    code: str
    object: str
    field: str
    message: str
    since: datetime
    remedy: str
    reason: str
    of_pods: bool = True


def find_root_cause(evidence: Evidence, *, now: datetime, previous: RootCause | None = None) -> RootCause | None:
    """The root cause, or None if nothing that has a code is wrong.

    `previous` is the one before: a fault that lasts keeps its `since`, and what was learnt about it when the status
    of the pod told more.
    """
    return root_cause_of(find_symptoms(evidence, now=now, previous=previous), now=now, previous=previous)


def root_cause_of(symptoms: Iterable[Symptom], *, now: datetime, previous: RootCause | None = None) -> RootCause | None:
    """The root cause among symptoms that `find_symptoms` gave."""
    symptom = next((symptom for symptom in symptoms if symptom.code), None)
    if symptom is None:
        return None
    code = CODES[symptom.code]
    same = previous is not None and (previous.code, previous.object) == (symptom.code, symptom.object)
    since = previous.since if same and previous is not None else symptom.since or now
    advice = f" {code.remedy_for(symptom.object)} See {code.link}"
    return RootCause(
        code=code.name,
        object=symptom.object,
        field=symptom.field or code.field,
        message=bounded(symptom.message, MESSAGE_LIMIT - len(advice.encode())) + advice,
        since=min(since, now),
        remedy=code.link,
        reason=symptom.reason,
        of_pods=symptom.of_pods,
    )


def find_symptoms(evidence: Evidence, *, now: datetime, previous: RootCause | None = None) -> tuple[Symptom, ...]:
    """Everything that is wrong, in order of precedence."""
    found: list[Symptom] = []
    newest = _newest_of(evidence.pods)
    told_of: dict[tuple[str, str], list[EventFacts]] = {}
    for event in evidence.events:
        if event.kind == "Pod":
            told_of.setdefault((event.namespace, event.name), []).append(event)
    for pod in evidence.pods:
        if pod.deleting or pod.ready or _is_history(pod, newest):
            continue
        events = told_of.get((pod.namespace, pod.name), ())
        found.extend(_of_pod(pod, events, evidence, now=now, previous=previous))
    for event in evidence.events:
        found.extend(_of_workload(event, evidence.pods, now=now))
        found.extend(_of_claim_event(event, evidence))
    found.extend(_lost(claim) for claim in evidence.claims if claim.phase == "Lost")
    found.extend(_failed(job) for job in evidence.jobs if job.failed)
    found.extend(_reported(report) for report in evidence.reports)
    unbound = {symptom.object for symptom in found if symptom.distance is Distance.CLAIM}
    waiting = {
        f"Pod/{pod.namespace}/{pod.name}"
        for pod in evidence.pods
        if any(f"PersistentVolumeClaim/{pod.namespace}/{claim}" in unbound for claim in pod.claims)
    }
    told = [symptom for symptom in found if not _is_told_by_claim(symptom, waiting)]
    return tuple(sorted({_aged(symptom, previous) for symptom in told}, key=_precedence))


def _is_told_by_claim(symptom: Symptom, waiting: Collection[str]) -> bool:
    """Whether a pod only says that a claim has no volume, and it is one of those `waiting` for claims of which is
    known why.
    """
    return (symptom.reason, symptom.distance) == ("PvcPending", Distance.POD) and symptom.object in waiting


def _aged(symptom: Symptom, previous: RootCause | None) -> Symptom:
    """The symptom as old as the fault that it shows. Each crash has a date of its own: of two pods that keep crashing
    the one that was named first stays the one.
    """
    if previous is None or (symptom.code, symptom.object) != (previous.code, previous.object):
        return symptom
    return replace(symptom, since=min(symptom.since or previous.since, previous.since))


def _precedence(symptom: Symptom) -> tuple[object, ...]:
    position = _POSITIONS.get(symptom.code, len(_POSITIONS))
    tier = CODES[symptom.code].tier if symptom.code else 1
    since = symptom.since or _FOREVER
    return tier, symptom.distance, since, position, symptom.object, symptom.reason, symptom.field, symptom.message


# ------------------------------------------------------------------------------------------------------------- pods


def _newest_of(pods: Iterable[PodFacts]) -> dict[object, datetime]:
    """When the newest living pod of each crew was made."""
    newest: dict[object, datetime] = {}
    for pod in pods:
        if pod.alive and pod.created is not None:
            newest[pod.crew] = max(pod.created, newest.get(pod.crew, pod.created))
    return newest


def _is_history(pod: PodFacts, newest: Mapping[object, datetime]) -> bool:
    """Whether the pod is over and another one has taken its place."""
    if pod.phase == "Succeeded":
        return True
    if pod.phase != "Failed" or pod.created is None:
        return False
    after = newest.get(pod.crew)
    return after is not None and after >= pod.created


def _of_pod(
    pod: PodFacts, told: Iterable[EventFacts], evidence: Evidence, *, now: datetime, previous: RootCause | None
) -> Iterator[Symptom]:
    name = f"Pod/{pod.namespace}/{pod.name}"
    events = [event for event in told if event.uid in ("", pod.uid)]
    events.sort(key=lambda event: (event.last or _FOREVER, event.note), reverse=True)
    known = previous.code if previous is not None and previous.object == name else ""

    def symptom(finding: ContainerFault, distance: Distance, *, container: str = "") -> Symptom:
        where = f"Pod {pod.name}, container {container}" if container else f"Pod {pod.name}"
        return Symptom(
            reason=finding.reason,
            code=finding.code,
            object=name,
            field=_field(finding, evidence.secrets),
            message=f"{where}: {finding.text}",
            since=finding.since,
            distance=distance,
        )

    if pod.phase == "Failed" and pod.reason == "Evicted":
        full = any(word in pod.message for word in _DISK)
        text = f"evicted from its node: {line_of(pod.message)}."
        yield symptom(
            ContainerFault(
                reason="StorageFull" if full else "PodEvicted", code="Storage.Full" if full else "", text=text
            ),
            Distance.POD,
        )
        return
    if (unscheduled := _unscheduled(pod)) is not None:
        yield symptom(unscheduled, Distance.POD)
    broken = False
    for container in pod.containers:
        finding = container_finding(pod, container, events, known=known, served=evidence.served)
        if finding is not None:
            broken = True
            yield symptom(finding, Distance.CONTAINER, container=container.name)
    if broken:
        return
    if any(container.waiting in _CREATING for container in pod.containers):
        if (finding := _mount_trouble(events, now=now)) is not None:
            yield symptom(finding, Distance.POD_EVENT)
    elif pod.phase == "Failed":
        text = f"failed ({pod.reason or 'no reason given'}) {line_of(pod.message)}".rstrip() + "."
        yield symptom(ContainerFault(reason="PodFailed", code="", text=text), Distance.POD)
    elif evidence.served and (finding := probe_finding(pod, events)) is not None:
        yield symptom(finding, Distance.POD_EVENT)


def _unscheduled(pod: PodFacts) -> ContainerFault | None:
    """Why the scheduler finds no node; None where it has not tried yet, or may not (scheduling gates)."""
    told = pod.unscheduled
    if told is None or pod.node or told.reason == "SchedulingGated":
        return None
    match = first_meaning([told.message], SCHEDULING)
    text = f"cannot be scheduled: {line_of(_without_preemption(told.message))}."
    if match is None:
        return ContainerFault(reason="FailedScheduling", code="", text=text, since=told.since)
    return ContainerFault(reason=match[0].reason, code=match[0].code, text=text, since=told.since)


def _without_preemption(text: str) -> str:
    head, told, _ = text.partition(_PREEMPTION)
    if told:
        head = head.removesuffix("no new claims to deallocate, ").rstrip()
        return head.removesuffix(".").removesuffix(",")
    end = text.removesuffix(".")
    return end.removesuffix(" not found") if end.endswith(". not found") else text


def _mount_trouble(events: Iterable[EventFacts], *, now: datetime) -> ContainerFault | None:
    for event in events:
        if event.reason not in ("FailedMount", "FailedAttachVolume"):
            continue
        if event.last is not None and now - event.last > MOUNT_PATIENCE:
            continue
        if (match := first_meaning([event.note], MOUNT)) is not None:
            meaning, line = match
            return ContainerFault(
                reason=meaning.reason, code=meaning.code, text=f"a volume cannot be mounted: {line}.", since=event.first
            )
    return None


def _field(finding: ContainerFault, secrets: Mapping[str, str]) -> str:
    """The field of the deployment that names the Secret which is missing; else what the finding says."""
    if finding.code != "Secret.NotFound":
        return finding.field
    named = [path for secret, path in sorted(secrets.items()) if f'"{secret}"' in finding.text]
    named += [path for secret, path in sorted(secrets.items()) if f"/{secret}" in finding.text]
    return named[0] if named else finding.field


# ---------------------------------------------------------------------------------------- workloads, claims and jobs


def _of_workload(event: EventFacts, pods: Iterable[PodFacts], *, now: datetime) -> Iterator[Symptom]:
    """A workload that may not create its pods, as long as it has created none since."""
    if event.reason != "FailedCreate":
        return
    if event.last is not None and now - event.last > CREATION_PATIENCE:
        return
    for pod in pods:
        mine = pod.owner == (event.kind, event.name) and pod.namespace == event.namespace
        # Both times are whole seconds or finer; of the same second the pod that exists is the better witness.
        if mine and pod.created is not None and event.last is not None and pod.created >= _second(event.last):
            return
    match = first_meaning([event.note], CREATION)
    reason, code = (match[0].reason, match[0].code) if match else ("InvalidSpec", "Provider.Rejected")
    yield Symptom(
        reason=reason,
        code=code,
        object=f"{event.kind}/{event.namespace}/{event.name}",
        message=f"{event.kind} {event.name} cannot create its pods: {line_of(_REFUSAL.sub('', event.note))}.",
        since=event.first,
        distance=Distance.WORKLOAD,
    )


def _of_claim_event(event: EventFacts, evidence: Evidence) -> Iterator[Symptom]:
    """A claim that gets no volume, while a pod waits for it or the claim itself is known to be pending."""
    if event.kind != "PersistentVolumeClaim" or event.reason != "ProvisioningFailed":
        return
    claim = next((c for c in evidence.claims if (c.namespace, c.name) == (event.namespace, event.name)), None)
    if claim is not None:
        waits = claim.phase == "Pending"
    else:
        users = [pod for pod in evidence.pods if pod.namespace == event.namespace and event.name in pod.claims]
        waits = any(pod.alive and not pod.node for pod in users)
    match = first_meaning([event.note], PROVISIONING)
    if not waits or match is None:
        return
    yield Symptom(
        reason=match[0].reason,
        code=match[0].code,
        object=f"PersistentVolumeClaim/{event.namespace}/{event.name}",
        message=f"PersistentVolumeClaim {event.name} gets no volume: {line_of(event.note)}.",
        since=event.first,
        distance=Distance.CLAIM,
    )


def _lost(claim: ClaimFacts) -> Symptom:
    return Symptom(
        reason="PvcLost",
        code="",
        object=f"PersistentVolumeClaim/{claim.namespace}/{claim.name}",
        message=f"PersistentVolumeClaim {claim.name} has lost its volume.",
        distance=Distance.CLAIM,
    )


def _failed(job: JobFacts) -> Symptom:
    return Symptom(
        reason="JobFailed",
        code="",
        object=f"Job/{job.namespace}/{job.name}",
        message=f"Job {job.name} failed ({job.failed}): {line_of(job.message)}.",
        since=job.since,
        distance=Distance.JOB,
    )


def _reported(report: Reported) -> Symptom:
    code = code_of_reason(report.reason)
    if report.reason in ("InsufficientCapacity", "FailedScheduling"):
        match = first_meaning([report.message], SCHEDULING)
        code = match[0].code if match else ""
    return Symptom(
        reason=report.reason,
        code=code,
        object=report.object,
        message=_sentence(report.message or report.reason),
        since=report.since,
        distance=Distance.REPORT,
    )


def _sentence(text: str) -> str:
    text = text.rstrip()
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def _second(moment: datetime) -> datetime:
    return moment.replace(microsecond=0)
