"""Why a model on llm-d does not run, or not as it should: roles that are missing, and pickers that are not ready."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.llmd.conftest import APART, POOL, Pods
from tests.support.faults import is_clear

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import POD, Client
from airunway.resource import ObjectKey, Resource, condition_of, dig, labels_of
from airunway_testing.controlplane.stages import OUTCOME
from airunway_testing.eventually import PATIENCE
from airunway_testing.expectations import condition_is, running_at
from airunway_testing.operator import Deploy, until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

EPP = "registry.example/epp"


async def of_role(pods: Pods, key: ObjectKey, role: str) -> Resource:
    async with asyncio.timeout(PATIENCE):
        while True:
            found = [pod for pod in await pods(key) if labels_of(pod)["airunway.ai/component"] == role]
            if found and dig(found[0], "spec", "nodeName"):
                return found[0]
            await asyncio.sleep(0.05)


async def mark(client: Client, pod: Resource, outcome: str | None) -> None:
    name = ObjectKey(pod["metadata"]["namespace"], pod["metadata"]["name"])
    await client.merge_patch(POD, name, {"metadata": {"annotations": {OUTCOME: outcome}}})


def told(phase: str, *texts: str) -> Callable[[Resource], bool]:
    def holds(found: Resource) -> bool:
        status = found.get("status") or {}
        return status.get("phase") == phase and all(text in str(status.get("message")) for text in texts)

    return holds


async def test_without_prefill_it_is_degraded_and_serves(deploy: Deploy, client: Client, pods: Pods) -> None:
    key = await deploy(**APART)
    await until(client, key, running_at(1))
    await mark(client, await of_role(pods, key, "prefill"), "CrashLoopBackOff")
    found = await until(client, key, told("Degraded", "prefill", "exit code 1"))
    assert found["status"]["rootCause"]["code"] == "Engine.CrashLoop"
    # The pod is seen before its Deployment has noticed.
    found = await until(client, key, condition_is("PrefillReady", "False"))
    assert "decode workers prefill by themselves" in (condition_of(found, "PrefillReady") or {})["message"]
    assert (condition_of(found, "DecodeReady") or {})["status"] == "True"
    assert dig(found, "status", "endpoint", "service") == key.name
    await mark(client, await of_role(pods, key, "prefill"), None)
    await until(client, key, is_clear)


async def test_prefill_that_never_comes_up_does_not_fail_what_decode_serves(
    deploy: Deploy, client: Client, pods: Pods
) -> None:
    key = await deploy(outcome="ByHand", **APART)
    await mark(client, await of_role(pods, key, "decode"), None)
    await mark(client, await of_role(pods, key, "prefill"), "CrashLoopBackOff")
    degraded = told("Degraded", "prefill", "exit code 1")
    # The pods are seen before their Deployments have counted them.
    await until(client, key, lambda found: degraded(found) and dig(found, "status", "replicas", "summary") == "1/2")


async def test_without_decode_nothing_is_answered(deploy: Deploy, client: Client, pods: Pods) -> None:
    key = await deploy(outcome="ByHand", **APART)
    await mark(client, await of_role(pods, key, "prefill"), None)
    await mark(client, await of_role(pods, key, "decode"), "CrashLoopBackOff")
    found = await until(client, key, told("Failed", "decode", "exit code 1"))
    assert "no request is answered" in (condition_of(found, "DecodeReady") or {})["message"]
    assert found["status"]["rootCause"]["object"].startswith(f"Pod/{key.namespace}/llama-decode-")


PICKERS = {
    "configuration": (
        {"pickerImage": f"{EPP}:v1.5.0", "pickerVersion": "v0.10"},
        ("exit code 1: Failed to parse configuration: failed to parse config", "is registered for version"),
    ),
    "flags": (
        {"pickerImage": f"{EPP}:v1.6.0", "pickerVersion": "v0.10"},
        ("container picker", "exit code 2", "unknown flag: --config-file"),
    ),
}


@pytest.mark.parametrize(("llmd_operator", "texts"), PICKERS.values(), ids=PICKERS, indirect=["llmd_operator"])
async def test_a_picker_that_does_not_understand_what_it_is_given(
    texts: tuple[str, ...], deploy: Deploy, client: Client
) -> None:
    """Somebody said a wrong pickerVersion. The model is served all the same, by its Service and by a gateway."""
    key = await deploy()
    found = await until(client, key, told("Degraded", *texts))
    assert dig(found, "status", "endpoint", "service") == key.name
    assert found["status"]["rootCause"]["object"].startswith(f"Pod/{key.namespace}/llama-epp-")
    await until(client, key, lambda live: dig(live, "status", "replicas", "ready") == 1)
    assert (condition_of(await client.get(MODEL_DEPLOYMENT, key), "ProviderResourceReady") or {})["status"] == "True"


async def test_a_pool_of_somebody_elses_is_left_alone_and_named(deploy: Deploy, client: Client, namespace: str) -> None:
    theirs = {
        "apiVersion": POOL.api_version,
        "kind": POOL.kind,
        "metadata": {"name": "llama", "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": {"app": "theirs"}},
            "targetPorts": [{"number": 80}],
            "endpointPickerRef": {"name": "theirs", "port": {"number": 9002}},
        },
    }
    await client.create(POOL, theirs)
    key = await deploy()
    found = await until(client, key, told("Pending", f"InferencePool {namespace}/llama exists but is not managed"))
    assert found["status"]["reason"] == "ResourceConflict"
    await client.delete(POOL, key)
    await until(client, key, running_at(1))


async def test_a_label_that_somebody_added_to_the_pool_is_named_until_it_is_gone(
    deploy: Deploy, client: Client
) -> None:
    """An apply cannot take it away: each label of the selector belongs to whoever applied it."""
    key = await deploy()
    await until(client, key, running_at(1))
    added = {"spec": {"selector": {"matchLabels": {"team": "a"}}}}
    await client.merge_patch(POOL, key, added, manager="somebody")
    found = await until(client, key, told("Degraded", "spec.selector.matchLabels[team]", "delete the InferencePool"))
    assert (condition_of(found, "PickerReady") or {})["reason"] == "ResourceConflict"
    await client.delete(POOL, key)
    await until(client, key, is_clear)
    assert dig(await client.get(POOL, key), "spec", "selector", "matchLabels") == {
        "airunway.ai/inference-pool": "llama"
    }
