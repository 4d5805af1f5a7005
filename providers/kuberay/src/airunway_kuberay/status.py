"""Translates a RayService's status to an observation.

KubeRay's behaviour was recorded (1.7); fact numbers refer to the recordings. The cause of a hanging start appears in
applications, the RayCluster, pods and events, but not in conditions. The runtime reads the pods itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from airunway.sdk import (
    SERVING_PORT,
    Context,
    Endpoint,
    ModelDeployment,
    Observation,
    Observed,
    Replicas,
    Resource,
    absent_component,
    dig,
    overridden,
    primary_component,
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
from airunway_kuberay.manifest import CLUSTER_FAULTS, INVALID, REFUSED
from airunway_kuberay.objects import is_stopped
from airunway_kuberay.scaling import TAKES, WHOLE, group_of, serving_before
from airunway_kuberay.serve import group_sizes
from airunway_kuberay.settings import Settings

_SETTLES = timedelta(seconds=5)
"""KubeRay reports a change as observed up to two seconds before its effect is visible (fact 17); times are whole
seconds."""

# One message for each stage that a user can check, not for each step of a start.
_STARTS = "the Ray cluster starts"
_LOADS = "all pods are ready, and the application is being deployed"
_RELOADS = "the application is being deployed anew, and no model is served until the new one has loaded"
_CHANGES = "KubeRay takes up the change"
_FAILED = ("DEPLOY_FAILED", "UNHEALTHY")
"""Application statuses from which Ray does not recover by itself."""


def observation(deployment: ModelDeployment, observed: Observed, context: Context[Settings]) -> Observation:
    """One component, from the objects that exist; accepts any JSON."""
    service = observed.primary if isinstance(observed.primary, dict) else {}
    serves, name = _serves(service), f"{deployment.metadata.name}-serve-svc"
    cluster = _cluster(service, observed, "active")
    wanted = _wanted(deployment, cluster)
    kept = serving_before(service, cluster, applied=observed.applied)
    ready = max(0, min(_workers(cluster), _serving(service, wanted, kept))) if serves else 0
    return replace(
        next(_words(deployment, service, observed, context)),
        replicas=Replicas(desired=sum(wanted.values()), ready=ready, available=ready),
        endpoint=Endpoint(service=name, port=SERVING_PORT) if serves or _name(service, "active") else None,
    )


def _wanted(deployment: ModelDeployment, cluster: Resource) -> dict[str, int]:
    """Replicas by worker group; with autoscaling, the number that Ray's autoscaler wants now."""
    if is_stopped(deployment):
        return {}
    wanted = {group: count for group, (_, count) in group_sizes(deployment).items()}
    scaling = deployment.spec.scaling.autoscaling
    most = scaling.max_replicas if scaling is not None else overridden(deployment, "autoscaling", "maxReplicas")
    if isinstance(most, int) and not isinstance(most, bool):
        asked = number(cluster, "status", "desiredWorkerReplicas")
        wanted = {group: max(least, min(asked, most)) for group, least in wanted.items()}
    return wanted


def _serving(service: Resource, wanted: Mapping[str, int], kept: Mapping[str, int]) -> int:
    """The maximum number of replicas that can serve, from the application status in the active cluster.

    A worker pod is ready as soon as Ray's proxy answers, even while its replica loads. During an in-place update Ray
    stops a fifth of a deployment's replicas at a time, and at least one, so an only replica is stopped first. While a
    deployment scales up, at least one replica is missing. `kept` are replicas that the newest change left alone
    (`serving_before`).
    """
    found = dict(wanted)
    for app in _applications(service, "active").values():
        parts = mapping(app, "serveDeploymentStatuses")
        if text(app, "status") == "DEPLOY_FAILED" and not parts:
            return 0
        # Without deployment statuses the application is being rebuilt, and all replicas are about to be replaced.
        building = text(app, "status") == "DEPLOYING" and not parts
        replaced = set(found) if building else set()
        for name, part in parts.items():
            group = group_of(name)
            if group in kept and group in found and text(part, "status") == "UPDATING":
                found[group] = min(found[group], kept[group])
            elif group in found and text(part, "status") not in WHOLE:
                replaced.add(group)
            elif group in found and text(part, "status") == "UPSCALING":
                found[group] = max(1, found[group] - 1)
        for group in replaced:
            found[group] = max(0, found[group] - max(1, found[group] // 5))
    return 0 if any(not count for group, count in found.items() if wanted[group]) else sum(found.values())


def _say(
    reason: str,
    message: str,
    *,
    up_to_date: bool = True,
    unrecoverable: str = "",
    again: float | None = None,
    **more: bool,
) -> Observation:
    component = primary_component(reason, message, **more)
    return Observation(components=(component,), up_to_date=up_to_date, unrecoverable=unrecoverable, requeue_after=again)


def _words(
    deployment: ModelDeployment, service: Resource, observed: Observed, context: Context[Settings]
) -> Iterator[Observation]:
    """Observations by priority: only the first is used."""
    if (component := absent_component(service, "RayService")) is not None:
        yield Observation(components=(component,))
    ready, serves = condition(service, "Ready"), _serves(service)
    reason, message = text(ready, "reason"), text(ready, "message")
    if reason == "InitializingTimeout":
        text_ = f"{message}; KubeRay has given it up: any change of the deployment makes it anew"
        yield _say("UpstreamFailed", text_, unrecoverable=message or reason)
    if invalid := _invalid(service, observed):
        yield _say("InvalidSpec", invalid, only_degrades=serves)
    left = max(0.0, (observed.applied + TAKES - context.now).total_seconds()) if observed.applied else 0.0
    # Kubernetes may drop repeated events, so an older event can also apply to the newest change.
    older = not left and (serves or not _applications(service, "pending"))
    if refused := _refusal(service, observed, REFUSED, since=None if older else observed.applied):
        # An answer means that the server refused it; a connection error means that it is unreachable.
        why = refused.rpartition(" err: ")[2]
        out_of_reach = any(word in why for word in ("connection", "timeout", "deadline", "EOF", "fail: 5"))
        kind = "DependenciesUnreachable" if out_of_reach else "InvalidSpec"
        yield _say(kind, f"Ray Serve has not taken the configuration: {why}", only_degrades=serves)
    if not (dig(service, "status") and is_observed(service)):
        yield _say("Progressing", _CHANGES if serves else _STARTS, up_to_date=False, again=left or None)
    if is_stopped(deployment):
        # The condition Suspended stays after a resume, and is True before the pods are gone (fact 19).
        done = truth(service, "Suspended") is True
        yield _say("Ready" if done else "Progressing", "scaled to zero" if done else "KubeRay stops it")
    active, pending = _name(service, "active"), _name(service, "pending")
    side = "pending" if pending else "active"
    cluster = _cluster(service, observed, side)
    settles = _settles(service, observed, context)
    if settles and any(text(app, "status") in _FAILED for app in _applications(service, side).values()):
        # After a fix, the status shows the old application with the new generation at first (fact 17).
        yield _say("Progressing", _CHANGES, again=settles)
    yield from _failures(service, cluster, side, serves=serves)
    yield from _cluster_faults(cluster, observed, _name(service, side), serves=serves)
    waits, details = _waiting(service, side)
    if active and pending:
        text_ = f"Ray cluster {pending} starts, {active} serves until it does"
        yield _say("Progressing", f"{text_}; {details}" if details else text_, only_degrades=serves)
    if active and truth(cluster, "HeadPodReady") is False:
        yield _say("PodsNotReady", f"the head of Ray cluster {active} is not ready", only_degrades=serves)
    if serves and not waits:
        since, applied = moment(ready, "lastTransitionTime"), observed.applied
        if since and applied and settles and since <= applied:
            yield _say("Progressing", _CHANGES, again=settles)
        yield _say("Ready", message)
    if reason == "ZeroServeEndpoints":
        yield _say("UpstreamFailed", message)
    yield _say("Progressing", details or _progress(deployment, service, cluster, observed))


def _progress(deployment: ModelDeployment, service: Resource, cluster: Resource, observed: Observed) -> str:
    """What is waited for if neither an application nor its cluster reports a fault."""
    wanted, workers, serves = _wanted(deployment, cluster), _workers(cluster), _serves(service)
    kept = serving_before(service, cluster, applied=observed.applied)
    desired, before = sum(wanted.values()), sum(kept.values())
    serving = min(workers, _serving(service, wanted, kept))
    if serves and not serving:
        return _RELOADS
    if serves and kept and before != desired:
        return f"the number of replicas changes from {before} to {desired}, and {serving} of them are serving"
    if not (serves or text(cluster, "status", "state") == "ready"):
        return _STARTS
    # The cluster's state stays "ready" once its pods were.
    return _LOADS if workers >= desired else f"{workers} of {desired} workers of the Ray cluster are ready"


def _settles(service: Resource, observed: Observed, context: Context[Settings]) -> float:
    """Seconds during which the application status may still predate the newest change; then 0."""
    applied = observed.applied
    if applied is None or applied == moment(service, "metadata", "creationTimestamp") or applied > context.now:
        return 0.0
    return max(0.0, (applied + _SETTLES - context.now).total_seconds())


def _cluster_faults(cluster: Resource, observed: Observed, name: str, *, serves: bool) -> Iterator[Observation]:
    """Faults that appear only in events about the RayCluster: why it creates no pods, or no workers."""
    if not name or truth(cluster, "RayClusterProvisioned"):
        return
    headless = not text(cluster, "status", "head", "podName")
    for event in reversed(observed.events):
        meaning = CLUSTER_FAULTS.get(event.reason) if event.kind == "RayCluster" and event.name == name else None
        if meaning and (headless or event.reason == "FailedToCreateWorkerPod"):
            note = event.note.removeprefix(f"Failed to reconcile RayCluster {event.namespace}/{name}. ")
            refused = note.partition(" is forbidden: ")[2]
            reason, _ = explained(note, CREATION, otherwise=meaning)
            said = f"KubeRay cannot make pods: {refused}" if refused else f"Ray cluster {name}: {note}"
            yield _say(reason, said, only_degrades=serves)
            return


def _serves(service: Resource) -> bool:
    """Whether KubeRay reports serving. An object that became invalid keeps serving with ``Ready`` False (fact 10)."""
    return truth(service, "Ready") is True or text(service, "status", "serviceStatus") == "Running"


def _name(service: Resource, side: str) -> str:
    return text(service, "status", f"{side}ServiceStatus", "rayClusterName")


def _cluster(service: Resource, observed: Observed, side: str) -> Resource:
    """The RayCluster itself, because the RayService's copy of its status is mostly outdated (fact 8)."""
    name = _name(service, side)
    found = observed.find("RayCluster", name) if name else None
    return found or {"status": dig(service, "status", f"{side}ServiceStatus", "rayClusterStatus")}


def _workers(cluster: Resource) -> int:
    """The number of ready workers.

    KubeRay 1.1 has no conditions and does not count ready workers; for it, running workers are counted.
    """
    run = 0 if dig(cluster, "status", "conditions") else number(cluster, "status", "availableWorkerReplicas")
    return number(cluster, "status", "readyWorkerReplicas", default=run)


def _applications(service: Resource, side: str) -> dict[str, Resource]:
    return mapping(service, "status", f"{side}ServiceStatus", "applicationStatuses")


def _invalid(service: Resource, observed: Observed) -> str:
    """Why KubeRay does not accept the object; empty if it does.

    An old message stays in the status until the object is ready (facts 10, 11).
    """
    ready = condition(service, "Ready")
    behind = number(service, "status", "observedGeneration") < number(service, "metadata", "generation")
    if text(ready, "reason") == "ValidationFailed":
        return text(ready, "message") if behind or not (_name(service, "active") or _name(service, "pending")) else ""
    return _refusal(service, observed, *INVALID, since=observed.applied) if behind else ""


def _refusal(service: Resource, observed: Observed, *reasons: str, since: datetime | None) -> str:
    """The note of the newest such event that is not older than `since` and the last status update; else empty."""
    dates = [since, moment(service, "status", "lastUpdateTime")]
    for event in reversed(observed.events):
        if event.reason in reasons and event.last and all(date is None or event.last >= date for date in dates):
            return event.note.removeprefix(f"{event.namespace}/{event.name}: ")
    return ""


def _failures(service: Resource, cluster: Resource, side: str, *, serves: bool) -> Iterator[Observation]:
    for state in _FAILED:
        for name, app in _applications(service, side).items():
            if text(app, "status") == state:
                reason, line = explained(_said(app), ENGINE, otherwise="UpstreamFailed")
                message = f"application {name} is {state}" + (f": {line}" if line else "")
                yield _say(reason, message, only_degrades=serves, authoritative=True)
    for name, app in _applications(service, side).items():
        # Ray loads the model three times before it reports a failure; the first failed try already shows the cause.
        reason, line = explained(_said(app, whole=False), ENGINE) if text(app, "status") == "DEPLOYING" else ("", "")
        if reason:
            message = f"application {name} is DEPLOYING, and Ray tries again: {line}"
            yield _say(reason, message, only_degrades=serves, authoritative=True)
    if truth(cluster, "ReplicaFailure"):
        # Removes the pod's name, which changes with every try.
        message = text(condition(cluster, "ReplicaFailure"), "message")
        message = message.partition(" is forbidden: ")[2] or message
        reason, _ = explained(message, CREATION, otherwise="InvalidSpec")
        yield _say(reason, f"KubeRay cannot make pods: {message}", only_degrades=serves)


def _waiting(service: Resource, side: str) -> tuple[bool, str]:
    """Whether applications do not run yet, and messages about those with more to report than DEPLOYING."""
    waiting = {name: app for name, app in _applications(service, side).items() if text(app, "status") != "RUNNING"}
    found = []
    for name, app in waiting.items():
        _, said = explained(_said(app, whole=False), ENGINE)
        if said or text(app, "status") != "DEPLOYING":
            found.append(f"application {name} is {text(app, 'status')}" + (f": {said}" if said else ""))
    return bool(waiting), "; ".join(found)


def _said(app: Resource, *, whole: bool = True) -> str:
    """The messages of an application and its deployments, possibly with tracebacks.

    With `whole` False, healthy deployments are left out.
    """
    every = mapping(app, "serveDeploymentStatuses").values()
    parts = [part for part in every if whole or text(part, "status") != "HEALTHY"]
    return "\n".join(filter(None, [text(app, "message"), *(text(part, "message") for part in parts)]))
