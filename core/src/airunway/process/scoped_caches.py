"""The caches of a namespaced kind and of its cluster-scoped counterpart: RuntimeConfig and ClusterRuntimeConfig.

A cluster without the CRDs counts as one without objects; CRDs that are installed later are noticed within 30 seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from airunway.kube import wait_until_answered
from airunway.process.caches import SharedCache

__all__ = ["ScopedCaches"]


class ScopedCaches:
    """Both caches for one reader, and why they cannot be read yet."""

    def __init__(self, namespaced: SharedCache, cluster: SharedCache) -> None:
        self.namespaced, self.cluster = namespaced, cluster
        self._problems: dict[SharedCache, str] = {}

    @property
    def readable(self) -> bool:
        """Whether both kinds have been read once, or found not to be installed; it stays true."""
        return self.namespaced.answered.is_set() and self.cluster.answered.is_set()

    def unready(self) -> str | None:
        """Why the objects are not readable yet, with kind and verb; None if they are."""
        if self.readable:
            return None
        cache = self.cluster if self.namespaced.answered.is_set() else self.namespaced
        kind, cause = cache.kind, self._problems.get(cache)
        if cause is None:
            return f"the {kind.plural} have not been read yet"
        remedy = ": grant list and watch on them to the account of this process" if cause == "Forbidden" else ""
        return f"cannot list {kind.plural}.{kind.group} ({cause}){remedy}"

    async def read(self) -> None:
        """Wait until both kinds are readable."""
        await wait_until_answered([self.namespaced, self.cluster])

    async def run(self) -> None:
        """Follow both kinds until cancelled."""
        async with asyncio.TaskGroup() as group:
            for cache in (self.namespaced, self.cluster):
                cache.on_restart = self._notice(cache)
                group.create_task(cache.run(), name=str(cache.kind))

    def _notice(self, cache: SharedCache) -> Callable[[str], None]:
        def failed(cause: str) -> None:
            self._problems[cache] = cause

        return failed
