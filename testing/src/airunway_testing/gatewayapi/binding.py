"""What a gateway controller makes of HTTPRoutes, Gateways and InferencePools: pure functions to their statuses.

Reasons are those of the Gateway API (``Accepted``, ``NoMatchingParent``, ``NotAllowedByListeners``,
``NoMatchingListenerHostname``, ``UnsupportedValue``; ``ResolvedRefs``, ``BackendNotFound``, ``RefNotPermitted``,
``InvalidKind``) and of the Inference Extension (``HTTPRouteNotAccepted``, ``InvalidExtensionRef``). As Envoy Gateway
and Istio do, the controller adds no entry for a Gateway that does not exist or is of another controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from airunway.resource import ObjectKey, Resource, annotations_of, dig, filled, key_of
from airunway_testing.gatewayapi.kinds import (
    CONTROLLER_NAME,
    FAULT,
    GATEWAY_GROUP,
    POOL_GROUP,
)


class Fault(StrEnum):
    """How the simulated controller misbehaves towards one Gateway or HTTPRoute."""

    NONE = ""
    NO_CLASS = "no-class"  #: As if no controller ran: Gateway and routes keep what the CRDs' defaults say.
    SILENT = "silent"  #: No status is written any more; what stands there stays.
    CLOSED = "listener-closed"  #: The listeners admit no namespace.
    NO_REWRITE = "no-rewrite"  #: A URLRewrite is refused with ``UnsupportedValue``.
    STALE = "stale"  #: Conditions carry the generation before the current one.
    FLAPPING = "flapping"  #: Accepted and not accepted in turns, `FLAP` seconds each.
    PARTIAL = "partial"  #: Only the first parent is answered, and without ``ResolvedRefs``.
    NO_ADDRESS = "no-address"  #: The Gateway is accepted, but has no address and is not programmed.
    UNKNOWN = "unknown"  #: The annotation has another value: the status says so.


class Cache(Protocol):
    """Objects by key."""

    def get(self, key: ObjectKey, /) -> Resource | None:
        """The object, or None if it is not there."""


@dataclass(frozen=True, kw_only=True)
class World:
    """What the controller has read."""

    classes: Cache
    gateways: Cache
    namespaces: Cache
    services: Cache
    pools: Cache
    has_pools: bool = True
    """Whether InferencePools are served."""
    addresses: Sequence[str] = ("127.0.0.1",)
    """IP addresses that Gateways get."""
    flipped: bool = False
    """Which of its two states a flapping object is in."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One condition without its time."""

    type: str
    ok: bool
    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Binding:
    """What became of one parentRef of a route."""

    parent: Resource
    """The parentRef as the route has it."""
    gateway: Resource
    listeners: tuple[str, ...]
    """Names of the listeners that the route is attached to; empty if it was not accepted."""
    verdicts: tuple[Verdict, ...] = field(default=())


def fault_of(*objects: Resource) -> Fault:
    """The fault that the first object with the annotation asks for."""
    for obj in objects:
        if word := annotations_of(obj).get(FAULT):
            return Fault(word) if word in set(Fault) else Fault.UNKNOWN
    return Fault.NONE


def is_ours(gateway: Resource, classes: Cache) -> bool:
    """Whether the Gateway's class exists and is one of the simulated controller."""
    found = classes.get(ObjectKey("", dig(gateway, "spec", "gatewayClassName", default="")))
    return found is not None and dig(found, "spec", "controllerName") == CONTROLLER_NAME


def answered(gateway: Resource, classes: Cache) -> bool:
    """Whether the controller acts on the Gateway and its routes at all."""
    return is_ours(gateway, classes) and fault_of(gateway) is not Fault.NO_CLASS


def parent_keys(route: Resource) -> list[ObjectKey]:
    """The Gateways that the route names, in order."""
    return [
        ObjectKey(ref.get("namespace") or key_of(route).namespace, ref["name"])
        for ref in _parent_refs(route)
        if ref.get("group", GATEWAY_GROUP) == GATEWAY_GROUP and ref.get("kind", "Gateway") == "Gateway"
    ]


def backend_keys(route: Resource) -> list[tuple[str, ObjectKey]]:
    """Kind and key of the backends that the route names, in order."""
    return [(ref.get("kind", "Service"), _backend_key(route, ref)) for ref in _backend_refs(route)]


def _parent_refs(route: Resource) -> list[Resource]:
    return dig(route, "spec", "parentRefs", default=None) or []


def _backend_refs(route: Resource) -> list[Resource]:
    rules = dig(route, "spec", "rules", default=None) or []
    return [ref for rule in rules for ref in rule.get("backendRefs") or []]


def _backend_key(route: Resource, ref: Resource) -> ObjectKey:
    return ObjectKey(ref.get("namespace") or key_of(route).namespace, ref["name"])


# ------------------------------------------------------------------------------------------------------------ routes


def bindings(route: Resource, world: World) -> list[Binding]:
    """One for each parentRef to a Gateway of the simulated controller."""
    found = []
    resolved = _resolved(route, world)
    for ref in _parent_refs(route):
        if ref.get("group", GATEWAY_GROUP) != GATEWAY_GROUP or ref.get("kind", "Gateway") != "Gateway":
            continue
        gateway = world.gateways.get(ObjectKey(ref.get("namespace") or key_of(route).namespace, ref["name"]))
        if gateway is None or not answered(gateway, world.classes):
            continue
        listeners, accepted = _accepted(route, ref, gateway, world)
        found.append(Binding(parent=ref, gateway=gateway, listeners=listeners, verdicts=(accepted, resolved)))
    return found


def _accepted(route: Resource, ref: Resource, gateway: Resource, world: World) -> tuple[tuple[str, ...], Verdict]:
    def refused(reason: str, message: str) -> tuple[tuple[str, ...], Verdict]:
        return (), Verdict(type="Accepted", ok=False, reason=reason, message=message)

    fault = fault_of(route, gateway)
    if fault is Fault.UNKNOWN:
        return refused("UnsupportedValue", f"the annotation {FAULT} has a value that is no fault")
    if fault is Fault.FLAPPING and world.flipped:
        return refused("Pending", "the route is being programmed")
    section, port = ref.get("sectionName"), ref.get("port")
    named = [
        each
        for each in gateway["spec"]["listeners"]
        if section in (None, each["name"]) and port in (None, each["port"]) and each["protocol"] in ("HTTP", "HTTPS")
    ]
    if not named:
        return refused("NoMatchingParent", "No listeners match this parent ref")
    admitting = [each for each in named if fault is not Fault.CLOSED and _admits(each, route, gateway, world)]
    if not admitting:
        return refused(
            "NotAllowedByListeners", "No listeners of this parent ref allow routes of this namespace and kind"
        )
    matching = [each for each in admitting if _hostnames_meet(each.get("hostname", ""), route)]
    if not matching:
        return refused("NoMatchingListenerHostname", "No hostname of the route matches one of the listeners")
    if fault is Fault.NO_REWRITE and _rewrites(route):
        return refused("UnsupportedValue", "The filter URLRewrite is not supported")
    names = tuple(each["name"] for each in matching)
    return names, Verdict(type="Accepted", ok=True, reason="Accepted", message="Route is accepted")


def _admits(listener: Resource, route: Resource, gateway: Resource, world: World) -> bool:
    allowed = listener.get("allowedRoutes") or {}
    kinds = allowed.get("kinds") or []
    if kinds and not any(kind["kind"] == "HTTPRoute" for kind in kinds):
        return False
    namespace = key_of(route).namespace
    match dig(allowed, "namespaces", "from", default="Same"):
        case "All":
            return True
        case "Selector":
            labels = dig(world.namespaces.get(ObjectKey("", namespace)) or {}, "metadata", "labels", default=None) or {}
            selector = dig(allowed, "namespaces", "selector", default=None)
            return selector is not None and selected(selector, labels)
        case _:
            return namespace == key_of(gateway).namespace


def selected(selector: Resource, labels: Mapping[str, str]) -> bool:
    """Whether a LabelSelector selects what has these labels."""
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for each in selector.get("matchExpressions") or []:
        key, values = each["key"], each.get("values") or []
        holds = {
            "In": labels.get(key) in values,
            "NotIn": labels.get(key) not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }
        if not holds.get(each["operator"], False):
            return False
    return True


def _hostnames_meet(of_listener: str, route: Resource) -> bool:
    hostnames = dig(route, "spec", "hostnames", default=None) or []
    if not of_listener or not hostnames:
        return True
    return any(_meets(of_listener, each) or _meets(each, of_listener) for each in hostnames)


def _meets(pattern: str, name: str) -> bool:
    return pattern == name or (pattern.startswith("*.") and name.removeprefix("*").endswith(pattern[1:]))


def _rewrites(route: Resource) -> bool:
    rules = dig(route, "spec", "rules", default=None) or []
    return any(each["type"] == "URLRewrite" for rule in rules for each in rule.get("filters") or [])


def _resolved(route: Resource, world: World) -> Verdict:
    for ref in _backend_refs(route):
        if problem := _backend_problem(route, ref, world):
            reason, message = problem
            return Verdict(type="ResolvedRefs", ok=False, reason=reason, message=message)
    message = "All references of the route are resolved"
    return Verdict(type="ResolvedRefs", ok=True, reason="ResolvedRefs", message=message)


def _backend_problem(route: Resource, ref: Resource, world: World) -> tuple[str, str] | None:
    kind, key = (ref.get("group", ""), ref.get("kind", "Service")), _backend_key(route, ref)
    if kind not in (("", "Service"), (POOL_GROUP, "InferencePool")) or (kind[0] == POOL_GROUP and not world.has_pools):
        return "InvalidKind", f"A backend of the kind {kind[1]} in the group {kind[0]!r} is not supported"
    if key.namespace != key_of(route).namespace:
        return "RefNotPermitted", f"No ReferenceGrant permits the backend {kind[1]} {key}"
    found = (world.pools if kind[0] == POOL_GROUP else world.services).get(key)
    if found is None:
        return "BackendNotFound", f"{kind[1]} {key} not found"
    ports = [each.get("port") for each in dig(found, "spec", "ports", default=None) or []]
    if not kind[0] and ref.get("port") not in ports:
        return "BackendNotFound", f"{kind[1]} {key} has no port {ref.get('port')}"
    return None


def route_status(route: Resource, world: World, now: str) -> Resource | None:
    """The new `status` of the route, or None if it is to stay: entries of other controllers are kept."""
    before = dig(route, "status", "parents", default=None) or []
    mine = [entry for entry in before if entry.get("controllerName") == CONTROLLER_NAME]
    entries = []
    bound = bindings(route, world)
    for position, binding in enumerate(bound):
        fault = fault_of(route, binding.gateway)
        old: Resource = next((entry for entry in mine if entry.get("parentRef") == binding.parent), {})
        if fault is Fault.SILENT:
            entries += [old] if old else []
            continue
        verdicts = binding.verdicts
        if fault is Fault.PARTIAL:
            if position:
                continue
            verdicts = verdicts[:1]
        conditions = _conditions(verdicts, old.get("conditions") or [], _generation(route, fault), now)
        entries.append({"parentRef": binding.parent, "controllerName": CONTROLLER_NAME, "conditions": conditions})
    if not entries and not mine:
        return None
    others = [entry for entry in before if entry.get("controllerName") != CONTROLLER_NAME]
    return {"parents": [*others, *entries]}


def _generation(obj: Resource, fault: Fault = Fault.NONE) -> int:
    generation: int = dig(obj, "metadata", "generation", default=1)
    return generation - 1 if fault is Fault.STALE else generation


def _conditions(verdicts: Iterable[Verdict], before: Sequence[Resource], generation: int, now: str) -> list[Resource]:
    return [_condition(verdict, before, generation, now) for verdict in verdicts]


def _condition(verdict: Verdict, before: Sequence[Resource], generation: int, now: str) -> Resource:
    status = "True" if verdict.ok else "False"
    old = next((each for each in before if each.get("type") == verdict.type), {})
    since = old.get("lastTransitionTime", now) if old.get("status") == status else now
    return {
        "type": verdict.type,
        "status": status,
        "observedGeneration": generation,
        "lastTransitionTime": since,
        "reason": verdict.reason,
        "message": verdict.message,
    }


# -------------------------------------------------------------------------------------- classes, Gateways, pools


def class_status(found: Resource, now: str) -> Resource | None:
    """The new `status` of a GatewayClass, or None if it is another controller's."""
    if dig(found, "spec", "controllerName") != CONTROLLER_NAME:
        return None
    verdict = Verdict(type="Accepted", ok=True, reason="Accepted", message="GatewayClass is accepted")
    before = dig(found, "status", "conditions", default=None) or []
    return {**(found.get("status") or {}), "conditions": _conditions([verdict], before, _generation(found), now)}


def gateway_status(gateway: Resource, routes: Iterable[Resource], world: World, now: str) -> Resource | None:
    """The new `status` of a Gateway of which these routes are, or None if it is to stay."""
    fault = fault_of(gateway)
    if not answered(gateway, world.classes) or fault is Fault.SILENT:
        return None
    attached: dict[str, int] = {}
    for route in routes:
        names = {
            n for each in bindings(route, world) if key_of(each.gateway) == key_of(gateway) for n in each.listeners
        }
        for name in names:
            attached[name] = attached.get(name, 0) + 1
    flipped = fault is Fault.FLAPPING and world.flipped
    programmed = fault is not Fault.NO_ADDRESS and not flipped
    reason = "Programmed" if programmed else ("Pending" if flipped else "AddressNotAssigned")
    text = "Gateway is programmed" if programmed else "Gateway has no address yet"
    verdicts = (
        Verdict(type="Accepted", ok=True, reason="Accepted", message="Gateway is accepted"),
        Verdict(type="Programmed", ok=programmed, reason=reason, message=text),
    )
    status, generation = gateway.get("status") or {}, _generation(gateway, fault)
    before = {each["name"]: each for each in status.get("listeners") or []}
    addresses = [{"type": "IPAddress", "value": each} for each in world.addresses] if programmed else []
    return filled(
        conditions=_conditions(verdicts, status.get("conditions") or [], generation, now),
        addresses=addresses,
        listeners=[
            _listener_status(
                each, before.get(each["name"], {}), attached.get(each["name"], 0), generation, now, programmed
            )
            for each in gateway["spec"]["listeners"]
        ],
    )


def _listener_status(
    listener: Resource, before: Resource, attached: int, generation: int, now: str, programmed: bool
) -> Resource:
    known = listener["protocol"] in ("HTTP", "HTTPS")
    reason = "Accepted" if known else "UnsupportedProtocol"
    ready = known and programmed
    verdicts = (
        Verdict(type="Accepted", ok=known, reason=reason, message=f"Protocol {listener['protocol']}"),
        Verdict(type="Programmed", ok=ready, reason="Programmed" if ready else "Pending", message="Listener of Envoy"),
        Verdict(type="ResolvedRefs", ok=True, reason="ResolvedRefs", message="Listener references are resolved"),
    )
    return {
        "name": listener["name"],
        "attachedRoutes": attached,
        "supportedKinds": [{"group": GATEWAY_GROUP, "kind": "HTTPRoute"}] if known else [],
        "conditions": _conditions(verdicts, before.get("conditions") or [], generation, now),
    }


def pool_status(pool: Resource, routes: Iterable[Resource], world: World, now: str) -> Resource | None:
    """The new `status` of an InferencePool to which these routes go, or None if it is to stay."""
    # Releases up to 1.0 have no `controllerName` in an entry: there the controller takes all for its own.
    before = dig(pool, "status", "parents", default=None) or []
    ours: dict[ObjectKey, Verdict] = {}
    for route in routes:
        for binding in bindings(route, world):
            if fault_of(route, binding.gateway) is Fault.SILENT:
                continue
            key, accepted = key_of(binding.gateway), binding.verdicts[0]
            if key in ours and ours[key].ok:
                continue
            message = "A route to the pool is accepted" if accepted.ok else f"HTTPRoute {key_of(route)} is not accepted"
            reason = "Accepted" if accepted.ok else "HTTPRouteNotAccepted"
            ours[key] = Verdict(type="Accepted", ok=accepted.ok, reason=reason, message=message)
    mine = {
        _gateway_key(each): each for each in before if each.get("controllerName", CONTROLLER_NAME) == CONTROLLER_NAME
    }
    entries = []
    for key, verdict in sorted(ours.items()):
        old = mine.get(key, {}).get("conditions") or []
        verdicts = (verdict, _picker_verdict(pool, world))
        reference = {"group": GATEWAY_GROUP, "kind": "Gateway", "namespace": key.namespace, "name": key.name}
        conditions = _conditions(verdicts, old, _generation(pool), now)
        entries.append({"parentRef": reference, "controllerName": CONTROLLER_NAME, "conditions": conditions})
    if not entries and not mine:
        return None
    others = [each for each in before if each.get("controllerName", CONTROLLER_NAME) != CONTROLLER_NAME]
    return {"parents": [*others, *entries]}


def _gateway_key(entry: Resource) -> ObjectKey:
    return ObjectKey(dig(entry, "parentRef", "namespace", default=""), dig(entry, "parentRef", "name", default=""))


def _picker_verdict(pool: Resource, world: World) -> Verdict:
    key = ObjectKey(key_of(pool).namespace, dig(pool, "spec", "endpointPickerRef", "name", default=""))
    if not key.name or world.services.get(key) is None:
        message = f"Service {key} of the endpoint picker not found"
        return Verdict(type="ResolvedRefs", ok=False, reason="InvalidExtensionRef", message=message)
    return Verdict(type="ResolvedRefs", ok=True, reason="ResolvedRefs", message="The endpoint picker is found")
