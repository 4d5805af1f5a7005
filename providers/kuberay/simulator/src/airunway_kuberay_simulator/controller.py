"""The simulated operator on an API server; Ray is played, too (`ray`).

In a cluster that has nodes it makes pods, and what becomes of them decides. Without nodes the pods are pretended: all
else that KubeRay writes is written all the same, its own field manager and the copies of what others wrote included.
"""

from __future__ import annotations

import asyncio
import random
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from airunway.kube import (
    EVENT,
    POD,
    SERVICE,
    Answer,
    Client,
    Forbidden,
    Kind,
    Reflector,
    strip_managed_fields,
)
from airunway.resource import (
    ObjectKey,
    Resource,
    annotations_of,
    dig,
    format_time,
    is_deleting,
    is_true,
    key_of,
    labels_of,
    uid_of,
)
from airunway_kuberay_simulator import names, passes, ray
from airunway_kuberay_simulator.facts import (
    Create,
    Delete,
    Event,
    Facts,
    Hold,
    LabelHead,
    Memory,
    Send,
    SetSpec,
    Tell,
    Write,
    WriteStatus,
)
from airunway_kuberay_simulator.kinds import RAY_CLUSTER, RAY_SERVICE
from airunway_kuberay_simulator.scenarios import Pretended
from airunway_testing.simulators.attempts import attempt, event_about, find
from airunway_testing.simulators.passes import Outcome, Passes
from airunway_testing.simulators.worlds import LiveWorld

__all__ = ["PACE", "SimulatedKubeRay"]

PACE = 0.05
"""Seconds that one second of the real operator takes: it waits a lot."""

_KINDS = {"RayCluster": RAY_CLUSTER, "Service": SERVICE, "Pod": POD}


@dataclass
class _Held:
    """What a pass has read of one RayService, kept up to date by the answers to its own writes."""

    service: Resource
    clusters: dict[str, Resource]
    services: dict[str, Resource]

    def note(self, obj: Resource) -> None:
        match obj["kind"]:
            case "RayService":
                self.service = obj
            case "RayCluster":
                self.clusters[key_of(obj).name] = obj
            case "Service":
                self.services[key_of(obj).name] = obj

    def note_deletion(self, kind: str, name: str, rest: Resource | None) -> None:
        """`rest` is what is still there of it."""
        if rest is not None:
            self.note(rest)
        else:
            {"RayCluster": self.clusters, "Service": self.services}.get(kind, {}).pop(name, None)


class SimulatedKubeRay:
    """`run` works until it is cancelled. With `pretended` pods none are made, and that says what becomes of them.

    `client` needs to write RayServices, RayClusters, Services, pods and events.
    """

    def __init__(
        self, client: Client, *, pretended: Pretended | None = None, pace: float = PACE, workers: int = 16
    ) -> None:
        self._client, self._pretended, self._pace = client, pretended, pace
        self._memories: dict[str, Memory] = {}
        self._sent: dict[str, ray.Sent] = {}
        pods = Reflector(client, POD, label_selector=names.CLUSTER, project=strip_managed_fields())
        self._passes = Passes(
            client,
            RAY_SERVICE,
            self._reconcile,
            name="simulated-kuberay",
            owned=(RAY_CLUSTER, SERVICE),
            reads=(pods,) if pretended is None else (),
            workers=workers,
        )
        pods.add_handler(self._on_pod)

    async def run(self) -> None:
        await self._passes.run()

    def _on_pod(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        cluster = labels_of(new or old or {}).get(names.CLUSTER, "")
        self._passes.add(ObjectKey(key.namespace, cluster.rpartition("-")[0]))

    async def _reconcile(self, key: ObjectKey) -> Outcome:
        held = await self._read(key)
        if held is None:
            return Outcome()
        world = LiveWorld(partial(self._facts, held), partial(self._write, held))
        outcome = await passes.reconcile(world)
        if outcome.failed:
            return Outcome(requeue_after=self._pace * passes.POLL)
        return Outcome(requeue_after=self._wait(world.seen) if world.seen is not None else None)

    def _wait(self, facts: Facts) -> float | None:
        """Seconds until time alone changes something: the real operator looks every two seconds, for ever."""
        name = facts.name("pending") or facts.name("active")
        dates = [when for when in facts.memory.due.values() if when > facts.clock]
        if name in self._sent:
            begun = self._sent[name].clock
            dates += [when for when in (begun + passes.POLL / 2, begun + passes.POLL) if when > facts.clock]
        if annotations_of(facts.service).get(names.TIMEOUT) and not facts.name("active"):
            dates.append(facts.clock + passes.POLL)
        return max(0.0, (min(dates) - facts.clock) * self._pace) if dates else None

    # ------------------------------------------------------------------------------------------------------- reading

    async def _read(self, key: ObjectKey) -> _Held | None:
        """What there is of one RayService; None if it is gone. Once in a pass: the real operator reads its caches."""
        service = await find(self._client, RAY_SERVICE, key)
        if service is None or (self._pretended is not None and self._pretended.ignores(service)):
            return None
        origin = f"{names.ORIGIN_NAME}={key.name}"
        clusters = {key_of(c).name: c for c in await self._listed(RAY_CLUSTER, key, origin)}
        services = {key_of(s).name: s for s in await self._listed(SERVICE, key, origin)}
        for name in clusters:
            services.update({key_of(s).name: s for s in await self._listed(SERVICE, key, f"{names.CLUSTER}={name}")})
        return _Held(service=service, clusters=clusters, services=services)

    async def _facts(self, held: _Held) -> Facts:
        """What there is to know now."""
        service, clusters, services = held.service, held.clusters, held.services
        key, pods = key_of(service), {}
        for name, cluster in clusters.items():
            of = f"{names.CLUSTER}={name}"
            pods[name] = self._pretended.pods(cluster) if self._pretended else await self._listed(POD, key, of)
        clock = asyncio.get_running_loop().time() / self._pace
        word = annotations_of(service).get(names.APPLICATION, "")
        if self._pretended is not None:
            word = word or self._pretended.word(service)
        return Facts(
            service=service,
            now=format_time(datetime.now(UTC)),
            clock=clock,
            memory=self._memories.setdefault(uid_of(service), Memory()),
            suffix=_suffix,
            clusters=dict(clusters),
            pods=pods,
            services=dict(services),
            dashboards={n: ray.answer(self._sent.get(n), pods[n], word=word, clock=clock) for n in clusters},
            endpoints=_endpoints(service, services.get(f"{key.name}-serve-svc"), pods),
            heads={name: name in self._sent for name in clusters},
            demand={n: ray.demand(c, self._sent[n].config) for n, c in clusters.items() if n in self._sent},
        )

    async def _listed(self, kind: Kind, key: ObjectKey, selector: str) -> list[Resource]:
        found = await self._client.list_all(kind, namespace=key.namespace, label_selector=selector)
        return [{"apiVersion": kind.api_version, "kind": kind.kind, **obj} for obj in found]

    # ------------------------------------------------------------------------------------------------------- writing

    async def _write(self, held: _Held, facts: Facts, write: Write) -> bool:
        """Make the write; False if something it needs is gone, or was changed by somebody else."""
        key = key_of(facts.service)
        with attempt(key) as made:
            try:
                await self._send(held, facts, write)
            except Forbidden as error:
                if not (isinstance(write, Create) and write.obj["kind"] == "Pod" and error.answer is Answer.QUOTA):
                    raise
                self._refuse(facts, write.obj, str(error))
            else:
                if write.event is not None:
                    await self._client.create(EVENT, _event(facts.service, write.event), manager=names.MANAGER)
        if made.overtaken:
            self._passes.add(key)
        return made.landed

    def _refuse(self, facts: Facts, pod: Resource, message: str) -> None:
        """A pod that may not be made: told in the cluster's status, and tried again."""
        cluster = labels_of(pod)[names.CLUSTER]
        node = "Head" if labels_of(pod)[names.NODE_TYPE] == "head" else "Worker"
        reason = f"FailedCreate{node}Pod"
        told = message[message.find("pods ") :] if "pods " in message else message
        facts.memory.failed[cluster] = (reason, f"{reason}\n{told}")
        facts.memory.due[f"pods of {cluster}"] = facts.clock + passes.POLL

    async def _send(self, held: _Held, facts: Facts, write: Write) -> None:
        client, manager, key = self._client, names.MANAGER, key_of(facts.service)
        match write:
            case Hold(obj=obj):
                held.note(await client.replace(RAY_SERVICE, obj, manager=manager))
            case WriteStatus(status=status, cluster=cluster):
                kind, obj = (RAY_CLUSTER, facts.clusters[cluster]) if cluster else (RAY_SERVICE, facts.service)
                obj = {**obj, "status": status}
                held.note(await client.replace(kind, obj, subresource="status", manager=manager))
            case Create(obj=obj):
                if obj["kind"] == "Pod":
                    facts.memory.failed.pop(labels_of(obj)[names.CLUSTER], None)
                if obj["kind"] == "Pod" and self._pretended is not None:
                    self._pretended.make(obj, facts.service)
                else:
                    held.note(await client.create(_KINDS[obj["kind"]], obj, manager=manager))
            case Delete(kind=kind_name, name=name):
                if kind_name == "Pod" and self._pretended is not None:
                    self._pretended.remove(name)
                else:
                    where = ObjectKey(key.namespace, name)
                    await client.delete(_KINDS[kind_name], where)
                    held.note_deletion(kind_name, name, await find(client, _KINDS[kind_name], where))
            case SetSpec(obj=obj):
                held.note(await client.replace(_KINDS[obj["kind"]], obj, manager=manager))
            case LabelHead(pod=name, serves=serves):
                labels = {"metadata": {"labels": {names.SERVE: "true" if serves else "false"}}}
                if self._pretended is not None:
                    self._pretended.label(name, labels["metadata"]["labels"])
                else:
                    await client.merge_patch(POD, ObjectKey(key.namespace, name), labels, manager=manager)
            case Send(cluster=name, config=config):
                self._sent[name] = ray.Sent(config=config, clock=facts.clock, before=name in self._sent)
            case Tell():
                pass


def _suffix() -> str:
    return "".join(random.choices(string.ascii_lowercase + string.digits, k=5))


def _endpoints(service: Resource, serve: Resource | None, pods: Mapping[str, Sequence[Resource]]) -> int:
    """The ready pods behind the serve Service (fact 6)."""
    if serve is None or is_deleting(serve):
        return 0
    without_head = dig(service, "spec", "excludeHeadPodFromServeSvc", default=False)
    behind = [
        pod
        for pod in pods.get(str(dig(serve, "spec", "selector", names.CLUSTER)), ())
        if labels_of(pod).get(names.SERVE) == "true" and is_true(pod, "Ready") and not is_deleting(pod)
    ]
    return sum(not (without_head and labels_of(pod).get(names.NODE_TYPE) == "head") for pod in behind)


def _event(service: Resource, event: Event) -> Resource:
    by, instance = "rayservice-controller", "simulated-kuberay"
    reason, note = event.reason, event.note
    return event_about(service, RAY_SERVICE, reason=reason, note=note, by=by, instance=instance, type_=event.type)
