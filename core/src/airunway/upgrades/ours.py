"""AI Runway's own CRDs in a cluster: what new ones would take from objects, and putting them there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from airunway.kube import CUSTOM_RESOURCE_DEFINITION, Client, kind_of_crd, wait_until_established
from airunway.resource import Resource, is_true, key_of
from airunway.schema import served_versions
from airunway.upgrades.guard import Harm, harms

__all__ = ["MANAGER", "apply_definitions", "harms_in"]

MANAGER = "airunway-crds"
"""The field manager of CRDs that the command applies."""

_PATIENCE = 30.0
"""Seconds in which an API server serves what it has accepted."""


async def harms_in(client: Client, definitions: Sequence[Resource]) -> list[Harm]:
    """What these CRDs would do to the objects of the cluster. Every object is read once. Raises KubeError."""
    found = await asyncio.gather(*(_harms(client, crd) for crd in definitions))
    return [harm for each in found for harm in each]


async def _harms(client: Client, crd: Resource) -> list[Harm]:
    live = await client.find(CUSTOM_RESOURCE_DEFINITION, key_of(crd))
    if live is None:
        return []
    objects = {}
    for version in served_versions(live) if is_true(live, "Established") else ():
        objects[version] = await client.list_all(kind_of_crd(live, version))
    return harms(crd, live, objects)


async def apply_definitions(client: Client, definitions: Sequence[Resource]) -> None:
    """Apply CRDs, and wait until they are served.

    Raises KubeError (Conflict where another tool owns what would be changed), and TimeoutError where one is not served.
    """
    for crd in definitions:
        await client.apply(CUSTOM_RESOURCE_DEFINITION, crd, manager=MANAGER)
    await wait_until_established(client, (key_of(crd).name for crd in definitions), timeout=_PATIENCE)
