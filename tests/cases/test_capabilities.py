"""Cases about what a provider can and cannot do, on a real API server: refused by name, or really done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from airunway.kube import Client, Kind, NotFound
from airunway.resource import ObjectKey, Resource, dig
from airunway_testing.expectations import reason_is
from airunway_testing.operator import until

pytestmark = pytest.mark.apiserver

WORKSPACE = Kind(group="kaito.sh", version="v1beta1", kind="Workspace", plural="workspaces", namespaced=True)

Make = Callable[..., Resource]
Create = Callable[[Resource], Awaitable[ObjectKey]]
Edit = Callable[[ObjectKey, Resource], Awaitable[Resource]]


def is_running(deployment: Resource) -> bool:
    return bool(dig(deployment, "status", "phase") == "Running")


async def test_case_35_llamacpp_with_the_image_of_the_engine_only_is_accepted_and_runs_it(
    operator: None, client: Client, manifest: Make, create: Create
) -> None:
    key = await create(manifest(image=None, engine={"type": "llamacpp", "image": "example.org/runner:2"}))
    await until(client, key, is_running)
    template = dig(await client.get(WORKSPACE, key), "inference", "template", "spec", "containers")
    assert [container["image"] for container in template] == ["example.org/runner:2"]


async def test_case_51_storage_that_the_provider_cannot_mount_is_refused_by_name_and_nothing_is_made(
    operator: None, client: Client, manifest: Make, create: Create, edit: Edit
) -> None:
    model = manifest()["spec"]["model"]
    key = await create(manifest(provider={"name": "kaito"}, model=model | {"cache": {"mode": "Shared"}}))
    refused = await until(client, key, reason_is("Ready", "ModelCacheNotEnabled"))  # this core has no such part
    assert refused["status"]["phase"] == "Pending"
    assert "--model-cache=on" in refused["status"]["message"]
    with pytest.raises(NotFound):
        await client.get(WORKSPACE, key)
    await edit(key, {"spec": {"model": {"cache": None}}})
    await until(client, key, is_running)
