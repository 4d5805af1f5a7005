"""The simulated InferenceSet controller; it needs only an API server, because it creates Workspaces."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from airunway.kube import (
    CONFIG_MAP,
    NODE,
    Client,
    Kind,
    Reflector,
    strip_managed_fields,
)
from airunway.resource import ObjectKey, Resource, dig, format_time, key_of, uid_of
from airunway_kaito_simulator import names, sets
from airunway_kaito_simulator.admission import refusals_on_create
from airunway_kaito_simulator.kinds import CONTROLLER_REVISION, INFERENCE_SET, WORKSPACE
from airunway_kaito_simulator.passes import Annotate, Create, SetFinalizers, WriteBack, WriteStatus
from airunway_testing.simulators.attempts import attempt, find
from airunway_testing.simulators.passes import Outcome, Passes
from airunway_testing.simulators.writes import finalizers_patch, status_patch

_KINDS = {"Workspace": WORKSPACE, "ControllerRevision": CONTROLLER_REVISION}


class SimulatedSets:
    """The controller of InferenceSets; `run` works until it is cancelled.

    `client` must be able to read nodes and ConfigMaps, and to write InferenceSets, Workspaces and ControllerRevisions.
    With `with_nodes`, it skips writes that KAITO's webhook would refuse because no node matches; otherwise it ignores
    nodes.
    """

    def __init__(self, client: Client, *, with_nodes: bool = False, workers: int = 16) -> None:
        self._client = client
        self._nodes = Reflector(client, NODE, project=strip_managed_fields()) if with_nodes else None
        self._passes = Passes(
            client,
            INFERENCE_SET,
            self._reconcile,
            name="simulated-inferencesets",
            owned=(WORKSPACE,),
            reads=(self._nodes,) if self._nodes is not None else (),
            workers=workers,
        )

    async def run(self) -> None:
        await self._passes.run()

    async def _reconcile(self, key: ObjectKey) -> Outcome:
        return await sets.reconcile_set(_Cluster(self, key))

    async def facts(self, key: ObjectKey) -> sets.SetFacts | None:
        """The present facts about one InferenceSet; None if it is gone."""
        inference_set = await find(self._client, INFERENCE_SET, key)
        if inference_set is None:
            return None
        workspaces, revisions = await asyncio.gather(
            self._labelled(WORKSPACE, key, names.CREATED_BY),
            self._labelled(CONTROLLER_REVISION, key, names.SET_REVISION_OWNER),
        )
        return sets.SetFacts(
            inference_set=inference_set,
            now=format_time(datetime.now(UTC)),
            workspaces=sorted(workspaces, key=lambda obj: str(dig(obj, "metadata", "creationTimestamp"))),
            revisions=revisions,
            refusals=await self._refusals(inference_set),
        )

    async def write(self, key: ObjectKey, inference_set: Resource, write: sets.SetWrite) -> Resource | None:
        """Make the write; returns the InferenceSet afterwards, or None if a needed object is gone or was changed."""
        after: Resource | None = None
        with attempt(key) as made:
            after = await self._write(key, inference_set, write)
        if made.overtaken:
            self._passes.add(key)
        return after

    async def _write(self, key: ObjectKey, inference_set: Resource, write: sets.SetWrite) -> Resource:
        client, manager = self._client, names.MANAGER
        match write:
            case SetFinalizers(finalizers):
                patch = finalizers_patch(inference_set, finalizers)
                return await client.merge_patch(INFERENCE_SET, key, patch, manager=manager)
            case Annotate(annotations):
                patch = {"metadata": {"uid": uid_of(inference_set), "annotations": annotations}}
                return await client.merge_patch(INFERENCE_SET, key, patch, manager=manager)
            case WriteBack(template):
                inside = {"template": {"inference": {"template": template}}}
                patch = {"metadata": {"uid": uid_of(inference_set)}, "spec": inside}
                return await client.merge_patch(INFERENCE_SET, key, patch, manager=manager)
            case WriteStatus(status):
                body = status_patch(inference_set, status)
                return await client.merge_patch(INFERENCE_SET, key, body, subresource="status", manager=manager)
            case Create(obj):
                await client.create(_KINDS[obj["kind"]], obj, manager=manager)
            case sets.DeleteWorkspace(workspace):
                await client.delete(WORKSPACE, key_of(workspace), uid=uid_of(workspace))
        return inference_set

    async def _refusals(self, inference_set: Resource) -> list[str]:
        """The webhook's errors for a Workspace of the set; they apply to every write of the set too (fact 27)."""
        if self._nodes is None:
            return []
        workspace = sets.workspace_of(inference_set)
        config = dig(workspace, "inference", "config", default="")
        found = await find(self._client, CONFIG_MAP, ObjectKey(key_of(workspace).namespace, config)) if config else None
        return refusals_on_create(workspace, nodes=self._nodes.values(), config_map=found)

    async def _labelled(self, kind: Kind, key: ObjectKey, label: str) -> list[Resource]:
        found = await self._client.list_all(kind, namespace=key.namespace, label_selector=f"{label}={key.name}")
        return list(found)


class _Cluster:
    """The `SetWorld` of one pass."""

    def __init__(self, controller: SimulatedSets, key: ObjectKey) -> None:
        self._controller = controller
        self._key = key
        self._live: Resource = {}

    async def facts(self) -> sets.SetFacts | None:
        facts = await self._controller.facts(self._key)
        if facts is not None:
            self._live = facts.inference_set
        return facts

    async def write(self, write: sets.SetWrite) -> Resource | None:
        found = await self._controller.write(self._key, self._live, write)
        if found is not None:
            self._live = found
        return found
