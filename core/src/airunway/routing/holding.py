"""Whether a request waits for the first replica of a deployment that was scaled to zero (docs/autoscaling.md).

Only an endpoint picker holds requests. The gateway part configures it for that, and says in
``status.gateway.holdsRequests`` whether it does; the provider's process, which scales, goes by that.
"""

from __future__ import annotations

from dataclasses import dataclass

from airunway.resource import Resource, dig, entries_at, mapping_at, text_at
from airunway.routing.backends import Backend, BackendKind, Picker
from airunway.sdk import picker as picker_sdk


def holds_at_zero(deployment: Resource) -> bool:
    """Whether requests shall wait while no replica runs: ``spec.scaling.autoscaling.minReplicas`` is 0.

    `deployment` has its effective spec. All that is made for it follows from this function.
    """
    least = dig(deployment, "spec", "scaling", "autoscaling", "minReplicas")
    return least == 0 and not isinstance(least, bool)


@dataclass(frozen=True, kw_only=True)
class Holding:
    """Where requests wait, or why they do not."""

    pool: str = ""
    """The InferencePool whose picker holds them; empty: they do not wait."""
    problem: str = ""
    """Why not, and what to do."""


def holds_requests(deployment: Resource) -> Holding:
    """Whether the last replica may go: from the status of a deployment whose ``minReplicas`` is 0."""
    gateway = mapping_at(deployment, "status", "gateway")
    if gateway.get("holdsRequests") is True:
        pool = text_at(deployment, "status", "endpoint", "pool", "name")
        return Holding(pool=pool or text_at(deployment, "metadata", "name"))
    if not text_at(gateway, "gatewayName"):
        return Holding(
            problem="no gateway routes to the model, so nothing would hold a request while no replica runs: see "
            "spec.gateway and the condition GatewayReady"
        )
    for warning in gateway.get("warnings") or ():
        if isinstance(warning, str) and warning.startswith(NOT_HELD):
            return Holding(problem=warning)
    return Holding(problem="the endpoint picker is not ready to hold requests: see the condition GatewayReady")


NOT_HELD = "one replica always runs"
"""How the warnings about requests that are not held begin."""


def held(
    deployment: Resource,
    *,
    backend: Backend,
    chosen: Picker | None,
    picker: Resource | None,
    user_route: Resource | None = None,
) -> tuple[bool, str]:
    """Whether requests wait in front of `backend`, and a remark if they never will.

    `chosen` is our own picker and `picker` its live Deployment; `user_route` is the route that a user has written.
    """
    if backend.kind is not BackendKind.POOL:
        return False, (
            f"{NOT_HELD}: requests go to Service {backend.service} without an endpoint picker, and only that would "
            "hold them; use an engine and a provider with an InferencePool, or set minReplicas to 1"
        )
    if user_route is not None and not _leads_to(user_route, backend.name):
        return False, (
            f"{NOT_HELD}: HTTPRoute {text_at(user_route, 'metadata', 'name')} does not lead to InferencePool "
            f"{backend.name}, whose endpoint picker would hold requests; name the pool in it, or set minReplicas to 1"
        )
    if not backend.ours:
        found = dig(deployment, "status", "endpoint", "pool", "holdsRequests")
        if isinstance(found, bool):
            return found, ""
        return False, (
            f"{NOT_HELD}: the endpoint picker that the provider runs for InferencePool {backend.name} does not hold "
            "requests; give the provider an llm-d router of release 0.10 or newer, or set minReplicas to 1"
        )
    if chosen is None or chosen.config:
        return False, (
            f"{NOT_HELD}: the provider brings its own configuration of the endpoint picker, which is not known to "
            "hold requests; set minReplicas to 1"
        )
    if not chosen.release.holds:
        return False, (
            f"{NOT_HELD}: the endpoint picker {chosen.release.title} holds no requests; set --epp-image to an llm-d "
            "router of release 0.10 or newer, or minReplicas to 1"
        )
    return picker_sdk.holds(picker), ""


def _leads_to(route: Resource, pool: str) -> bool:
    refs = (ref for rule in entries_at(route, "spec", "rules") for ref in entries_at(rule, "backendRefs"))
    return any(text_at(ref, "kind") == "InferencePool" and text_at(ref, "name") == pool for ref in refs)
