"""Which deployments that serve take something new next: pod settings, weights, template values.

Example: ``maxConcurrentRollouts`` is 1, and the config has three deployments that serve. The oldest is granted; once it
has the settings and is Ready the second is granted, then the third. If one fails, no further one is granted. So it is
with a claim whose weights were fetched anew (`CacheWaves`), and with newer values of a template (`TemplateWaves`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from airunway.resource import ObjectKey, Resource, dig, is_true, key_of, text_at
from airunway.status.conditions import SERVED


@dataclass(frozen=True, kw_only=True)
class Member:
    """One deployment of a config."""

    key: ObjectKey
    created: str
    """Its ``creationTimestamp``."""
    current: bool = False
    """Whether it has what is rolled out, as its provider reports it."""
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


@dataclass(frozen=True, kw_only=True)
class _Grant:
    """That a deployment may take something new although it serves."""

    at: datetime
    claim: str = ""
    """The claim that it may take; empty where the grant is not about a claim."""


class _Waves:
    """The grants that are under way. A new leader reads them from the statuses."""

    def __init__(self) -> None:
        self._grants: dict[ObjectKey, _Grant] = {}

    def _is_behind(self, deployment: Resource) -> bool:
        """Whether there is something newer than what the deployment has or was granted."""
        raise NotImplementedError

    def _is_current(self, deployment: Resource, *, behind: bool) -> bool:
        """Whether the deployment runs with the newest; `behind` is the answer of `_is_behind`."""
        return not behind

    def _is_over(self, deployment: Resource, grant: _Grant) -> bool:
        """Whether a grant counts no longer."""
        raise NotImplementedError

    def _granted_now(self, deployment: Resource, *, now: datetime) -> _Grant:
        return _Grant(at=now)

    def is_under_way(self, key: ObjectKey) -> bool:
        """Whether a deployment was granted something and is not done."""
        return key in self._grants

    def under_way(self, users: Iterable[Resource]) -> int:
        """Note what became of the grants of these deployments; returns how many are not done."""
        count = 0
        for user in users:
            key = key_of(user)
            if key in self._grants and self._is_over(user, self._grants[key]):
                del self._grants[key]
            count += key in self._grants
        return count

    def next(
        self,
        users: Iterable[Resource],
        *,
        member_of: Callable[[Resource, datetime | None], Member],
        limit: int,
        patience: timedelta,
        now: datetime,
        together: Collection[ObjectKey] = (),
    ) -> Wave:
        """Grant the newest to at most `limit` of these deployments at a time. `under_way` comes first.

        `member_of` gives what a deployment is in a wave, with the time of its grant (None: none). Those that are
        disturbed anyway now (`together`) take it in the same restart.
        """
        found: dict[ObjectKey, Resource] = {}
        members = []
        for user in users:
            key, behind, grant = key_of(user), self._is_behind(user), self._grants.get(key_of(user))
            if behind and key in together:
                self._grants.setdefault(key, self._granted_now(user, now=now))
            elif behind or grant is not None:
                found[key] = user
                member = member_of(user, grant.at if grant is not None else None)
                members.append(replace(member, current=self._is_current(user, behind=behind)))
        wave = next_wave(members, limit=limit, patience=patience, now=now)
        for key in wave.granted:
            self._grants[key] = self._granted_now(found[key], now=now)
        return wave

    def forget(self, key: ObjectKey) -> None:
        """The deployment is gone, or its config grants nothing of a template any more."""
        self._grants.pop(key, None)


# -------------------------------------------------------------------------------------- weights that were fetched anew


def _published_claim(deployment: Resource) -> str:
    """The claim whose weights are Ready for a deployment; empty if there is none."""
    cache = dig(deployment, "status", "modelCache")
    return text_at(cache, "claimName") if dig(cache, "ready") is True else ""


def mounts_old_claim(deployment: Resource) -> bool:
    """Whether what runs mounts another claim than the one that is Ready."""
    used, claim = dig(deployment, "status", "provider", "claimName"), _published_claim(deployment)
    return bool(used and claim and used != claim)


def _serves_with_new_claim(deployment: Resource) -> bool:
    return not mounts_old_claim(deployment) and is_true(deployment, "Ready")


def cache_progress_of(deployment: Resource | None) -> tuple[object, ...]:
    """The claims of a deployment: one that changes may begin or end a wave."""
    if deployment is None:
        return ()
    return _published_claim(deployment), dig(deployment, "status", "provider", "claimName")


class CacheWaves(_Waves):
    """The grants of claims."""

    def begin(self, deployments: Iterable[Resource], *, now: datetime) -> None:
        """Take over the grants of an earlier leader. A status does not say whether a deployment that is not Ready was
        Ready with its claim before: it counts as under way, and has its time from now.
        """
        self._grants = {
            key_of(each): _Grant(claim=claim, at=now)
            for each in deployments
            if (claim := _published_claim(each))
            and dig(each, "status", "rollout", "claimName") == claim
            and not _serves_with_new_claim(each)
        }

    def granted_claim(self, deployment: Resource) -> str:
        """The claim that a deployment may take although it serves; empty: none.

        A grant stays while its claim is the published one: withdrawing it would be a write without an effect.
        """
        grant = self._grants.get(key_of(deployment))
        if grant is not None:
            return grant.claim
        recorded = dig(deployment, "status", "rollout", "claimName")
        return str(recorded) if recorded and recorded == dig(deployment, "status", "modelCache", "claimName") else ""

    def _is_behind(self, deployment: Resource) -> bool:
        return mounts_old_claim(deployment)

    def _is_over(self, deployment: Resource, grant: _Grant) -> bool:
        return grant.claim != _published_claim(deployment) or _serves_with_new_claim(deployment)

    def _granted_now(self, deployment: Resource, *, now: datetime) -> _Grant:
        return _Grant(claim=_published_claim(deployment), at=now)


# ------------------------------------------------------------------------------------------ newer values of a template


def template_progress_of(deployment: Resource | None) -> tuple[object, ...]:
    """What of a deployment may begin or end a wave of its template."""
    return _recorded(deployment or {}), _in_effect(deployment or {})


def _recorded(deployment: Resource) -> str:
    return str(dig(deployment, "status", "effectiveTemplate", "hash", default=""))


def _in_effect(deployment: Resource) -> str:
    return str(dig(deployment, "status", "provider", "templateHash", default=""))


class TemplateWaves(_Waves):
    """The grants of newer values.

    `newest_of(deployment)` is the hash of what its template gives now; empty: not known. `allows(deployment)` is
    whether its config has waves of newer values at all.
    """

    def __init__(
        self, newest_of: Callable[[Resource], str], *, allows: Callable[[Resource], bool] = lambda _: True
    ) -> None:
        super().__init__()
        self._newest_of, self._allows = newest_of, allows

    def begin(self, deployments: Iterable[Resource], *, now: datetime) -> None:
        """Take over the grants of an earlier leader: the record of a deployment has newer values than what serves."""
        self._grants = {
            key_of(each): _Grant(at=now)
            for each in deployments
            if is_true(each, SERVED) and _in_effect(each) not in ("", _recorded(each)) and self._allows(each)
        }

    def is_granted(self, deployment: Resource) -> bool:
        """Whether a deployment may take the newest values although it serves."""
        return key_of(deployment) in self._grants and self._allows(deployment)

    def _is_behind(self, deployment: Resource) -> bool:
        newest = self._newest_of(deployment)
        return bool(newest) and newest != _recorded(deployment)

    def _is_current(self, deployment: Resource, *, behind: bool) -> bool:
        return not behind and _in_effect(deployment) == _recorded(deployment)

    def _is_over(self, deployment: Resource, grant: _Grant) -> bool:
        taken = _in_effect(deployment) == _recorded(deployment)
        return taken and not self._is_behind(deployment) and is_true(deployment, "Ready")
