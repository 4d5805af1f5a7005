"""Core and provider as processes, through everything that there is to report: every metric and event is really seen,
log lines say what they are about, and no value of a deployment's environment turns up anywhere.
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
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import EVENT, NAMESPACE, POD, Client, Invalid, NotFound, load_config
from airunway.plugins.registry import load
from airunway.process.metric_catalogue import ERROR_TYPES, METRICS, PROCESS_METRICS, Role
from airunway.resource import ObjectKey, Resource, copy_of, dig, owner_reference
from airunway.status.events import EVENTS
from airunway.testing.controlplane import Cluster
from airunway.testing.faultproxy import FaultProxy
from airunway.testing.operator import install_definitions, running_core, running_provider, running_simulator, until
from airunway.testing.simulators import SIMULATORS
from airunway.testing.simulators.kaito.kinds import WORKSPACE
from airunway.testing.simulators.kaito.names import SCENARIO
from airunway.webhook.configuration import CONFIGURATION_KIND

pytestmark = pytest.mark.apiserver

CANARY = "canary-5f0c2e-must-not-be-told"
PATIENCE = 60.0
SPECIAL = {"FinalizerTimeout", "UnverifiedSchema"}
"""Events that need a world of their own, and have a test of their own."""

SPEC: Resource = {
    "model": {"id": "google/gemma-3-1b-it-qat-q8_0-gguf/gemma-3-1b-it-q8_0.gguf"},
    "engine": {"type": "llamacpp"},
    "resources": {"memory": "16Gi", "cpu": "8"},
    "image": "ghcr.io/sozercan/llama-cpp-runner:latest",
}


INVALID: Resource = {
    "apiVersion": names.API_VERSION,
    "kind": "ModelDeployment",
    "spec": SPEC | {"provider": {"overrides": {"securityContext": {"secret": CANARY}}}},
}


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What was there to see: pages of metrics by component, events, log lines by component."""

    namespace: str
    pages: dict[str, str]
    page_after_deletion: str
    openmetrics: str
    content_types: list[str]
    probes: list[tuple[int, str]]
    events: list[Resource]
    logs: dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def seen(control_plane: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return asyncio.run(see(control_plane.kubeconfig, tmp_path_factory.mktemp("observed")))


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@asynccontextmanager
async def process(
    folder: Path, namespace: str, kubeconfig: Path, name: str, *command: str
) -> AsyncIterator[tuple[str, str]]:
    """A command of ours as a process, logging JSON into a file; gives the URLs of its metrics and probes."""
    metrics, probes = (f"127.0.0.1:{free_port()}" for _ in range(2))
    options = ["--kubeconfig", str(kubeconfig), "--leader-elect", "--log-format", "json", "--log-level", "debug"]
    options += ["--metrics-bind-address", metrics, "--health-probe-bind-address", probes]
    with (folder / f"{name}.log").open("wb") as log:
        running = await asyncio.to_thread(
            subprocess.Popen,
            [sys.executable, "-m", "airunway", *command, *options],
            stderr=log,
            stdout=log,
            env={**os.environ, "POD_NAMESPACE": namespace, "POD_NAME": name},
        )
        try:
            yield f"http://{metrics}/metrics", f"http://{probes}"
        finally:
            running.terminate()
            await asyncio.to_thread(running.wait, 30)


async def see(kubeconfig: Path, folder: Path) -> Seen:
    namespace = f"seen-{uuid.uuid4().hex[:8]}"
    kaito = load("kaito")
    pages: dict[str, str] = {}
    webhook = f"airunway-webhook-{namespace}"
    hook = f"127.0.0.1:{free_port()}"
    options = ["--watch-namespaces", namespace, "--webhook-bind-address", hook, "--webhook-url", f"https://{hook}"]
    options += ["--webhook-configuration", webhook, "--webhook-manage-configuration"]
    async with (
        Client(load_config(kubeconfig=kubeconfig), user_agent="airunway-tests") as client,
        FaultProxy(kubeconfig) as proxy,
        aiohttp.ClientSession() as http,
    ):
        await install_definitions(client, SIMULATORS["kaito"].custom_resource_definitions())
        await client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        await client.create(MODEL_DEPLOYMENT, INVALID | {"metadata": {"name": "invalid", "namespace": namespace}})
        async with (
            removed_afterwards(client, ObjectKey("", webhook)),
            process(folder, namespace, proxy.kubeconfig, "core", "controller", *options) as (core, core_probes),
            process(folder, namespace, proxy.kubeconfig, "provider", "provider", "run", "kaito") as (provider, _),
            running_simulator(kubeconfig, kaito, level="api"),
        ):
            await eventually(lambda: ready(http, core_probes))
            await live_through(client, namespace, proxy)

            async def complete() -> bool:
                pages["core"], pages["provider"] = await get(http, core), await get(http, provider)
                return not unseen(pages["core"] + pages["provider"])

            await eventually(complete, otherwise=lambda: unseen(pages["core"] + pages["provider"]))
            accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
            async with http.get(core, headers=accept) as answer:
                openmetrics, content_types = await answer.text(), [answer.headers["Content-Type"]]
            async with http.get(core) as answer:
                content_types.append(answer.headers["Content-Type"])
            probes = [await probe(http, f"{core_probes}/{path}") for path in ("livez", "readyz")]
            events = await client.list_all(EVENT, namespace=namespace)
            for deployment in await client.list_all(MODEL_DEPLOYMENT, namespace=namespace):
                await client.delete(MODEL_DEPLOYMENT, ObjectKey(namespace, deployment["metadata"]["name"]))

            async def forgotten() -> bool:
                pages["after"] = await get(http, core)
                return namespace not in pages["after"]

            await eventually(forgotten)
        await client.delete(NAMESPACE, ObjectKey("", namespace))
    logs = {
        name: [json.loads(line) for line in (folder / f"{name}.log").read_text().splitlines() if line]
        for name in ("core", "provider")
    }
    after = pages.pop("after")
    return Seen(
        namespace=namespace,
        pages=pages,
        page_after_deletion=after,
        openmetrics=openmetrics,
        content_types=content_types,
        probes=probes,
        events=events,
        logs=logs,
    )


@asynccontextmanager
async def removed_afterwards(client: Client, webhook: ObjectKey) -> AsyncIterator[None]:
    """Without its process, a webhook's configuration would have every deployment of its namespaces refused."""
    try:
        yield
    finally:
        with suppress(NotFound):
            await client.delete(CONFIGURATION_KIND, webhook)


async def live_through(client: Client, namespace: str, proxy: FaultProxy) -> None:
    """Everything that makes a metric move or an event appear, but for the end of a finalizer's patience."""

    async def create(name: str, **parts: Any) -> ObjectKey:
        spec = {**SPEC, **parts, "env": [{"name": "TOKEN", "value": CANARY}]}
        metadata = {"name": name, "namespace": namespace}
        manifest = {"apiVersion": names.API_VERSION, "kind": "ModelDeployment", "metadata": metadata, "spec": spec}
        await client.create(MODEL_DEPLOYMENT, manifest)
        return ObjectKey(namespace, name)

    story = await create("story", provider={"overrides": {"resorce": {"count": 1}}})
    named = await create("named", provider={"name": "kaito"})
    await create("sleeping", suspend=True)
    with pytest.raises(Invalid) as refusal:  # by the webhook; the one that is there was made before it
        await create("refused", **INVALID["spec"])
    assert CANARY not in str(refusal.value)
    await until(client, story, is_running, what="Running")
    patch = {"metadata": {"labels": {f"{names.GROUP}/team": "red"}}}
    await client.merge_patch(MODEL_DEPLOYMENT, story, patch, manager="user")
    await told(client, story, "ResourceUpdated")
    drift = {"metadata": {"labels": {f"{names.GROUP}/team": "blue"}}}
    await client.merge_patch(WORKSPACE, story, drift, manager="somebody")
    await told(client, story, "DriftDetected")
    await client.merge_patch(MODEL_DEPLOYMENT, story, {"spec": {"model": {"id": "other/model.gguf"}}}, manager="user")
    await told(client, story, "ResourceRecreated")
    await until(client, story, lambda d: is_running(d) and current(d), what="Running again")
    broken = {"metadata": {"annotations": {SCENARIO: "degrades:ContainerOOMKilled"}}}
    await client.merge_patch(WORKSPACE, story, broken, manager="somebody")
    await told(client, story, "ProviderError")
    await until(client, named, is_running, what="Running")
    await lack_a_secret(client, named)
    await told(client, named, "SecretNotFound")
    proxy.cut_all()


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
    reason, message = "CreateContainerConfigError", 'secret "hf-token" not found'
    container = {
        "name": "model",
        "image": "example.org/runner:1",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {"waiting": {"reason": reason, "message": message}},
    }
    status = {"status": {"phase": "Pending", "containerStatuses": [container]}}
    await client.merge_patch(POD, pod, status, subresource="status", manager="kubelet")


async def eventually(holds: Callable[[], Awaitable[bool]], *, otherwise: Callable[[], object] = lambda: "") -> None:
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


async def ready(http: aiohttp.ClientSession, probes: str) -> bool:
    try:
        return (await probe(http, f"{probes}/readyz"))[0] == 200
    except aiohttp.ClientError:
        return False


async def get(http: aiohttp.ClientSession, url: str) -> str:
    async with http.get(url) as answer:
        return await answer.text()


async def gone(client: Client, key: ObjectKey) -> bool:
    try:
        await client.get(MODEL_DEPLOYMENT, key)
    except NotFound:
        return True
    return False


async def told(client: Client, key: ObjectKey, reason: str) -> Resource:
    """The event with that reason about the deployment, once it is there."""
    found: list[Resource] = []

    async def there() -> bool:
        events = await client.list_all(EVENT, namespace=key.namespace)
        found[:] = [e for e in events if e["reason"] == reason and dig(e, "regarding", "name") == key.name]
        return bool(found)

    await eventually(there, otherwise=lambda: f"no event {reason} about {key}")
    return found[0]


def is_running(deployment: Resource) -> bool:
    return bool(dig(deployment, "status", "phase") == "Running")


def current(deployment: Resource) -> bool:
    return bool(dig(deployment, "status", "observedGeneration") == deployment["metadata"]["generation"])


def unseen(page: str) -> list[str]:
    """Metrics that have no sample on a page."""
    names_of = [(metric.name, metric.series) for metric in METRICS] + [(name, (name,)) for name in PROCESS_METRICS]
    return [
        name
        for name, series in names_of
        if not all(re.search(rf"^{one}(\{{| )", page, flags=re.MULTILINE) for one in series)
    ]


def samples(page: str, name: str) -> dict[str, float]:
    """The samples of a metric: value by the text of the labels."""
    found = re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", page, flags=re.MULTILINE)
    return {labels: float(value) for labels, value in found}


def test_every_metric_is_seen(seen: Seen) -> None:
    assert unseen(seen.pages["core"]) == []
    quiet = {"airunway_reconciliation_errors_total"}  # no pass of the provider need have failed
    assert set(unseen(seen.pages["provider"])) - quiet == {m.name for m in METRICS if m.role is Role.CORE}


def test_what_the_metrics_say(seen: Seen) -> None:
    core = seen.pages["core"]
    assert samples(core, "airunway_leader") == {'component="airunway-controller"': 1.0}
    assert samples(core, "airunway_provider_ready") == {'provider="kaito"': 1.0}
    info = f'engine="llamacpp",model="{SPEC["model"]["id"]}",name="named",namespace="{seen.namespace}",provider="kaito"'
    ours = {tuple(sorted(labels.split(","))) for labels in samples(core, "airunway_modeldeployment_info")}
    assert tuple(sorted(info.split(","))) in ours
    errors = samples(core, "airunway_reconciliation_errors_total")
    types = {label for text in errors for label in re.findall(r'error_type="(\w+)"', text)}
    assert "validation" in types
    assert types <= set(ERROR_TYPES)
    reasons = {label for text in samples(core, "airunway_provider_selection_total") for label in text.split(",")}
    assert {'reason="auto"', 'reason="manual"', 'provider="kaito"'} <= reasons
    reviews = samples(core, "airunway_webhook_requests_total")
    assert reviews['verdict="allowed"'] >= 3
    assert reviews['verdict="refused"'] >= 1  # an API server may ask again
    assert samples(core, "airunway_deployment_suspended") == {f'name="sleeping",namespace="{seen.namespace}"': 1.0}
    results = samples(seen.pages["provider"], "airunway_reconcile_total")
    assert results['controller="provider-kaito",result="error"'] == 0.0
    assert results['controller="provider-kaito",result="success"'] > 0.0
    requests = samples(core, "airunway_api_requests_total")
    assert requests['code="200",resource="modeldeployments/status",verb="apply"'] > 0.0


def test_what_is_about_an_object_goes_away_with_it(seen: Seen) -> None:
    assert f'namespace="{seen.namespace}"' in seen.pages["core"]
    assert seen.namespace not in seen.page_after_deletion


def test_openmetrics_is_spoken_where_it_is_asked_for(seen: Seen) -> None:
    openmetrics, plain = seen.content_types
    assert openmetrics.startswith("application/openmetrics-text; version=1.0.0")
    assert plain.startswith("text/plain")
    parsed = text_string_to_metric_families(seen.openmetrics)  # type: ignore[no-untyped-call]
    families = {family.name for family in parsed}
    assert {metric.name.removesuffix("_total") for metric in METRICS} <= {f.removesuffix("_total") for f in families}


def test_the_probes_say_ok(seen: Seen) -> None:
    assert seen.probes == [(200, "ok"), (200, "ok")]


@pytest.mark.parametrize("reason", sorted(EVENTS.keys() - SPECIAL))
def test_every_event_is_seen(seen: Seen, reason: str) -> None:
    found = [event for event in seen.events if event["reason"] == reason]
    assert found, sorted({event["reason"] for event in seen.events})
    registered = EVENTS[reason]
    reporter = registered.emitter.value.replace("<name>", "kaito")
    pattern = ".+".join(re.escape(part) for part in re.split(r"<[^>]+>", registered.note))
    for event in found:
        assert event["type"] == registered.type
        assert event["reportingController"] == f"{names.GROUP}/{reporter}"
        assert re.match(pattern, event["note"]), event["note"]


def test_no_event_is_unknown(seen: Seen) -> None:
    assert {event["reason"] for event in seen.events} <= set(EVENTS)


def test_log_lines_of_a_pass_say_what_they_are_about(seen: Seen) -> None:
    for component, controller in (("core", "core"), ("provider", "provider-kaito")):
        lines = [line for line in seen.logs[component] if line.get("controller") == controller]
        assert lines, f"no line of a pass in the log of {component}"
        for line in lines:
            assert {"ts", "level", "logger", "msg", "controller", "object", "reconcile_id"} <= line.keys()
        # Other tests may have left deployments on the same API server: theirs are worked on, too.
        assert any(line["object"].startswith(f"{seen.namespace}/") for line in lines)
        assert all(line["provider"] == "kaito" for line in lines if component == "provider")


def test_no_value_of_an_environment_is_told(seen: Seen) -> None:
    for name, page in seen.pages.items():
        assert CANARY not in page, name
    for event in seen.events:
        assert CANARY not in json.dumps(event)
    for component, lines in seen.logs.items():
        assert lines
        for line in lines:
            assert CANARY not in json.dumps(line), component


async def test_a_finalizer_that_times_out_is_told(kubeconfig: Path, client: Client, namespace: str) -> None:
    """With a provider whose clock is ten minutes ahead, so that its patience is over at once."""
    kaito = load("kaito")
    await install_definitions(client, SIMULATORS["kaito"].custom_resource_definitions())
    key = ObjectKey(namespace, "stuck")
    manifest = {
        "apiVersion": names.API_VERSION,
        "kind": "ModelDeployment",
        "metadata": {"name": key.name, "namespace": namespace},
        "spec": SPEC,
    }
    async with (
        running_core(kubeconfig),
        running_provider(kubeconfig, kaito, clock=lambda: datetime.now(UTC) + timedelta(minutes=10)),
        running_simulator(kubeconfig, kaito, level="api"),
    ):
        await client.create(MODEL_DEPLOYMENT, manifest)
        await until(client, key, is_running, what="Running")
        hold = {"metadata": {"finalizers": ["example.org/hold"]}}
        await client.merge_patch(WORKSPACE, key, hold, manager="somebody")
        await client.delete(MODEL_DEPLOYMENT, key)
        event = await told(client, key, "FinalizerTimeout")
        await eventually(lambda: gone(client, key))
    assert event["type"] == EVENTS["FinalizerTimeout"].type
    assert "Workspace" in event["note"]
    assert "orphaned" in event["note"]
    await client.merge_patch(WORKSPACE, key, {"metadata": {"finalizers": []}}, manager="somebody")


async def test_a_schema_that_nobody_knows_is_told(kubeconfig: Path, client: Client, namespace: str) -> None:
    kaito = load("kaito")
    definitions = SIMULATORS["kaito"].custom_resource_definitions()
    newer = copy_of(next(crd for crd in definitions if dig(crd, "spec", "names", "kind") == WORKSPACE.kind))
    for version in newer["spec"]["versions"]:
        version["schema"]["openAPIV3Schema"]["properties"]["fromTheFuture"] = {"type": "string"}
    key = ObjectKey(namespace, "early")
    manifest = {
        "apiVersion": names.API_VERSION,
        "kind": "ModelDeployment",
        "metadata": {"name": key.name, "namespace": namespace},
        "spec": SPEC,
    }
    await install_definitions(client, [newer])
    try:
        async with running_core(kubeconfig), running_provider(kubeconfig, kaito):
            await client.create(MODEL_DEPLOYMENT, manifest)
            event = await told(client, key, "UnverifiedSchema")
            await client.delete(MODEL_DEPLOYMENT, key)
            await eventually(lambda: gone(client, key))
    finally:
        await install_definitions(client, definitions)
    assert event["type"] == EVENTS["UnverifiedSchema"].type
    assert "does not know" in event["note"]
