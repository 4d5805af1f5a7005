"""A graph's status as an observation: its condition ``Ready`` by reason, and the replicas of its workers.

`state` alone says little: ``failed`` is an error of a reconcile, a conflict included, and goes back to ``pending`` by
itself; nothing in a graph tells of images, crashes or quota, which the runtime reads off the pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from airunway.sdk import (
    Component,
    Context,
    Endpoint,
    ModelDeployment,
    Observation,
    Observed,
    Pool,
    Replicas,
    Resource,
    dig,
)
from airunway.sdk.conditions import condition, is_observed, number, records, text, truth
from airunway_dynamo import reasons
from airunway_dynamo.objects import GRAPH_NAME
from airunway_dynamo.plan import FRONTEND, PORT, WORKERS, routed_by_pool
from airunway_dynamo.settings import Settings

__all__ = ["COMPONENT", "observation"]

COMPONENT = "ProviderResource"

_COMPONENT = "nvidia.com/dynamo-component"
"""Label of what the operator makes for a component, with its name."""
_SETTLES = timedelta(seconds=5)
"""How long the word of an operator is not taken that does not say of which generation it is (before 1.0)."""


def observation(deployment: ModelDeployment, observed: Observed, context: Context[Settings]) -> Observation:
    """Component, replicas and endpoint, from whatever exists. Total: any JSON gives an answer."""
    graph = observed.primary if isinstance(observed.primary, dict) else {}
    component = _judge(graph)
    made = {_name_of(obj): obj for obj in observed.objects if obj is not observed.primary}
    specs = dict(_specs(graph))
    counts = [_replicas(name, spec, graph, made) for name, spec in specs.items() if _type_of(spec) in WORKERS]
    current, settles = _currency(graph, observed, context.now)
    entry = _replicas(FRONTEND, specs.get(FRONTEND, {}), graph, made)
    pooled = routed_by_pool(context)
    served = component.ready is True or entry.ready > 0
    return Observation(
        components=(component,),
        replicas=Replicas(
            desired=sum(count.desired for count in counts),
            ready=sum(count.ready for count in counts),
            available=sum(count.available for count in counts),
        ),
        # The Service is there long before anything answers.
        endpoint=None if pooled or not served else Endpoint(service=_frontend_service(deployment), port=PORT),
        pool=Pool(name=f"{deployment.metadata.name}-pool", port=PORT) if pooled and served else None,
        current=current,
        look_again=settles,
    )


def _frontend_service(deployment: ModelDeployment) -> str:
    return f"{deployment.metadata.name}-{FRONTEND.lower()}"


# ------------------------------------------------------------------------------------------------------------ the word


def _judge(graph: Resource) -> Component:
    if not graph:
        return _component(False, "Starting", "the DynamoGraphDeployment does not exist yet", waits=True)
    if dig(graph, "metadata", "deletionTimestamp"):
        return _component(False, "Terminating", "the DynamoGraphDeployment is being deleted")
    ready, state = truth(graph, "Ready"), text(graph, "status", "state")
    said = condition(graph, "Ready")
    message = text(said, "message")
    if state != "failed" and (ready or (not said and state == "successful")):
        return _component(True, "Ready", message)
    if not said and state in ("", "initializing"):
        return _component(False, "Starting", "the Dynamo operator has not reported yet")
    reason = text(said, "reason")
    return _component(False, reasons.of(reason, state=state, message=message), message or f"state is {state!r}"[:200])


def _component(ready: bool, reason: str, message: str, *, waits: bool = False) -> Component:
    return Component(name=COMPONENT, ready=ready, reason=reason, message=message, waits=waits)


def _currency(graph: Resource, observed: Observed, now: datetime) -> tuple[bool, float | None]:
    """Whether the status is of the newest spec; and where only time can tell, in how many seconds it will count."""
    if not graph or dig(graph, "metadata", "deletionTimestamp"):
        return False, None
    if not dig(graph, "status"):
        return False, None
    if "observedGeneration" in (dig(graph, "status") or {}):
        return is_observed(graph), None
    moved = _moment(text(condition(graph, "Ready"), "lastTransitionTime"))
    if observed.applied is None or (moved is not None and moved >= observed.applied):
        return True, None
    left = (observed.applied + _SETTLES - now).total_seconds()
    return (True, None) if left <= 0 else (False, left)


def _moment(said: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(said)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


# ------------------------------------------------------------------------------------------------------------- replicas


def _specs(graph: Resource) -> Iterator[tuple[str, Resource]]:
    """The components of a live graph, somebody else's included, in either version."""
    services = dig(graph, "spec", "services")
    if isinstance(services, dict):
        yield from ((name, spec) for name, spec in services.items() if isinstance(spec, dict))
    for spec in records(graph, "spec", "components"):
        yield text(spec, "name"), spec


def _type_of(spec: Resource) -> str:
    return text(spec, "type") or text(spec, "componentType")


def _replicas(name: str, spec: Resource, graph: Resource, made: Mapping[str, Resource]) -> Replicas:
    """How many of one component are wanted, ready and available."""
    wanted = max(0, number(spec, "replicas", default=1))
    told = dig(graph, "status", "services", name) or dig(graph, "status", "components", name)
    if not isinstance(told, dict):
        told = _told_by(made.get(name, {}), wanted)
    if "replicas" not in spec and spec:
        wanted = max(wanted, 0, number(told, "replicas", default=wanted))
    ready = max(0, number(told, "readyReplicas", default=number(told, "availableReplicas")))
    available = max(0, number(told, "availableReplicas", default=ready))
    return Replicas(desired=wanted, ready=min(ready, wanted), available=min(available, wanted))


def _name_of(obj: Resource) -> str:
    """The component that an object of the operator's was made for: DynamoComponentDeployments say it, cliques too."""
    labels = dig(obj, "metadata", "labels")
    found = labels.get(_COMPONENT) if isinstance(labels, dict) and GRAPH_NAME in labels else None
    if isinstance(found, str):
        return found
    return text(obj, "spec", "serviceName") or text(obj, "spec", "name")


def _told_by(obj: Resource, wanted: int) -> Resource:
    """What a graph before 0.8 does not say of its components, out of what was made for them."""
    if text(obj, "kind") == "PodClique":
        status = dig(obj, "status")
        return status if isinstance(status, dict) else {}
    return {"readyReplicas": wanted} if truth(obj, "Available") else {}
