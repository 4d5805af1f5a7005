"""A queue of the real Kueue admits, holds and evicts deployments, and their status says so (``-m kueue``)."""

from __future__ import annotations

import pytest
from tests.kueue.conftest import CLUSTER_QUEUE, WORKLOAD, Queue, made
from tests.support.faults import has_cause

from airunway.api.names import MODEL_CACHE_LABEL
from airunway.kinds import MODEL_ARTIFACT, MODEL_DEPLOYMENT
from airunway.kube import DEPLOYMENT, JOB, NAMESPACE, POD, Client, Kind
from airunway.resource import ObjectKey, Resource, dig, is_true
from airunway_testing.eventually import eventually
from airunway_testing.expectations import running_at, says
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
    queue: Queue,
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
    held = await until(client, second, lambda found: "(queue team)" in message(found), what="the gate and its queue")
    assert has_cause("Unschedulable.Gated")(held)
    assert (dig(held, "status", "phase"), dig(held, "status", "reason")) == ("Deploying", "SchedulingGated")
    assert GATE in message(held)
    assert f"kubectl describe workloads -n {namespace}" in message(held)
    assert "\n" not in message(held)

    urgent = await deploy("urgent", workload=URGENT, **spec)
    await until(client, urgent, running_at(1), what="admission in place of the first")
    evicted = await until(client, first, lambda found: "Kueue evicted pod first" in message(found), what="eviction")
    assert dig(evicted, "status", "reason") == "SchedulingGated"
    assert "Preempted to accommodate a workload" in message(evicted), message(evicted)
    assert "\n" not in message(evicted)

    await client.delete(MODEL_DEPLOYMENT, urgent)
    await gone(client, MODEL_DEPLOYMENT, urgent)
    await client.delete(MODEL_DEPLOYMENT, second)
    await until(client, first, running_at(1), what="admission once more")
    servers = [pod for pod in await pods_of(client, first) if "-epp-" not in pod["metadata"]["name"]]
    assert len(servers) == pods
    owned = [
        obj for obj in await client.list_all(kind, namespace=namespace) if obj["metadata"]["name"].startswith("first")
    ]
    assert [obj["metadata"]["generation"] for obj in owned] == [1], "what Kueue writes was written over"


async def test_a_refused_edit_of_a_queued_group_serves_on_and_says_how_it_is_made(
    deploy: Deploy, queue: Queue, client: Client
) -> None:
    await queue(16)
    group = {"provider": {"name": "llmd"}, "resources": {"gpu": {"count": 16}, "memory": "16Gi"}}
    key = await deploy("group", workload=QUEUED, **group)
    await until(client, key, running_at(1), what="admission")

    await edit(client, key, resources={"memory": "20Gi"})
    refused = await until(client, key, has_cause("Provider.Rejected"), what="the refusal")
    assert "resources.requests" in message(refused)
    assert "set spec.suspend to true, wait until status.message is Suspended" in dig(
        refused, "status", "rootCause", "message"
    )
    assert dig(refused, "status", "replicas", "ready") == 1, "what serves was touched"

    await edit(client, key, suspend=True)
    await until(client, key, says("Suspended"), what="suspension")
    await edit(client, key, suspend=False)
    await until(client, key, running_at(4), what="admission with the new request")


async def test_a_default_queue_takes_servers_pickers_and_downloads_and_each_says_what_holds_it(
    deploy: Deploy, queue: Queue, client: Client, namespace: str
) -> None:
    await queue(8, name="default")
    await stopped(client, "Hold")
    await client.merge_patch(
        NAMESPACE, ObjectKey("", namespace), {"metadata": {"labels": {MODEL_CACHE_LABEL: "allowed"}}}
    )
    source = {"source": {"uri": "hf://acme/tiny"}}
    await client.create(MODEL_ARTIFACT, made(MODEL_ARTIFACT, "weights", namespace, spec=source))
    key = await deploy("small", provider={"name": "llmd"}, resources={"gpu": {"count": 1}, "memory": "16Gi"})
    held = await until(client, key, says("(queue default)"), what="the gate and its queue")
    assert has_cause("Unschedulable.Gated")(held)

    async def status_of_weights() -> str:
        artifact = await client.get(MODEL_ARTIFACT, ObjectKey(namespace, "weights"))
        return str(dig(artifact, "status", "message"))

    async def weights_are_held() -> bool:
        return "until its LocalQueue default has room: see kubectl describe workloads" in await status_of_weights()

    await eventually(weights_are_held)
    found = await client.list_all(POD, namespace=namespace)
    gated = [pod["metadata"]["name"] for pod in found if dig(pod, "spec", "schedulingGates")]
    assert sorted("epp" if "-epp-" in name else "server" for name in gated) == ["epp", "server"]

    await stopped(client, "None")
    await until(client, key, running_at(1), what="admission")

    async def download_has_begun() -> bool:
        return not any(dig(job, "spec", "suspend") for job in await client.list_all(JOB, namespace=namespace))

    await eventually(download_has_begun)
    await stopped(client, "HoldAndDrain")
    evicted = await until(client, key, says("Kueue evicted pod small"), what="eviction")
    assert "(queue default)" in message(evicted)


async def stopped(client: Client, policy: str) -> None:
    await client.merge_patch(CLUSTER_QUEUE, ObjectKey("", "gpus"), {"spec": {"stopPolicy": policy}})


async def edit(client: Client, key: ObjectKey, **spec: object) -> None:
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": spec})
