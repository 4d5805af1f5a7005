"""The ground with storage: a provisioner, and classes that are gone after the test."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from airunway.kube import PERSISTENT_VOLUME_CLAIM, STORAGE_CLASS, Client, NotFound
from airunway.resource import ObjectKey, Resource
from airunway_testing.storage.provisioner import Provisioner, running_provisioner, storage_class

MakeClass = Callable[..., Awaitable[str]]
Claim = Callable[..., Awaitable[ObjectKey]]


@pytest.fixture
async def provisioner(kubeconfig: Path, tmp_path: Path) -> AsyncIterator[Provisioner]:
    async with running_provisioner(kubeconfig, tmp_path / "volumes") as running:
        yield running


@pytest.fixture
async def make_class(client: Client) -> AsyncIterator[MakeClass]:
    """``await make_class(waits=True)`` makes a StorageClass and gives its name."""
    names: list[str] = []

    async def make(**settings: Any) -> str:
        names.append(f"class-{uuid.uuid4().hex[:8]}")
        await client.create(STORAGE_CLASS, storage_class(names[-1], **settings))
        return names[-1]

    yield make
    for name in names:
        with suppress(NotFound):
            await client.delete(STORAGE_CLASS, ObjectKey("", name))


@pytest.fixture
def claim(client: Client, namespace: str) -> Claim:
    """``await claim("weights", class_name)`` makes a claim of 1 GiB."""

    async def make(name: str, class_name: str, *, size: str = "1Gi", mode: str = "ReadWriteMany") -> ObjectKey:
        body: Resource = {
            "apiVersion": "v1",
            "kind": PERSISTENT_VOLUME_CLAIM.kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "storageClassName": class_name,
                "accessModes": [mode],
                "resources": {"requests": {"storage": size}},
            },
        }
        await client.create(PERSISTENT_VOLUME_CLAIM, body)
        return ObjectKey(namespace, name)

    return make
