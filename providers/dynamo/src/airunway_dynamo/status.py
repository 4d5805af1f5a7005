"""Translates a graph's condition ``Ready`` and the replicas of its workers to an observation.

`state` alone is not reliable: ``failed`` is any reconcile error, even a conflict, and returns to ``pending`` by itself.
A graph does not report problems with images, crashes or quota; the runtime reads these from the pods.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from airunway.sdk import (
    SERVING_PORT,
    Component,
    Context,
    Endpoint,
    ModelDeployment,
    Observation,
    Observed,
    Pool,
    Replicas,
    Resource,
    absent_component,
    dig,
    primary_component,
)
from airunway.sdk.conditions import (
    CREATION,
    NETWORK,
    condition,
    is_observed,
    mapping,
    meaning,
    meanings,
    moment,
    number,
    records,
    text,
    truth,
)
from airunway_dynamo.graph import FRONTEND, Part, parts_of, routed_by_pool
from airunway_dynamo.manifest import WORKERS
from airunway_dynamo.runtimes import RUNTIMES
from airunway_dynamo.settings import Settings

_COMPONENT = "nvidia.com/dynamo-component"
"""Label with the component's name on objects that the operator creates for a component."""
_SETTLES = timedelta(seconds=5)
"""How long the status of an operator without observed generation (before 1.0) is not trusted after a change."""
_OURS = timedelta(minutes=1)
"""How long an unobserved generation may be our change, if others also write to the graph."""

_REASONS: Mapping[str, str] = {
    "insufficient_capacity": "InsufficientCapacity",
    "rolling_update_failed": "UpstreamFailed",
    "no_multinode_orchestrator_available": "IncompatibleConfiguration",
    "unsupported_workload_provider": "IncompatibleConfiguration",
    "selected_workload_provider_unavailable": "IncompatibleConfiguration",
}
"""All other reasons except errors only mean that something is not ready; the pods show why."""

_WAITS = ("some_resources_are_not_ready", "pods_not_ready", "mixed_not_ready_reasons", "insufficient_capacity")

_ERRORS = meanings(
    (r"the object has been modified|already exists", "Progressing"),
    (r"exceeds the \d{1,4}-character", "NameTooLong"),
    (r"is immutable|must have at least one|required value|invalid value|is required", "InvalidSpec"),
)


def observation(deployment: ModelDeployment, observed: Observed, context: Context[Settings]) -> Observation:
    """Component, replicas and endpoint, from the objects that exist; accepts any JSON."""
    graph = observed.primary if isinstance(observed.primary, dict) else {}
    # The components are those of the live graph, whatever the next one will have.
    context = replace(context, live=graph, spec_changed=False) if graph else context
    made = {_made_for(obj): obj for obj in observed.objects if obj is not observed.primary}
    # Components in the format of either API version, including those added by others.
    specs = mapping(graph, "spec", "services") | {text(s, "name"): s for s in records(graph, "spec", "components")}
    counts = {name: _replicas(name, spec, graph, made.get(name, {})) for name, spec in specs.items()}
    ours = {part.name: part for part in parts_of(deployment, context)} if context.engine in RUNTIMES else {}
    working = [
        counts[name] for name, spec in specs.items() if (text(spec, "type") or text(spec, "componentType")) in WORKERS
    ]
    scaled = any(part.replicas is None for part in ours.values())
    shared = scaled or bool(counts.keys() - ours.keys())
    if scaled:
        # The adapters choose the number of workers, so a worker that is still starting does not degrade the deployment.
        working = [replace(count, desired=max(count.ready, min(1, count.desired))) for count in working]
    component = _judge(graph)
    if shared and _is_others_business(graph, counts, ours) and all(count.ready >= count.desired for count in working):
        component = replace(component, ready=True, reason="Ready", pending=False)
    up_to_date, settles = _currency(graph, observed, context.now, shared=shared)
    name, pooled = deployment.metadata.name, routed_by_pool(context)
    # The Service exists long before anything answers.
    served = component.ready is True or counts.get(FRONTEND, Replicas()).ready > 0
    return Observation(
        components=(component,),
        replicas=sum(working, Replicas()),
        endpoint=Endpoint(service=f"{name}-{FRONTEND.lower()}", port=SERVING_PORT) if served and not pooled else None,
        pool=Pool(name=f"{name}-pool", port=SERVING_PORT) if served and pooled else None,
        up_to_date=up_to_date,
        requeue_after=settles,
    )


def _judge(graph: Resource) -> Component:
    if (absent := absent_component(graph, "DynamoGraphDeployment")) is not None:
        return absent
    said, state = condition(graph, "Ready"), text(graph, "status", "state")
    message = text(said, "message")
    if state != "failed" and (truth(graph, "Ready") or (not said and state == "successful")):
        return primary_component("Ready", message)
    if not said and state in ("", "initializing"):
        return primary_component("Starting", "the Dynamo operator has not reported yet")
    reason = _REASONS.get(text(said, "reason"), "Progressing")
    if reason == "Progressing" and state == "failed":
        # The operator retries, so an unknown error gets a reason that is reported only if it lasts.
        reason = meaning(message, _ERRORS, NETWORK, CREATION, otherwise="UpstreamError")
    return primary_component(reason, message or f"the graph's state is {state[:64]!r}")


def _is_others_business(graph: Resource, counts: Mapping[str, Replicas], ours: Mapping[str, Part]) -> bool:
    """Whether the graph waits only for components added by others: an adapter's workers, a planner.

    It does not check whether the number of our own workers is right.
    """
    waits = text(condition(graph, "Ready"), "reason") in _WAITS and text(graph, "status", "state") == "pending"
    fixed = [counts.get(name, Replicas()) for name, part in ours.items() if part.replicas is not None]
    return bool(ours) and waits and all(0 < count.desired <= count.ready for count in fixed)


def _currency(graph: Resource, observed: Observed, now: datetime, *, shared: bool) -> tuple[bool, float | None]:
    """Whether the status is about the newest spec; if only time can tell, also the seconds until it counts as such.

    In a graph that is `shared` with an adapter or a planner, a newer generation counts as their change if our last
    change is long ago.
    """
    status, seen = dig(graph, "status"), is_observed(graph)
    if not isinstance(status, dict) or not status or dig(graph, "metadata", "deletionTimestamp"):
        return False, None
    theirs = shared and not seen
    if observed.applied is None or ("observedGeneration" in status and not theirs):
        return seen, None
    moved = moment(condition(graph, "Ready"), "lastTransitionTime")
    if not theirs and moved is not None and moved >= observed.applied:
        return True, None
    left = (observed.applied + (_OURS if theirs else _SETTLES) - now).total_seconds()
    return (True, None) if left <= 0 else (False, left)


def _replicas(name: str, spec: Resource, graph: Resource, made: Resource) -> Replicas:
    """Wanted, ready and available replicas of one component. Before 0.8, only the objects `made` for it report them."""
    wanted = max(0, number(spec, "replicas", default=1))
    counts = dig(graph, "status", "services", name) or dig(graph, "status", "components", name)
    if not isinstance(counts, dict) and text(made, "kind") == "PodClique":
        counts = dig(made, "status")
    elif not isinstance(counts, dict):
        counts = {"readyReplicas": wanted} if truth(made, "Available") else {}
    if "replicas" not in spec:  # an adapter scales it
        wanted = max(0, number(counts, "replicas", default=wanted))
    ready = max(0, number(counts, "readyReplicas", default=number(counts, "availableReplicas")))
    available = max(0, number(counts, "availableReplicas", default=ready))
    return Replicas(desired=wanted, ready=min(ready, wanted), available=min(available, wanted))


def _made_for(obj: Resource) -> str:
    """The component for which the operator created an object, from its label or its spec."""
    return text(obj, "metadata", "labels", _COMPONENT) or text(obj, "spec", "serviceName") or text(obj, "spec", "name")
