"""What a provider makes of statuses: of none, of good ones, of older ones, and of any shape that JSON can have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from airunway.api.modeldeployment import parse_deployment
from airunway.plugins.contract import Endpoint, Observation, Observed
from airunway.plugins.errors import PluginFault
from airunway.plugins.host import assumed_context
from airunway.plugins.rules import HOOKS
from airunway.resource import Resource, copy_of, dig
from airunway.status.reasons import Category, category_of
from airunway_testing.conformance import rules
from airunway_testing.conformance.cases import NAME, NOW, Base
from airunway_testing.conformance.subject import Fault, Subject

_SHAPES: tuple[object, ...] = (None, "none", 7, True, [], {}, [None], [{}], {"x": None})
_MOST = 600
"""Statuses of one deployment: an upstream's schema can have thousands of fields."""
_TIME = "2026-01-01T00:00:00Z"
_STATES = ("state", "phase", "status")
_CONDITIONS = ("Ready", "Available", "Succeeded")
_FINE = (Category.PROGRESS, Category.UNKNOWN, Category.PASSING, Category.CAPACITY)


def without_a_status(subject: Subject) -> Iterator[Fault]:
    """Nothing is there; all was just made; and a status that nobody expects. None may be taken for serving."""
    for base in subject.asked:
        objects = subject.written[base.name]
        if not objects:
            continue
        strange = {**objects[0], "status": {"conditions": "none", "replicas": {"ready": "all"}}}
        just_made = Observed(primary=objects[0], objects=tuple(objects))
        for what, seen in (
            ("without any object", Observed(primary=None)),
            ("of objects that were just made", just_made),
            ("of a primary object with a strange status", Observed(primary=strange, objects=(strange, *objects[1:]))),
        ):
            found, fault = observation_of(subject, base, seen)
            if found is None:
                yield Fault(rule=rules.STATUS_TOTAL, text=f"{base.name}: translate_status {what}: {fault}")
                continue
            if all(component.ready for component in found.components):
                yield Fault(
                    rule=rules.STATUS_READY,
                    text=f"{base.name}: translate_status {what} says that all is ready: say so only where the upstream "
                    "does",
                )
            elif seen is just_made:
                yield from _of_the_beginning(base, found)


def _of_the_beginning(base: Base, found: Observation) -> Iterator[Fault]:
    for component in found.components:
        if not component.ready and not component.only_degrades and category_of(component.reason) not in _FINE:
            yield Fault(
                rule=rules.STATUS_STARTING,
                text=f"{base.name}: {component.name} of objects that were just made has the reason {component.reason}, "
                "a fault of the workload: give it one that says that it starts (Starting, Progressing)",
            )


def total(subject: Subject) -> Iterator[Fault]:
    """Every place of a good status with a value of another type; the first faults are enough."""
    asked: set[str] = set()
    for base in subject.asked:
        objects = subject.written[base.name]
        if not objects or objects[0]["kind"] in asked:
            continue
        asked.add(objects[0]["kind"])
        good = next(iter(good_statuses(subject, base)), None)
        if good is None:
            continue
        primary = good[0]
        found: dict[str, Fault] = {}
        for place, status in islice(_misshapen(primary["status"], ()), _MOST):
            changed = {**primary, "status": status}
            observation, fault = observation_of(subject, base, Observed(primary=changed, objects=(changed, *good[1:])))
            if observation is None:
                text = f"{base.name}: translate_status of a status with {place}: {fault}"
                found.setdefault(fault, Fault(rule=rules.STATUS_TOTAL, text=text))
        yield from found.values()


def _misshapen(node: object, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Copies of a status with one place changed, and what stands there now."""
    for shape in _SHAPES:
        if type(shape) is not type(node) or shape != node:
            yield f"{shape!r} at status{''.join(path)}", copy_of({"": shape})[""]
    if isinstance(node, dict):
        for key, value in node.items():
            yield from ((place, {**node, key: each}) for place, each in _misshapen(value, (*path, f".{key}")))
            yield f"no {key} at status{''.join(path)}", {name: each for name, each in node.items() if name != key}
    elif isinstance(node, list) and node:
        yield from ((place, [each, *node[1:]]) for place, each in _misshapen(node[0], (*path, "[0]")))


def current(subject: Subject) -> Iterator[Fault]:
    """A good status of an older generation is not that of the newest spec."""
    for base in subject.asked:
        for good in good_statuses(subject, base):
            found, _ = observation_of(subject, base, Observed(primary=good[0], objects=tuple(good)))
            if found is None or not found.up_to_date:
                continue
            old = [_of_an_older_spec(obj) for obj in good]
            if old == list(good):
                break
            behind, _ = observation_of(subject, base, Observed(primary=old[0], objects=tuple(old)))
            if behind is not None and behind.up_to_date:
                yield Fault(
                    rule=rules.STATUS_CURRENT,
                    text=f"{base.name}: up_to_date is True where observedGeneration is older than the object's "
                    "generation: compare them (conditions.is_observed)",
                )
            break


def _of_an_older_spec(obj: Resource) -> Resource:
    def older(node: object) -> Any:
        if isinstance(node, dict):
            return {key: 1 if key == "observedGeneration" else older(value) for key, value in node.items()}
        return [older(each) for each in node] if isinstance(node, list) else node

    return {**obj, "status": older(obj.get("status"))}


def endpoints(subject: Subject) -> Iterator[Fault]:
    """Where requests are to be sent, as a provider says it of good statuses."""
    for base in subject.asked:
        objects = subject.written[base.name]
        services = {obj["metadata"]["name"]: obj for obj in objects if obj["kind"] == "Service"}
        made = set(_made_by_the_upstream(subject, objects))
        for endpoint in dict.fromkeys(endpoints_of(subject, base)):
            service = services.get(endpoint.service)
            by_the_upstream = not services and NAME in endpoint.service
            if service is None and endpoint.service not in made and not by_the_upstream:
                yield Fault(
                    rule=rules.ENDPOINT,
                    text=f"{base.name}: the endpoint is the Service {endpoint.service}, which the plan does not write: "
                    "write it, or name it in the kind's namesakes if the upstream makes it "
                    "(Service/{name}-predictor)",
                )
            elif service is not None and endpoint.port not in _open(service):
                yield Fault(
                    rule=rules.ENDPOINT,
                    text=f"{base.name}: the endpoint is port {endpoint.port} of the Service {endpoint.service}, which "
                    "has "
                    f"{', '.join(map(str, _open(service)))}",
                )


def endpoints_of(subject: Subject, base: Base) -> Iterator[Endpoint]:
    """What a provider says of the first good status that has one, as far as it is a Service."""
    for good in good_statuses(subject, base):
        found, _ = observation_of(subject, base, Observed(primary=good[0], objects=tuple(good)))
        if found is not None and found.endpoint is not None and not found.endpoint.url:
            yield found.endpoint
            return


def _open(service: Resource) -> list[object]:
    headless = dig(service, "spec", "clusterIP") == "None"
    ports = dig(service, "spec", "ports", default=[])
    return [port.get("targetPort", port.get("port")) if headless else port.get("port") for port in ports]


def _made_by_the_upstream(subject: Subject, objects: Sequence[Resource]) -> Iterator[str]:
    for obj in objects:
        name = obj["metadata"]["name"]
        for entry in subject.kind_of(obj).namesakes:
            key, slash, pattern = entry.partition("/")
            if key == "Service":
                yield pattern.replace("{name}", name) if slash else name


def observation_of(subject: Subject, base: Base, seen: Observed) -> tuple[Observation | None, str]:
    """The observation, or None and why there is none."""
    deployment = parse_deployment({"metadata": {"name": NAME, "namespace": "default"}, "spec": base.spec})
    context = assumed_context(subject.host, engine=base.engine, now=NOW)
    try:
        return subject.host.translate_status(deployment, seen, context), ""
    except PluginFault as fault:
        if fault.rule != HOOKS:
            raise
        return None, str(fault)


def good_statuses(subject: Subject, base: Base) -> Iterator[list[Resource]]:
    """The objects with statuses of one that serves, as far as schema and provider say what that would be.

    Which words an upstream uses is nowhere written: every word of the provider's own is tried as a state.
    """
    objects = subject.written[base.name]
    conditions = dict.fromkeys((*_CONDITIONS, *(word for word in subject.words if word[:1].isupper())))
    states = dict.fromkeys(("", *(word for word in subject.words if len(word) < 32)))
    first: list[Resource] = []
    for state in states:
        found = [_with_status(subject, obj, tuple(conditions), state) for obj in objects]
        if found != first:
            first = first or found
            yield found


def _with_status(subject: Subject, obj: Resource, conditions: Sequence[str], state: str) -> Resource:
    schema = subject.schemas.get((str(obj["apiVersion"]), obj["kind"]))
    status = dig(schema, "properties", "status") if schema else _OF_A_WORKLOAD
    made = {**obj, "metadata": {**obj["metadata"], "generation": 2, "uid": f"uid-{obj['metadata']['name']}"}}
    if not isinstance(status, dict) or (obj["kind"] == "Service" and schema is None):
        return made
    return {**made, "status": _filled(status, "status", conditions, state)}


def _filled(schema: Resource, name: str, conditions: Sequence[str], state: str) -> Any:
    if name == "conditions" and schema.get("type", "array") == "array":
        # Only where the schema says so: most operators write no generation into their conditions.
        declared = "observedGeneration" in dig(schema, "items", "properties", default={})
        observed = {"observedGeneration": 2} if declared else {}
        return [
            {
                "type": type_,
                "status": "True",
                "reason": "Ready",
                "message": "",
                "lastTransitionTime": _TIME,
                **observed,
            }
            for type_ in conditions
        ]
    if schema.get("x-kubernetes-int-or-string"):
        return "1"
    if name == "status" and not schema.get("properties"):
        schema = _OF_A_WORKLOAD
    match schema.get("type"):
        case "object":
            below: Mapping[str, Resource] = schema.get("properties") or {}
            return {key: _filled(each, key, conditions, state) for key, each in below.items()}
        case "array":
            items = schema.get("items")
            return [_filled(items, "", conditions, state)] if isinstance(items, dict) else []
        case "integer" | "number":
            return 2 if name == "observedGeneration" else 1
        case "boolean":
            return True
        case _:
            choices = schema.get("enum") or ()
            if state and any(name.lower().endswith(each) for each in _STATES):
                return state if not choices or state in choices else choices[0]
            return choices[0] if choices else _TIME if schema.get("format") == "date-time" else "x"


_OF_A_WORKLOAD: Resource = {
    "type": "object",
    "properties": {
        "conditions": {"type": "array"},
        **{
            key: {"type": "integer"}
            for key in ("observedGeneration", "replicas", "readyReplicas", "availableReplicas", "updatedReplicas")
        },
    },
}
"""The status of a kind of Kubernetes' own that runs pods, or of one without a schema."""
