"""Taking a finalizer off an object, and nothing else of it."""

from __future__ import annotations

from airunway.kube.client import Client
from airunway.kube.errors import Conflict, Invalid, NotFound
from airunway.kube.kinds import Kind
from airunway.resource import Resource, key_of

__all__ = ["remove_finalizer"]


async def remove_finalizer(
    client: Client, kind: Kind, obj: Resource, finalizer: str, *, manager: str
) -> Resource | None:
    """Remove `finalizer`, which `obj` has; the object as it is then, or None if it is gone.

    Raises Conflict if the list of finalizers is not that of `obj` any more: the newer state brings the next pass.
    """
    path = f"/metadata/finalizers/{obj['metadata']['finalizers'].index(finalizer)}"
    operations = [{"op": "test", "path": path, "value": finalizer}, {"op": "remove", "path": path}]
    try:
        return await client.json_patch(kind, key_of(obj), operations, manager=manager)
    except NotFound:
        return None
    except Invalid as error:
        raise Conflict(409, "Conflict", f"the finalizers changed meanwhile: {error.message}") from error
