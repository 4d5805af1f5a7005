"""Prefill and decode are workloads of their own: one that becomes another kind takes nothing from the other."""

from __future__ import annotations

import asyncio

import pytest
from tests.llmd.conftest import APART, Pods
from tests.support.deployed_operator import edit

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import DEPLOYMENT, Client, Kind, NotFound
from airunway.resource import ObjectKey, Resource, condition_of, dig, labels_of, uid_of
from airunway_testing.eventually import PATIENCE
from airunway_testing.expectations import running_at
from airunway_testing.operator import Deploy, until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

LEADER_WORKER_SET = Kind("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets")
COMPONENT = "airunway.ai/component"


def of(gpus: int) -> Resource:
    return {"replicas": 1, "gpu": {"count": gpus}, "memory": "1Gi"}


async def uids(pods: Pods, key: ObjectKey, *components: str) -> set[str]:
    return {uid_of(pod) for pod in await pods(key) if labels_of(pod)[COMPONENT] in components}


@pytest.mark.parametrize("llmd_operator", [{"gpusPerNode": 2}], indirect=True)
async def test_real_llmd_3_prefill_that_changes_its_kind_is_replaced_alone_and_decode_serves_on(
    deploy: Deploy, client: Client, pods: Pods
) -> None:
    key = await deploy(**{**APART, "scaling": {"decode": of(4), "prefill": of(4)}})
    await until(client, key, running_at(1))
    group = ObjectKey(key.namespace, "llama-decode-lws")
    decode = uid_of(await client.get(LEADER_WORKER_SET, group)), await uids(pods, key, "decode", "decode-worker")
    assert len(decode[1]) == 2
    down: list[str] = []
    generation = await edit(client, key, {"scaling": {"prefill": {"gpu": {"count": 2}}}})
    async with asyncio.timeout(PATIENCE):
        while True:
            found = await client.get(MODEL_DEPLOYMENT, key)
            down += [text for text in [str(dig(found, "status", "phase"))] if text in ("Pending", "Failed")]
            if running_at(generation)(found):
                break
            await asyncio.sleep(0.05)
    assert down == []
    live = await client.get(DEPLOYMENT, ObjectKey(key.namespace, "llama-prefill"))
    assert dig(live, "status", "readyReplicas") == 1
    with pytest.raises(NotFound):
        await client.get(LEADER_WORKER_SET, ObjectKey(key.namespace, "llama-prefill-lws"))
    after = uid_of(await client.get(LEADER_WORKER_SET, group)), await uids(pods, key, "decode", "decode-worker")
    assert after == decode, "nothing of decode was made anew"
    # And back again; decode's own change of kind leaves prefill as it is.
    await until(client, key, running_at(await edit(client, key, {"scaling": {"prefill": {"gpu": {"count": 4}}}})))
    assert await uids(pods, key, "decode", "decode-worker") == decode[1]
    prefill = await uids(pods, key, "prefill", "prefill-worker")
    await until(client, key, running_at(await edit(client, key, {"scaling": {"decode": {"gpu": {"count": 2}}}})))
    assert await uids(pods, key, "prefill", "prefill-worker") == prefill
    found = await client.get(MODEL_DEPLOYMENT, key)
    assert (condition_of(found, "PrefillReady") or {})["status"] == "True"
