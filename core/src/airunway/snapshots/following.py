"""Follows one deployment with everything below it: watches only, no request while nothing changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, Forbidden, Gone, KubeError, Reflector, Unauthorized
from airunway.resource import ObjectKey, Resource, dig
from airunway.snapshots.reader import Listed, right_to, unseen_for
from airunway.snapshots.reading import (
    Source,
    Surroundings,
    assembled,
    event_sources,
    pod_sources,
    sources_of,
    surroundings_of,
)
from airunway.view import DeploymentSnapshot

_CALM = 0.1
"""Seconds for which changes are collected: one rollout changes many objects at once."""

_AGAIN = 60.0
"""Seconds after a 401 in which another one ends the watch: the credentials were read anew in between."""


class Watched:
    """A running cache that ends with its first 403 or second 401, instead of trying again and again.

    - `known` is set once there is an answer: the list, an error, or that the kind is not served. It stays set.
    - `refused` is the error that ended the watch.
    - `error` is what hindered the first list, which is tried again; None once the list was read.
    - `changed`, an event of the caller, is set with each of these, and with every change of an object.
    - `on_error` of the caller gets each error after which the list or watch is tried again.
    """

    def __init__(
        self,
        client: Client,
        source: Source,
        *,
        changed: asyncio.Event,
        on_error: Callable[[KubeError], None] | None = None,
    ) -> None:
        kind, key = source.kind, source.key
        self.source = source
        self.known = asyncio.Event()
        self.refused: Forbidden | Unauthorized | None = None
        self.error: KubeError | None = None
        self.cache = Reflector(
            client,
            kind,
            namespace=key.namespace,
            label_selector=source.label_selector,
            field_selector=f"metadata.name={key.name}" if key.name else source.field_selector,
            on_restart=self._on_restart,
            optional=True,
        )
        self._changed = changed
        self._on_error = on_error
        self._unauthorized_at = float("-inf")
        self.cache.add_handler(lambda *_: changed.set())
        self._tasks = [
            asyncio.create_task(self.cache.run(), name=f"follow-{kind.plural}"),
            asyncio.create_task(self._until_answered()),
        ]

    @property
    def read(self) -> Listed:
        """The objects, each with its kind; none of a watch that may not be read, or cannot be listed."""
        kind, error = self.source.kind, self.refused or self.error
        if error is not None:
            verb = "list and watch" if isinstance(error, Forbidden) else "list"
            right = right_to(verb, kind, self.source.key.namespace)
            return Listed(unseen=(unseen_for(self.source.what, error, right=right),))
        return Listed(items=tuple({**obj, "kind": obj.get("kind") or kind.kind} for obj in self.cache.values()))

    async def _until_answered(self) -> None:
        await self.cache.answered.wait()
        if self.cache.missing:
            self._tasks[0].cancel()  # the kind is not served; asking for it again and again would be requests at rest
        self.error = None
        self._report()

    def _on_restart(self, cause: str) -> None:
        # A watch goes on after an error without a list, and may then end for another cause.
        error = self.cache.error if type(self.cache.error).__name__ == cause else None
        if isinstance(error, Unauthorized):
            now = asyncio.get_running_loop().time()
            first, self._unauthorized_at = now - self._unauthorized_at > _AGAIN, now
            if first:
                return
        if isinstance(error, Forbidden | Unauthorized):
            self.refused = error
            self._tasks[0].cancel()
            self._report()
            return
        if error is not None and not isinstance(error, Gone) and self._on_error is not None:
            self._on_error(error)
        if error is not None and self.error is None and not self.cache.answered.is_set():
            self.error = error
            self._report()

    def _report(self) -> None:
        self.known.set()
        self._changed.set()

    async def close(self) -> None:
        """End the watch."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def follow_snapshots(
    client: Client, key: ObjectKey, *, on_error: Callable[[KubeError], None] | None = None
) -> AsyncGenerator[DeploymentSnapshot | None, None]:
    """Yields a snapshot at once, and after every change; None while there is no such deployment.

    A source that may not be watched, or cannot be listed, is `Unseen`. Raises Forbidden and other ApiErrors if the
    deployment itself may not be read or watched. `on_error` gets each error after which its watch is tried again.
    """
    first = await client.get(MODEL_DEPLOYMENT, key)  # its errors are for the caller: a cache would try again and again
    changed = asyncio.Event()
    top = Watched(client, Source(content="objects", kind=MODEL_DEPLOYMENT, key=key), changed=changed, on_error=on_error)
    caches: dict[Source, Watched] = {}
    around: tuple[object, Surroundings] | None = None
    try:
        await top.known.wait()
        while True:
            changed.clear()
            if top.refused is not None:
                raise top.refused
            # Until it can be listed it is what it was, which is not the same as deleted.
            deployment = first if top.error is not None else next(iter(top.read.items), None)
            if deployment is None:
                yield None
            else:
                made = _made_by(deployment)
                if around is None or around[0] != made:
                    around = made, await surroundings_of(client, deployment)
                await _adjust(client, caches, deployment, around[1], changed)
                reads = [(source, cache.read) for source, cache in caches.items()]
                others = [*around[1].unseen, *top.read.unseen]
                yield assembled(deployment, reads, others)
            await changed.wait()
            await asyncio.sleep(_CALM)
    finally:
        for cache in (top, *caches.values()):
            with suppress(asyncio.CancelledError):
                await cache.close()


def _made_by(deployment: Resource) -> object:
    provider = dig(deployment, "status", "provider", default={})
    return tuple(dig(provider, name) for name in ("name", "resourceKind", "resourceName", "resourceAPIVersion"))


async def _adjust(
    client: Client,
    caches: dict[Source, Watched],
    deployment: Resource,
    around: Surroundings,
    changed: asyncio.Event,
) -> None:
    """Have a cache for every source, and none besides."""
    wanted = [
        *pod_sources(deployment),
        *event_sources(deployment),
        *sources_of(deployment, around.config, around.served),
    ]
    for source in set(caches) - set(wanted):
        await caches.pop(source).close()
    for source in wanted:
        if source not in caches:
            caches[source] = Watched(client, source, changed=changed)
    await asyncio.gather(*(cache.known.wait() for cache in caches.values()))
