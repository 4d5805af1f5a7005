"""Writes single objects: server-side apply that never takes over a foreign object, and deletion of exactly one object.

If the API server refuses a write, `Refused` is raised; any other API error is raised as it is and can be tried again.
`POLICIES` maps the errors to what the status reports and when the write is retried.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from airunway.kube import (
    ApiError,
    Client,
    Conflict,
    ErrorKind,
    Kind,
    KubeError,
    MutationCache,
    NotFound,
    RequestTimedOut,
    TransportError,
)
from airunway.owned.objects import Identity, identity_in, named
from airunway.resource import Resource, controller_owner, is_deleting, key_of, uid_of

# --------------------------------------------------------------------------------------- what an error of a write means


@dataclass(frozen=True, kw_only=True)
class ErrorPolicy:
    """How one kind of error is treated."""

    reason: str
    """Reason of the condition."""
    refuses: bool = False
    """True: a refusal, which is reported at once. False: a transient failure, which is reported once it lasts."""
    lasts: bool = False
    """Whether the same request is refused until the upstream's schema changes."""
    pending: bool = False
    """Whether another object must first exist or be deleted; the deployment needs no change."""


_REFUSED = ErrorPolicy(reason="InvalidSpec", refuses=True)

POLICIES: Mapping[ErrorKind, ErrorPolicy] = {
    ErrorKind.FORBIDDEN: ErrorPolicy(reason="Forbidden", refuses=True),
    ErrorKind.QUOTA: ErrorPolicy(reason="QuotaExceeded", refuses=True),
    ErrorKind.NAMESPACE_TERMINATING: ErrorPolicy(reason="Terminating", refuses=True, pending=True),
    ErrorKind.NAMESPACE_NOT_FOUND: ErrorPolicy(reason="Terminating", refuses=True, pending=True),
    ErrorKind.KIND_TERMINATING: ErrorPolicy(reason="UpstreamNotInstalled", refuses=True, pending=True),
    ErrorKind.KIND_NOT_SERVED: ErrorPolicy(reason="UpstreamNotInstalled", refuses=True, pending=True),
    ErrorKind.SCHEMA: ErrorPolicy(reason="InvalidSpec", refuses=True, lasts=True),
    ErrorKind.DENIED: _REFUSED,
    ErrorKind.INVALID: _REFUSED,
    ErrorKind.TOO_LARGE: _REFUSED,
    ErrorKind.UNAUTHENTICATED: ErrorPolicy(reason="Unauthorized"),
    ErrorKind.THROTTLED: ErrorPolicy(reason="RateLimited"),
    ErrorKind.WEBHOOK_FAILED: ErrorPolicy(reason="ServerError"),
    ErrorKind.SERVER_ERROR: ErrorPolicy(reason="ServerError"),
    ErrorKind.UID_MISMATCH: ErrorPolicy(reason="WriteFailed"),
    ErrorKind.ALREADY_EXISTS: ErrorPolicy(reason="WriteFailed"),
    ErrorKind.CONFLICT: ErrorPolicy(reason="WriteFailed"),
    ErrorKind.NOT_FOUND: ErrorPolicy(reason="WriteFailed"),
    ErrorKind.EXPIRED: ErrorPolicy(reason="WriteFailed"),
    ErrorKind.UNKNOWN: ErrorPolicy(reason="WriteFailed"),
}
"""The policy of every kind of error; a test compares docs/write-errors.md with it."""


def policy_of(error: KubeError) -> ErrorPolicy:
    """The policy for a failed write."""
    match error:
        case ApiError():
            return POLICIES[error.kind]
        case RequestTimedOut():
            return ErrorPolicy(reason="Timeout")
        case TransportError():
            return ErrorPolicy(reason="ConnectionRefused")
        case _:
            return ErrorPolicy(reason="WriteFailed")


class Refused(Exception):
    """The API server refuses an object, or does not serve its kind. `obj` has only the object's identity."""

    def __init__(self, obj: Resource, message: str, kind: ErrorKind) -> None:
        super().__init__(f"{named(obj)} was refused: {message}")
        namespace, name = key_of(obj)
        metadata = {"namespace": namespace, "name": name}
        self.obj: Resource = {"apiVersion": obj.get("apiVersion"), "kind": obj.get("kind"), "metadata": metadata}
        self.message = message
        self.kind = kind

    @property
    def policy(self) -> ErrorPolicy:
        return POLICIES[self.kind]


class NameTaken(Exception):
    """An object that was to be created already exists."""


# ----------------------------------------------------------------------------------------------------------- the writer


NEVER = "1"
"""A resourceVersion that no object has: etcd starts counting at 1, the revision of the empty store."""

DELETION_PATIENCE = 10.0
"""Seconds for which the watch may lag behind a deletion."""

REFUSED_RETRY = 30.0
"""Seconds until a part of the core tries a refused write again."""


class WrittenKind(Protocol):
    """How a kind is written: a version that the cluster serves, and the cache that gets the answers."""

    @property
    def kind(self) -> Kind: ...
    @property
    def objects(self) -> MutationCache: ...


class Writer:
    """Writes objects as one field manager, and notes every answer in the caches."""

    def __init__(
        self,
        *,
        client: Client,
        manager: str,
        kind_of: Callable[[Resource], WrittenKind | None],
        propagation: Mapping[tuple[str, str], str] | None = None,
        namesakes: Mapping[tuple[str, str], Sequence[tuple[str, str, str]]] | None = None,
    ) -> None:
        """The maps are by group and kind.

        - `kind_of` returns how an object is written in its own version; None if the cluster does not serve it.
        - `propagation` is the propagation policy of deletions; without an entry ``Background``.
        - `namesakes` are objects that another controller makes for each object of a kind: ``apiVersion``, ``kind`` and
          name, with ``{name}`` for the object's own.
        """
        self.client = client
        self.manager = manager
        self._kind_of = kind_of
        self._propagation = propagation or {}
        self._namesakes = namesakes or {}
        self._deleted: dict[str, float] = {}

    def view(self, obj: Resource) -> WrittenKind:
        """How the object is written. Raises Refused if the cluster does not serve the kind in that version."""
        view = self._kind_of(obj)
        if view is None:
            raise Refused(
                obj, f"the cluster does not serve {obj['kind']} in {obj['apiVersion']}", ErrorKind.KIND_NOT_SERVED
            )
        return view

    def runs_pods(self, obj: Resource) -> bool:
        """Whether the object is gone only after its pods are."""
        return self._propagation.get(identity_in(obj)[:2]) == "Foreground"

    async def apply(
        self, wanted: Resource, found: Resource | None, *, looked_up: bool = False, dry_run: bool = False
    ) -> Resource:
        """Apply by force, either onto exactly `found` or, if that is None, only if no object exists.

        The apply carries the uid of `found`. So it does not recreate an object that was deleted in the meantime, and
        does not take over one that another writer created (Conflict). If `found` is None, the apply carries a
        resourceVersion that no object has, and the API server answers an existing object with a conflict: raised as
        NameTaken, or as Conflict if `looked_up`. Raises Refused if the API server refuses the object.
        """
        precondition = {"resourceVersion": NEVER} if found is None else {"uid": uid_of(found)}
        body = {**wanted, "metadata": {**wanted["metadata"], **precondition}}
        view = self.view(wanted)
        with view.objects.writing(key_of(wanted)):
            try:
                answer = await self.client.apply(view.kind, body, manager=self.manager, force=True, dry_run=dry_run)
            except Conflict as error:
                if found is None and not looked_up:
                    raise NameTaken from error
                raise
            except ApiError as error:
                if policy_of(error).refuses or (dry_run and isinstance(error, NotFound)):
                    raise Refused(wanted, error.message, error.kind) from error
                raise
            if not dry_run:
                view.objects.note(answer)
        return answer

    async def delete(self, obj: Resource) -> None:
        """Delete exactly this object, with its kind's propagation policy; no error if it is gone already.

        No request is sent if the object is already being deleted, or for DELETION_PATIENCE after a delete was accepted,
        because the watch may lag.
        """
        if is_deleting(obj):
            return
        uid, now = uid_of(obj), monotonic()
        if now - self._deleted.get(uid, -DELETION_PATIENCE) < DELETION_PATIENCE:
            return
        propagation = self._propagation.get(identity_in(obj)[:2], "Background")
        try:
            await self.client.delete(self.view(obj).kind, key_of(obj), uid=uid, propagation=propagation)
        except NotFound:
            return
        self._deleted = {one: when for one, when in self._deleted.items() if now - when < DELETION_PATIENCE}
        self._deleted[uid] = now

    async def namesake(self, wanted: Resource) -> Resource | None:
        """A foreign object that has a name which another controller needs for an object of its own (`namesakes`).

        An object whose controller has the kind and name of `wanted` belongs to it and is not returned. Raises
        KubeError.
        """
        for version, kind, pattern in self._namesakes.get(identity_in(wanted)[:2], ()):
            name = pattern.replace("{name}", key_of(wanted).name)
            identity = {"apiVersion": version, "kind": kind}
            found = await self.find({**identity, "metadata": {**wanted["metadata"], "name": name}})
            owner = controller_owner(found) if found is not None else None
            its = owner is not None and (owner.get("kind"), owner.get("name")) == (wanted["kind"], key_of(wanted).name)
            if found is not None and not its:
                return {**identity, **found}
        return None

    async def find(self, wanted: Resource) -> Resource | None:
        """The object of that name from the API server, regardless of its owner."""
        return await self.client.find(self.view(wanted).kind, key_of(wanted))

    async def look_up(self, wanted: Sequence[Resource], known: Mapping[Identity, Resource]) -> dict[Identity, Resource]:
        """The known objects, and those that the API server has under names that the caches consider free."""
        found = dict(known)
        for obj in wanted:
            if identity_in(obj) not in found and (there := await self.find(obj)) is not None:
                found[identity_in(obj)] = there
        return found


def missing_of(message: str, refused: Resource, absent: Iterable[Resource]) -> Resource | None:
    """The object of the plan that does not exist yet and that a refusal names; None if there is none.

    Only the exact name counts, and not the refused object's own name: a Service often has the name of its primary
    object. The exception is a message that the refused object itself is "not found": then an object that it refers to
    is missing. The API server answers so for a binding whose Role does not exist yet.
    """
    own = identity_in(refused)
    others = [obj for obj in absent if identity_in(obj) != own]
    if others and _says_missing(message, own):
        return others[0]
    for obj in others:
        other = identity_in(obj)
        named = rf"(?<![\w.-]){re.escape(other.name)}(?![\w-]|\.\w)"
        if _says_missing(message, other) or (other.name != own.name and re.search(named, message)):
            return obj
    return None


def _says_missing(message: str, what: Identity) -> bool:
    """Whether the message is that exactly this object was not found."""
    group = rf"\.{re.escape(what.group)}" if what.group else ""
    pattern = rf'(?<![\w.-]){what.kind.lower()}(s|es)?{group} "{re.escape(what.name)}" not found'
    return re.search(pattern, message) is not None
