"""Fixtures: a Workspace CRD (our minimal one and the real one in turn) and a simulated KAITO beside the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import yaml

from airunway.kube import CUSTOM_RESOURCE_DEFINITION, Client, Kind, NotFound, is_served
from airunway.resource import ObjectKey, Resource
from airunway_kaito_simulator import names
from airunway_kaito_simulator.kinds import INFERENCE_SET, WORKSPACE
from airunway_testing.eventually import Eventually
from airunway_testing.simulators import load_simulator
from airunway_testing.simulators.played import Play, played

UPSTREAM_CRDS = Path("upstream-crds/kaito/v0.12.0")  # among the recordings
ONLY_UPSTREAM = Kind(names.GROUP, "v1alpha1", "Workspace", "workspaces")  # a version that our minimal CRD leaves out
MANAGER = "simulator-tests"


@pytest.fixture(params=["minimal", "upstream"])
async def workspace_crd(request: pytest.FixtureRequest, client: Client, eventually: Eventually) -> str:
    """Both CRDs in turn; the value says which."""
    name = str(request.param)
    upstream = request.getfixturevalue("recordings") / UPSTREAM_CRDS if name == "upstream" else None
    await install(client, upstream, eventually)
    return name


@pytest.fixture
async def minimal_crd(client: Client, eventually: Eventually) -> None:
    await install(client, None, eventually)


async def install(client: Client, upstream: Path | None, eventually: Eventually) -> None:
    """Install the CRDs in a folder, or our minimal ones."""
    if upstream is not None:
        crds = [yaml.safe_load((upstream / f"{plural}.yaml").read_text()) for plural in ("workspaces", "inferencesets")]
    else:
        crds = load_simulator("kaito").custom_resource_definitions()
    for crd in crds:
        await client.apply(CUSTOM_RESOURCE_DEFINITION, crd, manager=MANAGER, force=True)

    async def serves_it() -> bool:
        ours = await is_served(client, WORKSPACE) and await is_served(client, INFERENCE_SET)
        return ours and await is_served(client, ONLY_UPSTREAM) == (upstream is not None)

    await eventually(serves_it)


@pytest.fixture
async def play(client: Client, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Play]:
    """The simulated KAITO, once the test starts it."""
    async with played("kaito", client, caplog) as start:
        yield start


@pytest.fixture
def workspace(namespace: str) -> Callable[..., Resource]:
    """Makes Workspaces for the test's namespace: ``workspace("llama", inference={...}, annotations={...})``."""

    def make(
        name: str, *, inference: Resource, annotations: dict[str, str] | None = None, **resource: object
    ) -> Resource:
        selector = {"matchLabels": {"nvidia.com/gpu.present": "true"}}
        return {
            "apiVersion": WORKSPACE.api_version,
            "kind": WORKSPACE.kind,
            "metadata": {"name": name, "namespace": namespace, "annotations": annotations or {}},
            "resource": {"labelSelector": selector, **resource},
            "inference": inference,
        }

    return make


@pytest.fixture
def look(client: Client) -> Callable[[Kind, ObjectKey], Awaitable[Resource | None]]:
    """An object as it is now, or None if there is none."""

    async def find(kind: Kind, key: ObjectKey) -> Resource | None:
        try:
            return await client.get(kind, key)
        except NotFound:
            return None

    return find
