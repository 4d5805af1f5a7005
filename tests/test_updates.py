"""What a change of a deployment does to what runs, on a real API server: made anew, handed over, rehearsed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.cluster_fixtures import RESOURCE_QUOTA
from tests.support.faultproxy import Fault, FaultProxy

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import CONFIG_MAP, EVENT, Client, Kind
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, condition_of, dig, format_time, uid_of
from airunway_testing.eventually import PATIENCE
from airunway_testing.expectations import plan_says, reason_is, running_at, says
from airunway_testing.operator import gone, running_core, running_provider, running_simulator, until

pytestmark = pytest.mark.apiserver

WORKSPACE = Kind(group="kaito.sh", version="v1beta1", kind="Workspace", plural="workspaces", namespaced=True)

Make = Callable[..., Resource]
Create = Callable[[Resource], Awaitable[ObjectKey]]

OTHER_MODEL: Resource = {"spec": {"model": {"id": "google/other-gguf/other.gguf"}}}
DRY_RUN: Resource = {"metadata": {"annotations": {names.DRY_RUN: "true"}}}
HELD: Resource = {"metadata": {"finalizers": ["example.org/hold"]}}
FREE: Resource = {"metadata": {"finalizers": []}}


async def edit(client: Client, key: ObjectKey, patch: Resource) -> None:
    await client.merge_patch(MODEL_DEPLOYMENT, key, patch, manager="user")


# -------------------------------------------------------------------------------------------------------- made anew


async def test_what_has_failed_is_made_anew_when_the_spec_that_broke_it_changes(
    installed: None, client: Client, kubeconfig: Path, kaito: ProviderHost, manifest: Make, create: Create
) -> None:
    async with running_core(kubeconfig), running_provider(kubeconfig, kaito):
        key = await create(manifest())
        await until(client, key, lambda d: dig(d, "status", "provider", "resourceName") == key.name)
        failure = {
            "type": "InferenceReady",
            "status": "False",
            "reason": "ContainerCrashLoopBackOff",
            "message": "back-off restarting failed container",
            "lastTransitionTime": format_time(datetime.now(UTC)),
            "observedGeneration": 1,
        }
        await client.merge_patch(
            WORKSPACE, key, {"status": {"conditions": [failure]}}, subresource="status", manager="upstream"
        )
        await until(client, key, lambda d: dig(d, "status", "phase") == "Failed")
        before = await client.get(WORKSPACE, key)
        change = {"spec": {"model": {"id": "google/other-gguf/other.gguf"}}}
        await client.merge_patch(MODEL_DEPLOYMENT, key, change, manager="user")
        await until(client, key, lambda d: dig(d, "status", "phase") == "Deploying")
        async with running_simulator(kubeconfig, kaito, level="api"):
            await until(client, key, lambda d: dig(d, "status", "phase") == "Running")
        assert uid_of(await client.get(WORKSPACE, key)) != uid_of(before)
        told = [
            event
            for event in await client.list_all(EVENT, namespace=key.namespace)
            if event["reason"] == "ResourceRecreated"
        ]
        assert len(told) == 1
        assert dig(told[0], "series") is None


async def test_what_holds_an_old_object_back_is_named_once_it_takes_long(
    installed: None, client: Client, kubeconfig: Path, kaito: ProviderHost, manifest: Make, create: Create
) -> None:
    ahead = timedelta()
    async with (
        running_core(kubeconfig),
        running_provider(kubeconfig, kaito, clock=lambda: datetime.now(UTC) + ahead),
        running_simulator(kubeconfig, kaito, level="api"),
    ):
        key = await create(manifest())
        await until(client, key, running_at(1))
        await client.merge_patch(WORKSPACE, key, HELD, manager="somebody")
        await edit(client, key, OTHER_MODEL)
        waiting = await until(client, key, says("Waiting until the old Workspace 'gemma' is gone"))
        assert waiting["status"]["message"].endswith("is gone")
        ahead = timedelta(seconds=30)
        await edit(client, key, {"metadata": {"annotations": {"airunway.ai/look": "again"}}})
        await until(client, key, says("is held by its finalizers: example.org/hold"))
        await client.merge_patch(WORKSPACE, key, FREE, manager="somebody")
        await until(client, key, running_at(2))
        await client.merge_patch(WORKSPACE, key, HELD, manager="somebody")
        await client.delete(MODEL_DEPLOYMENT, key)
        await until(client, key, says("is held by its finalizers: example.org/hold"))
        await client.merge_patch(WORKSPACE, key, FREE, manager="somebody")
        await gone(client, MODEL_DEPLOYMENT, key)


async def test_a_quota_that_is_full_of_the_old_object_does_not_keep_it(
    installed: None, client: Client, kubeconfig: Path, kaito: ProviderHost, manifest: Make, create: Create
) -> None:
    """The new object is tried under another name while the old one still counts."""
    async with (
        running_core(kubeconfig),
        running_provider(kubeconfig, kaito),
        running_simulator(kubeconfig, kaito, level="api"),
    ):
        key = await create(manifest())
        await until(client, key, running_at(1))
        quota, full = key._replace(name="one-workspace"), {"count/workspaces.kaito.sh": "1"}
        metadata = {"name": quota.name, "namespace": quota.namespace}
        body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": full}}
        await client.create(RESOURCE_QUOTA, body)
        counted = {"status": {"hard": full, "used": full}}  # no controller counts at this level
        await client.merge_patch(RESOURCE_QUOTA, quota, counted, manager="tests", subresource="status")
        await edit(client, key, OTHER_MODEL)
        await gone(client, WORKSPACE, key)
        await client.delete(RESOURCE_QUOTA, quota)
        await until(client, key, running_at(2))


async def test_a_foreign_object_that_comes_at_the_last_moment_is_not_taken_over(
    installed: None, client: Client, kubeconfig: Path, kaito: ProviderHost, manifest: Make, namespace: str
) -> None:
    """It is made while our own creation is already on its way: nobody can have seen it before."""
    key = ObjectKey(namespace, "gemma")
    async with FaultProxy(kubeconfig) as proxy, running_core(kubeconfig), running_provider(proxy.kubeconfig, kaito):
        proxy.inject(Fault("slow", verb="apply", resource="workspaces", seconds=1.0))
        await client.create(MODEL_DEPLOYMENT, manifest())
        while proxy.pending:
            await asyncio.sleep(0.01)
        foreign = {
            "apiVersion": "kaito.sh/v1beta1",
            "kind": "Workspace",
            "metadata": {"name": "gemma", "namespace": namespace},
            "resource": {"labelSelector": {"matchLabels": {"a": "b"}}},
            "inference": {"preset": {"name": "phi-4"}},
        }
        before = await client.create(WORKSPACE, foreign, manager="somebody")
        conflict = await until(client, key, lambda d: dig(d, "status", "reason") == "ResourceConflict")
        assert "is not managed by this ModelDeployment" in conflict["status"]["message"]
        after = await client.get(WORKSPACE, key)
        assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def test_a_fight_over_a_field_is_named_slows_down_and_ends_when_the_other_side_gives_up(
    installed: None, client: Client, kubeconfig: Path, kaito: ProviderHost, manifest: Make, create: Create
) -> None:
    """The provider's clock stands still unless it is moved: during the pause between reverts nothing is reverted."""
    start, ahead = datetime.now(UTC), timedelta()
    theirs = {"metadata": {"labels": {names.MODEL_DEPLOYMENT: "another"}}}

    async def label() -> str:
        return str((await client.get(WORKSPACE, key))["metadata"]["labels"][names.MODEL_DEPLOYMENT])

    async with (
        running_core(kubeconfig),
        running_provider(kubeconfig, kaito, clock=lambda: start + ahead),
        running_simulator(kubeconfig, kaito, level="api"),
    ):
        key = await create(manifest())
        await until(client, key, running_at(1))
        async with asyncio.timeout(PATIENCE):
            while condition_of(await client.get(MODEL_DEPLOYMENT, key), "DriftFight") is None:
                await client.merge_patch(WORKSPACE, key, theirs, manager="other-controller")
                await asyncio.sleep(0.1)
        fight = condition_of(await client.get(MODEL_DEPLOYMENT, key), "DriftFight") or {}
        assert (fight["status"], fight["reason"]) == ("True", "RevertedTooOften")
        assert "Workspace 'gemma'" in fight["message"]
        assert "reverts now wait 30 s" in fight["message"]
        await client.merge_patch(WORKSPACE, key, theirs, manager="other-controller")
        for number in range(3):
            await edit(client, key, {"metadata": {"annotations": {"airunway.ai/look": str(number)}}})
            await until(client, await create(manifest(f"beside-{number}")), running_at(1))
            assert await label() == "another"
        ahead = timedelta(seconds=31)
        await edit(client, key, {"metadata": {"annotations": {"airunway.ai/look": "after the pause"}}})
        async with asyncio.timeout(PATIENCE):
            while await label() != "gemma":
                await asyncio.sleep(0.02)
        ahead = timedelta(minutes=5)
        await edit(client, key, {"metadata": {"annotations": {"airunway.ai/look": "again"}}})
        await until(client, key, lambda d: condition_of(d, "DriftFight") is None)
        live = await client.get(WORKSPACE, key)
        assert live["metadata"]["labels"][names.MODEL_DEPLOYMENT] == "gemma"


async def test_a_deployment_that_cannot_be_honoured_any_more_can_be_suspended(
    operator: None, client: Client, manifest: Make, create: Create
) -> None:
    key = await create(manifest())
    await until(client, key, running_at(1))
    terms = [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]
    nodes = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    await edit(client, key, {"spec": {"affinity": {"nodeAffinity": nodes}}})
    await until(client, key, reason_is("ProviderCompatible", "IncompatibleConfiguration"))
    await edit(client, key, {"spec": {"suspend": True}})
    await gone(client, WORKSPACE, key)
    suspended = await until(client, key, lambda d: dig(d, "status", "message") == "Suspended")
    assert suspended["status"]["phase"] == "Pending"
    assert (condition_of(suspended, "ProviderCompatible") or {})["status"] == "False"


# ------------------------------------------------------------------------------------------------------- rehearsals


async def test_a_dry_run_tells_what_would_be_made_anew_updated_or_removed_and_touches_nothing(
    operator: None, client: Client, manifest: Make, create: Create
) -> None:
    key = await create(manifest())
    await until(client, key, running_at(1))
    before = await client.get(WORKSPACE, key)
    await edit(client, key, DRY_RUN)
    await until(client, key, plan_says("Would leave Workspace 'gemma' as it is"))
    await edit(client, key, {"metadata": {"labels": {"airunway.ai/team": "a"}}})
    await until(client, key, plan_says("Would update Workspace 'gemma'"))
    await edit(client, key, OTHER_MODEL)
    told = await until(client, key, plan_says("Would delete Workspace 'gemma' and make it again"))
    assert "spec.model.id" in (condition_of(told, "DryRun") or {})["message"]
    assert (condition_of(told, "DryRun") or {})["reason"] == "Planned"
    await edit(client, key, {"spec": {"suspend": True}})
    await until(client, key, plan_says("Would delete Workspace 'gemma' (see ConfigMap gemma-airunway-plan)"))
    plan = await client.get(CONFIG_MAP, ObjectKey(key.namespace, "gemma-airunway-plan"))
    assert plan["data"]["actions.txt"] == "delete Workspace 'gemma'"
    after = await client.get(WORKSPACE, key)
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def test_a_dry_run_sees_that_the_name_is_taken(
    operator: None, client: Client, manifest: Make, create: Create, namespace: str
) -> None:
    foreign = {
        "apiVersion": "kaito.sh/v1beta1",
        "kind": "Workspace",
        "metadata": {"name": "gemma", "namespace": namespace},
        "resource": {"labelSelector": {"matchLabels": {"a": "b"}}},
        "inference": {"preset": {"name": "phi-4"}},
    }
    await client.create(WORKSPACE, foreign, manager="somebody")
    key = await create(manifest(annotations={names.DRY_RUN: "true"}))
    told = await until(client, key, plan_says("is not managed by this ModelDeployment"))
    assert (condition_of(told, "DryRun") or {})["reason"] == "WouldBeRefused"
