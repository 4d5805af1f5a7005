"""The simulated KAITO where there are no pods: every Workspace gets the status that its scenario says, in one write.

Cheap by intention: one cache, one status patch per Workspace and generation, nothing else is read or made. A benchmark
with ten thousand Workspaces must measure AI Runway, not this.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

from airunway.kube import Client, Conflict, Controller, NotFound, Reflector, WorkQueue
from airunway.resource import ObjectKey, Resource, annotations_of, dig, format_time, is_deleting, uid_of
from airunway_kaito_simulator import names
from airunway_kaito_simulator.kinds import WORKSPACE
from airunway_kaito_simulator.scenarios import (
    INSTANT,
    Scenario,
    parse_scenario,
    scripted_status,
)
from airunway_kaito_simulator.writes import status_patch
from airunway_testing.simulators import ScenarioError

__all__ = ["ScriptedKaito"]

log = logging.getLogger(__name__)


class ScriptedKaito:
    """Answers Workspaces by scenario; `run` works until it is cancelled.

    `scenario` is the word for Workspaces without the annotation ``simulator.airunway.ai/scenario`` (see `scenarios`);
    `workers` bounds the writes under way at one time. Raises ScenarioError for an unknown word. An unknown word in an
    annotation shows as a reconcile error in the Workspace's conditions.
    """

    def __init__(self, client: Client, *, scenario: str = INSTANT, workers: int = 16) -> None:
        self._default = parse_scenario(scenario)
        self._client = client
        self._queue: WorkQueue[ObjectKey] = WorkQueue()
        self._controller = Controller("scripted-kaito", self._queue, self._reconcile, workers=workers)
        self._workspaces = Reflector(client, WORKSPACE, project=_trimmed)

    async def run(self) -> None:
        self._workspaces.add_handler(self._on_change)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._workspaces.run(), name="scripted-kaito-workspaces")
            group.create_task(self._controller.run(), name="scripted-kaito")

    def _on_change(self, key: ObjectKey, _old: Resource | None, new: Resource | None) -> None:
        if new is not None:
            self._queue.add(key)

    async def _reconcile(self, key: ObjectKey) -> float | None:
        workspace = self._workspaces.get(key)
        if workspace is None:
            return None
        scenario = self._scenario_of(workspace)
        try:
            await self._hold_or_release(key, workspace, hold=scenario.lingers)
            if not is_deleting(workspace):
                await self._answer(key, workspace, scenario)
        except NotFound:
            return None
        except Conflict as error:
            log.info("%s: %s", key, error)  # the change that came between brings us back here
        return None

    async def _answer(self, key: ObjectKey, workspace: Resource, scenario: Scenario) -> None:
        before = workspace.get("status") or {}
        status = scripted_status(workspace, scenario, now=format_time(datetime.now(UTC)))
        if status != before:
            patch = {"metadata": {"uid": uid_of(workspace)}, "status": status_patch(before, status)}
            await self._client.merge_patch(WORKSPACE, key, patch, subresource="status", manager=names.MANAGER)

    async def _hold_or_release(self, key: ObjectKey, workspace: Resource, *, hold: bool) -> None:
        finalizers = dig(workspace, "metadata", "finalizers", default=[])
        if (names.FINALIZER in finalizers) == hold or (hold and is_deleting(workspace)):
            return
        wanted = [*finalizers, names.FINALIZER] if hold else [f for f in finalizers if f != names.FINALIZER]
        version = dig(workspace, "metadata", "resourceVersion")
        meta = {"uid": uid_of(workspace), "resourceVersion": version, "finalizers": wanted}
        await self._client.merge_patch(WORKSPACE, key, {"metadata": meta}, manager=names.MANAGER)

    def _scenario_of(self, workspace: Resource) -> Scenario:
        text = annotations_of(workspace).get(names.SCENARIO)
        if text is None:
            return self._default
        try:
            return parse_scenario(text)
        except ScenarioError as error:
            return Scenario("error", str(error))


def _trimmed(workspace: Resource) -> Resource:
    """Only what the answer depends on."""
    metadata = workspace.get("metadata") or {}
    kept = ("namespace", "name", "uid", "generation", "resourceVersion", "deletionTimestamp", "finalizers")
    trimmed: Resource = {"metadata": {field: metadata[field] for field in kept if field in metadata}}
    scenario = annotations_of(workspace).get(names.SCENARIO)
    if scenario is not None:
        trimmed["metadata"]["annotations"] = {names.SCENARIO: scenario}
    trimmed["resource"] = {"count": dig(workspace, "resource", "count", default=1)}
    trimmed["status"] = workspace.get("status")
    return trimmed
