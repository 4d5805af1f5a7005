"""Translates KAITO's status to an observation, by reasons, because `WorkspaceSucceeded` is also False at startup.

KAITO's behaviour was recorded (kaito v0.12.0). Older releases are recognised by the object: `status.state` exists since
0.9. KAITO does not watch pods, so faults of pods may be missing or outdated here; the provider runtime reads the pods
itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airunway.sdk import (
    Component,
    Endpoint,
    Finding,
    ModelDeployment,
    Observation,
    Observed,
    Replicas,
    Resource,
    absent_component,
    dig,
    primary_component,
    workloads,
)
from airunway.sdk.conditions import condition, meaning, number, records, text, truth
from airunway_kaito import reasons
from airunway_kaito.manifest import INFERENCE_SET, WORKSPACE
from airunway_kaito.objects import SERVICE_PORT, serving_pod, serving_pods
from airunway_kaito.plan import PORT

_RECONCILE_ERROR = " (last reconcile error: "
# In order of dependency: nodes first, then the workload on them.
_CHILDREN = ("NodeClaimReady", "NodesReady", "ResourceReady", "InferenceReady")
_GENERAL = ("Starting", "Progressing", "UpstreamFailed")
"""Reasons that only mean "not ready"."""
_CONFLICT = "the object has been modified"
"""An update conflict; the next try succeeds."""

_Judged = tuple[str, Component, tuple[Finding, ...]]
"""A Workspace's name, its component, and warnings."""


def observation(deployment: ModelDeployment, observed: Observed) -> Observation:
    """Component, replicas and endpoint, from the objects that exist; accepts any JSON."""
    primary = observed.primary if isinstance(observed.primary, dict) else {}
    if text(primary, "kind") == INFERENCE_SET.kind:
        return _of_a_set(deployment, primary, observed)
    _, component, warnings = _judge(primary)
    ready = component.ready is True
    desired = deployment.spec.scaling.replicas
    count = min(desired, 1) if ready else 0
    served = ready or dig(primary, "status", "state") == "NotReady" or bool(truth(primary, "InferenceReady"))
    return Observation(
        components=(component,),
        replicas=Replicas(desired=desired, ready=count, available=count),
        # KAITO creates the Service long before anything answers, so it is published only once the model has served.
        endpoint=Endpoint(service=deployment.metadata.name, port=SERVICE_PORT, target_port=PORT) if served else None,
        up_to_date=_is_current(primary),
        warnings=warnings,
        # Releases with a state (0.9 and newer) make StatefulSets of all Workspaces.
        selector=_text_of(serving_pod(deployment.metadata.name)) if dig(primary, "status", "state") else "",
    )


def _of_a_set(deployment: ModelDeployment, inference_set: Resource, observed: Observed) -> Observation:
    """The observation of an InferenceSet, derived from its Workspaces.

    Its own status is only a count, which lags, and KAITO's webhook prevents updates of it while no node matches.
    """
    desired = max(0, number(inference_set, "spec", "replicas", default=1))
    workspaces = [obj for obj in observed.objects if _is_made_of(inference_set, obj)]
    judged = [_judge(workspace) for workspace in workspaces]
    ready = min(desired, sum(component.ready is True for _, component, _ in judged))
    settled = len(workspaces) == desired and not dig(inference_set, "metadata", "deletionTimestamp")
    warnings = [finding for _, _, findings in judged for finding in findings]
    own = condition(inference_set, "InferenceSetReady")
    if text(own, "reason") == "inferencesetFailed":
        warnings.append(_finding("ReconcileError", text(own, "message")))
    return Observation(
        components=(_rolled_up(judged, ready=ready, desired=desired, settled=settled),),
        replicas=Replicas(desired=desired, ready=ready, available=ready),
        endpoint=workloads.endpoint(deployment, observed, SERVICE_PORT, target=PORT),
        up_to_date=settled,
        warnings=tuple(dict.fromkeys(warnings)),
        selector=_text_of(serving_pods(deployment.metadata.name)),
    )


def _text_of(selector: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in selector.items())


def _is_made_of(inference_set: Resource, obj: Resource) -> bool:
    """Whether the object is a live Workspace of this InferenceSet, and not of an earlier one with the same name."""
    owners = {text(owner, "uid") for owner in records(obj, "metadata", "ownerReferences")}
    mine = text(inference_set, "metadata", "uid") in owners
    return text(obj, "kind") == WORKSPACE.kind and mine and not dig(obj, "metadata", "deletionTimestamp")


def _rolled_up(judged: Sequence[_Judged], *, ready: int, desired: int, settled: bool) -> Component:
    """One component for all Workspaces: ready, or the most specific cause among them."""
    said = f"{ready} of {desired} replicas are ready"
    if settled and ready == desired:
        return primary_component("Ready", said if desired else "scaled to zero")
    hindered = [(component.reason in _GENERAL, name, component) for name, component, _ in judged if not component.ready]
    if not hindered:
        return primary_component("Progressing", said, only_degrades=ready > 0)
    _, name, worst = min(hindered, key=lambda entry: entry[:2])
    return primary_component(worst.reason, f"{said}; {name}: {worst.message}", only_degrades=ready > 0)


def _judge(workspace: Resource) -> _Judged:
    name = text(workspace, "metadata", "name")
    if dig(workspace, "metadata", "deletionTimestamp") or truth(workspace, "WorkspaceDeleting"):
        # Not Terminating, as in the recorded sequences.
        return name, primary_component("Progressing", "workspace is being deleted"), ()
    if (absent := absent_component(workspace, WORKSPACE.kind)) is not None:
        return name, absent, ()
    succeeded = condition(workspace, "WorkspaceSucceeded")
    message, error = _divided(succeeded)
    error = "" if _CONFLICT in error else error
    if truth(workspace, "WorkspaceSucceeded") or (not succeeded and dig(workspace, "status", "state") == "Ready"):
        return name, primary_component("Ready", message), (_finding("ReconcileError", error),) if error else ()
    if text(succeeded, "reason") == "BenchmarkFailed" and truth(workspace, "InferenceReady"):
        # The model serves; only KAITO's benchmark failed.
        return name, primary_component("Ready"), (_finding("BenchmarkFailed", message),)
    return name, primary_component(*_cause(workspace, succeeded, message, error)), ()


def _cause(workspace: Resource, succeeded: Resource, message: str, error: str) -> tuple[str, str]:
    """What keeps the Workspace from being ready: reason from the registry, and KAITO's message."""
    if error:
        return meaning(error, reasons.ERRORS, otherwise="Progressing"), error
    for type_ in _CHILDREN:
        found = condition(workspace, type_)
        said, _ = _divided(found)
        if truth(workspace, type_) is False and (reason := reasons.of_condition(type_, text(found, "reason"), said)):
            return reason, said
    if text(succeeded, "reason") == "workspaceFailed" and _CONFLICT not in message:
        return meaning(message, reasons.ERRORS, otherwise="UpstreamFailed"), message
    words = _divided(condition(workspace, "InferenceReady"))[0] or message or "KAITO has not reported a status yet"
    if dig(workspace, "status", "state") == "NotReady":
        # It was ready before; KAITO does not report why it no longer is.
        return "UpstreamFailed", words
    return ("Progressing" if succeeded else "Starting"), words


def _is_current(workspace: Resource) -> bool:
    """Whether the status is about the newest generation.

    Before 0.9 (no `status.state`), KAITO updated `observedGeneration` only if something else in the condition changed,
    so an old number proves nothing.
    """
    found = condition(workspace, "WorkspaceSucceeded")
    if not found or dig(workspace, "metadata", "deletionTimestamp"):
        return False
    generation, seen = dig(workspace, "metadata", "generation"), found.get("observedGeneration")
    comparable = isinstance(generation, int) and isinstance(seen, int) and dig(workspace, "status", "state")
    return not comparable or bool(seen >= generation)


def _finding(reason: str, message: str) -> Finding:
    return Finding(path="", reason=reason, message=f"KAITO: {message}")


def _divided(found: Resource) -> tuple[str, str]:
    """A condition's message, and the error of the last reconcile that KAITO appends in brackets."""
    message = text(found, "message")
    head, said, error = message.rstrip().partition(_RECONCILE_ERROR)
    return (head, error[:-1]) if said and error.endswith(")") else (message, "")
