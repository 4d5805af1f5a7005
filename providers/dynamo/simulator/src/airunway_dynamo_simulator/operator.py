"""The simulated operator for a cluster with pods: it creates the objects of a graph and derives its status from them.

Passes are level-triggered: a pass reads everything, creates missing objects, deletes superfluous ones and writes the
status. Without Grove, real Deployments run the pods. If PodCliques are installed, the operator also simulates Grove.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from airunway.kube import DEPLOYMENT, POD, SERVICE, Client, Kind, Reflector, is_served, strip_managed_fields
from airunway.resource import ObjectKey, Resource, dig, format_time, is_deleting, is_true, key_of, labels_of
from airunway_dynamo_simulator import names
from airunway_dynamo_simulator.graph import Component, components_of, on_grove, refusals
from airunway_dynamo_simulator.kinds import COMPONENT_DEPLOYMENT, POD_CLIQUE
from airunway_dynamo_simulator.status import Counts, failed_status, status_after
from airunway_dynamo_simulator.workloads import (
    clique_pod,
    cliques_of,
    component_deployment,
    deployment,
    frontend_service,
    made_name,
    pod_clique,
    template_hash,
)
from airunway_testing.simulators.attempts import attempt, find
from airunway_testing.simulators.passes import Outcome, Passes
from airunway_testing.simulators.writes import finalizers_patch, status_patch

_LOOK_AGAIN = 0.1
"""Seconds until the next pass over a deleted graph whose objects still exist."""


class SimulatedOperator:
    """The operator without its webhooks, for graphs in the version of `kind`; `run` works until it is cancelled.

    `client` must be able to write graphs, component deployments, Deployments, Services, PodCliques and pods.
    """

    def __init__(self, client: Client, kind: Kind, *, workers: int = 16) -> None:
        self._client, self._kind = client, kind
        self._grove = False
        slim = strip_managed_fields()
        self._pods = Reflector(client, POD, label_selector=names.GRAPH, project=slim)
        self._deployments = Reflector(client, DEPLOYMENT, label_selector=names.GRAPH, project=slim)
        self._passes = Passes(
            client,
            kind,
            self._reconcile,
            name="simulated-dynamo",
            reads=(self._pods, self._deployments),
            workers=workers,
        )
        for reflector in (self._pods, self._deployments):
            reflector.add_handler(self._on_made)

    async def run(self) -> None:
        """Run the operator. Like the real one, it checks only once, at startup, whether Grove is installed."""
        self._grove = await is_served(self._client, POD_CLIQUE)
        await self._passes.run()

    def _on_made(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        self._passes.add(ObjectKey(key.namespace, labels_of(new or old or {})[names.GRAPH]))

    async def _reconcile(self, key: ObjectKey) -> Outcome:
        graph = await find(self._client, self._kind, key)
        if graph is None:
            return Outcome()
        again = None
        with attempt(key) as made:
            if is_deleting(graph):
                again = await self._let_go(key, graph)
            else:
                await self._pass(key, graph)
        return Outcome(failed=made.overtaken, requeue_after=again)

    async def _let_go(self, key: ObjectKey, graph: Resource) -> float | None:
        """Remove the finalizer; returns the seconds until the next try, or None.

        Grove's own finalizers and foreground deletion keep a graph until its pods are gone. For these, the finalizer
        stays until nothing is left, because the garbage collector does not know objects that a concurrent pass has
        created.
        """
        finalizers = list(dig(graph, "metadata", "finalizers", default=[]))
        if names.FINALIZER not in finalizers:
            return None
        grove = on_grove(graph, installed=self._grove)
        if grove or "foregroundDeletion" in finalizers:
            made = (POD_CLIQUE, POD) if grove else (COMPONENT_DEPLOYMENT, DEPLOYMENT)
            if await self._takes_away(key, made):
                return _LOOK_AGAIN
        left = [name for name in finalizers if name != names.FINALIZER]
        await self._client.merge_patch(self._kind, key, finalizers_patch(graph, left), manager=names.MANAGER)
        return None

    async def _takes_away(self, key: ObjectKey, kinds: Sequence[Kind]) -> bool:
        """Delete the objects of a graph; returns whether any are left."""
        left = False
        for kind in kinds:
            label = f"{names.GRAPH}={key.name}"
            for obj in await self._client.list_all(kind, namespace=key.namespace, label_selector=label):
                left = True
                if not is_deleting(obj):
                    with attempt(key):
                        await self._client.delete(kind, key_of(obj), propagation="Foreground")
        return left

    async def _pass(self, key: ObjectKey, graph: Resource) -> None:
        finalizers = list(dig(graph, "metadata", "finalizers", default=[]))
        if names.FINALIZER not in finalizers:
            patch = finalizers_patch(graph, [*finalizers, names.FINALIZER])
            graph = await self._client.merge_patch(self._kind, key, patch, manager=names.MANAGER)
        grove, now = on_grove(graph, installed=self._grove), format_time(datetime.now(UTC))
        components = components_of(graph)
        if said := list(refusals(graph, grove=grove)):
            status = failed_status(graph, "failed_to_reconcile_the_resources", "; ".join(said), now=now)
        elif not grove and any(component.nodes > 1 for component in components):
            text = "no multinode orchestrator available: install Grove or LeaderWorkerSet"
            status = failed_status(graph, "no_multinode_orchestrator_available", text, now=now)
        else:
            make = self._cliques if grove else self._component_deployments
            counts = [await make(graph, component) for component in components]
            for component in components:
                if component.type == "frontend":
                    await self._apply(SERVICE, frontend_service(graph, component))
            await self._remove_leftovers(graph, counts)
            status = status_after(graph, counts, grove=grove, now=now)
        if status != (graph.get("status") or {}):
            patch = status_patch(graph, status)
            await self._client.merge_patch(self._kind, key, patch, subresource="status", manager=names.MANAGER)

    # ------------------------------------------------------------------------------------------------- without Grove

    async def _component_deployments(self, graph: Resource, component: Component) -> Counts:
        made = await self._apply(COMPONENT_DEPLOYMENT, component_deployment(graph, component))
        live = await self._apply(DEPLOYMENT, deployment(graph, component, made))
        name, status = made_name(graph, component), live.get("status") or {}
        observed = status.get("observedGeneration") == live["metadata"]["generation"]
        old = [each for each in self._of(self._deployments, graph, component) if key_of(each).name != name]
        ready = int(status.get("readyReplicas", 0)) if observed else 0
        updated = int(status.get("updatedReplicas", 0)) if observed else 0
        await self._tell(made, well=ready == component.replicas and updated == component.replicas)
        return Counts(
            component=component.name,
            kind="Deployment",
            made=(name,),
            wanted=component.replicas,
            replicas=int(status.get("replicas", 0)),
            updated=updated,
            ready=ready,
            rolls=bool(old),
        )

    async def _tell(self, made: Resource, *, well: bool) -> None:
        """Write the condition of a component deployment."""
        if is_true(made, "Available") == well and dig(made, "status", "conditions"):
            return
        condition = {
            "type": "Available",
            "status": "True" if well else "False",
            "reason": "DeploymentReady" if well else "DeploymentNotReady",
            "message": "",
            "lastTransitionTime": format_time(datetime.now(UTC)),
        }
        patch = {"status": {"conditions": [condition]}}
        await self._client.merge_patch(
            COMPONENT_DEPLOYMENT, key_of(made), patch, subresource="status", manager=names.MANAGER
        )

    # ------------------------------------------------------------------------------------------------------ on Grove

    async def _cliques(self, graph: Resource, component: Component) -> Counts:
        newest, pods = template_hash(component), self._of(self._pods, graph, component)
        named = {key_of(pod).name: pod for pod in pods if not is_deleting(pod)}
        wanted: dict[str, str] = {}
        for clique in cliques_of(graph, component):
            made = await self._apply(POD_CLIQUE, pod_clique(graph, clique))
            for index in range(clique.pods):
                pod = clique_pod(graph, clique, made, index)
                wanted[pod["metadata"]["name"]] = clique.group or pod["metadata"]["name"]
                if not any(key_of(each).name == pod["metadata"]["name"] for each in pods):
                    await self._client.create(POD, pod, manager=names.MANAGER)
            own = [each for name, each in named.items() if name.startswith(f"{clique.name}-")]
            await self._count(made, own)
        stale = [name for name, pod in named.items() if labels_of(pod).get(names.TEMPLATE_HASH) != newest]
        lost = [name for name in stale if name in wanted]
        away = [name for name in wanted if name not in named or not is_true(named[name], "Ready")]
        # Replace one pod at a time, while the others serve.
        gone = [*(name for name in named if name not in wanted), *(lost[:1] if not set(away) - set(lost) else [])]
        for name in gone:
            await self._client.delete(POD, ObjectKey(key_of(graph).namespace, name))
        groups = {group: [n for n, g in wanted.items() if g == group] for group in wanted.values()}
        well = [group for group, members in groups.items() if not set(members) & set(away)]
        fresh = [group for group, members in groups.items() if not set(members) & set(lost)]
        return Counts(
            component=component.name,
            kind="PodClique" if component.nodes < 2 else "PodCliqueScalingGroup",
            made=(f"{key_of(graph).name}-0-{component.lower}",),
            wanted=component.replicas,
            replicas=len(groups),
            updated=len(fresh),
            ready=len(well),
            waits=any(_has_no_node(pod) for pod in named.values()),
        )

    async def _count(self, made: Resource, pods: Sequence[Resource]) -> None:
        status = {
            "replicas": len(pods),
            "updatedReplicas": len(pods),
            "readyReplicas": sum(is_true(pod, "Ready") for pod in pods),
            "observedGeneration": made["metadata"]["generation"],
        }
        if made.get("status") != status:
            await self._client.merge_patch(
                POD_CLIQUE, key_of(made), {"status": status}, subresource="status", manager=names.MANAGER
            )

    # -------------------------------------------------------------------------------------------------------- common

    async def _remove_leftovers(self, graph: Resource, counts: Sequence[Counts]) -> None:
        """Delete objects of earlier generations once the newest one serves, and superfluous cliques at once."""
        key = key_of(graph)
        rolling = {count.component for count in counts if count.ready < count.wanted or count.updated < count.wanted}
        kept = {name for count in counts for name in count.made}
        if self._grove and on_grove(graph, installed=True):
            kept = {clique.name for c in components_of(graph) for clique in cliques_of(graph, c)}
        kind = POD_CLIQUE if self._grove and on_grove(graph, installed=True) else COMPONENT_DEPLOYMENT
        found = await self._client.list_all(kind, namespace=key.namespace, label_selector=f"{names.GRAPH}={key.name}")
        for made in found:
            if key_of(made).name not in kept and labels_of(made).get(names.COMPONENT) not in rolling:
                await self._client.delete(kind, key_of(made), propagation="Background")

    def _of(self, reflector: Reflector, graph: Resource, component: Component) -> list[Resource]:
        labels = {names.GRAPH: key_of(graph).name, names.COMPONENT: component.name}
        return [
            obj
            for obj in reflector.values()
            if key_of(obj).namespace == key_of(graph).namespace and labels.items() <= labels_of(obj).items()
        ]

    async def _apply(self, kind: Kind, obj: Resource) -> Resource:
        return await self._client.apply(kind, obj, manager=names.MANAGER, force=True)


def _has_no_node(pod: Resource) -> bool:
    conditions = dig(pod, "status", "conditions", default=[])
    return any(c.get("type") == "PodScheduled" and c.get("status") == "False" for c in conditions)
