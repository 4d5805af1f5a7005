"""Computes the progress of a roll-out: replicas and partition of the leaders' StatefulSet (facts 16 and 17)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airunway.resource import Resource, dig, is_true
from airunway_vllm_simulator.groups import Group


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Replicas and partition of the leaders' StatefulSet; groups from `partition` on have the newest revision."""

    replicas: int
    partition: int


def next_scale(lws: Resource, present: Scale, groups: Sequence[Group], *, changed: bool) -> Scale:
    """The scale after `present`. A `changed` template reaches no group at first.

    Then the highest groups follow, as many at a time as may be unavailable or exceed the wanted number.
    """
    wanted = int(dig(lws, "spec", "replicas", default=1))
    surge, unavailable = (_limit(lws, name, wanted) for name in ("maxSurge", "maxUnavailable"))
    if changed:
        return Scale(replicas=wanted + surge, partition=min(wanted, present.replicas))
    good = {group.index for group in groups if group.ready and group.updated}
    missing = sum(index not in good for index in range(wanted))
    rolls = present.partition > 0 or is_true(lws, "UpdateInProgress")
    replicas = wanted + min(surge, missing, max(0, present.replicas - wanted)) if rolls else wanted
    tail = 0
    while present.replicas - 1 - tail in good:
        tail += 1
    step = max(1, unavailable + max(0, replicas - wanted))
    return Scale(replicas=replicas, partition=min(present.partition, max(0, present.replicas - tail - step)))


def _limit(lws: Resource, name: str, replicas: int) -> int:
    """A number of groups; a percentage of `replicas` is rounded up for maxSurge and down for maxUnavailable."""
    default = 1 if name == "maxUnavailable" else 0
    value = dig(lws, "spec", "rolloutStrategy", "rollingUpdateConfiguration", name, default=default)
    if isinstance(value, str):
        share = int(value.rstrip("%")) * replicas
        value = -(-share // 100) if name == "maxSurge" else share // 100
    return min(int(value), replicas)
