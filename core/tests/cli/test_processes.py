"""The long-running commands as processes against a real API server: what each of their options does is seen."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
import yaml
from tests.support.reviews import WebhookClient

from airunway.api import names
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_ARTIFACT, MODEL_DEPLOYMENT, MODEL_TEMPLATE
from airunway.kube import CONFIG_MAP, JOB, Client, Kind, NotFound
from airunway.plugins.registry import discover
from airunway.process.effective_settings import published_in
from airunway.resource import ObjectKey, Resource, condition_of, copy_of, dig, key_of
from airunway.webhook import webhook_settings
from airunway.webhook.configuration import CONFIGURATION_KIND
from airunway_testing.controlplane.ports import reserved_ports
from airunway_testing.eventually import PATIENCE, Eventually
from airunway_testing.operator import gone, install_definitions, remove_leftovers, running_core, until
from airunway_testing.simulators import load_simulator
from airunway_testing.toy.names import TOY

pytestmark = pytest.mark.apiserver

LEASE = Kind(group="coordination.k8s.io", version="v1", kind="Lease", plural="leases")
CONTEXT = "other"


@dataclass(frozen=True, kw_only=True)
class Running:
    """A process of ours, its log so far, and where its metrics and probes are (if it was told to have them)."""

    log: Path
    metrics: str
    probes: str

    def lines(self) -> list[Resource]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@pytest.fixture
def two_contexts(kubeconfig: Path, tmp_path: Path) -> Path:
    """A kubeconfig whose current context leads nowhere; the one that works is called `CONTEXT`."""
    document = yaml.safe_load(kubeconfig.read_text())
    current = next(c["context"] for c in document["contexts"] if c["name"] == document["current-context"])
    document["clusters"].append({"name": "nowhere", "cluster": {"server": "https://127.0.0.1:1"}})
    document["contexts"] = [
        {"name": CONTEXT, "context": current},
        {"name": "nowhere", "context": {**current, "cluster": "nowhere"}},
    ]
    document["current-context"] = "nowhere"
    path = tmp_path / "two-contexts.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@asynccontextmanager
async def running(folder: Path, namespace: str, *command: str) -> AsyncIterator[Running]:
    """`airunway COMMAND` from when it is ready until the end of the block; it then ends by itself, with 0."""
    ready, log = folder / "ready", folder / "log"
    with suppress(FileNotFoundError):
        ready.unlink()
    with reserved_ports(2) as (metrics, probes):
        addresses = ["--metrics-bind-address", f"127.0.0.1:{metrics}"]
        addresses += ["--health-probe-bind-address", f"127.0.0.1:{probes}"]
        with log.open("wb") as output:
            process = await asyncio.to_thread(
                subprocess.Popen,
                [sys.executable, "-m", "airunway", *command, *addresses, "--ready-file", str(ready)],
                stdout=output,
                stderr=output,
                env={**os.environ, "POD_NAMESPACE": namespace, "POD_NAME": "pod-0"},
            )
        try:
            deadline = time.monotonic() + 60
            while not ready.exists():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                await asyncio.sleep(0.05)
            yield Running(log=log, metrics=f"http://127.0.0.1:{metrics}", probes=f"http://127.0.0.1:{probes}")
            process.terminate()
            assert await asyncio.to_thread(process.wait, 30) == 0, log.read_text()
        finally:
            process.kill()
            process.wait()


async def fetched(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.text()


def deployment(namespace: str, name: str, **spec: object) -> Resource:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ModelDeployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"model": {"id": "org/model.gguf"}, "resources": {"memory": "8Gi"}, **spec},
    }


async def downloads_of(client: Client, namespace: str, eventually: Eventually) -> tuple[str, list[str]]:
    """The image of the only Job of two artifacts, and the reasons of both once both have one."""
    for name in ("one", "two"):
        body = {
            "apiVersion": names.API_VERSION,
            "kind": MODEL_ARTIFACT.kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"source": {"uri": f"hf://acme/{name}"}, "size": "1Gi"},
        }
        await client.create(MODEL_ARTIFACT, body)

    async def reasons() -> list[str] | None:
        live = await client.list_all(MODEL_ARTIFACT, namespace=namespace)
        found = [str((condition_of(each, "DownloadReady") or {}).get("reason", "")) for each in live]
        return sorted(found) if all(found) else None

    said = await eventually(reasons)
    assert isinstance(said, list)
    (job,) = await client.list_all(JOB, namespace=namespace)
    return job["spec"]["template"]["spec"]["containers"][0]["image"], said


async def test_the_core_does_as_its_options_say(
    client: Client, two_contexts: Path, namespace: str, tmp_path: Path, eventually: Eventually
) -> None:
    await install_definitions(client)
    await remove_leftovers(client)
    key = ObjectKey(namespace, "llama")
    elsewhere = ObjectKey("default", f"llama-{namespace}")
    options = ["--kubeconfig", str(two_contexts), "--context", CONTEXT, "--watch-namespaces", namespace]
    policy = tmp_path / "policy.yaml"
    policy.write_text("rules: [{engines: [llamacpp]}]")
    options += [
        "--policy",
        str(policy),
        "--no-enable-provider-selector",
        "--guard-parameters",
        *("--gateway", "auto", "--gateway-name", "infra/edge", "--gateway-namespaces", "infra,edge"),
        *("--epp-image", "registry.example/picker:tested", "--epp-version", "0.10"),
        *("--model-cache", "on", "--downloader-image", "registry.example/downloader:tested", "--max-downloads", "1"),
        "--leader-elect",
        "--log-level",
        "debug",
        "--log-format",
        "json",
    ]
    await client.create(MODEL_DEPLOYMENT, deployment("default", elsewhere.name, engine={"type": "llamacpp"}))
    registered = ObjectKey("", f"acme-{namespace}")
    config = {"apiVersion": names.API_VERSION, "kind": INFERENCE_PROVIDER_CONFIG.kind}
    await client.create(INFERENCE_PROVIDER_CONFIG, {**config, "metadata": {"name": registered.name}})
    try:
        async with running(tmp_path, namespace, "controller", *options) as core:
            await client.create(MODEL_DEPLOYMENT, deployment(namespace, key.name, engine={"type": "llamacpp"}))
            # The core writes no ProviderSelected: the one who selects does.
            seen = await until(client, key, lambda d: dig(d, "status", "reason") == "NoProviderSelected")
            assert condition_of(seen, "ProviderSelected") is None
            assert dig(seen, "status", "message") == "No provider specified and provider-selector not installed"
            # Somebody else selects, after us: the guards of every provider are told.
            told = await client.get(INFERENCE_PROVIDER_CONFIG, registered)
            assert dig(told, "status", "namespaces") == {namespace: ""}
            gpu = {"memory": "8Gi", "gpu": {"count": 1}}
            await client.create(MODEL_DEPLOYMENT, deployment(namespace, "vllm", engine={"type": "vllm"}, resources=gpu))
            forbidden = ObjectKey(namespace, "vllm")
            seen = await until(client, forbidden, lambda d: condition_of(d, "Validated") is not None)
            assert "engine 'vllm' is not allowed in namespace" in dig(seen, "status", "message")
            # It is another namespace's, and older: had the core looked at it, it would have said something by now.
            assert condition_of(await client.get(MODEL_DEPLOYMENT, elsewhere), "Validated") is None
            leases = await client.list_all(LEASE, namespace=namespace)
            assert [dig(lease, "spec", "holderIdentity") for lease in leases] == ["pod-0", "pod-0", "pod-0"]
            route = next(found for found in published_in(leases) if found.manager == names.GATEWAY_MANAGER).options
            assert (route["gateway"], route["gateway-name"]) == ("auto", "infra/edge")
            assert route["gateway-namespaces"] == "infra,edge"
            assert (route["epp-image"], route["epp-version"]) == ("registry.example/picker:tested", "0.10")
            fetched_by = await downloads_of(client, namespace, eventually)
            # One at a time; no kubelet runs the first one's pod, which its status has as soon as its Job is seen.
            assert fetched_by[0] == "registry.example/downloader:tested"
            assert fetched_by[1] in (["Queued", "Starting"], ["Downloading", "Queued"])
            assert (await fetched(f"{core.probes}/readyz"))[0] == 200
            assert "airunway_modeldeployments" in (await fetched(f"{core.metrics}/metrics"))[1]
            assert "debug" in {line["level"] for line in core.lines()}
    finally:
        await client.delete(MODEL_DEPLOYMENT, elsewhere)
        await client.delete(INFERENCE_PROVIDER_CONFIG, registered)


async def test_an_error_is_all_that_is_logged_at_that_level(
    client: Client, kubeconfig: Path, namespace: str, tmp_path: Path
) -> None:
    await install_definitions(client)
    options = ["--kubeconfig", str(kubeconfig), "--watch-namespaces", namespace, "--log-level", "error"]
    async with running(tmp_path, namespace, "controller", *options, "--enable-provider-selector") as core:
        pass
    assert core.log.read_text() == ""


async def test_the_catalogue_does_as_its_options_say(
    client: Client, two_contexts: Path, namespace: str, tmp_path: Path, eventually: Eventually
) -> None:
    await install_definitions(client)
    options = ["--kubeconfig", str(two_contexts), "--context", CONTEXT, "--watch-namespaces", namespace]
    options += ["--leader-elect", "--log-level", "debug", "--log-format", "json", "--max-discoveries", "1"]
    async with running(tmp_path, namespace, "catalogue", *options) as catalogue:
        discovery = {"image": "registry.example/model:1"}
        for name, where, spec in (
            ("one", namespace, {"discovery": discovery}),
            ("two", namespace, {"discovery": discovery}),
            ("plain", namespace, {}),
            (f"plain-{namespace}", "default", {}),
        ):
            body = {
                "apiVersion": names.API_VERSION,
                "kind": MODEL_TEMPLATE.kind,
                "metadata": {"name": name, "namespace": where},
                "spec": {"modelName": "org/model", **spec},
            }
            await client.create(MODEL_TEMPLATE, body)

        async def phases() -> list[str] | None:
            live = await client.list_all(MODEL_TEMPLATE, namespace=namespace)
            found = [str(dig(each, "status", "reason")) for each in live]
            return sorted(found) if "Queued" in found and "Ready" in found and "JobRunning" in found else None

        try:
            assert await eventually(phases) == ["JobRunning", "Queued", "Ready"]
            assert len(await client.list_all(JOB, namespace=namespace)) == 1
            elsewhere = ObjectKey("default", f"plain-{namespace}")
            assert "status" not in await client.get(MODEL_TEMPLATE, elsewhere)
        finally:
            await client.delete(MODEL_TEMPLATE, ObjectKey("default", f"plain-{namespace}"))
        (lease,) = await client.list_all(LEASE, namespace=namespace)
        assert (key_of(lease).name, dig(lease, "spec", "holderIdentity")) == ("airunway-catalogue", "pod-0")
        (published,) = published_in([lease])
        assert dict(published.options) == {
            "leader-elect": "true",
            "watch-namespaces": namespace,
            "max-discoveries": "1",
        }
        assert await fetched(f"{catalogue.probes}/readyz") == (200, "ok")
        page = (await fetched(f"{catalogue.metrics}/metrics"))[1]
        for series in (
            'airunway_leader{component="airunway-catalogue"} 1.0',
            f'airunway_modeltemplates{{namespace="{namespace}",phase="Ready"}} 1.0',
            'airunway_discoveries{state="running"} 1.0',
            'airunway_discoveries{state="queued"} 1.0',
            'airunway_discovery_attempts_total{result="failed"} 0.0',
            'airunway_workqueue_depth{controller="templates"} 0.0',
        ):
            assert series in page, series
        assert "airunway_modeldeployments" not in page
        assert "debug" in {line["level"] for line in catalogue.lines()}


def with_one_more_field(definition: Resource) -> Resource:
    """A definition with a schema that no provider has seen."""
    changed = copy_of(definition)
    for version in changed["spec"]["versions"]:
        version["schema"]["openAPIV3Schema"].setdefault("properties", {})["unheardOf"] = {"type": "string"}
    return changed


async def test_a_provider_does_as_its_options_say(
    client: Client, kubeconfig: Path, two_contexts: Path, namespace: str, tmp_path: Path
) -> None:
    definitions = load_simulator("toy").custom_resource_definitions()
    await install_definitions(client, [with_one_more_field(definition) for definition in definitions])
    await remove_leftovers(client)
    key = ObjectKey(namespace, "llama")
    wanted = deployment(namespace, "llama", provider={"name": "toy"}, engine={"type": "llamacpp"})
    options = ["--kubeconfig", str(two_contexts), "--context", CONTEXT, "--watch-namespaces", namespace]
    options += ["--leader-elect", "--log-level", "debug", "--log-format", "json"]
    async with running_core(kubeconfig):
        await client.create(MODEL_DEPLOYMENT, wanted)
        command = ("provider", "run", "toy", *options)
        async with running(tmp_path, namespace, *command, "--unknown-schema", "Fail") as provider:
            refused = await until(client, key, lambda d: dig(d, "status", "phase") == "Failed")
            compatible = condition_of(refused, "ProviderCompatible") or {}
            assert (compatible["status"], compatible["reason"]) == ("False", "UnsupportedSchema")
            assert (await fetched(f"{provider.probes}/livez"))[0] == 200
            assert "airunway_" in (await fetched(f"{provider.metrics}/metrics"))[1]
            assert "debug" in {line["level"] for line in provider.lines()}
            assert await client.list_all(LEASE, namespace=namespace)
        # The same upstream, tried by a dry-run, is taken; and a setting reaches what is made of it.
        setting = "greeting=good morning"
        async with running(tmp_path, namespace, *command, "--unknown-schema", "Verify", "--set", setting):
            await until(client, key, lambda d: dig(d, "status", "provider", "resourceName") is not None)
            assert dig(await client.get(TOY, key), "spec", "model") == "org/model.gguf"
            said = [obj.get("data") for obj in await client.list_all(CONFIG_MAP, namespace=namespace)]
            assert {"greeting": "good morning"} in said
            await client.delete(MODEL_DEPLOYMENT, key)
            await gone(client, MODEL_DEPLOYMENT, key)
    await install_definitions(client, definitions)


async def test_everything_in_one_process_does_as_its_options_say(
    client: Client, two_contexts: Path, namespace: str, tmp_path: Path
) -> None:
    """The core's and the providers' together; what is ready, measured and logged is told apart by the part."""
    definitions = [d for name in ("kaito", "toy") for d in load_simulator(name).custom_resource_definitions()]
    await install_definitions(client, definitions)
    await remove_leftovers(client)
    key = ObjectKey(namespace, "llama")
    policy = tmp_path / "policy.yaml"
    policy.write_text("rules: [{engines: [llamacpp]}]")
    options = ["--kubeconfig", str(two_contexts), "--context", CONTEXT, "--watch-namespaces", namespace]
    options += ["--leader-elect", "--log-level", "debug", "--log-format", "json", "--policy", str(policy)]
    options += ["--set", "toy.greeting=good morning", "--set", 'kaito.cpuNodeSelector={"pool": "cheap"}']
    installed = [found.name for found in discover(on_request=True)]
    async with running(tmp_path, namespace, "run", *installed, *options, "--unknown-schema", "Verify") as process:
        wanted = deployment(namespace, "llama", provider={"name": "toy"}, engine={"type": "llamacpp"})
        await client.create(MODEL_DEPLOYMENT, wanted)
        await until(client, key, lambda d: dig(d, "status", "provider", "resourceName") is not None)
        said = [obj.get("data") for obj in await client.list_all(CONFIG_MAP, namespace=namespace)]
        assert {"greeting": "good morning"} in said
        gpu = {"memory": "8Gi", "gpu": {"count": 1}}
        await client.create(MODEL_DEPLOYMENT, deployment(namespace, "vllm", engine={"type": "vllm"}, resources=gpu))
        seen = await until(client, ObjectKey(namespace, "vllm"), lambda d: condition_of(d, "Validated") is not None)
        assert "engine 'vllm' is not allowed in namespace" in dig(seen, "status", "message")
        assert {"kaito", "toy"} <= set(installed)
        parts = ["airunway-controller", "airunway-gateway", "airunway-model-cache"]
        parts += [f"airunway-provider-{name}" for name in installed]
        leases = await client.list_all(LEASE, namespace=namespace)
        assert sorted(dig(lease, "metadata", "name") for lease in leases) == parts
        assert await fetched(f"{process.probes}/readyz") == (200, "ok")
        page = (await fetched(f"{process.metrics}/metrics"))[1]
        for part in parts:
            assert f'airunway_leader{{component="{part}"}} 1.0' in page
        for controller in ("core", "configs", "provider-kaito", "provider-toy"):
            assert f'airunway_workqueue_depth{{controller="{controller}"}}' in page
        assert set(parts) <= {line.get("part") for line in process.lines()}
        await client.delete(MODEL_DEPLOYMENT, key)
        await gone(client, MODEL_DEPLOYMENT, key)


async def test_all_providers_run_without_the_core(
    client: Client, kubeconfig: Path, namespace: str, tmp_path: Path
) -> None:
    """But for those that run only where they are named (author-review, finding 15)."""
    definitions = [d for name in ("kaito", "toy") for d in load_simulator(name).custom_resource_definitions()]
    await install_definitions(client, definitions)
    await remove_leftovers(client)
    options = ["--kubeconfig", str(kubeconfig), "--watch-namespaces", namespace]
    async with running(tmp_path, namespace, "provider", "run", "--all", *options) as process:
        assert dig(await client.get(CONFIG, ObjectKey("", "kaito")), "status", "ready") is True
        assert "toy" not in [key_of(found).name for found in await client.list_all(CONFIG)]
        page = (await fetched(f"{process.metrics}/metrics"))[1]
        assert "airunway_modeldeployments" not in page


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("--webhook-access-review", "cannot create httproutes"),
        ("--webhook-access-review-routes", "cannot create httproutes"),
        ("--no-webhook-access-review-routes", "cannot create configmaps"),
        ("--no-webhook-access-review", ""),
        ("--webhook-access-review-pods", "cannot create pods"),
    ],
)
async def test_the_webhook_does_as_its_options_say(
    client: Client, kubeconfig: Path, namespace: str, tmp_path: Path, option: str, says: str
) -> None:
    """Its Secret has the name that it was given, and rights of users are looked at or not."""
    await install_definitions(client)
    await remove_leftovers(client)
    with reserved_ports(1) as (port,):
        place = webhook_settings(
            bind_address=f"127.0.0.1:{port}", url=f"https://127.0.0.1:{port}", namespace=namespace, secret="my-tls"
        )
        assert place is not None
        options = ["--kubeconfig", str(kubeconfig), "--watch-namespaces", namespace]
        options += ["--webhook-bind-address", place.bind_address, "--webhook-url", f"https://127.0.0.1:{port}"]
        options += ["--webhook-configuration", f"hook-{namespace}", "--webhook-manage-configuration"]
        options += ["--webhook-secret", "my-tls"]
        options += [option]
        provider = await registered(client, namespace)
        try:
            async with (
                running(tmp_path, namespace, "controller", *options),
                WebhookClient(client, place) as webhook,
            ):
                wanted = deployment(
                    namespace,
                    "llama",
                    engine={"type": "llamacpp"},
                    provider={"name": provider},
                    gateway={"enabled": True},
                )
                problems = await webhook.problems(wanted, user="nobody", groups=())
                assert says in str(problems)
                assert len(problems) == bool(says)
        finally:
            for kind, name in ((CONFIGURATION_KIND, f"hook-{namespace}"), (CONFIG, provider)):
                with suppress(NotFound):
                    await client.delete(kind, ObjectKey("", name))


async def test_a_simulated_operator_does_as_its_options_say(client: Client, two_contexts: Path, namespace: str) -> None:
    await install_definitions(client, load_simulator("toy").custom_resource_definitions())
    key = ObjectKey(namespace, "played")
    toy = {
        "apiVersion": TOY.api_version,
        "kind": TOY.kind,
        "metadata": {"name": key.name, "namespace": namespace},
        "spec": {"model": "org/model"},
    }
    await client.create(TOY, toy)
    options = ["--kubeconfig", str(two_contexts), "--context", CONTEXT]
    options += ["--level", "api", "--scenario", "fails:Unschedulable"]
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "airunway", "simulate", "toy", *options)
    try:
        async with asyncio.timeout(PATIENCE):
            while (condition_of(await client.get(TOY, key), "Ready") or {}).get("reason") != ("Unschedulable"):
                assert process.returncode is None
                await asyncio.sleep(0.1)
        process.terminate()
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
        await client.delete(TOY, key)


@pytest.mark.parametrize("together", [True, False])
def test_a_sandbox_on_a_cluster_that_is_there(two_contexts: Path, tmp_path: Path, *, together: bool) -> None:
    """With the upstream's CRDs out of a directory; it leaves its logs where that is asked for, and nothing else."""
    crds = tmp_path / "crds"
    crds.mkdir()
    options = [
        "--kubeconfig",
        str(two_contexts),
        "--context",
        CONTEXT,
        "--level",
        "api",
        "--keep",
        "--providers",
        "toy",
        "--patience",
        "300",
        "--together" if together else "--apart",
        "--no-gateway",
    ]
    command = [sys.executable, "-m", "airunway", "sandbox", *options, "--upstream-crds", str(crds)]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    empty = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert empty.returncode == 1
    assert f"{crds} has no CustomResourceDefinition of" in empty.stderr
    (crds / "toy.yaml").write_text(yaml.safe_dump_all(load_simulator("toy").custom_resource_definitions()))
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            told: list[str] = []
            while "Ctrl-C stops everything" not in (told or [""])[-1]:
                told.append(process.stdout.readline())
                assert told[-1], told  # it has ended
        finally:
            process.terminate()
            rest = process.stdout.read() if process.stdout is not None else ""
    assert process.returncode == 0, rest
    assert f"Using the cluster of {two_contexts}" in told[0]
    (logs,) = tmp_path.glob("airunway-sandbox-*/logs")
    written = {path.stem for path in logs.iterdir() if path.stat().st_size}
    assert written & {"airunway", "controller", "provider-toy"} == (
        {"airunway"} if together else {"controller", "provider-toy"}
    )


CONFIG = Kind(
    group=names.GROUP,
    version=names.VERSION,
    kind="InferenceProviderConfig",
    plural="inferenceproviderconfigs",
    namespaced=False,
)


async def registered(client: Client, namespace: str) -> str:
    """A provider that makes ConfigMaps, ready."""
    name = f"acme-{namespace}"
    head = {"apiVersion": names.API_VERSION, "kind": CONFIG.kind, "metadata": {"name": name}}
    engines = [{"name": "llamacpp", "cpuSupport": True, "servingModes": ["aggregated"]}]
    upstream = [{"group": "", "kind": "ConfigMap", "versions": ["v1"], "requiresCRD": False}]
    spec = {"capabilities": {"engines": engines}, "upstream": upstream}
    await client.apply(CONFIG, {**head, "spec": spec}, manager="test")
    await client.apply(CONFIG, {**head, "status": {"ready": True}}, manager="test", subresource="status")
    return name
