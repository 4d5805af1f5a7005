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
"""Key under which a projected object keeps its facts."""


@dataclass(frozen=True, kw_only=True)
class PodProjection:
    """Projects a pod to its facts and the first of `labels` that it carries."""

    labels: tuple[str, ...]
    """Labels that select pods, in order of preference."""
    role_label: str
    """Label whose value is the pod's role."""
    serving_roles: tuple[str, ...]
    """Roles whose pods answer requests."""

    def __call__(self, pod: Resource) -> Resource:
        found = labels_of(pod)
        by = next((label for label in self.labels if label in found), self.labels[0])
        facts = pod_facts(pod, role_label=self.role_label, serving_roles=self.serving_roles)
        return _projected(pod, facts, by=by)


@dataclass(kw_only=True, eq=False)
class EventReader:
    """A subscriber to events."""

    reasons: Mapping[str, frozenset[str]]
    """Reasons of the wanted events, by the kind that an event is about."""
    about: Callable[[EventFacts], tuple[ObjectKey, ...] | None]
    """Returns the deployments that an event is about; None if the event does not concern this reader."""
    knows: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the reader's other caches are complete: before that it cannot tell what an event is about."""


class EventProjection:
    """Projects events that at least one reader wants, each with its deployments by the reader's name."""

    def __init__(self) -> None:
        self._readers: dict[str, EventReader] = {}

    def join(self, name: str, reader: EventReader) -> None:
        self._readers[name] = reader

    def leave(self, name: str, reader: EventReader) -> None:
        """Remove the reader, unless another one has joined under its name since."""
        reader.knows.set()
        if self._readers.get(name) is reader:
            del self._readers[name]

    async def until_all_know(self) -> None:
        """Wait for all readers before events are listed: an unwanted event is dropped, and the watch does not repeat
        it.
        """
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
    """Project an object to its version, its facts, and the label `by` which it was found, with that label's value."""
    metadata = obj.get("metadata") or {}
    kept = {key: metadata.get(key) for key in ("name", "namespace", "uid", "resourceVersion")}
    return {"metadata": kept, FACTS: facts, "by": by, "label": str(labels_of(obj).get(by, ""))}
