"""The toy upstream: its data fit the contract, and its provider and simulator play together on a real API server."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import CONFIG_MAP, SERVICE, Client
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import load
from airunway.resource import ObjectKey, Resource, annotations_of, dig, labels_of
from airunway.runtime.crd_versions import schema_hash
from airunway_testing.operator import (
    gone,
    install_definitions,
    remove_definition,
    remove_leftovers,
    running_core,
    running_provider,
    running_simulator,
    until,
)
from airunway_testing.simulators import load_simulator
from airunway_testing.toy.names import FINALIZER, PART, TOY, TOY_BOX, TOY_LABEL
from airunway_testing.toy.provider import BROKEN, MOST_REPLICAS, TRANSFORMERS

Create = Callable[..., Resource]


@pytest.fixture(scope="module")
def toy() -> ProviderHost:
    return load("toy")


@pytest.fixture
async def installed(client: Client) -> None:
    await install_definitions(client, load_simulator("toy").custom_resource_definitions())
    await remove_leftovers(client)


@pytest.fixture
async def operator(kubeconfig: Path, installed: None, toy: ProviderHost) -> AsyncIterator[None]:
    async with (
        running_core(kubeconfig),
        running_provider(kubeconfig, toy),
        running_simulator(kubeconfig, toy, level="api"),
    ):
        yield


def manifest(namespace: str, name: str, **spec: object) -> Resource:
    base: Resource = {
        "model": {"id": "org/model"},
        "engine": {"type": "vllm"},
        "provider": {"name": "toy"},
        "resources": {"gpu": {"count": 1}},
    }
    return {
        "apiVersion": MODEL_DEPLOYMENT.api_version,
        "kind": MODEL_DEPLOYMENT.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**base, **spec},
    }


def phase(wanted: str) -> Callable[[Resource], bool]:
    return lambda deployment: bool(dig(deployment, "status", "phase") == wanted)


def test_the_registry_has_the_schemas_that_are_installed() -> None:
    crds = {crd["spec"]["names"]["kind"]: crd for crd in load_simulator("toy").custom_resource_definitions()}
    assert set(crds) == {"Toy", "ToyBox", "ToyPart"}
    served = {
        f"{crds['Toy']['spec']['group']}/{version['name']}": schema_hash(version["schema"]["openAPIV3Schema"])[:12]
        for version in crds["Toy"]["spec"]["versions"]
    }
    assert served == {transformer.api_version: transformer.schema_hashes[0] for transformer in TRANSFORMERS}


def test_it_is_selected_by_name_alone(toy: ProviderHost) -> None:
    assert toy.manifest.selection == "Explicit"


@pytest.mark.apiserver
@pytest.mark.usefixtures("operator")
async def test_a_deployment_runs_and_goes(client: Client, namespace: str) -> None:
    key = ObjectKey(namespace, "plays")
    await client.create(MODEL_DEPLOYMENT, manifest(namespace, "plays"))
    running = await until(client, key, phase("Running"), what="Running")
    assert dig(running, "status", "endpoint", "service") == "plays"
    live = await client.get(TOY, key)
    assert live["spec"]["motor"] == "vllm"
    assert FINALIZER in live["metadata"]["finalizers"]
    await client.get(SERVICE, key)
    await client.get(TOY_BOX, key)
    assert any(
        obj["metadata"]["name"].startswith("plays") for obj in await client.list_all(CONFIG_MAP, namespace=namespace)
    )
    part = await client.get(PART, ObjectKey(namespace, "plays-part"))
    assert labels_of(part) == {**labels_of(live), TOY_LABEL: "plays"}
    assert annotations_of(part) == annotations_of(live)
    await client.delete(MODEL_DEPLOYMENT, key)
    await gone(client, MODEL_DEPLOYMENT, key)
    await gone(client, TOY, key)


@pytest.mark.apiserver
async def test_a_scenario_is_shown_with_its_event(
    client: Client, kubeconfig: Path, installed: None, toy: ProviderHost, namespace: str
) -> None:
    async with (
        running_core(kubeconfig),
        running_provider(kubeconfig, toy),
        running_simulator(kubeconfig, toy, level="api", scenario=f"fails:{BROKEN}"),
    ):
        key = ObjectKey(namespace, "breaks")
        await client.create(MODEL_DEPLOYMENT, manifest(namespace, "breaks"))

        def told(deployment: Resource) -> bool:
            return BROKEN in str(dig(deployment, "status", "warnings"))

        shown = await until(client, key, told, what="the event as a warning")
        assert dig(shown, "status", "phase") != "Running"


@pytest.mark.apiserver
@pytest.mark.usefixtures("operator")
async def test_what_a_toy_cannot_do_is_refused(client: Client, namespace: str) -> None:
    key = ObjectKey(namespace, "crowd")
    await client.create(MODEL_DEPLOYMENT, manifest(namespace, "crowd", scaling={"replicas": MOST_REPLICAS + 1}))
    refused = await until(client, key, lambda md: "replicas" in str(dig(md, "status", "message")), what="a refusal")
    assert re.search(rf"at most {MOST_REPLICAS} replicas", refused["status"]["message"])
    assert await client.list_all(TOY, namespace=namespace) == []


@pytest.mark.apiserver
async def test_without_the_optional_kind_it_works_without(
    client: Client, kubeconfig: Path, installed: None, toy: ProviderHost, namespace: str
) -> None:
    await remove_definition(client, f"{TOY_BOX.plural}.{TOY_BOX.group}")
    async with (
        running_core(kubeconfig),
        running_provider(kubeconfig, toy),
        running_simulator(kubeconfig, toy, level="api"),
    ):
        key = ObjectKey(namespace, "boxless")
        await client.create(MODEL_DEPLOYMENT, manifest(namespace, "boxless"))
        await until(client, key, phase("Running"), what="Running")
