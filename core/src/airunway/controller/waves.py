"""Which deployments that serve take what is pending for them next (docs/revisions.md).

Example: ``maxConcurrentRollouts`` is 1, and the config has three deployments that serve. The oldest is granted; once
its objects are of the new revision and it is Ready the second is granted, then the third. If one fails, no further one
is granted. All parts of a revision are taken in the same waves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from airunway.api import names
from airunway.configs.resolution import is_refused
from airunway.resource import (
    ObjectKey,
    Resource,
    condition_of,
    dig,
    is_deleting,
    is_true,
    key_of,
    managed_by,
    mapping_at,
    number_at,
    parse_time,
    text_at,
)
from airunway.revisions.revision import PROVIDER, is_in_effect, pending_parts
from airunway.status.conditions import SERVED, is_dry_run, is_paused
from airunway.status.rollup import Phase


@dataclass(frozen=True, kw_only=True)
class Member:
    """One deployment of a config."""

    key: ObjectKey
    created: str
    """Its ``creationTimestamp``."""
    current: bool = False
    """Whether nothing waits for it, and its objects are of its revision."""
    granted_at: datetime | None = None
    """When it was granted that; None: it was not."""
    waits: bool = True
    """Whether it serves and its provider would take new settings now."""
    ready: bool = False
    """Whether it is Ready."""
    failed: bool = False
    """Whether its phase is Failed."""


@dataclass(frozen=True, kw_only=True)
class Wave:
    """The state of a rollout."""

    granted: frozenset[ObjectKey] = frozenset()
    """Deployments to grant now, in addition to those that are granted already."""
    stalled_by: ObjectKey | None = None
    """The deployment that stops the rollout."""
    failed: bool = False
    """Whether that deployment failed; otherwise it is not done in time."""
    wake_after: float | None = None
    """Seconds until a deployment that is under way is late; None: none is under way."""
    busy: int = 0
    """How many deployments are under way, those that are granted now included."""


def next_wave(members: Iterable[Member], *, limit: int, patience: timedelta, now: datetime) -> Wave:
    """Returns what to grant, at most `limit` deployments at a time, the oldest first.

    A granted deployment is done when it is current and Ready. One that failed, or is not done after `patience`, stops
    the rollout until it is done.
    """
    ordered = sorted(members, key=lambda member: (member.created, member.key))
    candidates = [each for each in ordered if each.granted_at is None and each.waits and not each.current]
    under_way = [each for each in ordered if each.granted_at is not None and not (each.current and each.ready)]
    if not candidates:
        # All have the settings: what breaks later has nothing to do with the rollout.
        under_way = [each for each in under_way if not each.current]
    left = {each.key: (each.granted_at or now) + patience - now for each in under_way}
    for each in under_way:
        if each.failed or left[each.key] <= timedelta(0):
            return Wave(stalled_by=each.key, failed=each.failed, busy=len(under_way))
    granted = frozenset(each.key for each in candidates[: max(0, limit - len(under_way))])
    waiting = [*left.values(), *(patience for _ in granted)]
    return Wave(granted=granted, wake_after=min(waiting).total_seconds() if waiting else None, busy=len(waiting))


def progress_of(deployment: Resource | None) -> tuple[object, ...]:
    """What a rollout reads of a deployment."""
    found = deployment or {}
    return (
        dig(found, "metadata", "generation"),
        dig(found, "status", "revision", "hash"),
        dig(found, "status", "provider", "revision"),
        behind(found, (*_ALL, PROVIDER)),
        dig(found, "status", "phase"),
        *((condition_of(found, type_) or {}).get("status") for type_ in ("Ready", SERVED, "Validated")),
        _is_held(found),
    )


_ALL = ("template", "settings", "cache")


def behind(deployment: Resource, parts: Collection[str]) -> frozenset[str]:
    """Of these parts of a revision, those of which something newer waits."""
    found = pending_parts(deployment)
    if mapping_at(deployment, "status", "provider", "newer"):
        found |= {PROVIDER}
    return found & frozenset(parts)


class Rollouts:
    """The deployments that were granted what waits for them. A new leader reads them from the statuses (`begin`)."""

    def __init__(self) -> None:
        self._granted: dict[ObjectKey, datetime] = {}

    def begin(self, deployments: Iterable[Resource], *, now: datetime) -> None:
        """Take over the rollout of an earlier leader: the deployments whose objects are not of their revision yet, and
        those that have taken the newest and whose pods are not all ready. A status does not say why they are not:
        such a deployment counts as under way, so that no other one is disturbed beside it.
        """
        self._granted = {
            key_of(each): max(filter(None, (_last_written(each), _unready_since(each))), default=now)
            for each in deployments
            if is_true(each, SERVED)
            and not _is_held(each)
            and not pending_parts(each)
            and not (is_in_effect(each) and _has_all_pods(each))
        }

    def granted(self, deployment: Resource, parts: Collection[str]) -> frozenset[str]:
        """Of these parts, which its config lets it take in waves, those that the deployment may take now."""
        return frozenset(parts) if key_of(deployment) in self._granted else frozenset()

    def is_under_way(self, key: ObjectKey) -> bool:
        """Whether a deployment was granted something and is not done."""
        return key in self._granted

    def forget(self, key: ObjectKey) -> None:
        """The deployment is gone."""
        self._granted.pop(key, None)

    def next(
        self,
        users: Mapping[ObjectKey, Resource],
        *,
        parts: Collection[str],
        limit: int,
        patience: timedelta,
        now: datetime,
    ) -> Wave:
        """Note what became of the grants of these deployments, and grant what waits to at most `limit` at a time."""
        members = [self._member(key, user, parts, now=now) for key, user in users.items()]
        for member in members:
            if member.current and member.ready:
                self._granted.pop(member.key, None)
        wave = next_wave(
            [each for each in members if not each.current or each.key in self._granted],
            limit=limit,
            patience=patience,
            now=now,
        )
        self._granted |= dict.fromkeys(wave.granted, now)
        return wave

    def _member(self, key: ObjectKey, user: Resource, parts: Collection[str], *, now: datetime) -> Member:
        held, waits = _is_held(user), bool(behind(user, parts))
        since = self._granted.get(key)
        return Member(
            key=key,
            created=str(dig(user, "metadata", "creationTimestamp", default="")),
            current=not waits and (key not in self._granted or is_in_effect(user)),
            granted_at=None if held else since,
            waits=waits and not held and is_true(user, SERVED) and is_true(user, "Validated"),
            ready=is_true(user, "Ready"),
            failed=text_at(user, "status", "phase") == Phase.FAILED.value,
        )


def _is_held(deployment: Resource) -> bool:
    """Whether its provider would change nothing, however long a rollout waits for it."""
    held = dig(deployment, "spec", "suspend") is True or is_refused(deployment)
    return held or is_deleting(deployment) or is_paused(deployment) or is_dry_run(deployment)


def _has_all_pods(deployment: Resource) -> bool:
    """Whether no pod is being replaced. A deployment whose cache is lost is Degraded with all its pods."""
    counts = mapping_at(deployment, "status", "replicas")
    return is_true(deployment, "Ready") or number_at(counts, "ready") >= max(1, number_at(counts, "desired"))


def _unready_since(deployment: Resource) -> datetime | None:
    ready = condition_of(deployment, "Ready") or {}
    return parse_time(ready.get("lastTransitionTime")) if ready.get("status") == "False" else None


def _last_written(deployment: Resource) -> datetime | None:
    """When the core wrote the status of a deployment last: at its grant, or later."""
    times = [
        parse_time(entry.get("time"))
        for entry in managed_by(deployment, names.CORE_MANAGER)
        if entry.get("subresource") == "status"
    ]
    return max(filter(None, times), default=parse_time(dig(deployment, "metadata", "creationTimestamp")))
