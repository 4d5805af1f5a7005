"""An upstream where there are no pods: every object gets the status that its scenario says, in one write.

Cheap by intention: one cache, one status patch per object and generation, nothing else is read or made unless the
operator makes children. A benchmark with ten thousand objects must measure AI Runway, not this.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TypeAlias

from airunway.kube import Client, Conflict, Controller, Kind, NotFound, Reflector, WorkQueue
from airunway.resource import (
    ObjectKey,
    Resource,
    annotations_of,
    dig,
    format_time,
    is_deleting,
    key_of,
    owner_reference,
)
from airunway_testing.simulators.scenarios import ANNOTATION, INSTANT, Scenario, parse_scenario, scenario_of
from airunway_testing.simulators.writes import finalizers_patch, status_patch

log = logging.getLogger(__name__)

Answer: TypeAlias = Callable[[Resource, Scenario, str], Resource]
"""``answer(object, scenario, now)``: the whole status that the scenario leads to; `now` is RFC 3339.

Equal to the present status where nothing is left to do: then nothing is written."""

Children: TypeAlias = Callable[[Resource, Scenario, str], Sequence[tuple[Kind, Resource]]]
"""``children(object, scenario, now)``: what the operator makes of an object, before it writes that object's status.

Name, labels and spec of each are its own; the namespace and the owner are added. A ``status`` in it is written as its
controller would, with the ``observedGeneration`` of what was made: no controller of workloads runs on this level."""


class Scripted:
    """Answers objects of one kind by scenario; `run` works until it is cancelled.

    `name` is the operator's, in logs; `manager` its field manager, different from all of AI Runway's; `finalizer` what
    holds an object that `lingers`. `keep` gives the part of an object beside metadata and status that `answer` looks
    at: the rest is not kept in memory. `children` says what is made of an object. `scenario` is the word for objects
    without the annotation; `workers` bounds the writes under way at one time. Raises ScenarioError for an unknown word;
    one in an annotation is an ``error``.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind,
        answer: Answer,
        *,
        name: str,
        manager: str,
        finalizer: str,
        keep: Callable[[Resource], Resource] = lambda _: {},
        children: Children = lambda *_: (),
        scenario: str = INSTANT,
        workers: int = 16,
    ) -> None:
        self._client, self._kind, self._answer = client, kind, answer
        self._name, self._manager, self._finalizer = name, manager, finalizer
        self._keep, self._children = keep, children
        self._default = parse_scenario(scenario or INSTANT)
        self._queue: WorkQueue[ObjectKey] = WorkQueue()
        self._controller = Controller(f"scripted-{name}", self._queue, self._reconcile, workers=workers)
        self._objects = Reflector(client, kind, project=self._trimmed)

    async def run(self) -> None:
        self._objects.add_handler(self._on_change)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._objects.run(), name=f"scripted-{self._name}-{self._kind.plural}")
            group.create_task(self._controller.run(), name=f"scripted-{self._name}")

    def _on_change(self, key: ObjectKey, _old: Resource | None, new: Resource | None) -> None:
        if new is not None:
            self._queue.add(key)

    async def _reconcile(self, key: ObjectKey) -> float | None:
        obj = self._objects.get(key)
        if obj is None:
            return None
        scenario = scenario_of(obj, self._default)
        try:
            obj = await self._hold_or_release(key, obj, hold=scenario.lingers)
            if not is_deleting(obj):
                now = format_time(datetime.now(UTC))
                for kind, child in self._children(obj, scenario, now):
                    await self._make(obj, kind, child)
                await self._write_status(key, obj, scenario, now)
        except NotFound:
            return None
        except Conflict as error:
            log.info("%s: %s", key, error)  # the change that came between brings us back here
        return None

    async def _make(self, owner: Resource, kind: Kind, child: Resource) -> None:
        """A child as it is to be, and how its controller says it is."""
        key = ObjectKey(key_of(owner).namespace, key_of(child).name)
        # The owner in the cache is trimmed, and never says of what kind it is.
        of = {**owner, "apiVersion": self._kind.api_version, "kind": self._kind.kind}
        metadata = {**child["metadata"], "namespace": key.namespace, "ownerReferences": [owner_reference(of)]}
        body = {field: value for field, value in child.items() if field != "status"}
        body = {**body, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        made = await self._client.apply(kind, body, manager=self._manager, force=True)
        if "status" not in child:
            return
        status = {"observedGeneration": dig(made, "metadata", "generation"), **child["status"]}
        if status != (made.get("status") or {}):
            patch = status_patch(made, status)
            await self._client.merge_patch(kind, key, patch, subresource="status", manager=self._manager)

    async def _write_status(self, key: ObjectKey, obj: Resource, scenario: Scenario, now: str) -> None:
        before = obj.get("status") or {}
        status = self._answer(obj, scenario, now)
        if status != before:
            patch = status_patch(obj, status)
            await self._client.merge_patch(self._kind, key, patch, subresource="status", manager=self._manager)

    async def _hold_or_release(self, key: ObjectKey, obj: Resource, *, hold: bool) -> Resource:
        """The object as it is then."""
        finalizers = dig(obj, "metadata", "finalizers", default=[])
        if (self._finalizer in finalizers) == hold or (hold and is_deleting(obj)):
            return obj
        wanted = [*finalizers, self._finalizer] if hold else [f for f in finalizers if f != self._finalizer]
        return await self._client.merge_patch(self._kind, key, finalizers_patch(obj, wanted), manager=self._manager)

    def _trimmed(self, obj: Resource) -> Resource:
        """Only what the answer depends on."""
        metadata = obj.get("metadata") or {}
        kept = ("namespace", "name", "uid", "generation", "resourceVersion", "deletionTimestamp", "finalizers")
        trimmed: Resource = {"metadata": {field: metadata[field] for field in kept if field in metadata}}
        if ANNOTATION in annotations_of(obj):
            trimmed["metadata"]["annotations"] = {ANNOTATION: annotations_of(obj)[ANNOTATION]}
        return {**trimmed, **self._keep(obj), "status": obj.get("status")}
