"""A live deployment goes from provider to provider and all the way back: never two workloads, told by events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from pathlib import Path

import pytest

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import EVENT, POD, Client, Kind
from airunway.plugins.host import SCALED_OBJECT, ProviderHost
from airunway.plugins.registry import discover, load
from airunway.resource import ObjectKey, Resource, dig, labels_of, uid_of
from airunway_testing.expectations import running_at
from airunway_testing.operator import (
    deployments,
    gone,
    install_definitions,
    remove_leftovers,
    running_simulator,
    running_together,
    until,
)
from airunway_testing.simulators import discover_simulators

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

FIRST = ("kaito", "vllm", "dynamo", "kuberay", "llmd")
"""The order of the way; providers that are not among them come after these."""
SPEC = {
    "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
    "engine": {"type": "vllm"},
    "resources": {"gpu": {"count": 1}},
}
"""What every provider can run."""


@pytest.fixture(scope="session")
def hosts() -> list[ProviderHost]:
    """Every installed provider that runs models, in the order of the way."""
    found = [each.name for each in discover() if each.distribution != "airunway-testing"]
    way = [name for name in FIRST if name in found]
    return [load(name) for name in (*way, *(name for name in found if name not in way))]


@pytest.fixture
async def everything(kubeconfig: Path, client: Client, hosts: Sequence[ProviderHost]) -> AsyncIterator[None]:
    """The core and all providers in one process, and simulated upstreams whose pods really run."""
    simulators = discover_simulators().values()
    await install_definitions(client, [crd for each in simulators for crd in each.custom_resource_definitions()])
    await remove_leftovers(client)
    async with running_simulator(kubeconfig, *hosts, level="cluster"), running_together(kubeconfig, hosts):
        yield


@dataclass(kw_only=True)
class Life:
    """From which version of the cluster's store until which an object was there (None: it still is)."""

    kind: str
    name: str
    provider: str
    born: int
    died: int | None = None

    def overlaps(self, other: Life) -> bool:
        return (other.died is None or self.born < other.died) and (self.died is None or other.born < self.died)


@dataclass(kw_only=True)
class Lives:
    """What was written by providers, and the pods, by uid; exact, since all kinds count versions of one store."""

    written: dict[str, Life] = field(default_factory=dict)
    pods: dict[str, Life] = field(default_factory=dict)

    def seen(self, type_: str, obj: Resource) -> None:
        provider = labels_of(obj).get(names.PROVIDER, "")
        kind, version = obj["kind"], int(obj["metadata"]["resourceVersion"])
        lives = self.pods if kind == "Pod" else self.written
        if kind != "Pod" and not provider:
            return  # made by an upstream, out of what a provider wrote
        life = lives.setdefault(
            uid_of(obj), Life(kind=kind, name=obj["metadata"]["name"], provider=provider, born=version)
        )
        if type_ == "DELETED":
            life.died = version

    def meetings(self) -> Iterator[tuple[Life, Life]]:
        """Objects of two providers that were there at one moment."""
        for one, other in combinations(self.written.values(), 2):
            if one.provider != other.provider and one.overlaps(other):
                yield one, other

    def strangers(self) -> Iterator[tuple[Life, Life]]:
        """Pods that were still there when another provider wrote its workload than the one before their birth."""
        for pod in self.pods.values():
            maker = max((life for life in self.written.values() if life.born < pod.born), key=lambda life: life.born)
            for life in self.written.values():
                if life.provider != maker.provider and life.born > pod.born and life.overlaps(pod):
                    yield pod, life


@asynccontextmanager
async def watching(client: Client, namespace: str, kinds: Sequence[Kind]) -> AsyncIterator[Lives]:
    """Everything that comes and goes in the namespace, from now until the end of the context."""
    lives = Lives()

    async def watch(kind: Kind, version: str) -> None:
        async for event in client.watch(kind, namespace=namespace, resource_version=version, timeout_seconds=600):
            if event.type != "BOOKMARK":
                lives.seen(event.type, {"kind": kind.kind, **event.object})

    async for page in client.pages(MODEL_DEPLOYMENT, namespace=namespace):
        tasks = [asyncio.create_task(watch(kind, page.resource_version)) for kind in kinds]
    try:
        yield lives
        assert [task for task in tasks if task.done()] == [], "nothing was missed"
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def kinds_of(hosts: Sequence[ProviderHost]) -> list[Kind]:
    written = {(kind.group, kind.kind): kind for host in hosts for kind in host.manifest.upstream if kind.write}
    del written[SCALED_OBJECT.group, SCALED_OBJECT.kind]  # KEDA is not installed
    return [POD, *(Kind(kind.group, kind.versions[0], kind.kind, kind.plural) for kind in written.values())]


async def test_from_provider_to_provider_and_back(
    everything: None, client: Client, namespace: str, hosts: Sequence[ProviderHost]
) -> None:
    way = [*hosts, *reversed(hosts[:-1])]
    async with watching(client, namespace, kinds_of(hosts)) as lives, deployments(client, namespace, SPEC) as create:
        key = await create(provider={"name": way[0].name})
        await until(client, key, running_at(1))
        for host in way[1:]:
            change = {"spec": {"provider": {"name": host.name}}}
            after = await client.merge_patch(MODEL_DEPLOYMENT, key, change, manager="tests")
            generation = after["metadata"]["generation"]
            running = await until(client, key, running_at(generation), what=f"Running with {host.name}")
            assert dig(running, "status", "provider", "name") == host.name
        await client.delete(MODEL_DEPLOYMENT, key)
        await gone(client, MODEL_DEPLOYMENT, key)

    assert list(lives.meetings()) == []
    assert list(lives.strangers()) == []
    assert stations(lives) == [host.name for host in way], "each was there, made anew on the way back"
    story = await told(client, key)
    # What is said again in the same words is one event, with a count.
    assert [line for line in story if line.startswith("Selected provider")] == [
        f"Selected provider '{host.name}': explicit provider selection" for host in hosts
    ]
    made = [line.split()[1] for line in story if line.startswith("Created")]
    kinds = {"kaito": "InferenceSet"}  # a new deployment of it, where it has their controller
    assert made == [kinds.get(host.name, host.primary_kind.kind) for host in way], "each object has an event of its own"


def stations(lives: Lives) -> list[str]:
    """The providers in the order in which they wrote, each once for as long as nobody else did."""
    order = [life.provider for life in sorted(lives.written.values(), key=lambda life: life.born)]
    return [*order[:1], *(after for before, after in pairwise(order) if after != before)]


async def told(client: Client, key: ObjectKey) -> list[str]:
    """The notes of the deployment's events, in order."""
    events = await client.list_all(EVENT, namespace=key.namespace)
    ours = [event for event in events if dig(event, "regarding", "kind") == "ModelDeployment"]
    return [str(event["note"]) for event in sorted(ours, key=lambda event: str(event["eventTime"]))]
