"""The simulated KAITO controller for a cluster with pods: it creates the workload and derives the status from it.

Like the real controller, it starts a pass when a Workspace, StatefulSet, Service or ControllerRevision changes, and
every two seconds while nodes are missing. A pass reads pods and nodes, but changes of these start no pass (fact 5).
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from functools import partial

from airunway.kube import (
    NODE,
    POD,
    SERVICE,
    STATEFUL_SET,
    Client,
    Reflector,
    strip_managed_fields,
)
from airunway.resource import ObjectKey, Resource, annotations_of, dig, format_time, key_of, labels_of, uid_of
from airunway_kaito_simulator import names, passes
from airunway_kaito_simulator.access import access_error, access_secret
from airunway_kaito_simulator.kinds import CONTROLLER_REVISION, SECRET, WORKSPACE
from airunway_testing.simulators.attempts import attempt, find
from airunway_testing.simulators.passes import Outcome, Passes
from airunway_testing.simulators.worlds import LiveWorld
from airunway_testing.simulators.writes import finalizers_patch, status_patch

PAUSE_SECONDS = 0.33
"""Seconds between reading the nodes and reading the workload, which the real controller spends in a throttled client.

Because of this pause, a pass sees the scheduler's refusal of a pod without a further event.
"""
_KINDS = {"Service": SERVICE, "StatefulSet": STATEFUL_SET, "ControllerRevision": CONTROLLER_REVISION}


class SimulatedKaito:
    """KAITO 0.12 with bring-your-own nodes, without its webhook; `run` works until it is cancelled.

    `client` must be able to read nodes, pods and Secrets (only whether one exists), and to write Workspaces,
    StatefulSets, Services and ControllerRevisions. `pause` is in seconds: see `PAUSE_SECONDS`.
    """

    def __init__(self, client: Client, *, pause: float = PAUSE_SECONDS, workers: int = 16) -> None:
        self._client = client
        self._pause = pause
        slim = strip_managed_fields()
        self._nodes = Reflector(client, NODE, project=slim)
        self._pods = Reflector(client, POD, label_selector=names.WORKSPACE, project=slim)
        self._pods_by_workspace = self._pods.add_index(_workspace_of_pod)
        self._passes = Passes(
            client,
            WORKSPACE,
            self._reconcile,
            name="simulated-kaito",
            owned=tuple(_KINDS.values()),
            reads=(self._nodes, self._pods),
            workers=workers,
        )

    async def run(self) -> None:
        await self._passes.run()

    async def _reconcile(self, key: ObjectKey) -> Outcome:
        return await passes.reconcile(_World(self, key))

    async def facts(self, key: ObjectKey) -> passes.Facts | None:
        """The present facts about one Workspace; None if it is gone."""
        workspace = await find(self._client, WORKSPACE, key)
        if workspace is None:
            return None
        stateful_set, service, headless, revisions, error = await asyncio.gather(
            find(self._client, STATEFUL_SET, key),
            find(self._client, SERVICE, key),
            find(self._client, SERVICE, ObjectKey(key.namespace, f"{key.name}-headless")),
            self._client.list_all(
                CONTROLLER_REVISION, namespace=key.namespace, label_selector=f"{names.REVISION_OWNER}={key.name}"
            ),
            self._access_error(workspace),
        )
        tokens = annotations_of(workspace).get(names.BENCHMARK_TOKENS)
        return passes.Facts(
            workspace=workspace,
            now=format_time(datetime.now(UTC)),
            nodes=self._nodes.values(),
            services=[found for found in (service, headless) if found is not None],
            stateful_set=stateful_set,
            revisions=revisions,
            pods=self._pods_by_workspace.get(key),
            access_error=error,
            benchmark_metrics=_metrics(tokens) if tokens else None,
        )

    async def write(self, key: ObjectKey, facts: passes.Facts, write: passes.Write) -> bool:
        """Make the write based on `facts`; False if the Workspace is gone or was changed by another client."""
        with attempt(key) as made:
            await self._write(key, facts.workspace, write)
        if made.overtaken:
            self._passes.add(key)
        return made.landed

    async def pause(self) -> None:
        await asyncio.sleep(self._pause)

    async def _write(self, key: ObjectKey, workspace: Resource, write: passes.Write) -> None:
        match write:
            case passes.SetFinalizers(finalizers):
                patch = finalizers_patch(workspace, finalizers)
                await self._client.merge_patch(WORKSPACE, key, patch, manager=names.MANAGER)
            case passes.Annotate(annotations):
                meta = {"uid": uid_of(workspace), "annotations": annotations}
                await self._client.merge_patch(WORKSPACE, key, {"metadata": meta}, manager=names.MANAGER)
            case passes.WriteBack(template):
                patch = {"metadata": {"uid": uid_of(workspace)}, "inference": {"template": template}}
                await self._client.merge_patch(WORKSPACE, key, patch, manager=names.MANAGER)
            case passes.WriteStatus(status):
                patch = status_patch(workspace, status)
                await self._client.merge_patch(WORKSPACE, key, patch, subresource="status", manager=names.MANAGER)
            case passes.Create(obj):
                await self._client.create(_KINDS[obj["kind"]], obj, manager=names.MANAGER)
            case passes.PatchStatefulSet(patch):
                await self._client.merge_patch(STATEFUL_SET, key, patch, manager=names.MANAGER)

    async def _access_error(self, workspace: Resource) -> str:
        secret = access_secret(workspace)
        if not secret or dig(workspace, "status", "targetNodeCount"):
            return ""
        found = await find(self._client, SECRET, ObjectKey(key_of(workspace).namespace, secret))
        return access_error(workspace, secret_exists=found is not None)


class _World(LiveWorld[passes.Facts, passes.Write]):
    """The `World` of one pass."""

    def __init__(self, kaito: SimulatedKaito, key: ObjectKey) -> None:
        super().__init__(partial(kaito.facts, key), partial(kaito.write, key))
        self.pause = kaito.pause


def _workspace_of_pod(pod: Resource) -> list[ObjectKey]:
    name = labels_of(pod).get(names.WORKSPACE)
    return [ObjectKey(key_of(pod).namespace, name)] if name else []


def _metrics(tokens_per_minute: str) -> Resource:
    """The benchmark result as KAITO records it, with the number from the annotation."""
    measured = {"description": "stress/high-concurrency", "unit": "tokens/min", "value": tokens_per_minute}
    return {"peakTokensPerMinute": measured}
