"""Decides what one pass of the gateway part does for a deployment: a pure function from facts to a decision.

The order of the questions is the order of `decide`: is routing asked for, may anything be changed, which Gateway, which
backend, which rules, and has the gateway accepted the route.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from airunway.api import names
from airunway.configs.resolution import BUILT_IN, RoutingRequest, propagated
from airunway.redaction import bounded
from airunway.resource import (
    Resource,
    condition_of,
    dig,
    is_deleting,
    mapping_at,
    number_at,
    text_at,
)
from airunway.routing.backends import (
    Backend,
    BackendKind,
    NoBackendYet,
    Picker,
    announced,
    backend_of,
    live_backend,
    live_pool,
    picker_for,
    picker_state,
    pool_objects,
)
from airunway.routing.changes import changes_of
from airunway.routing.claims import ClaimConflict, ClaimKind
from airunway.routing.gateways import Target, gateway_key, gateway_status, parent_of, parents_of, verdict_of
from airunway.routing.intent import (
    CONDITION,
    Facts,
    Intent,
    has_place,
    intent_of,
    is_moved,
    is_settled,
    is_suspended,
    keeps_unasked,
)
from airunway.routing.remarks import FIELD_OF_CLAIM, as_served, asked_for, holding, lost_remarks
from airunway.routing.routes import RouteRules, annotations_for, request_timeout, route, rules_in
from airunway.status.conditions import Condition, is_dry_run, is_paused
from airunway.status.reasons import Category, category_of
from airunway.status.rollup import Verdict

CONFLICT_RETRY = 60.0
"""Seconds until an object of another owner is looked at again."""

ROLE_RETRY = 30.0
"""Seconds until the ClusterRole of pickers is looked for again: no watch notices its creation."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What one pass does."""

    objects: tuple[Resource, ...] | None
    """All objects that shall exist, in the order of their creation; ours that are not listed are deleted.

    None: everything stays as it is.
    """
    condition: Condition | None = None
    """The condition GatewayReady; None: it is withdrawn."""
    gateway: Resource | None = None
    """``status.gateway``; None: it is withdrawn."""
    write_status: bool = True
    """False: the status stays as it is."""
    requeue_after: float | None = None
    """Seconds; None: only a watch brings the deployment back."""
    probe: bool = False
    """The model name must be asked from the model server."""
    transient: bool = False
    """It usually ends within moments: a first status can be left unwritten for so long."""
    observed_generation: int | None = None
    """Generation that the condition is about; None: the deployment's own."""
    needs_pool: bool = False
    """The route leads to a pool of ours that does not exist yet: without the pool it must not be written."""

    @property
    def makes_picker(self) -> bool:
        """Whether an endpoint picker of ours shall exist: only then the ClusterRole of pickers matters."""
        return any(text_at(obj, "kind") == "RoleBinding" for obj in self.objects or ())


# ---------------------------------------------------------------------------------------------------------- decision


def decide(facts: Facts, intent: Intent | None = None) -> Decision:
    """Decides one pass; `intent` is that of the facts, if it is known. Any JSON in the facts gives a decision, never an
    exception.
    """
    deployment = facts.deployment
    if is_deleting(deployment) or is_paused(deployment):
        # In deletion: the garbage collector removes what the deployment owns.
        return Decision(objects=None, write_status=False)
    intent = intent or intent_of(facts)
    decision = _decide(facts, intent)
    if intent.probe and intent.model_name:
        # The name in the status is that of an earlier generation. The condition's generation is the only record of
        # that: with the present one, no later pass and no other process would ask the model server again.
        named_for = number_at(condition_of(deployment, CONDITION), "observedGeneration")
        decision = replace(decision, observed_generation=named_for)
    if is_dry_run(deployment):
        return _dry(facts, intent, decision)
    return decision


def _decide(facts: Facts, intent: Intent) -> Decision:
    if intent.request is RoutingRequest.OFF:
        if facts.config_unusable and dig(facts.deployment, "spec", "gateway", "enabled") is not False:
            return Decision(objects=None, write_status=False)  # a config that is refused switches no route off
        return Decision(objects=())
    required = intent.request is RoutingRequest.REQUIRED
    if not is_settled(facts):
        return _watch(facts, intent)
    if is_suspended(facts.deployment):
        if not required:
            return Decision(objects=())
        return _not_ready(
            facts, intent, "Suspended", "spec.suspend is true: the route is removed, its path is free", made=()
        )
    if not facts.routes_served:
        if not required:
            return Decision(objects=None)
        message = f"HTTPRoute v1 is not served: install the Gateway API ({names.GATEWAY_GROUP}/v1)"
        return _not_ready(facts, intent, "GatewayAPINotInstalled", message)
    if intent.user_route:
        return _with_user_route(facts, intent)
    if not required and not has_place(facts, intent):
        return _unasked_without_place(facts, intent)
    if intent.choice.gateway is None:
        return _without_gateway(facts, intent)
    return _routed(facts, intent)


def _watch(facts: Facts, intent: Intent) -> Decision:
    """Nothing is changed; a route that exists is reported."""
    live = facts.own_route
    if live is not None:
        return _reported(facts, intent, live)
    if intent.request is not RoutingRequest.REQUIRED:
        return Decision(objects=None)
    reason, message = "WaitingForValidation", "the core has not validated this generation of the spec yet"
    if facts.rights is None:
        message = "the labels of the namespace have not been read yet: what it may have at a Gateway is not known"
    if facts.config_unusable:
        reason, message = "WaitingForConfig", "the runtime config cannot be used: see the condition RuntimeConfigReady"
    return replace(_not_ready(facts, intent, reason, message), transient=not facts.config_unusable)


def _reported(facts: Facts, intent: Intent, live: Resource) -> Decision:
    """Nothing is changed; the status has the state of the live route."""
    verdict = verdict_of(live, gateways=facts.gateways, pool=facts.pool_behind)
    verdict, remarks, later = as_served(facts, verdict, parents_of(live))
    if remarks:
        verdict = replace(verdict, message="; ".join((verdict.message, *remarks)))
    backend = live_backend(facts.deployment, route=live, pool=facts.own_pool)
    status = _status(facts, intent, ready=verdict.ready, target=parent_of(live), backend=backend, warnings=remarks)
    return Decision(objects=None, condition=_condition(verdict), gateway=status, requeue_after=later)


def _unasked_without_place(facts: Facts, intent: Intent) -> Decision:
    """No route is made; one that exists may stay (`keeps_unasked`)."""
    live, chosen = facts.own_route, intent.choice
    if live is None or not keeps_unasked(facts, intent):
        return Decision(objects=())
    if chosen.gateway is None and chosen.named_by:  # the named Gateway is away
        return Decision(objects=None)
    return _reported(facts, intent, live)


def _without_gateway(facts: Facts, intent: Intent) -> Decision:
    """A route stays while its Gateway is away, unless another one is asked for now."""
    choice = intent.choice
    # Pool and picker stay in any case: the next Gateway needs them again.
    made = _kept_pool(facts) if is_moved(facts, intent) else None
    return _not_ready(facts, intent, choice.reason or "NoGateway", choice.message, made=made)


def _with_user_route(facts: Facts, intent: Intent) -> Decision:
    """``httpRouteRef``: pool and picker are made, the route is the user's."""
    backend = _backend(facts, intent)
    made: tuple[Resource, ...] | None = (
        _pool_and_picker(facts, backend) if isinstance(backend, Backend) else _kept_pool(facts)
    )
    if facts.user_route is None:
        message = (
            f"spec.gateway.httpRouteRef names HTTPRoute {intent.user_route}, which does not exist in this namespace: "
            "create it, or remove the field"
        )
        return _not_ready(facts, intent, "ReferenceNotFound", message, made=made)
    verdict = verdict_of(facts.user_route, gateways=facts.gateways, pool=facts.pool_behind)
    found = backend if isinstance(backend, Backend) else None
    if isinstance(backend, NoBackendYet):
        verdict = Verdict(ready=False, reason=backend.reason, message=backend.message)
    elif verdict.ready:
        verdict = _hindrance(facts, intent, backend, lost=()) or verdict
    verdict, remarks, later = as_served(facts, verdict, parents_of(facts.user_route))
    if remarks:
        verdict = replace(verdict, message="; ".join((verdict.message, *remarks)))
    return Decision(
        objects=made,
        condition=_condition(verdict),
        gateway=_status(
            facts,
            intent,
            ready=verdict.ready,
            target=parent_of(facts.user_route),
            backend=found,
            rules=None,
            warnings=remarks,
        ),
        probe=intent.probe and found is not None,
        requeue_after=later,
    )


def _routed(facts: Facts, intent: Intent) -> Decision:
    target = intent.choice.target
    if target is None:
        return _without_gateway(facts, intent)
    if facts.route is not None and facts.own_route is None:
        message = (
            f"HTTPRoute {facts.key.name} exists and is not owned by the deployment: "
            "delete it, or name it in spec.gateway.httpRouteRef"
        )
        return replace(
            _not_ready(facts, intent, "ResourceConflict", message, made=_kept_pool(facts)), requeue_after=CONFLICT_RETRY
        )
    if intent.path_problem:
        return _not_ready(facts, intent, intent.path_reason, intent.path_problem, made=_kept_pool(facts))
    backend = _backend(facts, intent)
    if isinstance(backend, NoBackendYet):
        waiting = _not_ready(facts, intent, backend.reason, backend.message, made=_kept_pool(facts))
        # A provider that makes the pool itself waits for the backend in this status.
        return replace(waiting, transient=_announced(facts, intent) is None)
    lost = {conflict.claim.kind for conflict in facts.conflicts}
    rules = RouteRules(
        path="" if ClaimKind.PATH in lost else intent.path,
        model_name="" if ClaimKind.MODEL_NAME in lost or intent.name_denied else intent.model_name,
    )
    if not rules:
        if not asked_for(facts, intent) and (remarks := lost_remarks(facts, intent)):
            # Nobody asked for the model's name: that another deployment has it is no fault.
            return _silent(facts, intent, remarks)
        # A pool is not made for a deployment without any rule, and one that exists waits for the next rule.
        reason = _hindrance(facts, intent, backend, lost=facts.conflicts) or Verdict(
            ready=False,
            reason="ModelNameUnknown",
            message="neither a path nor a model name is known: set spec.gateway.pathTemplate or spec.gateway.modelName",
        )
        decision = _not_ready(facts, intent, reason.reason, reason.message, made=_kept_pool(facts))
        return replace(decision, probe=intent.probe, transient=intent.probe)
    return _route_made(facts, intent, target, backend, rules)


def _route_made(facts: Facts, intent: Intent, target: Target, backend: Backend, rules: RouteRules) -> Decision:
    deployment, config = facts.deployment, facts.config
    chosen, pool_is_missing = _picker(facts), backend.ours and facts.own_pool is None
    # A refused pool is written again in each pass. Until it exists, the route leads to the Service.
    target_of_rules = backend.as_service if pool_is_missing and facts.pool_refused and backend.service else backend
    timeout, timeout_remark = request_timeout(deployment, config)
    annotations, annotations_remark = annotations_for(deployment, config)
    wanted = route(
        facts.key.name,
        target=target,
        rules=rules,
        backend=target_of_rules,
        timeout=timeout,
        annotations=annotations,
        labels=_labels(facts),
        # Our own picker may not understand a path before its rewrite; the provider's is the provider's.
        path_to_service=backend.ours and chosen is not None and not chosen.release.path_suffix,
    )
    verdict = verdict_of(facts.own_route, gateways=facts.gateways, pool=facts.pool_behind)
    transient = verdict.reason == "WaitingForGateway"
    told = [remark for remark in (timeout_remark, annotations_remark) if remark]
    warnings = [] if verdict.ready is False else lost_remarks(facts, intent)
    verdict, unserved_remarks, later = as_served(facts, verdict, [target])
    if hindrance := _hindrance(facts, intent, backend, lost=facts.conflicts, only_refusals=verdict.ready is False):
        verdict, transient, warnings = hindrance, False, []
    warnings += unserved_remarks
    if remarks := "; ".join((*told, *warnings)):
        verdict = replace(verdict, message=f"{verdict.message}; {remarks}")
    return Decision(
        objects=(*_pool_and_picker(facts, backend), wanted),
        needs_pool=pool_is_missing and target_of_rules.kind is BackendKind.POOL,
        condition=_condition(verdict),
        gateway=_status(
            facts,
            intent,
            ready=verdict.ready,
            target=target,
            backend=target_of_rules,
            rules=rules,
            warnings=warnings,
        ),
        probe=intent.probe,
        transient=transient,
        requeue_after={"ResourceConflict": CONFLICT_RETRY, "Forbidden": ROLE_RETRY}.get(verdict.reason, later),
    )


def _silent(facts: Facts, intent: Intent, warnings: Sequence[str]) -> Decision:
    """No route, and no condition: what hinders it is a warning."""
    target = intent.choice.target
    status = _status(facts, intent, ready=False, target=target, backend=None, rules=RouteRules(), warnings=warnings)
    return Decision(objects=_kept_pool(facts), gateway=status)


def _hindrance(
    facts: Facts, intent: Intent, backend: Backend, *, lost: Sequence[ClaimConflict], only_refusals: bool = False
) -> Verdict | None:
    """What is missing although a route may be accepted: a rule, or the picker behind it.

    `only_refusals` leaves out the picker's own state, so that a gateway's refusal of the route is reported first.
    """
    asked = asked_for(facts, intent)
    missing = {entry.claim.kind for entry in lost} | ({ClaimKind.MODEL_NAME} if intent.name_denied else set())
    if lost and asked <= missing:
        fields = dict.fromkeys(FIELD_OF_CLAIM[entry.claim.kind] for entry in lost)
        return Verdict(
            ready=False,
            reason="RouteConflict",
            message=f"another deployment on Gateway {lost[0].claim.gateway} was first: "
            f"{', '.join(map(holding, lost))}; change {' and '.join(fields)}",
        )
    if intent.name_denied and not intent.user_route and asked <= missing:
        remedy = f"set {FIELD_OF_CLAIM[ClaimKind.MODEL_NAME]}"
        return Verdict(ready=False, reason="ModelNameNotAllowed", message=f"{intent.name_denied}: {remedy}")
    if intent.path_unsupported:
        return Verdict(
            ready=False,
            reason="PathRoutingNotSupported",
            message="the engine of this provider cannot be served under a path: only the rule for the model name is "
            "made; remove the path template, or choose another provider",
        )
    if not intent.user_route and not intent.model_name and not intent.probe:
        return Verdict(ready=False, reason="ModelNameUnknown", message=intent.name_problem)
    if _is_foreign_pool(facts):
        return Verdict(
            ready=False,
            reason="ResourceConflict",
            message=f"InferencePool {facts.key.name} exists and is not owned by the "
            "deployment: delete it; the route goes to the Service",
        )
    if facts.picker_role is False and (backend.ours or _wants_pool(facts)):
        what = "the endpoint picker may read nothing" if backend.ours else "the route goes to the Service and no pool"
        return Verdict(
            ready=False,
            reason="Forbidden",
            message=f"{what}: ClusterRole {names.ENDPOINT_PICKER_ROLE} does not exist; run: {facts.flags.role_command}",
        )
    if only_refusals or not backend.ours:
        return None
    state = picker_state(
        facts.key.name,
        pool=facts.own_pool,
        deployment=facts.own(facts.picker),
        backend=backend,
    )
    if state.ready:
        return None
    if state.reason == "ResourceConflict":
        return Verdict(ready=False, reason=state.reason, message=state.message)
    waits = category_of(state.reason) is Category.PROGRESS
    return Verdict(
        ready=False, reason="WaitingForPool" if waits else state.reason, message=f"{state.message}; {_WITHOUT_PICKER}"
    )


_WITHOUT_PICKER = (
    "without a picker the gateway chooses a pod itself (FailOpen), but while the pod of a crashed picker still counts "
    "as Ready, Envoy answers requests that have a body with 500"
)


# ------------------------------------------------------------------------------------------------------------- parts


def _picker(facts: Facts) -> Picker | None:
    found = picker_for(facts.flags.epp_image, version=facts.flags.epp_version, engine=facts.engine)
    return found if isinstance(found, Picker) else None


def _announced(facts: Facts, intent: Intent) -> BackendKind | None:
    """The backend that the provider is given before it makes anything, where routing was asked for."""
    if intent.request is not RoutingRequest.REQUIRED:
        return None
    return announced(facts.deployment, engine=facts.engine, pools_served=facts.pools_served)


def _is_foreign_pool(facts: Facts) -> bool:
    """Whether the name of the pool that we would make is taken."""
    if facts.pool is None or facts.own_pool is not None or not facts.pools_served:
        return False
    name = facts.key.name
    if text_at(facts.deployment, "status", "endpoint", "pool", "name") == name:
        return False
    return _wants_pool(facts)


def _wants_pool(facts: Facts) -> bool:
    """Whether the backend would be a pool of ours, if nothing hindered it."""
    wanted = backend_of(
        facts.deployment, engine=facts.engine, pools_served=facts.pools_served, picker=True, await_pool=False
    )
    return isinstance(wanted, Backend) and wanted.ours


def _backend(facts: Facts, intent: Intent) -> Backend | NoBackendYet:
    """The backend; that of the live route while the endpoint is not reported, or the provider's capabilities are not
    known.
    """
    if facts.engine is None and (known := _live_backend(facts)) is not None:
        return known
    # No pool is made while its picker could read nothing; one that exists stays.
    lacks_role = facts.picker_role is False and facts.own_pool is None
    found = backend_of(
        facts.deployment,
        engine=facts.engine,
        pools_served=facts.pools_served,
        picker=_picker(facts) is not None and not _is_foreign_pool(facts) and not lacks_role,
        await_pool=_announced(facts, intent) is BackendKind.POOL,
    )
    if isinstance(found, Backend):
        return found
    return _live_backend(facts) or found


def _live_backend(facts: Facts) -> Backend | None:
    """The backend of the live route; None if there is none, or it is a pool and pools are not served."""
    pool = facts.own_pool if _picker(facts) is not None else None
    kept = live_backend(facts.deployment, route=facts.own_route, pool=pool)
    return None if kept is None or (kept.kind is BackendKind.POOL and not facts.pools_served) else kept


def _labels(facts: Facts) -> dict[str, str]:
    labels = mapping_at(facts.deployment, "metadata", "labels")
    return propagated({key: value for key, value in labels.items() if isinstance(value, str)}, facts.config)


def _pool_and_picker(facts: Facts, backend: Backend) -> tuple[Resource, ...]:
    chosen = _picker(facts)
    if not backend.ours or chosen is None:
        return ()
    return tuple(
        pool_objects(
            facts.key.name,
            backend=backend,
            chosen=chosen,
            pull_secrets=(facts.config or BUILT_IN).image_pull_secrets,
            labels=_labels(facts),
            destination_rule=facts.destination_rule,
        )
    )


def _kept_pool(facts: Facts) -> tuple[Resource, ...]:
    """Pool and picker that exist already, for a pass that makes no route: nothing new is made."""
    live = facts.own_pool
    if live is None or not facts.pools_served:
        return ()
    found = backend_of(
        facts.deployment,
        engine=facts.engine,
        pools_served=True,
        picker=_picker(facts) is not None,
    )
    if isinstance(found, NoBackendYet):
        found = live_pool(facts.deployment, live) or found
    if not (isinstance(found, Backend) and found.ours):
        return ()
    return _pool_and_picker(facts, found)


# ------------------------------------------------------------------------------------------------------------ status


def _condition(verdict: Verdict) -> Condition:
    return Condition(type=CONDITION, status=verdict.ready, reason=verdict.reason, message=bounded(verdict.message))


def _not_ready(
    facts: Facts,
    intent: Intent,
    reason: str,
    message: str,
    *,
    made: tuple[Resource, ...] | None = None,
) -> Decision:
    """A decision without a ready route: GatewayReady=False with this reason."""
    return Decision(
        objects=made,
        condition=_condition(Verdict(ready=False, reason=reason, message=message)),
        gateway=_status(facts, intent, ready=False, target=intent.choice.target, backend=None, rules=RouteRules()),
    )


def _status(
    facts: Facts,
    intent: Intent,
    *,
    ready: bool | None,
    target: Target | None,
    backend: Backend | None,
    rules: RouteRules | None = None,
    warnings: Sequence[str] = (),
) -> Resource:
    """``status.gateway``; `rules` are those that are made (None: as the deployment wants them)."""
    gateway = None
    kind = backend.kind if backend is not None else _announced(facts, intent)
    if target is not None:
        gateway = next((found for found in facts.gateways if gateway_key(found) == target.gateway), None)
    return gateway_status(
        ready=ready is True,
        target=target,
        gateway=gateway,
        namespace=facts.key.namespace,
        path=intent.path if rules is None else rules.path,
        # The name is kept even without a rule: it is what a probe found, or what a conflict is about.
        model_name=intent.model_name,
        backend=kind.value if kind is not None else "",
        routed=rules is None or bool(rules),
        warnings=warnings,
    )


def _dry(facts: Facts, intent: Intent, decision: Decision) -> Decision:
    """The same without changes: the status has what is there, and the message says what would be."""
    if decision.objects is None:
        return replace(decision, probe=False)
    changes, live, found = changes_of(facts, decision.objects), facts.own_route, decision.condition
    if not any(changes.values()) and not decision.objects and found is None:
        return replace(decision, objects=None, probe=False)
    would = "; ".join(f"would {verb} {', '.join(names)}" for verb, names in changes.items() if names)
    would = f"dry run: {would or 'would change nothing'}"
    moves = any(each.startswith("HTTPRoute ") for names in changes.values() for each in names)
    goes = any(each.startswith("HTTPRoute ") for each in changes["delete"])
    if found is not None and found.status is not True and (goes if live is not None else not changes["create"]):
        would = f"{would}: {found.reason}: {found.message}"
    gateway = decision.gateway
    if live is not None:
        seen = verdict_of(live, gateways=facts.gateways, pool=facts.pool_behind)
        gateway = _live_status(facts, intent, live, ready=seen.ready)
        shown = found if found is not None and not moves else _condition(seen)
    elif found is not None and found.status is True and not any(changes.values()):
        shown = found
    else:
        shown = None
    condition = (
        Condition(type=CONDITION, status=False, reason="DryRun", message=bounded(would))
        if shown is None
        else replace(shown, message=bounded(f"{shown.message}; {would}"))
    )
    return replace(decision, objects=None, condition=condition, gateway=gateway, probe=False, transient=False)


def _live_status(facts: Facts, intent: Intent, live: Resource, *, ready: bool | None) -> Resource:
    """``status.gateway`` by the route that exists, whatever is asked for now."""
    rules = rules_in(live)
    return _status(
        facts,
        replace(intent, model_name=rules.model_name or intent.model_name),
        ready=ready,
        target=parent_of(live),
        backend=live_backend(facts.deployment, route=live, pool=facts.own_pool),
        rules=rules,
    )
