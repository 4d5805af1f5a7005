"""The gateway part under an account with exactly its rights and guards: nothing is refused, and all rights are used."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from core.tests.gateway.ground import Ground, running_part
from tests.support.audit import AuditReader
from tests.support.rights import applied, granted, requests_until_used, unused

from airunway.api import names
from airunway.api.crds import custom_resource_definitions
from airunway.gateway.caches import DESTINATION_RULE, HTTP_ROUTE, INFERENCE_POOL, PICKER_KINDS
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import CLUSTER_ROLE, SERVICE, Client, Kind, load_config
from airunway.rbac.admission_policies import core_guard, gateway_guard
from airunway.rbac.rights import core_rights, gateway_rights, picker_role
from airunway.resource import ObjectKey, Resource, key_of, labels_of
from airunway_testing.controlplane import Cluster
from airunway_testing.eventually import Eventually
from airunway_testing.gatewayapi.controller import running_gateway_controller
from airunway_testing.gatewayapi.kinds import (
    CLASS_NAME,
    GATEWAY_CLASS,
    definitions,
    gateway_class,
    istio_definitions,
)
from airunway_testing.operator import gone, install_definitions

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.usefixtures("events_again_soon")]

NAME = "llama"
WRITTEN = (HTTP_ROUTE, INFERENCE_POOL, DESTINATION_RULE, *PICKER_KINDS)
RARE = {
    ("update", "modeldeployments/finalizers"): "asked for inside the API server, by the admission plugin for owners",
    ("bind", "clusterroles"): "asked for inside the API server, when a RoleBinding is written",
    **{(verb, "leases"): "only one of several replicas asks for a lease" for verb in ("create", "get", "update")},
}
"""Rights that are needed, and that the audit log of one replica cannot show."""


@pytest.fixture
async def ground(client: Client, kubeconfig: Path, namespace: str, eventually: Eventually) -> AsyncIterator[Ground]:
    await install_definitions(client, [*custom_resource_definitions(), *definitions(), *istio_definitions()])
    if await client.find(GATEWAY_CLASS, ObjectKey("", CLASS_NAME)) is None:
        await client.create(GATEWAY_CLASS, gateway_class())
    await client.apply(CLUSTER_ROLE, picker_role(), manager="tests", force=True)
    provider = f"p-{namespace}"[:40].rstrip("-")
    made = Ground(client=client, namespace=namespace, eventually=eventually, provider=provider)
    await made.provide(endpointPicker={})
    async with running_gateway_controller(kubeconfig):
        yield made
    await client.delete(INFERENCE_PROVIDER_CONFIG, ObjectKey("", provider))


@pytest.mark.parametrize("limited", [False, True], ids=["everywhere", "namespaces"])
async def test_what_is_granted_to_the_gateway_part_is_used_and_is_enough(
    ground: Ground, cluster: Cluster, client: Client, home: str, audit_log: Path, *, limited: bool
) -> None:
    user = f"system:serviceaccount:{home}:{names.CORE_MANAGER}"
    watched = [ground.namespace] if limited else []
    rights, audit = gateway_rights(), AuditReader(audit_log)
    audit.read()
    guard = f"guard-{ground.namespace}"
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        await enter(granted(client, core_rights() + rights, user=user, namespace=home, watched=watched))
        policies = [
            *core_guard(user, name=guard),
            *gateway_guard(user, own=home, namespaces=watched, name=guard),
        ]
        await enter(applied(client, policies))
        account = await enter(Client(load_config(kubeconfig=cluster.kubeconfig_for(user))))
        await enter(running_part(account, namespace=ground.namespace))
        await lived_through(ground)

        seen = await requests_until_used(audit, rights, user=user, rare=RARE)
        assert unused(rights, seen, rare=RARE) == []
    refused = [request for request in seen if request.code == 403]
    assert refused == []


async def lived_through(ground: Ground) -> None:
    """A route with pool and picker is made, put right, kept off by others' objects, and removed."""
    asked = {"enabled": True, "gatewayRef": {"name": "inference"}}
    await ground.open_gateway()
    ports = {"selector": {"app": NAME}, "ports": [{"port": 8000, "targetPort": 8000}]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": NAME, "namespace": ground.namespace}}
    await ground.client.create(SERVICE, {**service, "spec": ports})
    await ground.deploy(NAME, gateway=asked, selector=f"app={NAME}")
    await all_there(ground, WRITTEN)
    await put_right(ground)

    before = [(kind, await ground.client.get(kind, place(ground, kind))) for kind in WRITTEN]
    await ground.client.delete(MODEL_DEPLOYMENT, ObjectKey(ground.namespace, NAME))
    for kind, obj in before:
        await gone(ground.client, kind, key_of(obj))
        await ground.client.create(kind, of_somebody_else(kind, obj))
    await ground.deploy(NAME, gateway=asked, selector=f"app={NAME}")
    await ground.until("ResourceConflict", NAME)
    for kind, obj in before:
        await ground.client.delete(kind, key_of(obj))
    await all_there(ground, WRITTEN)

    await ground.edit(NAME, gateway={"enabled": False})
    for kind in WRITTEN:
        await gone(ground.client, kind, place(ground, kind))


def place(ground: Ground, kind: Kind) -> ObjectKey:
    name = NAME if kind in (HTTP_ROUTE, INFERENCE_POOL) else f"{NAME}-epp"
    return ObjectKey(ground.namespace, name)


async def all_there(ground: Ground, kinds: Sequence[Kind]) -> None:
    async def ours() -> bool:
        found = [await ground.client.find(kind, place(ground, kind)) for kind in kinds]
        return all(obj is not None and labels_of(obj).get(names.PART) == "gateway" for obj in found)

    await ground.eventually(ours)


async def put_right(ground: Ground) -> None:
    """What others change on the part's objects is reverted."""
    wrong = {"metadata": {"labels": {names.MODEL_DEPLOYMENT: "another"}}}
    for kind in WRITTEN:
        await ground.client.merge_patch(kind, place(ground, kind), wrong, manager="somebody")

    async def right() -> bool:
        found = [await ground.client.find(kind, place(ground, kind)) for kind in WRITTEN]
        return all(obj is not None and labels_of(obj).get(names.MODEL_DEPLOYMENT) == NAME for obj in found)

    await ground.eventually(right)


def of_somebody_else(kind: Kind, obj: Resource) -> Resource:
    """The same object, made by hand: without an owner, labels of ours, or what the API server has filled in."""
    content = {
        field: value for field, value in obj.items() if field not in ("apiVersion", "kind", "metadata", "status")
    }
    for address in ("clusterIP", "clusterIPs"):
        content.get("spec", {}).pop(address, None)
    metadata = {field: obj["metadata"][field] for field in ("name", "namespace")}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **content}
