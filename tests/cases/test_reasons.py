"""Every documented reason, from an upstream's status into the deployment's, and what its category makes of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, Kind
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, condition_of, dig, is_true
from airunway.status.reasons import REASONS, Category
from airunway_testing.operator import running_provider, until

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]

Make = Callable[..., Resource]
Create = Callable[[Resource], Awaitable[ObjectKey]]
Gone = Callable[[Kind, ObjectKey], Awaitable[None]]

PARENT = {
    Category.CONFIG: "ConfigValid",
    Category.AUTH: "AuthValid",
    Category.CONNECTIVITY: "DependenciesReachable",
    Category.STALE: "DependenciesReachable",
}
PHASE = {
    Category.CONFIG: "Failed",
    Category.SCOPED_CONFIG: "Degraded",
    Category.AUTH: "Degraded",
    Category.CONNECTIVITY: "Running",
    Category.PASSING: "Running",
    Category.CAPACITY: "Deploying",
    Category.EXHAUSTION: "Degraded",
    Category.WORKLOAD: "Degraded",
    Category.PROGRESS: "Deploying",
    Category.STALE: "Running",
    Category.UNKNOWN: "Running",
}
"""What a fault by itself makes at first of a deployment that was Running (docs/reference/conditions.md)."""

STAYS_READY = (Category.CONNECTIVITY, Category.PASSING, Category.UNKNOWN)
"""What is not held against a deployment that was Running: for a moment, or at all."""


async def test_every_documented_reason_is_seen_with_its_phase_and_its_parent(
    operator: None, client: Client, kubeconfig: Path, tiny: ProviderHost, thing: Kind, manifest: Make, create: Create,
    gone: Gone,
) -> None:  # fmt: skip
    wrong: dict[str, tuple[object, ...]] = {}
    async with running_provider(kubeconfig, tiny):
        keys = {name: await create(manifest(name.lower(), provider={"name": "tiny"})) for name in REASONS}
        for key in keys.values():
            await until(client, key, is_well)
        for name, key in keys.items():
            told = {"reason": name, "message": f"this is {name}"}
            await client.merge_patch(thing, key, {"status": told}, manager="upstream")
        for name, key in keys.items():
            parent = PARENT.get(REASONS[name].category)
            found = await until(client, key, says(name, parent=parent), what=name)
            seen = (dig(found, "status", "phase"), bad_parents(found))
            wanted = (PHASE[REASONS[name].category], {parent} if parent else set())
            if seen != wanted or is_true(found, "Ready") is not (REASONS[name].category in STAYS_READY):
                wrong[name] = seen
        for key in keys.values():
            await client.delete(MODEL_DEPLOYMENT, key)
        for key in keys.values():
            await gone(MODEL_DEPLOYMENT, key)
    assert wrong == {}


def is_well(deployment: Resource) -> bool:
    return (
        dig(deployment, "status", "phase") == "Running" and is_true(deployment, "Ready") and not bad_parents(deployment)
    )


def says(reason: str, *, parent: str | None) -> Callable[[Resource], bool]:
    """The child's condition has the reason and the upstream's words; and its parent, if any, has followed."""

    def holds(deployment: Resource) -> bool:
        child = condition_of(deployment, "ThingReady") or {}
        told = (child.get("reason"), child.get("message")) == (reason, f"this is {reason}")
        return told and (parent is None or parent in bad_parents(deployment))

    return holds


def bad_parents(deployment: Resource) -> set[str]:
    conditions = {type_: condition_of(deployment, type_) or {} for type_ in sorted(set(PARENT.values()))}
    return {type_ for type_, condition in conditions.items() if condition.get("status") == "False"}
