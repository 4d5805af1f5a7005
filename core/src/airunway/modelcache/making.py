"""Creates ModelArtifacts for deployments and templates, each once: several may ask for one at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from weakref import WeakValueDictionary

from airunway.api import names
from airunway.kube import Client
from airunway.modelcache.caches import ArtifactCaches
from airunway.owned.writer import Occupied, Refused, Writer
from airunway.resource import ObjectKey, Resource, key_of

__all__ = ["ArtifactMaker"]


class ArtifactMaker:
    """Creates the artifacts of the part."""

    def __init__(self, *, client: Client, caches: ArtifactCaches) -> None:
        self._caches = caches
        self._writer = Writer(client=client, manager=names.MODEL_CACHE_MANAGER, kind_of=caches.view_of)
        self._makers: WeakValueDictionary[ObjectKey, asyncio.Lock] = WeakValueDictionary()
        """One artifact is created by one worker at a time; a lock lives as long as a worker has it or waits for it."""

    async def make(self, artifact: Resource, *, labels: Mapping[str, str]) -> Refused | None:
        """Create an artifact with these labels besides its own; returns what hinders it. One that exists already has
        the same weights by its name.

        Users of one model that are made in the same second wait for the first of them.
        """
        metadata, key = artifact["metadata"], key_of(artifact)
        async with self._makers.setdefault(key, asyncio.Lock()):
            if self._caches.artifact(key) is not None:
                return None
            body = {**artifact, "metadata": {**metadata, "labels": {**labels, **metadata["labels"]}}}
            try:
                await self._writer.apply(body, None)
            except Occupied:
                return None  # the watch brings it
            except Refused as no:
                return no
        return None
