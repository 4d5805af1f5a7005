"""Decides from the status of a route whether it is ready, and at which URL it answers (spec/platform.md, "Readiness").

A route is ready when every parent has accepted its current generation with resolved references.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airunway.resource import ObjectKey, Resource, dig, filled
from airunway.routing._json import entries, number, text
from airunway.routing.gateways import Listener, Target, addresses, admits, gateway_key, listeners
from airunway.routing.routes import as_target, parents_of

__all__ = ["ACCEPTED", "Verdict", "address_of", "gateway_status", "verdict_of"]

ACCEPTED = "RouteAccepted"
"""Reason of ``GatewayReady=True``."""

_NOT_ADMITTED = "NotAllowedByListeners"
_MAX_WORDS = 600


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the condition ``GatewayReady`` says."""

    ready: bool
    reason: str
    message: str


def verdict_of(route: Resource | None, *, gateways: Sequence[Resource], pool: Resource | None = None) -> Verdict:
    """The verdict on a live HTTPRoute; the worst parent decides. `pool` is the live InferencePool behind it, if any."""
    if route is None:
        return _waiting("the HTTPRoute has just been written")
    namespace = text(route, "metadata", "namespace")
    targets = parents_of(route)
    if not targets:
        name = text(route, "metadata", "name")
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


def _waiting(message: str) -> Verdict:
    return Verdict(ready=False, reason="WaitingForGateway", message=message)


def _refused(message: str) -> Verdict:
    return Verdict(ready=False, reason="RouteNotAccepted", message=message)


def _words(condition: Resource) -> str:
    """Reason and message of another controller's condition."""
    reason, message = text(condition, "reason"), text(condition, "message").strip()
    return ": ".join(part for part in (reason, message[:_MAX_WORDS]) if part) or "it gives no reason"


def _condition(holder: object, type_: str) -> Resource:
    return next((entry for entry in entries(holder, "conditions") if entry.get("type") == type_), {})


def _is_current(condition: Resource, generation: int) -> bool:
    """Whether a condition is about this generation; one that names no generation counts as current."""
    return dig(condition, "observedGeneration") is None or number(condition, "observedGeneration") >= generation


def _by_parent(route: Resource, target: Target, gateway: Resource | None, *, namespace: str) -> Verdict:
    answers = [answer for answer in entries(route, "status", "parents") if as_target(_ref(answer), namespace) == target]
    generation = number(route, "metadata", "generation")
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


def _ref(answer: Resource) -> Resource:
    ref = answer.get("parentRef")
    return ref if isinstance(ref, dict) else {}


def _unanswered(target: Target, gateway: Resource | None) -> Verdict:
    """The gateway has not answered about the route: the Gateway's own conditions usually have the reason."""
    if gateway is None:
        return Verdict(ready=False, reason="NoGateway", message=f"{target} does not exist: create it")
    class_name = text(gateway, "spec", "gatewayClassName")
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
    if text(condition, "reason") == "Pending":
        return _waiting(f"{target}: {words}")
    if text(condition, "reason") == _NOT_ADMITTED:
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
    namespace, name = text(pool, "metadata", "namespace"), text(pool, "metadata", "name")
    generation = number(pool, "metadata", "generation")
    ours = {target.gateway for target in targets}
    for answer in entries(pool, "status", "parents"):
        target = as_target(_ref(answer), namespace)
        if target is None or target.gateway not in ours:
            continue
        for type_ in ("Accepted", "ResolvedRefs"):
            condition = _condition(answer, type_)
            if condition.get("status") == "False" and _is_current(condition, generation):
                return _refused(f"Gateway {target.gateway} refuses InferencePool {name}: {_words(condition)}")
    return Verdict(ready=True, reason=ACCEPTED, message="")


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
    assigned = addresses(gateway)
    address = assigned[0] if assigned else ""
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
) -> Resource:
    """``status.gateway``; what is not known is absent, also the URL where no rule leads to the model (`routed`)."""
    endpoint, base = address_of(gateway, section=target.section if target is not None else "", namespace=namespace)
    key = target.gateway if target is not None else ObjectKey("", "")
    return {
        "ready": ready,
        **filled(
            url=_fitting(base + path) if base and routed else "",
            endpoint=_fitting(endpoint),
            path=path,
            modelName=model_name,
            gatewayName=key.name,
            gatewayNamespace=key.namespace,
            backend=backend,
        ),
    }


def _fitting(value: str) -> str:
    """The text if the field takes it (1024 characters), else nothing."""
    return value if len(value) <= 1024 else ""
