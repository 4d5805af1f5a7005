"""Which deployments that serve take newer values of their template next (platform.md, "Templates", "Waves").

Example: three deployments serve with the template ``fast``, which is edited, and their config says ``rollout:
Immediately``. The core records the new values on the oldest; once that is Ready with them on the second, then on the
third.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from airunway.controller.waves import Member, Wave, next_wave
from airunway.resource import ObjectKey, Resource, dig, is_true, key_of
from airunway.status import SERVED

__all__ = ["TemplateWaves", "template_progress_of"]


def template_progress_of(deployment: Resource | None) -> tuple[object, ...]:
    """What of a deployment may begin or end a wave of its template."""
    return _recorded(deployment or {}), _in_effect(deployment or {})


def _recorded(deployment: Resource) -> str:
    return str(dig(deployment, "status", "effectiveTemplate", "hash", default=""))


def _in_effect(deployment: Resource) -> str:
    return str(dig(deployment, "status", "provider", "templateHash", default=""))


class TemplateWaves:
    """The grants that are under way. A new leader reads them from the statuses (`begin`).

    `newest_of(deployment)` is the hash of what its template gives now; empty: not known. `allows(deployment)` is
    whether its config has waves of newer values at all.
    """

    def __init__(
        self, newest_of: Callable[[Resource], str], *, allows: Callable[[Resource], bool] = lambda _: True
    ) -> None:
        self._newest_of, self._allows = newest_of, allows
        self._grants: dict[ObjectKey, datetime] = {}

    def begin(self, deployments: Iterable[Resource], *, now: datetime) -> None:
        """Take over the grants of an earlier leader: the record of a deployment has newer values than what serves."""
        self._grants = {
            key_of(each): now
            for each in deployments
            if is_true(each, SERVED) and _in_effect(each) not in ("", _recorded(each)) and self._allows(each)
        }

    def is_granted(self, deployment: Resource) -> bool:
        """Whether a deployment may take the newest values although it serves."""
        return key_of(deployment) in self._grants and self._allows(deployment)

    def under_way(self, users: Iterable[Resource]) -> int:
        """Note what became of the grants of these deployments; returns how many are not done."""
        count = 0
        for user in users:
            key = key_of(user)
            if key in self._grants and self._is_done(user):
                del self._grants[key]
            count += key in self._grants
        return count

    def next(
        self,
        users: Iterable[Resource],
        *,
        member_of: Callable[[Resource, datetime | None], Member],
        together: Collection[ObjectKey],
        limit: int,
        patience: timedelta,
        now: datetime,
    ) -> Wave:
        """Grant newer values to at most `limit` of these deployments at a time. `under_way` comes first.

        `member_of` gives what a deployment is in a wave, with the time of its grant (None: none). Those that are
        disturbed anyway now (`together`) take them in the same restart.
        """
        members = []
        for user in users:
            key, behind = key_of(user), self._is_behind(user)
            if behind and key in together:
                self._grants.setdefault(key, now)
            elif behind or key in self._grants:
                member = member_of(user, self._grants.get(key))
                members.append(replace(member, current=not behind and _in_effect(user) == _recorded(user)))
        wave = next_wave(members, limit=limit, patience=patience, now=now)
        self._grants |= dict.fromkeys(wave.granted, now)
        return wave

    def forget(self, key: ObjectKey) -> None:
        """The deployment is gone, or its config grants nothing any more."""
        self._grants.pop(key, None)

    def _is_behind(self, deployment: Resource) -> bool:
        """Whether the record of a deployment has other values than its template."""
        newest = self._newest_of(deployment)
        return bool(newest) and newest != _recorded(deployment)

    def _is_done(self, deployment: Resource) -> bool:
        taken = _in_effect(deployment) == _recorded(deployment)
        return taken and not self._is_behind(deployment) and is_true(deployment, "Ready")
