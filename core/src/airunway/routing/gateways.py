"""Chooses the Gateway of a deployment's route (spec/platform.md, "Routing").

Order: the deployment's ``gatewayRef``, the config's, ``--gateway-name``, the only Gateway, the one with the label
``airunway.ai/inference-gateway=true`` (of several the first by namespace and name).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airunway.api import names
from airunway.configs import EffectiveConfig
from airunway.resource import ObjectKey, Resource, is_deleting
from airunway.routing._json import entries, mapping, number, text

__all__ = [
    "GATEWAY_GROUP",
    "Choice",
    "Listener",
    "Target",
    "addresses",
    "admits",
    "choose",
    "gateway_key",
    "listeners",
    "usable",
]

GATEWAY_GROUP = "gateway.networking.k8s.io"


@dataclass(frozen=True, kw_only=True)
class Target:
    """A Gateway, and the listener of it to attach to."""

    gateway: ObjectKey
    section: str = ""
    """Name of the listener; empty: all listeners."""

    def __str__(self) -> str:
        return f"Gateway {self.gateway}" + (f", listener {self.section}" if self.section else "")


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The Gateway of a route, or why there is none."""

    target: Target | None = None
    """Set also for a named Gateway that does not exist: claims are made on it."""
    gateway: Resource | None = None
    """The Gateway; None if there is none to use."""
    named_by: str = ""
    """What names the Gateway; empty if it was detected."""
    reason: str = ""
    """``NoGateway`` without a Gateway; empty with one."""
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
    return ObjectKey(text(gateway, "metadata", "namespace"), text(gateway, "metadata", "name"))


def listeners(gateway: Resource | None) -> list[Listener]:
    """The listeners for HTTP and HTTPS, in the Gateway's own order."""
    found = []
    for entry in entries(gateway, "spec", "listeners"):
        scheme = _SCHEMES.get(text(entry, "protocol"))
        if scheme is None:
            continue
        kinds = entries(entry, "allowedRoutes", "kinds")
        found.append(
            Listener(
                name=text(entry, "name"),
                scheme=scheme,
                port=number(entry, "port"),
                hostname=text(entry, "hostname"),
                admitted=text(entry, "allowedRoutes", "namespaces", "from") or "Same",
                http_routes=not kinds or any(text(kind, "kind") == "HTTPRoute" for kind in kinds),
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


def addresses(gateway: Resource | None) -> list[str]:
    """The addresses of a Gateway: the assigned ones."""
    return [value for entry in entries(gateway, "status", "addresses") if (value := text(entry, "value"))]


def choose(
    gateways: Sequence[Resource], *, deployment: Resource, config: EffectiveConfig | None, flag: str = ""
) -> Choice:
    """Chooses the Gateway for a deployment; `flag` is ``--gateway-name`` (a name, or namespace/name)."""
    namespace = text(deployment, "metadata", "namespace")
    ref = mapping(deployment, "spec", "gateway", "gatewayRef")
    if name := text(ref, "name"):
        return _named(
            gateways,
            Target(
                gateway=ObjectKey(text(ref, "namespace") or namespace, name),
                section=text(ref, "sectionName"),
            ),
            by="spec.gateway.gatewayRef",
        )
    wanted = config.routing.gateway if config is not None else None
    if config is not None and wanted is not None and wanted.name:
        return _named(
            gateways,
            Target(
                gateway=ObjectKey(wanted.namespace or config.namespace or namespace, wanted.name),
                section=wanted.section_name or "",
            ),
            by=f"spec.routing.gatewayRef of runtime config {config.name}",
        )
    alive = sorted((gateway for gateway in gateways if not is_deleting(gateway)), key=gateway_key)
    if flag:
        return _by_flag(alive, flag)
    return _detected(alive)


def _named(gateways: Sequence[Resource], target: Target, *, by: str) -> Choice:
    found = next((gateway for gateway in gateways if gateway_key(gateway) == target.gateway), None)
    if found is not None:
        return Choice(target=target, gateway=found, named_by=by)
    return Choice(
        target=target,
        named_by=by,
        reason="NoGateway",
        message=f"{by} names Gateway {target.gateway}, which does not exist: create it, or name another one",
    )


def _by_flag(gateways: Sequence[Resource], flag: str) -> Choice:
    namespace, _, name = flag.rpartition("/")
    for gateway in gateways:
        key = gateway_key(gateway)
        if key.name == name and namespace in ("", key.namespace):
            return Choice(target=Target(gateway=key), gateway=gateway, named_by="--gateway-name")
    return Choice(
        target=Target(gateway=ObjectKey(namespace, name)) if namespace and name else None,
        named_by="--gateway-name",
        reason="NoGateway",
        message=f"--gateway-name of the controller names Gateway {flag}, which does not exist: create it, or set "
        "spec.gateway.gatewayRef",
    )


def _detected(gateways: Sequence[Resource]) -> Choice:
    label = names.INFERENCE_GATEWAY
    if len(gateways) == 1:
        return Choice(target=Target(gateway=gateway_key(gateways[0])), gateway=gateways[0])
    labelled = [
        gateway for gateway in gateways if mapping(gateway, "metadata", "labels").get(names.INFERENCE_GATEWAY) == "true"
    ]
    if labelled:
        return Choice(target=Target(gateway=gateway_key(labelled[0])), gateway=labelled[0])
    if not gateways:
        return Choice(reason="NoGateway", message="there is no Gateway in the cluster: create one")
    listed = ", ".join(str(gateway_key(gateway)) for gateway in gateways[:5])
    more = f" and {len(gateways) - 5} more" if len(gateways) > 5 else ""
    return Choice(
        reason="NoGateway",
        message=f"there are {len(gateways)} Gateways ({listed}{more}) and none has the label {label}=true: label one, "
        "or set spec.gateway.gatewayRef",
    )


def usable(choice: Choice, *, namespace: str) -> bool:
    """Whether a deployment of `namespace` that asks for no route gets one at the chosen Gateway.

    The Gateway must exist, must not be in deletion, and must have a listener for HTTP that may admit the namespace.
    Its readiness does not count: a Gateway that is not programmed for a moment must not take routes away.
    """
    gateway, target = choice.gateway, choice.target
    if gateway is None or target is None or is_deleting(gateway):
        return False
    return any(
        admits(listener, gateway=target.gateway, namespace=namespace)
        for listener in listeners(gateway)
        if target.section in ("", listener.name)
    )
