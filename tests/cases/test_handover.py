"""Cases about moving a deployment from one provider to another: nothing is made twice, nothing is left behind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.support.faultproxy import Fault, FaultProxy

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, Kind, NotFound
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, condition_of, dig, is_deleting, uid_of
from airunway_testing.expectations import phase_is, reason_is, running_at
from airunway_testing.operator import Limits, running_core, running_provider, running_simulator, until

pytestmark = pytest.mark.apiserver

WORKSPACE = Kind(group="kaito.sh", version="v1beta1", kind="Workspace", plural="workspaces", namespaced=True)
TO_TINY: Resource = {"spec": {"provider": {"name": "tiny"}}}

Make = Callable[..., Resource]
Create = Callable[[Resource], Awaitable[ObjectKey]]
Gone = Callable[[Kind, ObjectKey], Awaitable[None]]
Seen = Callable[[Kind, ObjectKey, Callable[[Resource], bool]], Awaitable[Resource]]
Edit = Callable[[ObjectKey, Resource], Awaitable[Resource]]


async def test_case_17_naming_another_provider_hands_over_and_naming_the_same_changes_nothing(
    operator: None,
    client: Client,
    kubeconfig: Path,
    tiny: ProviderHost,
    thing: Kind,
    manifest: Make,
    create: Create,
    edit: Edit,
    seen: Seen,
    gone: Gone,
) -> None:
    async with running_provider(kubeconfig, tiny):
        key = await create(manifest())
        await until(client, key, phase_is("Running"))
        workspace = await client.get(WORKSPACE, key)
        await edit(key, {"spec": {"provider": {"name": "kaito"}}})
        same = await until(client, key, running_at(2))
        assert same["status"]["provider"]["name"] == "kaito"
        assert uid_of(await client.get(WORKSPACE, key)) == uid_of(workspace)
        # The old provider's object is slow to go: nothing of the new one is made meanwhile.
        hold = {"metadata": {"finalizers": ["example.org/hold"]}}
        await client.merge_patch(WORKSPACE, key, hold, manager="somebody")
        await edit(key, {"spec": {"provider": {"name": "tiny"}}})
        await seen(WORKSPACE, key, is_deleting)
        between = await client.get(MODEL_DEPLOYMENT, key)
        assert between["metadata"]["finalizers"] == [names.provider_finalizer("kaito")]
        with pytest.raises(NotFound):
            await client.get(thing, key)
        await client.merge_patch(WORKSPACE, key, {"metadata": {"finalizers": []}}, manager="somebody")
        moved = await until(client, key, running_at(3))
        assert moved["metadata"]["finalizers"] == [names.provider_finalizer("tiny")]
        assert (moved["status"]["provider"]["name"], moved["status"]["provider"]["resourceKind"]) == ("tiny", "Thing")
        left = [
            entry["fieldsV1"]["f:status"]
            for entry in moved["metadata"]["managedFields"]
            if entry["manager"] == names.provider_manager("kaito") and entry.get("subresource") == "status"
        ]
        assert left == [{}]  # the old one says nothing any more
        await client.get(thing, key)
        with pytest.raises(NotFound):
            await client.get(WORKSPACE, key)
        await client.delete(MODEL_DEPLOYMENT, key)
        await gone(MODEL_DEPLOYMENT, key)


async def test_case_17_a_provider_that_does_not_run_is_waited_for_and_that_is_said(
    installed: None,
    client: Client,
    kubeconfig: Path,
    kaito: ProviderHost,
    tiny: ProviderHost,
    thing: Kind,
    manifest: Make,
    create: Create,
    edit: Edit,
    gone: Gone,
) -> None:
    async with (
        running_core(kubeconfig),
        running_provider(kubeconfig, tiny),
        running_simulator(kubeconfig, kaito, level="api"),
    ):
        async with running_provider(kubeconfig, kaito):
            key = await create(manifest())
            await until(client, key, phase_is("Running"))
        routed = {"status": {"gateway": {"url": "http://192.0.2.1/ml/llama"}}}
        await client.merge_patch(MODEL_DEPLOYMENT, key, routed, subresource="status")
        workspace = await client.get(WORKSPACE, key)
        await edit(key, TO_TINY)
        waiting = await until(client, key, lambda d: dig(d, "status", "reason") == "WaitingForProvider")
        assert waiting["status"]["message"].startswith("Waiting until provider 'kaito' has removed what it made")
        assert f"the finalizer {names.provider_finalizer('kaito')}" in waiting["status"]["message"]
        assert waiting["status"]["message"].endswith("(docs/side-by-side.md)")
        assert uid_of(await client.get(WORKSPACE, key)) == uid_of(workspace)
        with pytest.raises(NotFound):
            await client.get(thing, key)
        async with running_provider(kubeconfig, kaito):
            moved = await until(client, key, running_at(2))
        assert moved["metadata"]["finalizers"] == [names.provider_finalizer("tiny")]
        with pytest.raises(NotFound):
            await client.get(WORKSPACE, key)
        await client.delete(MODEL_DEPLOYMENT, key)
        await gone(MODEL_DEPLOYMENT, key)


async def test_case_17_a_dry_run_of_a_move_shows_the_new_plan_and_leaves_what_runs(
    operator: None,
    client: Client,
    kubeconfig: Path,
    tiny: ProviderHost,
    thing: Kind,
    manifest: Make,
    create: Create,
    edit: Edit,
    gone: Gone,
) -> None:
    async with running_provider(kubeconfig, tiny):
        key = await create(manifest())
        await until(client, key, phase_is("Running"))
        before = await client.get(WORKSPACE, key)
        await edit(key, {"metadata": {"annotations": {names.DRY_RUN: "true"}}, **TO_TINY})
        planned = await until(
            client,
            key,
            lambda d: "Would create Thing 'gemma'" in str((condition_of(d, "DryRun") or {}).get("message")),
        )
        assert (planned["status"]["phase"], planned["status"]["endpoint"]["service"]) == ("Running", "gemma")
        assert planned["metadata"]["finalizers"] == [names.provider_finalizer("kaito")]
        after = await client.get(WORKSPACE, key)
        assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
        with pytest.raises(NotFound):
            await client.get(thing, key)
        await edit(key, {"metadata": {"annotations": {names.DRY_RUN: None}}})
        moved = await until(client, key, running_at(2))
        assert condition_of(moved, "DryRun") is None
        assert moved["metadata"]["finalizers"] == [names.provider_finalizer("tiny")]
        await client.delete(MODEL_DEPLOYMENT, key)
        await gone(MODEL_DEPLOYMENT, key)


async def test_case_17_a_dry_run_of_a_move_to_a_provider_that_cannot_says_what_is_wrong(
    no_inference_sets: None,
    operator: None,
    client: Client,
    kubeconfig: Path,
    tiny: ProviderHost,
    manifest: Make,
    create: Create,
    edit: Edit,
    gone: Gone,
) -> None:
    """A KAITO without InferenceSets has no second replica; what runs with the other provider goes on."""
    async with running_provider(kubeconfig, tiny):
        key = await create(manifest(provider={"name": "tiny"}, scaling={"replicas": 2}))
        before = await until(client, key, phase_is("Running"))
        to_kaito = {"spec": {"provider": {"name": "kaito"}}}
        await edit(key, {"metadata": {"annotations": {names.DRY_RUN: "true"}}, **to_kaito})
        planned = await until(client, key, reason_is("DryRun", "WouldBeRefused"))
        assert "exactly one replica" in (condition_of(planned, "DryRun") or {})["message"]
        assert planned["status"]["phase"] == "Running"
        assert planned["status"]["replicas"] == before["status"]["replicas"]
        assert planned["metadata"]["finalizers"] == [names.provider_finalizer("tiny")]
        with pytest.raises(NotFound):
            await client.get(WORKSPACE, key)
        await client.delete(MODEL_DEPLOYMENT, key)
        await gone(MODEL_DEPLOYMENT, key)


async def test_case_17_what_the_old_provider_made_a_moment_ago_is_not_left_behind(
    installed: None,
    client: Client,
    kubeconfig: Path,
    kaito: ProviderHost,
    tiny: ProviderHost,
    manifest: Make,
    create: Create,
    edit: Edit,
    gone: Gone,
) -> None:
    """Its watch is silent, so that it never sees what it made; the deployment lives on, and no collector would help."""
    async with (
        FaultProxy(kubeconfig) as proxy,
        running_core(kubeconfig),
        running_provider(kubeconfig, tiny),
        running_simulator(kubeconfig, kaito, level="api"),
    ):
        proxy.inject(Fault("freeze", verb="watch", resource="workspaces", count=None))
        async with running_provider(proxy.kubeconfig, kaito, limits=Limits(silence=600.0)):
            key = await create(manifest())
            await until(client, key, lambda d: dig(d, "status", "provider", "resourceName") == "gemma")
            await client.get(WORKSPACE, key)
            await edit(key, TO_TINY)
            await until(client, key, running_at(2))
            with pytest.raises(NotFound):
                await client.get(WORKSPACE, key)
        await client.delete(MODEL_DEPLOYMENT, key)
        await gone(MODEL_DEPLOYMENT, key)
