"""Notices that the API server refuses a process's credentials: 401 to every request."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

log = logging.getLogger(__name__)

WARN_AFTER = 3.0
"""Seconds of nothing but 401 until that is logged: at the first one the token is read again, and may be a new one."""

UNREADY_AFTER = 60.0
"""Seconds of nothing but 401 until the process is unready: it sees and writes nothing."""

OnRequest = Callable[[str, str, int, float], None]


class RefusedCredentials:
    """Counts the time since the API server answered anything but 401; `clock` is monotonic."""

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._since: float | None = None
        self._logged = False

    def noting(self, then: OnRequest) -> OnRequest:
        """`then`, called for each request, with each answer noted."""

        def on_request(verb: str, resource: str, status: int, seconds: float) -> None:
            self._note(status)
            then(verb, resource, status, seconds)

        return on_request

    def _note(self, status: int) -> None:
        if status == 0:  # no answer
            return
        if status != 401:
            if self._logged:
                log.info("the API server accepts the credentials of this process again")
            self._since, self._logged = None, False
            return
        if self._since is None:
            self._since = self._clock()
        if not self._logged and (problem := self.problem()) is not None:
            self._logged = True
            log.warning("%s", problem)

    def problem(self) -> str | None:
        """What is wrong, once it has lasted for a moment."""
        if self._since is None or (seconds := self._clock() - self._since) < WARN_AFTER:
            return None
        return (
            f"the API server has refused the credentials of this process (401) for {seconds:.0f} s: its token has "
            "ended and was not renewed, or its ServiceAccount was deleted or made anew; a new pod gets a new token"
        )

    def lasting(self) -> str | None:
        """The problem, once it makes the process unready."""
        if self._since is None or self._clock() - self._since < UNREADY_AFTER:
            return None
        return self.problem()
