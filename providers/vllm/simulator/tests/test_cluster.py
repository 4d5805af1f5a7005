"""The simulated controller where pods live: real StatefulSet controller, scheduler and garbage collector."""

from __future__ import annotations

from typing import Any

import pytest

from airunway.kube import EVENT, POD, SERVICE, STATEFUL_SET, Client, NotFound
from airunway.resource import ObjectKey, Resource, dig, key_of, labels_of, uid_of
from airunway_testing.controlplane.stages import OUTCOME
from airunway_vllm_simulator import names
from airunway_vllm_simulator.kinds import LEADER_WORKER_SET

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


class Sets:
    """Looks at a set, its pods and events."""

    def __init__(self, client: Client, key: ObjectKey) -> None:
        self.client, self.key = client, key

    async def ready(self) -> int:
        found = await self.client.get(LEADER_WORKER_SET, self.key)
        seen = dig(found, "status", "observedGeneration") == found["metadata"]["generation"]
        whole = dig(found, "status", "replicas", default=0) == found["spec"]["replicas"]
        updated = dig(found, "status", "updatedReplicas", default=0) == found["spec"]["replicas"]
        return int(dig(found, "status", "readyReplicas", default=0)) if seen and whole and updated else -1

    async def pods(self) -> dict[str, Resource]:
        selector = f"{names.NAME}={self.key.name}"
        found = await self.client.list_all(POD, namespace=self.key.namespace, label_selector=selector)
        return {key_of(pod).name: pod for pod in found}

    async def told(self, reason: str) -> list[str]:
        found = await self.client.list_all(EVENT, namespace=self.key.namespace)
        return [event["note"] for event in found if event["reason"] == reason]


@pytest.fixture
async def sets(client: Client, play: Any, namespace: str) -> Sets:
    await play(level="cluster")
    return Sets(client, ObjectKey(namespace, "big"))


def is_ready(sets: Sets, count: int) -> Any:
    async def look() -> bool:
        return await sets.ready() == count

    return look


async def test_groups_come_are_scaled_rolled_and_go(
    sets: Sets, client: Client, lws: Any, eventually: Any, namespace: str
) -> None:
    await client.create(LEADER_WORKER_SET, lws(replicas=2))
    await eventually(is_ready(sets, 2))
    before = await sets.pods()
    assert sorted(before) == ["big-0", "big-0-1", "big-1", "big-1-1"]
    worker = before["big-1-1"]
    assert {names.GROUP_INDEX: "1", names.WORKER_INDEX: "1"}.items() <= labels_of(worker).items()
    env = {entry["name"]: entry for entry in worker["spec"]["containers"][0]["env"]}
    assert env["LWS_LEADER_ADDRESS"]["value"] == f"big-1.big.{namespace}"
    assert (await client.get(SERVICE, sets.key))["spec"]["clusterIP"] == "None"

    await client.merge_patch(LEADER_WORKER_SET, sets.key, {"spec": {"replicas": 1}})
    await eventually(is_ready(sets, 1))

    image = {"spec": {"containers": [{"name": "server", "image": "registry.example/vllm:2"}]}}
    group = {"leaderTemplate": image, "workerTemplate": image}
    await client.merge_patch(LEADER_WORKER_SET, sets.key, {"spec": {"leaderWorkerTemplate": group}})
    await eventually(is_ready(sets, 1))
    after = await sets.pods()
    assert {pod["spec"]["containers"][0]["image"] for pod in after.values()} == {"registry.example/vllm:2"}
    assert uid_of(after["big-0"]) != uid_of(before["big-0"])

    await client.delete(LEADER_WORKER_SET, sets.key)

    async def nothing_is_left() -> bool:
        found = [await client.list_all(kind, namespace=namespace) for kind in (POD, STATEFUL_SET, SERVICE)]
        return not any(found)

    await eventually(nothing_is_left)


async def test_a_pod_that_is_started_again_takes_its_whole_group_with_it(
    sets: Sets, client: Client, lws: Any, eventually: Any, namespace: str
) -> None:
    await client.create(LEADER_WORKER_SET, lws(replicas=2))
    await eventually(is_ready(sets, 2))
    before = await sets.pods()
    crash = {"metadata": {"annotations": {OUTCOME: "CrashLoopBackOff"}}}
    await client.merge_patch(POD, ObjectKey(namespace, "big-1-1"), crash)

    async def made_anew() -> bool:
        try:
            pods = await sets.pods()
        except NotFound:
            return False
        return all(name in pods and uid_of(pods[name]) != uid_of(before[name]) for name in ("big-1", "big-1-1"))

    await eventually(made_anew)
    await eventually(is_ready(sets, 2))
    assert uid_of((await sets.pods())["big-0"]) == uid_of(before["big-0"]), "the other group is left alone"
    assert await sets.told("RecreateGroup") == [
        "Worker pod big-1-1 failed, deleted leader pod big-1 to recreate group 1"
    ]
