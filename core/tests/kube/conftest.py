"""What the tests of `airunway.kube` share: a small CRD, a fault proxy, a patient look at things that take a moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from core.tests.kube.objects import config_map
from core.tests.kube.subjects import Subjects
from tests.support.faultproxy import FaultProxy

from airunway.kube import CONFIG_MAP, CUSTOM_RESOURCE_DEFINITION, Client, Kind, is_served, load_config
from airunway.resource import ObjectKey, Resource, dig, key_of

WIDGET = Kind("kube.tests.airunway.ai", "v1", "Widget", "widgets")


def crd_of(kind: Kind) -> Resource:
    """A CRD that keeps whatever is in spec and has a typed corner with list types and defaults."""
    port = {
        "type": "object",
        "required": ["port"],
        "properties": {
            "port": {"type": "integer"},
            "protocol": {"type": "string", "default": "TCP"},
            "weight": {"type": "integer", "default": 1},
        },
    }
    typed = {
        "type": "object",
        "properties": {
            "ports": {
                "type": "array",
                "items": port,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["port", "protocol"],
            },
            "steps": {"type": "array", "items": port, "x-kubernetes-list-type": "atomic"},
            "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "selector": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "x-kubernetes-map-type": "atomic",
            },
            "limits": {
                "type": "object",
                "additionalProperties": {"x-kubernetes-int-or-string": True},
            },
            "size": {"type": "integer", "default": 3},
        },
    }
    return {
        "apiVersion": CUSTOM_RESOURCE_DEFINITION.api_version,
        "kind": CUSTOM_RESOURCE_DEFINITION.kind,
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": {"kind": kind.kind, "plural": kind.plural, "singular": kind.kind.lower()},
            "versions": [
                {
                    "name": kind.version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {
                                "spec": {
                                    "type": "object",
                                    "x-kubernetes-preserve-unknown-fields": True,
                                    "properties": {"typed": typed},
                                },
                                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                            },
                        }
                    },
                }
            ],
        },
    }


async def _install(client: Client, kind: Kind) -> None:
    """Applies the CRD and returns when its objects can be listed."""
    await client.apply(CUSTOM_RESOURCE_DEFINITION, crd_of(kind), manager="tests", force=True)
    for _ in range(200):
        crd = await client.get(CUSTOM_RESOURCE_DEFINITION, ObjectKey("", f"{kind.plural}.{kind.group}"))
        conditions = {c["type"]: c["status"] for c in dig(crd, "status", "conditions", default=[])}
        if conditions.get("Established") == "True" and await is_served(client, kind):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{kind} was not established")


@pytest.fixture
def install() -> Callable[[Client, Kind], Awaitable[None]]:
    """Installs the CRD of any kind, with the schema of Widget."""
    return _install


@pytest.fixture
async def widget(client: Client) -> Kind:
    """The kind Widget, installed."""
    await _install(client, WIDGET)
    return WIDGET


@pytest.fixture
async def subjects(client: Client, namespace: str, widget: Kind) -> AsyncIterator[Subjects]:
    """What the tests of server-side apply write; nothing of it keeps the namespace from going."""
    subjects = Subjects(client, namespace, widget)
    yield subjects
    for obj in await client.list_all(widget, namespace=namespace):
        if obj["metadata"].get("finalizers"):
            await client.merge_patch(widget, key_of(obj), {"metadata": {"finalizers": None}})


@pytest.fixture
async def subject(client: Client, namespace: str) -> Resource:
    """An object that events are about."""
    return await client.create(CONFIG_MAP, config_map(namespace, "subject"))


@pytest.fixture
async def proxy(kubeconfig: Path) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(kubeconfig) as proxy:
        yield proxy


@pytest.fixture
async def proxied(proxy: FaultProxy) -> AsyncIterator[Client]:
    """A client behind the proxy, with limits short enough to see them at work."""
    config = load_config(kubeconfig=proxy.kubeconfig)
    async with Client(config, user_agent="airunway-tests", timeout=2.0, watch_inactivity=1.0) as client:
        yield client
