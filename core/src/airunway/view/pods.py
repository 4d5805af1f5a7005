"""Pods as rows: state, node, restarts, and how each container ended."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from airunway.api import names
from airunway.resource import Resource, dig, labels_of
from airunway.status.evidence import ContainerFacts, Ending, PodFacts, pod_facts
from airunway.view.base import ViewModel, line, word

_STARTING = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons for which a container waits although nothing is wrong."""


class Health(StrEnum):
    """How an object is doing, as one word; the order is that in which problems come first."""

    PROBLEM = "problem"
    PROGRESS = "progress"
    UNKNOWN = "unknown"
    OK = "ok"

    @property
    def position(self) -> int:
        return list(Health).index(self)


PHASES = {"Running": Health.OK, "Failed": Health.PROBLEM, "Degraded": Health.PROBLEM, "Unknown": Health.UNKNOWN}
"""How a deployment is doing by its phase; in all other phases there is progress."""


@dataclass(frozen=True, kw_only=True)
class EndingRow(ViewModel):
    """How a container ended."""

    code: int
    """Exit code."""
    reason: str
    """Kubelet's word, such as ``OOMKilled``."""
    message: str
    """Termination message, its end."""
    finished: datetime | None
    """When; null if it is not known."""


@dataclass(frozen=True, kw_only=True)
class ContainerRow(ViewModel):
    """One container of a pod."""

    name: str
    """Its name."""
    init: bool
    """Whether it is an init container (a sidecar too)."""
    ready: bool
    """Whether it passes its readiness probe."""
    state: str
    """``Running``, the reason for which it waits, or the reason of its end."""
    restarts: int
    """How often it was started again."""
    ending: EndingRow | None
    """Its last end; null if it never ended."""
    previous: bool
    """Whether that end was before the run that is there now, or that is waited for."""


@dataclass(frozen=True, kw_only=True)
class PodRow(ViewModel):
    """One pod."""

    namespace: str
    """Its namespace."""
    name: str
    """Its name."""
    role: str
    """What it does in the deployment, such as ``decode``; empty if all pods do the same."""
    node: str
    """Its node; empty before it has one."""
    state: str
    """One word, as kubectl's column STATUS: ``Running``, ``CrashLoopBackOff``, ``Unschedulable``."""
    health: Health
    """Whether it is all right."""
    ready: bool
    """Whether it serves."""
    message: str
    """Why it is not all right, in Kubernetes' words; empty otherwise."""
    restarts: int
    """Restarts of all its containers, a number."""
    created: datetime | None
    """When it was created."""
    ending: EndingRow | None
    """The newest end of a container that failed; null if none did."""
    containers: tuple[ContainerRow, ...]
    """Init containers first."""


def pod_row(pod: Resource, deployment: Resource) -> PodRow:
    """Returns the row of a pod of `deployment`; total over any JSON object."""
    facts = pod_facts(pod)
    containers = tuple(_container(each) for each in facts.containers)
    failed = [each.ending for each in containers if each.ending is not None and each.ending.code != 0]
    newest = max(failed, key=lambda ending: ending.finished.timestamp() if ending.finished else 0.0, default=None)
    state, health, message = _state(facts)
    return PodRow(
        namespace=word(facts.namespace),
        name=word(facts.name),
        role=word(role_of(pod, deployment)),
        node=word(facts.node),
        state=state,
        health=health,
        ready=facts.ready,
        message=line(message),
        restarts=sum(each.restarts for each in facts.containers),
        created=facts.created,
        ending=newest,
        containers=containers,
    )


def role_of(pod: Resource, deployment: Resource) -> str:
    """Returns what a pod does in its deployment: ``decode``, ``server``, …; empty if nothing tells it.

    It is our label, else the label that ``status.selector`` requires beside the one that names the deployment's object.
    """
    labels = labels_of(pod)
    if not isinstance(labels, dict):
        return ""
    keys = [names.COMPONENT, *_other_labels(dig(deployment, "status", "selector"))]
    own = dig(pod, "metadata", "name")
    return next((value for key in keys if isinstance(value := labels.get(key), str) and value and value != own), "")


def _other_labels(selector: object) -> list[str]:
    """The keys of a selector after the first: ``a=x,b in (y,z)`` gives ``b``."""
    if not isinstance(selector, str) or len(selector) > 1024:
        return []
    _, _, rest = selector.partition(",")
    key = rest.split("=")[0].split(" in ")[0].strip().removesuffix("!")
    # Kubernetes' own labels name one pod or one index of a set.
    return [key] if key and not key.partition("/")[0].endswith("kubernetes.io") else []


def container_names(pod: Resource) -> list[str]:
    """Returns the name of every container in a pod's spec, in starting order."""
    return [
        name
        for field in ("initContainers", "containers")
        if isinstance(listed := dig(pod, "spec", field), list)
        for each in listed
        if isinstance(name := dig(each, "name"), str) and name
    ]


def _container(facts: ContainerFacts) -> ContainerRow:
    ended, last = facts.ended, facts.last
    ending = ended or last
    state = "Running" if facts.running else facts.waiting or (ended.reason or "Terminated" if ended else "Waiting")
    return ContainerRow(
        name=word(facts.name),
        init=facts.init,
        ready=facts.ready,
        state=word(state),
        restarts=facts.restarts,
        ending=_ending(ending) if ending is not None else None,
        previous=ended is None and last is not None,
    )


def _ending(ending: Ending) -> EndingRow:
    return EndingRow(
        code=ending.code,
        reason=word(ending.reason),
        message=line(_last_line(ending.message)),
        finished=ending.finished,
    )


def _state(facts: PodFacts) -> tuple[str, Health, str]:
    """State, health and the reason for it."""
    if facts.deleting:
        return "Terminating", Health.PROGRESS, ""
    if facts.phase == "Succeeded":
        return "Completed", Health.OK, ""
    if facts.phase == "Failed":
        return facts.reason or "Failed", Health.PROBLEM, facts.message
    if facts.unscheduled is not None and not facts.node:
        gated = facts.unscheduled.reason == "SchedulingGated"
        health = Health.PROGRESS if gated else Health.PROBLEM
        return facts.unscheduled.reason or "Unschedulable", health, facts.unscheduled.message
    for each in facts.containers:
        if each.waiting not in _STARTING:
            text = each.message if each.last is None else (each.last.message or each.message)
            return each.waiting, Health.PROBLEM, _last_line(text)
        if each.ended is not None and each.ended.code != 0:
            return each.ended.reason or "Error", Health.PROBLEM, _last_line(each.ended.message)
    if facts.ready:
        return facts.phase or "Running", Health.OK, ""
    waiting = next((each.waiting for each in facts.containers if each.waiting), "")
    return waiting or facts.phase or "Unknown", Health.PROGRESS, ""


def _last_line(text: str) -> str:
    """The line that says most: a termination message is the end of a log."""
    lines = [each for each in text.splitlines() if each.strip()]
    return lines[-1] if lines else ""
