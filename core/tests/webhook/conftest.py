"""What the tests of the webhook share: our CRDs, a registered provider, deployments, and the running webhook."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from airunway.api import names
from airunway.kinds import INFERENCE_PROVIDER_CONFIG
from airunway.kube import Client, NotFound
from airunway.resource import ObjectKey, Resource
from airunway_testing.operator import install_definitions, remove_leftovers

Register = Callable[..., Awaitable[str]]
Deployment = Callable[..., Resource]


@pytest.fixture
async def installed(client: Client) -> None:
    """Our CRDs, and no provider that other tests have registered on the same API server."""
    await install_definitions(client)
    await remove_leftovers(client)


@pytest.fixture
async def register(client: Client, namespace: str, installed: None) -> AsyncIterator[Register]:
    """Register a provider that has the engines vllm (GPU) and llamacpp (CPU); returns its name."""
    made: list[str] = []

    async def register_(
        name: str = "acme",
        *,
        upstream: tuple[str, str, str] = ("", "v1", "ConfigMap"),
        absent: bool = False,
        ready: bool = True,
    ) -> str:
        unique = f"{name}-{namespace}"
        made.append(unique)
        group, version, kind = upstream
        modes = ["aggregated"]
        config = {
            "apiVersion": names.API_VERSION,
            "kind": "InferenceProviderConfig",
            "metadata": {"name": unique, "annotations": {"airunway.ai/display-name": "Acme"}},
            "spec": {
                "capabilities": {
                    "engines": [
                        {"name": "vllm", "servingModes": modes, "gpuSupport": True, "cpuSupport": False},
                        {"name": "llamacpp", "servingModes": modes, "gpuSupport": False, "cpuSupport": True},
                        {"name": "third", "servingModes": modes, "gpuSupport": True, "cpuSupport": False},
                    ]
                },
                "upstream": [{"group": group, "kind": kind, "versions": [version], "requiresCRD": False}],
            },
        }
        await client.apply(INFERENCE_PROVIDER_CONFIG, config, manager="tests")
        condition = {
            "type": "UpstreamInstalled",
            "status": "False" if absent else "True",
            "reason": "UpstreamNotInstalled" if absent else "Installed",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        status = {"ready": ready and not absent, "conditions": [condition]}
        await client.merge_patch(
            INFERENCE_PROVIDER_CONFIG, ObjectKey("", unique), {"status": status}, subresource="status"
        )
        return unique

    yield register_
    for name in made:
        with suppress(NotFound):
            await client.delete(INFERENCE_PROVIDER_CONFIG, ObjectKey("", name))


@pytest.fixture
def deployment(namespace: str) -> Deployment:
    """A deployment; keyword arguments are parts of its spec."""

    def make(name: str = "llama", **spec: Any) -> Resource:
        return {
            "apiVersion": names.API_VERSION,
            "kind": "ModelDeployment",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"model": {"id": "org/model"}, "engine": {"type": "llamacpp"}, **spec},
        }

    return make
