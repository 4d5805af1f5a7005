"""Putting a finalizer on an object and taking it off, and nothing else of it.

By a tested JSON patch: an apply would state all that its manager wants, and whoever made the object may have called
themselves by our name. What they applied would be gone.
"""

from __future__ import annotations

from collections.abc import Collection

from airunway.kube.client import Client
from airunway.kube.errors import Conflict, Invalid, NotFound
from airunway.kube.kinds import Kind
from airunway.resource import Resource, key_of

__all__ = ["add_finalizer", "remove_finalizers"]


async def add_finalizer(client: Client, kind: Kind, obj: Resource, finalizer: str, *, manager: str) -> Resource:
    """Put `finalizer` on `obj`, which does not have it; the object as it is then.

    Raises NotFound, and Conflict if it is another object by now, or its finalizers are others: the newer state brings
    the next pass.
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
    """Remove `finalizers`, which `obj` has, in one write; the object as it is then, or None if it is gone.

    Raises Conflict if the list of finalizers is not that of `obj` any more: the newer state brings the next pass.
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
