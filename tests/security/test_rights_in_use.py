"""Every provider under an account with exactly its rights and guards: nothing is refused, and all rights are used."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.dynamo.conftest import grove_installed
from tests.support.audit import AuditReader
from tests.support.deployed_operator import Operator, deployed_operator
from tests.support.faults import failed_create
from tests.support.rights import requests_until_used, unused

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import EVENT, Client, Kind
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import load
from airunway.rbac.rights import provider_rights
from airunway.resource import ObjectKey, Resource, condition_of, dig, key_of, labels_of
from airunway_testing.controlplane import Cluster
from airunway_testing.eventually import PATIENCE
from airunway_testing.expectations import condition_is, running_at
from airunway_testing.fixtures import Kubectl
from airunway_testing.operator import gone, until
from airunway_testing.simulators import simulators_for

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.usefixtures("events_again_soon")]

ROLE = {"replicas": 1, "gpu": {"count": 1}, "memory": "1Gi"}
LARGE: Resource = {"resources": {"gpu": {"count": 4}}}
TWO_A_NODE = {"gpusPerNode": 2}
SETTINGS: dict[str, Resource] = {"vllm": TWO_A_NODE, "llmd": TWO_A_NODE, "kaito": {"inferenceSet": "WhenScaled"}}
SPECS: dict[str, tuple[Resource, ...]] = {
    "kaito": ({}, {"scaling": {"replicas": 2}, "image": "registry.example/vllm:1"}),
    "vllm": ({}, LARGE),
    "dynamo": ({},),
    "kuberay": ({}, {"image": "rayproject/ray-llm:2.51.1-py311-cu128"}),  # whose Ray knows no tokens: NetworkPolicy
    "llmd": (
        {"serving": {"mode": "disaggregated"}, "scaling": {"prefill": ROLE, "decode": ROLE}, "resources": {}},
        LARGE,
    ),
}
"""By provider the deployments that together need every kind of object that it writes."""

RARE = {
    ("update", "modeldeployments/finalizers"): "asked for inside the API server, by the admission plugin for owners",
    **{
        (verb, "resourceclaimtemplates"): "only for resources.gpu.deviceClass"
        for verb in ("create", "get", "list", "watch", "patch", "update", "delete")
    },
    **{
        (verb, "scaledobjects"): "only where KEDA is installed (tests/vllm/test_autoscaling.py)"
        for verb in ("create", "get", "list", "watch", "patch", "update", "delete")
    },
    **{(verb, "leases"): "only one of several replicas asks for a lease" for verb in ("create", "get", "update")},
}
"""Rights that are needed, and that the audit log of one replica cannot show."""


@pytest.fixture
async def operator(
    cluster: Cluster, client: Client, namespace: str, audit_log: Path, provider: ProviderHost, kubectl: Kubectl
) -> AsyncIterator[Operator]:
    home = namespace.replace("test-", "home-")
    kubectl("create", "namespace", home)
    simulators = simulators_for((kind.group, kind.kind) for kind in provider.manifest.upstream)
    definitions = [crd for each in simulators for crd in each.custom_resource_definitions()]
    async with AsyncExitStack() as stack:
        if provider.name == "dynamo":  # whose cliques it may read
            await stack.enter_async_context(grove_installed(client))
        yield await stack.enter_async_context(
            deployed_operator(
                cluster,
                client,
                namespace=namespace,
                audit_log=audit_log,
                definitions=definitions,
                level="cluster",
                home=home,
            )
        )
    kubectl("delete", "namespace", home, "--wait=false")


@pytest.fixture(params=SPECS)
def provider(request: pytest.FixtureRequest) -> ProviderHost:
    return load(request.param)


async def test_what_is_granted_is_used_and_is_enough(
    operator: Operator, client: Client, provider: ProviderHost, audit_log: Path
) -> None:
    rights, audit = provider_rights(provider.manifest), AuditReader(audit_log)
    assert not {"secrets", "*"} & {resource for rule in rights.watched for resource in rule["resources"]}
    user = await operator.provider(provider, values=SETTINGS.get(provider.name))
    await lived_through(operator, client, provider)

    rare = {**RARE, **held(provider)}
    seen = await requests_until_used(audit, rights, user=user, rare=rare)
    assert unused(rights, seen, rare=rare) == []
    assert operator.refused() == []


def held(provider: ProviderHost) -> dict[tuple[str, str], str]:
    """What a provider may do so that it can let its workloads do it: nobody grants what he does not have."""
    rules = provider.manifest.rbac_rules
    return {(verb, plural): "granted on" for rule in rules for plural in rule["resources"] for verb in rule["verbs"]}


async def lived_through(operator: Operator, client: Client, provider: ProviderHost) -> None:
    """It runs models, puts right what others change, explains, plans, makes anew, meets others' objects, lets go."""
    keys = [
        await operator.deploy(f"model-{i}", **{"env": [], "provider": {"name": provider.name}, **spec})
        for i, spec in enumerate(SPECS[provider.name])
    ]
    for key in keys:
        await until(client, key, running_at(1))
    written = list(kinds_of(provider))
    for _ in range(2):  # so that an event is told again, which it is not before it was told once
        await drift(client, [found async for found in made(client, written, keys)])
        for key in keys:
            await operator.event(key, "DriftDetected")
    for kind_name in ("StatefulSet", "ReplicaSet", "Deployment", "Job"):
        await client.create(EVENT, failed_create(keys[0], kind_name))
    await planned(operator, client, keys[0])
    for key in keys:
        await until(client, key, running_at(await operator.edit(key, model={"id": "o/another"})))

    spec = (await client.get(MODEL_DEPLOYMENT, keys[0]))["spec"]
    before = [found async for found in made(client, written, keys[:1])]
    await client.delete(MODEL_DEPLOYMENT, keys[0])
    await gone(client, MODEL_DEPLOYMENT, keys[0])
    for kind, obj in before:
        await gone(client, kind, key_of(obj))
        await client.create(kind, of_somebody_else(kind, obj))
    await operator.deploy(keys[0].name, **spec)
    await until(client, keys[0], is_in_the_way)
    for kind, obj in before:
        await client.delete(kind, key_of(obj))
    await until(client, keys[0], running_at(1))
    for key in keys:
        await client.delete(MODEL_DEPLOYMENT, key)
        await gone(client, MODEL_DEPLOYMENT, key)


def kinds_of(provider: ProviderHost) -> Iterator[Kind]:
    for kind in provider.manifest.upstream:
        if kind.write and kind.group != "keda.sh":
            yield Kind(kind.group, kind.versions[0], kind.kind, kind.plural)


async def made(
    client: Client, kinds: Sequence[Kind], keys: Sequence[ObjectKey]
) -> AsyncIterator[tuple[Kind, Resource]]:
    """What the provider has written for these deployments."""
    for kind in kinds:
        for obj in await client.list_all(kind, namespace=keys[0].namespace, label_selector=names.PROVIDER):
            if labels_of(obj).get(names.MODEL_DEPLOYMENT) in {key.name for key in keys}:
                yield kind, obj


async def drift(client: Client, objects: Sequence[tuple[Kind, Resource]]) -> None:
    """Change what the provider says of them, and wait until it says it again."""
    wrong = {"metadata": {"labels": {names.MODEL_DEPLOYMENT: "another"}}}
    for kind, obj in objects:
        await client.merge_patch(kind, key_of(obj), wrong, manager="somebody")
    async with asyncio.timeout(PATIENCE):
        for kind, obj in objects:
            right = labels_of(obj)[names.MODEL_DEPLOYMENT]
            while labels_of(await client.get(kind, key_of(obj))).get(names.MODEL_DEPLOYMENT) != right:
                await asyncio.sleep(0.05)


async def planned(operator: Operator, client: Client, key: ObjectKey) -> None:
    """A plan that is shown, changed and withdrawn."""
    for wanted, length in (("true", 4096), ("true", 8192), (None, 8192)):
        annotated = {"metadata": {"annotations": {names.DRY_RUN: wanted}}}
        await client.merge_patch(MODEL_DEPLOYMENT, key, annotated, manager="user")
        generation = await operator.edit(key, engine={"contextLength": length})
        if wanted:
            await until(client, key, condition_is("DryRun", "True"))
    await until(client, key, running_at(generation))


def is_in_the_way(deployment: Resource) -> bool:
    """An object of somebody else's has a name that is needed."""
    created = condition_of(deployment, "ResourceCreated") or {}
    return created.get("reason") == "ResourceConflict" or dig(deployment, "status", "reason") == "ResourceConflict"


def of_somebody_else(kind: Kind, obj: Resource) -> Resource:
    """The same object, made by hand: without an owner, labels of ours, or what the API server has filled in."""
    spec = {field: value for field, value in obj.items() if field not in ("apiVersion", "kind", "metadata", "status")}
    for address in ("clusterIP", "clusterIPs"):
        spec.get("spec", {}).pop(address, None)
    metadata = {field: obj["metadata"][field] for field in ("name", "namespace")}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **spec}
