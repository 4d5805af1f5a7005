"""Cases about overrides and about trouble, on a real API server: conflicts, refusals, an upstream that goes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.faultproxy import Fault, FaultProxy

from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import Client, Invalid, Kind, NotFound, Reflector
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, condition_of, dig, is_true
from airunway.runtime.application import ProviderSettings
from airunway.runtime.crd_versions import schema_hash
from airunway_testing.expectations import phase_is, reason_is, running_at
from airunway_testing.operator import (
    install_definitions,
    remove_definition,
    running_core,
    running_provider,
    running_simulator,
    until,
)

pytestmark = pytest.mark.apiserver

WORKSPACE = Kind(group="kaito.sh", version="v1beta1", kind="Workspace", plural="workspaces", namespaced=True)

Make = Callable[..., Resource]
Create = Callable[[Resource], Awaitable[ObjectKey]]
Gone = Callable[[Kind, ObjectKey], Awaitable[None]]
Seen = Callable[[Kind, ObjectKey, Callable[[Resource], bool]], Awaitable[Resource]]
EventOf = Callable[[ObjectKey, str], Awaitable[Resource]]
Edit = Callable[[ObjectKey, Resource], Awaitable[Resource]]


# ------------------------------------------------------------------------------------------------------- overrides


async def test_case_18_40_and_41_overrides_without_a_name_reach_the_upstream_and_unknown_keys_are_warnings(
    operator: None, client: Client, manifest: Make, create: Create, event_of: EventOf
) -> None:
    template = {"spec": {"terminationGracePeriodSeconds": 31, "terminationGracePeriodSecond": 5}}
    overrides = {"inference": {"template": template}, "replicas": 3}
    key = await create(manifest(provider={"overrides": overrides}))
    running = await until(client, key, phase_is("Running"))
    assert running["status"]["provider"]["name"] == "kaito"
    live = await client.get(WORKSPACE, key)
    assert live["inference"]["template"]["spec"]["terminationGracePeriodSeconds"] == 31
    assert "PeriodSecond'" not in str(live)
    assert "replicas" not in str(live["resource"])
    warnings = {text.split(":")[0] for text in running["status"]["warnings"]}
    root = "spec.provider.overrides"
    assert warnings >= {f"{root}.replicas", f"{root}.inference.template.spec.terminationGracePeriodSecond"}
    assert "did you mean 'terminationGracePeriodSeconds'?" in str(running["status"]["warnings"])
    await event_of(key, "UnknownOverride")


async def test_case_40_an_override_of_the_wrong_type_stops_the_deployment_and_names_the_key(
    operator: None, client: Client, manifest: Make, create: Create, edit: Edit
) -> None:
    overrides = {"inference": {"template": {"spec": {"schedulerName": 7}}}}
    key = await create(manifest(provider={"name": "kaito", "overrides": overrides}))
    refused = await until(client, key, reason_is("ProviderCompatible", "InvalidOverride"))
    assert refused["status"]["phase"] == "Pending"
    assert "spec.provider.overrides.inference.template.spec.schedulerName" in refused["status"]["message"]
    with pytest.raises(NotFound):
        await client.get(WORKSPACE, key)
    await edit(key, {"spec": {"provider": {"overrides": None}}})
    await until(client, key, running_at(2))


async def test_case_42_a_security_key_inside_a_list_of_overrides_creates_nothing_without_any_webhook(
    operator: None, client: Client, manifest: Make, create: Create
) -> None:
    hidden = [{"spec": [{"securityContext": {"privileged": True}}]}]
    key = await create(manifest(provider={"name": "kaito", "overrides": {"inference": {"template": hidden}}}))
    refused = await until(client, key, reason_is("Validated", "ValidationFailed"))
    assert "spec.provider.overrides.inference.template[0].spec[0].securityContext" in refused["status"]["message"]
    with pytest.raises(NotFound):
        await client.get(WORKSPACE, key)


# ----------------------------------------------------------------------------------------------- drift and trouble


async def test_case_20_a_conflict_on_the_status_write_leaves_one_object_and_the_right_status(
    installed: None, client: Client, kubeconfig: Path, kaito: ProviderHost, manifest: Make, create: Create
) -> None:
    async with (
        FaultProxy(kubeconfig) as proxy,
        running_core(kubeconfig),
        running_provider(proxy.kubeconfig, kaito),
        running_simulator(kubeconfig, kaito, level="api"),
    ):
        proxy.inject(
            Fault(
                "status",
                status=409,
                reason="Conflict",
                count=3,
                verb="apply",
                where=lambda r: r.subresource == "status",
            )
        )
        key = await create(manifest())
        await until(client, key, phase_is("Running"))
        assert sum(1 for request in proxy.requests if request.fault and request.subresource == "status") == 3
        created = [r for r in proxy.requests if r.resource == "workspaces" and r.verb == "apply" and r.code < 300]
        assert len([r for r in created if "dryRun" not in r.query]) == 1
        assert len(await client.list_all(WORKSPACE, namespace=key.namespace)) == 1


@pytest.mark.parametrize(
    "fault",
    [
        Fault("status", status=500, verb="apply", resource="workspaces", count=3),
        Fault("status", status=429, retry_after=0, verb="apply", resource="workspaces", count=3),
        Fault("reset", verb="apply", resource="workspaces", count=3),
        Fault("lose-answer", verb="apply", resource="workspaces", count=1),
    ],
    ids=["500", "429", "reset", "answer lost"],
)
async def test_case_47_a_passing_error_while_creating_is_tried_again_and_the_phase_is_kept(
    fault: Fault,
    installed: None,
    client: Client,
    kubeconfig: Path,
    kaito: ProviderHost,
    manifest: Make,
    create: Create,
    namespace: str,
) -> None:
    phases: set[str] = set()
    watched = Reflector(client, MODEL_DEPLOYMENT, namespace=namespace)
    watched.add_handler(lambda _key, _old, new: phases.add(str(dig(new, "status", "phase"))))
    watching = asyncio.create_task(watched.run())
    async with (
        FaultProxy(kubeconfig) as proxy,
        running_core(kubeconfig),
        running_provider(proxy.kubeconfig, kaito),
        running_simulator(kubeconfig, kaito, level="api"),
    ):
        await watched.synced.wait()
        proxy.inject(fault)
        key = await create(manifest())
        running = await until(client, key, phase_is("Running"))
        assert proxy.pending == []
    watching.cancel()
    assert phases <= {"None", "Pending", "Deploying", "Running"}
    assert is_true(running, "ResourceCreated")
    assert len(await client.list_all(WORKSPACE, namespace=namespace)) == 1


async def test_aim_46_a_permission_that_is_missing_is_said_and_heals_without_touching_the_deployment(
    installed: None, client: Client, kubeconfig: Path, kaito: ProviderHost, manifest: Make, create: Create
) -> None:
    async with (
        FaultProxy(kubeconfig) as proxy,
        running_core(kubeconfig),
        running_provider(proxy.kubeconfig, kaito),
        running_simulator(kubeconfig, kaito, level="api"),
    ):
        said = 'workspaces.kaito.sh "gemma" is forbidden: User "kaito" cannot patch resource "workspaces"'
        fault = Fault("status", verb="apply", resource="workspaces", status=403, reason="Forbidden", message=said)
        proxy.inject(replace(fault, count=None))
        key = await create(manifest())
        refused = await until(
            client, key, lambda d: (condition_of(d, "AuthValid") or {}).get("status") == "False", what="AuthValid"
        )
        assert (condition_of(refused, "ResourceCreated") or {})["reason"] == "Forbidden"
        assert not is_true(refused, "Ready")
        assert refused["status"]["phase"] == "Degraded"
        proxy.clear()
        running = await until(client, key, lambda d: phase_is("Running")(d) and is_true(d, "AuthValid"))
    assert running["metadata"]["generation"] == 1
    assert running["status"]["message"] == "All replicas are ready: Workspace gemma"  # 48


async def test_case_46_an_image_conflict_is_refused_at_admission_and_leaves_nothing(
    operator: None, client: Client, manifest: Make, create: Create, edit: Edit
) -> None:
    key = await create(manifest())
    before = await until(client, key, phase_is("Running"))
    with pytest.raises(Invalid, match=r"image and engine\.image name different images"):
        await edit(key, {"spec": {"engine": {"image": "another"}}})
    after = await client.get(MODEL_DEPLOYMENT, key)
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def test_case_44_an_upstream_removed_while_running_is_said_and_its_return_heals(
    operator: None,
    client: Client,
    kubeconfig: Path,
    tiny: ProviderHost,
    thing: Kind,
    thing_crd: Resource,
    manifest: Make,
    create: Create,
    gone: Gone,
) -> None:
    name = str(thing_crd["metadata"]["name"])
    async with running_provider(kubeconfig, tiny):
        key = await create(manifest(provider={"name": "tiny"}))
        await until(client, key, phase_is("Running"))
        await remove_definition(client, name)
        lost = await until(client, key, lambda d: dig(d, "status", "reason") == "UpstreamNotInstalled")
        assert lost["status"]["message"] == "Provider 'tiny' CRD not installed in cluster"
        assert not is_true(lost, "Ready")
        await install_definitions(client, [thing_crd])
        await until(client, key, phase_is("Running"))
        await client.get(thing, key)
        await client.delete(MODEL_DEPLOYMENT, key)
        await gone(MODEL_DEPLOYMENT, key)


async def test_case_44_an_unknown_schema_under_the_policy_fail_names_the_hash(
    operator: None,
    client: Client,
    kubeconfig: Path,
    tiny: ProviderHost,
    thing: Kind,
    thing_crd: Resource,
    manifest: Make,
    create: Create,
    gone: Gone,
) -> None:
    newer = {**thing_crd, "spec": {**thing_crd["spec"], "versions": [dict(thing_crd["spec"]["versions"][0])]}}
    schema = newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    grown = {**schema, "properties": {**schema["properties"], "fromTheFuture": {"type": "string"}}}
    newer["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": grown}
    await install_definitions(client, [newer])
    async with running_provider(kubeconfig, tiny, settings=ProviderSettings(verify_unknown_schemas=False)):
        key = await create(manifest(provider={"name": "tiny"}))
        refused = await until(client, key, reason_is("ProviderCompatible", "UnsupportedSchema"))
        assert schema_hash(grown)[:12] in refused["status"]["message"]
        assert refused["status"]["phase"] == "Failed"
        with pytest.raises(NotFound):
            await client.get(thing, key)
        config = await client.get(INFERENCE_PROVIDER_CONFIG, ObjectKey("", "tiny"))
        assert not is_true(config, "SchemaSupported")
        await install_definitions(client, [thing_crd])
        await until(client, key, phase_is("Running"))
        await client.delete(MODEL_DEPLOYMENT, key)
        await gone(MODEL_DEPLOYMENT, key)
