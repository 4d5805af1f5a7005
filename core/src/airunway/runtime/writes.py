"""Writing one upstream object: applied onto exactly what was checked, rehearsed, deleted; and what a refusal is."""

from __future__ import annotations

from time import monotonic

from airunway.kube import Answer, ApiError, Client, Conflict, NotFound
from airunway.plugins.contract import UpstreamKind
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource, key_of, uid_of
from airunway.runtime.answers import MEANINGS, Meaning, is_refusal
from airunway.runtime.desired import identity_in
from airunway.runtime.steps import Step, missing_of, named, trial_of
from airunway.runtime.upstreams import UpstreamWatch, View

__all__ = ["NEVER", "Occupied", "Refused", "Writer"]

NEVER = "1"
"""A resourceVersion that no object has: an etcd counts from one, and that is its state with nothing in it."""


DELETION_PATIENCE = 10.0
"""Seconds for which the watch may be behind with a deletion."""


class Refused(Exception):
    """The server will not take an object as it is, or we cannot address it (no `answer`). `obj` says which, no more."""

    def __init__(self, obj: Resource, message: str, answer: Answer | None = None) -> None:
        super().__init__(f"{named(obj)} was refused: {message}")
        namespace, name = key_of(obj)
        metadata = {"namespace": namespace, "name": name}
        self.obj: Resource = {"apiVersion": obj.get("apiVersion"), "kind": obj.get("kind"), "metadata": metadata}
        self.message = message
        self.answer = answer

    @property
    def meaning(self) -> Meaning:
        return MEANINGS[self.answer or Answer.INVALID]


class Occupied(Exception):
    """The API server says that an object is there already which was to be made."""


class Writer:
    """Writes objects of one provider as its field manager; every answer goes into the caches."""

    def __init__(self, *, client: Client, host: ProviderHost, upstream: UpstreamWatch, manager: str) -> None:
        self._client = client
        self._host = host
        self._upstream = upstream
        self._manager = manager
        self._deleted: dict[str, float] = {}

    def view(self, obj: Resource) -> View:
        """Raises Refused for a kind, or a version of it, that the cluster does not serve."""
        view = self._upstream.view_of(obj)
        if view is None:
            raise Refused(obj, f"the cluster does not serve {obj['kind']} in {obj['apiVersion']}", Answer.KIND_ABSENT)
        return view

    def kind(self, obj: Resource) -> UpstreamKind:
        return self._host.kinds[identity_in(obj)[:2]]

    def runs_pods(self, obj: Resource) -> bool:
        """Whether gone means, of such an object, that its pods are."""
        return self.kind(obj).deletion == "Foreground"

    async def apply(
        self, wanted: Resource, found: Resource | None, *, sure: bool = False, dry_run: bool = False
    ) -> Resource:
        """Apply by force: onto `found` and no other object, or, where that is None, only if there is none.

        The uid of what was checked goes along: an object that was deleted since is not made again by a pass that knows
        an old state, and one that somebody else made is not taken over (Conflict). Where there is to be none, no object
        ever has the resourceVersion that is asked for, so that the API server answers with a conflict if there is one:
        Occupied, or Conflict if that was `sure`. Raises Refused where the server says no to what is asked.
        """
        precondition = {"resourceVersion": NEVER} if found is None else {"uid": uid_of(found)}
        body = {**wanted, "metadata": {**wanted["metadata"], **precondition}}
        view = self.view(wanted)
        with view.objects.writing(key_of(wanted)):
            try:
                answer = await self._client.apply(view.kind, body, manager=self._manager, force=True, dry_run=dry_run)
            except Conflict as error:
                if found is None and not sure:
                    raise Occupied from error
                raise
            except ApiError as error:
                if is_refusal(error) or (dry_run and isinstance(error, NotFound)):
                    raise Refused(wanted, error.message, error.answer) from error
                raise
            if not dry_run:
                view.objects.note(answer)
        return answer

    async def rehearse(self, steps: tuple[Step, ...], *, absent: tuple[Resource, ...], sure: bool = False) -> None:
        """Dry-run what would be written (rulings 15); a replacement under a name of its own.

        What is refused for want of an object that the same plan makes first says nothing: an upstream's webhook misses
        a ConfigMap, the API server the Role of a binding. Raises Refused for anything else.
        """
        for step in steps:
            wanted, found = step.wanted, step.live if step.writes else None
            if wanted is None:
                continue
            same_name = step.live is not None and identity_in(step.live) == identity_in(wanted)
            trial = trial_of(wanted) if not step.writes and same_name else wanted
            try:
                await self.apply(trial, found, sure=sure or not step.writes, dry_run=True)
            except Refused as refused:
                others = [obj for obj in absent if obj is not wanted]
                if missing_of(refused.message, wanted, others) is None:
                    raise Refused(wanted, refused.message, refused.answer) from refused

    async def delete(self, obj: Resource) -> None:
        """Delete exactly this object, as its kind demands; one that is gone already is no error.

        What the server has accepted is not asked for again until the watch can have shown it.
        """
        kind, uid, now = self.kind(obj), uid_of(obj), monotonic()
        if now - self._deleted.get(uid, -DELETION_PATIENCE) < DELETION_PATIENCE:
            return
        try:
            await self._client.delete(self.view(obj).kind, key_of(obj), uid=uid, propagation=kind.deletion)
        except NotFound:
            return
        self._deleted = {one: when for one, when in self._deleted.items() if now - when < DELETION_PATIENCE}
        self._deleted[uid] = now

    async def find(self, wanted: Resource) -> Resource | None:
        """The object of that name as the API server has it, whosever it is."""
        try:
            return await self._client.get(self.view(wanted).kind, key_of(wanted))
        except NotFound:
            return None
