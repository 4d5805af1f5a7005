"""The life of a model on llm-d: real Deployments run its pods, and the provider has its own account only."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from tests.llmd.conftest import APART, POOL, Pods
from tests.support.audit import AuditReader
from tests.support.deployed_operator import edit

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import CONFIG_MAP, DEPLOYMENT, EVENT, SERVICE, Client, Kind
from airunway.resource import ObjectKey, Resource, condition_of, dig, key_of, labels_of, uid_of
from airunway_testing.eventually import PATIENCE
from airunway_testing.expectations import running_at
from airunway_testing.operator import Deploy, until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

RBAC = "rbac.authorization.k8s.io"
ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts")
ROLE, BINDING = Kind(RBAC, "v1", "Role", "roles"), Kind(RBAC, "v1", "RoleBinding", "rolebindings")
MADE = (DEPLOYMENT, SERVICE, POOL, CONFIG_MAP, ACCOUNT, ROLE, BINDING)


async def made(client: Client, namespace: str) -> dict[str, Resource]:
    """What the provider has made, by kind and name."""
    label = "airunway.ai/provider=llmd"
    return {
        f"{kind.kind} {key_of(obj).name}": obj
        for kind in MADE
        for obj in await client.list_all(kind, namespace=namespace, label_selector=label)
    }


def picker(namespace: str) -> ObjectKey:
    return ObjectKey(namespace, "llama-epp")


async def test_a_model_runs_behind_a_pool_with_its_picker(deploy: Deploy, client: Client, pods: Pods) -> None:
    key = await deploy()
    running = await until(client, key, running_at(1))
    assert running["status"]["endpoint"]["url"] == f"http://llama.{key.namespace}.svc:8000"
    pool = await client.get(POOL, key)
    assert dig(pool, "spec", "endpointPickerRef", "name") == "llama-epp"
    members = dig(pool, "spec", "selector", "matchLabels").items()
    assert {labels_of(pod)["airunway.ai/component"]: members <= labels_of(pod).items() for pod in await pods(key)} == {
        "server": True,
        "picker": False,
    }


async def test_prefill_and_decode_run_apart(deploy: Deploy, client: Client, pods: Pods) -> None:
    key = await deploy(**APART)
    running = await until(client, key, running_at(1))
    assert running["status"]["replicas"]["summary"] == "2/2"
    decode = await client.get(DEPLOYMENT, ObjectKey(key.namespace, "llama-decode"))
    assert [c["name"] for c in dig(decode, "spec", "template", "spec", "initContainers")] == ["routing-sidecar"]
    assert len(await pods(key)) == 3


@pytest.mark.parametrize("llmd_operator", [{"gpusPerNode": 2}], indirect=True)
async def test_at_rest_nothing_is_written(deploy: Deploy, client: Client, audit_log: Path) -> None:
    """Pool, picker and LeaderWorkerSet included; not even where somebody touches what is ours without changing it."""
    keys = [
        await deploy("plain", env=[{"name": "EMPTY", "value": ""}]),
        await deploy("apart", **APART),
        await deploy("large", resources={"gpu": {"count": 4}}),
    ]
    for key in keys:
        await until(client, key, running_at(1))
    await asyncio.sleep(2)
    log = AuditReader(audit_log)
    for key in keys:
        await client.merge_patch(
            MODEL_DEPLOYMENT, key, {"metadata": {"annotations": {"airunway.ai/look": "again"}}}, manager="tests"
        )
        await client.merge_patch(POOL, key, {"metadata": {"labels": {"look": "again"}}}, manager="tests")
    await asyncio.sleep(2)
    writes = [r for r in log.read() if r.writes and r.namespace == keys[0].namespace and "airunway" in r.agent]
    assert [f"{r.agent} {r.verb} {r.resource} {r.name}" for r in writes] == []


async def test_image_and_arguments_change_in_place_and_leave_the_picker_alone(
    deploy: Deploy, client: Client, pods: Pods
) -> None:
    key = await deploy()
    await until(client, key, running_at(1))
    before = await made(client, key.namespace)
    generation = await edit(client, key, {"image": "registry.example/team/vllm:2.0", "engine": {"args": {"seed": "7"}}})
    await until(client, key, running_at(generation))
    after = await made(client, key.namespace)
    assert {name for name in after if after[name]["metadata"]["resourceVersion"]} == set(before)
    assert uid_of(after["Deployment llama"]) == uid_of(before["Deployment llama"])
    assert after["Deployment llama-epp"]["metadata"]["generation"] == 1
    (server,) = [pod for pod in await pods(key) if labels_of(pod)["airunway.ai/component"] == "server"]
    assert "--seed=7" in server["spec"]["containers"][0]["args"]


async def test_another_mode_is_another_workload_and_never_two(deploy: Deploy, client: Client) -> None:
    key = await deploy()
    await until(client, key, running_at(1))
    seen: list[set[str]] = []

    async def watch() -> None:
        while True:
            found = await client.list_all(DEPLOYMENT, namespace=key.namespace)
            seen.append({key_of(obj).name.removeprefix("llama") for obj in found} - {"-epp"})
            await asyncio.sleep(0.02)

    watching = asyncio.create_task(watch())
    generation = await edit(client, key, {**APART, "resources": {"gpu": None}})
    split = await until(client, key, running_at(generation))
    assert split["status"]["provider"]["resourceName"] == "llama-decode"
    together = {"serving": {"mode": "aggregated"}, "scaling": {"prefill": None, "decode": None}}
    generation = await edit(client, key, {**together, "resources": {"gpu": {"count": 1}}})
    await until(client, key, running_at(generation))
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching
    assert [names for names in seen if "" in names and "-decode" in names] == [], "the old one was gone first"
    events = [
        e for e in await client.list_all(EVENT, namespace=key.namespace) if e.get("reason") == "ResourceRecreated"
    ]
    assert any("spec.serving.mode" in str(event["note"]) for event in events)
    async with asyncio.timeout(PATIENCE):
        while "Deployment llama-prefill" in await made(client, key.namespace):
            await asyncio.sleep(0.1)


async def test_drift_is_set_right(deploy: Deploy, client: Client) -> None:
    key = await deploy()
    await until(client, key, running_at(1))
    before = await made(client, key.namespace)
    other = {"selector": {"matchLabels": {"airunway.ai/inference-pool": "other"}}}
    await client.merge_patch(POOL, key, {"spec": other}, manager="somebody")
    await client.merge_patch(ROLE, picker(key.namespace), {"rules": []}, manager="somebody")
    await client.merge_patch(CONFIG_MAP, picker(key.namespace), {"data": {"picker.yaml": "x"}}, manager="somebody")
    await client.merge_patch(DEPLOYMENT, picker(key.namespace), {"spec": {"replicas": 4}}, manager="somebody")
    await client.delete(SERVICE, picker(key.namespace))
    await client.delete(BINDING, picker(key.namespace))

    def essence(objects: dict[str, Resource]) -> dict[str, object]:
        parts = ("rules", "data", "roleRef", "subjects")
        found = {name: [obj.get(part) for part in parts] for name, obj in objects.items()}
        pool, scale = objects.get("InferencePool llama", {}), objects.get("Deployment llama-epp", {})
        return {**found, "pool": dig(pool, "spec", "selector"), "scale": dig(scale, "spec", "replicas")}

    async with asyncio.timeout(90):
        while essence(await made(client, key.namespace)) != essence(before):
            await asyncio.sleep(0.1)
    await until(client, key, running_at(1))


async def test_who_changes_each_object_once_fights_over_none(deploy: Deploy, client: Client) -> None:
    """`kubectl label --all` is more than five reverts, and no fight: all is set right at once."""
    key = await deploy()
    await until(client, key, running_at(1))
    objects = await made(client, key.namespace)
    assert len(objects) > 5
    for name, obj in objects.items():
        kind = next(each for each in MADE if each.kind == name.split()[0])
        wrong = {"metadata": {"labels": {names.MODEL_DEPLOYMENT: "another"}}}
        await client.merge_patch(kind, key_of(obj), wrong, manager="somebody")
    async with asyncio.timeout(PATIENCE):
        while any(
            labels_of(o)[names.MODEL_DEPLOYMENT] != key.name for o in (await made(client, key.namespace)).values()
        ):
            await asyncio.sleep(0.05)
    found = await until(client, key, running_at(1))
    assert condition_of(found, "DriftFight") is None
