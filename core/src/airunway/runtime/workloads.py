"""Asking about workloads that upstreams make: are their pods a deployment's, and are they of the newest revision?

Upstreams put no labels of ours on them, so they cannot be watched; they are read one by one, when an event says that
one cannot create its pods, and when an upstream says that a changed deployment is ready.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence

from airunway.api import names
from airunway.kube import DEPLOYMENT, JOB, REPLICA_SET, STATEFUL_SET, Client, Forbidden, Kind, NotFound
from airunway.resource import ObjectKey, Resource, dig, uid_of
from airunway.status.evidence import EventFacts, PodFacts

__all__ = ["WORKLOADS", "Workloads"]

log = logging.getLogger(__name__)

WORKLOADS = {kind.kind: kind for kind in (STATEFUL_SET, REPLICA_SET, DEPLOYMENT, JOB)}
"""Kinds that make pods from a template."""

_REMEMBERED = 4096


class Workloads:
    """Reads workloads; remembers by uid whose pods one makes, which never changes."""

    def __init__(self, client: Client, *, labels: Sequence[str]) -> None:
        self._client = client
        self._labels = labels
        self._known: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self._denied = False

    async def makes_pods_of(self, event: EventFacts, *, objects: Collection[str], deployment: ObjectKey) -> bool:
        """Whether the workload that an event is about makes the pods of that deployment: by its template's labels.

        `objects` are the names of the deployment's objects that its pods may carry.

        Raises KubeError if the API server cannot tell just now.
        """
        if event.uid not in self._known:
            key = ObjectKey(event.namespace, event.name)
            workload = await self._read(WORKLOADS[event.kind], key) if event.uid else None
            if workload is None:
                return event.name in objects
            if uid_of(workload) != event.uid:
                workload = {}  # the event is about an earlier one of the same name, which is gone for good
            labels = dig(workload, "spec", "template", "metadata", "labels", default={})
            theirs = next((str(labels[key]) for key in self._labels if labels.get(key)), "")
            self._known[event.uid] = (theirs, str(labels.get(names.MODEL_DEPLOYMENT, "")))
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        theirs, ours = self._known[event.uid]
        return ours == deployment.name or theirs in objects

    async def rolled_out(self, pods: Iterable[PodFacts]) -> bool:
        """Whether each StatefulSet behind the pods is there and has no newer revision than theirs. Raises KubeError."""
        revisions: dict[ObjectKey, set[str]] = {}
        for pod in pods:
            kind, name = pod.owner
            if kind == STATEFUL_SET.kind and pod.alive and pod.revision:
                revisions.setdefault(ObjectKey(pod.namespace, name), set()).add(pod.revision)
        for key, seen in revisions.items():
            found = await self._read(STATEFUL_SET, key)
            if found is None:
                return True
            observed = dig(found, "status", "observedGeneration", default=0)
            if observed < dig(found, "metadata", "generation", default=0):
                return False
            if seen != {dig(found, "status", "updateRevision")}:
                return False
        return True

    async def _read(self, kind: Kind, key: ObjectKey) -> Resource | None:
        """The workload, empty if it is gone; None where workloads may not be read."""
        if self._denied:
            return None
        try:
            return await self._client.get(kind, key)
        except NotFound:
            return {}
        except Forbidden as error:
            self._denied = True
            log.warning(
                "workloads may not be read (%s): they are told by their names, their revisions stay unknown", error
            )
            return None
