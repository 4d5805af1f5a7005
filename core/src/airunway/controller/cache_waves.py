"""Which deployments that serve take weights that were fetched anew next (platform.md, "Use", "Waves").

Example: three deployments serve from the claim ``old``, which was lost, and the claim ``new`` is Ready. Nothing is made
anew by itself: the core grants ``new`` to the oldest; once that is Ready with it to the second, then to the third.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from airunway.controller.waves import Member, Wave, next_wave
from airunway.resource import ObjectKey, Resource, dig, is_true, key_of

__all__ = ["CacheWaves", "cache_progress_of", "is_behind", "published_claim"]


def published_claim(deployment: Resource) -> str:
    """The claim whose weights are Ready for a deployment; empty if there is none."""
    cache = dig(deployment, "status", "modelCache")
    claim = dig(cache, "claimName")
    return claim if dig(cache, "ready") is True and isinstance(claim, str) else ""


def is_behind(deployment: Resource) -> bool:
    """Whether what runs mounts another claim than the one that is Ready."""
    used, claim = dig(deployment, "status", "provider", "claimName"), published_claim(deployment)
    return bool(used and claim and used != claim)


def cache_progress_of(deployment: Resource | None) -> tuple[object, ...]:
    """The claims of a deployment: one that changes may begin or end a wave."""
    if deployment is None:
        return ()
    return published_claim(deployment), dig(deployment, "status", "provider", "claimName")


def _is_done(deployment: Resource) -> bool:
    return not is_behind(deployment) and is_true(deployment, "Ready")


@dataclass(frozen=True, kw_only=True)
class _Grant:
    """That a deployment may take a claim."""

    claim: str
    at: datetime


class CacheWaves:
    """The grants of claims that are under way. A new leader reads them from the statuses (`begin`)."""

    def __init__(self) -> None:
        self._grants: dict[ObjectKey, _Grant] = {}

    def begin(self, deployments: Iterable[Resource], *, now: datetime) -> None:
        """Take over the grants of an earlier leader. A status does not say whether a deployment that is not Ready was
        Ready with its claim before: it counts as under way, and has its time from now.
        """
        self._grants = {
            key_of(each): _Grant(claim=claim, at=now)
            for each in deployments
            if (claim := published_claim(each))
            and dig(each, "status", "rollout", "claimName") == claim
            and not _is_done(each)
        }

    def is_under_way(self, key: ObjectKey) -> bool:
        """Whether a deployment was granted a claim and is not done."""
        return key in self._grants

    def granted_claim(self, deployment: Resource) -> str:
        """The claim that a deployment may take although it serves; empty: none.

        A grant stays while its claim is the published one: withdrawing it would be a write without an effect.
        """
        grant = self._grants.get(key_of(deployment))
        if grant is not None:
            return grant.claim
        said = dig(deployment, "status", "rollout", "claimName")
        return str(said) if said and said == dig(deployment, "status", "modelCache", "claimName") else ""

    def under_way(self, users: Iterable[Resource]) -> int:
        """Note what became of the grants of these deployments; returns how many are not done."""
        count = 0
        for user in users:
            key = key_of(user)
            grant = self._grants.get(key)
            if grant is not None and (grant.claim != published_claim(user) or _is_done(user)):
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
    ) -> Wave:
        """Grant claims to at most `limit` of these deployments at a time. `under_way` comes first.

        `member_of` gives what a deployment is in a wave, with the time of its grant (None: none).
        """
        claims: dict[ObjectKey, str] = {}
        members = []
        for user in users:
            key = key_of(user)
            grant = self._grants.get(key)
            if grant is None and not is_behind(user):
                continue
            claims[key] = published_claim(user)
            member = member_of(user, grant.at if grant is not None else None)
            members.append(replace(member, current=not is_behind(user)))
        wave = next_wave(members, limit=limit, patience=patience, now=now)
        for key in wave.granted:
            self._grants[key] = _Grant(claim=claims[key], at=now)
        return wave

    def forget(self, key: ObjectKey) -> None:
        """The deployment is gone."""
        self._grants.pop(key, None)
