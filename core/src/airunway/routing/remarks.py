"""What is said of a route although it may work: rules that others hold, and a Gateway that serves nothing. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from airunway.configs.resolution import BUILT_IN, RoutingRequest
from airunway.resource import Resource, condition_of, text_at
from airunway.routing.claims import ClaimConflict, ClaimKind
from airunway.routing.gateways import Target, gateway_key, unserved
from airunway.routing.intent import CONDITION, Facts, Intent
from airunway.status.rollup import Verdict

FIELD_OF_CLAIM = {ClaimKind.PATH: "spec.gateway.pathTemplate", ClaimKind.MODEL_NAME: "spec.gateway.modelName"}
"""The field by which a deployment claims something else."""


def asked_for(facts: Facts, intent: Intent) -> frozenset[ClaimKind]:
    """The rules that the deployment, or its config, asks for."""
    asked = set()
    if intent.request is RoutingRequest.REQUIRED:
        asked.add(ClaimKind.PATH if intent.path else ClaimKind.MODEL_NAME)
    if text_at(facts.deployment, "spec", "gateway", "modelName"):
        asked.add(ClaimKind.MODEL_NAME)
    return frozenset(asked)


def lost_remarks(facts: Facts, intent: Intent) -> list[str]:
    """What is to be said of rules that are left out although others serve the model."""
    found = [
        f"{holding(entry)}: requests do not reach this deployment by it; change {FIELD_OF_CLAIM[entry.claim.kind]}"
        for entry in facts.conflicts
    ]
    if intent.name_denied:
        found.append(f"{intent.name_denied}: set {FIELD_OF_CLAIM[ClaimKind.MODEL_NAME]}")
    return found


def holding(entry: ClaimConflict) -> str:
    """Who has what a deployment claims, such as ``path /ml/a/b (ModelDeployment x/y holds /ml/a)``."""
    group = f" of group {entry.group}" if entry.group else ""
    held = (
        f"ModelDeployment {entry.holder}{group} holds {entry.held}"
        if entry.held
        else f"held by ModelDeployment {entry.holder}{group}"
    )
    return f"{entry.claim.kind} {entry.claim.value} ({held})"


def apart(facts: Facts) -> str:
    """The deployment's own group, where a deployment of another group of its namespace holds what it claims."""
    own = text_at(facts.deployment, "spec", "gateway", "group")
    others = any(each.group and each.holder.namespace == facts.key.namespace for each in facts.conflicts)
    return f" (spec.gateway.group of this deployment is {own or 'not set'})" if others else ""


def as_served(facts: Facts, verdict: Verdict, targets: Sequence[Target]) -> tuple[Verdict, list[str], float | None]:
    """The verdict on an accepted route with what its Gateways say of themselves, remarks, and the seconds after which
    it changes by time alone.

    A Gateway that is not programmed, or has no address, for a moment takes nothing from what has answered. After the
    grace period of the config's ``statusPolicy`` it is a fault.
    """
    found = [each for each in map(unserved, _those(facts, targets)) if each is not None]
    if not found or verdict.ready is not True:
        return verdict, [], None
    said = "; ".join(f"{each}: no request reaches it" for each in found)
    grace = (facts.config or BUILT_IN).status_policy.grace.total_seconds()
    begun = [min(each.since or facts.now, facts.unserved.get(each.gateway, facts.now)) for each in found]
    left = grace - (facts.now - min(begun)).total_seconds()
    if left <= 0:
        return Verdict(ready=False, reason="GatewayNotProgrammed", message=said), [], None
    if (condition_of(facts.deployment, CONDITION) or {}).get("status") == "True":
        return verdict, [said], left
    return Verdict(ready=False, reason="WaitingForGateway", message=said), [], left


def _those(facts: Facts, targets: Sequence[Target]) -> list[Resource]:
    wanted = {target.gateway for target in targets}
    return [gateway for gateway in facts.gateways if gateway_key(gateway) in wanted]
