"""A story in which there is everything to report: core and provider as processes, and what could be seen of them.

Other tests use the same API server: what they leave there must not matter. Both processes look at the story's own
namespace only, and nothing is asked of them before each leads its component.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp
import pytest
from tests.support.faultproxy import Fault, FaultProxy

from airunway.api import names
from airunway.kinds import MODEL_ARTIFACT, MODEL_DEPLOYMENT
from airunway.kube import EVENT, NAMESPACE, POD, ApiError, Client, Invalid, NotFound, load_config
from airunway.plugins.registry import load
from airunway.process.metric_catalogue import METRICS, PROCESS_METRICS, MetricsRole
from airunway.resource import ObjectKey, Resource, annotations_of, dig, mapping_at, owner_reference
from airunway.webhook.configuration import CONFIGURATION_KIND
from airunway_kaito_simulator.kinds import WORKSPACE
from airunway_testing.controlplane import Cluster
from airunway_testing.operator import event_about, install_definitions, running_simulator, until
from airunway_testing.simulators import load_simulator
from airunway_testing.simulators.scenarios import ANNOTATION as SCENARIO

CANARY = "canary-5f0c2e-must-not-be-told"
PATIENCE = 60.0

SPEC: Resource = {
    "model": {"id": "google/gemma-3-1b-it-qat-q8_0-gguf/gemma-3-1b-it-q8_0.gguf"},
    "engine": {"type": "llamacpp"},
    "resources": {"memory": "16Gi", "cpu": "8"},
    "image": "ghcr.io/sozercan/llama-cpp-runner:latest",
}
KAITO = ("provider", "run", "kaito", "--set", "inferenceSet=WhenScaled")
"""The story is that of a Workspace."""

ROLES = {role: {"gpu": {"count": 1}, "memory": "8Gi"} for role in ("prefill", "decode")}
INVALID = SPEC | {"provider": {"overrides": {"securityContext": {"secret": CANARY}}}}

UNUSABLE = {
    "invalid": INVALID,
    "engineless": {"model": {"id": "org/model"}, "serving": {"mode": "disaggregated"}, "scaling": ROLES},
    "unplaced": SPEC | {"provider": {"name": "nosuch"}},
}
"""Deployments that the webhook would refuse; made before there is one."""

TROUBLE = {
    "conflict": Fault("status", status=409, reason="Conflict"),
    "throttled": Fault("status", status=429, retry_after=0),
    "unreachable": Fault("reset"),
    "refused": Fault("status", status=403, reason="Forbidden"),
    "server": Fault("status", status=500),
}
"""What happens to the core's first write about the deployment of that name: the kind of error that it counts as."""

Told: TypeAlias = Callable[[Client, ObjectKey, str], Awaitable[Resource]]
Eventually: TypeAlias = Callable[..., Awaitable[None]]
Start: TypeAlias = Callable[..., AbstractAsyncContextManager[tuple[str, str]]]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What was there to see: pages of metrics by component, events, log lines by component."""

    namespace: str
    canary: str
    model: str
    pages: dict[str, str]
    page_after_deletion: str
    openmetrics: str
    content_types: list[str]
    probes: dict[str, tuple[int, str]]
    events: list[Resource]
    logs: dict[str, list[dict[str, Any]]]

    def samples(self, component: str, name: str) -> dict[frozenset[tuple[str, str]], float]:
        """The samples of a metric on a component's page: value by labels."""
        return samples(self.pages[component], name)

    def values(self, component: str, name: str, label: str) -> set[str]:
        """The values of a label of a metric that were seen with something counted."""
        found = self.samples(component, name).items()
        return {dict(labels)[label] for labels, number in found if number and label in dict(labels)}

    def unseen(self, component: str) -> set[str]:
        """The metrics that have no sample on a component's page."""
        return unseen(self.pages[component])

    def cut(self, component: str) -> set[str]:
        """The resources whose watches counted, on a component's page, that their connection was cut."""
        return cut(self.pages[component])


def samples(page: str, name: str) -> dict[frozenset[tuple[str, str]], float]:
    found = re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", page, flags=re.MULTILINE)
    return {frozenset(re.findall(r'(\w+)="([^"]*)"', labels)): float(value) for labels, value in found}


def unseen(page: str) -> set[str]:
    wanted = {metric.name: metric.series for metric in METRICS} | {name: (name,) for name in PROCESS_METRICS}
    return {name for name, series in wanted.items() if not all(samples(page, one) for one in series)}


def cut(page: str) -> set[str]:
    """The resources whose watches have noticed that their connection was cut."""
    found = (dict(labels) for labels, number in samples(page, "airunway_watch_restarts_total").items() if number)
    return {labels["resource"] for labels in found if labels["cause"] == "ConnectionFailed"}


@pytest.fixture(scope="package")
def seen(control_plane: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return asyncio.run(see(control_plane.kubeconfig, tmp_path_factory.mktemp("observed")))


@pytest.fixture
def start() -> Start:
    """Runs a command of ours as a process; gives the URLs of its metrics and probes."""
    return process


@pytest.fixture
def told() -> Told:
    """Waits for an event with a reason about a deployment, and gives it."""
    return event_about


@pytest.fixture
def eventually() -> Eventually:
    """Waits until something holds."""
    return wait_until


# ------------------------------------------------------------------------------------------------------- the world


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@asynccontextmanager
async def process(log: Path, namespace: str, kubeconfig: Path, *command: str) -> AsyncIterator[tuple[str, str]]:
    """A command of ours as a process, logging JSON into a file; gives the URLs of its metrics and probes."""
    metrics, probes = (f"127.0.0.1:{free_port()}" for _ in range(2))
    options = ["--kubeconfig", str(kubeconfig), "--watch-namespaces", namespace, "--leader-elect"]
    options += ["--log-format", "json", "--log-level", "debug"]
    options += ["--metrics-bind-address", metrics, "--health-probe-bind-address", probes]
    with log.open("wb") as file:
        running = await asyncio.to_thread(
            subprocess.Popen,
            [sys.executable, "-m", "airunway", *command, *options],
            stderr=file,
            stdout=file,
            env={**os.environ, "POD_NAMESPACE": namespace, "POD_NAME": log.stem},
        )
        try:
            yield f"http://{metrics}/metrics", f"http://{probes}"
        finally:
            running.terminate()
            await asyncio.to_thread(running.wait, 30)


@asynccontextmanager
async def removed_afterwards(client: Client, webhook: ObjectKey) -> AsyncIterator[None]:
    """Without its process, a webhook's configuration would have every deployment of its namespaces refused."""
    try:
        yield
    finally:
        with suppress(NotFound):
            await client.delete(CONFIGURATION_KIND, webhook)


async def see(kubeconfig: Path, folder: Path) -> Seen:
    namespace = f"seen-{uuid.uuid4().hex[:8]}"
    webhook = f"airunway-webhook-{namespace}"
    hook = f"127.0.0.1:{free_port()}"
    options = ["--webhook-bind-address", hook, "--webhook-url", f"https://{hook}"]
    options += ["--webhook-configuration", webhook, "--webhook-manage-configuration"]
    logs = {name: folder / f"{name}.log" for name in ("core", "provider")}
    pages: dict[str, str] = {}
    async with (
        Client(load_config(kubeconfig=kubeconfig), user_agent="airunway-tests") as client,
        FaultProxy(kubeconfig) as proxy,
        aiohttp.ClientSession() as http,
    ):
        await install_definitions(client, load_simulator("kaito").custom_resource_definitions())
        await client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        for name, spec in UNUSABLE.items():
            await client.create(MODEL_DEPLOYMENT, deployment(namespace, name, spec))
        async with (
            removed_afterwards(client, ObjectKey("", webhook)),
            process(logs["core"], namespace, proxy.kubeconfig, "controller", *options) as (core, core_probes),
            process(logs["provider"], namespace, proxy.kubeconfig, *KAITO) as (provider, probes),
            running_simulator(kubeconfig, load("kaito"), level="api"),
        ):
            await at_work(http, provider, probes)
            await at_work(http, core, core_probes)
            await live_through(client, namespace, proxy)

            async def complete() -> bool:
                """A sample of every metric, from each process that shows it; some counters of a provider rest.

                The story ends with a cut, which a process notices a moment later.
                """
                pages["core"], pages["provider"] = await get(http, core), await get(http, provider)
                others = {metric.name for metric in METRICS if metric.role is not MetricsRole.EVERY}
                foreign = {metric.name for metric in METRICS if metric.role is MetricsRole.CATALOGUE}
                rest = {"airunway_reconciliation_errors_total"}
                noticed = all("modeldeployments" in cut(page) for page in pages.values())
                return noticed and not unseen(pages["core"]) - foreign and not unseen(pages["provider"]) - others - rest

            await wait_until(complete, otherwise=lambda: {n: (unseen(page), cut(page)) for n, page in pages.items()})
            accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
            async with http.get(core, headers=accept) as answer:
                openmetrics, content_types = await answer.text(), [answer.headers["Content-Type"]]
            async with http.get(core) as answer:
                content_types.append(answer.headers["Content-Type"])
            answers = {path: await probe(http, f"{core_probes}/{path}") for path in ("livez", "readyz")}
            events = await client.list_all(EVENT, namespace=namespace)
            for found in await client.list_all(POD, namespace=namespace):  # no kubelet ends them
                await client.delete(POD, ObjectKey(namespace, found["metadata"]["name"]), grace_seconds=0)
            for found in await client.list_all(MODEL_DEPLOYMENT, namespace=namespace):
                await client.delete(MODEL_DEPLOYMENT, ObjectKey(namespace, found["metadata"]["name"]))

            await client.delete(MODEL_ARTIFACT, ObjectKey(namespace, "weights"))

            async def forgotten() -> bool:
                pages["after"] = await get(http, core)
                return namespace not in pages["after"]

            await wait_until(forgotten, otherwise=lambda: pages["after"])
        await client.delete(NAMESPACE, ObjectKey("", namespace))
    return Seen(
        namespace=namespace,
        canary=CANARY,
        model=SPEC["model"]["id"],
        pages=pages,
        page_after_deletion=pages.pop("after"),
        openmetrics=openmetrics,
        content_types=content_types,
        probes=answers,
        events=events,
        logs={name: [json.loads(line) for line in path.read_text().splitlines()] for name, path in logs.items()},
    )


async def at_work(http: aiohttp.ClientSession, metrics: str, probes: str) -> None:
    """A process that stands by is ready, too: wait until this one leads, and then until it is ready as leader."""

    async def leads() -> bool:
        with suppress(aiohttp.ClientError):
            return 1.0 in samples(await get(http, metrics), "airunway_leader").values()
        return False

    async def ready() -> bool:
        return (await probe(http, f"{probes}/readyz"))[0] == 200

    await wait_until(leads, otherwise=lambda: f"{metrics} shows no leader")
    await wait_until(ready, otherwise=lambda: f"{probes} is not ready")


# ------------------------------------------------------------------------------------------------------- the story


def deployment(namespace: str, name: str, spec: Resource) -> Resource:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": names.API_VERSION, "kind": "ModelDeployment", "metadata": metadata, "spec": spec}


def artifact(namespace: str) -> Resource:
    """One whose claim is made at once; nothing runs its Job here."""
    spec = {"source": {"uri": "hf://acme/tiny"}, "size": "1Gi"}
    metadata = {"name": "weights", "namespace": namespace}
    return {"apiVersion": names.API_VERSION, "kind": "ModelArtifact", "metadata": metadata, "spec": spec}


async def live_through(client: Client, namespace: str, proxy: FaultProxy) -> None:
    """Everything that makes a metric move or an event appear, but for the end of a finalizer's patience."""

    async def create(name: str, **parts: Any) -> ObjectKey:
        spec = {**SPEC, **parts, "env": [{"name": "TOKEN", "value": CANARY}]}
        await client.create(MODEL_DEPLOYMENT, deployment(namespace, name, spec))
        return ObjectKey(namespace, name)

    await be_refused(client, namespace)
    await be_given_no_verdict(client, namespace, proxy)
    for name, fault in TROUBLE.items():
        proxy.inject(replace(fault, verb="apply", resource="modeldeployments", name=f"trouble-{name}"))
        await until(client, await create(f"trouble-{name}", suspend=True), is_suspended, what="Suspended")
    proxy.inject(Fault("status", status=403, reason="Forbidden", verb="create", resource="events"))
    await create("sleeping", suspend=True)

    async def lost() -> bool:
        """Or else the fault would meet an event of the story."""
        return not proxy.pending

    await wait_until(lost, otherwise=lambda: proxy.pending)
    await client.create(MODEL_ARTIFACT, artifact(namespace))
    story = await create("story", provider={"overrides": {"resorce": {"count": 1}}})
    named = await create("named", provider={"name": "kaito"})
    await until(client, story, is_running, what="Running")
    patch = {"metadata": {"labels": {f"{names.GROUP}/team": "red"}}}
    await client.merge_patch(MODEL_DEPLOYMENT, story, patch, manager="user")
    await event_about(client, story, "ResourceUpdated")
    drift = {"metadata": {"labels": {f"{names.GROUP}/team": "blue"}}}
    await client.merge_patch(WORKSPACE, story, drift, manager="somebody")
    await event_about(client, story, "DriftDetected")
    await client.merge_patch(MODEL_DEPLOYMENT, story, {"spec": {"model": {"id": "other/model.gguf"}}}, manager="user")
    await event_about(client, story, "ResourceRecreated")
    await until(client, story, lambda d: is_running(d) and is_current(d), what="Running again")
    broken = {"metadata": {"annotations": {SCENARIO: "degrades:ContainerOOMKilled"}}}
    await client.merge_patch(WORKSPACE, story, broken, manager="somebody")
    await event_about(client, story, "ProviderError")
    await until(client, named, is_running, what="Running")
    await lose_the_status(client, named)
    await until(client, named, is_running, what="Running again")
    # As the gateway part writes it, which is off here.
    share = {"status": {"gateway": {"group": {"name": "chat", "share": 100}}}}
    await client.merge_patch(MODEL_DEPLOYMENT, named, share, subresource="status", manager="gateway")
    await lack_a_secret(client, named)
    await event_about(client, named, "SecretNotFound")
    proxy.cut_all()


async def be_refused(client: Client, namespace: str) -> None:
    """By the webhook; an API server takes a moment to call one that was just configured."""

    async def refused() -> bool:
        try:
            await client.create(MODEL_DEPLOYMENT, deployment(namespace, "refused", INVALID), dry_run=True)
        except Invalid as refusal:
            return CANARY not in str(refusal)
        return False

    await wait_until(refused, otherwise=lambda: "the webhook refuses nothing, or tells the canary")


async def be_given_no_verdict(client: Client, namespace: str, proxy: FaultProxy) -> None:
    """The webhook cannot ask what it has to ask."""
    proxy.inject(Fault("status", status=500, resource="subjectaccessreviews", count=None))
    spec = SPEC | {"provider": {"name": "kaito"}}
    with pytest.raises(ApiError) as failure:
        await client.create(MODEL_DEPLOYMENT, deployment(namespace, "unjudged", spec), dry_run=True)
    assert failure.value.status == 500
    proxy.clear()


async def lose_the_status(client: Client, key: ObjectKey) -> None:
    """As after the restore of a backup, of a time in which the Workspace was of another revision."""
    other = {"metadata": {"annotations": {names.REVISION: "0123456789abcdef"}}}
    await client.merge_patch(WORKSPACE, key, other, manager="restore")
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"status": None}, subresource="status", manager="restore")
    await event_about(client, key, "RevisionMadeAgain")

    async def rewritten() -> bool:
        found = mapping_at(await client.get(MODEL_DEPLOYMENT, key), "status", "revision").get("hash")
        workspace = await client.find(WORKSPACE, key)
        return found is not None and workspace is not None and annotations_of(workspace).get(names.REVISION) == found

    await wait_until(rewritten, otherwise=lambda: "the Workspace is not of the revision that was made again")


async def lack_a_secret(client: Client, key: ObjectKey) -> None:
    """A pod of the deployment as a kubelet would report it: there is no kubelet here."""
    pod = ObjectKey(key.namespace, f"{key.name}-0")
    owner = await client.get(WORKSPACE, key)
    metadata = {
        "name": pod.name,
        "namespace": pod.namespace,
        "labels": {"kaito.sh/workspace": key.name, names.MODEL_DEPLOYMENT: key.name},
        "ownerReferences": [owner_reference(owner)],
    }
    spec = {"containers": [{"name": "model", "image": "example.org/runner:1"}], "nodeName": "nowhere"}
    await client.create(POD, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    waiting = {"reason": "CreateContainerConfigError", "message": 'secret "hf-token" not found'}
    container = {"name": "model", "image": "example.org/runner:1", "imageID": "", "ready": False, "restartCount": 0}
    status = {"phase": "Pending", "containerStatuses": [container | {"state": {"waiting": waiting}}]}
    await client.merge_patch(POD, pod, {"status": status}, subresource="status", manager="kubelet")


# --------------------------------------------------------------------------------------------------------- waiting


async def wait_until(holds: Callable[[], Awaitable[bool]], *, otherwise: Callable[[], object] = lambda: "") -> None:
    """Wait until `holds`; after a minute an AssertionError says `otherwise`."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not await holds():
                await asyncio.sleep(0.1)
    except TimeoutError as error:
        raise AssertionError(f"waited in vain; {otherwise()}") from error


async def probe(http: aiohttp.ClientSession, url: str) -> tuple[int, str]:
    async with http.get(url) as answer:
        return answer.status, await answer.text()


async def get(http: aiohttp.ClientSession, url: str) -> str:
    async with http.get(url) as answer:
        return await answer.text()


def is_running(found: Resource) -> bool:
    return bool(dig(found, "status", "phase") == "Running")


def is_suspended(found: Resource) -> bool:
    return bool(dig(found, "status", "reason") == "Suspended")


def is_current(found: Resource) -> bool:
    return bool(dig(found, "status", "observedGeneration") == found["metadata"]["generation"])
