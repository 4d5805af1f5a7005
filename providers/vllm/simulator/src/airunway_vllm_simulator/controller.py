"""The simulated LeaderWorkerSet controller for a cluster with pods; real StatefulSets run them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from functools import partial

from airunway.kube import (
    EVENT,
    POD,
    SERVICE,
    STATEFUL_SET,
    Client,
    Kind,
    Reflector,
    strip_managed_fields,
)
from airunway.resource import ObjectKey, Resource, format_time, labels_of, uid_of
from airunway_testing.simulators.attempts import attempt, event_about, find
from airunway_testing.simulators.passes import Outcome, Passes
from airunway_testing.simulators.worlds import LiveWorld
from airunway_testing.simulators.writes import status_patch
from airunway_vllm_simulator import names, passes
from airunway_vllm_simulator.kinds import CONTROLLER_REVISION, LEADER_WORKER_SET

_KINDS = {"Service": SERVICE, "StatefulSet": STATEFUL_SET, "ControllerRevision": CONTROLLER_REVISION}


class SimulatedController:
    """The controller without its webhooks; `run` works until it is cancelled.

    `client` must be able to write LeaderWorkerSets, StatefulSets, Services, ControllerRevisions, pods and events.
    """

    def __init__(self, client: Client, *, workers: int = 16) -> None:
        self._client = client
        slim = strip_managed_fields()
        watched = [Reflector(client, kind, label_selector=names.NAME, project=slim) for kind in (POD, STATEFUL_SET)]
        self._passes = Passes(
            client,
            LEADER_WORKER_SET,
            self._reconcile,
            name="simulated-leaderworkerset",
            owned=(SERVICE,),
            reads=watched,
            workers=workers,
        )
        for reflector in watched:
            reflector.add_handler(self._on_labelled)

    async def run(self) -> None:
        await self._passes.run()

    def _on_labelled(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        self._passes.add(ObjectKey(key.namespace, labels_of(new or old or {}).get(names.NAME, "")))

    async def _reconcile(self, key: ObjectKey) -> Outcome:
        return await passes.reconcile(LiveWorld(partial(self.facts, key), partial(self.write, key)))

    async def facts(self, key: ObjectKey) -> passes.Facts | None:
        """The present facts about one set; None if it is gone."""
        lws = await find(self._client, LEADER_WORKER_SET, key)
        if lws is None:
            return None
        service, revisions, stateful_sets, pods = await asyncio.gather(
            find(self._client, SERVICE, key),
            self._named(CONTROLLER_REVISION, key),
            self._named(STATEFUL_SET, key),
            self._named(POD, key),
        )
        own = [r for r in revisions if r["metadata"]["ownerReferences"][0].get("uid") == uid_of(lws)]
        return passes.Facts(
            lws=lws,
            now=format_time(datetime.now(UTC)),
            service=service,
            revisions=own,
            stateful_sets=stateful_sets,
            pods=pods,
        )

    async def write(self, key: ObjectKey, facts: passes.Facts, write: passes.Write) -> bool:
        """Make the write based on `facts`; False if a needed object is gone or already exists."""
        with attempt(key) as made:  # a concurrent change starts another pass
            await self._write(key, facts.lws, write)
            if write.event is not None:
                await self._client.create(EVENT, _event(facts.lws, *write.event), manager=names.MANAGER)
        return made.landed

    async def _write(self, key: ObjectKey, lws: Resource, write: passes.Write) -> None:
        client, manager = self._client, names.MANAGER
        match write:
            case passes.Create(obj=obj):
                await client.create(_KINDS[obj["kind"]], obj, manager=manager)
            case passes.ApplyLeaders(obj=obj):
                await client.apply(STATEFUL_SET, obj, manager=manager, force=True)
            case passes.LabelPod(name=name, labels=labels):
                pod = ObjectKey(key.namespace, name)
                await client.merge_patch(POD, pod, {"metadata": {"labels": labels}}, manager=manager)
            case passes.DeleteLeader(name=name):
                await client.delete(POD, ObjectKey(key.namespace, name), propagation="Foreground")
            case passes.WriteStatus(status=status):
                patch = status_patch(lws, status)
                await client.merge_patch(LEADER_WORKER_SET, key, patch, subresource="status", manager=manager)

    async def _named(self, kind: Kind, key: ObjectKey) -> list[Resource]:
        found = await self._client.list_all(kind, namespace=key.namespace, label_selector=f"{names.NAME}={key.name}")
        return list(found)


def _event(lws: Resource, reason: str, note: str) -> Resource:
    """An event of type Normal; the real controller creates no others."""
    by, instance = names.MANAGER, f"simulated-{names.MANAGER}"
    return event_about(lws, LEADER_WORKER_SET, reason=reason, note=note, by=by, instance=instance)
