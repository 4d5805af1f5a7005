"""The passes of the simulated InferenceSet controller, for any `SetWorld`: a cluster or a recording.

They follow facts 21 to 27 of the recordings. A pass reads once, creates or deletes Workspaces, and reports the state
before these changes: counters first, then one write per condition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from airunway.resource import (
    Resource,
    annotations_of,
    condition_of,
    copy_of,
    dig,
    digest,
    is_deleting,
    is_true,
    key_of,
    owner_reference,
)
from airunway.sdk.typed_pods import typed_pods
from airunway_kaito_simulator import names
from airunway_kaito_simulator.passes import Annotate, Create, SetFinalizers, WriteBack, WriteStatus
from airunway_kaito_simulator.status import Conditions
from airunway_kaito_simulator.workload import typed_template
from airunway_testing.simulators.passes import Outcome


@dataclass(frozen=True, kw_only=True)
class SetFacts:
    """The state that the controller reads at one moment."""

    inference_set: Resource
    now: str
    """RFC 3339."""
    workspaces: Sequence[Resource] = ()
    """Workspaces with the set's label, in order of creation."""
    revisions: Sequence[Resource] = ()
    refusals: Sequence[str] = ()
    """The webhook's errors for a Workspace of this set, which also apply to every write of the set itself (fact 27)."""


@dataclass(frozen=True)
class DeleteWorkspace:
    workspace: Resource


SetWrite: TypeAlias = SetFinalizers | Annotate | WriteBack | WriteStatus | Create | DeleteWorkspace


class SetWorld(Protocol):
    """The environment of a pass."""

    async def facts(self) -> SetFacts | None:
        """The present facts; None if the InferenceSet is gone."""

    async def write(self, write: SetWrite) -> Resource | None:
        """Make the write; returns the InferenceSet afterwards, or None if the pass cannot continue."""


async def reconcile_set(world: SetWorld) -> Outcome:
    """One pass over one InferenceSet."""
    facts = await world.facts()
    if facts is None:
        return Outcome()
    if facts.refusals:
        return Outcome(failed=True)
    for write in _removal(facts) if is_deleting(facts.inference_set) else _upkeep(facts):
        if await world.write(write) is None:
            return Outcome()
    if is_deleting(facts.inference_set):
        return Outcome()
    live: Resource | None = facts.inference_set
    for report in (_counters, _readiness, _benchmark):
        assert live is not None, "the loop ends where the set is gone"
        status = report(facts, {**live, "metadata": facts.inference_set["metadata"]})
        if status != (live.get("status") or {}):
            live = await world.write(WriteStatus(status))
            if live is None:
                return Outcome()
    return Outcome()


def workspace_of(inference_set: Resource) -> Resource:
    """A Workspace of the set, with a generated name. The set's own labels are not copied (fact 23)."""
    template = copy_of(dig(inference_set, "spec", "template", default={}))
    given = template.get("metadata") or {}
    annotations = dict(given.get("annotations") or {})
    if annotations_of(inference_set).get(names.DISABLE_BENCHMARK) == "true":
        annotations[names.DISABLE_BENCHMARK] = "true"
    metadata = {
        "generateName": f"{key_of(inference_set).name}-",
        "namespace": key_of(inference_set).namespace,
        "labels": {**(given.get("labels") or {}), names.CREATED_BY: key_of(inference_set).name},
        "annotations": annotations,
        "ownerReferences": [owner_reference(inference_set)],
    }
    return {
        "apiVersion": names.API_VERSION,
        "kind": "Workspace",
        "metadata": metadata,
        "resource": {
            "labelSelector": copy_of(dig(inference_set, "spec", "labelSelector", default={})),
            **(template.get("resource") or {}),
        },
        "inference": template.get("inference") or {},
    }


def _removal(facts: SetFacts) -> Iterator[SetWrite]:
    """Deletes the Workspaces without waiting for their end."""
    finalizers = dig(facts.inference_set, "metadata", "finalizers", default=[])
    if names.SET_FINALIZER not in finalizers:
        return
    if condition_of(facts.inference_set, "InferenceSetDeleting") is None:
        status, conditions = _edited(facts, facts.inference_set)
        conditions.set("InferenceSetDeleting", "True", "inferencesetDeleted", "inferenceset is being deleted")
        yield WriteStatus(status)
    yield from (DeleteWorkspace(each) for each in facts.workspaces if not is_deleting(each))
    yield SetFinalizers([finalizer for finalizer in finalizers if finalizer != names.SET_FINALIZER])


def _upkeep(facts: SetFacts) -> Iterator[SetWrite]:
    inference_set = facts.inference_set
    finalizers = dig(inference_set, "metadata", "finalizers", default=[])
    if names.SET_FINALIZER not in finalizers:
        yield SetFinalizers([*finalizers, names.SET_FINALIZER])
    digits = digest(typed_pods(inference_set.get("spec")))
    revision = next((r for r in facts.revisions if annotations_of(r).get(names.SET_HASH) == digits), None)
    if revision is None:
        revision = _revision(inference_set, facts.revisions, digits)
        yield Create(revision)
    wanted = {names.SET_HASH: digits, names.SET_REVISION: str(revision["revision"])}
    if any(annotations_of(inference_set).get(key) != value for key, value in wanted.items()):
        yield Annotate(wanted)
    if (template := typed_template(dig(inference_set, "spec", "template", default={}))) is not None:
        yield WriteBack(template)
    surplus = len(facts.workspaces) - _wanted(inference_set)
    yield from (DeleteWorkspace(each) for each in _leaving(facts.workspaces, surplus))
    yield from (Create(workspace_of(inference_set)) for _ in range(-surplus))


def _leaving(workspaces: Sequence[Resource], surplus: int) -> list[Resource]:
    """Superfluous Workspaces to delete, unready ones first; Workspaces already being deleted count as superfluous."""
    living = [each for each in workspaces if not is_deleting(each)]
    surplus -= len(workspaces) - len(living)
    return sorted(living, key=_is_ready)[: max(0, surplus)]


def _revision(inference_set: Resource, existing: Sequence[Resource], digits: str) -> Resource:
    key = key_of(inference_set)
    metadata = {
        "name": f"{key.name}-{digits[:5]}",
        "namespace": key.namespace,
        "labels": {names.SET_REVISION_OWNER: key.name},
        "annotations": {names.SET_HASH: digits},
        "ownerReferences": [owner_reference(inference_set)],
    }
    number = 1 + max((int(r.get("revision", 0)) for r in existing), default=0)
    data = {"Spec": inference_set.get("spec")}
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": metadata,
        "revision": number,
        "data": data,
    }


def _counters(facts: SetFacts, live: Resource) -> Resource:
    """The status with the wanted number of replicas and the number of ready Workspaces."""
    wanted, ready = _wanted(live), sum(map(_is_ready, facts.workspaces))
    counted = {name: count for name, count in (("replicas", wanted), ("readyReplicas", ready)) if count}
    status = {
        key: value for key, value in (live.get("status") or {}).items() if key not in ("replicas", "readyReplicas")
    }
    return {**status, **counted, "selector": f"{names.CREATED_BY}={key_of(live).name}"}


def _readiness(facts: SetFacts, live: Resource) -> Resource:
    wanted, ready = _wanted(live), sum(map(_is_ready, facts.workspaces))
    status, conditions = _edited(facts, live)
    if ready == wanted:
        conditions.set("InferenceSetReady", "True", "inferencesetReady", "inferenceset is ready")
    else:
        text = f"inferenceset is not ready, {ready}/{wanted} replicas are ready"
        conditions.set("InferenceSetReady", "False", "inferencesetNotReady", text)
    return status


def _benchmark(facts: SetFacts, live: Resource) -> Resource:
    """The status with the benchmark's condition; only for presets, unless the set disables the benchmark (fact 24)."""
    status, conditions = _edited(facts, live)
    preset = dig(live, "spec", "template", "inference", "preset") is not None
    if not preset or annotations_of(live).get(names.DISABLE_BENCHMARK) == "true":
        return status
    wanted = _wanted(live)
    done = sum(_is_ready(each) and bool(dig(each, "status", "performance", "metrics")) for each in facts.workspaces)
    verdict = ("True", "BenchmarkCompleted") if done == wanted and wanted else ("False", "BenchmarkPending")
    conditions.set("BenchmarkCompleted", *verdict, f"{done}/{wanted} replicas benchmarked")
    return status


def _edited(facts: SetFacts, live: Resource) -> tuple[Resource, Conditions]:
    status = copy_of(live.get("status") or {})
    return status, Conditions(status, live, now=facts.now)


def _wanted(inference_set: Resource) -> int:
    return int(dig(inference_set, "spec", "replicas", default=1))


def _is_ready(workspace: Resource) -> bool:
    """Whether a Workspace is ready and not being deleted."""
    return is_true(workspace, "WorkspaceSucceeded") and not is_deleting(workspace)
