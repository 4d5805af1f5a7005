"""A RayService's status as an observation.

What KubeRay really writes, and when, was recorded (1.7; facts are those of the recordings). Why a start goes on for
ever stands in applications, the RayCluster, pods and events, never in conditions; the runtime reads the pods itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from airunway.sdk import (
    Component,
    Context,
    Endpoint,
    ModelDeployment,
    Observation,
    Observed,
    Replicas,
    Resource,
    dig,
)
from airunway.sdk.conditions import (
    CREATION,
    ENGINE,
    condition,
    explained,
    is_observed,
    mapping,
    moment,
    number,
    text,
    truth,
)
from airunway_kuberay.manifest import INVALID, REFUSED
from airunway_kuberay.objects import PORT, is_stopped
from airunway_kuberay.serve import group_sizes
from airunway_kuberay.settings import Settings

__all__ = ["observation"]

_SETTLES = timedelta(seconds=5)
"""A change counts as observed up to two seconds before its effect is seen (fact 17); times are whole seconds."""

_STARTS = "the Ray cluster and its application start"


def observation(deployment: ModelDeployment, observed: Observed, context: Context[Settings]) -> Observation:
    """One component, from whatever exists. Total: any JSON gives an answer."""
    service = observed.primary if isinstance(observed.primary, dict) else {}
    serves, name = _serves(service), f"{deployment.metadata.name}-serve-svc"
    wanted = 0 if is_stopped(deployment) else sum(count for _, count in group_sizes(deployment).values())
    workers = number(_cluster(service, observed, "active"), "status", "readyWorkerReplicas") if serves else 0
    ready = max(0, min(wanted, workers))
    return replace(
        next(_words(deployment, service, observed, context)),
        replicas=Replicas(desired=wanted, ready=ready, available=ready),
        endpoint=Endpoint(service=name, port=PORT) if serves or _name(service, "active") else None,
    )


def _say(
    reason: str, message: str, *, current: bool = True, dead: str = "", again: float | None = None, **more: bool
) -> Observation:
    component = Component(name="ProviderResource", **{"ready": False, **more}, reason=reason, message=message)
    return Observation(components=(component,), current=current, dead=dead, look_again=again)


def _words(
    deployment: ModelDeployment, service: Resource, observed: Observed, context: Context[Settings]
) -> Iterator[Observation]:
    """In order of weight: the first is what counts."""
    if not service:
        yield _say("Starting", "the RayService does not exist yet", waits=True)
    if dig(service, "metadata", "deletionTimestamp"):
        yield _say("Terminating", "the RayService is being deleted")
    ready, serves = condition(service, "Ready"), _serves(service)
    reason, message = text(ready, "reason"), text(ready, "message")
    if reason == "InitializingTimeout":
        yield _say("UpstreamFailed", message, dead=message or reason)
    if invalid := _invalid(service, observed):
        yield _say("InvalidSpec", invalid, partial=serves)
    if refused := _told(service, observed, REFUSED):
        # A server that answers has refused it; else it is only out of reach.
        out_of_reach = any(word in refused for word in ("connection", "timeout", "deadline", "EOF", "fail: 5"))
        kind = "DependenciesUnreachable" if out_of_reach else "InvalidSpec"
        yield _say(kind, refused, partial=serves)
    if not (dig(service, "status") and is_observed(service)):
        yield _say("Progressing", _STARTS if not serves else "KubeRay has not looked at the change yet", current=False)
    if is_stopped(deployment):
        # "Suspended" stays listed after a resume, and is said before the pods have gone (fact 19).
        done = truth(service, "Suspended") is True
        yield _say("Ready" if done else "Progressing", "scaled to zero", ready=done)
    active, pending = _name(service, "active"), _name(service, "pending")
    side = "pending" if pending else "active"
    cluster = _cluster(service, observed, side)
    yield from _failures(service, cluster, side, serves=serves)
    waiting = _waiting(service, side)
    if active and pending:
        text_ = f"Ray cluster {pending} starts, {active} serves until it does"
        yield _say("Progressing", f"{text_}; {waiting}" if waiting else text_)
    if serves and truth(cluster, "HeadPodReady") is False:
        text_ = f"the head of Ray cluster {active} is not ready: what serves goes on, and nothing else does"
        yield _say("UpstreamFailed", text_, partial=True)
    if serves and not waiting:
        since, applied = moment(ready, "lastTransitionTime"), observed.applied
        if since and applied and since <= applied <= context.now < applied + _SETTLES:
            left = (applied + _SETTLES - context.now).total_seconds()
            yield _say("Progressing", "KubeRay looks at the change", again=left)
        yield _say("Ready", message, ready=True)
    if reason == "ZeroServeEndpoints":
        yield _say("UpstreamFailed", message)
    # Steps of a start are no news; once all pods are ready, the application is all there is to wait for.
    yield _say("Progressing", waiting if waiting and dig(cluster, "status", "state") == "ready" else _STARTS)


def _serves(service: Resource) -> bool:
    """Whether KubeRay says so. An object that became invalid serves on with ``Ready`` False (fact 10)."""
    return truth(service, "Ready") is True or text(service, "status", "serviceStatus") == "Running"


def _name(service: Resource, side: str) -> str:
    return text(service, "status", f"{side}ServiceStatus", "rayClusterName")


def _cluster(service: Resource, observed: Observed, side: str) -> Resource:
    """The RayCluster itself: what the RayService copies of its status is mostly old (fact 8)."""
    name = _name(service, side)
    for obj in observed.objects:
        if name and (text(obj, "kind"), text(obj, "metadata", "name")) == ("RayCluster", name):
            return obj
    return {"status": dig(service, "status", f"{side}ServiceStatus", "rayClusterStatus")}


def _applications(service: Resource, side: str) -> dict[str, Resource]:
    return mapping(service, "status", f"{side}ServiceStatus", "applicationStatuses")


def _invalid(service: Resource, observed: Observed) -> str:
    """Why KubeRay does not take the object; what it said of an older one stays until it is ready (facts 10, 11)."""
    ready = condition(service, "Ready")
    behind = number(service, "status", "observedGeneration") < number(service, "metadata", "generation")
    if text(ready, "reason") == "ValidationFailed":
        return text(ready, "message") if behind or not (_name(service, "active") or _name(service, "pending")) else ""
    return _told(service, observed, *INVALID) if behind else ""


def _told(service: Resource, observed: Observed, *reasons: str) -> str:
    """The newest of such events, as long as nothing that was written since outdates it."""
    dates = [observed.applied, moment(service, "status", "lastUpdateTime")]
    for event in reversed(observed.events):
        if event.reason in reasons and event.last and all(date is None or event.last >= date for date in dates):
            return event.note
    return ""


def _failures(service: Resource, cluster: Resource, side: str, *, serves: bool) -> Iterator[Observation]:
    for state in ("DEPLOY_FAILED", "UNHEALTHY"):
        for name, app in _applications(service, side).items():
            if text(app, "status") == state:
                said = [
                    text(app, "message"),
                    *(text(part, "message") for part in mapping(app, "serveDeploymentStatuses").values()),
                ]
                reason, line = explained("\n".join(filter(None, said)), ENGINE, otherwise="UpstreamFailed")
                message = f"application {name} is {state}" + (f": {line}" if line else "")
                yield _say(reason, message, partial=serves, firsthand=True)
    if truth(cluster, "ReplicaFailure"):
        # The name of the pod changes with every try.
        message = text(condition(cluster, "ReplicaFailure"), "message")
        message = message.partition(" is forbidden: ")[2] or message
        reason, _ = explained(message, CREATION, otherwise="InvalidSpec")
        yield _say(reason, f"KubeRay cannot make pods: {message}", partial=serves)


def _waiting(service: Resource, side: str) -> str:
    """The applications that do not run yet, with their states and those of their deployments; empty if all run."""
    found = []
    for name, app in _applications(service, side).items():
        if (state := text(app, "status")) != "RUNNING":
            parts = ", ".join(
                f"{key} {text(part, 'status')}" for key, part in mapping(app, "serveDeploymentStatuses").items()
            )
            found.append(f"application {name} is {state}" + (f" ({parts})" if parts else ""))
    return "; ".join(found)
