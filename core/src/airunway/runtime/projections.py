"""What the caches keep of pods, events, claims and Jobs: facts instead of whole objects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from airunway.api import names
from airunway.resource import ObjectKey, Resource, dig, labels_of
from airunway.status.evidence import (
    EventFacts,
    claim_facts,
    event_facts,
    job_facts,
    pod_facts,
)

__all__ = ["FACTS", "EventProjection", "EventReader", "PodProjection", "project_claim", "project_job"]


FACTS = "facts"
"""Where a projected object keeps what was read out of it."""


@dataclass(frozen=True, kw_only=True)
class PodProjection:
    """Of a pod its facts, and by which of the `labels` it was found first."""

    labels: tuple[str, ...]
    role_label: str
    serving_roles: tuple[str, ...]

    def __call__(self, pod: Resource) -> Resource:
        found = labels_of(pod)
        by = next((label for label in self.labels if label in found), self.labels[0])
        facts = pod_facts(pod, role_label=self.role_label, serving_roles=self.serving_roles)
        return _projected(pod, facts, by=by)


@dataclass(kw_only=True, eq=False)
class EventReader:
    """A subscriber: the `reasons` of events by kind, and the deployments that one is `about` (None: not its own)."""

    reasons: Mapping[str, frozenset[str]]
    about: Callable[[EventFacts], tuple[ObjectKey, ...] | None]
    knows: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the reader knows what is its own: before that it could tell of no event what it is about."""


class EventProjection:
    """The events that a reader wants, with what each of them says that they are about, by its name."""

    def __init__(self) -> None:
        self._readers: dict[str, EventReader] = {}

    def join(self, name: str, reader: EventReader) -> None:
        self._readers[name] = reader

    def leave(self, name: str, reader: EventReader) -> None:
        """Unless another one has the name by now."""
        reader.knows.set()
        if self._readers.get(name) is reader:
            del self._readers[name]

    async def until_all_know(self) -> None:
        """Events are read after that: what nobody wants is not kept, and does not come again."""
        for reader in list(self._readers.values()):
            await reader.knows.wait()

    def __call__(self, event: Resource) -> Resource | None:
        kind, reason = dig(event, "regarding", "kind"), dig(event, "reason")
        if not isinstance(kind, str):
            return None
        readers = {name: each for name, each in self._readers.items() if reason in each.reasons.get(kind, ())}
        if not readers:
            return None
        facts = event_facts(event)
        if facts.note.startswith("Error: "):  # repeats the waiting reason of the container
            return None
        owners = {name: reader.about(facts) for name, reader in readers.items()}
        about = {name: keys for name, keys in owners.items() if keys is not None}
        return {**_projected(event, facts), "about": about} if about else None


def project_claim(claim: Resource) -> Resource:
    return _projected(claim, claim_facts(claim))


def project_job(job: Resource) -> Resource:
    return _projected(job, job_facts(job))


def _projected(obj: Resource, facts: object, *, by: str = names.MODEL_DEPLOYMENT) -> Resource:
    """What a cache keeps: enough to compare versions, the facts, the label that it is known by and its value."""
    metadata = obj.get("metadata") or {}
    kept = {key: metadata.get(key) for key in ("name", "namespace", "uid", "resourceVersion")}
    return {"metadata": kept, FACTS: facts, "by": by, "label": str(labels_of(obj).get(by, ""))}
