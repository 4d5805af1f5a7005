"""Follows one deployment with everything below it: watches only, no request while nothing changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, Reflector
from airunway.resource import ObjectKey, Resource, dig
from airunway.snapshots.reading import Surroundings, assembled, surroundings_of
from airunway.snapshots.sources import Source, event_sources, pod_sources, sources_of
from airunway.view import DeploymentSnapshot, Unseen

__all__ = ["follow_snapshots"]

_CALM = 0.1
"""Seconds for which changes are collected: one rollout changes many objects at once."""

_DENIED = frozenset({"Forbidden", "Unauthorized"})


class _Cache:
    """One source as a cache; `unseen` is set, and the watch ended, once it may not be read."""

    def __init__(self, client: Client, source: Source, changed: asyncio.Event) -> None:
        self.source = source
        self.unseen: Unseen | None = None
        self.known = asyncio.Event()
        self._changed = changed
        name = f"metadata.name={source.key.name}" if source.key.name else ""
        self._reflector = Reflector(
            client,
            source.kind,
            namespace=source.key.namespace,
            label_selector=source.label_selector,
            field_selector=name or source.field_selector,
            on_restart=self._on_restart,
            optional=True,
        )
        self._reflector.add_handler(lambda *_: changed.set())
        self._tasks = [
            asyncio.create_task(self._reflector.run(), name=f"follow-{source.kind.plural}"),
            asyncio.create_task(self._until_answered()),
        ]

    @property
    def items(self) -> list[Resource]:
        kind = self.source.kind
        return [{**obj, "kind": obj.get("kind") or kind.kind} for obj in self._reflector.values()]

    async def _until_answered(self) -> None:
        await self._reflector.answered.wait()
        if self._reflector.missing:
            self._tasks[0].cancel()  # the kind is not served; asking for it again and again would be requests at rest
        self._report()

    def _on_restart(self, cause: str) -> None:
        if cause in _DENIED:
            source = self.source
            right = source.right.replace(source.right.split()[0], "list and watch", 1)
            self.unseen = Unseen(what=source.what, why="you have no right to it", right=right)
            self._tasks[0].cancel()
            self._report()

    def _report(self) -> None:
        self.known.set()
        self._changed.set()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def follow_snapshots(client: Client, key: ObjectKey) -> AsyncGenerator[DeploymentSnapshot | None, None]:
    """Yields a snapshot at once, and after every change; None while there is no such deployment.

    A source that may not be watched is `Unseen`. Raises Forbidden and other ApiErrors if the deployment itself may not
    be read.
    """
    await client.get(MODEL_DEPLOYMENT, key)  # its errors are for the caller: a cache would try again and again
    changed = asyncio.Event()
    top = _Cache(client, Source(content="objects", kind=MODEL_DEPLOYMENT, key=key), changed)
    caches: dict[Source, _Cache] = {}
    around: tuple[object, Surroundings] | None = None
    try:
        await top.known.wait()
        while True:
            changed.clear()
            deployment = next(iter(top.items), None)
            if deployment is None:
                yield None
            else:
                made = _made_by(deployment)
                if around is None or around[0] != made:
                    around = made, await surroundings_of(client, deployment)
                await _adjust(client, caches, deployment, around[1], changed)
                read = [cache for cache in caches.values() if cache.unseen is None]
                unseen = [(cache.source, cache.unseen) for cache in caches.values() if cache.unseen is not None]
                found = [(cache.source, cache.items) for cache in read]
                yield assembled(deployment, found, unseen, around[1].unseen)
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
    caches: dict[Source, _Cache],
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
            caches[source] = _Cache(client, source, changed)
    await asyncio.gather(*(cache.known.wait() for cache in caches.values()))
