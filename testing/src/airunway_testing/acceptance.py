"""Held against an upstream's own CRDs: one release at a time on a real API server, Strict."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from airunway.kube import CUSTOM_RESOURCE_DEFINITION, Client, Kind, is_served
from airunway.kube.errors import ApiError
from airunway.resource import Resource, is_true, key_of
from airunway_testing.operator import remove_definition

ON_PODS: dict[str, dict[str, Any]] = {
    "environment": {
        "env": [
            {"name": "A", "value": ""},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "MEM", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
            {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k", "optional": True}}},
        ]
    },
    "pod": {
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}],
        "imagePullSecrets": [{"name": "pull"}],
        "priorityClassName": "high",
        "serviceAccountName": "sa",
        "nodeSelector": {"pool": "a"},
        "podTemplate": {"metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}}},
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
        ],
    },
    "volumes": {
        "model": {
            "id": "o/m",
            "storage": {
                "volumes": [{"name": "weights", "purpose": "modelCache", "claimName": "pvc", "readOnly": True}]
            },
        }
    },
}
"""Specs, by what they are about, with every field that lands in the pods as it is."""

_PATIENCE = 60.0
_PAUSE = 0.15


@asynccontextmanager
async def installed_alone(client: Client, crd: Resource, kind: Kind) -> AsyncIterator[None]:
    """The CRD in its version alone, as a fresh installation has it; removed afterwards. Raises TimeoutError."""
    await remove_definition(client, key_of(crd).name)
    await client.create(CUSTOM_RESOURCE_DEFINITION, crd)
    try:
        async with asyncio.timeout(_PATIENCE):
            while not (
                is_true(await client.get(CUSTOM_RESOURCE_DEFINITION, key_of(crd)), "Established")
                and await is_served(client, kind)
            ):
                await asyncio.sleep(_PAUSE)
        yield
    finally:
        await remove_definition(client, key_of(crd).name)


def in_namespace(obj: Resource, namespace: str) -> Resource:
    return {**obj, "metadata": {**obj["metadata"], "namespace": namespace}}


def without_owner(obj: Resource) -> Resource:
    """As it can be asked about where its owner does not exist: it would have to."""
    metadata = {key: value for key, value in obj["metadata"].items() if key != "ownerReferences"}
    return {**obj, "metadata": metadata}


async def refusal(client: Client, kind: Kind, obj: Resource, *, manager: str) -> str:
    """Why the API server does not take the object, by a dry run under Strict; empty if it does."""
    try:
        await client.apply(kind, obj, manager=manager, dry_run=True, field_validation="Strict")
    except ApiError as error:
        return str(error)
    return ""
