"""Letting a deployment go: it is deleted, or another provider takes it over (spec rulings 11 and 21; 004 §4.7).

The upstream objects are deleted and waited for; then the finalizer goes. Five minutes are the limit for every cause:
then the finalizer goes anyway, with a warning event that names what may be left.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from airunway.ages import Ages
from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, EventRecorder, KubeError, NotFound, StatusWriter, remove_finalizer
from airunway.resource import ObjectKey, Resource, dig, is_deleting, key_of, parse_time, uid_of
from airunway.runtime.backoff import Attempts, Subject
from airunway.runtime.lookup import held_by
from airunway.runtime.plan import is_ours
from airunway.runtime.report import terminating_status
from airunway.runtime.surroundings import Surroundings

__all__ = ["Releaser"]

log = logging.getLogger(__name__)

RETRY = 5.0
"""Seconds between attempts while a deletion is refused or the API server cannot do it."""


class Releaser:
    """Deletes and waits; remembers since when, by its own clock."""

    def __init__(
        self,
        *,
        client: Client,
        around: Surroundings,
        events: EventRecorder,
        status: StatusWriter,
        manager: str,
        finalizer: str,
    ) -> None:
        self._client = client
        self._around = around
        self._events = events
        self._status = status
        self._manager = manager
        self._finalizer = finalizer
        self._begun: Ages[ObjectKey] = Ages(around.clock)
        self._attempts: Attempts[str] = Attempts(base=RETRY, cap=RETRY)

    def forget(self, key: ObjectKey) -> None:
        """Drop what is remembered of a deployment that is gone."""
        self._begun.forget(key)
        self._attempts.over(key)

    async def release(self, deployment: Resource) -> float | None:
        """One pass over a deployment that is deleted or no longer ours; returns when to look again."""
        key = key_of(deployment)
        finalizers = dig(deployment, "metadata", "finalizers") or []
        if self._finalizer not in finalizers:
            self.forget(key)
            return None
        now = self._around.clock()
        begun = self._begun.since(key, parse_time(dig(deployment, "metadata", "deletionTimestamp")))
        left = (begun + names.FINALIZER_TIMEOUT - now).total_seconds()
        gone, unseen, problem, again = False, False, "", RETRY
        if (standing := self._attempts.standing(key, self._subject(deployment))) is not None:
            problem, again = standing.what, standing.left or RETRY
        else:
            try:
                gone = await self.remove_objects(deployment)
                if gone and not is_deleting(deployment):
                    gone = await self._is_clean(deployment)
                    unseen = not gone
                self._attempts.over(key)
            except KubeError as error:
                gone, text = False, str(error)
                problem = self._attempts.failed(key, self._subject(deployment), what=text, text=text).what
                log.warning("%s: the upstream objects cannot be deleted: %s", key, error)
        if not gone and left > 0:
            held, until = self._holding(deployment)
            await self._say_terminating(deployment, problem or held)
            return min(left, again if problem or unseen else until)
        if not gone:
            self._warn(deployment, problem)
        if not is_deleting(deployment):
            # Another provider goes on: nothing of what we said about our upstream object holds any longer.
            await self._status.write(deployment, {})
        answer = await remove_finalizer(
            self._client, MODEL_DEPLOYMENT, deployment, self._finalizer, manager=self._manager
        )
        if answer is not None:
            self._around.deployments.note(answer)
        self.forget(key)
        log.info("%s was let go: %s", key, "nothing of it is left upstream" if gone else "what is left is an orphan")
        return None

    def _subject(self, deployment: Resource) -> Subject:
        """What a refused deletion is about: which objects there are, and which of them are on their way out."""
        children = self._around.children.of(key_of(deployment)).values()
        state = sorted((uid_of(obj), is_deleting(obj)) for obj in children)
        return Subject(uid=uid_of(deployment), generation=0, wanted=("release",), upstream=tuple(state))

    async def remove_objects(self, deployment: Resource) -> bool:
        """Delete everything upstream that is ours for this deployment; True when nothing is left.

        Raises KubeError when a deletion is refused or cannot be done now.
        """
        left = False
        for (kind, key), obj in self._around.children.of(key_of(deployment)).items():
            if not is_ours(obj, deployment):
                continue
            left = True
            if is_deleting(obj):
                continue
            try:
                await self._client.delete(kind, key, uid=uid_of(obj))
            except NotFound:
                continue
        # A cache that never saw its kind cannot say that nothing is left.
        return not left and all(view.synced() for view in self._around.views.values())

    async def _is_clean(self, deployment: Resource) -> bool:
        """Whether the API server itself knows of nothing of ours; what there is gets deleted.

        The deployment goes on with another provider: an object that our cache has not seen yet would be nobody's, and
        the garbage collector would leave it.
        """
        key, clean = key_of(deployment), True
        for view in list(self._around.views.values()):
            objects = await self._client.list_all(
                view.kind, namespace=key.namespace, label_selector=f"{names.MODEL_DEPLOYMENT}={key.name}"
            )
            for obj in objects:
                if not is_ours(obj, deployment):
                    continue
                clean = False
                with suppress(NotFound):
                    await self._client.delete(view.kind, key_of(obj), uid=uid_of(obj))
        return clean

    def _holding(self, deployment: Resource) -> tuple[str, float]:
        """What keeps objects that take long to go, and when to look again for that."""
        now = self._around.clock()
        held = [held_by(obj, now=now) for obj in self._around.children.of(key_of(deployment)).values()]
        again = min(
            (seconds for _, seconds in held if seconds is not None), default=names.FINALIZER_TIMEOUT.total_seconds()
        )
        return "; ".join(text for text, _ in held if text), again

    async def _say_terminating(self, deployment: Resource, problem: str) -> None:
        if not is_deleting(deployment):
            return
        message = "Waiting until the upstream resources are gone"
        if problem:
            message = f"{message}; {problem}"
        status = terminating_status(deployment, message, now=self._around.clock())
        await self._status.write(deployment, status)

    def _warn(self, deployment: Resource, problem: str) -> None:
        objects = ", ".join(f"{kind.kind} {key}" for kind, key in self._around.children.of(key_of(deployment)))
        what = objects or "the upstream resource"
        why = f" ({problem})" if problem else ""
        note = f"Finalizer removed after timeout, {what} may be orphaned{why}"
        orphan = next(iter(self._around.children.of(key_of(deployment)).values()), None)
        self._events.emit(
            deployment,
            reason="FinalizerTimeout",
            note=note,
            warning=True,
            action="Release",
            related=orphan,
            vital=True,
        )
