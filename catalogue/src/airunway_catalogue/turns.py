"""Which ModelSources scan, and which wait for their turn at a registry.

Example: two sources scan a registry and three wait. One ends: the turn of the first that waits comes. If that does not
scan, since it was paused meanwhile, the turn is that of the next one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from airunway.resource import ObjectKey

__all__ = ["Turns"]


class Turns:
    """The scans of each registry, of which `most` run at a time.

    `wake(key)` is called for a source whose turn has come: its next pass calls `take` or `leave`.
    """

    def __init__(self, *, most: int, wake: Callable[[ObjectKey], None]) -> None:
        self._most = most
        self._wake = wake
        self._running: Counter[str] = Counter()
        self._waiting: dict[str, dict[ObjectKey, None]] = {}
        self._woken: dict[ObjectKey, str] = {}
        """The registry at which the turn of a source has come, until its next pass."""

    def take(self, key: ObjectKey, host: str) -> bool:
        """Whether a source scans a registry now; if not, it waits there. Elsewhere it waits no more."""
        self._depart(key, but=host)
        if self._running[host] >= self._most:
            self._waiting.setdefault(host, {})[key] = None
            return False
        self._forget(key, host)
        self._running[host] += 1
        return True

    def give_back(self, host: str) -> None:
        """A scan of the registry has ended: the turn of the source that waits the longest comes."""
        self._running[host] -= 1
        if not self._running[host]:
            del self._running[host]
        self._wake_next(host)

    def leave(self, key: ObjectKey) -> None:
        """A source does not scan now, and waits nowhere. A turn that it had is that of the next one."""
        self._depart(key, but=None)

    def clear(self) -> None:
        """Forget all that waits."""
        self._waiting.clear()
        self._woken.clear()

    def _depart(self, key: ObjectKey, *, but: str | None) -> None:
        for host in [host for host, waiting in self._waiting.items() if host != but and key in waiting]:
            self._forget(key, host)
        turn = self._woken.pop(key, None)
        if turn is not None and turn != but:
            self._wake_next(turn)

    def _wake_next(self, host: str) -> None:
        waiting = self._waiting.get(host)
        if waiting and self._running[host] < self._most:
            first = next(iter(waiting))
            self._forget(first, host)
            self._woken[first] = host
            self._wake(first)

    def _forget(self, key: ObjectKey, host: str) -> None:
        waiting = self._waiting.get(host, {})
        waiting.pop(key, None)
        if not waiting:
            self._waiting.pop(host, None)
