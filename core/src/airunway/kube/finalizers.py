"""Adds a finalizer to an object and removes it, and changes nothing else.

It uses a JSON patch with `test`. A server-side apply would remove all other fields that are owned under our field
manager's name, and the creator of the object may have applied its fields under that name.
"""

from __future__ import annotations

from collections.abc import Collection

from airunway.kube.client import Client
from airunway.kube.errors import Conflict, Invalid, NotFound
from airunway.kube.kinds import Kind
from airunway.resource import Resource, key_of

__all__ = ["add_finalizer", "remove_finalizers"]


async def add_finalizer(client: Client, kind: Kind, obj: Resource, finalizer: str, *, manager: str) -> Resource:
    """Adds `finalizer` to `obj`, which does not have it; returns the new state of the object.

    Raises NotFound, and Conflict if there is another object with that name, or its finalizers have changed: the event
    of the newer state causes the next pass.
    """
    present = obj["metadata"].get("finalizers") or None
    operations = [
        {"op": "test", "path": "/metadata/uid", "value": obj["metadata"]["uid"]},
        {"op": "test", "path": "/metadata/finalizers", "value": present},
        {"op": "add", "path": "/metadata/finalizers", "value": [*(present or ()), finalizer]},
    ]
    try:
        return await client.json_patch(kind, key_of(obj), operations, manager=manager)
    except Invalid as error:
        raise Conflict(409, "Conflict", f"the finalizers changed meanwhile: {error.message}") from error


async def remove_finalizers(
    client: Client, kind: Kind, obj: Resource, finalizers: Collection[str], *, manager: str
) -> Resource | None:
    """Removes `finalizers`, which `obj` has, in one write; returns the new state, or None if the object is gone.

    Raises Conflict if the object's finalizers have changed: the event of the newer state causes the next pass.
    """
    present = obj["metadata"]["finalizers"]
    path = "/metadata/finalizers"
    operations = [
        {"op": "test", "path": path, "value": present},
        {"op": "replace", "path": path, "value": [each for each in present if each not in finalizers]},
    ]
    try:
        return await client.json_patch(kind, key_of(obj), operations, manager=manager)
    except NotFound:
        return None
    except Invalid as error:
        raise Conflict(409, "Conflict", f"the finalizers changed meanwhile: {error.message}") from error
