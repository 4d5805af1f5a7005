"""What a deployment's route leads to and what is made for it, by the facts of one pass: backend, pool and picker."""

from __future__ import annotations

from airunway.configs.resolution import BUILT_IN, RoutingRequest, propagated
from airunway.resource import Resource, dig, mapping_at, text_at
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
    pool_objects,
)
from airunway.routing.claims import Claimant
from airunway.routing.groups import Group, Member, answers, at_zero, recorded_group, weight_of
from airunway.routing.holding import NOT_HELD, held, holds_at_zero
from airunway.routing.intent import Facts, Intent
from airunway.routing.routes import request_timeout
from airunway.sdk.picker import hold_time


def picker_in(facts: Facts) -> Picker | None:
    found = picker_for(facts.flags.epp_image, version=facts.flags.epp_version, engine=facts.engine)
    return found if isinstance(found, Picker) else None


def announced_in(facts: Facts, intent: Intent) -> BackendKind | None:
    """The backend that the provider is given before it makes anything, where routing was asked for."""
    if intent.request is not RoutingRequest.REQUIRED:
        return None
    return announced(facts.deployment, engine=facts.engine, pools_served=facts.pools_served)


def is_foreign_pool(facts: Facts) -> bool:
    """Whether the name of the pool that we would make is taken."""
    if facts.pool is None or facts.own_pool is not None or not facts.pools_served:
        return False
    name = facts.key.name
    if text_at(facts.deployment, "status", "endpoint", "pool", "name") == name:
        return False
    return wants_pool(facts)


def wants_pool(facts: Facts) -> bool:
    """Whether the backend would be a pool of ours, if nothing hindered it."""
    wanted = backend_of(
        facts.deployment, engine=facts.engine, pools_served=facts.pools_served, picker=True, await_pool=False
    )
    return isinstance(wanted, Backend) and wanted.ours


def backend_in(facts: Facts, intent: Intent) -> Backend | NoBackendYet:
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
        picker=picker_in(facts) is not None and not is_foreign_pool(facts) and not lacks_role,
        await_pool=announced_in(facts, intent) is BackendKind.POOL,
    )
    if isinstance(found, Backend):
        return found
    return _live_backend(facts) or found


def _live_backend(facts: Facts) -> Backend | None:
    """The backend of the live route; None if there is none, or it is a pool and pools are not served."""
    pool = facts.own_pool if picker_in(facts) is not None else None
    if facts.group is not None or recorded_group(facts.deployment):
        return _apart(facts, pool)
    kept = live_backend(facts.deployment, route=facts.own_route, pool=pool)
    return None if kept is None or (kept.kind is BackendKind.POOL and not facts.pools_served) else kept


def _apart(facts: Facts, pool: Resource | None) -> Backend | None:
    """The backend without regard to the live route, whose rules may lead to other deployments of the group."""
    found = backend_of(facts.deployment, engine=None, pools_served=facts.pools_served, picker=False)
    known = found if isinstance(found, Backend) else None
    if pool is None or not facts.pools_served or (known is not None and known.kind is BackendKind.POOL):
        return known
    service, port = (known.service, known.service_port) if known is not None else ("", 0)
    return live_pool(facts.deployment, pool, service=service, service_port=port) or known


def member_of(facts: Facts, intent: Intent, claimant: Claimant) -> Member:
    """The deployment as a member of its group."""
    backend = backend_in(facts, intent)
    if isinstance(backend, NoBackendYet):
        return Member(claimant=claimant, weight=weight_of(facts.deployment), answers=answers(facts.deployment))
    chosen, led_to = picker_in(facts), backend
    if backend.ours and facts.own_pool is None:
        led_to = backend.as_service  # the route of another deployment must not lead to a pool that is not there
    return Member(
        claimant=claimant,
        weight=weight_of(facts.deployment),
        answers=answers(facts.deployment),
        at_zero=at_zero(facts.deployment),
        backend=led_to if led_to.service or led_to.kind is BackendKind.POOL else None,
        path_to_service=backend.ours and chosen is not None and not chosen.release.path_suffix,
    )


def labels_in(facts: Facts) -> dict[str, str]:
    labels = mapping_at(facts.deployment, "metadata", "labels")
    return propagated({key: value for key, value in labels.items() if isinstance(value, str)}, facts.config)


def pool_and_picker(facts: Facts, backend: Backend) -> tuple[Resource, ...]:
    chosen = picker_in(facts)
    if not backend.ours or chosen is None:
        return ()
    return tuple(
        pool_objects(
            facts.key.name,
            backend=backend,
            chosen=chosen,
            pull_secrets=(facts.config or BUILT_IN).image_pull_secrets,
            labels=labels_in(facts),
            destination_rule=facts.destination_rule,
            hold_for=hold_time(request_timeout(facts.deployment, facts.config)[0])
            if holds_at_zero(facts.deployment)
            else "",
        )
    )


def holding_in(facts: Facts, backend: Backend | None) -> tuple[bool | None, str]:
    """Whether requests wait while no replica runs, and a remark if they never will; None if they need not.

    It stays as it was while there is no backend for a moment.
    """
    if not holds_at_zero(facts.deployment):
        return None, ""
    if facts.group is not None and (remark := _not_held_in(facts.group)):
        return False, remark
    if backend is None:
        return dig(facts.deployment, "status", "gateway", "holdsRequests") is True, ""
    return held(
        facts.deployment,
        backend=backend,
        chosen=picker_in(facts),
        picker=facts.own(facts.picker),
        user_route=facts.user_route,
    )


def _not_held_in(group: Group) -> str:
    """Why requests of a group do not wait for a member; empty if they can."""
    for rule in group.rules.values():
        share = rule.of(group.me)
        weighted = [each.member for each in rule.shares if each.member.weight > 0]
        if not rule.pools and share is not None and share.member in weighted and len(weighted) > 1:
            return (
                f"{NOT_HELD}: several deployments of group {group.me.group} have a weight, and their rule leads to "
                "Services, which hold no request; set routing.split to Pool in the runtime config, or minReplicas to 1"
            )
    return ""


def kept_pool(facts: Facts) -> tuple[Resource, ...]:
    """Pool and picker that exist already, for a pass that makes no route: nothing new is made."""
    live = facts.own_pool
    if live is None or not facts.pools_served:
        return ()
    found = backend_of(
        facts.deployment,
        engine=facts.engine,
        pools_served=True,
        picker=picker_in(facts) is not None,
    )
    if isinstance(found, NoBackendYet):
        found = live_pool(facts.deployment, live) or found
    if not (isinstance(found, Backend) and found.ours):
        return ()
    return pool_and_picker(facts, found)
