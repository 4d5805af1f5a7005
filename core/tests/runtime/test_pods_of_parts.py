"""Pods of a part of the core, and of other providers, are no evidence about a provider's workload."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from airunway.api import names
from airunway.kube import POD, REPLICA_SET, Client
from airunway.plugins.contract import Component, Observation, Replicas
from airunway.plugins.registry import load
from airunway.process.caches import Caches
from airunway.process.deployment_cache import DeploymentProjection
from airunway.process.metrics import Metrics
from airunway.resource import ObjectKey, Resource
from airunway.runtime.diagnosis import conclude
from airunway.runtime.evidence import EvidenceCollector, Workloads
from airunway.runtime.memory import Memory
from airunway.runtime.report import Report
from airunway.status.evidence import EventFacts
from airunway_testing.eventually import eventually

NOW = datetime(2026, 11, 23, 6, 10, tzinfo=UTC)
IMAGE = "registry.example/i:1"
OF = {names.MODEL_DEPLOYMENT: "llama"}
PICKER = {**OF, names.PART: "gateway", names.COMPONENT: "picker"}


def template(labels: dict[str, str]) -> Resource:
    return {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": IMAGE}]}}


async def make_pod(client: Client, namespace: str, name: str, labels: dict[str, str], waiting: str = "") -> None:
    pod = template(labels)
    metadata = {**pod["metadata"], "namespace": namespace, "name": name}
    await client.create(POD, {"apiVersion": "v1", "kind": "Pod", **pod, "metadata": metadata})
    if waiting:
        state = {"waiting": {"reason": waiting, "message": "manifest unknown: not found"}}
        found = {"name": "main", "image": IMAGE, "imageID": "", "ready": False, "restartCount": 3, "state": state}
        status = {"status": {"phase": "Pending", "containerStatuses": [found]}}
        await client.merge_patch(POD, ObjectKey(namespace, name), status, manager="tests", subresource="status")


@asynccontextmanager
async def collecting(client: Client, namespace: str, provider: str) -> AsyncIterator[EvidenceCollector]:
    collector = EvidenceCollector(
        caches=Caches(client, project=DeploymentProjection([]), metrics=Metrics("tests"), namespaces=[namespace]),
        host=load(provider),
        known=(known := asyncio.Event()),
        deployments=lambda key: {} if key.name == "llama" else None,
        is_named=lambda key: (),
        notify=lambda key: None,
        clock=lambda: NOW,
    )
    known.set()
    task = asyncio.create_task(collector.run())
    try:
        await eventually(collector.settled)
        yield collector
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.apiserver
@pytest.mark.parametrize("provider", ["vllm", "llmd", "kuberay"])
@pytest.mark.parametrize("waiting", ["CrashLoopBackOff", "ImagePullBackOff"])
async def test_r31_a_picker_of_the_part_is_never_the_models_fault(
    client: Client, namespace: str, provider: str, waiting: str
) -> None:
    for name, labels, state in (
        ("server", {**OF, names.PROVIDER: provider}, ""),
        ("picker", PICKER, waiting),
        ("other", {**OF, names.PROVIDER: "another"}, waiting),
    ):
        await make_pod(client, namespace, name, labels, state)
    deployment = {
        "metadata": {"name": "llama", "namespace": namespace, "generation": 1, "uid": "u"},
        "spec": {},
        "status": {"phase": "Deploying", "conditions": []},
    }
    created = (NOW - timedelta(minutes=5)).isoformat().replace("+00:00", "Z")
    primary: Resource = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "llama", "namespace": namespace, "creationTimestamp": created, "generation": 1},
    }
    async with collecting(client, namespace, provider) as collector:
        evidence = await collector.of(deployment, primary)
    assert evidence is not None
    assert [pod.name for pod in evidence.pods] == ["server"]
    observation = Observation(
        components=(Component(name="ProviderResource", ready=False, reason="Progressing"),),
        replicas=Replicas(desired=1),
    )
    report = Report(resource=primary, observation=observation, subject=f"Deployment/{namespace}/llama")
    status, verdict, _ = conclude(report, evidence, deployment=deployment, memory=Memory(), now=NOW)
    assert (verdict.phase, status.get("rootCause")) == ("Deploying", None)


@pytest.mark.apiserver
async def test_a_part_s_workload_that_may_not_make_pods_is_not_the_deployments(client: Client, namespace: str) -> None:
    workloads = Workloads(client, labels=(names.MODEL_DEPLOYMENT,))
    for name, labels, ours in (("llama-epp-1", PICKER, False), ("llama-1", OF, True)):
        made = await client.create(
            REPLICA_SET,
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "metadata": {"namespace": namespace, "name": name},
                "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template(labels)},
            },
        )
        event = EventFacts(
            kind="ReplicaSet", namespace=namespace, name=name, uid=made["metadata"]["uid"], reason="FailedCreate"
        )
        found = await workloads.makes_pods_of(event, objects=("llama",), deployment=ObjectKey(namespace, "llama"))
        assert found is ours, name
