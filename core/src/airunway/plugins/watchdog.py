"""Names a hook that does not return: it blocks the event loop, so that nothing else of the process can.

Example: a hook asks a server that never answers. The probes fail, and the log says which hook waits, and in which line.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from traceback import StackSummary, extract_stack

log = logging.getLogger(__name__)

PATIENCE = 10.0
"""Seconds after which a call that has not returned is reported."""


@dataclass(frozen=True, kw_only=True)
class _Call:
    what: str
    thread: int
    begun: float
    where: Callable[[StackSummary], str]


class Watchdog:
    """A thread that looks at the running call, and reports each one once."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._running: _Call | None = None
        self._thread: threading.Thread | None = None

    @contextmanager
    def watching(self, what: str, where: Callable[[StackSummary], str]) -> Iterator[None]:
        """While a call runs. `what` names it in the log; `where` describes a place in its stack."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="hooks", daemon=True)
            self._thread.start()
        before = self._running
        self._running = _Call(what=what, thread=threading.get_ident(), begun=monotonic(), where=where)
        try:
            yield
        finally:
            self._running = before

    def _watch(self) -> None:
        reported: _Call | None = None
        pause = threading.Event()
        while True:
            pause.wait(self._patience / 2)
            call = self._running
            if call is None or call is reported or monotonic() - call.begun < self._patience:
                continue
            reported = call
            try:
                frame = sys._current_frames().get(call.thread)
                place = call.where(extract_stack(frame)) if frame is not None else ""
                if call is self._running:
                    waited = monotonic() - call.begun
                    log.error("%s has not returned for %.0f s%s; nothing else runs meanwhile", call.what, waited, place)
            except Exception:
                log.exception("the call that does not return cannot be described: %s", call.what)
