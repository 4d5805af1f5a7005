"""Finding the upstream objects of a plan: as the caches know them, and as the API server has them."""

from __future__ import annotations

from datetime import datetime, timedelta

from airunway.kube import Client, NotFound
from airunway.resource import Resource, controller_owner, dig, key_of, parse_time
from airunway.runtime.surroundings import Surroundings, UpstreamView

__all__ = ["cached", "conflict_text", "held_by", "live", "named", "view_of"]


_LINGERS = timedelta(seconds=10)
"""How long an object may take to go before it is said what keeps it."""


def view_of(obj: Resource, around: Surroundings) -> UpstreamView | None:
    """How the object's kind is addressed and cached; None if the provider does not watch it in that version."""
    view = around.views.get(obj["kind"])
    return view if view is not None and view.kind.api_version == obj["apiVersion"] else None


def cached(obj: Resource, view: UpstreamView) -> Resource | None:
    """The object as the cache knows it. One without our label is not in it."""
    return view.objects.get(key_of(obj))


async def live(obj: Resource, view: UpstreamView, client: Client) -> Resource | None:
    """The object as it is. One that the cache does not know is asked for: it may be there without our label."""
    known = cached(obj, view)
    if known is not None:
        return known
    try:
        return await client.get(view.kind, key_of(obj))
    except NotFound:
        return None


def named(obj: Resource) -> str:
    return f"{obj.get('kind')} '{key_of(obj).name}'"


def conflict_text(wanted: Resource, found: Resource) -> str:
    """What to say of an object of somebody else that has the name which we need."""
    owner = controller_owner(found)
    by = f" (owned by {owner.get('kind')}/{owner.get('name')})" if owner else " (no owner references)"
    what = f"{wanted['kind']} {key_of(wanted)} exists but is not managed by this ModelDeployment{by}"
    return f"{what}; rename one of them or delete it"


def held_by(obj: Resource, *, now: datetime) -> tuple[str, float | None]:
    """What keeps an object that is being deleted, once it takes long; before that, in how many seconds it does."""
    since = parse_time(dig(obj, "metadata", "deletionTimestamp"))
    finalizers = dig(obj, "metadata", "finalizers") or []
    if since is None or not finalizers:
        return "", None
    left = (since + _LINGERS - now).total_seconds()
    if left > 0:
        return "", left
    return f"{named(obj)} is held by its finalizers: {', '.join(map(str, finalizers))}", None
