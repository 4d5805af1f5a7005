"""Finds the one root cause in the evidence of a deployment. Pure and total: the order of the evidence does not matter.

Precedence: the most specific cause (`Code.tier`), then the one nearest to the pod, then the oldest; names break ties.
The current status of a pod counts. Events only explain it, because they outlive the fault that they report, except
if there is no pod: a workload that may not create its pods, or a claim without a volume.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import IntEnum

from airunway.redaction import MESSAGE_LIMIT, bounded
from airunway.resource import Resource, format_time
from airunway.status.containers import ContainerFault, container_finding, fault_by, probe_finding
from airunway.status.evidence import EventFacts, Evidence, PodFacts, Reported
from airunway.status.reasons import CODES, code_of_reason
from airunway.status.scheduling import evicted_by_kueue, scheduling_finding
from airunway.status.texts import CREATION, MOUNT, PROVISIONING, REFUSAL, SCHEDULING, first_meaning, line_of

_CREATION_PATIENCE = timedelta(minutes=20)
"""How long a workload controller's event counts without being repeated: its retries are up to 17 minutes apart."""

_MOUNT_PATIENCE = timedelta(minutes=5)
"""How long an event about a volume counts without being repeated; the kubelet retries at least every two minutes."""

_REFUSAL = re.compile(
    r"^(?:create Pod \S+ in \S+ \S+ failed error|Error creating): ",
    re.IGNORECASE,
)
"""The prefixes of workload controllers, which our message replaces."""

_FOREVER = datetime.max.replace(tzinfo=UTC)
_CREATING = ("ContainerCreating", "PodInitializing")
_POSITIONS = {name: position for position, name in enumerate(CODES)}
_DISK = ("ephemeral", "DiskPressure", "inodes")
NODE_DISK = (
    "What containers write outside of volumes filled the disk of the node, or the pod's limit for it: keep the weights "
    "on a volume (spec.model.storage.volumes, spec.model.cache)."
)


class Distance(IntEnum):
    """How far from the pod a symptom was found; a smaller value is more reliable."""

    CONTAINER = 0
    POD = 1
    POD_EVENT = 2
    CLAIM = 3
    JOB = 4
    WORKLOAD = 5
    REPORT = 6


@dataclass(frozen=True, kw_only=True)
class Symptom:
    """One thing that is wrong with one object."""

    reason: str
    """A reason of the registry."""
    code: str
    """A root-cause code; empty if the list of root causes has none for this symptom."""
    object: str
    """``Kind/namespace/name``."""
    field: str = ""
    """JSON path in the deployment that the user should look at; empty: the code's own field."""
    remedy: str = ""
    """What to do; empty: what the code says."""
    message: str
    since: datetime | None = None
    distance: Distance

    @property
    def of_pods(self) -> bool:
        """Whether the pods (or their absence) show it, and not a report of another component."""
        return self.distance is not Distance.REPORT


@dataclass(frozen=True, kw_only=True)
class RootCause:
    """The one fault that explains why the deployment is not ready."""

    code: str
    object: str
    """``Kind/namespace/name``."""
    field: str
    """JSON path in the deployment that the user should look at; may be empty."""
    message: str
    """Evidence and remedy, at most 1 KiB."""
    since: datetime
    remedy: str
    """What to do: the end of the message."""
    reason: str
    """Reason of the condition that shows the fault."""
    of_pods: bool = True
    """As `Symptom.of_pods`."""
    evidence: str = ""
    """The message without the remedy."""


def find_root_cause(evidence: Evidence, *, now: datetime, previous: RootCause | None = None) -> RootCause | None:
    """Returns the root cause, or None if no symptom has a code.

    `previous` is the root cause of the pass before: a fault that lasts keeps its `since`, and a cause that the pod's
    status no longer shows is kept.
    """
    return root_cause_of(find_symptoms(evidence, now=now, previous=previous), now=now, previous=previous)


def root_cause_of(symptoms: Iterable[Symptom], *, now: datetime, previous: RootCause | None = None) -> RootCause | None:
    """Returns the root cause among the symptoms of `find_symptoms`."""
    symptom = next((symptom for symptom in symptoms if symptom.code), None)
    if symptom is None:
        return None
    code = CODES[symptom.code]
    same = previous is not None and (previous.code, previous.object) == (symptom.code, symptom.object)
    since = previous.since if same and previous is not None else symptom.since or now
    remedy = code.remedy_for(symptom.object, symptom.remedy)
    evidence = bounded(symptom.message, MESSAGE_LIMIT - len(remedy.encode()) - 1)
    return RootCause(
        code=code.name,
        object=symptom.object,
        field=symptom.field or code.field,
        message=f"{evidence} {remedy}",
        since=min(since, now),
        remedy=remedy,
        reason=symptom.reason,
        of_pods=symptom.of_pods,
        evidence=evidence,
    )


def root_cause_status(cause: RootCause, *, field: str) -> Resource:
    """``status.rootCause``; `field` is that of the object to look at."""
    return {
        "code": cause.code,
        "object": cause.object,
        "field": field,
        "message": cause.message,
        "since": format_time(cause.since),
    }


def find_symptoms(evidence: Evidence, *, now: datetime, previous: RootCause | None = None) -> tuple[Symptom, ...]:
    """Returns everything that is wrong, in order of precedence."""
    found: list[Symptom] = []
    newest = _newest_of(evidence.pods)
    events_of: dict[tuple[str, str], list[EventFacts]] = {}
    for event in evidence.events:
        if event.kind == "Pod":
            events_of.setdefault((event.namespace, event.name), []).append(event)
    evicted = evicted_by_kueue(evidence.events, evidence.pods)
    for pod in evidence.pods:
        if pod.deleting or pod.ready or _is_history(pod, newest):
            continue
        events = events_of.get((pod.namespace, pod.name), ())
        before = evicted.get((pod.namespace, pod.owner[1]))
        found.extend(_of_pod(pod, events, evidence, evicted=before, now=now, previous=previous))
    for event in evidence.events:
        found.extend(_of_workload(event, evidence.pods, now=now))
        found.extend(_of_claim_event(event, evidence))
    for claim in evidence.claims:
        if claim.phase == "Lost":
            message = f"PersistentVolumeClaim {claim.name} has lost its volume."
            name = f"PersistentVolumeClaim/{claim.namespace}/{claim.name}"
            found.append(Symptom(reason="PvcLost", code="", object=name, message=message, distance=Distance.CLAIM))
    for job in evidence.jobs:
        if job.failed:
            message = f"Job {job.name} failed ({job.failed}): {line_of(job.message)}."
            name = f"Job/{job.namespace}/{job.name}"
            found.append(
                Symptom(
                    reason="JobFailed", code="", object=name, message=message, since=job.since, distance=Distance.JOB
                )
            )
    found.extend(_reported(report) for report in evidence.reports)
    # A pod that only reports a claim without a volume says nothing if the claim itself has a symptom.
    unbound = {symptom.object for symptom in found if symptom.distance is Distance.CLAIM}
    explained = {
        ("PvcPending", Distance.POD, f"Pod/{pod.namespace}/{pod.name}")
        for pod in evidence.pods
        if any(f"PersistentVolumeClaim/{pod.namespace}/{claim}" in unbound for claim in pod.claims)
    }
    symptoms = [each for each in found if (each.reason, each.distance, each.object) not in explained]
    return tuple(sorted({_aged(symptom, previous) for symptom in symptoms}, key=_precedence))


def _aged(symptom: Symptom, previous: RootCause | None) -> Symptom:
    """Returns the symptom with the age of the fault that it shows.

    Each crash has a time of its own. So that the root cause does not alternate between two pods that keep crashing, the
    object of the previous root cause keeps its `since`.
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
    """Returns the creation time of the newest living pod of each replica group."""
    newest: dict[object, datetime] = {}
    for pod in pods:
        if pod.alive and pod.created is not None:
            newest[pod.replica_group] = max(pod.created, newest.get(pod.replica_group, pod.created))
    return newest


def _is_history(pod: PodFacts, newest: Mapping[object, datetime]) -> bool:
    """Whether the pod has succeeded, or has failed and was replaced by another one."""
    if pod.phase == "Succeeded":
        return True
    if pod.phase != "Failed" or pod.created is None:
        return False
    after = newest.get(pod.replica_group)
    return after is not None and after >= pod.created


def _of_pod(
    pod: PodFacts,
    noted: Iterable[EventFacts],
    evidence: Evidence,
    *,
    evicted: EventFacts | None,
    now: datetime,
    previous: RootCause | None,
) -> Iterator[Symptom]:
    name = f"Pod/{pod.namespace}/{pod.name}"
    events = [event for event in noted if event.uid in ("", pod.uid)]
    events.sort(key=lambda event: (event.last or _FOREVER, event.note), reverse=True)
    known = previous.code if previous is not None and previous.object == name else ""

    def symptom(finding: ContainerFault, distance: Distance, *, container: str = "") -> Symptom:
        where = f"Pod {pod.name}, container {container}" if container else f"Pod {pod.name}"
        return Symptom(
            reason=finding.reason,
            code=finding.code,
            object=name,
            field=_field(finding, evidence.secrets),
            remedy=finding.remedy,
            message=f"{where}: {finding.text}",
            since=finding.since,
            distance=distance,
        )

    if pod.phase == "Failed" and pod.reason == "Evicted":
        text = f"evicted from its node: {line_of(pod.message)}."
        full = any(word in pod.message for word in _DISK)
        reason, code, remedy = ("StorageFull", "Storage.Full", NODE_DISK) if full else ("PodEvicted", "", "")
        yield symptom(ContainerFault(reason=reason, code=code, text=text, remedy=remedy), Distance.POD)
        return
    if (unscheduled := scheduling_finding(pod, events, evicted=evicted, now=now)) is not None:
        yield symptom(_with_claims(unscheduled, pod, evidence), Distance.POD)
    broken = False
    for container in pod.containers:
        if finding := container_finding(pod, container, events, known=known, served=evidence.served):
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


def _with_claims(finding: ContainerFault, pod: PodFacts, evidence: Evidence) -> ContainerFault:
    """The finding with the claims of the pod that have no volume: the scheduler does not name them."""
    named = [
        f"{claim.name} (StorageClass {claim.class_name or 'not named'})"
        for claim in evidence.claims
        if claim.namespace == pod.namespace and claim.name in pod.claims and claim.phase == "Pending"
    ]
    if finding.reason != "PvcPending" or not named:
        return finding
    return replace(finding, text=f"{finding.text.rstrip('.')}: PersistentVolumeClaim {', '.join(sorted(named))}.")


def _mount_trouble(events: Iterable[EventFacts], *, now: datetime) -> ContainerFault | None:
    for event in events:
        over = event.last is not None and now - event.last > _MOUNT_PATIENCE
        if event.reason not in ("FailedMount", "FailedAttachVolume") or over:
            continue
        if (match := first_meaning(event.note, MOUNT)) is not None:
            meaning, line = match
            return fault_by(meaning, f"a volume cannot be mounted: {line}.", since=event.first)
    return None


def _field(finding: ContainerFault, secrets: Mapping[str, str]) -> str:
    """Returns the field of the deployment that names the missing Secret; otherwise the finding's own field."""
    if finding.code == "Secret.NotFound":
        for quoted in ('"{}"', "/{}"):
            for secret, path in sorted(secrets.items()):
                if quoted.format(secret) in finding.text:
                    return path
    return finding.field


# ---------------------------------------------------------------------------------------- workloads, claims and jobs


def _of_workload(event: EventFacts, pods: Iterable[PodFacts], *, now: datetime) -> Iterator[Symptom]:
    """A workload that may not create its pods, unless it has created one since."""
    if event.reason != "FailedCreate" or (event.last is not None and now - event.last > _CREATION_PATIENCE):
        return
    # Times may be whole seconds: a pod created in the same second as the event counts as created after it.
    last = event.last.replace(microsecond=0) if event.last is not None else _FOREVER
    for pod in pods:
        mine = pod.owner == (event.kind, event.name) and pod.namespace == event.namespace
        if mine and pod.created is not None and pod.created >= last:
            return
    match = first_meaning(event.note, CREATION)
    reason, code = (match[0].reason, match[0].code) if match else ("InvalidSpec", "Provider.Rejected")
    yield Symptom(
        reason=reason,
        code=code,
        field=match[0].field if match else "",
        remedy=match[0].remedy if match else "",
        object=f"{event.kind}/{event.namespace}/{event.name}",
        message=f"{event.kind} {event.name} cannot create its pods: {line_of(_REFUSAL.sub('', event.note))}.",
        since=event.first,
        distance=Distance.WORKLOAD,
    )


def _of_claim_event(event: EventFacts, evidence: Evidence) -> Iterator[Symptom]:
    """A claim without a volume, if a pod waits for it or the claim is known to be pending."""
    if event.kind != "PersistentVolumeClaim" or event.reason != "ProvisioningFailed":
        return
    claim = next((c for c in evidence.claims if (c.namespace, c.name) == (event.namespace, event.name)), None)
    if claim is not None:
        waits = claim.phase == "Pending"
    else:
        users = [pod for pod in evidence.pods if pod.namespace == event.namespace and event.name in pod.claims]
        waits = any(pod.alive and not pod.node for pod in users)
    match = first_meaning(event.note, PROVISIONING)
    # A conflict of the provisioner's own write is no fault: it writes again at once.
    if not waits or match is None or "the object has been modified" in event.note:
        return
    yield Symptom(
        reason=match[0].reason,
        code=match[0].code,
        object=f"PersistentVolumeClaim/{event.namespace}/{event.name}",
        message=f"PersistentVolumeClaim {event.name} gets no volume: {line_of(event.note)}.",
        since=event.first,
        distance=Distance.CLAIM,
    )


def _reported(report: Reported) -> Symptom:
    code, text = report.code or code_of_reason(report.reason), (report.message or report.reason).rstrip()
    if report.reason in ("InsufficientCapacity", "FailedScheduling"):
        match = first_meaning(report.message, SCHEDULING)
        code = match[0].code if match else ""
    refused = first_meaning(report.message, REFUSAL) if code == "Provider.Rejected" else None
    return Symptom(
        reason=report.reason,
        code=code,
        remedy=refused[0].remedy if refused else "",
        object=report.object,
        message=text if text.endswith((".", "!", "?", "…")) else f"{text}.",
        since=report.since,
        distance=Distance.REPORT,
    )
