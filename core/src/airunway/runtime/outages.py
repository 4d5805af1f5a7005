"""Failures to write that last. One that passes is nobody's news: the pass is simply done again.

What is behind an API server's 500 may be the upstream's own admission webhook: a user has to be told, or would wait
for ever without a word.
"""

from __future__ import annotations

from datetime import datetime

from airunway.kube import KubeError
from airunway.resource import ObjectKey
from airunway.runtime.answers import meaning_of
from airunway.status import DEPENDENCY_GRACE, Fault

__all__ = ["Outages"]

COMPONENT = "ResourceCreated"


class Outages:
    """Since when the passes over each deployment have failed."""

    def __init__(self) -> None:
        self._since: dict[ObjectKey, datetime] = {}

    def note(self, key: ObjectKey, error: KubeError, *, now: datetime) -> Fault | None:
        """A pass failed with `error`: what is to be said of it, or None as long as it may pass."""
        begun = min(self._since.setdefault(key, now), now)
        if now - begun < DEPENDENCY_GRACE:
            return None
        message = f"The upstream resources cannot be written: {error}"
        return Fault(component=COMPONENT, reason=meaning_of(error).reason, message=message, since=begun)

    def over(self, key: ObjectKey) -> None:
        """A pass came through, or there is nothing more to do for the deployment."""
        self._since.pop(key, None)
