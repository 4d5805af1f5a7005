"""A plugin that misbehaves costs the deployment that it misbehaves about, and says with which hook."""

from __future__ import annotations

from time import thread_time
from typing import Any

import pytest
from tests.support.deployed_operator import Operator
from tests.support.toy_variants import shape_of, toy_host, usual

from airunway.kube import DEPLOYMENT, Client
from airunway.plugins.host import SLOW_HOOK
from airunway.resource import dig, uid_of
from airunway.sdk import Compatibility, Context, ModelDeployment, Observation, Observed, Translation, workloads
from airunway_testing.expectations import running_at
from airunway_testing.operator import until
from airunway_testing.toy import provider
from airunway_testing.toy.names import TOY

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]


def can_handle(deployment: ModelDeployment, context: Context[Any]) -> Compatibility:
    if shape_of(deployment) == "raises":
        raise KeyError("a bug")
    return Compatibility()


def translate_spec(deployment: ModelDeployment, context: Context[Any]) -> Translation:
    toys = usual(deployment, context)
    match shape_of(deployment):
        case "hangs":
            begun = thread_time()
            while thread_time() - begun <= SLOW_HOOK:
                pass
        case "renders":
            config = toys.objects[2]
            many = ({**config, "metadata": {"name": f"{deployment.metadata.name}-{n}"}} for n in range(10_000))
            return Translation(objects=(*toys.objects, *many))
        case "mutates":
            deployment.spec.node_selector["stolen"] = "yes"
    return toys


def translate_status(deployment: ModelDeployment, observed: Observed, context: Context[Any]) -> Observation:
    answer = provider.translate_status(deployment, observed, context)
    if shape_of(deployment) == "spoils" and observed.primary is not None:
        for obj in observed.objects:
            obj.clear()
    return answer


@pytest.mark.parametrize(
    ("shape", "hook"),
    [("raises", "can_handle"), ("hangs", "translate_spec"), ("renders", "translate_spec")],
)
async def test_a_plugin_that_fails_costs_its_own_deployment_and_others_go_on(
    operator: Operator, client: Client, shape: str, hook: str
) -> None:
    user = await operator.provider(toy_host(can_handle=can_handle, translate_spec=translate_spec))
    bad, ran = await operator.deploy("bad", shape=shape), await operator.deploy("ran")
    await until(client, ran, running_at(1))
    toy = await client.get(TOY, ran)
    told = await until(client, bad, lambda found: dig(found, "status", "reason") == "ProviderError")
    assert hook in told["status"]["message"]
    assert await operator.absent(TOY, bad)
    await operator.edit(ran, shape=shape)
    told = await until(client, ran, lambda found: hook in str(dig(found, "status", "message")))
    assert uid_of(await client.get(TOY, ran)) == uid_of(toy), "what runs is left alone"
    good = await operator.deploy("good")
    await until(client, good, running_at(1))
    await until(client, bad, running_at(await operator.edit(bad, shape="")))
    await until(client, ran, running_at(await operator.edit(ran, shape="")))
    assert [write for write in operator.writes(user) if write.startswith("delete")] == []


@pytest.mark.parametrize("shape", ["mutates", "spoils"])
async def test_a_plugin_that_changes_what_it_is_given_changes_no_cache(
    operator: Operator, client: Client, shape: str
) -> None:
    await operator.provider(toy_host(translate_spec=translate_spec, translate_status=translate_status))
    key = await operator.deploy(shape=shape, nodeSelector={"disk": "ssd"})
    # Either it got a copy to spoil, or what it was given cannot be changed and its hook is at fault.
    found = await until(client, key, lambda md: dig(md, "status", "reason") == "ProviderError" or running_at(1)(md))
    assert dig(found, "status", "phase") == "Running" or "translate_spec" in found["status"]["message"]
    other = await operator.deploy("other", nodeSelector={"disk": "ssd"})
    await until(client, other, running_at(1))
    assert await operator.at_rest(TOY) == []


def with_deployment(deployment: ModelDeployment, context: Context[Any]) -> Translation:
    """A Deployment with values that its API drops where they are empty."""
    container = {
        "name": "helper",
        "image": "registry.example/helper:1",
        "env": [{"name": "EMPTY", "value": ""}, {"name": "FULL", "value": "x"}],
        "volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": False}],
    }
    pod = {"spec": {"containers": [container], "volumes": [{"name": "v", "emptyDir": {}}], "hostNetwork": False}}
    helper = workloads.deployment(deployment, pod, name=f"{deployment.metadata.name}-helper", replicas=0)
    return Translation(objects=(*usual(deployment, context).objects, helper))


async def test_g15_b8_empty_values_that_the_api_drops_are_written_once(operator: Operator, client: Client) -> None:
    kinds = (*provider.manifest.upstream, workloads.DEPLOYMENT)
    user = await operator.provider(toy_host(translate_spec=with_deployment, upstream=kinds))
    key = await operator.deploy()
    await until(client, key, running_at(1))
    helper = await operator.exists(DEPLOYMENT, operator.key("llama-helper"))
    assert {"name": "EMPTY"} in helper["spec"]["template"]["spec"]["containers"][0]["env"]
    assert await operator.at_rest(DEPLOYMENT, TOY) == []
    assert operator.writes(user).count("patch deployments llama-helper") == 1
