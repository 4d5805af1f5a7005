"""Trying to do what a deployment wants upstream, and, while a failure stands, saying it again instead.

See `backoff` for when the next try is due.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from airunway.api import names
from airunway.kube import KubeError, retry_after_of
from airunway.resource import ObjectKey, Resource, annotations_of, dig, is_deleting, key_of, uid_of
from airunway.runtime.apply import Applied, Refusal, RefusedError
from airunway.runtime.backoff import Attempts, Standing, Subject
from airunway.runtime.lookup import cached, named, view_of
from airunway.runtime.preview import is_asked_for
from airunway.runtime.report import Done
from airunway.runtime.surroundings import Surroundings

__all__ = ["HeldBackError", "Refusal", "Told", "Tries"]

log = logging.getLogger(__name__)

R = TypeVar("R", bound=bool | Applied)


class HeldBackError(Exception):
    """A failure that passes stands, and it is too early for another try: `left` seconds (None: no time will do)."""

    def __init__(self, error: KubeError, left: float | None) -> None:
        super().__init__(str(error))
        self.error = error
        self.left = left


@dataclass(frozen=True, kw_only=True)
class Told:
    """What is to be said of a plan, and in how many seconds it is made again (None: when something changes)."""

    done: Done
    left: float | None = None


class Tries:
    """The standing failures of all deployments; keeps the time between tries, whatever woke the pass."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._attempts: Attempts[RefusedError | KubeError | Done] = Attempts()

    def forget(self, deployment: ObjectKey) -> None:
        """Drop what is remembered of a deployment that is gone or not ours any more."""
        self._attempts.over(deployment)

    def told_of(self, deployment: ObjectKey, error: KubeError) -> KubeError:
        """The failure to tell of: the first of those that differ from `error` in numbers only."""
        last = self._attempts.last(deployment)
        return last if isinstance(last, KubeError) else error

    async def run(
        self, deployment: Resource, wanted: Sequence[Resource], do: Callable[[], Awaitable[Done | R]]
    ) -> R | Told | Refusal:
        """What came of `do`, which brings the cluster to `wanted`; or of the last time, as long as that stands.

        Raises KubeError for a failure that passes, and HeldBackError while it is too early for the next try.
        """
        key = key_of(deployment)
        standing = self._attempts.standing(key, self._subject(deployment, wanted))
        if standing is None:
            try:
                done = await do()
            except RefusedError as refused:
                log.info("%s: %s", key, refused)
                standing = self._failed(deployment, wanted, refused, text=refused.message, lasts=refused.meaning.lasts)
            except KubeError as error:
                self._failed(deployment, wanted, error, text=str(error), at_least=retry_after_of(error))
                raise
            else:
                if not isinstance(done, Done):
                    self._attempts.over(key)
                    return done
                if done.reason == "Planned":
                    self._attempts.over(key)
                    return Told(done=done)
                standing = self._failed(deployment, wanted, done, text=done.message)
        match standing.what:
            case RefusedError() as what:
                return Refusal(error=what, attempt=standing.attempt, left=standing.left)
            case Done() as what:
                return Told(done=what, left=standing.left)
            case what:
                raise HeldBackError(what, standing.left)

    def _failed(
        self,
        deployment: Resource,
        wanted: Sequence[Resource],
        what: RefusedError | KubeError | Done,
        *,
        text: str,
        at_least: float = 0.0,
        lasts: bool = False,
    ) -> Standing[RefusedError | KubeError | Done]:
        # The subject as it is now: what this very try has changed upstream must not bring the next one.
        subject = self._subject(deployment, wanted)
        return self._attempts.failed(key_of(deployment), subject, what=what, text=text, at_least=at_least, lasts=lasts)

    def _subject(self, deployment: Resource, wanted: Sequence[Resource]) -> Subject:
        """What a try is about: a spec, what it comes to, and the upstream that takes or refuses it."""
        primary = None
        if wanted and (view := view_of(wanted[0], self._around)) is not None:
            primary = cached(wanted[0], view)
        state = primary and (uid_of(primary), dig(primary, "metadata", "generation"), is_deleting(primary))
        digests = (f"{named(obj)} {annotations_of(obj).get(names.SPEC_HASH)}" for obj in wanted)
        return Subject(
            uid=uid_of(deployment),
            generation=deployment["metadata"].get("generation", 0),
            wanted=("plan" if is_asked_for(deployment) else "apply", *digests),
            upstream=(self._around.installed, self._around.schemas, state),
        )
