"""Cases about deletion, on a real API server: one rule for every cause, and nothing of others is touched."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.clocks import TimeOfDay
from tests.support.faultproxy import Fault, FaultProxy

from airunway.api import names
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import NAMESPACE, Client, Kind, NotFound
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, condition_of, is_deleting, uid_of
from airunway_testing.eventually import PATIENCE
from airunway_testing.expectations import phase_is
from airunway_testing.operator import remove_definition, running_core, running_provider, running_simulator, until

pytestmark = pytest.mark.apiserver

WORKSPACE = Kind(group="kaito.sh", version="v1beta1", kind="Workspace", plural="workspaces", namespaced=True)
HELD = {"metadata": {"finalizers": ["example.org/hold"]}}
FREE: Resource = {"metadata": {"finalizers": []}}

Make = Callable[..., Resource]
Create = Callable[[Resource], Awaitable[ObjectKey]]
Gone = Callable[[Kind, ObjectKey], Awaitable[None]]
Seen = Callable[[Kind, ObjectKey, Callable[[Resource], bool]], Awaitable[Resource]]
EventOf = Callable[[ObjectKey, str], Awaitable[Resource]]
Edit = Callable[[ObjectKey, Resource], Awaitable[Resource]]


CAUSES = {
    "refused": Fault("status", verb="delete", resource="workspaces", status=403, reason="Forbidden", count=None),
    "unreachable": Fault("reset", verb="delete", resource="workspaces", count=None),
    "failing": Fault("status", verb="delete", resource="workspaces", status=503, count=None),
    "stuck on its own finalizer": None,
}


@pytest.mark.parametrize("cause", CAUSES)
async def test_case_24_whatever_keeps_the_upstream_object_five_minutes_are_the_limit_and_the_orphan_is_named(
    cause: str,
    installed: None,
    client: Client,
    kubeconfig: Path,
    kaito: ProviderHost,
    manifest: Make,
    create: Create,
    edit: Edit,
    gone: Gone,
    event_of: EventOf,
    clock: TimeOfDay,
) -> None:
    async with (
        FaultProxy(kubeconfig) as proxy,
        running_core(kubeconfig),
        running_provider(proxy.kubeconfig, kaito, clock=clock),
        running_simulator(kubeconfig, kaito, level="api"),
    ):
        key = await create(manifest())
        await until(client, key, phase_is("Running"))
        await client.merge_patch(WORKSPACE, key, HELD, manager="somebody")
        if (fault := CAUSES[cause]) is not None:
            proxy.inject(fault)
        await client.delete(MODEL_DEPLOYMENT, key)
        waiting = await until(client, key, phase_is("Terminating"))
        assert waiting["metadata"]["finalizers"] == [names.provider_finalizer("kaito")]
        assert waiting["status"]["message"].startswith("Waiting until the upstream resources are gone")
        clock.ahead = timedelta(minutes=4)
        before = proxy.count("delete", "workspaces")
        await edit(key, {"metadata": {"annotations": {"airunway.ai/look": "again"}}})
        if fault is not None:  # then a pass with that clock can be seen: it tries again
            async with asyncio.timeout(PATIENCE):
                while proxy.count("delete", "workspaces") <= before:
                    await asyncio.sleep(0.02)
        waiting = await client.get(MODEL_DEPLOYMENT, key)
        assert waiting["metadata"]["finalizers"] == [names.provider_finalizer("kaito")]
        clock.ahead = timedelta(minutes=6)
        with suppress(NotFound):  # a pass that was under way may have seen the new time already
            await edit(key, {"metadata": {"annotations": {"airunway.ai/look": "once more"}}})
        await gone(MODEL_DEPLOYMENT, key)
        event = await event_of(key, "FinalizerTimeout")
    assert event["type"] == "Warning"
    assert f"Workspace {key}" in event["note"]
    assert "may be orphaned" in event["note"]
    await client.get(WORKSPACE, key)
    await client.merge_patch(WORKSPACE, key, FREE, manager="somebody")


@pytest.mark.parametrize("registered", [True, False], ids=["silent", "uninstalled"])
async def test_case_24_a_deployment_whose_provider_is_gone_is_let_go_by_the_core(
    registered: bool,
    installed: None,
    client: Client,
    kubeconfig: Path,
    kaito: ProviderHost,
    manifest: Make,
    create: Create,
    edit: Edit,
    gone: Gone,
    event_of: EventOf,
    clock: TimeOfDay,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a timer of its own: nobody touches a namespace that is being deleted. (Five minutes: test_release.py.)"""
    monkeypatch.setattr(names, "FINALIZER_TIMEOUT", timedelta(seconds=5))
    async with running_simulator(kubeconfig, kaito, level="api"), running_core(kubeconfig, clock=clock):
        async with running_provider(kubeconfig, kaito):
            key = await create(manifest())
            await edit(key, {"metadata": {"finalizers": [names.provider_finalizer("kaito"), "example.org/mine"]}})
            await until(client, key, phase_is("Running"))
        if not registered:
            await client.delete(INFERENCE_PROVIDER_CONFIG, ObjectKey("", "kaito"))
        clock.ahead = timedelta(minutes=6)  # it has not been heard of for so long
        await client.delete(MODEL_DEPLOYMENT, key)
        left = await until(client, key, lambda d: d["metadata"]["finalizers"] == ["example.org/mine"])
        event = await event_of(key, "FinalizerTimeout")
        await edit(key, {"metadata": {"finalizers": []}})
        await gone(MODEL_DEPLOYMENT, key)
    assert event["reportingController"] == f"{names.GROUP}/{names.CORE_MANAGER}"
    assert f"Workspace {key} may be orphaned (provider 'kaito' " in event["note"]
    with suppress(NotFound):  # the garbage collector may have been quick
        workspace = await client.get(WORKSPACE, key)
        assert [owner["uid"] for owner in workspace["metadata"]["ownerReferences"]] == [uid_of(left)]
        await client.delete(WORKSPACE, key)


async def test_case_24_an_upstream_object_that_went_before_is_not_waited_for(
    installed: None,
    client: Client,
    kubeconfig: Path,
    kaito: ProviderHost,
    manifest: Make,
    create: Create,
    gone: Gone,
) -> None:
    async with running_simulator(kubeconfig, kaito, level="api"):
        async with running_core(kubeconfig), running_provider(kubeconfig, kaito):
            key = await create(manifest())
            await until(client, key, phase_is("Running"))
        await client.delete(WORKSPACE, key)
        await gone(WORKSPACE, key)
        await client.delete(MODEL_DEPLOYMENT, key)
        async with running_core(kubeconfig), running_provider(kubeconfig, kaito):
            await gone(MODEL_DEPLOYMENT, key)


async def test_case_24_without_the_upstreams_crd_nothing_is_waited_for(
    operator: None,
    client: Client,
    kubeconfig: Path,
    tiny: ProviderHost,
    thing_crd: Resource,
    manifest: Make,
    create: Create,
    gone: Gone,
) -> None:
    async with running_provider(kubeconfig, tiny):
        key = await create(manifest(provider={"name": "tiny"}))
        await until(client, key, phase_is("Running"))
        await remove_definition(client, thing_crd["metadata"]["name"])
        await client.delete(MODEL_DEPLOYMENT, key)
        await gone(MODEL_DEPLOYMENT, key)


async def test_case_26_a_deployment_goes_although_its_provider_config_is_gone(
    operator: None, client: Client, manifest: Make, create: Create, gone: Gone
) -> None:
    key = await create(manifest())
    await until(client, key, phase_is("Running"))
    await client.delete(INFERENCE_PROVIDER_CONFIG, ObjectKey("", "kaito"))
    await client.delete(MODEL_DEPLOYMENT, key)
    await gone(MODEL_DEPLOYMENT, key)
    with pytest.raises(NotFound):
        await client.get(WORKSPACE, key)


async def test_case_27_an_object_of_somebody_else_survives_and_the_deployment_goes(
    operator: None, client: Client, manifest: Make, create: Create, gone: Gone, namespace: str
) -> None:
    foreign = {
        "apiVersion": "kaito.sh/v1beta1",
        "kind": "Workspace",
        "metadata": {"name": "gemma", "namespace": namespace},
        "resource": {"labelSelector": {"matchLabels": {"a": "b"}}},
        "inference": {"preset": {"name": "phi-4"}},
    }
    before = await client.create(WORKSPACE, foreign, manager="somebody")
    key = await create(manifest())
    await until(client, key, lambda d: (condition_of(d, "ResourceCreated") or {}).get("reason") == "ResourceConflict")
    await client.delete(MODEL_DEPLOYMENT, key)
    await gone(MODEL_DEPLOYMENT, key)
    after = await client.get(WORKSPACE, key)
    assert uid_of(after) == uid_of(before)
    assert not is_deleting(after)


async def test_case_28_an_object_owned_by_an_older_uid_is_a_conflict_and_tried_again_when_it_goes(
    operator: None, client: Client, manifest: Make, create: Create, namespace: str
) -> None:
    """Deleted and applied again at once, while the old upstream object still hangs on somebody's finalizer."""
    labels = {names.MANAGED_BY: names.MANAGED_BY_VALUE, names.MODEL_DEPLOYMENT: "gemma"}
    owner = {
        "apiVersion": MODEL_DEPLOYMENT.api_version,
        "kind": "ModelDeployment",
        "name": "gemma",
        "uid": "00000000-0000-4000-8000-000000000000",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    old = await client.create(
        WORKSPACE,
        {
            "apiVersion": "kaito.sh/v1beta1",
            "kind": "Workspace",
            "metadata": {
                "name": "gemma",
                "namespace": namespace,
                "labels": labels,
                "ownerReferences": [owner],
                **HELD["metadata"],
            },
            "resource": {"labelSelector": {"matchLabels": {"a": "b"}}},
            "inference": {"preset": {"name": "phi-4"}},
        },
        manager="somebody",
    )
    key = await create(manifest())
    conflict = await until(
        client, key, lambda d: (condition_of(d, "ResourceCreated") or {}).get("reason") == "ResourceConflict"
    )
    live = await client.get(WORKSPACE, key)
    assert uid_of(live) == uid_of(old)
    assert live["inference"]["preset"]["name"] == "phi-4"
    await client.delete(WORKSPACE, key)  # the garbage collector may have done so already
    await client.merge_patch(WORKSPACE, key, FREE, manager="somebody")
    await until(client, key, phase_is("Running"))
    fresh = await client.get(WORKSPACE, key)
    assert uid_of(fresh) != uid_of(old)
    assert [reference["uid"] for reference in fresh["metadata"]["ownerReferences"]] == [uid_of(conflict)]


async def test_aim_68_a_namespace_that_is_deleted_goes_with_all_its_deployments(
    operator: None, client: Client, manifest: Make, gone: Gone, namespace: str
) -> None:
    own = f"{namespace}-own"
    await client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": own}})
    keys = [ObjectKey(own, name) for name in ("one", "two", "three")]
    for key in keys:
        deployment = manifest(key.name)
        deployment["metadata"]["namespace"] = own
        await client.create(MODEL_DEPLOYMENT, deployment)
    for key in keys:
        await until(client, key, phase_is("Running"))
    await client.delete(NAMESPACE, ObjectKey("", own))
    await gone(NAMESPACE, ObjectKey("", own))
