"""What does `airunway doctor` cost on an installation with every provider and N ModelDeployments?

The installation is objects alone, on a real API server: the Deployments of the core and of each installed provider,
their accounts, rights, guards, Leases and registrations. Each sample is a process of its own, as a user starts it; its
processor time is compared with that of its imports. Prints JSON.

    uv run python -m benchmarks.doctor --deployments 1000
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.common import concurrently, heading, percentiles, say
from benchmarks.shapes import SHAPES

from airunway import __version__
from airunway.api import names
from airunway.doctor.snapshot import GUARDED
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import DEPLOYMENT, LEASE, NAMESPACE, SERVICE_ACCOUNT, Client, Kind, load_config
from airunway.plugins.host import ProviderHost
from airunway.plugins.provider_config import config_object
from airunway.plugins.registry import discover, load
from airunway.process.effective_settings import PART_OF, EffectiveSettings
from airunway.rbac.admission_policies import provider_guard
from airunway.rbac.rights import Rights, core_rights, leader_election_rights, provider_rights, roles
from airunway.resource import Resource, format_time, key_of
from airunway_testing.controlplane import ControlPlane
from airunway_testing.operator import install_definitions

NAMESPACE_NAME = "airunway-system"
BUDGET = 2.0
"""Seconds of a processor."""

_RBAC = "rbac.authorization.k8s.io"


def processes(hosts: Iterable[ProviderHost]) -> Iterable[tuple[str, Rights, list[Resource]]]:
    """The parts: name, rights, and what else belongs to each."""
    core = names.CORE_MANAGER
    yield core, core_rights() + leader_election_rights(core), []
    for host in hosts:
        name = names.provider_manager(host.name)
        account = f"system:serviceaccount:{NAMESPACE_NAME}:{name}"
        guards = provider_guard(host.manifest, account, own=NAMESPACE_NAME, name=f"{name}-{NAMESPACE_NAME}-guard")
        yield name, provider_rights(host.manifest), guards


def objects_of(name: str, rights: Rights) -> Iterable[Resource]:
    labels = {"app": name, "app.kubernetes.io/part-of": "airunway"}
    container = {"name": "airunway", "image": f"example.org/airunway:{__version__}"}
    metadata = {"namespace": NAMESPACE_NAME, "name": name}
    effective = EffectiveSettings(manager=name, pod=f"{name}-1", options={"leader-elect": "true"})
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    yield {
        "apiVersion": DEPLOYMENT.api_version,
        "kind": DEPLOYMENT.kind,
        "metadata": {
            **metadata,
            "labels": {**labels, "app.kubernetes.io/name": name},
            "annotations": {GUARDED: NAMESPACE_NAME},
        },
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"serviceAccountName": name, "containers": [container]},
            },
        },
    }
    yield {
        "apiVersion": LEASE.api_version,
        "kind": LEASE.kind,
        "metadata": {**metadata, "labels": dict([PART_OF]), "annotations": effective.annotations()},
        "spec": {
            "holderIdentity": effective.pod,
            "leaseDurationSeconds": 600,
            "renewTime": f"{datetime.now(UTC):%FT%T.%fZ}",
        },
    }
    subject = {"kind": "ServiceAccount", "namespace": NAMESPACE_NAME, "name": name}
    yield from roles(rights, name=name, namespace=NAMESPACE_NAME, subject=subject)


def kind_of(obj: Resource) -> Kind:
    known = {kind.kind: kind for kind in (DEPLOYMENT, LEASE, SERVICE_ACCOUNT)}
    if obj["kind"] in known:
        return known[obj["kind"]]
    group, _, version = obj["apiVersion"].rpartition("/")
    lower = obj["kind"].lower()
    plural = f"{lower[:-1]}ies" if lower.endswith("y") else f"{lower}s"
    return Kind(group, version, obj["kind"], plural, namespaced=obj["kind"] in ("Role", "RoleBinding"))


async def install(kubeconfig: Path, deployments: int) -> None:
    hosts = [load(found.name) for found in discover()]
    async with Client(load_config(kubeconfig=kubeconfig), user_agent="benchmark") as client:
        await install_definitions(client)
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE_NAME}}
        await client.apply(NAMESPACE, body, manager="benchmark")
        for name, rights, more in processes(hosts):
            for obj in (*objects_of(name, rights), *more):
                await client.apply(kind_of(obj), obj, manager="benchmark")
        for host in hosts:
            config = config_object(host.manifest)
            await client.apply(INFERENCE_PROVIDER_CONFIG, config, manager="benchmark")
            status = {"ready": True, "lastHeartbeat": format_time(datetime.now(UTC))}
            await client.merge_patch(
                INFERENCE_PROVIDER_CONFIG, key_of(config), {"status": status}, subresource="status"
            )

        async def create(name: str) -> None:
            await client.create(MODEL_DEPLOYMENT, SHAPES["one"].deployment(name, "default"))

        await concurrently((f"model-{number}" for number in range(deployments)), create)


def sample(words: list[str]) -> tuple[float, float]:
    """Seconds of a processor and on the clock. Raises RuntimeError where the command ends otherwise than it should."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 3):
        raise RuntimeError(done.stderr)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deployments", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=7)
    arguments = parser.parse_args()
    with ControlPlane() as cluster:
        say(f"{arguments.deployments} deployments")
        asyncio.run(install(cluster.kubeconfig, arguments.deployments))
        doctor = ["-m", "airunway", "doctor", "-o", "json", "--kubeconfig", str(cluster.kubeconfig)]
        timed = [sample(doctor) for _ in range(arguments.samples)]
        imports = ["-c", "import airunway.doctor, airunway.kube"]
        idle = [sample(imports)[0] for _ in range(arguments.samples)]
    print(
        json.dumps(
            {
                **heading("doctor"),
                "deployments": arguments.deployments,
                "providers": [found.name for found in discover()],
                "cpu_seconds": percentiles([cpu for cpu, _ in timed]),
                "cpu_seconds_of_imports": percentiles(idle),
                "seconds": percentiles([clock for _, clock in timed]),
                "budget_cpu_seconds": BUDGET,
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
