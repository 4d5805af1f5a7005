"""What an edit of a shared config does to deployments that serve: nothing, until they change themselves."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest
from tests.platform.conftest import SPEC, WORKSPACE, Configs
from tests.support.audit import AuditReader, Request

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, annotations_of, condition_of, dig, labels_of, uid_of
from airunway.revisions.revision import is_in_effect, pending_parts
from airunway_testing.eventually import eventually
from airunway_testing.expectations import phase_is, running_at
from airunway_testing.operator import (
    Deploy,
    deployments,
    install_definitions,
    remove_leftovers,
    running_core,
    running_provider,
    running_simulator,
    until,
)
from airunway_testing.simulators import simulators_for

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]

OLD = [{"name": "A", "value": "1"}]
NEW = [{"name": "A", "value": "1"}, {"name": "B", "value": "canary-7f3a"}]


def hashes(deployment: Resource) -> tuple[str | None, str | None]:
    """The hash of the config, and of that whose settings are in effect."""
    status = deployment["status"]
    used = dig(status, "revision", "settings", "configHash") if is_in_effect(deployment) else None
    return dig(status, "effectiveRuntimeConfig", "hash"), used


def agrees(deployment: Resource) -> bool:
    followed = hashes(deployment)[0] is not None and is_in_effect(deployment) and not pending_parts(deployment)
    return followed and dig(deployment, "status", "phase") == "Running"


def waits(deployment: Resource) -> bool:
    return pending_parts(deployment) == {"settings"}


async def env_of(client: Client, key: ObjectKey) -> list[str]:
    workspace = await client.find(WORKSPACE, key)  # a template is deleted and made anew
    if workspace is None:
        return []
    env = workspace["inference"]["template"]["spec"]["containers"][0].get("env", [])
    return [entry["name"] for entry in env if entry["name"] not in ("HOME", "USER")]  # these two are always there


def upstream(requests: list[Request]) -> list[Request]:
    """Our writes to objects of the upstream."""
    return [r for r in requests if r.writes and r.agent.startswith("provider") and r.resource.startswith("workspaces")]


async def test_c11_c13_c14_env_added_under_serving_deployments_restarts_none_of_them(
    deploy: Deploy, configs: Configs, client: Client, audit_log: Path
) -> None:
    await configs.write(env=OLD)
    keys = [await deploy(f"llama-{number}") for number in range(30)]
    for key in keys:
        await until(client, key, agrees, what="Running under the config")
    before = {key: uid_of(await client.get(WORKSPACE, key)) for key in keys}
    first = hashes(await client.get(MODEL_DEPLOYMENT, keys[0]))
    log = AuditReader(audit_log)
    await configs.write(env=NEW)
    for key in keys:
        found = await until(client, key, waits, what="the status to say that B waits")
        assert hashes(found)[1] == first[1] != hashes(found)[0]
        assert "canary-7f3a" not in str(found["status"])
    await asyncio.sleep(1)
    requests = log.read()
    assert upstream(requests) == []
    for key in keys:
        writes = [
            r.agent for r in requests if r.writes and r.name == key.name and r.resource.startswith("modeldeploym")
        ]
        assert writes == [names.CORE_MANAGER] or len(writes) <= 1, f"the core writes once: {writes}"
    fresh = await deploy("fresh")
    await until(client, fresh, agrees)
    assert {"A", "B"} <= set(await env_of(client, fresh))

    key = keys[0]
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"scaling": {"replicas": 1}}}, manager="hpa")
    workspace = await client.get(WORKSPACE, key)
    workspace["inference"]["template"]["spec"]["containers"][0]["env"] = [{"name": "BY_HAND", "value": "1"}]
    await client.merge_patch(WORKSPACE, key, {"inference": workspace["inference"]}, manager="by-hand")

    async def reverted() -> bool:
        found = set(await env_of(client, key))
        return "A" in found and not found & {"B", "BY_HAND"}

    await eventually(reverted)
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"image": "registry.example/team/vllm:2"}}, manager="user")

    async def taken() -> bool:
        return {"A", "B"} <= set(await env_of(client, key))

    await eventually(taken)
    found = await until(client, key, agrees)
    assert not waits(found)
    assert {other: uid_of(await client.get(WORKSPACE, other)) for other in keys[1:]} == {
        other: before[other] for other in keys[1:]
    }


async def noted_on(client: Client, key: ObjectKey) -> str | None:
    return annotations_of(await client.get(WORKSPACE, key)).get(names.REVISION)


async def test_c14_annotations_that_are_removed_or_edited_by_hand_are_put_back_and_change_no_pod(
    deploy: Deploy, configs: Configs, client: Client
) -> None:
    await configs.write(env=OLD)
    key = await deploy()
    await until(client, key, agrees)
    await configs.write(env=NEW)
    await until(client, key, waits)
    before, noted = await client.get(WORKSPACE, key), await noted_on(client, key)
    assert noted

    async def restored() -> bool:
        return await noted_on(client, key) == noted

    for text in (None, "0000000000000000"):
        edit = {"metadata": {"annotations": {names.REVISION: text, names.WRITTEN_FOR: text}}}
        await client.merge_patch(WORKSPACE, key, edit, manager="by-hand")
        await eventually(restored)
        after = await client.get(WORKSPACE, key)
        assert (uid_of(after), after["inference"]) == (uid_of(before), before["inference"])


async def test_a_wiped_status_writes_nothing_if_the_same_revision_comes_of_it(
    deploy: Deploy, configs: Configs, client: Client, audit_log: Path
) -> None:
    """As after the restore of a backup, which has no status."""
    await configs.write(env=OLD)
    same, edited = await deploy("same"), await deploy("edited", runtimeConfigName="edited")
    await configs.write("edited", env=OLD)
    for key in (same, edited):
        await until(client, key, agrees)
    await configs.write("edited", env=NEW)
    await until(client, edited, waits)
    log = AuditReader(audit_log)
    was = (await client.get(MODEL_DEPLOYMENT, same))["status"]["revision"]
    for key in (same, edited):
        await client.merge_patch(MODEL_DEPLOYMENT, key, {"status": None}, subresource="status", manager="restore")
    for key in (same, edited):
        await until(client, key, agrees)
    assert (await client.get(MODEL_DEPLOYMENT, same))["status"]["revision"] == was
    written = [request for request in upstream(log.read()) if request.name == same.name]
    assert written == [], "the same revision comes of it"
    assert {"A", "B"} <= set(await env_of(client, edited)), "the newest is taken where it is not known what it had"


async def test_c3_a_named_config_that_comes_later_is_taken_without_touching_the_deployment(
    deploy: Deploy, configs: Configs, client: Client
) -> None:
    key = await deploy(runtimeConfigName="gpu")
    waiting = await until(client, key, lambda d: (condition_of(d, "RuntimeConfigReady") or {}).get("status") == "False")
    await asyncio.sleep(0.5)
    waiting = await client.get(MODEL_DEPLOYMENT, key)
    assert waiting["status"]["phase"] == "Pending"
    assert await client.find(WORKSPACE, key) is None
    await configs.write("gpu", env=OLD)
    await until(client, key, agrees)
    assert "A" in await env_of(client, key)


async def test_c4_a_named_config_deleted_while_in_use_degrades_and_writes_nothing(
    deploy: Deploy, configs: Configs, client: Client, audit_log: Path
) -> None:
    await configs.write("gpu", env=OLD)
    key = await deploy(runtimeConfigName="gpu")
    in_effect = hashes(await until(client, key, agrees))[1]
    log = AuditReader(audit_log)
    await configs.delete("gpu")
    degraded = await until(client, key, phase_is("Degraded"))
    assert degraded["status"]["reason"] == "ConfigNotFound"
    assert "rootCause" not in degraded["status"]
    assert hashes(degraded)[1] == in_effect
    assert degraded["status"]["endpoint"]["service"], "it serves"
    await configs.write("gpu", env=OLD)
    healed = await until(client, key, agrees)
    assert hashes(healed)[1] == in_effect
    await asyncio.sleep(0.5)
    assert upstream(log.read()) == []


async def test_c5_the_default_config_deleted_while_in_use_leaves_the_pods_as_they_are(
    deploy: Deploy, configs: Configs, client: Client, audit_log: Path
) -> None:
    await configs.write(env=OLD)
    key = await deploy()
    await until(client, key, agrees)
    log = AuditReader(audit_log)
    await configs.delete()
    found = await until(client, key, waits)
    assert (found["status"]["phase"], hashes(found)[0]) == ("Running", None)
    await asyncio.sleep(0.5)
    assert upstream(log.read()) == []
    assert "A" in await env_of(client, key)


async def test_c9_a_namespace_config_that_appears_later_is_followed_instead_of_the_cluster_s(
    deploy: Deploy, configs: Configs, client: Client, audit_log: Path
) -> None:
    await configs.write_cluster(env=OLD)
    key = await deploy()
    await until(client, key, agrees)
    log = AuditReader(audit_log)
    await configs.write(env=OLD, storage={"defaultStorageClassName": "team"})

    def follows(found: Resource) -> bool:
        return dig(found, "status", "effectiveRuntimeConfig", "scope") == "Namespace" and agrees(found)

    found = await until(client, key, follows)
    assert not waits(found), "no pod setting differs"
    assert upstream(log.read()) == []


async def test_c12_rollout_immediately_brings_new_settings_to_what_serves(
    deploy: Deploy, configs: Configs, client: Client
) -> None:
    await configs.write(env=OLD)
    key = await deploy()
    await until(client, key, agrees)
    await configs.write(env=NEW, rollout="Immediately")
    await until(client, key, lambda found: agrees(found) and not waits(found))

    async def taken() -> bool:
        return {"A", "B"} <= set(await env_of(client, key))

    await eventually(taken)


async def test_c15_the_config_before_and_after_its_deployment_end_in_the_same_object(
    deploy: Deploy, configs: Configs, client: Client
) -> None:
    late = await deploy("llama", runtimeConfigName="late")
    await until(client, late, lambda d: condition_of(d, "RuntimeConfigReady") is not None)
    await configs.write("late", env=NEW, imagePullSecrets=[{"name": "pull"}])
    await until(client, late, agrees)
    first = await client.get(WORKSPACE, late)
    await client.delete(MODEL_DEPLOYMENT, late)

    async def away() -> bool:
        return await client.find(MODEL_DEPLOYMENT, late) is None

    await eventually(away)
    again = await deploy("llama", runtimeConfigName="late")
    await until(client, again, agrees)
    second = await client.get(WORKSPACE, again)

    def wanted(obj: Resource) -> Resource:
        annotations = {k: v for k, v in obj["metadata"]["annotations"].items() if k != names.DEPLOYMENT_UID}
        return {**obj, "metadata": {"labels": labels_of(obj), "annotations": annotations}, "status": None}

    assert wanted(first) == wanted(second)


async def test_c16_a_config_changed_while_the_core_is_down_is_not_applied_by_the_provider_alone(
    kubeconfig: Path, client: Client, kaito: ProviderHost, configs: Configs, namespace: str
) -> None:
    simulators = simulators_for((kind.group, kind.kind) for kind in kaito.manifest.upstream)
    await install_definitions(client, [crd for each in simulators for crd in each.custom_resource_definitions()])
    await remove_leftovers(client)
    await configs.write(env=OLD)
    async with (
        running_simulator(kubeconfig, kaito, level="api"),
        running_provider(kubeconfig, kaito),
        deployments(client, namespace, SPEC) as create,
    ):
        async with running_core(kubeconfig):
            key = await create()
            in_effect = hashes(await until(client, key, agrees))
        await configs.write(env=NEW)
        await asyncio.sleep(1.5)
        found = await client.get(MODEL_DEPLOYMENT, key)
        assert (found["status"]["phase"], hashes(found)) == ("Running", in_effect)
        assert "B" not in await env_of(client, key)
        async with running_core(kubeconfig):
            await until(client, key, waits)


async def test_l4_l5_a_matched_label_is_edited_and_removed_in_place(
    deploy: Deploy, configs: Configs, client: Client
) -> None:
    await configs.write(labelPropagation={"enabled": True, "match": ["team"]})
    key = await deploy()
    await until(client, key, agrees)
    uid = uid_of(await client.get(WORKSPACE, key))

    async def labelled(value: str | None) -> bool:
        return labels_of(await client.get(WORKSPACE, key)).get("team") == value

    for value in ("red", "blue", None):
        await client.merge_patch(MODEL_DEPLOYMENT, key, {"metadata": {"labels": {"team": value}}}, manager="user")
        await eventually(partial(labelled, value))
        if value == "red":
            theirs = {"metadata": {"labels": {"added": "by-hand"}}}
            await client.merge_patch(WORKSPACE, key, theirs, manager="by-hand")
            found = await until(client, key, waits)
            assert dig(found, "status", "revision", "pending", "changes") == ["labels team"]
    live = await client.get(WORKSPACE, key)
    assert (uid_of(live), labels_of(live)["added"]) == (uid, "by-hand")
    assert "team" not in (dig(live, "inference", "template", "metadata", "labels") or {}), "as recorded"


async def test_a_route_written_by_another_part_brings_the_provider_no_pass_unless_it_was_asked_for(
    deploy: Deploy, client: Client, audit_log: Path
) -> None:
    key = await deploy()
    running = await until(client, key, running_at(1))
    log = AuditReader(audit_log)
    body = {
        "apiVersion": names.API_VERSION,
        "kind": MODEL_DEPLOYMENT.kind,
        "metadata": {"name": key.name, "namespace": key.namespace},
        "status": {
            "gateway": {"gatewayName": "inference", "backend": "Service"},
            "conditions": [
                {
                    "type": "GatewayReady",
                    "status": "False",
                    "reason": "RouteConflict",
                    "message": "m",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ],
        },
    }
    await client.apply(MODEL_DEPLOYMENT, body, manager=names.GATEWAY_MANAGER, force=True, subresource="status")
    await asyncio.sleep(1)
    assert (await client.get(MODEL_DEPLOYMENT, key))["status"]["phase"] == running["status"]["phase"]
    assert [r for r in log.read() if r.writes and r.agent.startswith("provider")] == []
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"gateway": {"enabled": True}}}, manager="user")
    degraded = await until(client, key, phase_is("Degraded"))
    assert degraded["status"]["reason"] == "RouteConflict"
