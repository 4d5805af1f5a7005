"""The operator of the toy upstream: it makes a ToyPart of every Toy, and answers by scenario on both levels.

As real operators do, it holds its objects with a finalizer of its own, and copies their labels and annotations onto
what it makes.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

from airunway.kube import EVENT, Client, Conflict, Forbidden, NotFound
from airunway.resource import (
    ObjectKey,
    Resource,
    annotations_of,
    condition_of,
    dig,
    format_time,
    is_deleting,
    key_of,
    labels_of,
    owner_reference,
    uid_of,
)
from airunway_testing.simulators.passes import Outcome, Passes
from airunway_testing.simulators.registry import Level, Simulator
from airunway_testing.simulators.scenarios import INSTANT, Scenario, parse_scenario, scenario_of
from airunway_testing.simulators.writes import finalizers_patch, status_patch
from airunway_testing.toy.names import FINALIZER, GROUP, MANAGER, PART, TOY, TOY_LABEL


class ToyOperator:
    """``fails:ToyBroken`` also writes a Warning event; ``no-nodes`` is shown as ``Unschedulable``."""

    def __init__(self, client: Client, *, scenario: str = "") -> None:
        self._client = client
        self._default = parse_scenario(scenario or INSTANT)
        self._passes = Passes(client, TOY, self._reconcile, name="simulated-toy", owned=(PART,))

    async def run(self) -> None:
        """Work until cancelled."""
        await self._passes.run()

    async def _reconcile(self, key: ObjectKey) -> Outcome:
        try:
            await self._pass(await self._client.get(TOY, key), key)
        except NotFound:
            return Outcome()
        except (Conflict, Forbidden):  # somebody else wrote, or the namespace goes
            return Outcome(failed=True)
        return Outcome()

    async def _pass(self, toy: Resource, key: ObjectKey) -> None:
        scenario = scenario_of(toy, self._default)
        finalizers = dig(toy, "metadata", "finalizers", default=[])
        wanted = [name for name in finalizers if name != FINALIZER]
        if not is_deleting(toy) or (scenario.lingers and FINALIZER in finalizers):
            wanted.append(FINALIZER)
        if set(wanted) != set(finalizers):
            toy = await self._client.merge_patch(TOY, key, finalizers_patch(toy, wanted), manager=MANAGER)
        if is_deleting(toy) or scenario.silent:
            return
        await self._client.apply(PART, _part(toy), manager=MANAGER, force=True)
        before = toy.get("status") or {}
        status = _status(toy, scenario, format_time(datetime.now(UTC)))
        if status != before:
            patch = status_patch(toy, status)
            await self._client.merge_patch(TOY, key, patch, subresource="status", manager=MANAGER)
            if scenario.kind == "fails":
                await self._client.create(EVENT, _event(toy, scenario), manager=MANAGER)


def _part(toy: Resource) -> Resource:
    key = key_of(toy)
    metadata = {
        "name": f"{key.name}-part",
        "namespace": key.namespace,
        "labels": {**labels_of(toy), TOY_LABEL: key.name},
        "annotations": annotations_of(toy),
        "ownerReferences": [owner_reference(toy)],
    }
    return {"apiVersion": PART.api_version, "kind": PART.kind, "metadata": metadata}


def _status(toy: Resource, scenario: Scenario, now: str) -> Resource:
    match scenario.kind:
        case "fails" | "degrades":
            status, reason, message = "False", scenario.argument, f"the toy was told to show {scenario.argument}"
        case "error":
            status, reason, message = "False", "ReconcileError", scenario.argument
        case "no-nodes":
            status, reason, message = "False", "Unschedulable", "no node is free for the toy"
        case "never-ready":
            status, reason, message = "False", "Progressing", "the toy is being put together"
        case _:
            status, reason, message = "True", "Ready", ""
    before = condition_of(toy, "Ready") or {}
    since = before.get("lastTransitionTime", now) if before.get("status") == status else now
    ready = {"type": "Ready", "status": status, "reason": reason, "message": message, "lastTransitionTime": since}
    count = dig(toy, "spec", "replicas", default=1) if status == "True" else 0
    generation = dig(toy, "metadata", "generation")
    return {"observedGeneration": generation, "readyReplicas": count, "conditions": [ready]}


def _event(toy: Resource, scenario: Scenario) -> Resource:
    key = key_of(toy)
    regarding = {"apiVersion": TOY.api_version, "kind": TOY.kind, "namespace": key.namespace, "name": key.name}
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {"namespace": key.namespace, "name": f"{key.name}.{uuid.uuid4().hex[:16]}"},
        "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": f"{GROUP}/{MANAGER}",
        "reportingInstance": MANAGER,
        "action": "Reconcile",
        "reason": scenario.argument,
        "regarding": {**regarding, "uid": uid_of(toy)},
        "note": f"the toy was told to show {scenario.argument}",
        "type": "Warning",
    }


def _program(client: Client, level: Level, scenario: str) -> ToyOperator:
    return ToyOperator(client, scenario=scenario)


simulator = Simulator(name="toy", kinds=((GROUP, "Toy"),), package="airunway_testing.toy", program=_program)
