"""Which events there is room for, so that nobody's flood costs others theirs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

__all__ = ["BURST", "REFILL", "Buckets", "Crowd"]

K = TypeVar("K", bound=Hashable)
O = TypeVar("O", bound=Hashable)  # noqa: E741 - an object

BURST, REFILL = 25, 300.0
"""Different events about one object at once, and seconds until there may be one more: as client-go has it."""

_REMEMBERED = 8192
"""Objects whose buckets are kept. One that is forgotten has a full bucket again."""


class Buckets(Generic[O]):
    """A bucket of tokens for each object."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[O, tuple[float, float]] = OrderedDict()

    def take(self, obj: O, *, now: float) -> bool:
        """Take a token of `obj`; whether there was one. `now` is in seconds on a clock that only runs forward."""
        tokens, since = self._buckets.pop(obj, (float(BURST), now))
        tokens = min(float(BURST), tokens + (now - since) / REFILL)
        taken = tokens >= 1
        self._buckets[obj] = (tokens - 1 if taken else tokens, now)
        if len(self._buckets) > _REMEMBERED:
            self._buckets.popitem(last=False)
        return taken


class Crowd(Generic[O, K]):
    """What is held, by tenant and by object, to find who holds the most."""

    def __init__(self) -> None:
        self._tenants: dict[str, dict[O, dict[K, None]]] = {}
        self._sizes: dict[str, int] = {}

    def add(self, tenant: str, obj: O, key: K) -> None:
        keys = self._tenants.setdefault(tenant, {}).setdefault(obj, {})
        self._sizes[tenant] = self._sizes.get(tenant, 0) + (key not in keys)
        keys[key] = None

    def remove(self, tenant: str, obj: O, key: K) -> None:
        objects = self._tenants[tenant]
        del objects[obj][key]
        self._sizes[tenant] -= 1
        if not objects[obj]:
            del objects[obj]
        if not objects:
            del self._tenants[tenant], self._sizes[tenant]

    def noisiest(self, tenant: str, obj: O) -> Iterable[K]:
        """What the object with the most holds, of the tenant with the most, the newest first.

        Nothing if that is `obj` itself: who is the noisiest makes no room at the cost of others.
        """
        loudest = max(self._sizes, key=self._sizes.__getitem__, default=tenant)
        if self._sizes.get(tenant, 0) >= self._sizes.get(loudest, 0):
            loudest = tenant
        objects = self._tenants.get(loudest, {})
        most = max(objects, key=lambda each: len(objects[each]), default=obj)
        if loudest == tenant and len(objects.get(obj, ())) >= len(objects.get(most, ())):
            return ()
        return reversed(objects[most])
