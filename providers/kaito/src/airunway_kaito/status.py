"""A Workspace's status as an observation, decided by reason: `WorkspaceSucceeded=False` is also how starting looks.

What KAITO really writes, and when, was recorded (kaito v0.12.0); older releases are told apart by what the object has:
`status.state` came with 0.9. KAITO does not watch pods: a pod's fault may be missing here or outdated, and the provider
runtime's own look at the pods is nearer to the truth.
"""

from __future__ import annotations

from airunway.api.modeldeployment import ModelDeployment
from airunway.plugins.contract import Component, Endpoint, Finding, Observation, Observed, Replicas, State
from airunway.resource import Resource, condition_of, dig
from airunway_kaito import reasons

__all__ = ["COMPONENT", "SERVICE_PORT", "observation"]

COMPONENT = "ProviderResource"
SERVICE_PORT = 80

_RECONCILE_ERROR = " (last reconcile error: "
# In the order in which they hinder: nodes first, then what runs on them.
_CHILDREN = ("NodeClaimReady", "NodesReady", "ResourceReady", "InferenceReady")


def observation(deployment: ModelDeployment, observed: Observed) -> Observation:
    """Component, replicas and endpoint, from whatever exists. Total: any JSON gives an answer."""
    workspace = observed.primary if isinstance(observed.primary, dict) else {}
    component, warnings = _judge(workspace)
    ready = component.state is State.READY
    desired = deployment.spec.scaling.replicas
    count = min(desired, 1) if ready else 0
    served = ready or dig(workspace, "status", "state") == "NotReady" or _is_true(workspace, "InferenceReady")
    return Observation(
        components=(component,),
        replicas=Replicas(desired=desired, ready=count, available=count),
        # KAITO makes the Service long before anything answers: it is published once something has.
        endpoint=Endpoint(service=deployment.metadata.name, port=SERVICE_PORT) if served else None,
        current=_is_current(workspace),
        warnings=warnings,
    )


def _judge(workspace: Resource) -> tuple[Component, tuple[Finding, ...]]:
    if not workspace:
        return _component(State.PENDING, "Starting", "the Workspace does not exist yet"), ()
    if dig(workspace, "metadata", "deletionTimestamp") or _is_true(workspace, "WorkspaceDeleting"):
        return _component(State.NOT_AVAILABLE, "Progressing", "workspace is being deleted"), ()
    succeeded = condition_of(workspace, "WorkspaceSucceeded")
    state = dig(workspace, "status", "state")
    error = _reconcile_error(workspace)
    if _status(succeeded) == "True" or (succeeded is None and state == "Ready"):
        trouble = (_finding("ReconcileError", error),) if error and not _transient(error) else ()
        return _component(State.READY, "Ready", _message(succeeded)), trouble
    if _reason(succeeded) == "BenchmarkFailed" and _is_true(workspace, "InferenceReady"):
        # The model serves; only KAITO's own measurement of it failed.
        return _component(State.READY, "Ready", ""), (_finding("BenchmarkFailed", _message(succeeded)),)
    reason, message = _cause(workspace, succeeded, error)
    return _component(_state(reason, was_ready=state == "NotReady"), reason, message), ()


def _cause(workspace: Resource, succeeded: Resource | None, error: str) -> tuple[str, str]:
    """What keeps the Workspace from being ready: reason of the registry, and KAITO's own words."""
    if error and not _transient(error):
        return reasons.of_error(error), error
    for type_ in _CHILDREN:
        condition = condition_of(workspace, type_)
        if _status(condition) != "False":
            continue
        if reason := reasons.of_condition(type_, _reason(condition), _message(condition)):
            return reason, _message(condition)
    if _reason(succeeded) == "workspaceFailed" and not _transient(_message(succeeded)):
        return reasons.of_failure(_message(succeeded)), _message(succeeded)
    inference = condition_of(workspace, "InferenceReady")
    words = _message(inference) or _message(succeeded) or "KAITO has not reported a status yet"
    if dig(workspace, "status", "state") == "NotReady":
        # It was ready; why it is not any more KAITO does not say.
        return "UpstreamFailed", words
    return ("Progressing" if succeeded else "Starting"), words


def _state(reason: str, *, was_ready: bool) -> State:
    if was_ready:
        return State.DEGRADED
    return reasons.STATES.get(reason, State.FAILED)


def _is_current(workspace: Resource) -> bool:
    """Whether the status speaks of the newest generation.

    Before 0.9 (no `status.state`) KAITO left `observedGeneration` as it was when nothing else in a condition changed:
    an old number proves nothing.
    """
    condition = condition_of(workspace, "WorkspaceSucceeded")
    if condition is None or dig(workspace, "metadata", "deletionTimestamp"):
        return False
    generation, seen = dig(workspace, "metadata", "generation"), condition.get("observedGeneration")
    comparable = isinstance(generation, int) and isinstance(seen, int) and dig(workspace, "status", "state")
    return not comparable or bool(seen >= generation)


def _reconcile_error(workspace: Resource) -> str:
    """The error of the last reconcile, which KAITO appends to the message of every condition; empty without one."""
    return _divided(condition_of(workspace, "WorkspaceSucceeded"))[1]


def _transient(error: str) -> bool:
    """Two writers met: the next try succeeds."""
    return "the object has been modified" in error


def _component(state: State, reason: str, message: str) -> Component:
    return Component(name=COMPONENT, state=state, reason=reason, message=message)


def _finding(reason: str, message: str) -> Finding:
    return Finding(path="", reason=reason, message=f"KAITO: {message}")


def _is_true(workspace: Resource, type_: str) -> bool:
    return _status(condition_of(workspace, type_)) == "True"


def _status(condition: Resource | None) -> str:
    return _text((condition or {}).get("status"))


def _reason(condition: Resource | None) -> str:
    return _text((condition or {}).get("reason"))


def _message(condition: Resource | None) -> str:
    return _divided(condition)[0]


def _divided(condition: Resource | None) -> tuple[str, str]:
    """A condition's message, and the reconcile error that KAITO put in brackets at its end."""
    message = _text((condition or {}).get("message"))
    head, found, error = message.rstrip().partition(_RECONCILE_ERROR)
    return (head, error[:-1]) if found and error.endswith(")") else (message, "")


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
