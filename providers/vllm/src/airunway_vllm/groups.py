"""A replica with more GPUs than a node has: a group of pods, one on each node, as a LeaderWorkerSet.

The leader serves, the others compute. What the controller really does was recorded (LeaderWorkerSet 0.10): it makes a
headless Service of the set's own name, so that ours needs another, and pods of names above 49 letters fail quietly.
"""

from __future__ import annotations

from collections.abc import Iterator

from airunway.sdk import (
    Context,
    Finding,
    Launch,
    Member,
    ModelDeployment,
    Observed,
    Resource,
    launch,
    model_pod,
    sizing,
    too_long,
)
from airunway.sdk.workloads import LEADER_WORKER_SET, leader_worker_set
from airunway_vllm.manifest import RECREATED
from airunway_vllm.settings import Settings

__all__ = ["PORT", "group_blockers", "group_launch", "group_of", "nodes_of", "recreated"]

PORT = 8000
"""Where containers listen, and our Service too."""

_SUFFIX = "-lws"
_LONGEST = 49


def nodes_of(deployment: ModelDeployment, context: Context[Settings]) -> int:
    """On how many nodes one replica runs."""
    return max(1, -(-deployment.spec.resources.gpu.count // context.settings.gpus_per_node))


def group_launch(deployment: ModelDeployment, context: Context[Settings], *, leads: bool = True) -> Launch:
    """How a member of a group is started, or the only container where one node is enough."""
    nodes = nodes_of(deployment, context)
    return launch(
        deployment,
        context.engine,
        port=PORT,
        image=context.settings.image(context.engine),
        gpus=deployment.spec.resources.gpu.count // nodes,
        member=Member(size=nodes, leads=leads) if nodes > 1 else None,
    )


def group_blockers(deployment: ModelDeployment, context: Context[Settings]) -> Iterator[Finding]:
    """Why that many nodes cannot be had."""
    gpus, limit, nodes = (
        deployment.spec.resources.gpu.count,
        context.settings.gpus_per_node,
        nodes_of(deployment, context),
    )
    path = "spec.resources.gpu.count"
    asked = f"{gpus} GPUs per replica are more than the {limit} of one node (provider setting gpusPerNode)"
    if LEADER_WORKER_SET.key not in context.served:
        text = f"{asked}, and several nodes need LeaderWorkerSet, which is not installed: install it, or ask for fewer"
        yield Finding(path=path, reason="IncompatibleConfiguration", message=text)
    if gpus % nodes:
        near = gpus + nodes - gpus % nodes
        text = f"{asked}, and cannot be spread evenly over {nodes} nodes: ask for {near}"
        yield Finding(path=path, reason="IncompatibleConfiguration", message=text)
    room = _LONGEST - len(_SUFFIX)
    if found := too_long(deployment.metadata.name, limit=room, what="a LeaderWorkerSet's pods"):
        yield found


def group_of(deployment: ModelDeployment, context: Context[Settings]) -> Resource:
    """The LeaderWorkerSet. What a replica asks for is divided among its pods."""
    nodes = nodes_of(deployment, context)
    size = sizing(deployment).divided(nodes)
    leader, worker = (
        model_pod(deployment, context, group_launch(deployment, context, leads=leads), size=size)
        for leads in (True, False)
    )
    return leader_worker_set(
        deployment,
        name=f"{deployment.metadata.name}{_SUFFIX}",
        leader=leader,
        worker=worker,
        size=nodes,
        replicas=deployment.spec.scaling.replicas,
        surge=context.settings.max_surge,
    )


def recreated(observed: Observed) -> str:
    """Which group was made anew last, and for the sake of which pod, in LeaderWorkerSet's words; empty if none was.

    Its status does not say: a crashing pod is gone with its group before its container is started a second time.
    """
    said = [event.note for event in observed.events if event.reason == RECREATED]
    if not said:
        return ""
    return f"LeaderWorkerSet made {'a group' if len(said) == 1 else 'groups'} anew: {said[-1]}"
