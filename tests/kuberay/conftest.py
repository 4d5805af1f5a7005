"""Core and airunway-kuberay on an API server, each under an account of its own; KubeRay and Ray are simulated."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.deployed_operator import Operator, deployed_operator

from airunway.kube import Client, Kind
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import load
from airunway.resource import Resource
from airunway_testing.controlplane import Cluster
from airunway_testing.simulators import load_simulator

RAY_SERVICE = Kind("ray.io", "v1", "RayService", "rayservices")
RAY_CLUSTER = Kind("ray.io", "v1", "RayCluster", "rayclusters")
NETWORK_POLICY = Kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")
KUBERAY: Resource = {"provider": {"name": "kuberay"}}


@pytest.fixture(scope="session")
def kuberay() -> ProviderHost:
    return load("kuberay")


@pytest.fixture
async def operator(control_plane: Cluster, client: Client, namespace: str, audit_log: Path) -> AsyncIterator[Operator]:
    """The core runs, with the CRDs of the simulated KubeRay; the provider begins when the test says so."""
    definitions = load_simulator("kuberay").custom_resource_definitions()
    async with deployed_operator(
        control_plane, client, namespace=namespace, audit_log=audit_log, definitions=definitions
    ) as found:
        yield found
