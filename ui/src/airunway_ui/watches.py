"""What pages are made of: a watch of the deployments for each set of namespaces, and one for each open deployment.

Pages share them. They end half a minute after the last page, so that reading on costs no new list, and a page that is
left open in no visible tab costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import Protocol, TypeVar, cast

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Forbidden, KubeError, NotFound, Unauthorized
from airunway.redaction import bounded
from airunway.resource import ObjectKey, Resource, dig, is_integer
from airunway.snapshots.following import Watched, follow_snapshots
from airunway.snapshots.reader import right_to, unseen_for
from airunway.snapshots.reading import Source
from airunway.unseen import Unseen
from airunway.view import DeploymentSnapshot
from airunway.view.fleet import FleetRow, fleet_row
from airunway_ui.identity import Identity, Signal

KEPT = 30.0
"""Seconds for which a watch goes on without a page."""

MOST = 64
"""Watches of one person; the one that was left longest makes room."""

_AGAIN = 2.0


class Shared(Protocol):
    """What several pages look at."""

    signal: Signal

    async def known(self) -> None:
        """Wait until there is something to show, also if that is an error."""

    async def close(self) -> None:
        """End its requests."""


T = TypeVar("T", bound=Shared)


class TooMany(Exception):
    """All places are taken; the message is a sentence for the user."""


@dataclass
class _Place:
    shared: Shared
    users: int
    left: float


class Watches:
    """The watches of one person."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self._places: dict[Hashable, _Place] = {}
        self._janitor = asyncio.create_task(self._tidy())

    @asynccontextmanager
    async def deployments(self, namespace: str) -> AsyncIterator[Board]:
        """All deployments of a namespace; empty: of all."""
        async with self._used(("list", namespace), lambda: Board(self.identity, namespace)) as found:
            yield found

    @asynccontextmanager
    async def deployment(self, key: ObjectKey) -> AsyncIterator[Followed]:
        """One deployment with everything below it."""
        async with self._used(("one", key), lambda: Followed(self.identity, key)) as found:
            yield found

    @asynccontextmanager
    async def _used(self, name: Hashable, make: Callable[[], T]) -> AsyncIterator[T]:
        place = self._places.get(name)
        if place is None:
            await self._make_room()
            place = self._places[name] = _Place(make(), 0, monotonic())
        place.users += 1
        try:
            yield cast(T, place.shared)
        finally:
            place.users -= 1
            place.left = monotonic()

    async def _make_room(self) -> None:
        if len(self._places) < MOST:
            return
        unused = [(place.left, name) for name, place in self._places.items() if not place.users]
        if not unused:
            raise TooMany(f"{MOST} pages are open: close some of them")
        await self._places.pop(min(unused, key=lambda each: each[0])[1]).shared.close()

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(1)
            now = monotonic()
            for name, place in list(self._places.items()):
                if not place.users and now - place.left > KEPT:
                    await self._places.pop(name).shared.close()

    async def close(self) -> None:
        """End all watches."""
        self._janitor.cancel()
        await asyncio.gather(*(place.shared.close() for place in self._places.values()))
        self._places.clear()


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One deployment in the list."""

    row: FleetRow
    gpus: int | None
    """GPUs of all its replicas; None if its spec does not say it (a template may)."""
    share: str
    """What it gets of its group; empty if it shares nothing."""


class Board:
    """The rows of all deployments, of which each is made anew when its object changes."""

    def __init__(self, identity: Identity, namespace: str) -> None:
        self.signal = Signal()
        self.entries: dict[ObjectKey, Entry] = {}
        self.namespace = namespace
        source = Source(content="objects", kind=MODEL_DEPLOYMENT, key=ObjectKey(namespace, ""))
        self._changed = asyncio.Event()
        self._watched = Watched(identity.client, source, changed=self._changed, on_error=identity.on_error)
        self._watched.cache.add_handler(self._on_change)
        self._relay = asyncio.create_task(self._pass_on())

    def _on_change(self, key: ObjectKey, _old: Resource | None, new: Resource | None) -> None:
        if new is None:
            self.entries.pop(key, None)
        else:
            self.entries[key] = Entry(row=fleet_row(new), gpus=gpus_of(new), share=_share_of(new))

    async def _pass_on(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            self.signal.set()

    @property
    def state(self) -> Unseen | None:
        """Why there are no rows, or no current ones; None if there are."""
        if self._watched.refused is None and self._watched.error is None:
            return None
        return self._watched.read.unseen[0]

    @property
    def loading(self) -> bool:
        """Whether the first list is still read."""
        return not self._watched.known.is_set()

    @property
    def installed(self) -> bool:
        """Whether the cluster serves the kind at all."""
        return not self._watched.cache.missing

    async def known(self) -> None:
        await self._watched.known.wait()

    async def close(self) -> None:
        self._relay.cancel()
        await self._watched.close()


def _share_of(deployment: Resource) -> str:
    group = dig(deployment, "status", "gateway", "group")
    share, name = dig(group, "share"), dig(group, "name")
    return f"{share} % of {bounded(name, 253)}" if is_integer(share) and isinstance(name, str) else ""


def gpus_of(deployment: Resource) -> int | None:
    """Returns the GPUs that all replicas of a deployment ask for; None if its spec names no number."""
    spec = dig(deployment, "spec")
    roles = [found for name in ("prefill", "decode") if isinstance(found := dig(spec, "scaling", name), dict)]
    parts = [(dig(role, "gpu", "count"), dig(role, "replicas", default=1)) for role in roles]
    if not parts:
        nodes = dig(spec, "scaling", "nodesPerReplica", default=1)
        replicas = dig(spec, "scaling", "replicas", default=1)
        whole = replicas * nodes if is_integer(replicas) and is_integer(nodes) else None
        parts = [(dig(spec, "resources", "gpu", "count"), whole)]
    found = [count * replicas for count, replicas in parts if is_integer(count) and is_integer(replicas)]
    return sum(found) if found and len(found) == len(parts) else None


class Followed:
    """One deployment with everything below it: the newest snapshot, or why there is none."""

    def __init__(self, identity: Identity, key: ObjectKey) -> None:
        self.signal = Signal()
        self.key = key
        self.snapshot: DeploymentSnapshot | None = None
        self.unseen: Unseen | None = None
        """Why it may not be read."""
        self.gone = False
        """Whether there is no such deployment."""
        self._identity = identity
        self._known = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    @property
    def loading(self) -> bool:
        """Whether nothing is known yet."""
        return not self._known.is_set()

    async def _run(self) -> None:
        while True:
            try:
                async for snapshot in follow_snapshots(
                    self._identity.client, self.key, on_error=self._identity.on_error
                ):
                    self.gone = snapshot is None
                    self.snapshot, self.unseen = snapshot or self.snapshot, None
                    self._report()
            except NotFound:
                self.gone = True
            except (Forbidden, Unauthorized) as error:
                # What they saw while they had the right is theirs no more.
                self.snapshot, self.gone = None, False
                right = right_to("get and watch", MODEL_DEPLOYMENT, self.key.namespace)
                self.unseen = unseen_for(f"ModelDeployment {self.key.name}", error, right=right)
            except KubeError as error:
                self._identity.on_error(error)
                if self.snapshot is None:
                    self.unseen = Unseen(what=f"ModelDeployment {self.key.name}", why=bounded(str(error), 300))
            self._report()
            await asyncio.sleep(_AGAIN if self.unseen is None else 5 * _AGAIN)

    def _report(self) -> None:
        self._known.set()
        self.signal.set()

    async def known(self) -> None:
        await self._known.wait()

    async def close(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


async def soon(work: Awaitable[object], *, seconds: float = 3.0) -> None:
    """Wait for something, but not for long: a page that says "loading" is better than none."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await work
