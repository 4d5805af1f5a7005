"""One reconcile pass of the simulated controller, for any `World`: a cluster or a recording.

The pass is level-triggered: it reads the facts, makes the first missing write, reads again, and so on. The order of
writes is as recorded (fact 1): finalizer, revision, annotations, number of nodes, Services, StatefulSet, and finally
the whole status.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from airunway.resource import Resource, annotations_of, condition_of, dig, is_deleting, key_of
from airunway_kaito_simulator import names, workload
from airunway_kaito_simulator.nodes import is_ready, matching_nodes
from airunway_kaito_simulator.pods import failure_of
from airunway_kaito_simulator.status import Benchmark, Snapshot, deleting_status, status_after, with_target
from airunway_testing.simulators.passes import Outcome

NODE_POLL_SECONDS = 2.0
"""Seconds between passes over a Workspace without enough nodes (fact 8)."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The state that the controller reads at one moment."""

    workspace: Resource
    now: str
    """RFC 3339."""
    nodes: Sequence[Resource] = ()
    services: Sequence[Resource] = ()
    stateful_set: Resource | None = None
    revisions: Sequence[Resource] = ()
    pods: Sequence[Resource] = field(default=())
    access_error: str = ""
    """The error about the preset's access Secret (fact 31), or empty."""
    benchmark_metrics: Resource | None = None
    """The result in the log of the first pod; None if there is none."""


@dataclass(frozen=True)
class SetFinalizers:
    finalizers: list[str]


@dataclass(frozen=True)
class Annotate:
    """Annotations to add to the Workspace."""

    annotations: dict[str, str]


@dataclass(frozen=True)
class WriteBack:
    """The pod template as KAITO's types write it. Every update of the object by KAITO has it in that form."""

    template: Resource


@dataclass(frozen=True)
class WriteStatus:
    status: Resource


@dataclass(frozen=True)
class Create:
    obj: Resource


@dataclass(frozen=True)
class PatchStatefulSet:
    patch: Resource


Write: TypeAlias = SetFinalizers | Annotate | WriteBack | WriteStatus | Create | PatchStatefulSet


class World(Protocol):
    """The environment of a pass."""

    async def facts(self) -> Facts | None:
        """The present facts; None if the Workspace is gone."""

    async def write(self, write: Write) -> bool:
        """Make the write; False if the Workspace is gone or has changed, which ends the pass."""

    async def pause(self) -> None:
        """Wait as long as the real controller does between reading the nodes and reading the workload."""


async def reconcile(world: World) -> Outcome:
    """One pass over one Workspace."""
    while True:
        facts = await world.facts()
        if facts is None:
            return Outcome()
        write = _removal(facts) if is_deleting(facts.workspace) else _preparation(facts)
        if write is None:
            break
        if not await world.write(write):
            return Outcome()
    if is_deleting(facts.workspace):
        return Outcome()
    if _access_error(facts):
        await _write_status(world, facts, snapshot_of(facts, error=facts.access_error))
        return Outcome(failed=True)
    if not _nodes_ready(facts):
        await _write_status(world, facts, snapshot_of(facts))
        return Outcome(requeue_after=NODE_POLL_SECONDS)
    await world.pause()
    return await _deploy(world)


async def _deploy(world: World) -> Outcome:
    while True:
        facts = await world.facts()
        if facts is None or is_deleting(facts.workspace):
            return Outcome()
        write = _deployment(facts)
        if write is None:
            break
        if not await world.write(write):
            return Outcome()
    await _write_status(world, facts, snapshot_of(facts))
    return Outcome()


async def _write_status(world: World, facts: Facts, snapshot: Snapshot) -> None:
    status = status_after(facts.workspace, snapshot, now=facts.now)
    if status != facts.workspace.get("status"):
        await world.write(WriteStatus(status))


def snapshot_of(facts: Facts, *, error: str = "") -> Snapshot:
    """The inputs of the status at this moment."""
    live = facts.stateful_set
    return Snapshot(
        worker_nodes=tuple(key_of(node).name for node in matching_nodes(facts.workspace, facts.nodes)),
        nodes_ready=_nodes_ready(facts),
        workload_ready=_workload_ready(live),
        failure=failure_of(facts.pods),
        benchmark=_benchmark(facts) if live is not None and workload.runs_benchmark(live) else None,
        error=error,
    )


def _removal(facts: Facts) -> Write | None:
    finalizers = dig(facts.workspace, "metadata", "finalizers", default=[])
    if names.FINALIZER in finalizers:
        return SetFinalizers([f for f in finalizers if f != names.FINALIZER])
    if condition_of(facts.workspace, "WorkspaceDeleting") is None:
        return WriteStatus(deleting_status(facts.workspace, now=facts.now))
    return None


def _preparation(facts: Facts) -> Write | None:
    workspace = facts.workspace
    finalizers = dig(workspace, "metadata", "finalizers", default=[])
    if names.FINALIZER not in finalizers:
        return SetFinalizers([*finalizers, names.FINALIZER])
    digits = workload.workspace_hash(workspace)
    revision = next((r for r in facts.revisions if annotations_of(r).get(names.HASH) == digits), None)
    if revision is None:
        return Create(workload.controller_revision(workspace, facts.revisions))
    wanted = {names.HASH: digits, names.REVISION: str(revision["revision"])}
    if any(annotations_of(workspace).get(key) != value for key, value in wanted.items()):
        return Annotate(wanted)
    if (template := workload.typed_template(workspace)) is not None:
        return WriteBack(template)
    if not dig(workspace, "status", "targetNodeCount") and not _access_error(facts):
        return WriteStatus(with_target(workspace, workload.target_count(workspace)))
    return None


def _access_error(facts: Facts) -> str:
    """The error while the number of nodes is unknown; later the Secret is not checked again."""
    return "" if dig(facts.workspace, "status", "targetNodeCount") else facts.access_error


def _deployment(facts: Facts) -> Write | None:
    workspace = facts.workspace
    present = {key_of(service).name for service in facts.services}
    if key_of(workspace).name not in present:
        return Create(workload.service(workspace))
    if workload.headless_name(workspace) not in present:
        return Create(workload.headless_service(workspace))
    if facts.stateful_set is None:
        return Create(workload.stateful_set(workspace, facts.nodes))
    patch = workload.revised_stateful_set(workspace, facts.stateful_set)
    return None if patch is None else PatchStatefulSet(patch)


def _nodes_ready(facts: Facts) -> bool:
    """Whether enough nodes are ready; their capacity does not matter. An unknown wanted number counts as 0."""
    ready = sum(is_ready(node) for node in matching_nodes(facts.workspace, facts.nodes))
    return ready >= int(dig(facts.workspace, "status", "targetNodeCount", default=0))


def _workload_ready(live: Resource | None) -> bool:
    """Whether all replicas in the StatefulSet's spec are ready, even if a user set their number (facts 3 and 19).

    Pods of an old revision count too.
    """
    if live is None:
        return False
    return bool(dig(live, "status", "readyReplicas", default=0) == dig(live, "spec", "replicas", default=1))


def _benchmark(facts: Facts) -> Benchmark:
    key = key_of(facts.workspace)
    metrics = dig(facts.workspace, "status", "performance", "metrics") or facts.benchmark_metrics
    failure = f"pod {key.namespace}/{key.name}-0: no KAITO_BENCHMARK_RESULT line found in pod logs"
    return Benchmark(metrics=metrics) if metrics else Benchmark(failure=failure)
