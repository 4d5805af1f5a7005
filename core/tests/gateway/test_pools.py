"""Pools and pickers of the gateway part."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from core.tests.gateway.ground import ASKED, SELECTOR, Ground, running_part
from tests.support.rights import applied

from airunway.api import names
from airunway.gateway.caches import HTTP_ROUTE, INFERENCE_POOL, PICKER_KINDS
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import CLUSTER_ROLE, CONFIG_MAP, DEPLOYMENT, Kind
from airunway.resource import ObjectKey, Resource, condition_of, dig, key_of
from airunway_testing.gatewayapi.kinds import definitions
from airunway_testing.operator import install_definitions, remove_definition

pytestmark = pytest.mark.apiserver

OBJECTS = (HTTP_ROUTE, INFERENCE_POOL, *PICKER_KINDS)
POOLS = "inferencepools.inference.networking.k8s.io"


@pytest.fixture
async def pooled(ground: Ground) -> Ground:
    """A ground whose provider has pools made for it."""
    await ground.provide(endpointPicker={})
    await ground.picker_role()
    await ground.open_gateway()
    await ground.service()
    return ground


async def backends(ground: Ground) -> set[tuple[str, str]]:
    rules = dig(await ground.route(), "spec", "rules", default=[])
    return {(ref.get("kind", "Service"), ref["name"]) for rule in rules for ref in rule["backendRefs"]}


async def test_a_pool_with_its_picker_is_made_and_withdrawn(pooled: Ground) -> None:
    await pooled.config(
        imagePullSecrets=[{"name": "registry"}],
        env=[{"name": "SECRET", "value": "canary"}],
        secrets={"huggingFaceToken": "hf"},
        labelPropagation={"enabled": True, "match": ["org.example/*"]},
    )
    async with running_part(pooled.client, namespace=pooled.namespace):
        await pooled.deploy(gateway=ASKED, labels={"org.example/team": "a"}, selector=SELECTOR)
        await pooled.picker_runs()
        live = await pooled.until("RouteAccepted")
        assert dig(live, "status", "gateway", "backend") == "Pool"
        assert await backends(pooled) == {("InferencePool", "llama")}
        pool = await pooled.client.get(INFERENCE_POOL, ObjectKey(pooled.namespace, "llama"))
        labels = {names.MODEL_DEPLOYMENT: "llama", names.COMPONENT: "server"}
        assert pool["spec"]["selector"] == {"matchLabels": labels}
        assert pool["spec"]["targetPorts"] == [{"number": 8000}]
        assert pool["spec"]["endpointPickerRef"]["failureMode"] == "FailOpen"
        picker = await pooled.client.get(DEPLOYMENT, ObjectKey(pooled.namespace, "llama-epp"))
        pod = picker["spec"]["template"]
        assert pod["spec"]["imagePullSecrets"] == [{"name": "registry"}]
        assert pod["metadata"]["labels"]["org.example/team"] == "a"
        assert "canary" not in str(picker)
        binding = await pooled.client.get(PICKER_KINDS[1], ObjectKey(pooled.namespace, "llama-epp"))
        assert binding["roleRef"]["name"] == names.ENDPOINT_PICKER_ROLE
        made = {kind.plural: await owned(pooled, kind.plural) for kind in OBJECTS}
        assert set(map(len, made.values())) == {1}, made
        await pooled.edit(gateway={"enabled": False})
        for kind in OBJECTS:
            for obj in made[kind.plural]:
                await pooled.until_gone(kind, obj)
        await pooled.until("")


async def test_the_picker_of_a_deployment_that_may_scale_to_zero_holds_requests(pooled: Ground) -> None:
    autoscaling: Resource = {"minReplicas": 0, "maxReplicas": 2, "target": 16}

    async def config() -> str:
        found = await pooled.client.get(CONFIG_MAP, ObjectKey(pooled.namespace, "llama-epp"))
        return str(found["data"])

    async with running_part(pooled.client, namespace=pooled.namespace):
        await pooled.deploy(gateway=ASKED, selector=SELECTOR)
        await pooled.picker_runs()
        before = await config()
        assert "holdsRequests" not in (await pooled.until("RouteAccepted"))["status"]["gateway"]
        await pooled.edit(scaling={"autoscaling": autoscaling})

        async def holds() -> bool:
            live = await pooled.client.get(MODEL_DEPLOYMENT, ObjectKey(pooled.namespace, "llama"))
            return dig(live, "status", "gateway", "holdsRequests") is True

        await pooled.eventually(holds)
        assert "defaultRequestTTL: 10m" in await config()
        rules = dig(await pooled.route(), "spec", "rules")
        assert {dig(rule, "timeouts", "request") for rule in rules} == {"10m"}
        await pooled.edit(scaling={"autoscaling": {**autoscaling, "minReplicas": 1}})

        async def as_before() -> bool:
            return await config() == before and not await holds()

        await pooled.eventually(as_before)


async def test_a_config_that_is_not_judged_or_not_allowed_reaches_no_picker(pooled: Ground) -> None:
    async def pull_secrets() -> list[str]:
        picker = await pooled.client.get(DEPLOYMENT, ObjectKey(pooled.namespace, "llama-epp"))
        return [each["name"] for each in picker["spec"]["template"]["spec"]["imagePullSecrets"]]

    async def at_rest() -> None:
        await asyncio.sleep(0.3)  # until the watches have brought what was written
        await pooled.eventually(lambda: part.at_rest)

    await pooled.config(imagePullSecrets=[{"name": "registry"}])
    async with running_part(pooled.client, namespace=pooled.namespace) as part:
        await pooled.deploy(gateway=ASKED, selector=SELECTOR)
        await pooled.judge_config(allowed=True)
        await pooled.picker_runs()
        await pooled.until("RouteAccepted")
        assert await pull_secrets() == ["registry"]
        await pooled.config(imagePullSecrets=[{"name": "stolen"}])
        await at_rest()
        assert await pull_secrets() == ["registry"], "before the core has judged it"
        await pooled.judge_config(allowed=False)
        await at_rest()
        assert await pull_secrets() == ["registry"]
        assert (await pooled.condition())["reason"] == "RouteAccepted", "the route stays"
        await pooled.judge_config(allowed=True)

        async def taken() -> bool:
            return await pull_secrets() == ["stolen"]

        await pooled.eventually(taken)


async def owned(ground: Ground, plural: str) -> list[str]:
    kind = next(kind for kind in OBJECTS if kind.plural == plural)
    found = await ground.client.list_all(kind, namespace=ground.namespace, label_selector=f"{names.PART}=gateway")
    return [key_of(obj).name for obj in found]


async def test_r14_the_inference_extension_comes_later_and_the_backend_becomes_the_pool_in_place(
    pooled: Ground,
) -> None:
    await remove_definition(pooled.client, POOLS)
    try:
        async with running_part(pooled.client, namespace=pooled.namespace) as part:
            await pooled.deploy(gateway={**ASKED, "pathTemplate": "/talk"}, selector=SELECTOR)
            live = await pooled.until("RouteAccepted")
            assert dig(live, "status", "gateway", "backend") == "Service"
            before = await pooled.route()
            await install_definitions(pooled.client, definitions())
            part.look_again()
            await pooled.picker_runs()

            async def by_pool() -> bool:
                return await backends(pooled) == {("InferencePool", "llama")}

            await pooled.eventually(by_pool)
            await pooled.until("RouteAccepted")
            assert dig(await pooled.get(), "status", "gateway", "backend") == "Pool"
            assert dig(await pooled.route(), "metadata", "uid") == dig(before, "metadata", "uid")
            assert await pooled.paths() == ["/talk", "/"]
            # And goes again: the route is back on the Service.
            await remove_definition(pooled.client, POOLS)
            part.look_again()

            async def by_service() -> bool:
                return await backends(pooled) == {("Service", "llama")}

            await pooled.eventually(by_service)
            await pooled.until("RouteAccepted")
            await pooled.until_gone(DEPLOYMENT, "llama-epp")
    finally:
        await install_definitions(pooled.client, definitions())


async def test_a_pool_of_that_name_by_somebody_else_stays_and_the_route_takes_the_service(pooled: Ground) -> None:
    theirs = {
        "apiVersion": INFERENCE_POOL.api_version,
        "kind": INFERENCE_POOL.kind,
        "metadata": {"name": "llama", "namespace": pooled.namespace},
        "spec": {
            "selector": {"matchLabels": {"app": "theirs"}},
            "targetPorts": [{"number": 1}],
            "endpointPickerRef": {"name": "theirs", "port": {"number": 9002}},
        },
    }
    await pooled.client.create(INFERENCE_POOL, theirs)
    async with running_part(pooled.client, namespace=pooled.namespace):
        await pooled.deploy(gateway=ASKED, selector=SELECTOR)
        await pooled.until("ResourceConflict")
        assert await backends(pooled) == {("Service", "llama")}
        found = await pooled.client.get(INFERENCE_POOL, ObjectKey(pooled.namespace, "llama"))
        assert found["metadata"]["generation"] == 1
        await pooled.client.delete(INFERENCE_POOL, ObjectKey(pooled.namespace, "llama"))
        await pooled.picker_runs()
        await pooled.until("RouteAccepted")
        assert await backends(pooled) == {("InferencePool", "llama")}


async def test_r22_with_the_users_own_route_the_pool_stays(pooled: Ground) -> None:
    async with running_part(pooled.client, namespace=pooled.namespace):
        await pooled.deploy(gateway=ASKED, selector=SELECTOR)
        await pooled.picker_runs()
        await pooled.until("RouteAccepted")
        before = await pooled.versions(DEPLOYMENT)
        await pooled.edit(gateway={"httpRouteRef": "theirs"})
        await pooled.until("ReferenceNotFound")
        await pooled.until_gone(HTTP_ROUTE)
        assert await pooled.client.find(INFERENCE_POOL, ObjectKey(pooled.namespace, "llama")) is not None
        assert await pooled.versions(DEPLOYMENT) == before


async def test_r26_a_provider_that_manages_its_pool_is_waited_for(ground: Ground) -> None:
    await ground.provide(managesInferencePool=True)
    await ground.open_gateway()
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy(gateway=ASKED, endpoint={})
        live = await ground.until("WaitingForPool")
        assert dig(live, "status", "gateway", "backend") == "Pool"
        pool = {
            "apiVersion": INFERENCE_POOL.api_version,
            "kind": INFERENCE_POOL.kind,
            "metadata": {"name": "llama-pool", "namespace": ground.namespace},
            "spec": {
                "selector": {"matchLabels": {"app": "llama"}},
                "targetPorts": [{"number": 8000}],
                "endpointPickerRef": {"name": "llama-picker", "port": {"number": 9002}},
            },
        }
        await ground.service("llama-picker")
        await ground.client.create(INFERENCE_POOL, pool)
        await ground.serve(endpoint={"pool": {"name": "llama-pool", "port": 8000}})
        await ground.until("RouteAccepted")
        assert await backends(ground) == {("InferencePool", "llama-pool")}
        # What the gateway says of a pool that is not ours is noticed: its picker's Service goes.
        await ground.client.delete(PICKER_KINDS[3], ObjectKey(ground.namespace, "llama-picker"))
        await ground.until("RouteNotAccepted")
        assert "InferencePool llama-pool" in await ground.message()


async def test_r28_the_cluster_role_of_pickers_is_missing(pooled: Ground) -> None:
    await pooled.client.delete(CLUSTER_ROLE, ObjectKey("", names.ENDPOINT_PICKER_ROLE))
    async with running_part(pooled.client, namespace=pooled.namespace):
        await pooled.deploy(gateway=ASKED, selector=SELECTOR)
        await pooled.until("Forbidden")
        message = await pooled.message()
        assert f"ClusterRole {names.ENDPOINT_PICKER_ROLE} does not exist" in message
        assert "helm upgrade" in message
        assert await backends(pooled) == {("Service", "llama")}
        await pooled.picker_role()
        await pooled.picker_runs()
        await pooled.until("RouteAccepted")


async def test_r31_a_picker_that_does_not_come_up_is_the_gateways_business(pooled: Ground) -> None:
    async with running_part(pooled.client, namespace=pooled.namespace):
        await pooled.deploy(gateway=ASKED, selector=SELECTOR)
        await pooled.picker_runs(ready=False, message="the image cannot be pulled")

        async def said() -> bool:
            live = await pooled.get()
            found = condition_of(live, "GatewayReady") or {}
            return found.get("status") == "False" and "picker" in found.get("message", "")

        await pooled.eventually(said)
        assert (await pooled.get())["status"]["phase"] == "Running"
        assert await backends(pooled) == {("InferencePool", "llama")}
        await pooled.picker_runs()
        await pooled.until("RouteAccepted")


@pytest.mark.parametrize("selector", ["app in (a, b)", "app!=a", "", "airunway.ai/model-deployment=llama"])
async def test_r32_a_selector_that_no_pool_can_have_gets_the_service(pooled: Ground, selector: str) -> None:
    """No set of equalities, or one that matches the picker's own pod."""
    async with running_part(pooled.client, namespace=pooled.namespace):
        await pooled.deploy(gateway=ASKED, selector=selector)
        live = await pooled.until("RouteAccepted")
        assert dig(live, "status", "gateway", "backend") == "Service"
        assert await pooled.client.list_all(INFERENCE_POOL, namespace=pooled.namespace) == []


async def test_r29_a_path_for_an_engine_that_cannot_be_served_below_one(ground: Ground) -> None:
    await ground.provide(path_routing=False)
    await ground.open_gateway()
    await ground.service()
    async with running_part(ground.client, namespace=ground.namespace):
        await ground.deploy(gateway={**ASKED, "pathTemplate": "/talk"})
        await ground.until("PathRoutingNotSupported")
        assert await ground.paths() == ["/"]
        # The provider learns it with a new release.
        await ground.provide(path_routing=True)
        await ground.until("RouteAccepted")
        assert await ground.paths() == ["/talk", "/"]


@asynccontextmanager
async def refused(ground: Ground, kind: Kind, message: str) -> AsyncIterator[None]:
    """A policy of the cluster refuses the kind in the namespace."""
    name, version = f"refusing-{kind.plural}-{ground.namespace}", "admissionregistration.k8s.io/v1"
    operations, resources = ["CREATE", "UPDATE"], [kind.plural]
    rule = {"apiGroups": [kind.group], "apiVersions": ["*"], "operations": operations, "resources": resources}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "here", "expression": f"request.namespace == '{ground.namespace}'"}],
        "validations": [{"expression": "false", "message": message}],
    }
    bound = {"policyName": name, "validationActions": ["Deny"]}
    policies = [
        {"apiVersion": version, "kind": policy, "metadata": {"name": name}, "spec": content}
        for policy, content in (("ValidatingAdmissionPolicy", spec), ("ValidatingAdmissionPolicyBinding", bound))
    ]
    async with applied(ground.client, policies):
        yield


async def test_a_pool_that_a_policy_refuses_leaves_the_service_and_is_named(pooled: Ground) -> None:
    async with running_part(pooled.client, namespace=pooled.namespace) as part:
        async with refused(pooled, INFERENCE_POOL, "no pools here"):
            await pooled.deploy(gateway=ASKED, selector=SELECTOR)

            async def by_service() -> bool:
                return await backends(pooled) == {("Service", "llama")}

            await pooled.eventually(by_service)
            live = await pooled.until("InvalidSpec")
            assert "InferencePool 'llama' was refused" in await pooled.message()
            assert "no pools here" in await pooled.message()
            assert dig(live, "status", "gateway", "backend") == "Service"

        async def by_pool() -> bool:
            part.application._queue.add(ObjectKey(pooled.namespace, "llama"))  # the retry, without waiting for it
            return await backends(pooled) == {("InferencePool", "llama")}

        await pooled.eventually(by_pool)
        await pooled.picker_runs()
        await pooled.until("RouteAccepted")


async def test_a_picker_that_a_policy_refuses_keeps_neither_route_nor_pool_from_being_made(pooled: Ground) -> None:
    async with (
        refused(pooled, DEPLOYMENT, "no pickers here"),
        running_part(pooled.client, namespace=pooled.namespace),
    ):
        await pooled.deploy(gateway=ASKED, selector=SELECTOR)
        await pooled.until("InvalidSpec")

        async def by_pool() -> bool:
            return await backends(pooled) == {("InferencePool", "llama")}

        await pooled.eventually(by_pool)
        assert "Deployment 'llama-epp' was refused" in await pooled.message()
        # What is no longer wanted goes, although a wanted object is refused.
        await pooled.edit(gateway={"httpRouteRef": "theirs"})
        await pooled.until_gone(HTTP_ROUTE)
