"""A model's life on KubeRay, with least-privilege accounts: what is peculiar to it.

What it has in common with other providers: tests/test_lives.py.
"""

from __future__ import annotations

import json

import pytest
from tests.kuberay.conftest import KUBERAY, NETWORK_POLICY, RAY_CLUSTER, RAY_SERVICE
from tests.support.deployed_operator import Operator

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import EVENT, SERVICE_ACCOUNT, Client
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, condition_of, dig, key_of, uid_of
from airunway_testing.expectations import has_replicas, reason_is, running_at, says
from airunway_testing.fixtures import Kubectl
from airunway_testing.operator import gone, until

pytestmark = [pytest.mark.apiserver]

APART: Resource = {
    "serving": {"mode": "disaggregated"},
    "resources": {"gpu": None},
    "scaling": {
        "prefill": {"replicas": 1, "gpu": {"count": 1}, "memory": "8Gi"},
        "decode": {"replicas": 2, "gpu": {"count": 1}, "memory": "8Gi"},
    },
}
TOGETHER: Resource = {
    "serving": {"mode": "aggregated"},
    "resources": {"gpu": {"count": 1}},
    "scaling": {"prefill": None, "decode": None},
}
NO_SUCH = "TypeError: AsyncEngineArgs.__init__() got an unexpected keyword argument 'no_such'"


async def clusters(client: Client, namespace: str) -> list[str]:
    return sorted(key_of(cluster).name for cluster in await client.list_all(RAY_CLUSTER, namespace=namespace))


async def application(client: Client, key: ObjectKey) -> Resource:
    service = await client.get(RAY_SERVICE, key)
    (found,) = json.loads(service["spec"]["serveConfigV2"])["applications"]
    result: Resource = found
    return result


async def steer(client: Client, key: ObjectKey, word: str | None) -> None:
    """What the simulated Ray makes of the application."""
    patch = {"metadata": {"annotations": {"simulator.airunway.ai/application": word}}}
    await client.merge_patch(RAY_SERVICE, key, patch, manager="tests")


async def test_a_deployment_that_names_kuberay_becomes_running_with_few_writes(
    operator: Operator, client: Client, kuberay: ProviderHost
) -> None:
    user = await operator.provider(kuberay)
    key = await operator.deploy(**KUBERAY)
    found = await until(client, key, running_at(1))
    assert found["status"]["endpoint"]["service"] == "llama-serve-svc"
    first, second, *statuses = operator.writes(user)
    assert (first, second) == ("patch modeldeployments llama", "patch rayservices llama")
    assert set(statuses) == {"patch modeldeployments/status llama"}
    assert len(statuses) <= 3, "it starts, it loads where that takes long, it runs"
    assert await operator.at_rest(RAY_SERVICE, RAY_CLUSTER) == []


async def test_what_the_engine_is_told_changes_in_place(
    operator: Operator, client: Client, kuberay: ProviderHost
) -> None:
    """The RayService and its cluster stay: Ray deploys the application anew."""
    await operator.provider(kuberay)
    key = await operator.deploy(**KUBERAY)
    await until(client, key, running_at(1))
    before, uid = await clusters(client, key.namespace), uid_of(await client.get(RAY_SERVICE, key))
    generation = await operator.edit(key, engine={"contextLength": 4096})
    await until(client, key, running_at(generation))
    model = (await application(client, key))["args"]["llm_configs"][0]
    assert model["engine_kwargs"]["max_model_len"] == 4096
    assert await clusters(client, key.namespace) == before
    assert uid_of(await client.get(RAY_SERVICE, key)) == uid


async def test_scaled_from_one_to_three_to_none_and_back(
    operator: Operator, client: Client, kuberay: ProviderHost, kubectl: Kubectl
) -> None:
    await operator.provider(kuberay)
    key = await operator.deploy(**KUBERAY)
    await until(client, key, running_at(1))
    uid = uid_of(await client.get(RAY_SERVICE, key))
    for count in (3, 0, 1):
        kubectl("scale", "md", key.name, "-n", key.namespace, f"--replicas={count}")
        generation = (await client.get(MODEL_DEPLOYMENT, key))["metadata"]["generation"]
        await until(client, key, running_at(generation), what=f"Running with {count}")
        await until(client, key, has_replicas(count, count), what=f"{count} replicas")
        service = await client.get(RAY_SERVICE, key)
        assert service["spec"].get("suspend", False) is (count == 0)
        assert len(await clusters(client, key.namespace)) == (count > 0)
    assert uid_of(await client.get(RAY_SERVICE, key)) == uid, "never made anew"


async def test_the_mode_changes_with_a_second_cluster_and_back(
    operator: Operator, client: Client, kuberay: ProviderHost
) -> None:
    await operator.provider(kuberay)
    key = await operator.deploy(**KUBERAY)
    await until(client, key, running_at(1))
    (first,) = await clusters(client, key.namespace)
    generation = await operator.edit(key, **APART)
    await until(client, key, running_at(generation))
    await until(client, key, has_replicas(3, 3), what="three workers")
    assert (await application(client, key))["import_path"] == "ray.serve.llm:build_pd_openai_app"
    await gone(client, RAY_CLUSTER, ObjectKey(key.namespace, first))
    cluster = (await client.get(RAY_SERVICE, key))["spec"]["rayClusterConfig"]
    assert [group["groupName"] for group in cluster["workerGroupSpecs"]] == ["prefill-workers", "decode-workers"]
    generation = await operator.edit(key, **TOGETHER)
    await until(client, key, running_at(generation))
    assert len(await client.list_all(RAY_SERVICE, namespace=key.namespace)) == 1


async def test_another_image_starts_beside_the_old_one_which_serves(
    operator: Operator, client: Client, kuberay: ProviderHost
) -> None:
    """Also where the new one never starts: then it is Degraded, and the old one goes on."""
    await operator.provider(kuberay)
    key = await operator.deploy(**KUBERAY)
    await until(client, key, running_at(1))
    (first,) = await clusters(client, key.namespace)
    await steer(client, key, f"DEPLOY_FAILED:{NO_SUCH}")
    generation = await operator.edit(key, image="r/ray-llm:2.57.0")
    broken = await until(client, key, reason_is("ProviderResourceReady", "BadArguments"))
    assert broken["status"]["phase"] == "Degraded"
    assert broken["status"]["endpoint"]["service"] == "llama-serve-svc"
    assert "no_such" in broken["status"]["message"]
    names = await clusters(client, key.namespace)
    assert (len(names), first in names) == (2, True)
    await steer(client, key, None)
    await until(client, key, running_at(generation))
    await gone(client, RAY_CLUSTER, ObjectKey(key.namespace, first))


async def test_where_gpus_are_scarce_the_old_cluster_goes_first(
    operator: Operator, client: Client, kuberay: ProviderHost
) -> None:
    await operator.provider(kuberay, values={"upgrade": "Recreate"})
    key = await operator.deploy(**KUBERAY)
    await until(client, key, running_at(1))
    uid = uid_of(await client.get(RAY_SERVICE, key))
    await until(client, key, running_at(await operator.edit(key, engine={"contextLength": 4096})))
    assert uid_of(await client.get(RAY_SERVICE, key)) == uid, "the application changes in place"
    await until(client, key, running_at(await operator.edit(key, image="r/ray-llm:2.57.0")))
    assert uid_of(await client.get(RAY_SERVICE, key)) != uid


async def test_drift_is_set_right(operator: Operator, client: Client, kuberay: ProviderHost) -> None:
    await operator.provider(kuberay)
    key = await operator.deploy(**KUBERAY)
    await until(client, key, running_at(1))
    before = await client.get(RAY_SERVICE, key)
    meddled = {"spec": {"serveConfigV2": "applications: []", "rayClusterConfig": {"rayVersion": "1.0.0"}}}
    await client.merge_patch(RAY_SERVICE, key, meddled, manager="somebody")
    same = await operator.exists(RAY_SERVICE, key, lambda found: found["spec"] == before["spec"], what="the old spec")
    assert uid_of(same) == uid_of(before)
    await client.delete(RAY_SERVICE, key)
    made = await operator.exists(RAY_SERVICE, key, lambda found: uid_of(found) != uid_of(before), what="a new one")
    assert made["spec"] == before["spec"]
    await until(client, key, running_at(1))


async def test_given_up_by_kuberay_it_is_made_anew_by_the_next_change(
    operator: Operator, client: Client, kuberay: ProviderHost
) -> None:
    """KubeRay itself never tries again, whatever is edited (fact 12)."""
    await operator.provider(kuberay, values={"initializingTimeout": "2s"})
    key = await operator.deploy(**KUBERAY)
    service = await operator.exists(RAY_SERVICE, key)
    await steer(client, key, "never")
    stuck = await until(client, key, says("KubeRay has given it up"))
    assert stuck["status"]["phase"] == "Failed"
    await until(client, key, running_at(await operator.edit(key, engine={"contextLength": 4096})))
    assert uid_of(await client.get(RAY_SERVICE, key)) != uid_of(service)


async def test_its_story_is_told_by_events(operator: Operator, client: Client, kuberay: ProviderHost) -> None:
    """What made it fail, once; and a configuration that Ray refuses, of which only an Event of KubeRay's tells."""
    await operator.provider(kuberay)
    key = await operator.deploy(**KUBERAY)
    await until(client, key, running_at(1))
    await steer(client, key, "refused:400 Bad Request: no such deployment")
    await operator.edit(key, engine={"contextLength": 4096})
    told = await until(client, key, says("no such deployment"))
    assert (condition_of(told, "ProviderResourceReady") or {})["reason"] == "InvalidSpec"
    assert told["status"]["phase"] == "Degraded", "what was there serves on"
    event = await operator.event(key, "ProviderError")
    assert "no such deployment" in event["note"]
    ours = [e for e in await client.list_all(EVENT, namespace=key.namespace) if e["reason"] == "ProviderError"]
    assert len(ours) == 1


async def test_a_finalizer_and_lists_of_kuberays_own_leave_ours_alone(
    operator: Operator, client: Client, kuberay: ProviderHost
) -> None:
    """Its operator replaces the whole object to put its finalizer on it (fact 1): no field of ours changes hands."""
    await operator.provider(kuberay)
    key = await operator.deploy(**KUBERAY)
    await until(client, key, running_at(1))
    service = await client.get(RAY_SERVICE, key)
    owned = {
        entry["manager"]: json.dumps(entry["fieldsV1"])
        for entry in service["metadata"]["managedFields"]
        if not entry.get("subresource")
    }
    assert "f:finalizers" in owned["kuberay-operator"]
    assert "f:workerGroupSpecs" not in owned["kuberay-operator"]
    assert "f:workerGroupSpecs" in owned["airunway-provider-kuberay"]
    for cluster in await client.list_all(RAY_CLUSTER, namespace=key.namespace):
        # KubeRay copies the RayService's annotations; ours on a cluster would be read as a claim to it.
        assert "airunway.ai/spec-hash" in str(cluster["metadata"]["annotations"])


@pytest.mark.slow
@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.soak)])
async def test_many_at_rest_write_nothing(operator: Operator, kuberay: ProviderHost, count: int) -> None:
    await operator.provider(kuberay)
    await operator.fleet(count, **KUBERAY)
    assert await operator.at_rest(RAY_SERVICE, RAY_CLUSTER) == []


async def test_real_kuberay_4_an_outage_in_place_is_said_before_it_happens(
    operator: Operator, client: Client, kuberay: ProviderHost
) -> None:
    """Where nothing is made anew, the plan of a dry run and an event announce the interruption. Scaling does not."""
    await operator.provider(kuberay)
    key = await operator.deploy(**KUBERAY)
    await until(client, key, running_at(1))
    routed = {"status": {"gateway": {"url": "http://192.0.2.1/ml/llama"}}}
    await client.merge_patch(MODEL_DEPLOYMENT, key, routed, subresource="status")
    await client.merge_patch(
        MODEL_DEPLOYMENT, key, {"metadata": {"annotations": {"airunway.ai/dry-run": "true"}}}, manager="tests"
    )
    await operator.edit(key, engine={"contextLength": 4096})
    plan = await until(client, key, lambda found: "no model is served" in dry_run(found))
    assert "NewCluster" in dry_run(plan)
    assert dry_run(plan).endswith("(docs/side-by-side.md)")
    await client.merge_patch(
        MODEL_DEPLOYMENT, key, {"metadata": {"annotations": {"airunway.ai/dry-run": None}}}, manager="tests"
    )
    told = await operator.event(key, "ServiceInterrupted")
    assert "no model is served until the new one has loaded" in told["note"]
    assert told["note"].endswith("(docs/side-by-side.md)")
    generation = (await client.get(MODEL_DEPLOYMENT, key))["metadata"]["generation"]
    await until(client, key, running_at(generation))
    await until(client, key, running_at(await operator.edit(key, scaling={"replicas": 2})))
    events = await client.list_all(EVENT, namespace=key.namespace)
    assert len([event for event in events if event["reason"] == "ServiceInterrupted"]) == 1, "not for the scaling"


def dry_run(found: Resource) -> str:
    return str((condition_of(found, "DryRun") or {}).get("message", ""))


async def test_an_engine_change_can_go_through_a_second_cluster(
    operator: Operator, client: Client, kuberay: ProviderHost
) -> None:
    await operator.provider(kuberay)
    key = await operator.deploy(provider={"name": "kuberay", "overrides": {"engineChange": "NewCluster"}})
    await until(client, key, running_at(1))
    (first,) = await clusters(client, key.namespace)
    await until(client, key, running_at(await operator.edit(key, scaling={"replicas": 2})))
    assert await clusters(client, key.namespace) == [first], "scaling is in place all the same"
    await until(client, key, running_at(await operator.edit(key, engine={"contextLength": 4096})))
    service = await client.get(RAY_SERVICE, key)
    assert dig(service, "status", "activeServiceStatus", "rayClusterName") != first


async def test_ray_is_no_open_shell_a_networkpolicy_comes_and_goes_with_the_image(
    operator: Operator, client: Client, kuberay: ProviderHost
) -> None:
    """Under the provider's own account: it may write them."""
    await operator.provider(kuberay)
    key = await operator.deploy(**KUBERAY, image="r/ray-llm:2.51.1")
    await until(client, key, running_at(1))
    policy = await client.get(NETWORK_POLICY, ObjectKey(key.namespace, f"{key.name}-ray"))
    assert policy["spec"]["podSelector"]["matchLabels"]["airunway.ai/model-deployment"] == key.name
    service = await client.get(RAY_SERVICE, key)
    assert "authOptions" not in service["spec"]["rayClusterConfig"]
    await until(client, key, running_at(await operator.edit(key, image="r/ray-llm:2.56.0")))
    await gone(client, NETWORK_POLICY, ObjectKey(key.namespace, f"{key.name}-ray"))
    service = await client.get(RAY_SERVICE, key)
    assert service["spec"]["rayClusterConfig"]["authOptions"] == {"mode": "token"}


async def test_real_kuberay_6_a_missing_service_account_is_named_until_it_is_there(
    operator: Operator, client: Client, kuberay: ProviderHost
) -> None:
    """KubeRay makes nothing without it, and an event about its RayCluster is all that tells."""
    await operator.provider(kuberay)
    key = await operator.deploy(**KUBERAY, serviceAccountName="not-there")
    told = await until(client, key, says("ServiceAccount not-there is not found"))
    status = told["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "InvalidSpec")
    assert status["rootCause"]["code"] == "Provider.Rejected"
    (cluster,) = await client.list_all(RAY_CLUSTER, namespace=key.namespace)
    assert not cluster.get("status"), "as recorded"
    metadata = {"name": "not-there", "namespace": key.namespace}
    account: Resource = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    await client.create(SERVICE_ACCOUNT, account, manager="tests")
    await until(client, key, running_at(1))
