"""The real Kueue beside core and providers on a cluster (``-m kueue``).

``AIRUNWAY_KUEUE_BINARY`` names its manager, ``AIRUNWAY_KUEUE_MANIFESTS`` the folder ``config/components`` of its source
(CRDs and webhooks). The manager runs on this machine, so its webhooks have addresses there.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import ipaddress
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TypeAlias

import aiohttp
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from tests.modelcache.conftest import running_part
from tests.support.rights import applied, granted

from airunway.api import names
from airunway.controller.application import CoreSettings
from airunway.controller.policies import PolicyFile
from airunway.kinds import MODEL_ARTIFACT
from airunway.kube import NAMESPACE, Client, Kind, NotFound, load_config
from airunway.plugins.registry import load
from airunway.rbac.admission_policies import model_cache_guard, provider_guard
from airunway.rbac.rights import core_rights, model_cache_rights, provider_rights
from airunway.resource import ObjectKey, Resource, condition_of, dig, key_of
from airunway.runtime.application import ProviderSettings
from airunway_testing.controlplane import Cluster
from airunway_testing.controlplane.ports import reserved_ports
from airunway_testing.eventually import eventually
from airunway_testing.operator import (
    Deploy,
    deployments,
    install_definitions,
    remove_definition,
    remove_leftovers,
    running_core,
    running_provider,
    running_simulator,
)
from airunway_testing.simulators import load_simulator

BINARY, MANIFESTS = "AIRUNWAY_KUEUE_BINARY", "AIRUNWAY_KUEUE_MANIFESTS"
GROUP, VERSION, HOME = "kueue.x-k8s.io", "v1beta2", "kueue-system"
FLAVOR = Kind(GROUP, VERSION, "ResourceFlavor", "resourceflavors", namespaced=False)
CLUSTER_QUEUE = Kind(GROUP, VERSION, "ClusterQueue", "clusterqueues", namespaced=False)
LOCAL_QUEUE = Kind(GROUP, VERSION, "LocalQueue", "localqueues")
PRIORITY = Kind(GROUP, VERSION, "WorkloadPriorityClass", "workloadpriorityclasses", namespaced=False)
WORKLOAD = Kind(GROUP, VERSION, "Workload", "workloads")
SECRET = Kind("", "v1", "Secret", "secrets")
_ADMISSION = "admissionregistration.k8s.io"
HOOKS = {
    kind: Kind(_ADMISSION, "v1", kind, f"{kind.lower()}s", namespaced=False)
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
}
SERVICE, CERTIFICATE = "kueue-webhook-service", "kueue-webhook-server-cert"
CONVERTED = ("clusterqueues", "cohorts", "localqueues", "multikueueclusters", "workloads")
Queue: TypeAlias = Callable[..., Awaitable[None]]
FRAMEWORKS = ["batch/job", "pod", "deployment", "statefulset", "leaderworkerset.x-k8s.io/leaderworkerset"]


def made(kind: Kind, name: str, namespace: str = "", **fields: object) -> Resource:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **fields}


def certificate() -> dict[str, bytes]:
    """Files of a certificate that is its own authority, for Kueue's Service and this machine (it reads PKCS #1)."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kueue-ca")])
    now = datetime.datetime.now(datetime.UTC)
    hosts = [x509.DNSName("kueue-ca"), x509.DNSName(f"{SERVICE}.{HOME}.svc")]
    signed = (
        x509.CertificateBuilder(subject_name=name, issuer_name=name, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=365))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([*hosts, x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    return {"tls.crt": signed, "tls.key": secret, "ca.crt": signed, "ca.key": secret}


def definitions(manifests: Path, url: str, authority: str) -> list[Resource]:
    """Kueue's CRDs, whose conversion is at `url`."""
    found = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(manifests.glob("crd/bases/*.yaml"))]
    for definition in found:
        if definition["spec"]["names"]["plural"] in CONVERTED:
            definition["spec"]["conversion"] = {
                "strategy": "Webhook",
                "webhook": {
                    "clientConfig": {"url": f"{url}/convert", "caBundle": authority},
                    "conversionReviewVersions": ["v1"],
                },
            }
    return found


def webhooks(manifests: Path, url: str, authority: str, namespace: str) -> list[Resource]:
    """Kueue's webhooks at `url`, for one namespace and for objects of the cluster."""
    found = list(yaml.safe_load_all((manifests / "webhook/manifests.yaml").read_text(encoding="utf-8")))
    for configuration in found:
        configuration["metadata"]["name"] = f"kueue-{configuration['metadata']['name']}"
        for hook in configuration["webhooks"]:
            path = dig(hook, "clientConfig", "service", "path")
            hook["clientConfig"] = {"url": f"{url}{path}", "caBundle": authority}
            hook["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    return found


def configuration(*, port: int, health: int, folder: Path) -> Resource:
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": HOME,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(folder)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": True, "webhookServiceName": SERVICE, "webhookSecretName": CERTIFICATE},
        "integrations": {"frameworks": FRAMEWORKS},
        "featureGates": {"VisibilityOnDemand": False},
    }


@pytest.fixture
async def kueue(kubeconfig: Path, client: Client, namespace: str, tmp_path: Path) -> AsyncIterator[None]:
    """Kueue's manager with its CRDs and webhooks, for the namespace of the test."""
    binary, folder = os.environ.get(BINARY, ""), os.environ.get(MANIFESTS, "")
    if not (binary and folder):
        pytest.skip(f"{BINARY} and {MANIFESTS} name no Kueue")
    assert os.access(binary, os.X_OK), f"{BINARY}={binary} is no program"
    files = certificate()
    authority = base64.b64encode(files["ca.crt"]).decode()
    with reserved_ports(2) as (port, health):
        url = f"https://127.0.0.1:{port}"
        found = definitions(Path(folder), url, authority)
        assert found, f"{MANIFESTS}={folder} has no CRDs in crd/bases"
        await install_definitions(
            client,
            [
                *found,
                *load_simulator("llmd").custom_resource_definitions(),
                *load_simulator("vllm").custom_resource_definitions(),
            ],
        )
        await client.apply(NAMESPACE, made(NAMESPACE, HOME), manager="test")
        for name, content in files.items():
            (tmp_path / name).write_bytes(content)
        data = {name: base64.b64encode(content).decode() for name, content in files.items()}
        await client.apply(SECRET, made(SECRET, CERTIFICATE, HOME, data=data), manager="test", force=True)
        hooks = webhooks(Path(folder), url, authority, namespace)
        settings = tmp_path / "kueue.yaml"
        settings.write_text(yaml.safe_dump(configuration(port=port, health=health, folder=tmp_path)), encoding="utf-8")
        with (tmp_path / "kueue.log").open("wb") as log:
            for hook in hooks:
                await client.apply(HOOKS[hook["kind"]], hook, manager="test", force=True)
            process = await asyncio.create_subprocess_exec(
                binary,
                f"--config={settings}",
                env={**os.environ, "KUBECONFIG": str(kubeconfig)},
                stdout=log,
                stderr=log,
            )
            try:
                await eventually(lambda: answers(process, f"http://127.0.0.1:{health}/readyz", tmp_path / "kueue.log"))
                yield
            finally:
                await eventually(lambda: is_empty(client, namespace))
                for hook in hooks:
                    await client.delete(HOOKS[hook["kind"]], key_of(hook))
                for definition in found:  # Kueue converts its objects as long as they are there
                    await remove_definition(client, key_of(definition).name)
                with suppress(ProcessLookupError):
                    process.terminate()
                await process.wait()
                with suppress(NotFound):
                    await client.delete(SECRET, ObjectKey(HOME, CERTIFICATE))


async def is_empty(client: Client, namespace: str) -> bool:
    """Whether Kueue has let go of all that was in its queues."""
    return not await client.list_all(WORKLOAD, namespace=namespace)


async def answers(process: asyncio.subprocess.Process, url: str, log: Path) -> bool:
    assert process.returncode is None, log.read_text(encoding="utf-8")[-3000:]
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status == 200
    except aiohttp.ClientConnectionError:
        return False


@pytest.fixture
async def queue(kueue: None, client: Client, namespace: str) -> Queue:
    """``await queue(gpus)`` makes the queue `team` with that quota and the priority class `urgent`."""

    async def make(gpus: int, *, name: str = "team") -> None:
        quotas = {"cpu": "1000", "memory": "10Ti", "nvidia.com/gpu": str(gpus)}
        resources = [{"name": name, "nominalQuota": quota} for name, quota in quotas.items()]
        covered = {"coveredResources": [*quotas], "flavors": [{"name": "any", "resources": resources}]}
        spec = {
            "namespaceSelector": {},
            "resourceGroups": [covered],
            "preemption": {"withinClusterQueue": "LowerPriority"},
        }
        await client.create(FLAVOR, made(FLAVOR, "any"))
        await client.create(CLUSTER_QUEUE, made(CLUSTER_QUEUE, "gpus", spec=spec))
        await client.create(LOCAL_QUEUE, made(LOCAL_QUEUE, name, namespace, spec={"clusterQueue": "gpus"}))

        async def is_known() -> bool:
            live = await client.get(LOCAL_QUEUE, ObjectKey(namespace, name))
            return condition_of(live, "Active") is not None

        await eventually(is_known)
        await client.create(PRIORITY, made(PRIORITY, "urgent", value=1000))

    return make


@pytest.fixture
async def deploy(
    kubeconfig: Path, cluster: Cluster, kueue: None, client: Client, namespace: str, tmp_path: Path
) -> AsyncIterator[Deploy]:
    """Creates a deployment. Core, guarded providers and the LeaderWorkerSet controller run as long as the test."""
    await remove_leftovers(client)
    policy = tmp_path / "policy.yaml"
    policy.write_text('rules: [{workloadLabels: ["kueue.x-k8s.io/*"]}]', encoding="utf-8")
    home = namespace.replace("test-", "home-")
    settings = CoreSettings(guard_parameters=home, policy=PolicyFile(policy), namespaces=(namespace,))
    base = {"model": {"id": "meta-llama/Llama-3.1-8B-Instruct"}}
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        await enter(running_core(kubeconfig, settings=settings))
        for host in (load("vllm"), load("llmd")):
            user = f"system:serviceaccount:{home}:{names.provider_manager(host.name)}"
            guard = provider_guard(host.manifest, user, own=home, name=f"guard-{host.name}-{namespace}")
            await enter(granted(client, provider_rights(host.manifest), user=user, namespace=namespace))
            await enter(applied(client, guard))
            own = ProviderSettings(namespaces=(namespace,))
            await enter(running_provider(cluster.kubeconfig_for(user), host, settings=own))
        await enter(running_simulator(kubeconfig, load("llmd"), level="cluster"))
        user = f"system:serviceaccount:{home}:{names.CORE_MANAGER}"
        guards = model_cache_guard(user, own=home, namespaces=[], name=f"guard-core-{namespace}")
        await enter(granted(client, core_rights() + model_cache_rights(), user=user, namespace=namespace))
        await enter(applied(client, guards))
        account = await enter(Client(load_config(kubeconfig=cluster.kubeconfig_for(user))))
        await enter(running_part(account, namespace=namespace))
        yield await enter(deployments(client, namespace, base))
        for artifact in await client.list_all(MODEL_ARTIFACT, namespace=namespace):
            await client.delete(MODEL_ARTIFACT, key_of(artifact))
