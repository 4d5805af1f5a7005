"""Two replicas of `airunway controller` with a webhook, with exactly the rights that are listed for them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from tests.support.audit import AuditReader
from tests.support.rights import granted, unused

from airunway.api import names
from airunway.kinds import (
    CLUSTER_RUNTIME_CONFIG,
    INFERENCE_PROVIDER_CONFIG,
    MODEL_DEPLOYMENT,
    RUNTIME_CONFIG,
)
from airunway.kube import LEASE, ApiError, Client, Invalid, Kind, NotFound
from airunway.rbac.rights import core_rights, leader_election_rights, webhook_rights
from airunway.resource import ObjectKey, Resource, dig, is_true
from airunway.webhook import WebhookSettings, webhook_settings
from airunway.webhook.cert_rotator import SECRET, material_of
from airunway.webhook.configuration import CONFIGURATION_KIND, bundles_in
from airunway_testing.controlplane import Cluster
from airunway_testing.controlplane.ports import reserved_ports
from airunway_testing.eventually import PATIENCE
from airunway_testing.fixtures import Kubectl
from airunway_testing.operator import until

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]

RARE = {
    ("get", "namespaces"): "the labels of a namespace that the watch has not told yet",
    ("patch", "events"): "an event that repeats itself",
    ("patch", "modeldeployments"): "the finalizer of a provider that is gone, five minutes after the deletion",
}
"""Rights that are needed, and that the audit log of this test cannot show."""


@dataclass(frozen=True, kw_only=True)
class Replica:
    process: subprocess.Popen[bytes]
    log: Path
    ready: Path

    async def is_ready(self) -> None:
        async with asyncio.timeout(PATIENCE):
            while not self.ready.exists():
                assert self.process.poll() is None, self.log.read_text()
                await asyncio.sleep(0.05)


@contextmanager
def replica(options: Sequence[str], *, name: str, namespace: str, folder: Path) -> Iterator[Replica]:
    log, ready = folder / f"{name}.log", folder / f"{name}.ready"
    command = [sys.executable, "-m", "airunway", "controller", "--leader-elect", "--log-format", "text"]
    command += ["--ready-file", str(ready), *options]
    environment = {**os.environ, "POD_NAMESPACE": namespace, "POD_NAME": name}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        try:
            yield Replica(process=process, log=log, ready=ready)
        finally:
            process.kill()
            process.wait()


def settings_of(port: int, *, namespace: str) -> WebhookSettings:
    made = webhook_settings(
        bind_address=f"127.0.0.1:{port}",
        url=f"https://127.0.0.1:{port}",
        namespace=namespace,
        configuration=f"airunway-webhook-{namespace}",
        manage_configuration=True,
    )
    assert made is not None
    return made


def deployment(namespace: str, name: str, provider: str) -> Resource:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ModelDeployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"model": {"id": "a"}, "engine": {"type": "llamacpp"}, "provider": {"name": provider}},
    }


async def judged(client: Client, namespace: str) -> str:
    """What the webhook says of a provider that nobody knows; asks until an answer comes from it."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await client.create(MODEL_DEPLOYMENT, deployment(namespace, "probe", "nobody"), dry_run=True)
            except Invalid as error:
                return error.message
            except ApiError:
                pass  # it is just being replaced
            await asyncio.sleep(0.05)


async def registered(client: Client, name: str) -> None:
    """A provider that makes ConfigMaps, with a rule that is no CEL."""
    modes = ["aggregated"]
    engines = [{"name": "llamacpp", "servingModes": modes, "gpuSupport": False, "cpuSupport": True}]
    config = {
        "apiVersion": names.API_VERSION,
        "kind": "InferenceProviderConfig",
        "metadata": {"name": name},
        "spec": {
            "capabilities": {"engines": engines},
            "upstream": [{"group": "", "kind": "ConfigMap", "versions": ["v1"], "requiresCRD": False}],
            "selectionRules": [{"condition": "spec.("}],
        },
    }
    await client.apply(INFERENCE_PROVIDER_CONFIG, config, manager="tests")
    await client.merge_patch(
        INFERENCE_PROVIDER_CONFIG, ObjectKey("", name), {"status": {"ready": True}}, subresource="status"
    )


async def test_two_replicas_with_the_listed_rights(
    client: Client,
    control_plane: Cluster,
    kubeconfig: Path,
    kubectl: Kubectl,
    audit_log: Path,
    installed: None,
    namespace: str,
    tmp_path: Path,
) -> None:
    user, provider = f"core-{namespace}", f"acme-{namespace}"
    policy = tmp_path / "policy.yaml"
    policy.write_text(yaml.safe_dump({"rules": [{"providers": [provider, "nobody"]}]}))
    with reserved_ports(2) as ports:
        webhook = settings_of(ports[0], namespace=namespace)
        rights = (
            core_rights(policy=True, namespaces=[namespace])
            + webhook_rights(webhook)
            + leader_election_rights(names.CORE_MANAGER)
        )
        audit = AuditReader(audit_log)
        async with granted(client, rights, user=user, namespace=namespace, watched=[namespace]):
            options = ["--kubeconfig", str(control_plane.kubeconfig_for(user)), "--policy", str(policy)]
            options += ["--watch-namespaces", namespace, "--webhook-url", webhook.url]
            options += ["--gateway=off", "--model-cache=off"]
            options += ["--webhook-configuration", webhook.configuration, "--webhook-manage-configuration"]
            try:
                with ExitStack() as stack:
                    replicas = [
                        stack.enter_context(
                            replica(
                                [*options, "--webhook-bind-address", f"127.0.0.1:{port}"],
                                name=f"core-{number}",
                                namespace=namespace,
                                folder=tmp_path,
                            )
                        )
                        for number, port in enumerate(ports)
                    ]
                    await lived_through(client, kubectl, control_plane, webhook, replicas, provider=provider)
            finally:
                await cleaned_up(client, webhook, provider)
        ours = [request for request in audit.read(watches=True) if request.user == user]
    assert [f"{r.verb} {r.resource} {r.name}" for r in ours if r.code == 403] == []
    assert unused(rights, ours, rare=RARE) == []


async def lived_through(
    client: Client,
    kubectl: Kubectl,
    cluster: Cluster,
    webhook: WebhookSettings,
    replicas: Sequence[Replica],
    *,
    provider: str,
) -> None:
    """A life of the core: it judges and selects, loses Secret and configuration, and its leader."""
    namespace = webhook.namespace
    secret, configuration = ObjectKey(namespace, webhook.secret), ObjectKey("", webhook.configuration)
    for each in replicas:
        await each.is_ready()
    await registered(client, provider)
    assert "provider 'nobody' is not registered" in await judged(client, namespace)
    kubectl("create", "role", "models", "-n", namespace, "--verb=create", "--resource=modeldeployments.airunway.ai")
    kubectl("create", "rolebinding", "ada", "-n", namespace, "--role=models", "--user=ada")
    refused = kubectl(
        *("create", "-f", "-", "--as=ada"), stdin=yaml.safe_dump(deployment(namespace, "ada", provider)), check=False
    )
    assert "user 'ada' cannot create configmaps" in refused.stderr
    await client.create(MODEL_DEPLOYMENT, deployment(namespace, "llama", provider))
    key = ObjectKey(namespace, "llama")
    await until(client, key, lambda live: is_true(live, "ProviderSelected"), what="selected")
    for kind, config in ((RUNTIME_CONFIG, key), (CLUSTER_RUNTIME_CONFIG, ObjectKey("", namespace))):
        await said_to_be_valid(client, kind, config)

    before = material_of(await client.get(SECRET, secret))
    await client.delete(SECRET, secret)
    async with asyncio.timeout(PATIENCE):
        while True:
            with suppress(NotFound):
                made = await client.get(SECRET, secret)
                if material_of(made).authority != before.authority:
                    break
            await asyncio.sleep(0.05)
    await judged(client, namespace)
    # Half of the Secret is lost: it is written again, not made anew.
    await client.merge_patch(SECRET, secret, {"data": {"tls.crt": None}})
    async with asyncio.timeout(PATIENCE):
        while not material_of(await client.get(SECRET, secret)).serving:
            await asyncio.sleep(0.05)
    await client.delete(CONFIGURATION_KIND, configuration)
    async with asyncio.timeout(PATIENCE):
        while True:
            with suppress(NotFound):
                bundles = bundles_in(await client.get(CONFIGURATION_KIND, configuration))
                if bundles and bundles[0]:
                    break
            await asyncio.sleep(0.05)
    await judged(client, namespace)

    follower, leader = replicas if await is_leader(client, namespace, replicas[1]) else reversed(replicas)
    leader.process.send_signal(signal.SIGTERM)
    assert leader.process.wait(30) == 0, leader.log.read_text()
    async with asyncio.timeout(PATIENCE):
        while not await is_leader(client, namespace, follower):
            await asyncio.sleep(0.05)
    for each in replicas:
        assert "Traceback" not in each.log.read_text()


async def is_leader(client: Client, namespace: str, replica: Replica) -> bool:
    lease = await client.get(LEASE, ObjectKey(namespace, names.CORE_MANAGER))
    return bool(dig(lease, "spec", "holderIdentity") == replica.log.stem)


async def said_to_be_valid(client: Client, kind: Kind, key: ObjectKey) -> None:
    """A runtime config is made, and the core writes its status."""
    metadata = {field: value for field, value in key._asdict().items() if value}
    body = {"apiVersion": names.API_VERSION, "kind": kind.kind, "metadata": metadata, "spec": {}}
    await client.create(kind, body)
    async with asyncio.timeout(PATIENCE):
        while not is_true(await client.get(kind, key), "ConfigValid"):
            await asyncio.sleep(0.05)


async def cleaned_up(client: Client, webhook: WebhookSettings, provider: str) -> None:
    for kind, key in (
        (CONFIGURATION_KIND, ObjectKey("", webhook.configuration)),
        (INFERENCE_PROVIDER_CONFIG, ObjectKey("", provider)),
        (CLUSTER_RUNTIME_CONFIG, ObjectKey("", webhook.namespace)),
    ):
        with suppress(NotFound):
            await client.delete(kind, key)


async def test_a_right_that_is_missing_is_named(
    client: Client,
    control_plane: Cluster,
    kubectl: Kubectl,
    installed: None,
    namespace: str,
    tmp_path: Path,
) -> None:
    """Without its Secret the webhook never gets ready, and the log says what is forbidden."""
    user = f"core-{namespace}"
    with reserved_ports(1) as (port,):
        webhook = settings_of(port, namespace=namespace)
        rights = core_rights(namespaces=[namespace]) + leader_election_rights(names.CORE_MANAGER)
        async with granted(client, rights, user=user, namespace=namespace, watched=[namespace]):
            options = ["--kubeconfig", str(control_plane.kubeconfig_for(user)), "--watch-namespaces", namespace]
            options += ["--webhook-bind-address", webhook.bind_address, "--webhook-url", webhook.url]
            with replica(options, name="core", namespace=namespace, folder=tmp_path) as started:
                wanted = f'cannot get resource "secrets" in API group "" in the namespace "{namespace}"'
                async with asyncio.timeout(PATIENCE):
                    while wanted not in started.log.read_text():
                        assert started.process.poll() is None, started.log.read_text()
                        await asyncio.sleep(0.1)
                assert not started.ready.exists()
                assert "Traceback" not in started.log.read_text()
