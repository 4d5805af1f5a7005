"""How an operator takes the answers to what it asks: most refusals mean that a later pass will know better."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from airunway.kube import EVENT, AlreadyExists, Client, Conflict, ErrorKind, Forbidden, Kind, NotFound
from airunway.resource import ObjectKey, Resource, key_of, uid_of

log = logging.getLogger(__name__)


@dataclass
class Attempt:
    """What became of a write.

    `overtaken`: its object is gone, or another client changed or made it. `leaving`: its namespace is being deleted,
    whose controller deletes the rest soon.
    """

    overtaken: bool = False
    leaving: bool = False

    @property
    def landed(self) -> bool:
        return not (self.overtaken or self.leaving)


@contextmanager
def attempt(key: ObjectKey) -> Iterator[Attempt]:
    """For a write of a pass about `key`: what ends the pass and is no fault ends the context, and is recorded by it."""
    made = Attempt()
    try:
        yield made
    except (NotFound, Conflict, AlreadyExists) as error:
        log.info("%s: %s", key, error)
        made.overtaken = True
    except Forbidden as error:
        if error.kind is not ErrorKind.NAMESPACE_TERMINATING:
            raise
        log.info("%s: %s", key, error)
        made.leaving = True


async def find(client: Client, kind: Kind, key: ObjectKey) -> Resource | None:
    """The object, or None if it is not there."""
    try:
        return await client.get(kind, key)
    except NotFound:
        return None


def event_about(
    obj: Resource, kind: Kind, *, reason: str, note: str, by: str, instance: str, type_: str = "Normal"
) -> Resource:
    """An event that the controller `by` tells of an object; `instance` is which of its processes does."""
    key = key_of(obj)
    regarding = {"apiVersion": kind.api_version, "kind": kind.kind}
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {"namespace": key.namespace, "name": f"{key.name}.{uuid.uuid4().hex[:16]}"},
        "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": by,
        "reportingInstance": instance,
        "action": "Reconcile",
        "reason": reason,
        "regarding": {**regarding, "namespace": key.namespace, "name": key.name, "uid": uid_of(obj)},
        "note": note,
        "type": type_,
    }
