"""The Acme operator, simulated: on level `cluster` it makes Deployments; on level `api`, without pods, it answers by
scenario. It imports `airunway.kube`, `airunway.resource` and `airunway_testing.simulators`, nothing that it tests.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airunway.kube import DEPLOYMENT, Client, Conflict, Forbidden, Kind, NotFound
from airunway.resource import (
    ObjectKey,
    Resource,
    condition_of,
    dig,
    format_time,
    is_deleting,
    key_of,
    labels_of,
    owner_reference,
)
from airunway_testing.simulators import Level, ScenarioError, Simulator
from airunway_testing.simulators.passes import Outcome, Passes
from airunway_testing.simulators.scenarios import Scenario
from airunway_testing.simulators.scripted import Scripted
from airunway_testing.simulators.writes import status_patch

__all__ = ["simulator"]

SERVER = Kind("acme.example.com", "v1", "AcmeServer", "acmeservers")
LABEL = f"{SERVER.group}/server"
MANAGER = "acme-operator"


class Operator:
    """A pass applies the Deployment that follows from one AcmeServer, and writes what becomes of it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._passes = Passes(client, SERVER, self._reconcile, name="simulated-acme", owned=(DEPLOYMENT,))

    async def run(self) -> None:
        """Work until cancelled."""
        await self._passes.run()

    async def _reconcile(self, key: ObjectKey) -> Outcome:
        try:
            server = await self._client.get(SERVER, key)
            if not is_deleting(server):
                made = await self._client.apply(DEPLOYMENT, _deployment(server), manager=MANAGER, force=True)
                await self._write(key, server, _status_of_pods(server, made, _now()))
        except NotFound:
            return Outcome()  # it is gone, and its Deployment goes with it
        except (Conflict, Forbidden):  # somebody else wrote, or the namespace goes
            return Outcome(failed=True)
        return Outcome()

    async def _write(self, key: ObjectKey, server: Resource, status: Resource) -> None:
        if status != (server.get("status") or {}):
            patch = status_patch(server, status)
            await self._client.merge_patch(SERVER, key, patch, subresource="status", manager=MANAGER)


def _deployment(server: Resource) -> Resource:
    key, template = key_of(server), _pods(server)
    selector = {LABEL: key.name}
    metadata = {**template.get("metadata", {}), "labels": {**labels_of(template), **selector}}
    return {
        "apiVersion": DEPLOYMENT.api_version,
        "kind": DEPLOYMENT.kind,
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": selector,
            "ownerReferences": [_owner(server)],
        },
        "spec": {
            "replicas": _wanted(server),
            "selector": {"matchLabels": selector},
            "template": {**template, "metadata": metadata},
        },
    }


def _owner(server: Resource) -> Resource:
    """A cached object does not say of what kind it is."""
    return owner_reference({**server, "apiVersion": SERVER.api_version, "kind": SERVER.kind})


def _pods(server: Resource) -> Resource:
    """The pod template that the object asks for."""
    return dict(dig(server, "spec", "template", default={}))


def _wanted(server: Resource) -> int:
    return int(dig(server, "spec", "replicas", default=1))


def _status_of_pods(server: Resource, deployment: Resource, now: str) -> Resource:
    wanted = _wanted(server)
    ready = dig(deployment, "status", "readyReplicas", default=0)
    if ready >= wanted:
        return _status(server, now, ready=ready, reason="Ready")
    return _status(server, now, ready=ready, reason="Progressing", message=f"{ready} of {wanted} pods are ready")


def _status_by_scenario(server: Resource, scenario: Scenario, now: str) -> Resource:
    """Level `api`: the whole status that a word of a test leads to (docs/providers/simulators.md)."""
    match scenario.kind:
        case "silent":
            return dict(server.get("status") or {})
        case "fails" | "degrades":
            return _status(server, now, reason=scenario.argument, message=f"told to show {scenario.argument}")
        case "error":
            return _status(server, now, reason="ReconcileError", message=scenario.argument)
        case "never-ready" | "no-nodes":
            return _status(server, now, reason="Progressing", message="waiting for pods")
        case _:
            return _status(server, now, ready=_wanted(server), reason="Ready")


def _children(server: Resource, scenario: Scenario, _now: str) -> list[tuple[Kind, Resource]]:
    """Level `api`, where no controller of Deployments runs: it says what that would say."""
    wanted = _wanted(server)
    ready = wanted if scenario.kind in ("instant", "lingers") else 0
    counts = {"replicas": wanted, "updatedReplicas": wanted, "readyReplicas": ready, "availableReplicas": ready}
    status = {name: count for name, count in counts.items() if count}
    return [(DEPLOYMENT, {**_deployment(server), "status": status})]


def _status(server: Resource, now: str, *, reason: str, ready: int = 0, message: str = "") -> Resource:
    truth = "True" if reason == "Ready" else "False"
    before = condition_of(server, "Ready") or {}
    since = before.get("lastTransitionTime", now) if before.get("status") == truth else now
    condition = {"type": "Ready", "status": truth, "reason": reason, "message": message}
    condition["lastTransitionTime"] = since
    return {
        "observedGeneration": dig(server, "metadata", "generation"),
        "readyReplicas": ready,
        "conditions": [condition],
    }


def _now() -> str:
    return format_time(datetime.now(UTC))


def _program(client: Client, level: Level, scenario: str) -> Scripted | Operator:
    if level == "api":
        return Scripted(
            client,
            SERVER,
            _status_by_scenario,
            name="acme",
            manager=MANAGER,
            finalizer="acme.example.com/simulated",
            keep=lambda server: {"spec": server["spec"]},
            children=_children,
            scenario=scenario,
        )
    if scenario:
        raise ScenarioError(f"scenario {scenario!r}: on level cluster what becomes of the pods decides; leave it out")
    return Operator(client)


simulator = Simulator(
    name="acme",
    kinds=((SERVER.group, SERVER.kind),),
    package="airunway_acme_simulator",
    program=_program,
)
