"""A queue of the real Kueue admits, holds and evicts deployments, and their status says so (``-m kueue``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.kueue.conftest import WORKLOAD
from tests.support.faults import has_cause

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import DEPLOYMENT, Client, Kind
from airunway.resource import Resource, dig, is_true
from airunway_testing.expectations import running_at
from airunway_testing.operator import Deploy, gone, pods_of, until

pytestmark = [pytest.mark.kueue, pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]

LEADER_WORKER_SET = Kind("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets")
QUEUED: Resource = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "team"}}}
URGENT: Resource = {
    "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "team", "kueue.x-k8s.io/priority-class": "urgent"}}
}
GATE = "kueue.x-k8s.io/admission"


def message(deployment: Resource) -> str:
    return str(dig(deployment, "status", "message", default=""))


@pytest.mark.parametrize(
    ("provider", "gpus", "pods", "kind"),
    [("vllm", 1, 1, DEPLOYMENT), ("vllm", 16, 2, LEADER_WORKER_SET), ("llmd", 16, 2, LEADER_WORKER_SET)],
    ids=["vllm", "group-of-vllm", "group-of-llmd"],
)
async def test_a_queue_admits_holds_and_evicts(
    deploy: Deploy,
    queue: Callable[[int], Awaitable[None]],
    client: Client,
    namespace: str,
    provider: str,
    gpus: int,
    pods: int,
    kind: Kind,
) -> None:
    await queue(gpus)
    spec = {"provider": {"name": provider}, "resources": {"gpu": {"count": gpus}, "memory": "16Gi"}}

    first = await deploy("first", workload=QUEUED, **spec)
    await until(client, first, running_at(1), what="admission")
    admitted = [w for w in await client.list_all(WORKLOAD, namespace=namespace) if is_true(w, "Admitted")]
    assert [sum(part["count"] for part in each["spec"]["podSets"]) for each in admitted] == [pods]

    second = await deploy("second", workload=QUEUED, **spec)
    held = await until(client, second, has_cause("Unschedulable.Gated"), what="the gate")
    assert (dig(held, "status", "phase"), dig(held, "status", "reason")) == ("Deploying", "SchedulingGated")
    assert GATE in message(held)
    assert "(queue team)" in message(held)
    assert f"kubectl describe workloads -n {namespace}" in message(held)
    assert "\n" not in message(held)

    urgent = await deploy("urgent", workload=URGENT, **spec)
    await until(client, urgent, running_at(1), what="admission in place of the first")
    evicted = await until(client, first, lambda found: "Kueue evicted pod first" in message(found), what="eviction")
    assert dig(evicted, "status", "reason") == "SchedulingGated"
    assert "Preempted to accommodate a workload" in message(evicted)
    assert "\n" not in message(evicted)

    await client.delete(MODEL_DEPLOYMENT, urgent)
    await gone(client, MODEL_DEPLOYMENT, urgent)
    await client.delete(MODEL_DEPLOYMENT, second)
    await until(client, first, running_at(1), what="admission once more")
    assert len(await pods_of(client, first)) == pods
    owned = [
        obj for obj in await client.list_all(kind, namespace=namespace) if obj["metadata"]["name"].startswith("first")
    ]
    assert [obj["metadata"]["generation"] for obj in owned] == [1], "what Kueue writes was written over"
