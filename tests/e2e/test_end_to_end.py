"""`make e2e` on a simulated cluster: it starts what is missing, says what it found, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.platform.fleet import process_of

from airunway.api.crds import custom_resource_definitions
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import CLUSTER_ROLE, CUSTOM_RESOURCE_DEFINITION, NAMESPACE, Client
from airunway.plugins.registry import load
from airunway.rbac.rights import picker_role
from airunway.resource import ObjectKey, Resource, key_of
from airunway_testing.e2e.ground import LABEL
from airunway_testing.gatewayapi.controller import running_gateway_controller
from airunway_testing.gatewayapi.kinds import GATEWAY, GATEWAY_CLASS, gateway, gateway_class, listener
from airunway_testing.gatewayapi.kinds import definitions as gateway_definitions
from airunway_testing.operator import (
    install_definitions,
    remove_definition,
    remove_leftovers,
    running_simulator,
)
from airunway_testing.simulators import simulators_for

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(560)]

PROVIDERS = ("dynamo", "kaito", "kuberay", "llmd", "vllm")
STRANGER = {"model": {"id": "o/m"}, "resources": {"gpu": {"count": 1}}}


@pytest.fixture
async def upstreams(kubeconfig: Path, client: Client) -> AsyncIterator[None]:
    """The simulated upstreams; of AI Runway nothing but its CRDs."""
    kinds = [(kind.group, kind.kind) for name in PROVIDERS for kind in load(name).manifest.upstream]
    found = simulators_for(kinds)
    await install_definitions(client, [crd for each in found for crd in each.custom_resource_definitions()])
    await remove_leftovers(client)
    async with running_simulator(kubeconfig, *(load(name) for name in PROVIDERS), level="cluster"):
        yield


@pytest.fixture
async def stranger(client: Client, namespace: str, upstreams: None) -> ObjectKey:
    """Somebody else's deployment in the same cluster."""
    body = {"apiVersion": MODEL_DEPLOYMENT.api_version, "kind": MODEL_DEPLOYMENT.kind, "spec": STRANGER}
    await client.create(MODEL_DEPLOYMENT, {**body, "metadata": {"name": "stranger", "namespace": namespace}})
    return ObjectKey(namespace, "stranger")


async def started(kubeconfig: Path, reports: Path, *arguments: str) -> asyncio.subprocess.Process:
    command = [sys.executable, "-m", "airunway_testing.e2e", "--kubeconfig", str(kubeconfig), "--reports", str(reports)]
    return await asyncio.create_subprocess_exec(
        *command,
        *arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # so that a signal reaches the program alone, and no more of it than in a terminal
    )


async def runs(client: Client) -> list[Resource]:
    return list(await client.list_all(NAMESPACE, label_selector=LABEL))


async def test_every_step_passes_and_nothing_is_left(
    kubeconfig: Path, client: Client, stranger: ObjectKey, tmp_path: Path
) -> None:
    before = await client.get(MODEL_DEPLOYMENT, stranger)
    # The steps of every provider, several in one run: tests/install/test_end_to_end.py.
    process = await started(kubeconfig, tmp_path, "--providers", "kaito,nobody", "--patience", "150")
    output, _ = await process.communicate()
    assert (tmp_path / "report.md").exists(), output.decode()
    page = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert process.returncode == 0, output.decode() + page

    (suite,) = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert (suite.get("name"), suite.get("failures")) == ("kaito", "0")
    done = [str(case.get("name")) for case in suite]
    steps = {name.partition(": ")[2] for name in done}
    assert steps >= {"edit", "scale", "lose pods", "break it", "route", "suspend", "delete"}, done
    skipped = [str(case.get("name")).partition(": ")[2] for case in suite if case.find("skipped") is not None]
    assert skipped == ["cache", "route"], "there is neither a StorageClass nor a Gateway"
    assert "ran on this machine for this namespace" in page
    assert "Workspace v1beta1 (schema " in page
    assert "nobody: no such provider is installed here" in page
    assert "the cluster does not serve the Gateway API" in page
    assert page.rstrip().endswith("Nothing."), "nothing is left behind"

    assert await runs(client) == []
    assert await client.list_all(INFERENCE_PROVIDER_CONFIG) == []
    after = await client.get(MODEL_DEPLOYMENT, stranger)
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"], "somebody else's"


async def test_where_ai_runway_runs_nothing_is_started_here_and_a_usable_gateway_is_used(
    kubeconfig: Path, client: Client, namespace: str, upstreams: None, tmp_path: Path
) -> None:
    """A provider that does not run there is missing; of two deployments that want one route the younger conflicts."""
    await install_definitions(client, gateway_definitions())
    await client.apply(CLUSTER_ROLE, picker_role(), manager="tests", force=True)
    await client.create(GATEWAY_CLASS, gateway_class())
    await client.create(GATEWAY, gateway("closed", namespace, listeners=[listener(admits="Same")]))
    await client.create(GATEWAY, gateway("open", namespace))
    try:
        async with running_gateway_controller(kubeconfig), process_of(kubeconfig, tmp_path, "vllm"):
            process = await started(kubeconfig, tmp_path, "--providers", "kaito,vllm", "--patience", "150")
            output, _ = await process.communicate()
            assert (tmp_path / "report.md").exists(), output.decode()
            page = (tmp_path / "report.md").read_text(encoding="utf-8")
            assert process.returncode == 0, output.decode() + page
            assert "| AI Runway | runs in the cluster |" in page
            assert "kaito: the provider does not run in the cluster, although the core does" in page
            assert [suite.get("name") for suite in ElementTree.parse(tmp_path / "junit.xml").getroot()] == ["vllm"]
            assert await runs(client) == []
            registered = await client.list_all(INFERENCE_PROVIDER_CONFIG)
            assert [key_of(config).name for config in registered] == ["vllm"], "what was there stays"
        assert f"Gateway {namespace}/open: path /airunway-e2e/" in page
        assert "conflict; " in page
        assert page.rstrip().endswith("Nothing."), "nothing is left behind"
    finally:
        await client.delete(CLUSTER_ROLE, key_of(picker_role()))
        for crd in gateway_definitions():
            await remove_definition(client, key_of(crd).name)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)])
async def test_an_interrupted_run_cleans_up_and_still_reports(
    kubeconfig: Path, client: Client, upstreams: None, tmp_path: Path, number: signal.Signals
) -> None:
    for crd in custom_resource_definitions():  # a cluster that has never seen AI Runway
        await remove_definition(client, key_of(crd).name)
    process = await started(kubeconfig, tmp_path, "--providers", "vllm", "--patience", "150")
    assert process.stdout is not None
    said = b""
    while b"sample" not in said:  # the first one has been lived through, the run is in the middle of its work
        said = await process.stdout.readline()
        assert said, "it ended before it had done anything"
    (namespace,) = await runs(client)
    process.send_signal(number)
    process.send_signal(number)  # an impatient one, who does not stop the cleaning
    await process.communicate()
    assert process.returncode == 130
    assert "it was interrupted" in (tmp_path / "report.md").read_text(encoding="utf-8")
    assert ElementTree.parse(tmp_path / "junit.xml").getroot().find("testsuite") is not None
    assert key_of(namespace) not in [key_of(found) for found in await client.list_all(NAMESPACE)]
    there = [key_of(crd) for crd in await client.list_all(CUSTOM_RESOURCE_DEFINITION)]
    assert [key_of(crd) for crd in custom_resource_definitions() if key_of(crd) in there] == [], "its CRDs are gone too"


async def test_a_cluster_that_does_not_answer_is_said_in_a_sentence(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\n"
        "contexts: [{name: a, context: {cluster: a, user: a}}]\n"
        "clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: a, user: {}}]\n",
        encoding="utf-8",
    )
    process = await started(kubeconfig, tmp_path)
    output, _ = await process.communicate()
    assert process.returncode == 2
    assert b"e2e: " in output
    assert b"Traceback" not in output
