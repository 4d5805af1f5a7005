"""Core and several providers in one process: they share what they read, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.audit import AuditReader
from tests.support.faultproxy import FaultProxy
from tests.support.operator_process import operator_process

from airunway import __version__, sdk
from airunway.api import names
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import LEASE, Client
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import host_of, load
from airunway.process.effective_settings import published_in
from airunway.process.manager import Application, Lead
from airunway.resource import ObjectKey, Resource, condition_of, dig
from airunway_testing.eventually import PATIENCE
from airunway_testing.expectations import condition_is, running_at
from airunway_testing.operator import (
    gone,
    install_definitions,
    remove_leftovers,
    running_simulator,
    running_together,
    until,
)
from airunway_testing.simulators import load_simulator
from airunway_testing.toy.provider import MANIFEST, TRANSFORMERS

pytestmark = pytest.mark.apiserver

Make = Callable[..., Resource]


@pytest.fixture
def toy() -> ProviderHost:
    return load("toy")


@pytest.fixture
async def both_installed(client: Client) -> None:
    definitions = [d for name in ("kaito", "toy") for d in load_simulator(name).custom_resource_definitions()]
    await install_definitions(client, definitions)
    await remove_leftovers(client)


@pytest.fixture
async def upstreams(
    kubeconfig: Path, both_installed: None, kaito: ProviderHost, toy: ProviderHost
) -> AsyncIterator[None]:
    async with (
        running_simulator(kubeconfig, kaito, level="api"),
        running_simulator(kubeconfig, toy, level="api"),
    ):
        yield


def of_toy(manifest: Make, name: str = "toy-one") -> Resource:
    return manifest(name, provider={"name": "toy"})


async def test_each_provider_runs_its_own_and_the_deployments_are_read_once(
    upstreams: None,
    client: Client,
    kubeconfig: Path,
    kaito: ProviderHost,
    toy: ProviderHost,
    manifest: Make,
    namespace: str,
) -> None:
    async with FaultProxy(kubeconfig) as proxy, running_together(proxy.kubeconfig, [kaito, toy]) as parts:
        await client.create(MODEL_DEPLOYMENT, manifest(provider={"name": "kaito"}))
        await client.create(MODEL_DEPLOYMENT, of_toy(manifest))
        for name in ("gemma", "toy-one"):
            await until(client, ObjectKey(namespace, name), running_at(1))
        assert parts.unready() is None
        assert parts.remark() is None
        for resource in ("modeldeployments", "events", "persistentvolumeclaims", "jobs"):
            lists = [r for r in proxy.requests if r.resource == resource and r.verb == "list"]
            # Events are read by selection: the warnings, and each reason that a manifest names.
            selections = [r.query.get("fieldSelector") for r in lists]
            assert lists, resource
            assert len(selections) == len(set(selections)), resource
            if resource != "events":
                assert len(lists) == 1, resource
        # Each writes as itself, and each lets go of its own.
        for name in ("gemma", "toy-one"):
            await client.delete(MODEL_DEPLOYMENT, ObjectKey(namespace, name))
            await gone(client, MODEL_DEPLOYMENT, ObjectKey(namespace, name))


async def test_a_process_that_is_killed_and_started_again_writes_nothing(
    upstreams: None, client: Client, kubeconfig: Path, manifest: Make, namespace: str, audit_log: Path, tmp_path: Path
) -> None:
    """But the heartbeats: everything stands as it would be written."""
    wanted = {"gemma": manifest(provider={"name": "kaito"}), "toy-one": of_toy(manifest)}
    async with operator_process(kubeconfig, tmp_path, "run", "kaito", "toy") as process:
        for deployment in wanted.values():
            await client.create(MODEL_DEPLOYMENT, deployment)
        for name in wanted:
            await until(client, ObjectKey(namespace, name), running_at(1))
        await settled(client, namespace)
        process.kill()
        assert await asyncio.to_thread(process.wait) == -9
    audit = AuditReader(audit_log)
    before = {name: await client.get(MODEL_DEPLOYMENT, ObjectKey(namespace, name)) for name in wanted}
    async with operator_process(kubeconfig, tmp_path, "run", "kaito", "toy"):
        # A new one comes after all that is looked at at the start.
        await client.create(MODEL_DEPLOYMENT, of_toy(manifest, "toy-two"))
        await until(client, ObjectKey(namespace, "toy-two"), running_at(1))
        for name in wanted:
            assert await client.get(MODEL_DEPLOYMENT, ObjectKey(namespace, name)) == before[name]
    written = [r for r in audit.read() if r.writes and r.namespace == namespace and r.name in wanted]
    assert written == []


async def settled(client: Client, namespace: str) -> None:
    """Until nothing has changed for a second."""
    last = None
    while (now := await client.list_all(MODEL_DEPLOYMENT, namespace=namespace)) != last:
        last = now
        await asyncio.sleep(1.0)


def broken_toy() -> ProviderHost:
    """A toy whose every hook raises."""

    def fails(*_: object) -> None:
        raise LookupError("this plugin is broken")

    plugin = sdk.Provider(
        replace(MANIFEST, version="0.0.1"),
        TRANSFORMERS,
        can_handle=fails,  # type: ignore[arg-type]
        translate_spec=fails,  # type: ignore[arg-type]
        translate_status=fails,  # type: ignore[arg-type]
    )
    return host_of("toy", plugin, origin="broken 0.0.1")


async def test_a_plugin_that_always_raises_disturbs_no_other(
    upstreams: None, client: Client, kubeconfig: Path, kaito: ProviderHost, manifest: Make, namespace: str
) -> None:
    async with running_together(kubeconfig, [kaito, broken_toy()]) as parts:
        await client.create(MODEL_DEPLOYMENT, of_toy(manifest))
        failed = await until(
            client,
            ObjectKey(namespace, "toy-one"),
            lambda d: "this plugin is broken" in str(dig(d, "status", "message")),
        )
        assert dig(failed, "status", "phase") != "Running"
        await client.create(MODEL_DEPLOYMENT, manifest(provider={"name": "kaito"}))
        await until(client, ObjectKey(namespace, "gemma"), running_at(1))
        # All parts are ready; what is wrong with the plugin is said all the same.
        assert parts.unready() is None
        said = parts.remark() or ""
        assert said.startswith("airunway-provider-toy: can_handle raised LookupError")
        for name in ("kaito", "toy"):
            assert dig(await client.get(INFERENCE_PROVIDER_CONFIG, ObjectKey("", name)), "status", "ready") is True
        await client.delete(MODEL_DEPLOYMENT, ObjectKey(namespace, "toy-one"))


class Fragile:
    """An application that ends with a bug once that is wished for."""

    def __init__(self, application: Application, bug: asyncio.Event) -> None:
        self._application = application
        self._bug = bug

    def unready(self) -> str | None:
        return self._application.unready()

    async def run(self, lead: Lead) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._application.run(lead))
            await self._bug.wait()
            self._bug.clear()
            raise LookupError("a bug")


async def test_a_provider_that_ends_with_a_bug_comes_back_to_what_came_meanwhile(
    upstreams: None, client: Client, kubeconfig: Path, toy: ProviderHost, manifest: Make, namespace: str
) -> None:
    """Meanwhile the core goes on, with the cache that both have."""
    bug, ended = asyncio.Event(), "airunway-provider-toy: it ended and is started again (LookupError: a bug)"
    async with running_together(kubeconfig, [toy], around=lambda application: Fragile(application, bug)) as parts:
        await client.create(MODEL_DEPLOYMENT, of_toy(manifest))
        await until(client, ObjectKey(namespace, "toy-one"), running_at(1))
        bug.set()
        async with asyncio.timeout(20):
            while parts.unready() != ended:
                await asyncio.sleep(0.001)
        await client.create(MODEL_DEPLOYMENT, of_toy(manifest, "toy-two"))
        await until(client, ObjectKey(namespace, "toy-two"), condition_is("ProviderSelected", "True"))
        await until(client, ObjectKey(namespace, "toy-two"), running_at(1))
        async with asyncio.timeout(PATIENCE):
            while parts.unready() is not None:
                await asyncio.sleep(0.02)
        for name in ("toy-one", "toy-two"):
            await client.delete(MODEL_DEPLOYMENT, ObjectKey(namespace, name))
            await gone(client, MODEL_DEPLOYMENT, ObjectKey(namespace, name))


async def test_each_part_has_its_lease_and_says_farewell(
    upstreams: None, client: Client, kubeconfig: Path, tmp_path: Path
) -> None:
    parts = (names.CORE_MANAGER, names.provider_manager("kaito"), names.provider_manager("toy"))
    configs = [ObjectKey("", name) for name in ("kaito", "toy")]
    flags = ("--leader-elect", "--unknown-schema=Fail", "--set=kaito.instanceType=big")
    async with operator_process(kubeconfig, tmp_path, "run", "kaito", "toy", *flags) as process:
        for part in parts:
            lease = await client.get(LEASE, ObjectKey("default", part))
            assert dig(lease, "spec", "holderIdentity") == "own-process"
            (published,) = published_in([lease])
            assert (published.manager, published.pod, published.version) == (part, "own-process", __version__)
            assert published.options["leader-elect"] == "true"
            assert published.options.get("unknown-schema", "Fail") == "Fail"
            assert published.settings == ({"instanceType": "big"} if "kaito" in part else {})
        for key in configs:
            assert dig(await client.get(INFERENCE_PROVIDER_CONFIG, key), "status", "ready") is True
        process.terminate()
        assert await asyncio.to_thread(process.wait) == 0
    for part in parts:
        assert dig(await client.get(LEASE, ObjectKey("default", part)), "spec", "holderIdentity") == ""
    for key in configs:
        config = await client.get(INFERENCE_PROVIDER_CONFIG, key)
        assert dig(config, "status", "ready") is False
        assert (condition_of(config, "Ready") or {"status": "False"})["status"] == "False"
