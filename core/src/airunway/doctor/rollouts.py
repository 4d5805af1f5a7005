"""A new version of a process that does not get ready, while the pods of the one before still work. Pure.

Our charts let nothing go before the new pods are ready (``maxUnavailable: 0``), so a Deployment whose upgrade is stuck
has as many available pods as it should: what is wrong is seen in its ReplicaSets.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from airunway.doctor.components import Component, pod_trouble
from airunway.doctor.findings import Found, Severity, check
from airunway.doctor.snapshot import Snapshot
from airunway.first_seen import human_duration
from airunway.kube import DEPLOYMENT, REPLICA_SET
from airunway.resource import Resource, annotations_of, condition_of, controller_owner, dig, key_of, parse_time

__all__ = ["stuck"]

_PATIENCE = timedelta(minutes=2)
"""How long a pod may take to get ready before that is worth a word: its startup probe gives it one minute."""

_REVISION = "deployment.kubernetes.io/revision"


@check(
    "ARW0212",
    Severity.ERROR,
    "A new version does not get ready",
    why="The pods of the version before still do the work, so nothing is lost yet; the upgrade does not go on, and "
    "these pods are not replaced when their node is drained.",
    do="Repair what the pod's words name, or go back: helm rollback RELEASE, or kubectl rollout undo deployment/NAME.",
    needs=("components", "replica_sets", "pods"),
)
def _stuck_rollouts(seen: Snapshot) -> Iterator[Found]:
    for component in seen.components or ():
        if what := stuck(seen, component):
            back = f"kubectl rollout undo deployment/{component.key.name} --namespace {component.key.namespace}"
            if component.release:
                back = f"helm rollback {component.release} --namespace {component.key.namespace}"
            yield Found(
                object=component.name, what=what, do=f"Repair what is said there, or go back to what works: {back}"
            )


def stuck(seen: Snapshot, component: Component) -> str:
    """Why the newest version of a process does not replace the one before; empty where it does, or may yet."""
    if component.available == 0:
        return ""  # then there is nothing that works, and ARW0202 says so
    owned = sorted((each for each in seen.replica_sets or () if _owned_by(component, each)), key=_revision)
    older = [each for each in owned[:-1] if dig(each, "status", "replicas", default=0)]
    if not older:
        return ""
    newest = owned[-1]
    ready = dig(newest, "status", "availableReplicas", default=0)
    said = _said(seen, component, newest)
    if ready >= component.wanted or not said:
        return ""
    names = ", ".join(key_of(each).name for each in older)
    return (
        f"{ready} of {component.wanted} pods of its new ReplicaSet {key_of(newest).name} are available; those of "
        f"{names} still work. {said}"
    )


def _owned_by(component: Component, replica_set: Resource) -> bool:
    owner = controller_owner(replica_set) or {}
    name = key_of(replica_set)
    return (name.namespace, owner.get("kind"), owner.get("name")) == (
        component.key.namespace,
        DEPLOYMENT.kind,
        component.key.name,
    )


def _revision(replica_set: Resource) -> int:
    text = annotations_of(replica_set).get(_REVISION, "")
    return int(text) if text.isdecimal() else 0


def _said(seen: Snapshot, component: Component, newest: Resource) -> str:
    """Why its pods are not ready: in their own words, in those of the ReplicaSet that cannot make them, or, of pods
    that only do not get ready, for how long.
    """
    pods = [pod for pod in seen.pods or () if _is_of(newest, pod)]
    if said := next(filter(None, map(pod_trouble, pods)), ""):
        return said
    failure = condition_of(newest, "ReplicaFailure") or {}
    if failure.get("status") == "True":
        return f"Its pods cannot be made: {failure.get('message')}"
    for pod in pods:
        ready = condition_of(pod, "Ready") or {}
        since = parse_time(ready.get("lastTransitionTime")) or _made(pod)
        if ready.get("status") != "True" and since is not None and seen.now - since > _PATIENCE:
            return f"Pod {key_of(pod).name} is not ready for {human_duration(seen.now - since)}: its log says why."
    return component.trouble if component.overdue else ""


def _is_of(replica_set: Resource, pod: Resource) -> bool:
    owner = controller_owner(pod) or {}
    return (owner.get("kind"), owner.get("name")) == (REPLICA_SET.kind, key_of(replica_set).name)


def _made(obj: Resource) -> datetime | None:
    return parse_time(dig(obj, "metadata", "creationTimestamp"))
