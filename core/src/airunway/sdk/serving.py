"""Model servers of one role: a Deployment, or a LeaderWorkerSet if a replica needs more GPUs than a node has.

In a LeaderWorkerSet group, the leader serves and the workers only compute. Recorded behaviour of LeaderWorkerSet 0.10:
its controller creates a headless Service with the set's name, so our Service needs another name. Pods with names longer
than 49 characters fail without an error message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from airunway.api import names
from airunway.api.modeldeployment import ModelDeployment
from airunway.engines.tables import SERVING_PORT
from airunway.plugins.contract import Component, Context, Finding, Observed, Transformer
from airunway.resource import Resource
from airunway.sdk.conditions import condition, moment, records, text, truth
from airunway.sdk.deployments import nodes_of, overridden, replicas_of, too_long
from airunway.sdk.findings import NODES, bad_override, blocker, uneven
from airunway.sdk.launch import FLAGS_BY_RELEASE, Launch, Member, launch
from airunway.sdk.overrides import REPLICAS, TEXT, TEXTS, choice, items, keys
from airunway.sdk.plugin import NetworkSettings, setting
from airunway.sdk.pods import ONE_POD, Sizing, model_pod, sizing
from airunway.sdk.workloads import DEPLOYMENT, LEADER_WORKER_SET, SERVER, claim_templates, deployment, leader_worker_set

__all__ = [
    "OVERRIDES",
    "RECREATED",
    "TRANSFORMERS",
    "NodeSettings",
    "Servers",
    "blockers",
    "claims",
    "features",
    "launch_of",
    "override_conflicts",
    "several",
    "transformers",
    "with_recreations",
    "workload",
]

RECREATED = "RecreateGroup"
"""The event (type Normal) with which LeaderWorkerSet reports that it recreates a group, and because of which pod."""

_SUFFIX = "-lws"
_LONGEST = 49

_GRACE = 600
"""Seconds for scheduling and pulling the image, added to the startup probe's time until a roll-out counts as stuck."""

_LOOP = timedelta(minutes=10)
"""Two recreations of a group within this time are a restart loop."""

_NOTICED = timedelta(minutes=1)
"""How long before a set becomes unavailable the event with the cause may be (recorded: a second)."""

_OUR_MANAGERS = names.provider_manager("")

_OF_A_DEPLOYMENT = ("minReadySeconds", "progressDeadlineSeconds", "revisionHistoryLimit", "strategy", "template")
_OF_A_GROUP = ("leaderWorkerTemplate", "rolloutStrategy")

_SECONDS = {"type": "integer", "minimum": 0, "maximum": 86400}
_POD = keys(
    spec=keys(
        terminationGracePeriodSeconds=_SECONDS,
        schedulerName=TEXT,
        dnsPolicy=TEXT,
        dnsConfig=keys(nameservers=TEXTS, searches=TEXTS, options=items(keys(name=TEXT, value=TEXT))),
        hostAliases=items(keys(ip=TEXT, hostnames=TEXTS)),
    )
)
_ROLLING = keys(maxSurge=REPLICAS, maxUnavailable=REPLICAS)

OVERRIDES: Resource = keys(
    spec=keys(
        minReadySeconds=_SECONDS,
        progressDeadlineSeconds=_SECONDS,
        revisionHistoryLimit={"type": "integer", "minimum": 0, "maximum": 10},
        strategy=keys(type=choice("RollingUpdate", "Recreate"), rollingUpdate={**_ROLLING, "type": ["object", "null"]}),
        template=_POD,
        rolloutStrategy=keys(rollingUpdateConfiguration=_ROLLING),
        leaderWorkerTemplate=keys(
            leaderTemplate=_POD,
            workerTemplate=_POD,
            restartPolicy=choice("RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None"),
        ),
    )
)
"""The overrides of both workload kinds; `override_conflicts` refuses overrides of the other kind."""


def transformers(generation: int, features: Collection[str] = ()) -> tuple[Transformer, Transformer]:
    """The n-th `generation` of transformers for Deployments and LeaderWorkerSets, of a provider that creates both."""
    return (
        Transformer(
            name=f"deployment-v{generation}",
            api_version="apps/v1",
            immutable=("spec.selector.*",),
            features=frozenset(features),
        ),
        Transformer(
            name=f"leaderworkerset-v{generation}",
            api_version="leaderworkerset.x-k8s.io/v1",
            kind=LEADER_WORKER_SET.kind,
            # The last hash belongs to the minimal CRD of LeaderWorkerSet's simulator.
            schema_hashes=("d7d2ce36766f", "35820124ad89", "1682bf2d54e0"),
            features=frozenset(features),
            since="0.7",
        ),
    )


TRANSFORMERS = transformers(1)
"""The first generation, for a provider with Deployment as primary kind; it defines later generations itself."""


@dataclass(frozen=True, kw_only=True)
class NodeSettings(NetworkSettings):
    """Base class for the settings of a provider that creates these workloads.

    Raises ValueError for a number out of range.
    """

    max_surge: int = setting(
        0, "Replicas that a roll-out may make beyond those asked for; each needs GPUs of its own. 0: none."
    )
    gpus_per_node: int = setting(8, "GPUs of the largest node: a replica with more runs on several nodes.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.max_surge <= 32:
            raise ValueError(f"setting 'maxSurge' must be from 0 to 32, not {self.max_surge}")
        if not 1 <= self.gpus_per_node <= 64:
            raise ValueError(f"setting 'gpusPerNode' must be from 1 to 64, not {self.gpus_per_node}")


@dataclass(frozen=True, kw_only=True)
class Servers:
    """The servers of one role."""

    name: str
    """Name of the Deployment; a LeaderWorkerSet has a suffix."""
    component: str = SERVER
    """Component label of the pods."""
    role: str = ""
    """Role in the spec (``prefill``, ``decode``); empty in aggregated mode."""
    port: int = SERVING_PORT
    image: str = ""
    """Used if the deployment names no image."""
    extra: tuple[str, ...] = ()
    """As in `launch`."""
    env: tuple[Resource, ...] = ()
    """As in `launch`."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of serving pods only."""
    pipelined: bool = True
    """False: a group splits tensors over all of its nodes, even if the engine would by default use pipeline stages."""

    def replicas(self, model: ModelDeployment) -> int:
        """The number of replicas of this role."""
        return replicas_of(model, self.role)

    def size(self, model: ModelDeployment) -> Sizing:
        """The resources of one replica, all of its pods together."""
        return sizing(model, self.role)

    @property
    def path(self) -> str:
        """The field with the number of GPUs."""
        return f"spec.scaling.{self.role}.gpu.count" if self.role else "spec.resources.gpu.count"

    def nodes(self, model: ModelDeployment, settings: NodeSettings) -> int:
        """The number of nodes of one replica."""
        return nodes_of(model, self.size(model).gpus, settings.gpus_per_node)

    def pods(self, model: ModelDeployment, settings: NodeSettings) -> int:
        """The number of pods of all replicas, at least of one: a model that is scaled to zero comes back."""
        return max(1, self.replicas(model)) * self.nodes(model, settings)

    def object(self, model: ModelDeployment, settings: NodeSettings) -> tuple[str, str]:
        """Kind and name of the workload."""
        if self.nodes(model, settings) > 1:
            return LEADER_WORKER_SET.kind, f"{self.name}{_SUFFIX}"
        return DEPLOYMENT.kind, self.name


def several(model: ModelDeployment, settings: NodeSettings, roles: Iterable[Servers]) -> bool:
    """Whether any of the roles needs LeaderWorkerSet."""
    return any(role.nodes(model, settings) > 1 for role in roles)


def features(model: ModelDeployment, context: Context[Any], first: Servers) -> frozenset[str]:
    """The features of the transformer that writes the first role of the plan, a Deployment or a LeaderWorkerSet.

    An existing object keeps the transformer of its own kind, so the primary kind's transformer does not apply to a
    LeaderWorkerSet.
    """
    kind, _ = first.object(model, context.settings)
    grouped = context.served.get(LEADER_WORKER_SET.key) if kind == LEADER_WORKER_SET.kind else None
    return (grouped or context.upstream).transformer.features


def launch_of(model: ModelDeployment, context: Context[Any], role: Servers, *, leads: bool = True) -> Launch:
    """How a member of a group is started, or the only container of a replica on one node."""
    nodes = role.nodes(model, context.settings)
    return launch(
        model,
        context.engine,
        port=role.port,
        image=role.image,
        gpus=role.size(model).gpus // nodes,
        extra=role.extra,
        env=role.env,
        member=Member(size=nodes, leads=leads, pipelined=role.pipelined) if nodes > 1 else None,
        by_release=FLAGS_BY_RELEASE in features(model, context, role),
        ip_family=context.settings.ip_family,
        cache=context.cache,
    )


def blockers(model: ModelDeployment, context: Context[Any], role: Servers) -> Iterator[Finding]:
    """Why a replica cannot run on the number of nodes it needs; empty for one node."""
    nodes = role.nodes(model, context.settings)
    if nodes == 1:
        return
    gpus, limit, asked = role.size(model).gpus, context.settings.gpus_per_node, model.spec.scaling.nodes_per_replica
    if LEADER_WORKER_SET.key not in context.served:
        why = (
            f"nodesPerReplica is {asked}"
            if asked is not None
            else f"{gpus} GPUs per replica are more than the {limit} of one node (provider setting gpusPerNode)"
        )
        text = f"{why}, and several nodes need LeaderWorkerSet, which is not installed: install it, or ask for fewer"
        yield blocker(role.path if asked is None else NODES, text)
    yield from uneven(role.path, gpus=gpus, limit=limit, asked=asked)
    taken = len(role.name) - len(model.metadata.name) + len(_SUFFIX)
    if found := too_long(model.metadata.name, limit=_LONGEST - taken, what="a LeaderWorkerSet's pods"):
        yield found


def override_conflicts(model: ModelDeployment, *, grouped: bool) -> Iterator[Finding]:
    """Overrides that do not apply to the workload's kind: LeaderWorkerSet if `grouped`, else Deployment."""
    given = overridden(model, "spec")
    kind, wrong = (LEADER_WORKER_SET.kind, _OF_A_DEPLOYMENT) if grouped else (DEPLOYMENT.kind, _OF_A_GROUP)
    for key in wrong:
        if isinstance(given, dict) and key in given:
            text = f"spec.provider.overrides.spec.{key} has no place in a {kind}: remove it"
            yield bad_override(f"spec.{key}", text)


def _of_a_pod(model: ModelDeployment, context: Context[Any], role: Servers) -> Sizing:
    size, nodes = role.size(model), role.nodes(model, context.settings)
    return size.divided(nodes) if nodes > 1 else size


def claims(model: ModelDeployment, context: Context[Any], roles: Iterable[Servers]) -> list[Resource]:
    """The ResourceClaimTemplates that the pods of these roles name."""
    return claim_templates(model, (_of_a_pod(model, context, role) for role in roles))


def workload(
    model: ModelDeployment,
    context: Context[Any],
    role: Servers,
    *,
    sidecars: tuple[Resource, ...] = (),
    hardened: bool = False,
) -> Resource:
    """The workload object of a role.

    The resources of a replica are divided among its pods. `sidecars` run beside the serving container as native
    sidecars (Kubernetes 1.29). `hardened` restricts the pods as described for the feature `HARDENED`.
    """
    _, name = role.object(model, context.settings)
    nodes = role.nodes(model, context.settings)
    started = launch_of(model, context, role)
    part = _of_a_pod(model, context, role)
    leader = model_pod(model, context, started, size=part, labels=dict(role.labels), hardened=hardened)
    if sidecars:
        beside = [{**sidecar, "restartPolicy": "Always"} for sidecar in sidecars]
        leader = {**leader, "spec": {**leader["spec"], "initContainers": beside}}
    # A claim for one pod is released before the next pod mounts it.
    alone = context.cache is not None and context.cache.access_mode in ONE_POD
    surge: int = 0 if alone else context.settings.max_surge
    wanted: dict[str, Any] = {
        "name": name,
        "component": role.component,
        "replicas": role.replicas(model),
        "surge": surge,
    }
    if nodes == 1:
        return deployment(model, leader, patience=started.patience + _GRACE, **wanted)
    follows = launch_of(model, context, role, leads=False)
    worker = model_pod(model, context, follows, size=part, hardened=hardened)
    return leader_worker_set(model, leader=leader, worker=worker, size=nodes, **wanted)


def with_recreations(component: Component, observed: Observed, *, now: datetime, name: str = "") -> Component:
    """The component of a group, with what LeaderWorkerSet's events report while it is not ready.

    The status of the set does not report recreations. A crashing pod is deleted with its group before its container
    starts a second time, so no pod shows a restart loop. A group that was recreated twice within ten minutes gets the
    reason ``RestartLoop``. Events from before the set was last fully ready, or before its last change, are ignored.
    `name` selects one of several sets.
    """
    if component.ready:
        return component
    begun = _begun(observed, name, now=now)
    made = [
        event
        for event in observed.events
        if event.reason == RECREATED and name in ("", event.name) and _is_since(event.last, begun)
    ]
    if not made:
        return component
    words = f"LeaderWorkerSet made {'a group' if len(made) == 1 else 'groups'} anew: {made[-1].note}"
    component = replace(component, message="; ".join(filter(None, (component.message, words))))
    recent = [event for event in made if event.last is not None and now - event.last <= _LOOP]
    groups = Counter(event.note.rpartition(" ")[2] for event in recent)
    # A repeated message updates the same event: its last time moves on.
    again = any(
        event.first is not None and event.last is not None and event.first < event.last
        for event in recent
        if _is_since(event.first, begun)
    )
    if again or max(groups.values(), default=0) > 1:
        return replace(component, reason="RestartLoop")
    return component


def _is_since(when: datetime | None, begun: datetime | None) -> bool:
    return when is None or begun is None or when >= begun


def _begun(observed: Observed, name: str, *, now: datetime) -> datetime | None:
    """Since when the set has been in its current form and not fully ready; None if it was never known to be ready."""
    sets = (each for each in (observed.primary, *observed.objects) if text(each, "kind") == LEADER_WORKER_SET.kind)
    found = next((each for each in sets if name in ("", text(each, "metadata", "name"))), None)
    available, updating = condition(found, "Available"), condition(found, "UpdateInProgress")
    moments = [moment(updating, "lastTransitionTime") if truth(found, "UpdateInProgress") else None]
    lost = now if truth(found, "Available") else moment(available, "lastTransitionTime")
    if lost is not None:
        # The event comes before the condition changes: pods that the controller deletes stay ready for a moment.
        moments.append(lost - _NOTICED)
    moments += [
        moment(entry, "time")
        for entry in records(found, "metadata", "managedFields")
        if text(entry, "manager").startswith(_OUR_MANAGERS) and not text(entry, "subresource")
    ]
    return max(filter(None, moments), default=None)
