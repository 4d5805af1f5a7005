"""The catalogue on a real API server, with nodes, templates and a played image."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airunway.api import names
from airunway.kinds import CLUSTER_MODEL_TEMPLATE, MODEL_TEMPLATE
from airunway.kube import EVENT, JOB, NAMESPACE, NODE, Client, NotFound
from airunway.process.caches import Caches
from airunway.process.manager import Work
from airunway.process.metric_catalogue import MetricsRole
from airunway.process.metrics import Metrics
from airunway.resource import ObjectKey, Resource, condition_of, dig, is_deleting, key_of
from airunway.status.events import EVENTS
from airunway_catalogue import application
from airunway_catalogue.application import CatalogueApplication, CatalogueSettings
from airunway_catalogue.caches import project_deployment
from airunway_catalogue.discovery import SHELL
from airunway_catalogue.names import CATALOGUE_MANAGER
from airunway_testing.background import in_background
from airunway_testing.eventually import Eventually
from airunway_testing.registry import model_image
from airunway_testing.storage.pod_runner import ENTRYPOINT, PodRunner, running_pod_runner
from airunway_testing.storage.provisioner import running_provisioner

MODEL = "acme/tiny"


@dataclass(kw_only=True)
class Ground:
    """A namespace with templates, and the operator's namespace."""

    client: Client
    namespace: str
    home: str
    eventually: Eventually
    kubeconfig: Path
    nodes: list[str] = field(default_factory=list)
    """Names of the nodes that the test made."""
    clustered: list[str] = field(default_factory=list)
    """Names of the ClusterModelTemplates that the test made."""

    async def template(self, name: str = "tiny", *, cluster: bool = False, **spec: Any) -> ObjectKey:
        """Apply a template."""
        kind = CLUSTER_MODEL_TEMPLATE if cluster else MODEL_TEMPLATE
        if cluster:
            name = f"{name}-{self.namespace}"
            self.clustered.append(name)
        metadata = {"name": name, **({} if cluster else {"namespace": self.namespace})}
        body = {
            "apiVersion": names.API_VERSION,
            "kind": kind.kind,
            "metadata": metadata,
            "spec": {"modelName": MODEL, **spec},
        }
        return key_of(await self.client.apply(kind, body, manager="platform", force=True))

    async def get(self, key: ObjectKey) -> Resource:
        return await self.client.get(MODEL_TEMPLATE if key.namespace else CLUSTER_MODEL_TEMPLATE, key)

    async def node(self, name: str, *, labels: dict[str, str], capacity: dict[str, str]) -> str:
        """A node that is there, as far as the API server knows."""
        name = f"{name}-{self.namespace}"
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "status": {"capacity": capacity, "allocatable": capacity},
        }
        await self.client.create(NODE, body)
        self.nodes.append(name)
        return name

    async def remove_node(self, name: str) -> None:
        self.nodes.remove(name)
        await self.client.delete(NODE, ObjectKey("", name))

    async def event(self, key: ObjectKey, reason: str) -> Resource:
        """The event with this reason about the ModelTemplate, once it is there, as the registry has it."""
        registered = EVENTS[reason]

        async def look() -> Resource | None:
            for each in await self.client.list_all(EVENT, namespace=self.namespace):
                if each["reason"] == reason and dig(each, "regarding", "name") == key.name:
                    return each
            return None

        found = await self.eventually(look)
        assert isinstance(found, dict)
        assert (found["type"], found["action"]) == (registered.type, registered.action)
        assert found["reportingController"] == f"{names.GROUP}/{registered.emitters[0].value}"
        pattern = ".+".join(re.escape(part) for part in re.split(r"<[^>]+>", registered.note))
        assert re.match(pattern, found["note"]), found["note"]
        return found

    async def jobs(self, namespace: str = "") -> list[Resource]:
        """The Jobs of the namespace that are not going away."""
        found = await self.client.list_all(JOB, namespace=namespace or self.namespace)
        return [each for each in found if not is_deleting(each)]

    async def until(self, key: ObjectKey, phase: str, *, reason: str = "") -> Resource:
        """The template once it has this phase, and this reason if one is given."""

        async def look() -> Resource | None:
            live = await self.get(key)
            status = live.get("status") or {}
            return live if status.get("phase") == phase and reason in ("", status.get("reason")) else None

        try:
            found = await self.eventually(look)
        except AssertionError as error:
            raise AssertionError(f"{(await self.get(key)).get('status')}") from error
        assert isinstance(found, dict)
        return found

    async def until_discovery(self, key: ObjectKey, reason: str) -> Resource:
        """The template once DiscoveryReady has this reason."""

        async def look() -> Resource | None:
            live = await self.get(key)
            return live if (condition_of(live, "DiscoveryReady") or {}).get("reason") == reason else None

        try:
            found = await self.eventually(look)
        except AssertionError as error:
            raise AssertionError(f"{(await self.get(key)).get('status')}") from error
        assert isinstance(found, dict)
        return found


def reasons(template: Resource) -> dict[str, tuple[str, str]]:
    """Status and reason of each condition."""
    return {each["type"]: (each["status"], each["reason"]) for each in dig(template, "status", "conditions")}


async def at_once(work: Work) -> None:
    """Lead without an election."""
    await work()


@asynccontextmanager
async def running_catalogue(
    client: Client,
    *,
    namespaces: list[str],
    home: str,
    max_discoveries: int = 10,
    later: timedelta = timedelta(),
) -> AsyncIterator[CatalogueApplication]:
    """The catalogue in these namespaces, until the context ends. Its clock is so much `later`."""
    caches = Caches(
        client,
        project=project_deployment,
        metrics=Metrics(CATALOGUE_MANAGER, role=MetricsRole.CATALOGUE),
        namespaces=namespaces,
    )
    catalogue = CatalogueApplication(
        client=client,
        caches=caches,
        instance="test",
        settings=CatalogueSettings(home=home, max_discoveries=max_discoveries),
        clock=lambda: datetime.now(UTC) + later,
    )
    async with in_background(catalogue.run(at_once)):
        yield catalogue


@pytest.fixture(autouse=True)
def counts_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users and nodes in maintenance are counted sooner than after five seconds."""
    monkeypatch.setattr(application, "_USERS_LATER", 0.5)
    monkeypatch.setattr(application, "_HELD_LATER", 1.0)


@pytest.fixture
def resource() -> str:
    """A resource name of GPUs that no other test's nodes have."""
    return f"amd.com/gpu-{uuid.uuid4().hex[:8]}"


@pytest.fixture
async def ground(
    installed: None, client: Client, kubeconfig: Path, namespace: str, eventually: Eventually
) -> AsyncIterator[Ground]:
    home = namespace.replace("test-", "home-")
    await client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": home}})
    found = Ground(client=client, namespace=namespace, home=home, eventually=eventually, kubeconfig=kubeconfig)
    yield found
    for name in found.nodes:
        await client.delete(NODE, ObjectKey("", name))
    for name in found.clustered:
        with suppress(NotFound):
            await client.delete(CLUSTER_MODEL_TEMPLATE, ObjectKey("", name))
    await client.delete(NAMESPACE, ObjectKey("", home))


@pytest.fixture
async def catalogue(ground: Ground, client: Client) -> AsyncIterator[CatalogueApplication]:
    """The catalogue in the namespaces of the ground."""
    async with running_catalogue(client, namespaces=[ground.namespace, ground.home], home=ground.home) as running:
        yield running


@pytest.fixture
async def runner(kubeconfig: Path, tmp_path: Path) -> AsyncIterator[PodRunner]:
    """A kubelet whose images have a shell and the program `MODEL_SERVER`."""
    server = model_image.install(tmp_path / "bin")
    programs = {ENTRYPOINT: (str(server),), SHELL: (SHELL,)}
    environment = {"PATH": f"{server.parent}:{os.defpath}"}
    async with (
        running_provisioner(kubeconfig, tmp_path / "volumes") as provisioner,
        running_pod_runner(
            kubeconfig,
            provisioner.volumes,
            tmp_path / "runner",
            programs=programs,
            environment=environment,
            label="airunway.ai/template",
        ) as running,
    ):
        yield running
