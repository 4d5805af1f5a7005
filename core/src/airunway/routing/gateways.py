"""Chooses the Gateway of a route, and reads from the route's status what the Gateway says (docs/routing.md).

Order: the deployment's ``gatewayRef``, the config's, ``--gateway-name``, the Gateway of the route that exists, the only
usable Gateway, the only one with the label ``airunway.ai/inference-gateway=true``. The last two only in namespaces that
an administrator named for Gateways: who may make a Gateway and label it is not thereby trusted with the requests of
others. A route is ready when every parent has accepted its current generation with resolved references.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from airunway.api import names
from airunway.configs.resolution import EffectiveConfig
from airunway.redaction import bounded
from airunway.resource import (
    ObjectKey,
    Resource,
    dig,
    entries_at,
    filled,
    is_deleting,
    mapping_at,
    number_at,
    parse_time,
    text_at,
)
from airunway.status.rollup import Verdict


@dataclass(frozen=True, kw_only=True)
class Target:
    """A Gateway, and the listener of it to attach to."""

    gateway: ObjectKey
    section: str = ""
    """Name of the listener; empty: all listeners."""

    def __str__(self) -> str:
        return f"Gateway {self.gateway}" + (f", listener {self.section}" if self.section else "")


@dataclass(frozen=True, kw_only=True)
class ChosenGateway:
    """The Gateway of a route, or why there is none."""

    target: Target | None = None
    """Set also for a named Gateway that does not exist: claims are made on it."""
    gateway: Resource | None = None
    """The Gateway; None if there is none to use."""
    named_by: str = ""
    """What names the Gateway; empty if it was detected."""
    reason: str = ""
    """``NoGateway`` or ``AmbiguousGateway`` without a Gateway; empty with one."""
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Listener:
    """A listener of a Gateway that can serve HTTPRoutes."""

    name: str
    scheme: str
    """``http`` or ``https``."""
    port: int
    hostname: str = ""
    admitted: str = "Same"
    """``allowedRoutes.namespaces.from``: All, Same, Selector or None."""
    http_routes: bool = True
    """Whether ``allowedRoutes.kinds`` has HTTPRoute."""


_SCHEMES = {"HTTP": "http", "HTTPS": "https"}


def gateway_key(gateway: Resource) -> ObjectKey:
    """The key of any JSON that should be a Gateway."""
    return ObjectKey(text_at(gateway, "metadata", "namespace"), text_at(gateway, "metadata", "name"))


def listeners(gateway: Resource | None) -> list[Listener]:
    """The listeners for HTTP and HTTPS, in the Gateway's own order."""
    found = []
    for entry in entries_at(gateway, "spec", "listeners"):
        scheme = _SCHEMES.get(text_at(entry, "protocol"))
        if scheme is None:
            continue
        kinds = entries_at(entry, "allowedRoutes", "kinds")
        found.append(
            Listener(
                name=text_at(entry, "name"),
                scheme=scheme,
                port=number_at(entry, "port"),
                hostname=text_at(entry, "hostname"),
                admitted=text_at(entry, "allowedRoutes", "namespaces", "from") or "Same",
                http_routes=not kinds or any(text_at(kind, "kind") == "HTTPRoute" for kind in kinds),
            )
        )
    return found


def admits(listener: Listener, *, gateway: ObjectKey, namespace: str) -> bool:
    """Whether the listener may admit an HTTPRoute of `namespace`. A selector counts as yes: labels are not read."""
    if not listener.http_routes:
        return False
    if listener.admitted == "Same":
        return namespace == gateway.namespace
    return listener.admitted in ("All", "Selector")


@dataclass(frozen=True, kw_only=True)
class Detection:
    """What is known for a deployment that names no Gateway."""

    flag: str = ""
    """``--gateway-name``: NAMESPACE/NAME."""
    namespaces: Collection[str] = ()
    """The namespaces whose Gateways may be chosen without being named."""


def choose(
    gateways: Sequence[Resource],
    *,
    deployment: Resource,
    config: EffectiveConfig | None,
    detection: Detection,
    live: Resource | None = None,
) -> ChosenGateway:
    """Chooses the Gateway for a deployment; `live` is its route if it is ours."""
    namespace = text_at(deployment, "metadata", "namespace")
    ref = mapping_at(deployment, "spec", "gateway", "gatewayRef")
    if name := text_at(ref, "name"):
        return _named(
            gateways,
            Target(
                gateway=ObjectKey(text_at(ref, "namespace") or namespace, name),
                section=text_at(ref, "sectionName"),
            ),
            by="spec.gateway.gatewayRef",
        )
    wanted = config.routing.gateway if config is not None else None
    if config is not None and wanted is not None:
        return _named(
            gateways,
            Target(
                gateway=ObjectKey(wanted.namespace or config.namespace or namespace, wanted.name),
                section=wanted.section_name,
            ),
            by=f"spec.routing.gatewayRef of {config.origin_of('routing', 'gatewayRef')}",
        )
    if detection.flag:
        where, _, name = detection.flag.rpartition("/")
        return _named(gateways, Target(gateway=ObjectKey(where, name)), by=FLAG)
    return _kept(gateways, live, namespace=namespace) or _detected(gateways, detection, namespace=namespace)


FLAG = "--gateway-name of the controller"
"""What names the Gateway of the installation."""


def _named(gateways: Sequence[Resource], target: Target, *, by: str) -> ChosenGateway:
    found = next((gateway for gateway in gateways if gateway_key(gateway) == target.gateway), None)
    if found is not None and not (by == FLAG and is_deleting(found)):
        return ChosenGateway(target=target, gateway=found, named_by=by)
    return ChosenGateway(
        target=target,
        named_by=by,
        reason="NoGateway",
        message=f"{by} names Gateway {target.gateway}, which does not exist: create it, or name another one",
    )


def _kept(gateways: Sequence[Resource], live: Resource | None, *, namespace: str) -> ChosenGateway | None:
    """The Gateway of the route that exists, for as long as it exists and may admit the namespace."""
    target = parent_of(live) if live is not None else None
    if target is None:
        return None
    for gateway in gateways:
        if gateway_key(gateway) == target.gateway:
            kept = ChosenGateway(target=Target(gateway=target.gateway), gateway=gateway)
            return kept if usable(kept, namespace=namespace) else None
    return None


def _detected(gateways: Sequence[Resource], detection: Detection, *, namespace: str) -> ChosenGateway:
    alive = sorted((gateway for gateway in gateways if not is_deleting(gateway)), key=gateway_key)
    trusted = [gateway for gateway in alive if gateway_key(gateway).namespace in detection.namespaces]
    choices = [ChosenGateway(target=Target(gateway=gateway_key(each)), gateway=each) for each in trusted]
    # Where none admits the namespace, the only one is chosen all the same: its refusal says what to set.
    found = [choice for choice in choices if usable(choice, namespace=namespace)] or choices
    if len(found) > 1:
        found = [choice for choice in found if _is_labelled(choice.gateway)] or found
    if len(found) == 1:
        return found[0]
    if found:
        keys = [choice.target.gateway for choice in found if choice.target is not None]
        labelled = "has" if not _is_labelled(found[0].gateway) else "alone has"
        return ChosenGateway(
            reason="AmbiguousGateway",
            message=f"there are {len(keys)} Gateways to choose from ({_listed(keys)}) and none {labelled} the label "
            f"{names.INFERENCE_GATEWAY}=true: label one, or set spec.gateway.gatewayRef",
        )
    if not alive:
        return ChosenGateway(reason="NoGateway", message="there is no Gateway in the cluster: create one")
    keys = [gateway_key(gateway) for gateway in alive]
    return ChosenGateway(
        reason="NoGateway",
        message=f"Gateway {_listed(keys)} is not chosen without being named: set spec.gateway.gatewayRef, or have an "
        f"administrator allow its namespace (kubectl label namespace {keys[0].namespace} "
        f"{names.GATEWAY_NAMESPACE}=allowed)",
    )


def _is_labelled(gateway: Resource | None) -> bool:
    return mapping_at(gateway, "metadata", "labels").get(names.INFERENCE_GATEWAY) == "true"


def _listed(keys: Sequence[ObjectKey]) -> str:
    more = f" and {len(keys) - 5} more" if len(keys) > 5 else ""
    return ", ".join(map(str, keys[:5])) + more


def usable(choice: ChosenGateway, *, namespace: str) -> bool:
    """Whether a deployment of `namespace` that asks for no route gets one at the chosen Gateway.

    The Gateway must exist, must not be in deletion, and must have a listener for HTTP that may admit the namespace.
    Its readiness does not count: a Gateway that is not programmed for a moment must not take routes away.
    """
    gateway, target = choice.gateway, choice.target
    if gateway is None or target is None or is_deleting(gateway):
        return False
    return bool(sections_of(gateway, section=target.section, namespace=namespace))


def sections_of(gateway: Resource, *, section: str, namespace: str) -> tuple[str, ...]:
    """The listeners for HTTP that a route of `namespace` for `section` may attach to: names, or one empty text for all
    listeners if all of them may admit it.
    """
    key, all_ = gateway_key(gateway), listeners(gateway)
    admitting = [
        each.name for each in all_ if section in ("", each.name) and admits(each, gateway=key, namespace=namespace)
    ]
    return ("",) if not section and admitting and len(admitting) == len(all_) else tuple(admitting)


# ----------------------------------------------------------------------------------------------- parents of a route


def parent_of(live: Resource) -> Target | None:
    """The first Gateway of any JSON that should be an HTTPRoute; None if it names none."""
    return next(iter(parents_of(live)), None)


def parents_of(live: Resource) -> list[Target]:
    """The Gateways that an HTTPRoute attaches to; a parent of another kind is left out."""
    namespace = text_at(live, "metadata", "namespace")
    return [
        target for ref in entries_at(live, "spec", "parentRefs") if (target := as_target(ref, namespace)) is not None
    ]


def as_target(ref: Resource, namespace: str) -> Target | None:
    """The Gateway that a ``parentRef`` names; None if it is of another kind."""
    if (text_at(ref, "group") or names.GATEWAY_GROUP) != names.GATEWAY_GROUP or (
        text_at(ref, "kind") or "Gateway"
    ) != "Gateway":
        return None
    if not text_at(ref, "name"):
        return None
    return Target(
        gateway=ObjectKey(text_at(ref, "namespace") or namespace, text_at(ref, "name")),
        section=text_at(ref, "sectionName"),
    )


# ------------------------------------------------------------------------------------ the gateways' verdict on a route


ACCEPTED = "RouteAccepted"
"""Reason of ``GatewayReady=True``."""

_NOT_ADMITTED = "NotAllowedByListeners"
_MAX_WORDS = 600


def verdict_of(route: Resource | None, *, gateways: Sequence[Resource], pool: Resource | None = None) -> Verdict:
    """The verdict on a live HTTPRoute; the worst parent decides. `pool` is the live InferencePool behind it, if any."""
    if route is None:
        return _waiting("the HTTPRoute has just been written")
    namespace = text_at(route, "metadata", "namespace")
    targets = parents_of(route)
    if not targets:
        name = text_at(route, "metadata", "name")
        return Verdict(
            ready=False,
            reason="RouteNotAccepted",
            message=f"HTTPRoute {name}: spec.parentRefs names no Gateway: add the one that should serve it",
        )
    by_key = {gateway_key(gateway): gateway for gateway in gateways}
    found = [_by_parent(route, target, by_key.get(target.gateway), namespace=namespace) for target in targets]
    found.append(_by_pool(pool, targets))
    refused = [verdict for verdict in found if not verdict.ready]
    # A refusal needs an action, and waiting does not.
    refused.sort(key=lambda verdict: verdict.reason == "WaitingForGateway")
    return refused[0] if refused else found[0]


def is_shut_out(route: Resource, target: Target) -> bool | None:
    """Whether no listener of a Gateway admits a live HTTPRoute; None as long as the Gateway has not answered."""
    for accepted in (_condition(answer, "Accepted") for answer in _answers(route, target)):
        if accepted.get("status") in ("True", "False"):
            return accepted["status"] == "False" and text_at(accepted, "reason") == _NOT_ADMITTED
    return None


def _answers(route: Resource, target: Target) -> list[Resource]:
    """What a live HTTPRoute's status says of one of its parents, by each controller that has answered."""
    namespace = text_at(route, "metadata", "namespace")
    return [
        answer
        for answer in entries_at(route, "status", "parents")
        if as_target(mapping_at(answer, "parentRef"), namespace) == target
    ]


def _waiting(message: str) -> Verdict:
    return Verdict(ready=False, reason="WaitingForGateway", message=message)


def _refused(message: str) -> Verdict:
    return Verdict(ready=False, reason="RouteNotAccepted", message=message)


def _words(condition: Resource) -> str:
    """Reason and message of another controller's condition."""
    reason, message = text_at(condition, "reason"), text_at(condition, "message").strip()
    return ": ".join(part for part in (reason, message[:_MAX_WORDS]) if part) or "it gives no reason"


def _condition(holder: object, type_: str) -> Resource:
    return next((entry for entry in entries_at(holder, "conditions") if entry.get("type") == type_), {})


def _is_current(condition: Resource, generation: int) -> bool:
    """Whether a condition is about this generation; one that names no generation counts as current."""
    return dig(condition, "observedGeneration") is None or number_at(condition, "observedGeneration") >= generation


def _by_parent(route: Resource, target: Target, gateway: Resource | None, *, namespace: str) -> Verdict:
    answers = _answers(route, target)
    generation = number_at(route, "metadata", "generation")
    if not answers or gateway is None:
        # Not every controller takes back what it wrote about a Gateway that is deleted.
        return _unanswered(target, gateway)
    for answer in answers:
        accepted, resolved = _condition(answer, "Accepted"), _condition(answer, "ResolvedRefs")
        dropped = _condition(answer, "PartiallyInvalid")
        for condition in (accepted, resolved):
            if condition.get("status") == "False" and _is_current(condition, generation):
                return _refusal(condition, target, gateway, namespace=namespace)
        if dropped.get("status") == "True" and _is_current(dropped, generation):
            return _refused(f"{target} serves only a part of the route: {_words(dropped)}")
        for type_, condition in (("Accepted", accepted), ("ResolvedRefs", resolved)):
            if not _is_current(condition, generation):
                return _waiting(f"{target} has not answered about generation {generation} of the route yet")
            if condition.get("status") != "True":
                words = f": {_words(condition)}" if condition else ""
                return _waiting(f"{target} has not set {type_} of the route yet{words}")
    return Verdict(ready=True, reason=ACCEPTED, message=f"{target} has accepted the route")


def _unanswered(target: Target, gateway: Resource | None) -> Verdict:
    """The gateway has not answered about the route: the Gateway's own conditions usually have the reason."""
    if gateway is None:
        return Verdict(ready=False, reason="NoGateway", message=f"{target} does not exist: create it")
    class_name = text_at(gateway, "spec", "gatewayClassName")
    status = gateway.get("status")
    for type_ in ("Accepted", "Programmed"):
        condition = _condition(status, type_)
        if condition and condition.get("status") != "True":
            return _waiting(
                f"{target} (GatewayClass {class_name}) is not {type_}: {_words(condition)}; check that the "
                "GatewayClass exists and that its controller runs"
            )
    if target.section and all(entry.name != target.section for entry in listeners(gateway)):
        return _refused(f"{target}: the Gateway has no such listener for HTTP: set sectionName to one that it has")
    if not _condition(status, "Accepted"):
        return _waiting(
            f"{target} (GatewayClass {class_name}) has no status: check that the GatewayClass exists and that its "
            "controller runs"
        )
    return _waiting(f"{target} has not answered about the route yet")


def _refusal(condition: Resource, target: Target, gateway: Resource | None, *, namespace: str) -> Verdict:
    words = _words(condition)
    if text_at(condition, "reason") == "Pending":
        return _waiting(f"{target}: {words}")
    if text_at(condition, "reason") == _NOT_ADMITTED:
        return _refused(f"{target} refuses the route: {words}; {_how_to_admit(target, gateway, namespace=namespace)}")
    return _refused(f"{target} refuses the route: {words}")


def _how_to_admit(target: Target, gateway: Resource | None, *, namespace: str) -> str:
    closed = next(
        (
            listener
            for listener in listeners(gateway)
            if target.section in ("", listener.name)
            and not admits(listener, gateway=target.gateway, namespace=namespace)
        ),
        None,
    )
    name = closed.name if closed is not None else target.section or "<listener>"
    if closed is not None and not closed.http_routes:
        return f"add HTTPRoute to spec.listeners[{name}].allowedRoutes.kinds of Gateway {target.gateway}"
    return (
        f"to admit namespace {namespace}, set spec.listeners[{name}].allowedRoutes of Gateway {target.gateway} to "
        "namespaces: {from: Selector, selector: {matchLabels: {kubernetes.io/metadata.name: "
        f"{namespace}}}}}}}, or to namespaces: {{from: All}}"
    )


def _by_pool(pool: Resource | None, targets: Sequence[Target]) -> Verdict:
    """The gateways' conditions of the InferencePool. Without any there is no fault: only gateways write its status."""
    namespace, name = text_at(pool, "metadata", "namespace"), text_at(pool, "metadata", "name")
    generation = number_at(pool, "metadata", "generation")
    ours = {target.gateway for target in targets}
    for answer in entries_at(pool, "status", "parents"):
        target = as_target(mapping_at(answer, "parentRef"), namespace)
        if target is None or target.gateway not in ours:
            continue
        for type_ in ("Accepted", "ResolvedRefs"):
            condition = _condition(answer, type_)
            if condition.get("status") == "False" and _is_current(condition, generation):
                return _refused(f"Gateway {target.gateway} refuses InferencePool {name}: {_words(condition)}")
    return Verdict(ready=True, reason=ACCEPTED, message="")


# -------------------------------------------------------------------------------------- what a Gateway says of itself


@dataclass(frozen=True, kw_only=True)
class Unserved:
    """A Gateway that is not programmed, or has no address: no request reaches what it has accepted."""

    gateway: ObjectKey
    words: str
    """What it says, as the end of a sentence."""
    since: datetime | None
    """Since when, where it says so."""

    def __str__(self) -> str:
        return f"Gateway {self.gateway} {self.words}"


def unserved(gateway: Resource) -> Unserved | None:
    """Why no request reaches a Gateway, by its own status; None if nothing hinders."""
    status = gateway.get("status")
    condition = _condition(status, "Programmed")
    if condition and condition.get("status") != "True":
        words, since = f"is not programmed: {_words(condition)}", parse_time(condition.get("lastTransitionTime"))
    elif not any(text_at(entry, "value") for entry in entries_at(status, "addresses")):
        words, since = "has no address", None
    else:
        return None
    return Unserved(gateway=gateway_key(gateway), words=words, since=since)


# ----------------------------------------------------------------------------------------------------------- address


def address_of(gateway: Resource | None, *, section: str = "", namespace: str = "") -> tuple[str, str]:
    """Address and base URL of a Gateway, such as ``("10.0.0.7", "https://models.example.com")``; empty if unknown.

    Of several listeners the one that the route names counts, else the first with a host name and TLS that may admit
    `namespace`, else the first for plain HTTP, else the first.
    """
    if gateway is None:
        return "", ""
    key = gateway_key(gateway)
    open_ = [
        listener
        for listener in listeners(gateway)
        if section in ("", listener.name) and (section or admits(listener, gateway=key, namespace=namespace))
    ]
    if not open_:
        return "", ""
    listener = min(open_, key=_rank)
    assigned = (text_at(entry, "value") for entry in entries_at(gateway, "status", "addresses"))
    address = next(filter(None, assigned), "")
    host = listener.hostname if _is_plain(listener.hostname) else address
    port = "" if listener.port in (0, 80 if listener.scheme == "http" else 443) else f":{listener.port}"
    endpoint = f"{_bracketed(address)}{port}" if address else ""
    return endpoint, f"{listener.scheme}://{_bracketed(host)}{port}" if host else ""


def _rank(listener: Listener) -> int:
    if listener.scheme == "https" and _is_plain(listener.hostname):
        return 0
    return 1 if listener.scheme == "http" else 2


def _is_plain(hostname: str) -> bool:
    return bool(hostname) and "*" not in hostname


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def gateway_status(
    *,
    ready: bool,
    target: Target | None,
    gateway: Resource | None,
    namespace: str,
    path: str = "",
    model_name: str = "",
    backend: str = "",
    routed: bool = True,
    holding: bool | None = None,
    warnings: Sequence[str] = (),
) -> Resource:
    """``status.gateway``; what is not known is absent, also the URL where no rule leads to the model (`routed`)."""
    endpoint, base = address_of(gateway, section=target.section if target is not None else "", namespace=namespace)
    key = target.gateway if target is not None else ObjectKey("", "")
    return {
        "ready": ready,
        **({} if holding is None else {"holdsRequests": holding}),
        **filled(
            url=_fitting(base + path) if base and routed else "",
            endpoint=_fitting(endpoint),
            path=path,
            modelName=model_name,
            gatewayName=key.name,
            gatewayNamespace=key.namespace,
            backend=backend,
            warnings=[bounded(warning) for warning in warnings],
        ),
    }


def _fitting(value: str) -> str:
    """The text if the field takes it (1024 characters), else nothing."""
    return value if len(value) <= 1024 else ""
