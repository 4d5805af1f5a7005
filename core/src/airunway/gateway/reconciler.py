"""Reconciles the route of one ModelDeployment (docs/routing.md).

A pass is: facts from the caches → decision (`routing.decision`) → writes → status. Example: the Gateway accepts
the route, its status changes, and the pass writes one status with ``GatewayReady=True``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from airunway.api import names
from airunway.configs.resolution import awaits_verdict, is_refused
from airunway.gateway.caches import DESTINATION_RULE, GATEWAY, HTTP_ROUTE, INFERENCE_POOL, PICKER_KINDS, GatewayCaches
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import CLUSTER_ROLE, Client, EventRecorder, KubeError, MutationCache, StatusWriter, soonest
from airunway.owned.apply import Applied, WriteHistory, apply_objects
from airunway.owned.objects import complete, identity_in, is_ours, our_labels
from airunway.owned.writer import REFUSED_RETRY, Writer
from airunway.process.logs import log_phase
from airunway.process.memories import Memories
from airunway.process.runtime_configs import RuntimeConfigs
from airunway.resource import ObjectKey, Resource, condition_of, dig, is_deleting, key_of, text_at, uid_of
from airunway.routing.claims import Claim, Claimant, ClaimKind, Claims
from airunway.routing.decision import Decision, decide
from airunway.routing.gateways import Target, gateway_key, is_shut_out, parents_of, unserved, verdict_of
from airunway.routing.groups import Group, Member, SharedRule, recorded_group, shares
from airunway.routing.intent import (
    CONDITION,
    MARK,
    Facts,
    Flags,
    Intent,
    Probe,
    claimant_in,
    claims_of,
    intent_of,
    served_of,
)
from airunway.routing.parts import member_of
from airunway.routing.rights import RouteRights
from airunway.routing.routes import claims_in
from airunway.sdk.picker import ACCOUNT
from airunway.status.conditions import SERVED, Condition, conditions_in, is_dry_run, is_paused, written
from airunway.status.events import ConditionEvents
from airunway.status.rollup import Verdict

log = logging.getLogger(__name__)

_TRANSIENT = 2.0
"""Seconds for which a first status waits for a state that usually lasts for moments only."""

_HANDOVER = 3.0
"""Seconds for which the route of a deployment in deletion waits for the route of the next one."""

_ONE_A_MINUTE = 60.0
"""Seconds between two events about the shares of a group."""

_LOOK = 0.25
"""Seconds between two looks at that one."""

_MOST_PARENTS = 32
"""Parents that an HTTPRoute may have (Gateway API)."""

_ROLE_KNOWN = 60.0
"""Seconds for which it is remembered that the ClusterRole of pickers exists."""

_ROLE_RETRY = 15.0
"""Seconds until a ClusterRole of pickers that was not found is looked for again."""


@dataclass(kw_only=True)
class _Memory:
    """What is remembered of one deployment; nothing depends on it after a restart."""

    history: WriteHistory = field(default_factory=WriteHistory)
    """Recent creations and reverts."""
    probe: Probe | None = None
    """The newest answer of the model server."""
    pool_refused: bool = False
    """The API server refused the pool, or an object of its picker, and there is no pool."""
    seen_by_group: object = None
    """What the others of its group have been woken for: its backend, readiness and weight, the state of its route."""
    shares: str | None = None
    """What was last announced of the shares of its group."""
    announced: datetime | None = None
    deleted_since: datetime | None = None
    """When it was first known to be in deletion."""
    settling_since: datetime | None = None
    """When the route of its group was last changed, and the Gateway had not answered yet."""
    left_since: datetime | None = None
    """When its route began to wait for the next holder of what it shares with its former group."""
    waiting_since: datetime | None = None
    """When a transient state without a status began."""


class RouteReconciler:
    """Reconciles routes, pools and pickers. `ask(deployment)` starts a probe of a model server and returns at once."""

    def __init__(
        self,
        *,
        client: Client,
        deployments: MutationCache,
        caches: GatewayCaches,
        configs: RuntimeConfigs,
        engine_of: Callable[[Resource], Resource | None],
        claims: Claims,
        events: EventRecorder,
        flags: Flags,
        ask: Callable[[Resource], None],
        rights_of: Callable[[str], RouteRights | None],
        wake: Callable[[ObjectKey], None],
        clock: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._deployments = deployments
        self._caches = caches
        self._configs = configs
        self._engine_of = engine_of
        self._claims = claims
        self._events = events
        self._flags = flags
        self._ask = ask
        self._rights_of = rights_of
        self._wake = wake
        self._clock = clock
        self._writer = Writer(client=client, manager=names.GATEWAY_MANAGER, kind_of=caches.view_of)
        self._status = StatusWriter(
            client=client, kind=MODEL_DEPLOYMENT, objects=deployments, manager=names.GATEWAY_MANAGER, on_write=log_phase
        )
        self._memories = Memories(_Memory)
        self._refused: dict[str, set[Target]] = {}
        """Where a Gateway has last refused a route, by namespace."""
        self._unserved: dict[ObjectKey, datetime] = {}
        """Since when Gateways have been seen without an address, or not programmed."""
        self._role: tuple[bool | None, datetime | None] = (None, None)
        self._role_lock = asyncio.Lock()

    # ---------------------------------------------------------------------------------------------------------- claims

    def claim(self, key: ObjectKey, deployment: Resource | None) -> None:
        """Update the deployment's claims, and wake the deployments whose conflicts may have changed."""
        if deployment is None or is_deleting(deployment):
            woken = self._claims.drop(key)
        else:
            woken = self._put(deployment, self._wanted(deployment))
        self._wake_all(woken)

    def _put(self, deployment: Resource, facts: Facts, intent: Intent | None = None) -> frozenset[ObjectKey]:
        claims, claimant = claims_of(facts, intent), claimant_in(facts, intent)
        return self._claims.put(claimant, claims, served_of(facts, claims, claimant))

    def _wake_all(self, woken: Iterable[ObjectKey]) -> None:
        for other in woken:
            self._wake(other)

    def forget(self, key: ObjectKey) -> None:
        """Drop memory and claims of a deployment that is gone, and wake the deployments that may get its claims."""
        self._memories.forget(key)
        self.claim(key, None)

    def claim_all(self, deployments: list[Resource]) -> None:
        """Compute all claims anew; nothing is woken, because every deployment is reconciled afterwards.

        The memory of deployments that were deleted while another process led is dropped.
        """
        self._memories.keep({key_of(deployment) for deployment in deployments})

        def claimed(deployment: Resource) -> tuple[Claimant, tuple[Claim, ...], frozenset[Claim]]:
            facts = self._wanted(deployment)
            claims, claimant = claims_of(facts), claimant_in(facts)
            return claimant, claims, served_of(facts, claims, claimant)

        self._claims.rebuild(claimed(deployment) for deployment in deployments if not is_deleting(deployment))

    def note_probe(self, deployment: Resource, probe: Probe) -> None:
        """Remember the answer of a model server, if the deployment that was asked still exists. The caller has to
        reconcile it next.
        """
        live = self._deployments.get(key_of(deployment))
        if live is not None and uid_of(live) == uid_of(deployment):
            self._memories.of(live).probe = probe

    # ------------------------------------------------------------------------------------------------------- reconcile

    async def reconcile(self, key: ObjectKey) -> float | None:
        """Reconcile one deployment; returns the seconds until the next reconcile, or None. Raises KubeError for a
        transient failure: the queue retries.
        """
        deployment = self._deployments.get(key)
        if deployment is None:
            self.forget(key)
            return None
        if is_deleting(deployment):
            self.claim(key, None)
            return await self._release(deployment)
        if awaits_verdict(deployment, self._configs.resolve(deployment).config):
            return None  # the core's write brings the next pass
        memory, wanted = self._memories.of(deployment), self._wanted(deployment)
        intent = intent_of(wanted)
        self._wake_all(self._put(deployment, wanted, intent))
        self._leave_group(deployment, wanted, intent)
        facts = self._facts(wanted, intent, memory)
        self._wake_group(facts, intent, memory)
        decision, retry = decide(facts, intent), None
        if decision.makes_picker and await self._has_role() is False:
            wanted = replace(wanted, picker_role=False)
            facts, retry = replace(facts, picker_role=False), _ROLE_RETRY
            decision = decide(facts, intent)
        if decision.probe and self._may_ask(deployment):
            self._ask(deployment)
        if (left := self._awaits_holder(facts, decision, memory)) is not None:
            return left
        trouble: Condition | None = None
        if decision.objects is not None:
            applied = await self._carry_out(deployment, decision, memory)
            if memory.pool_refused != facts.pool_refused:
                return 0.0  # the route gets another backend in the next pass
            if decision.condition is not None or decision.objects:
                trouble = _trouble(applied)
            retry = soonest(retry, applied.again, REFUSED_RETRY if applied.refused else None)
            if applied.changed:  # no Gateway has answered about what was just written
                wanted = replace(wanted, route=self._caches.find(HTTP_ROUTE, key))
                decision = decide(self._facts(wanted, intent, memory), intent)
        late = await self._report(deployment, decision, trouble or decision.condition, memory)
        return soonest(decision.requeue_after, retry, late, self._announce_shares(facts, memory))

    # ---------------------------------------------------------------------------------------------------------- groups

    def _group_of(self, facts: Facts, intent: Intent) -> Group | None:
        """What the deployment shares with others of its group; None if nothing."""
        me = claimant_in(facts, intent)
        mates = self._claims.group(me) if me.group else ()
        if len(mates) < 2 or me not in mates:
            return None
        targets = {mate: self._target_of(mate.key, facts, intent, me) for mate in mates}
        elsewhere = ""
        for mate in mates:
            if mate < me and targets[mate] is not None and targets[me] is not None and targets[mate] != targets[me]:
                elsewhere = f"ModelDeployment {mate.name}, which is older, is on Gateway {targets[mate]}"
                break
        members: dict[Claimant, Member] = {}
        rules: dict[ClaimKind, SharedRule] = {}
        for claim, (holder, sharing) in self._claims.shared(me.key).items():
            if claim.kind in rules or claim.value not in (intent.path, intent.model_name):
                continue
            for mate in sharing:
                if mate not in members and (found := self._member(mate, facts, intent, me)) is not None:
                    members[mate] = found
            route = self._caches.find(HTTP_ROUTE, holder.key)
            verdict = verdict_of(route, gateways=facts.gateways)
            if route is not None and claim not in self._placed(route, claim):
                verdict = Verdict(ready=False, reason="WaitingForGateway", message="the shared rule is being written")
            live = self._deployments.get(holder.key)
            is_path, pools = claim.kind is ClaimKind.PATH, live is not None and self._splits_pools(live)
            members_of = [members[mate] for mate in sharing if mate in members]
            rules[claim.kind] = SharedRule(
                value=claim.value,
                holder=holder,
                shares=shares(members_of, holder, pools=pools, path=is_path),
                pools=pools,
                is_path=is_path,
                route=verdict,
                held_still=live is not None and (is_paused(live) or is_dry_run(live)),
            )
        ordered = {kind: rules[kind] for kind in ClaimKind if kind in rules}
        return Group(me=me, rules=ordered, elsewhere=elsewhere) if ordered or elsewhere else None

    def _splits_pools(self, deployment: Resource) -> bool:
        """Whether a rule of its route leads to several pools, by its config."""
        config = self._configs.resolve(deployment).config
        return config is not None and config.routing.splits_pools

    @staticmethod
    def _placed(route: Resource, claim: Claim) -> set[Claim]:
        """The claims of a route, on the listener of a claim where the route is on all of them."""
        return {each if each.section else each._replace(section=claim.section) for each in claims_in(route)}

    def _target_of(self, key: ObjectKey, facts: Facts, intent: Intent, me: Claimant) -> Target | None:
        if key == me.key:
            return intent.choice.target
        deployment = self._deployments.get(key)
        return intent_of(self._wanted(deployment)).choice.target if deployment is not None else None

    def _member(self, mate: Claimant, facts: Facts, intent: Intent, me: Claimant) -> Member | None:
        if mate.key == me.key:
            return member_of(replace(facts, group=Group(me=me)), intent, me)
        deployment = self._deployments.get(mate.key)
        if deployment is None:
            return None
        memory = self._memories.find(deployment)
        theirs = replace(
            self._facts_alone(self._wanted(deployment)),
            group=Group(me=mate),
            pool_refused=memory is not None and memory.pool_refused,
            picker_role=self._role[0],
        )
        return member_of(theirs, intent_of(theirs), mate)

    def _wake_group(self, facts: Facts, intent: Intent, memory: _Memory) -> None:
        """Wake the others of the group if what their shares or conditions depend on has changed."""
        me = claimant_in(facts, intent)
        if not me.group:
            memory.seen_by_group = None
            return
        route = facts.own_route
        verdict = verdict_of(route, gateways=facts.gateways) if route is not None else None
        paused = is_paused(facts.deployment) or is_dry_run(facts.deployment)
        rules = frozenset(claims_in(route)) if route is not None else None
        pools = self._splits_pools(facts.deployment)
        seen = (self._member(me, facts, intent, me), intent.choice.target, verdict, paused, rules, pools)
        if seen != memory.seen_by_group:
            memory.seen_by_group = seen
            self._wake_all(mate.key for mate in self._claims.group(me) if mate.key != me.key)

    def _leave_group(self, deployment: Resource, facts: Facts, intent: Intent) -> None:
        """Let the others of a group that a deployment has left claim at once what they have shared with it."""
        recorded = recorded_group(deployment)
        me = claimant_in(facts, intent)
        if recorded and recorded != me.group:
            for mate in self._claims.group(me._replace(group=recorded)):
                if mate.key != me.key:
                    self.claim(mate.key, self._deployments.get(mate.key))

    def _awaits_holder(self, facts: Facts, decision: Decision, memory: _Memory) -> float | None:
        """Seconds until the next look, while the route keeps a rule that its former group has now, and does not serve
        yet.
        """
        live = facts.own_route
        if decision.objects is None or live is None or not recorded_group(facts.deployment):
            memory.left_since = None
            return None
        route = next((obj for obj in decision.objects if obj["kind"] == HTTP_ROUTE.kind), None)
        stays = set()
        if route is not None:
            stays = {claim.value for claim in claims_in(route)}
        late = [claim for claim in claims_in(live) if claim.value not in stays and self._is_late(claim, facts.key)]
        if not late:
            memory.left_since = None
            return None
        now = self._clock()
        memory.left_since = memory.left_since or now
        left = _HANDOVER - (now - memory.left_since).total_seconds()
        return min(left, _LOOK) if left > 0 else None

    def _announce_shares(self, facts: Facts, memory: _Memory) -> float | None:
        """Emit an event where the shares of a group changed; returns the seconds until one that waits is due."""
        rule = facts.group.main if facts.group is not None else None
        if rule is None or facts.group is None or rule.holder.key != facts.key:
            memory.shares = None
            return None
        text = ", ".join(f"{share.member.claimant.name} {share.percent} %" for share in rule.shares)
        if memory.shares is None and recorded_group(facts.deployment):
            memory.shares = text  # as an earlier leader left it
        if memory.shares == text:
            return None
        now = self._clock()
        if memory.announced is not None and (left := _ONE_A_MINUTE - (now - memory.announced).total_seconds()) > 0:
            return left
        memory.shares, memory.announced = text, now
        note = f"group {facts.group.me.group}, {rule.value}: {text}"
        self._events.emit(facts.deployment, reason="ShareChanged", note=note, action="Route")
        return None

    async def _release(self, deployment: Resource) -> float | None:
        """Delete the route of a deployment that is being deleted; returns the seconds until it may go.

        Its provider may need minutes, and of two routes with one path a gateway follows the older one. The route of
        the deployment that has the path now is accepted first, so that no request falls between the two.
        """
        live = self._wanted(deployment).own_route
        if live is None:
            return None
        memory, now = self._memories.of(deployment), self._clock()
        memory.deleted_since = memory.deleted_since or now
        left = _HANDOVER - (now - memory.deleted_since).total_seconds()
        if left > 0 and any(self._is_late(claim) for claim in claims_in(live)):
            return min(left, _LOOK)
        await self._writer.delete(live)
        return None

    def _is_late(self, claim: Claim, asking: ObjectKey | None = None) -> bool:
        """Whether another deployment has this path or model name now, and its route does not serve it yet."""
        holder = self._claims.holder(claim)
        if holder is None or holder == asking:
            return False
        route = self._caches.find(HTTP_ROUTE, holder)
        if route is None or claim not in claims_in(route):
            return True
        return verdict_of(route, gateways=self._caches.gateways()).ready is not True

    async def _carry_out(self, deployment: Resource, decision: Decision, memory: _Memory) -> Applied:
        """Make exactly the decision's objects exist."""
        key, labels = key_of(deployment), our_labels(deployment, MARK)
        wanted = [complete(obj, owner=deployment, labels=labels) for obj in decision.objects or ()]
        # A kind that is not served cannot be written; the decision knows which ones are needed.
        wanted = [obj for obj in wanted if self._caches.view_of(obj) is not None]
        applied = await apply_objects(
            self._writer,
            wanted,
            self._caches.known(deployment, wanted),
            owner=deployment,
            mark=MARK,
            events=self._events,
            history=memory.history,
            now=self._clock(),
            dependent=[identity_in(obj) for obj in wanted if decision.needs_pool and obj["kind"] == HTTP_ROUTE.kind],
        )
        pool = next((identity_in(obj) for obj in wanted if obj["kind"] == INFERENCE_POOL.kind), None)
        memory.pool_refused = bool(applied.refused) and pool is not None and pool not in applied.live
        for refusal in applied.refused:
            log.info("%s: %s", key, refusal)
        return applied

    # ---------------------------------------------------------------------------------------------------------- facts

    def _wanted(self, deployment: Resource) -> Facts:
        """The facts on which request, Gateway, path and model name depend."""
        resolution, memory = self._configs.resolve(deployment), self._memories.find(deployment)
        refused = self._refused.setdefault(key_of(deployment).namespace, set())
        facts = Facts(
            deployment=deployment,
            config=resolution.config,
            config_unusable=resolution.missing or is_refused(deployment),
            engine=self._engine_of(deployment),
            gateways=self._caches.gateways(),
            gateway_namespaces=self._caches.gateway_namespaces(),
            rights=self._rights_of(key_of(deployment).namespace),
            pools_served=self._caches.serves(INFERENCE_POOL),
            route=self._caches.find(HTTP_ROUTE, key_of(deployment)),
            probe=memory.probe if memory is not None else None,
            flags=self._flags,
            refused=refused,
        )
        if facts.own_route is not None:
            self._note_answers(facts.own_route, refused)
        if holder := text_at(deployment, "status", "gateway", "group", "holder"):
            facts = replace(facts, holder_route=self._route_of(ObjectKey(key_of(deployment).namespace, holder)))
        return facts

    def _route_of(self, key: ObjectKey) -> Resource | None:
        """The route of this part for a deployment of any state."""
        deployment, route = self._deployments.get(key), self._caches.find(HTTP_ROUTE, key)
        if deployment is None or route is None or not is_ours(route, deployment, MARK):
            return None
        return route

    @staticmethod
    def _note_answers(route: Resource, refused: set[Target]) -> None:
        """Remember in `refused` what Gateways answered about a route of the namespace."""
        for target in parents_of(route)[:_MOST_PARENTS]:
            answer = is_shut_out(route, target)
            if answer:
                refused.add(target)
            elif answer is False:
                refused.discard(target)

    def _facts(self, wanted: Facts, intent: Intent, memory: _Memory) -> Facts:
        """All facts but whether the ClusterRole of pickers exists: only some decisions need it."""
        facts = replace(self._facts_alone(wanted), pool_refused=memory.pool_refused)
        return replace(facts, group=self._group_of(facts, intent))

    def _facts_alone(self, wanted: Facts) -> Facts:
        """All facts but the ClusterRole, the deployment's group, and what the API server has refused."""
        deployment = wanted.deployment
        key = key_of(deployment)
        facts = replace(
            wanted,
            # One of the two kinds may be away for a moment: its Gateways or routes are not gone.
            routes_served=self._caches.serves(HTTP_ROUTE) and self._caches.serves(GATEWAY),
            destination_rule=DESTINATION_RULE.api_version if self._caches.serves(DESTINATION_RULE) else "",
            pool=self._caches.find(INFERENCE_POOL, key),
            picker=self._caches.find(PICKER_KINDS[-1], ObjectKey(key.namespace, ACCOUNT.format(name=key.name))),
            conflicts=self._claims.conflicts(key),
            unserved=self._note_unserved(wanted.gateways),
            now=self._clock(),
        )
        named = dig(deployment, "spec", "gateway", "httpRouteRef")
        if isinstance(named, str) and named:
            facts = replace(facts, user_route=self._caches.find(HTTP_ROUTE, ObjectKey(key.namespace, named)))
        pool = dig(deployment, "status", "endpoint", "pool", "name")
        if isinstance(pool, str) and pool:
            facts = replace(facts, provider_pool=self._caches.find(INFERENCE_POOL, ObjectKey(key.namespace, pool)))
        return facts

    def _note_unserved(self, gateways: Iterable[Resource]) -> Mapping[ObjectKey, datetime]:
        """Since when Gateways have been unserved, as far as this process has seen it."""
        down = {gateway_key(gateway) for gateway in gateways if unserved(gateway) is not None}
        self._unserved = {key: self._unserved.get(key, self._clock()) for key in down}
        return self._unserved

    async def _has_role(self) -> bool | None:
        """Whether the ClusterRole of pickers exists; None if it cannot be read."""
        async with self._role_lock:  # one request for all passes that wait for the answer
            known, at = self._role
            now = self._clock()
            if at is None or (now - at).total_seconds() > (_ROLE_RETRY / 2 if known is False else _ROLE_KNOWN):
                try:
                    known = await self._client.find(CLUSTER_ROLE, ObjectKey("", names.ENDPOINT_PICKER_ROLE)) is not None
                except KubeError as error:
                    log.debug("ClusterRole %s cannot be read: %s", names.ENDPOINT_PICKER_ROLE, error)
                    known = None
                self._role = known, now
            return known

    @staticmethod
    def _may_ask(deployment: Resource) -> bool:
        """Whether the model server can answer for this generation: during an update, pods of an earlier one serve."""
        return serves(deployment) and serves_generation(deployment)

    # ---------------------------------------------------------------------------------------------------------- status

    async def _report(
        self, deployment: Resource, decision: Decision, condition: Condition | None, memory: _Memory
    ) -> float | None:
        """Write the status if it differs; returns the seconds until a status that waits is due."""
        if not decision.write_status:
            return None
        now, live = self._clock(), deployment.get("status") or {}
        known = any(entry.get("type") == CONDITION for entry in conditions_in(live))
        if decision.transient and not known and condition is decision.condition:
            memory.waiting_since = memory.waiting_since or now
            left = _TRANSIENT - (now - memory.waiting_since).total_seconds()
            if left > 0:
                return left
        else:
            memory.waiting_since = None
        again = None
        if decision.settling is None or condition is not decision.condition:
            memory.settling_since = None
        elif (condition_of(deployment, CONDITION) or {}).get("status") == "True":
            memory.settling_since = memory.settling_since or now
            left = _TRANSIENT - (now - memory.settling_since).total_seconds()
            if left > 0:
                condition, again = decision.settling, left
        status: Resource = {}
        if decision.gateway is not None:
            ready = condition is not None and condition.status is True
            status["gateway"] = {**decision.gateway, "ready": ready}
        if condition is not None:
            generation = decision.observed_generation
            if generation is None:
                generation = deployment["metadata"].get("generation", 0)
            status["conditions"] = written([condition], previous=conditions_in(live), generation=generation, now=now)
        if await self._status.write(deployment, status):
            for event in _EVENTS.of(deployment, status, more=text_at(status, "gateway", "url")):
                self._events.emit(deployment, **event.arguments)
        return again


_EVENTS = ConditionEvents(type=CONDITION, when_true="RouteReady", when_fault="RouteNotReady", faults=("RouteConflict",))


def serves(deployment: Resource) -> bool:
    """Whether a model server runs, as far as the provider says."""
    return dig(deployment, "status", "phase") in ("Running", "Degraded")


def serves_generation(deployment: Resource) -> bool:
    """Whether this generation has been served, as far as the provider says (condition ``Served``)."""
    served = condition_of(deployment, SERVED)
    observed = served.get("observedGeneration") if served is not None else None
    return not isinstance(observed, int) or observed >= deployment["metadata"].get("generation", 0)


def _trouble(applied: Applied) -> Condition | None:
    """What keeps the objects from being as they shall be: the first object that was refused, foreign or fought over."""
    if (found := applied.hindrance()) is None:
        return None
    _, reason, text = found
    if others := sorted({str(refusal.obj["kind"]) for refusal in applied.refused[1:]}):
        text = f"{text}; refused, too: {', '.join(others)}"
    return Condition(type=CONDITION, status=False, reason=reason, message=text)
