"""What the tests of the webhook share: our CRDs, a registered provider, deployments, and the running webhook."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.reviews import WebhookClient
from tests.support.webhook import local_settings, running_webhook

from airunway.api import names
from airunway.controller.application import CoreApplication, CoreSettings
from airunway.kinds import INFERENCE_PROVIDER_CONFIG
from airunway.kube import Client, NotFound
from airunway.resource import ObjectKey, Resource
from airunway.webhook import WebhookSettings
from airunway.webhook.configuration import PATH
from airunway_testing.operator import install_definitions, remove_leftovers

Register = Callable[..., Awaitable[str]]
Deployment = Callable[..., Resource]


def head(length: int, *more: str) -> bytes:
    """The head of a review whose body has so many bytes."""
    lines = [f"POST {PATH} HTTP/1.1", "Host: webhook", f"Content-Length: {length}", *more]
    return "\r\n".join([*lines, "", ""]).encode()


def status_of(answer: bytes) -> int:
    """The HTTP status of an answer."""
    assert answer.startswith(b"HTTP/1."), answer
    return int(answer.split()[1])


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
        selection: str = "Auto",
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
                "selection": selection,
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


@pytest.fixture
def place(namespace: str) -> Iterator[WebhookSettings]:
    """Where the webhook of the test listens, with certificates of its own."""
    with local_settings(namespace=namespace) as made:
        yield made


@pytest.fixture
def core(kubeconfig: Path, place: WebhookSettings, namespace: str, installed: None) -> Iterator[CoreApplication]:
    """Core and webhook for the test's own namespace."""
    with running_webhook(kubeconfig, place, settings=CoreSettings(namespaces=(namespace,))) as application:
        yield application


@pytest.fixture
async def webhook(core: CoreApplication, client: Client, place: WebhookSettings) -> AsyncIterator[WebhookClient]:
    """Asks the webhook without an API server in between."""
    async with WebhookClient(client, place) as asking:
        yield asking
