"""What KAITO reports as an observation, decided by reason: `WorkspaceSucceeded=False` is also how starting looks.

What KAITO really writes, and when, was recorded (kaito v0.12.0); older releases are told apart by what the object has:
`status.state` came with 0.9. KAITO does not watch pods: a pod's fault may be missing here or outdated, and the provider
runtime's own look at the pods is nearer to the truth.
"""

from __future__ import annotations

from collections.abc import Sequence

from airunway.sdk import (
    Component,
    Endpoint,
    Finding,
    ModelDeployment,
    Observation,
    Observed,
    Replicas,
    Resource,
    dig,
    workloads,
)
from airunway.sdk.conditions import condition, number, records, text, truth
from airunway_kaito import reasons
from airunway_kaito.objects import SERVICE_PORT, serving_pods
from airunway_kaito.schemas import INFERENCE_SET, WORKSPACE

__all__ = ["COMPONENT", "observation"]

COMPONENT = "ProviderResource"

_RECONCILE_ERROR = " (last reconcile error: "
# In the order in which they hinder: nodes first, then what runs on them.
_CHILDREN = ("NodeClaimReady", "NodesReady", "ResourceReady", "InferenceReady")
_GENERAL = ("Starting", "Progressing", "UpstreamFailed")
"""Reasons that say no more than that something is not ready."""


def observation(deployment: ModelDeployment, observed: Observed) -> Observation:
    """Component, replicas and endpoint, from whatever exists. Total: any JSON gives an answer."""
    primary = observed.primary if isinstance(observed.primary, dict) else {}
    if text(primary, "kind") == INFERENCE_SET.kind:
        return _of_a_set(deployment, primary, observed)
    component, warnings = _judge(primary)
    ready = component.ready is True
    desired = deployment.spec.scaling.replicas
    count = min(desired, 1) if ready else 0
    served = ready or dig(primary, "status", "state") == "NotReady" or bool(truth(primary, "InferenceReady"))
    return Observation(
        components=(component,),
        replicas=Replicas(desired=desired, ready=count, available=count),
        # KAITO makes the Service long before anything answers: it is published once something has.
        endpoint=Endpoint(service=deployment.metadata.name, port=SERVICE_PORT) if served else None,
        current=_is_current(primary),
        warnings=warnings,
    )


def _of_a_set(deployment: ModelDeployment, inference_set: Resource, observed: Observed) -> Observation:
    """An InferenceSet is what its Workspaces are.

    Its own words are a count, which lags, and which its webhook keeps KAITO from writing while no node matches.
    """
    desired = max(0, number(inference_set, "spec", "replicas", default=1))
    workspaces = [obj for obj in observed.objects if _is_made_of(inference_set, obj)]
    judged = [(text(workspace, "metadata", "name"), *_judge(workspace)) for workspace in workspaces]
    ready = min(desired, sum(component.ready is True for _, component, _ in judged))
    settled = len(workspaces) == desired and not dig(inference_set, "metadata", "deletionTimestamp")
    warnings = [finding for _, _, findings in judged for finding in findings]
    if text(condition(inference_set, "InferenceSetReady"), "reason") == "inferencesetFailed":
        warnings.append(_finding("ReconcileError", text(condition(inference_set, "InferenceSetReady"), "message")))
    return Observation(
        components=(_rolled_up(judged, ready=ready, desired=desired, settled=settled),),
        replicas=Replicas(desired=desired, ready=ready, available=ready),
        endpoint=workloads.endpoint(deployment, observed, SERVICE_PORT),
        current=settled,
        warnings=tuple(dict.fromkeys(warnings)),
        selector=",".join(f"{key}={value}" for key, value in serving_pods(deployment.metadata.name).items()),
    )


def _is_made_of(inference_set: Resource, obj: Resource) -> bool:
    """Whether the object is a Workspace that this InferenceSet, and no earlier one of its name, has and keeps."""
    owners = {text(owner, "uid") for owner in records(obj, "metadata", "ownerReferences")}
    mine = text(inference_set, "metadata", "uid") in owners
    return text(obj, "kind") == WORKSPACE.kind and mine and not dig(obj, "metadata", "deletionTimestamp")


def _rolled_up(
    judged: Sequence[tuple[str, Component, tuple[Finding, ...]]], *, ready: int, desired: int, settled: bool
) -> Component:
    """One component for all Workspaces: ready, or what hinders the one that says it most precisely."""
    said = f"{ready} of {desired} replicas are ready"
    if settled and ready == desired:
        return _component(True, "Ready", said if desired else "scaled to zero")
    hindered = [(component.reason in _GENERAL, name, component) for name, component, _ in judged if not component.ready]
    if not hindered:
        return _component(False, "Progressing", said, partial=ready > 0)
    _, name, worst = min(hindered, key=lambda entry: entry[:2])
    return _component(False, worst.reason, f"{said}; {name}: {worst.message}", partial=ready > 0)


def _judge(workspace: Resource) -> tuple[Component, tuple[Finding, ...]]:
    if not workspace:
        return _component(False, "Starting", "the Workspace does not exist yet", waits=True), ()
    if dig(workspace, "metadata", "deletionTimestamp") or truth(workspace, "WorkspaceDeleting"):
        return _component(False, "Progressing", "workspace is being deleted"), ()
    succeeded = condition(workspace, "WorkspaceSucceeded")
    state = dig(workspace, "status", "state")
    error = _reconcile_error(workspace)
    if truth(workspace, "WorkspaceSucceeded") or (not succeeded and state == "Ready"):
        trouble = (_finding("ReconcileError", error),) if error and not _transient(error) else ()
        return _component(True, "Ready", _message(succeeded)), trouble
    if text(succeeded, "reason") == "BenchmarkFailed" and truth(workspace, "InferenceReady"):
        # The model serves; only KAITO's own measurement of it failed.
        return _component(True, "Ready", ""), (_finding("BenchmarkFailed", _message(succeeded)),)
    reason, message = _cause(workspace, succeeded, error)
    return _component(False, reason, message), ()


def _cause(workspace: Resource, succeeded: Resource, error: str) -> tuple[str, str]:
    """What keeps the Workspace from being ready: reason of the registry, and KAITO's own words."""
    if error and not _transient(error):
        return reasons.of_error(error), error
    for type_ in _CHILDREN:
        found = condition(workspace, type_)
        if truth(workspace, type_) is not False:
            continue
        if reason := reasons.of_condition(type_, text(found, "reason"), _message(found)):
            return reason, _message(found)
    if text(succeeded, "reason") == "workspaceFailed" and not _transient(_message(succeeded)):
        return reasons.of_failure(_message(succeeded)), _message(succeeded)
    words = _message(condition(workspace, "InferenceReady")) or _message(succeeded)
    words = words or "KAITO has not reported a status yet"
    if dig(workspace, "status", "state") == "NotReady":
        # It was ready; why it is not any more KAITO does not say.
        return "UpstreamFailed", words
    return ("Progressing" if succeeded else "Starting"), words


def _is_current(workspace: Resource) -> bool:
    """Whether the status speaks of the newest generation.

    Before 0.9 (no `status.state`) KAITO left `observedGeneration` as it was when nothing else in a condition changed:
    an old number proves nothing.
    """
    found = condition(workspace, "WorkspaceSucceeded")
    if not found or dig(workspace, "metadata", "deletionTimestamp"):
        return False
    generation, seen = dig(workspace, "metadata", "generation"), found.get("observedGeneration")
    comparable = isinstance(generation, int) and isinstance(seen, int) and dig(workspace, "status", "state")
    return not comparable or bool(seen >= generation)


def _reconcile_error(workspace: Resource) -> str:
    """The error of the last reconcile, which KAITO appends to the message of every condition; empty without one."""
    return _divided(condition(workspace, "WorkspaceSucceeded"))[1]


def _transient(error: str) -> bool:
    """Two writers met: the next try succeeds."""
    return "the object has been modified" in error


def _component(ready: bool, reason: str, message: str, *, waits: bool = False, partial: bool = False) -> Component:
    return Component(name=COMPONENT, ready=ready, reason=reason, message=message, waits=waits, partial=partial)


def _finding(reason: str, message: str) -> Finding:
    return Finding(path="", reason=reason, message=f"KAITO: {message}")


def _message(found: Resource) -> str:
    return _divided(found)[0]


def _divided(found: Resource) -> tuple[str, str]:
    """A condition's message, and the reconcile error that KAITO put in brackets at its end."""
    message = text(found, "message")
    head, said, error = message.rstrip().partition(_RECONCILE_ERROR)
    return (head, error[:-1]) if said and error.endswith(")") else (message, "")
