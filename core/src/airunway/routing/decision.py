"""Decides what one pass of the gateway part does for a deployment: a pure function from facts to a decision.

The order of the questions is the order of `decide`: is routing asked for, may anything be changed, which Gateway, which
backend, which rules, and has the gateway accepted the route.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from airunway.api import names
from airunway.configs.resolution import RoutingRequest
from airunway.redaction import bounded
from airunway.resource import (
    Resource,
    condition_of,
    dig,
    is_deleting,
    number_at,
    text_at,
)
from airunway.routing.backends import Backend, BackendKind, NoBackendYet, live_backend, picker_state
from airunway.routing.changes import changes_of
from airunway.routing.claims import ClaimConflict, ClaimKind
from airunway.routing.gateways import Target, gateway_key, gateway_status, parent_of, parents_of, verdict_of
from airunway.routing.groups import group_status, mismatch, told
from airunway.routing.holding import holds_at_zero
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
from airunway.routing.parts import (
    announced_in,
    backend_in,
    holding_in,
    is_foreign_pool,
    kept_pool,
    labels_in,
    picker_in,
    pool_and_picker,
    wants_pool,
)
from airunway.routing.remarks import FIELD_OF_CLAIM, apart, as_served, asked_for, holding, lost_remarks
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
    settling: Condition | None = None
    """The condition for the first moments after a change of the shares, if it was True: the Gateway has not answered
    the newest generation of the route yet, and serves the one before.
    """
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
    shared = facts.held_rules or facts.lent_rules
    if shared and decision.condition is not None and decision.condition.reason == "WaitingForGateway":
        before = text_at(condition_of(deployment, CONDITION), "reason")
        settled = _of_group(
            facts, Verdict(ready=True, reason=before, message=""), own_path=_own_path(facts, intent), settled=True
        )
        decision = replace(decision, settling=_condition(settled))
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
    if facts.lent_rules:
        return replace(_lent(facts, intent, waiting=_no_backend(facts, intent)), objects=None, probe=False)
    if intent.request is not RoutingRequest.REQUIRED:
        return Decision(objects=None)
    reason, message = "WaitingForValidation", "the core has not validated this generation of the spec yet"
    if facts.rights is None:
        message = "the labels of the namespace have not been read yet: what it may have at a Gateway is not known"
    if facts.config_unusable:
        reason, message = "WaitingForConfig", "the runtime config cannot be used: see the condition RuntimeConfigReady"
    return replace(_not_ready(facts, intent, reason, message), transient=not facts.config_unusable)


def _no_backend(facts: Facts, intent: Intent) -> NoBackendYet | None:
    found = backend_in(facts, intent)
    return found if isinstance(found, NoBackendYet) else None


def _reported(facts: Facts, intent: Intent, live: Resource) -> Decision:
    """Nothing is changed; the status has the state of the live route."""
    verdict = verdict_of(live, gateways=facts.gateways, pool=facts.pool_behind)
    verdict, remarks, later = as_served(facts, verdict, parents_of(live))
    if facts.group is not None:
        verdict = _of_group(facts, verdict, own_path=_own_path(facts, intent))
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
    made = kept_pool(facts) if is_moved(facts, intent) else None
    return _not_ready(facts, intent, choice.reason or "NoGateway", choice.message, made=made)


def _with_user_route(facts: Facts, intent: Intent) -> Decision:
    """``httpRouteRef``: pool and picker are made, the route is the user's."""
    backend = backend_in(facts, intent)
    made: tuple[Resource, ...] | None = (
        pool_and_picker(facts, backend) if isinstance(backend, Backend) else kept_pool(facts)
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
            _not_ready(facts, intent, "ResourceConflict", message, made=kept_pool(facts)), requeue_after=CONFLICT_RETRY
        )
    if intent.path_problem:
        return _not_ready(facts, intent, intent.path_reason, intent.path_problem, made=kept_pool(facts))
    found = backend_in(facts, intent)
    shared = {kind: rule.backends for kind, rule in facts.held_rules.items() if rule.backends}
    if isinstance(found, NoBackendYet) and not shared:
        if facts.lent_rules:
            return _lent(facts, intent, waiting=found)
        waiting = _not_ready(facts, intent, found.reason, found.message, made=kept_pool(facts))
        # A provider that makes the pool itself waits for the backend in this status.
        return replace(waiting, transient=announced_in(facts, intent) is None)
    backend = found if isinstance(found, Backend) else None
    lost = {conflict.claim.kind for conflict in facts.conflicts} | set(facts.lent_rules)
    if backend is None:  # its route leads to the others of its group only
        lost |= set(ClaimKind) - set(shared)
    rules = RouteRules(
        path="" if ClaimKind.PATH in lost else intent.path,
        model_name="" if ClaimKind.MODEL_NAME in lost or intent.name_denied else intent.model_name,
    )
    if not rules and facts.lent_rules:
        return _lent(facts, intent, backend=backend)
    if not rules or (backend is None and not shared):
        if facts.group is not None and (problem := mismatch(facts.group)):
            return _not_ready(facts, intent, "GroupMismatch", problem, made=kept_pool(facts))
        if not asked_for(facts, intent) and (remarks := lost_remarks(facts, intent)):
            # Nobody asked for the model's name: that another deployment has it is no fault.
            return _silent(facts, intent, remarks)
        # A pool is not made for a deployment without any rule, and one that exists waits for the next rule.
        reason = _hindrance(facts, intent, backend or _NOWHERE, lost=facts.conflicts) or Verdict(
            ready=False,
            reason="ModelNameUnknown",
            message="neither a path nor a model name is known: set spec.gateway.pathTemplate or spec.gateway.modelName",
        )
        decision = _not_ready(facts, intent, reason.reason, reason.message, made=kept_pool(facts))
        return replace(decision, probe=intent.probe, transient=intent.probe)
    return _route_made(facts, intent, target, backend or _NOWHERE, rules)


_NOWHERE = Backend(kind=BackendKind.SERVICE, name="")
"""The backend of a deployment that has none yet, and whose route leads to others of its group."""


def _lent(
    facts: Facts, intent: Intent, *, backend: Backend | None = None, waiting: NoBackendYet | None = None
) -> Decision:
    """No route of its own: the route of another deployment of its group has all that it claims."""
    made = pool_and_picker(facts, backend) if backend is not None else kept_pool(facts)
    verdict = _of_group(facts, None)
    if waiting is not None and verdict.reason != "GroupMismatch":
        text = f"{verdict.message}; {waiting.message}"
        verdict = Verdict(ready=False, reason="WaitingForGroup", message=text)
    status = _status(
        facts,
        intent,
        ready=verdict.ready,
        target=intent.choice.target,
        backend=backend,
        rules=_lent_rules(facts, intent),
    )
    return Decision(objects=made, condition=_condition(verdict), gateway=status, probe=intent.probe)


def _lent_rules(facts: Facts, intent: Intent, own: RouteRules | None = None) -> RouteRules:
    """The rules by which requests reach the deployment: its own, and those of its group."""
    lent, own = facts.lent_rules, own or RouteRules()
    return RouteRules(
        path=own.path or (intent.path if ClaimKind.PATH in lent else ""),
        model_name=own.model_name or (intent.model_name if ClaimKind.MODEL_NAME in lent else ""),
    )


def _own_path(facts: Facts, intent: Intent) -> str:
    """The path that the deployment has for itself, beside what it shares."""
    others = {conflict.claim.kind for conflict in facts.conflicts} | set(facts.held_rules) | set(facts.lent_rules)
    return "" if ClaimKind.PATH in others or not facts.lent_rules else intent.path


def _of_group(facts: Facts, own: Verdict | None, *, own_path: str = "", settled: bool = False) -> Verdict:
    """The verdict on a route of a deployment that shares requests; `own` is that on its own route, None: it has none.

    The verdict on a shared rule is that on the holder's route. A deployment that is fine and has no share is True.
    `settled`: as if the Gateway had answered.
    """
    group = facts.group
    if group is None or (main := group.main) is None:
        own = own or Verdict(ready=False, reason="WaitingForGroup", message="no rule leads to the deployment yet")
        problem = mismatch(group) if group is not None and own.ready is True else ""
        return Verdict(ready=False, reason="GroupMismatch", message=problem) if problem else own
    text, verdict = told(group), own or main.route
    if not settled and verdict.ready is True and facts.lent_rules and main.route.ready is not True:
        verdict = main.route
    if verdict.ready is not True:
        return replace(verdict, message=f"{verdict.message}; {text}")
    if problem := mismatch(group):
        return Verdict(ready=False, reason="GroupMismatch", message=problem)
    if main.weightless and main.holder.key == facts.key:
        others = ", ".join(share.member.claimant.name for share in main.shares)
        return Verdict(
            ready=False,
            reason="GroupHasNoWeight",
            message=f"no deployment of group {group.me.group} has a weight above 0, so {facts.key.name} gets all "
            f"requests; set spec.gateway.weight of one of {others}",
        )
    if own_path:
        text = f"{text}; own path {own_path}"
    return replace(verdict, message=text)


def _route_made(facts: Facts, intent: Intent, target: Target, backend: Backend, rules: RouteRules) -> Decision:
    deployment, config = facts.deployment, facts.config
    shared = {kind: rule.backends for kind, rule in facts.held_rules.items() if rule.backends}
    chosen, pool_is_missing = picker_in(facts), backend.ours and facts.own_pool is None
    # A refused pool is written again in each pass. Until it exists, the route leads to the Service.
    target_of_rules = backend.as_service if pool_is_missing and facts.pool_refused and backend.service else backend
    own = {kind for kind, value in zip(ClaimKind, (rules.path, rules.model_name), strict=True) if value} - set(shared)
    timeout, timeout_remark = request_timeout(deployment, config, holds_at_zero=holds_at_zero(deployment))
    annotations, annotations_remark = annotations_for(deployment, config)
    wanted = route(
        facts.key.name,
        target=target,
        rules=rules,
        backend=target_of_rules,
        timeout=timeout,
        annotations=annotations,
        labels=labels_in(facts),
        # Our own picker may not understand a path before its rewrite; the provider's is the provider's.
        path_to_service=backend.ours and chosen is not None and not chosen.release.path_suffix,
        shared=shared,
    )
    verdict = verdict_of(facts.own_route, gateways=facts.gateways, pool=facts.pool_behind)
    transient = verdict.reason == "WaitingForGateway"
    told = [remark for remark in (timeout_remark, annotations_remark) if remark]
    warnings = [] if verdict.ready is False else lost_remarks(facts, intent)
    verdict, unserved_remarks, later = as_served(facts, verdict, [target])
    only_refusals = verdict.ready is False or bool(shared)
    if hindrance := _hindrance(facts, intent, backend, lost=facts.conflicts, only_refusals=only_refusals):
        verdict, transient, warnings = hindrance, False, []
    if facts.group is not None:
        verdict = _of_group(facts, verdict, own_path=_own_path(facts, intent))
    warnings += unserved_remarks
    if remarks := "; ".join((*told, *warnings)):
        verdict = replace(verdict, message=f"{verdict.message}; {remarks}")
    return Decision(
        objects=(*pool_and_picker(facts, backend), wanted),
        needs_pool=pool_is_missing and target_of_rules.kind is BackendKind.POOL and bool(own),
        condition=_condition(verdict),
        gateway=_status(
            facts,
            intent,
            ready=verdict.ready,
            target=target,
            backend=target_of_rules if target_of_rules is not _NOWHERE else None,
            rules=_lent_rules(facts, intent, rules),
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
    return Decision(objects=kept_pool(facts), gateway=status)


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
            f"{', '.join(map(holding, lost))}{apart(facts)}; change {' and '.join(fields)}",
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
    if is_foreign_pool(facts):
        return Verdict(
            ready=False,
            reason="ResourceConflict",
            message=f"InferencePool {facts.key.name} exists and is not owned by the "
            "deployment: delete it; the route goes to the Service",
        )
    if facts.picker_role is False and (backend.ours or wants_pool(facts)):
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
    kind = backend.kind if backend is not None else announced_in(facts, intent)
    if target is not None:
        gateway = next((found for found in facts.gateways if gateway_key(found) == target.gateway), None)
    holding, remark = holding_in(facts, backend)
    status = gateway_status(
        ready=ready is True,
        target=target,
        gateway=gateway,
        namespace=facts.key.namespace,
        path=intent.path if rules is None else rules.path,
        # The name is kept even without a rule: it is what a probe found, or what a conflict is about.
        model_name=intent.model_name,
        backend=kind.value if kind is not None else "",
        routed=rules is None or bool(rules),
        holding=holding,
        warnings=[*warnings, remark] if remark else warnings,
    )
    if facts.group is not None and (found := group_status(facts.group, facts.deployment)):
        status["group"] = found
    return status


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
