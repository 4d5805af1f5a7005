"""Recordings in virtual time: recorded changes are inputs, and the simulator's passes run between them.

What the real operator wrote is not an input: it is what the simulator's writes are compared with.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeAlias

from airunway.resource import Resource
from airunway_testing.simulators.passes import Outcome, retry_delay

Input: TypeAlias = tuple[float, Callable[[], None]]
"""When (seconds since the beginning), and what then becomes of the recorded world."""


class Replay:
    """The clock of a recorded world, and its inputs.

    An input that the operator watches sets `changed`; so does every write of the operator. `clock` is in seconds.
    """

    def __init__(self, inputs: Iterable[Input]) -> None:
        self.clock = 0.0
        self.changed = False
        self._inputs = sorted(inputs, key=lambda entry: entry[0])

    def advance(self, seconds: float) -> None:
        """Let that much time pass: inputs that fall into it happen."""
        self._advance_to(self.clock + seconds)

    async def run(self, reconcile: Callable[[], Awaitable[Outcome]], *, until: float = float("inf")) -> None:
        """Passes, each as soon as something watched has changed, until the recording is over.

        `until` (seconds) ends it earlier: later inputs do not arrive.
        """
        self._inputs = [entry for entry in self._inputs if entry[0] < until]
        requeue_at = float("inf")
        failures = 0
        while self.changed or self._inputs:
            if not self.changed:
                self._advance_to(min(self._inputs[0][0], requeue_at))
                if not self.changed and self.clock < requeue_at:
                    continue
            self.changed, requeue_at = False, float("inf")
            outcome = await reconcile()
            failures = failures + 1 if outcome.failed else 0
            if outcome.failed:
                requeue_at = self.clock + retry_delay(failures)
            elif outcome.requeue_after is not None:
                requeue_at = self.clock + outcome.requeue_after

    def _advance_to(self, moment: float) -> None:
        while self._inputs and self._inputs[0][0] <= moment:
            at, happen = self._inputs.pop(0)
            self.clock = max(self.clock, at)
            happen()
        self.clock = max(self.clock, moment)


def settled(statuses: Sequence[tuple[float, Resource]], *, until: float, for_at_least: float) -> list[Resource]:
    """The statuses that stood for that many seconds; the last one stood `until` then."""
    ends = [*(moment for moment, _ in statuses[1:]), until]
    return [status for (began, status), end in zip(statuses, ends, strict=True) if end - began >= for_at_least]


def lacking(wanted: Sequence[Resource], found: Iterable[Resource]) -> list[Resource]:
    """The rest of `wanted` from the first that does not follow in `found`. What only blinked between is no change."""
    kept = [status for position, status in enumerate(wanted) if position == 0 or status != wanted[position - 1]]
    rest = iter(found)
    for position, status in enumerate(kept):
        if not any(status == other for other in rest):
            return kept[position:]
    return []
