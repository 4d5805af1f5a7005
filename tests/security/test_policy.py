"""Hostile tenants against policy and access review, on a real API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.support.reviews import WebhookClient
from tests.support.webhook import local_settings, running_webhook

from airunway.api import names
from airunway.controller.application import CoreApplication, CoreSettings
from airunway.controller.policies import PolicyFile
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import Client, Forbidden, Kind, NotFound, load_config
from airunway.plugins.host import ProviderHost
from airunway.resource import ObjectKey, Resource, condition_of, dig, is_true
from airunway_testing.controlplane import Cluster
from airunway_testing.eventually import PATIENCE
from airunway_testing.fixtures import Kubectl
from airunway_testing.operator import running_core, running_provider, until

pytestmark = pytest.mark.apiserver

WORKSPACE = Kind(group="kaito.sh", version="v1beta1", kind="Workspace", plural="workspaces", namespaced=True)

Make: TypeAlias = Callable[..., Resource]
Register: TypeAlias = Callable[[str, str], Awaitable[str]]


@pytest.fixture
async def register(client: Client, namespace: str, installed: None) -> AsyncIterator[Register]:
    """Register a ready provider that makes objects of a core kind; returns its name."""
    made: list[str] = []

    async def register_(name: str, kind: str) -> str:
        unique = f"{name}-{namespace}"
        made.append(unique)
        engine = {"name": "llamacpp", "servingModes": ["aggregated"], "gpuSupport": False, "cpuSupport": True}
        config = {
            "apiVersion": names.API_VERSION,
            "kind": "InferenceProviderConfig",
            "metadata": {"name": unique},
            "spec": {
                "capabilities": {"engines": [engine]},
                "upstream": [{"group": "", "kind": kind, "versions": ["v1"], "requiresCRD": False}],
            },
        }
        await client.apply(INFERENCE_PROVIDER_CONFIG, config, manager="tests")
        await client.merge_patch(
            INFERENCE_PROVIDER_CONFIG, ObjectKey("", unique), {"status": {"ready": True}}, subresource="status"
        )
        return unique

    yield register_
    for name in made:
        with suppress(NotFound):
            await client.delete(INFERENCE_PROVIDER_CONFIG, ObjectKey("", name))


async def known(core: CoreApplication, *wanted: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while not all(name in core.providers() and core.providers()[name].ready for name in wanted):
            await asyncio.sleep(0.02)


def may_create(kubectl: Kubectl, namespace: str, user: str, *resources: str) -> None:
    role = f"{user}-{'-'.join(resources).replace('.', '-')}"
    kubectl("create", "role", role, "-n", namespace, "--verb=create", f"--resource={','.join(resources)}")
    kubectl("create", "rolebinding", role, "-n", namespace, f"--role={role}", f"--user={user}")


async def test_h6_whoever_may_not_create_pods_may_not_have_them_made(
    client: Client,
    control_plane: Cluster,
    kubeconfig: Path,
    kubectl: Kubectl,
    namespace: str,
    register: Register,
    manifest: Make,
) -> None:
    """With the option; without it the right to create the provider's own kind is enough."""
    name = await register("acme", "ConfigMap")
    may_create(kubectl, namespace, "ada", "modeldeployments.airunway.ai", "configmaps")
    only_here = CoreSettings(namespaces=(namespace,))
    with (
        local_settings(namespace=namespace, access_review_pods=True) as place,
        running_webhook(kubeconfig, place, settings=only_here) as core,
    ):
        await known(core, name)
        async with Client(load_config(kubeconfig=control_plane.kubeconfig_for("ada"))) as ada:
            with pytest.raises(Forbidden) as caught:
                await ada.create(MODEL_DEPLOYMENT, manifest(provider={"name": name}))
            told = (
                f"user 'ada' cannot create pods in namespace '{namespace}', which a ModelDeployment does: "
                "get a role that allows it"
            )
            assert told in caught.value.message
            assert [cause["field"] for cause in caught.value.causes] == ["spec"]
            may_create(kubectl, namespace, "ada", "pods")
            async with asyncio.timeout(PATIENCE):  # the authorizer learns of roles by a watch
                while True:
                    with suppress(Forbidden):
                        await ada.create(MODEL_DEPLOYMENT, manifest(provider={"name": name}))
                        break
                    await asyncio.sleep(0.05)


async def test_h6_what_is_dangerous_is_refused_without_any_policy(
    client: Client, kubeconfig: Path, namespace: str, installed: None, manifest: Make
) -> None:
    """Behind a webhook at once; and by the reconciler, where there is no webhook."""
    wanted = manifest(tolerations=[{"operator": "Exists"}], priorityClassName="system-node-critical")
    told = "toleration of taint '*' is not allowed"
    only_here = CoreSettings(namespaces=(namespace,))
    with local_settings(namespace=namespace) as place, running_webhook(kubeconfig, place, settings=only_here):
        with pytest.raises(Forbidden) as caught:
            await client.create(MODEL_DEPLOYMENT, wanted)
        assert told in caught.value.message
        fields = [cause["field"] for cause in caught.value.causes]
        assert fields == ["spec.priorityClassName", "spec.tolerations[0]"]
    await client.create(MODEL_DEPLOYMENT, wanted)
    async with running_core(kubeconfig, settings=only_here):
        key = ObjectKey(namespace, wanted["metadata"]["name"])
        stored = await until(client, key, lambda live: condition_of(live, "Validated") is not None)
    assert not is_true(stored, "Validated")
    assert told in stored["status"]["message"]


def choice(key: ObjectKey, provider: str) -> Resource:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ModelDeployment",
        "metadata": {"name": key.name, "namespace": key.namespace},
        "status": {"provider": {"name": provider, "selectedReason": "cheapest"}},
    }


async def test_m6_a_custom_selector_cannot_choose_what_the_policy_does_not_list(
    client: Client,
    kubeconfig: Path,
    namespace: str,
    installed: None,
    kaito: ProviderHost,
    manifest: Make,
    tmp_path: Path,
) -> None:
    """Written after the spec has passed, while the provider runs: it waits for the core's word on the choice.

    The field stays the selector's, and what it chooses next is judged anew.
    """
    file = tmp_path / "policy.yaml"
    file.write_text(json.dumps({"rules": [{"providers": ["other"]}]}))
    settings = CoreSettings(selector=False, policy=PolicyFile(file), namespaces=(namespace,))
    key = ObjectKey(namespace, "gemma")
    await client.create(MODEL_DEPLOYMENT, manifest("gemma"))

    async def chooses(provider: str) -> None:
        await client.apply(
            MODEL_DEPLOYMENT, choice(key, provider), manager="cost-selector", force=True, subresource="status"
        )

    async with running_core(kubeconfig, settings=settings):
        await until(client, key, lambda live: is_true(live, "Validated"), what="valid")
        await chooses("kaito")
        refused = await until(client, key, lambda live: not is_true(live, "Validated"), what="refused")
        told = f"provider 'kaito' is not allowed in namespace '{namespace}' (allowed by policy: other)"
        assert told in refused["status"]["message"]
        async with running_provider(kubeconfig, kaito):
            await until(client, key, lambda live: dig(live, "status", "observedGeneration") == 1, what="seen by kaito")
            assert await client.list_all(WORKSPACE, namespace=namespace) == []
            await chooses("other")
            changed = await until(client, key, lambda live: is_true(live, "Validated"), what="valid again")
            owners = {
                entry["manager"]
                for entry in changed["metadata"]["managedFields"]
                if dig(entry, "fieldsV1", "f:status", "f:provider", "f:name") is not None
            }
            assert owners == {"cost-selector"}
            for _ in range(5):
                await chooses("kaito")
                await until(client, key, lambda live: not is_true(live, "Validated"), what="refused again")
                await chooses("other")
                await until(client, key, lambda live: is_true(live, "Validated"), what="valid again")
                assert await client.list_all(WORKSPACE, namespace=namespace) == []
            await chooses("kaito")
            await until(client, key, lambda live: not is_true(live, "Validated"), what="refused at last")
            file.write_text(json.dumps({"rules": [{"providers": ["kaito"]}]}))
            made = await until(client, key, lambda live: dig(live, "status", "provider", "resourceName") is not None)
    assert is_true(made, "Validated")


async def test_s6_a_deployment_that_names_no_provider_asks_about_every_one_that_may_come(
    client: Client, kubeconfig: Path, kubectl: Kubectl, namespace: str, register: Register, manifest: Make
) -> None:
    """Later than now: after a pause, or after a refusal of the first."""
    first, second = await register("first", "ConfigMap"), await register("second", "Service")
    may_create(kubectl, namespace, "ada", "configmaps")
    only_here = CoreSettings(namespaces=(namespace,))
    with (
        local_settings(namespace=namespace) as place,
        running_webhook(kubeconfig, place, settings=only_here) as core,
    ):
        await known(core, first, second)
        async with WebhookClient(client, place) as webhook:

            async def problems(paused: str = "", **spec: Any) -> Any:
                wanted = manifest(annotations={names.PAUSED: paused}, **spec)
                return await webhook.problems(wanted, user="ada", groups=())

            async with asyncio.timeout(PATIENCE):  # the authorizer learns of roles by a watch
                while await problems(provider={"name": first}):
                    await asyncio.sleep(0.05)
            for paused in ("", "true", "false"):
                [problem] = await problems(paused)
                assert f"user 'ada' cannot create services in namespace '{namespace}'" in problem
