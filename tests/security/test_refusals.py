"""Through the operator: what a refusal makes of the status, and whose objects are written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from tests.support.faultproxy import Fault, FaultProxy, ProxiedRequest

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import CUSTOM_RESOURCE_DEFINITION, Client, Kind
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, condition_of, controller_owner, dig, is_true, uid_of
from airunway_testing.eventually import PATIENCE
from airunway_testing.expectations import phase_is, reason_is, running_at, says
from airunway_testing.operator import (
    install_definitions,
    remove_definition,
    running_core,
    running_provider,
    running_simulator,
    until,
)
from airunway_testing.simulators import load_simulator

pytestmark = pytest.mark.apiserver

WORKSPACE = Kind(group="kaito.sh", version="v1beta1", kind="Workspace", plural="workspaces", namespaced=True)
DEFINITION = ObjectKey("", "workspaces.kaito.sh")

Make = Callable[..., Resource]
Create = Callable[[Resource], Awaitable[ObjectKey]]
Refusing = Callable[..., Any]


async def test_ruling_28_what_a_webhook_denies_is_no_missing_right(
    operator: None, client: Client, manifest: Make, create: Create, refusing: Refusing
) -> None:
    """Whatever it says: the words are its own, and may speak of rights."""
    async with refusing(lambda _: 'forbidden: User "anybody" cannot create workspaces'):
        key = await create(manifest())
        # Two writers: the provider says what it met, and the core then what that means for the configuration.
        invalid = reason_is("ResourceCreated", "InvalidSpec")
        refused = await until(client, key, lambda d: invalid(d) and not is_true(d, "ConfigValid"))
        assert is_true(refused, "AuthValid")
        assert "denied the request" in refused["status"]["message"]
    await until(client, key, phase_is("Running"))


async def test_ruling_28_a_field_that_the_installed_schema_lacks_is_said_at_once_and_tried_again_with_the_next(
    installed: None, client: Client, kubeconfig: Path, kaito: ProviderHost, manifest: Make, create: Create
) -> None:
    """The API server answers it with a 500, which is else somebody's passing trouble."""
    definitions = load_simulator("kaito").custom_resource_definitions()
    poorer = deepcopy([crd for crd in definitions if crd["metadata"]["name"] == DEFINITION.name])
    for version in poorer[0]["spec"]["versions"]:
        inference = version["schema"]["openAPIV3Schema"]["properties"]["inference"]
        del inference["properties"]["template"]
        inference.pop("x-kubernetes-validations", None)  # they speak of it
    await install_definitions(client, poorer)
    async with (
        FaultProxy(kubeconfig) as proxy,
        running_core(kubeconfig),
        running_provider(proxy.kubeconfig, kaito),
        running_simulator(kubeconfig, kaito, level="api"),
    ):
        key = await create(manifest())
        refused = await until(client, key, reason_is("ProviderCompatible", "UnsupportedSchema"))
        assert "field not declared in schema" in refused["status"]["message"]
        assert refused["status"]["phase"] == "Failed"
        await install_definitions(client, definitions)
        await until(client, key, phase_is("Running"))


async def test_ruling_28_while_the_upstream_s_crd_is_being_deleted_it_counts_as_not_installed(
    operator: None, client: Client, manifest: Make, create: Create, namespace: str
) -> None:
    held = {"name": "held", "namespace": namespace, "finalizers": ["example.com/held"]}
    await client.create(WORKSPACE, {"apiVersion": WORKSPACE.api_version, "kind": "Workspace", "metadata": held})
    await client.delete(CUSTOM_RESOURCE_DEFINITION, DEFINITION)
    try:
        key = await create(manifest(provider={"name": "kaito"}))  # unasked, the core selects none that is unready
        waiting = await until(client, key, says("CRD not installed in cluster"))
        assert (waiting["status"]["phase"], waiting["status"]["reason"]) == ("Pending", "UpstreamNotInstalled")
        assert (condition_of(waiting, "AuthValid") or {}).get("status") != "False"
    finally:
        await remove_definition(client, DEFINITION.name)
        await install_definitions(client, load_simulator("kaito").custom_resource_definitions())
    await until(client, key, phase_is("Running"))


@pytest.mark.parametrize("remade", [True, False], ids=["made by somebody else", "deleted"])
async def test_m11_a_pass_that_knows_an_old_state_takes_nothing_over_and_makes_nothing_again(
    remade: bool,
    installed: None,
    client: Client,
    kubeconfig: Path,
    kaito: ProviderHost,
    manifest: Make,
    create: Create,
) -> None:
    """The provider does not hear that its Workspace went; the deployment changes, so that it would apply."""

    def changes(request: ProxiedRequest) -> bool:
        return request.resource == "workspaces" and request.verb == "apply"

    async with (
        FaultProxy(kubeconfig) as proxy,
        running_core(kubeconfig),
        running_provider(proxy.kubeconfig, kaito),
    ):
        proxy.inject(Fault("delay", verb="watch", resource="workspaces", after_events=1, seconds=600.0, count=None))
        proxy.cut_all()
        async with running_simulator(kubeconfig, kaito, level="api"):
            key = await create(manifest())
            await until(client, key, lambda d: bool(dig(d, "status", "provider", "resourceName")))
        await client.delete(WORKSPACE, key)
        if remade:
            metadata = {"name": key.name, "namespace": key.namespace}
            body = {"apiVersion": WORKSPACE.api_version, "kind": "Workspace", "metadata": metadata}
            foreign = await client.create(WORKSPACE, body)
        known = len(proxy.requests)
        # A change in place: a label would reach the pods of what has not served, and make it anew.
        await client.merge_patch(MODEL_DEPLOYMENT, key, {"metadata": {"annotations": {"airunway.ai/adopt": "1"}}})
        async with asyncio.timeout(PATIENCE):
            while not any(r.code for r in filter(changes, proxy.requests[known:])):
                await asyncio.sleep(0.02)
        seen = [r for r in filter(changes, proxy.requests[known:]) if r.code]
        assert seen[0].code == (422 if remade else 409)
        if remade:
            live = await client.get(WORKSPACE, key)
            assert (uid_of(live), controller_owner(live)) == (uid_of(foreign), None)
            assert live["metadata"]["resourceVersion"] == foreign["metadata"]["resourceVersion"]
        proxy.clear()
        proxy.cut_all()
        if remade:
            told = await until(client, key, reason_is("ResourceCreated", "ResourceConflict"))
            assert "is not managed by this ModelDeployment" in told["status"]["message"]
        else:  # known to be gone, it is made again
            async with running_simulator(kubeconfig, kaito, level="api"):
                await until(client, key, running_at(1))
