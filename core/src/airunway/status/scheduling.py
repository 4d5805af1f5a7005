"""Finds why a pod has no node: a scheduling gate, the scheduler's reasons, and what the autoscaler does about them.

Pure and total. The scheduler's own words are in the pod's status; those of autoscalers only in events about the pod.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from airunway.status.containers import ContainerFault, fault_by
from airunway.status.evidence import EventFacts, PodFacts
from airunway.status.texts import AUTOSCALING, SCHEDULING, MessagePattern, first_meaning, line_of

SCALING_REASONS = frozenset({"TriggeredScaleUp", "NotTriggerScaleUp", "Nominated"})
"""Reasons of normal events about pods by which an autoscaler says what it does: the cluster autoscaler, Karpenter."""

FAILED_SCALE_UP = "FailedScaleUp"
"""Reason of the cluster autoscaler's warning about a pod whose node the cloud did not give."""

EVICTED_BY_KUEUE = "Stopped"
"""Reason of the normal event about a pod that Kueue has evicted."""

_AFTER_EVICTION = (
    "Missing Workload",
    "No matching Workload",
    "Not admitted by",
    "Workload is deleted",
    "missing workload",
)
"""Begin the notes of such events that may follow an eviction and do not say why it was."""

NORMAL_REASONS = SCALING_REASONS | {EVICTED_BY_KUEUE}
"""Reasons of the normal events that explain why a pod has no node. Warnings are read anyway."""

_COMING = frozenset({"TriggeredScaleUp", "Nominated"})

_NODE_PATIENCE = timedelta(minutes=15)
"""How long a node may take that an autoscaler has asked for: the limit of the cluster autoscaler and of Karpenter."""

_KARPENTER = "Failed to schedule pod, "
"""Starts Karpenter's note of its own ``FailedScheduling``; the scheduler's begins with the number of nodes."""

_KUEUE_GATES = ("kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology")

KUEUE = (
    "Kueue holds the pod until its queue has room: see kubectl describe workloads -n <namespace>, and the quota of the "
    "ClusterQueue behind the queue that the label kueue.x-k8s.io/queue-name names."
)

_PREEMPTION = "preemption: "
"""Starts the scheduler's text about preemption, which would hide why no node fits."""

_NO_ROOM = "Unschedulable.InsufficientGPU"
_INSUFFICIENT = re.compile(r"Insufficient ([\w./-]{1,256})")
_HOPELESS = re.compile(r"preemption: \d+/(\d+) nodes are available: (\d+) Preemption is not helpful for scheduling")

TOO_MANY_GPUS = (
    "No node that it may use has as many GPUs as one pod asks for, so none will ever do: ask for fewer GPUs, add nodes "
    "with more, or, where the provider can, let one replica use those of several nodes (spec.scaling.nodesPerReplica)."
)


def is_karpenter(note: str) -> bool:
    """Whether the note of an event ``FailedScheduling`` is Karpenter's, and not the scheduler's."""
    return note.startswith(_KARPENTER)


def scheduling_finding(
    pod: PodFacts, events: Iterable[EventFacts], *, evicted: EventFacts | None, now: datetime
) -> ContainerFault | None:
    """Returns why the pod has no node; None if it has one, or the scheduler has not tried yet.

    `events` are those about the pod, newest first; `evicted` is about a pod in whose place this one came.
    """
    condition = pod.unscheduled
    if condition is None or pod.node:
        return None
    if condition.reason == "SchedulingGated":
        return _gated(pod, condition.since, evicted)
    match = first_meaning(condition.message, SCHEDULING)
    text = f"cannot be scheduled: {line_of(_without_preemption(condition.message))}"
    found = ContainerFault(reason="FailedScheduling", code="", text=f"{text}.", since=condition.since)
    if match is not None:
        found = replace(
            fault_by(match[0], f"{text}.", since=condition.since), remedy=_remedy(match[0], condition.message)
        )
    said = next((event for event in events if _is_of_autoscaler(event)), None)
    return found if said is None else _with_autoscaler(found, text, said, now=now)


def _gated(pod: PodFacts, since: datetime | None, evicted: EventFacts | None) -> ContainerFault:
    gates = f"scheduling gate{'s' if len(pod.gates) > 1 else ''} {', '.join(pod.gates)}" if pod.gates else "a gate"
    by_kueue = any(gate in _KUEUE_GATES for gate in pod.gates)
    queue = f" (queue {pod.queue})" if by_kueue and pod.queue else ""
    before = f"; Kueue evicted pod {evicted.name}: {line_of(evicted.note)}" if evicted is not None else ""
    return ContainerFault(
        reason="SchedulingGated",
        code="Unschedulable.Gated",
        text=f"may not be scheduled yet: {gates}{queue}{before}.",
        since=since,
        remedy=KUEUE if by_kueue else "",
    )


def _remedy(meaning: MessagePattern, message: str) -> str:
    """What to do. Where the scheduler says of every node that preemption would not help, and only GPUs are missing, no
    node has as many as the pod asks for.

    Older schedulers try preemption on such nodes too, and do not show it.
    """
    hopeless = _HOPELESS.search(message)
    if meaning.code == _NO_ROOM and hopeless is not None and hopeless[1] == hopeless[2]:
        kinds = set(_INSUFFICIENT.findall(message))
        return TOO_MANY_GPUS if len(kinds) == 1 else meaning.remedy
    return meaning.remedy


def _is_of_autoscaler(event: EventFacts) -> bool:
    return (
        event.reason in SCALING_REASONS
        or event.reason == FAILED_SCALE_UP
        or (event.reason == "FailedScheduling" and is_karpenter(event.note))
    )


def _with_autoscaler(found: ContainerFault, text: str, said: EventFacts, *, now: datetime) -> ContainerFault:
    note = line_of(said.note)
    if said.reason not in _COMING:
        match = first_meaning(said.note, AUTOSCALING)
        assert match is not None  # the last row matches everything
        text = f"{text}; the autoscaler adds no node: {note}."
        return replace(found, text=text, remedy=match[0].remedy, field=match[0].field)
    if said.last is not None and now - said.last > _NODE_PATIENCE:
        minutes = int(_NODE_PATIENCE.total_seconds() // 60)
        return replace(found, text=f"{text}; the node of the autoscaler has not come for {minutes} minutes: {note}.")
    # No root cause: nothing is to be done.
    return ContainerFault(
        reason="PendingResources", code="", text=f"a node is on its way: {note}.", since=said.first or said.last
    )


def _without_preemption(text: str) -> str:
    head, preemption, _ = text.partition(_PREEMPTION)
    if preemption:
        head = head.removesuffix("no new claims to deallocate, ").rstrip()
        return head.removesuffix(".").removesuffix(",")
    end = text.removesuffix(".")
    return end.removesuffix(" not found") if end.endswith(". not found") else text


def evicted_by_kueue(events: Iterable[EventFacts], pods: Iterable[PodFacts]) -> dict[tuple[str, str], EventFacts]:
    """The newest event about a pod that Kueue evicted, by namespace and name of the workload whose pod is gated now.

    One that says why goes before those that only follow from it.
    """
    gated = {(pod.namespace, pod.owner[1]) for pod in pods if pod.gates and pod.owner[1]}
    stopped = [event for event in events if event.kind == "Pod" and event.reason == EVICTED_BY_KUEUE] if gated else []
    found: dict[tuple[str, str], EventFacts] = {}
    for event in sorted(
        stopped, key=lambda each: (not each.note.startswith(_AFTER_EVICTION), str(each.last), each.note)
    ):
        for namespace, owner in gated:
            if event.namespace == namespace and event.name.startswith(f"{owner}-"):
                found[namespace, owner] = event
    return found
