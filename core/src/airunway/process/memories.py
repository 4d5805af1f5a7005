"""kopf's per-object memory, without the memory.

For every object that an admission review names, kopf keeps a record for the life of the process, to be shared with the
handlers that watch the object. We have none (docs/decisions/0001), and nobody would ever remove those records: three
thousand reviews leave three thousand of them. Ours are gone with the review.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from airunway.process.lean_kopf import kopf

__all__ = ["NoMemories"]


class NoMemories:
    """What `kopf.operator(memories=…)` asks of it as long as kopf watches nothing."""

    async def recall_memo(self, raw_body: object, *, memobase: object = None, ephemeral: bool = False) -> Any:
        """A fresh memo for one review."""
        return kopf.Memo()

    def iter_all_memories(self) -> Iterator[Any]:
        return iter(())

    def iter_all_daemon_memories(self) -> Iterator[Any]:
        """There are no daemons to stop."""
        return iter(())
