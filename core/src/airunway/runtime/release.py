"""Letting a deployment go: it is deleted, or another provider takes it over (spec rulings 11 and 21; 004 §4.7).

The upstream objects are deleted and waited for; then the finalizer goes. Five minutes are the limit for every cause:
then the finalizer goes anyway, with a warning event that names what may be left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from airunway.ages import Ages
from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import EventRecorder, KubeError, Overlay, StatusWriter, remove_finalizers
from airunway.process.deployment_cache import with_all_finalizers
from airunway.resource import ObjectKey, is_deleting, key_of, parse_time, uid_of
from airunway.runtime.desired import is_ours, is_primary
from airunway.runtime.execution import held_by
from airunway.runtime.memory import Memory, Subject
from airunway.runtime.report import terminating_status
from airunway.runtime.seen import Seen, finalizers_of
from airunway.runtime.writes import Writer

__all__ = ["Releaser"]

log = logging.getLogger(__name__)

RETRY = 5.0
"""Seconds between attempts while a deletion is refused or the API server cannot do it."""


class Releaser:
    """Deletes and waits; remembers since when, by its own clock."""

    def __init__(
        self,
        *,
        writer: Writer,
        deployments: Overlay,
        events: EventRecorder,
        status: StatusWriter,
        finalizer: str,
        clock: Callable[[], datetime],
    ) -> None:
        self._writer = writer
        self._deployments = deployments
        self._events = events
        self._status = status
        self._finalizer = finalizer
        self._begun: Ages[ObjectKey] = Ages(clock)

    def forget(self, key: ObjectKey) -> None:
        """Drop what is remembered of a deployment that is gone."""
        self._begun.forget(key)

    async def release(self, seen: Seen, memory: Memory) -> float | None:
        """One pass over a deployment that is deleted or no longer ours; returns when to look again."""
        deployment, key, now = seen.deployment, seen.key, seen.now
        if self._finalizer not in finalizers_of(deployment):
            return None
        begun = self._begun.since(key, parse_time(deployment["metadata"].get("deletionTimestamp")))
        left = (begun + names.FINALIZER_TIMEOUT - now).total_seconds()
        gone, unseen, problem, again = False, False, "", RETRY
        if (standing := memory.tries.standing(_subject(seen))) is not None:
            problem, again = str(standing.what), standing.left or RETRY
        else:
            try:
                gone = await self.remove_objects(seen)
                if gone and not is_deleting(deployment):
                    gone = await self._is_clean(seen)
                    unseen = not gone
                memory.tries.over()
            except KubeError as error:
                gone, text = False, str(error)
                standing = memory.tries.failed(_subject(seen), what=error, text=text, at_least=RETRY, at_most=RETRY)
                problem = str(standing.what)
                log.warning("%s: the upstream objects cannot be deleted: %s", key, error)
        if not gone and left > 0:
            held, until = self._holding(seen)
            await self._say_terminating(seen, problem or held)
            return min(left, again if problem or unseen else until)
        if not gone:
            self._warn(seen, problem)
        if not is_deleting(deployment):
            # Another provider goes on: nothing of what we said about our upstream object holds any longer.
            await self._status.write(deployment, {})
        with self._deployments.writing(key):
            found = await with_all_finalizers(self._writer.client, deployment)
            answer = await remove_finalizers(
                self._writer.client, MODEL_DEPLOYMENT, found, (self._finalizer,), manager=self._writer.manager
            )
            if answer is not None:
                self._deployments.note(answer)
        log.info("%s was let go: %s", key, "nothing of it is left upstream" if gone else "what is left is an orphan")
        return None

    async def remove_objects(self, seen: Seen) -> bool:
        """Delete everything upstream that is ours for this deployment; True when nothing is left.

        What the workloads refer to goes after them. Raises KubeError when a deletion is refused or cannot be done now.
        """
        workloads = [obj for obj in seen.ours if is_primary(obj) or self._writer.runs_pods(obj)]
        for obj in workloads or seen.ours:
            await self._writer.delete(obj)
        # A cache that never saw its kind cannot say that nothing is left.
        return not seen.ours and not self._writer.upstream.unread()

    async def _is_clean(self, seen: Seen) -> bool:
        """Whether the API server itself knows of nothing of ours; what there is gets deleted.

        The deployment goes on with another provider: an object that our cache has not seen yet would be nobody's, and
        the garbage collector would leave it.
        """
        selector = f"{names.MODEL_DEPLOYMENT}={seen.key.name},{names.PROVIDER}={seen.provider}"
        clean = True
        for view in self._writer.upstream.views():
            objects = await self._writer.client.list_all(
                view.kind, namespace=seen.key.namespace, label_selector=selector
            )
            for obj in objects:
                obj = {"apiVersion": view.kind.api_version, "kind": view.kind.kind, **obj}
                if is_ours(obj, seen.deployment, seen.provider):
                    clean = False
                    await self._writer.delete(obj)
        return clean

    @staticmethod
    def _holding(seen: Seen) -> tuple[str, float]:
        """What keeps objects that take long to go, and when to look again for that."""
        held = [held_by(obj, now=seen.now) for obj in seen.ours]
        again = min(
            (seconds for _, seconds in held if seconds is not None), default=names.FINALIZER_TIMEOUT.total_seconds()
        )
        return "; ".join(text for text, _ in held if text), again

    async def _say_terminating(self, seen: Seen, problem: str) -> None:
        if not is_deleting(seen.deployment):
            return
        message = "Waiting until the upstream resources are gone"
        if problem:
            message = f"{message}; {problem}"
        await self._status.write(seen.deployment, terminating_status(seen.deployment, message, now=seen.now))

    def _warn(self, seen: Seen, problem: str) -> None:
        what = ", ".join(f"{obj['kind']} {key_of(obj)}" for obj in seen.ours) or "the upstream resource"
        why = f" ({problem})" if problem else ""
        note = f"Finalizer removed after timeout, {what} may be orphaned{why}"
        orphan = next(iter(seen.ours), None)
        self._events.emit(
            seen.deployment,
            reason="FinalizerTimeout",
            note=note,
            warning=True,
            action="Release",
            related=orphan,
            vital=True,
        )


def _subject(seen: Seen) -> Subject:
    """What a refused deletion is about: which objects there are, and which of them are on their way out."""
    state = sorted((uid_of(obj), is_deleting(obj)) for obj in seen.ours)
    return Subject(uid=uid_of(seen.deployment), generation=0, wanted=("release",), upstream=tuple(state))
