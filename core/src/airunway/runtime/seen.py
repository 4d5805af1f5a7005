"""What is known of one deployment at the beginning of a pass: one view, whatever may be done about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from airunway.api import names
from airunway.resource import ObjectKey, Resource, annotations_of, condition_of, dig, key_of
from airunway.runtime.desired import Identity, is_ours, is_primary
from airunway.runtime.upstream import Installed
from airunway.status.evidence import EventFacts, Evidence

__all__ = ["Seen", "finalizers_of"]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Out of the caches, all of the same moment.

    `live` is everything of the written kinds that carries the deployment's label, `selected` what read-only kinds have
    of it, `find` looks further objects up by the names that a plan wants. `installed` is the verdict on the kinds by
    (group, kind). `settled` is False while a cache is incomplete: absence
    means nothing then. `rolled_out` is False while pods are known to be of an older revision.
    """

    provider: str
    deployment: Resource
    live: Mapping[Identity, Resource]
    selected: tuple[Resource, ...]
    find: Callable[[Sequence[Resource]], Mapping[Identity, Resource]]
    evidence: Evidence | None
    events: tuple[EventFacts, ...]
    installed: Mapping[tuple[str, str], Installed]
    settled: bool
    rolled_out: bool
    kubernetes: tuple[int, int]
    now: datetime

    @cached_property
    def key(self) -> ObjectKey:
        return key_of(self.deployment)

    @cached_property
    def ours(self) -> tuple[Resource, ...]:
        """What this provider made for the deployment, the primary first."""
        found = [obj for obj in self.live.values() if is_ours(obj, self.deployment, self.provider)]
        return tuple(sorted(found, key=lambda obj: not is_primary(obj)))

    @cached_property
    def primary(self) -> Resource | None:
        """The object that carries the model, whatever its kind and name."""
        return next((obj for obj in self.ours if is_primary(obj)), None)

    @property
    def validated(self) -> Resource | None:
        """The core's verdict on this very generation; None while it has not looked."""
        found = condition_of(self.deployment, "Validated")
        generation = dig(self.deployment, "metadata", "generation")
        return found if found is not None and found.get("observedGeneration") == generation else None

    @property
    def is_mine(self) -> bool:
        """Whether the core has given the deployment to this provider."""
        return bool(dig(self.deployment, "status", "provider", "name") == self.provider)

    @property
    def paused(self) -> bool:
        return annotations_of(self.deployment).get(names.PAUSED) == "true"

    @property
    def dry_run(self) -> bool:
        """Whether the deployment asks for a plan only; just the exact word counts."""
        return annotations_of(self.deployment).get(names.DRY_RUN) == "true"

    @property
    def held_by(self) -> str:
        """Another provider, which has not yet cleaned up what it made; empty if there is none."""
        others = (names.provider_of_finalizer(finalizer) for finalizer in finalizers_of(self.deployment))
        return next((other for other in others if other not in ("", self.provider)), "")


def finalizers_of(deployment: Resource) -> list[str]:
    return dig(deployment, "metadata", "finalizers") or []
