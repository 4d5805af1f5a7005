"""The simulated operator, which also simulates Ray (`ray`), on an API server.

In a cluster with nodes it creates pods, and its results depend on them. Without nodes the pods are simulated too;
everything else that KubeRay writes is the same, including its field manager and its copies of fields that others wrote.
"""

from __future__ import annotations

import asyncio
import random
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from math import inf

from airunway.kube import (
    EVENT,
    POD,
    SERVICE,
    SERVICE_ACCOUNT,
    Client,
    ErrorKind,
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
from airunway_kuberay_simulator.clusters import refused_pod
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

PACE = 0.05
"""Wall-clock seconds of the simulator per second of the real operator, which waits a lot."""

_KINDS = {"RayCluster": RAY_CLUSTER, "Service": SERVICE, "Pod": POD}


@dataclass
class _Held:
    """The objects of one RayService that a pass has read, updated with the results of its own writes."""

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
        """Record a deletion; `rest` is the object if it still exists (finalizers), else None."""
        if rest is not None:
            self.note(rest)
        else:
            {"RayCluster": self.clusters, "Service": self.services}.get(kind, {}).pop(name, None)


class SimulatedKubeRay:
    """The operator; `run` works until it is cancelled.

    With `pretended`, no pods are created, and it simulates their states. With a `dashboard`, it queries a real Ray
    there every two operator seconds instead of simulating one. `client` must be able to write RayServices, RayClusters,
    Services, pods and events.
    """

    def __init__(
        self,
        client: Client,
        *,
        pretended: Pretended | None = None,
        dashboard: ray.Dashboard | None = None,
        pace: float = PACE,
        workers: int = 16,
    ) -> None:
        self._client, self._pretended, self._dashboard, self._pace = client, pretended, dashboard, pace
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
        if world.seen is not None:
            # Uses the present time: if a try takes longer than the pause between tries, a pass would never end.
            later, due = self._clock() + passes.POLL, world.seen.memory.due
            due.update({what: later for what, when in due.items() if when == inf})
        if outcome.failed:
            return Outcome(requeue_after=self._pace * passes.POLL)
        return Outcome(requeue_after=self._wait(world.seen) if world.seen is not None else None)

    def _clock(self) -> float:
        return asyncio.get_running_loop().time() / self._pace

    def _wait(self, facts: Facts) -> float | None:
        """Seconds until the passing of time alone changes something; the real operator polls every two seconds."""
        name = facts.name("pending") or facts.name("active")
        dates = [when for when in facts.memory.due.values() if when > facts.clock]
        if name in self._sent:
            begun = self._sent[name].clock
            dates += [when for when in (begun + passes.POLL / 2, begun + passes.POLL) if when > facts.clock]
        times_out = annotations_of(facts.service).get(names.TIMEOUT) and not facts.name("active")
        if times_out or facts.without_account or self._dashboard is not None:
            dates.append(facts.clock + passes.POLL)
        return max(0.0, (min(dates) - facts.clock) * self._pace) if dates else None

    # ------------------------------------------------------------------------------------------------------- reading

    async def _read(self, key: ObjectKey) -> _Held | None:
        """The objects of one RayService, read once per pass like the real operator's caches; None if it is gone."""
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
        """The present facts."""
        service, clusters, services = held.service, held.clusters, held.services
        key, pods = key_of(service), {}
        for name, cluster in clusters.items():
            of = f"{names.CLUSTER}={name}"
            pods[name] = self._pretended.pods(cluster) if self._pretended else await self._listed(POD, key, of)
        clock = self._clock()
        word = annotations_of(service).get(names.APPLICATION, "")
        if self._pretended is not None:
            word = word or self._pretended.word(service)
        real = await self._dashboard.applications() if self._dashboard is not None and self._sent else {}
        return Facts(
            service=service,
            now=format_time(datetime.now(UTC)),
            clock=clock,
            memory=self._memories.setdefault(uid_of(service), Memory()),
            suffix=_suffix,
            clusters=dict(clusters),
            pods=pods,
            services=dict(services),
            dashboards={
                n: ray.answer(self._sent.get(n), pods[n], word=word, clock=clock)
                if self._dashboard is None
                else ray.said(real)
                for n in clusters
            },
            endpoints=_endpoints(service, services.get(f"{key.name}-serve-svc"), pods),
            heads={name: name in self._sent for name in clusters},
            demand={n: ray.demand(c, self._sent[n].config, real) for n, c in clusters.items() if n in self._sent},
            without_account=await self._without_account(clusters),
        )

    async def _without_account(self, clusters: Mapping[str, Resource]) -> dict[str, str]:
        found = {}
        for name, cluster in clusters.items():
            account = str(dig(cluster, "spec", "headGroupSpec", "template", "spec", "serviceAccountName", default=""))
            where = ObjectKey(key_of(cluster).namespace, account)
            scales = dig(cluster, "spec", "enableInTreeAutoscaling")
            if account and scales and await find(self._client, SERVICE_ACCOUNT, where) is None:
                found[name] = account
        return found

    async def _listed(self, kind: Kind, key: ObjectKey, selector: str) -> list[Resource]:
        found = await self._client.list_all(kind, namespace=key.namespace, label_selector=selector)
        return [{"apiVersion": kind.api_version, "kind": kind.kind, **obj} for obj in found]

    # ------------------------------------------------------------------------------------------------------- writing

    async def _write(self, held: _Held, facts: Facts, write: Write) -> bool:
        """Make the write; False if a needed object is gone or was changed by another client."""
        key = key_of(facts.service)
        if isinstance(write, Create) and write.obj["kind"] == "Pod" and await self._has_gone(key, write.obj):
            self._passes.add(key)
            return False
        with attempt(key) as made:
            if (
                isinstance(write, Send)
                and self._dashboard is not None
                and (why := await self._dashboard.send(write.config))
            ):
                await self._tell(facts, passes.refused(facts, write.cluster, why))
                return False
            try:
                await self._send(held, facts, write)
            except Forbidden as error:
                if not (isinstance(write, Create) and write.obj["kind"] == "Pod" and error.kind is ErrorKind.QUOTA):
                    raise
                await self._refuse(facts, write.obj, str(error))
            else:
                if write.event is not None:
                    await self._tell(facts, write.event)
        if made.overtaken:
            self._passes.add(key)
        return made.landed

    async def _has_gone(self, key: ObjectKey, pod: Resource) -> bool:
        """Whether a pod's cluster is gone or being deleted since this pass has read it.

        The garbage collector would delete such a pod at once, and the pass would recreate it forever.
        """
        if self._pretended is not None:
            return False
        where = ObjectKey(key.namespace, labels_of(pod)[names.CLUSTER])
        cluster = await find(self._client, RAY_CLUSTER, where)
        return cluster is None or is_deleting(cluster)

    async def _refuse(self, facts: Facts, pod: Resource, message: str) -> None:
        """Report a pod that may not be created in the cluster's status and by an event; a later pass tries again.

        Equal failures cause only one event, because the simulator retries more often than the real operator.
        """
        reason, text, event = refused_pod(pod, message)
        facts.memory.failed[event.cluster] = (reason, text)
        facts.memory.due[f"pods of {event.cluster}"] = inf
        said = (event.cluster, message.partition(" is forbidden: ")[2])
        if said not in facts.memory.reported:
            facts.memory.reported.add(said)
            await self._tell(facts, event)

    async def _tell(self, facts: Facts, event: Event) -> None:
        about = (facts.clusters[event.cluster], RAY_CLUSTER) if event.cluster else (facts.service, RAY_SERVICE)
        said = event_about(
            *about,
            reason=event.reason,
            note=event.note,
            by="raycluster-controller" if event.cluster else "rayservice-controller",
            instance="simulated-kuberay",
            type_=event.type,
        )
        await self._client.create(EVENT, said, manager=names.MANAGER)

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
                self._sent[name] = ray.send(config, facts.clock, self._sent.get(name))
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
