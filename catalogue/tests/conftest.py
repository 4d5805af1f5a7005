"""A ground for ModelSources: an API server, a local registry, and the worker that scans."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from airunway.kinds import CLUSTER_MODEL_TEMPLATE, MODEL_SOURCE
from airunway.kube import EVENT, Client, NotFound
from airunway.process.caches import Caches
from airunway.process.metric_catalogue import MetricsRole
from airunway.process.metrics import Metrics
from airunway.process.part import Part
from airunway.resource import ObjectKey, Resource, dig, key_of
from airunway_catalogue.application import SourceWorker
from airunway_catalogue.caches import TemplateCaches, project_deployment
from airunway_catalogue.names import CATALOGUE_MANAGER
from airunway_catalogue.registry import Limits
from airunway_catalogue.scan import MODEL_SOURCE_LABEL
from airunway_testing.background import in_background
from airunway_testing.eventually import eventually
from airunway_testing.operator import install_definitions


@dataclass
class Ground:
    """What a test of sources works with."""

    client: Client
    home: str
    """The operator's namespace."""
    sources: list[str]
    """Sources that were written."""

    async def write(self, name: str, **spec: Any) -> ObjectKey:
        """Apply a source; its name gets the test's namespace, since it belongs to no namespace itself."""
        key = ObjectKey("", f"{self.home}-{name}")
        labels = spec.pop("labels", {})
        body = {
            "apiVersion": "airunway.ai/v1alpha1",
            "kind": "ModelSource",
            "metadata": {"name": key.name, "labels": labels},
            "spec": {"insecure": True, "syncInterval": "1h", **spec},
        }
        await self.client.apply(MODEL_SOURCE, body, manager="test", force=True)
        self.sources.append(key.name)
        return key

    async def read(self, key: ObjectKey) -> Resource:
        """A source as it is."""
        return await self.client.get(MODEL_SOURCE, key)

    async def scanned(self, key: ObjectKey) -> Resource:
        """The status of a source after its newest generation was scanned."""

        async def look() -> Resource | None:
            source = await self.read(key)
            generation = dig(source, "status", "observedGeneration")
            done = generation == source["metadata"]["generation"] and dig(source, "status", "lastSyncTime")
            return source["status"] if done else None

        found = await eventually(look)
        assert isinstance(found, dict)
        return found

    async def status_when(self, key: ObjectKey, wanted: Callable[[Resource], object]) -> Resource:
        """The status of a source when it is as wanted."""

        async def look() -> Resource | None:
            status = (await self.read(key)).get("status") or {}
            return status if wanted(status) else None

        found = await eventually(look)
        assert isinstance(found, dict)
        return found

    async def templates(self, *sources: ObjectKey) -> list[Resource]:
        """The templates that were made from sources (none given: from all of the test)."""
        names = [key.name for key in sources] or self.sources
        found = await self.client.list_all(
            CLUSTER_MODEL_TEMPLATE, label_selector=f"{MODEL_SOURCE_LABEL} in ({','.join(names)})"
        )
        return sorted(found, key=lambda each: key_of(each).name)

    async def event(self, source: ObjectKey, reason: str) -> str:
        """The note of the event with this reason on a source."""

        async def look() -> str | None:
            listed = await self.client.list_all(EVENT, field_selector=f"regarding.name={source.name}")
            return next((each["note"] for each in listed if each["reason"] == reason), None)

        return str(await eventually(look))

    async def clean(self) -> None:
        """Delete what the test has made."""
        if self.sources:
            for template in await self.templates():
                with suppress(NotFound):
                    await self.client.delete(CLUSTER_MODEL_TEMPLATE, key_of(template))
        for name in self.sources:
            with suppress(NotFound):
                await self.client.delete(MODEL_SOURCE, ObjectKey("", name))


@asynccontextmanager
async def running_worker(
    client: Client, home: str, *, limits: Limits | None = None, clock: Callable[[], datetime] | None = None
) -> AsyncIterator[SourceWorker]:
    """The worker, leading, until the context ends."""
    metrics = Metrics(CATALOGUE_MANAGER, role=MetricsRole.CATALOGUE)
    caches = Caches(client, project=project_deployment, metrics=metrics)
    part = Part(caches, component=CATALOGUE_MANAGER)
    templates = TemplateCaches(
        caches, home=home, on_template=lambda _: None, on_nodes=lambda: None, on_held=lambda: None
    )
    worker = SourceWorker(
        client=client,
        caches=caches,
        base=part._base,
        templates=templates.cluster,
        home=home,
        clock=clock or (lambda: datetime.now(UTC)),
        limits=limits or Limits(request=3),
    )

    async def at_once(work: Callable[[], Awaitable[None]]) -> None:
        await work()

    part.sources, part.work = (templates, worker), (worker.work(),)
    async with in_background(part.run(at_once)):
        yield worker


@pytest.fixture
async def ground(client: Client, namespace: str) -> AsyncIterator[Ground]:
    await install_definitions(client)
    found = Ground(client=client, home=namespace, sources=[])
    try:
        yield found
    finally:
        await found.clean()
