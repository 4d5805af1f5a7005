"""The simulated KAITO where pods live: real StatefulSet controller and scheduler, simulated nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from airunway.kube import POD, SERVICE, STATEFUL_SET, Client, Kind
from airunway.resource import ObjectKey, Resource, condition_of, dig, key_of
from airunway_kaito_simulator import names
from airunway_kaito_simulator.kinds import CONTROLLER_REVISION, WORKSPACE
from airunway_testing.controlplane.stages import OUTCOME

pytestmark = pytest.mark.cluster

Look = Callable[[Kind, ObjectKey], Awaitable[Resource | None]]


def template(*, gpus: int) -> Resource:
    container = {
        "name": "model",
        "image": "registry.example/model:1",
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}, "requests": {"nvidia.com/gpu": str(gpus)}},
    }
    return {"template": {"metadata": {"labels": {"mine": "kept"}}, "spec": {"containers": [container]}}}


@pytest.fixture
def in_state(look: Look, eventually: Any) -> Callable[[ObjectKey, str], Awaitable[Resource]]:
    async def wait(key: ObjectKey, state: str) -> Resource:
        async def there() -> Resource | None:
            obj = await look(WORKSPACE, key)
            return obj if dig(obj, "status", "state") == state else None

        found: Resource = await eventually(there)
        return found

    return wait


@pytest.mark.slow
async def test_a_template_becomes_ready_with_its_pods_and_goes_with_them(
    client: Client,
    workspace_crd: str,
    namespace: str,
    workspace: Any,
    play: Any,
    look: Look,
    in_state: Any,
    eventually: Any,
) -> None:
    await play(level="cluster")
    key = ObjectKey(namespace, "llama")
    await client.create(WORKSPACE, workspace("llama", inference=template(gpus=1), count=2))

    ready = await in_state(key, "Ready")
    assert ready["status"]["targetNodeCount"] == 2
    assert ready["metadata"]["finalizers"] == [names.FINALIZER]
    assert ready["metadata"]["annotations"][names.REVISION] == "1"
    assert [c["status"] for c in ready["status"]["conditions"]] == ["True"] * 4
    pods = await client.list_all(POD, namespace=namespace, label_selector=f"{names.WORKSPACE}=llama")
    assert sorted(key_of(pod).name for pod in pods) == ["llama-0", "llama-1"]
    assert all(pod["metadata"]["labels"]["mine"] == "kept" for pod in pods)
    service = await client.get(SERVICE, key)
    assert {(port["port"], port["targetPort"]) for port in service["spec"]["ports"]} >= {(80, 5000)}
    headless = await client.get(SERVICE, ObjectKey(namespace, "llama-headless"))
    assert headless["spec"]["clusterIP"] == "None"

    await client.delete(WORKSPACE, key)
    await eventually(lambda: nothing_is_left(client, namespace))


async def nothing_is_left(client: Client, namespace: str) -> bool:
    kinds = (WORKSPACE, STATEFUL_SET, CONTROLLER_REVISION, POD, SERVICE)
    return not any([await client.list_all(kind, namespace=namespace) for kind in kinds])


async def test_a_pod_that_fits_no_node_shows_with_the_scheduler_s_words(
    client: Client, minimal_crd: None, namespace: str, workspace: Any, play: Any, look: Look, eventually: Any
) -> None:
    await play(level="cluster")
    key = ObjectKey(namespace, "huge")
    await client.create(WORKSPACE, workspace("huge", inference=template(gpus=16)))

    async def unschedulable() -> Resource | None:
        found = condition_of(await look(WORKSPACE, key) or {}, "InferenceReady") or {}
        return found if found.get("reason") == "Unschedulable" else None

    condition = await eventually(unschedulable)
    assert condition["message"].startswith('pod "huge-0" is unschedulable: 0/')
    assert "Insufficient nvidia.com/gpu" in condition["message"]
    assert dig(await look(WORKSPACE, key), "status", "state") == "Pending"


async def test_pods_are_looked_at_when_something_else_happens(
    client: Client,
    minimal_crd: None,
    namespace: str,
    workspace: Any,
    play: Any,
    look: Look,
    in_state: Any,
    eventually: Any,
) -> None:
    await play(level="cluster")
    key, pod = ObjectKey(namespace, "frail"), ObjectKey(namespace, "frail-0")
    await client.create(WORKSPACE, workspace("frail", inference=template(gpus=1)))
    await in_state(key, "Ready")

    async def reason() -> object:
        return (condition_of(await look(WORKSPACE, key) or {}, "InferenceReady") or {}).get("reason")

    async def waits_for_image() -> bool:
        (container,) = dig(await look(POD, pod), "status", "containerStatuses", default=[{}])
        return bool(dig(container, "state", "waiting", "reason") == "ImagePullBackOff")

    async def image_error_is_reported() -> bool:
        return await reason() == "ImagePullError"

    await play_outcome(client, pod, "NotReady")
    await in_state(key, "NotReady")  # the StatefulSet counts one ready pod less: that starts a pass
    await play_outcome(client, pod, "ImagePullBackOff")
    await eventually(waits_for_image)
    assert await reason() == "WorkspaceInferenceStatusPending"  # no StatefulSet changed: no pass
    await client.merge_patch(WORKSPACE, key, {"metadata": {"annotations": {"poke": "1"}}})
    await eventually(image_error_is_reported)
    await play_outcome(client, pod, None)
    await in_state(key, "Ready")


async def play_outcome(client: Client, pod: ObjectKey, outcome: str | None) -> None:
    await client.merge_patch(POD, pod, {"metadata": {"annotations": {OUTCOME: outcome}}})


async def test_without_a_matching_node_nothing_is_made_until_one_comes(
    client: Client, minimal_crd: None, namespace: str, workspace: Any, play: Any, look: Look, in_state: Any
) -> None:
    await play(level="cluster")
    key = ObjectKey(namespace, "nowhere")
    selector = {"matchLabels": {"no-such": namespace}}
    await client.create(WORKSPACE, workspace("nowhere", inference=template(gpus=1), labelSelector=selector))

    waiting = await in_state(key, "Pending")
    nodes = condition_of(waiting, "NodesReady") or {}
    assert (nodes["reason"], nodes["message"]) == ("NodeNotReady", "Not enough Nodes are ready")
    assert "workerNodes" not in waiting["status"]
    assert await look(SERVICE, key) is None
    assert await look(STATEFUL_SET, key) is None

    await client.delete(WORKSPACE, key)
    assert await look(WORKSPACE, key) is None or await in_deletion(look, key)


async def in_deletion(look: Look, key: ObjectKey) -> bool:
    return bool(dig(await look(WORKSPACE, key), "metadata", "deletionTimestamp"))


async def test_a_preset_takes_the_gpus_of_a_node_and_follows_edits(
    client: Client,
    minimal_crd: None,
    namespace: str,
    workspace: Any,
    play: Any,
    look: Look,
    in_state: Any,
    eventually: Any,
) -> None:
    await play(level="cluster")
    key = ObjectKey(namespace, "phi")
    preset = {"preset": {"name": "microsoft/Phi-4-mini-instruct"}}
    quiet = {names.DISABLE_BENCHMARK: "true"}
    await client.create(WORKSPACE, workspace("phi", inference=preset, annotations=quiet))
    await in_state(key, "Ready")
    made = await client.get(STATEFUL_SET, key)
    (container,) = made["spec"]["template"]["spec"]["containers"]
    assert container["name"] == "phi"
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "8"}

    await client.merge_patch(WORKSPACE, key, {"inference": {"config": "settings"}})

    async def revised() -> bool:
        live = await look(STATEFUL_SET, key)
        volumes = dig(live, "spec", "template", "spec", "volumes", default=[])
        return dig(live, "metadata", "annotations", names.REVISION) == "2" and any(
            dig(volume, "configMap", "name") == "settings" for volume in volumes
        )

    await eventually(revised)


async def test_a_benchmark_without_result_holds_a_preset_back(
    client: Client, minimal_crd: None, namespace: str, workspace: Any, play: Any, look: Look, in_state: Any
) -> None:
    await play(level="cluster")
    preset = {"preset": {"name": "microsoft/Phi-4-mini-instruct"}}
    partition = {"mode": "accelerator", "count": 1}
    measured = {names.BENCHMARK_TOKENS: "123456.5"}
    await asyncio.gather(
        client.create(WORKSPACE, workspace("slow", inference=preset, partition=partition)),
        client.create(WORKSPACE, workspace("fast", inference=preset, partition=partition, annotations=measured)),
    )
    slow = await in_state(ObjectKey(namespace, "slow"), "NotReady")
    assert (condition_of(slow, "WorkspaceSucceeded") or {})["reason"] == "BenchmarkFailed"
    assert (condition_of(slow, "InferenceReady") or {})["status"] == "True"
    fast = await in_state(ObjectKey(namespace, "fast"), "Ready")
    assert fast["status"]["performance"]["metrics"]["peakTokensPerMinute"]["value"] == "123456.5"


async def test_a_missing_access_secret_shows_in_every_condition_and_heals_by_itself(
    client: Client, minimal_crd: None, namespace: str, workspace: Any, play: Any, in_state: Any
) -> None:
    await play(level="cluster")
    key = ObjectKey(namespace, "gated")
    preset = {"preset": {"name": "org/gated", "presetOptions": {"modelAccessSecret": "token"}}}
    partition = {"mode": "accelerator", "count": 1}
    quiet = {names.DISABLE_BENCHMARK: "true"}
    await client.create(WORKSPACE, workspace("gated", inference=preset, annotations=quiet, partition=partition))
    pending = await in_state(key, "Pending")
    for condition in pending["status"]["conditions"]:
        assert condition["message"].endswith(f'in namespace: {namespace}, error: Secret "token" not found)')
    assert "targetNodeCount" not in pending["status"]

    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token", "namespace": namespace}}
    await client.create(Kind("", "v1", "Secret", "secrets"), secret)
    ready = await in_state(key, "Ready")
    assert not any("reconcile error" in c["message"] for c in ready["status"]["conditions"])
