"""What exists upstream for each deployment: an index over the caches of the provider's kinds."""

from __future__ import annotations

from collections.abc import Callable

from airunway.api import names
from airunway.kube import Kind
from airunway.resource import ObjectKey, Resource, controller_owner, labels_of

__all__ = ["Children", "deployment_of"]


def deployment_of(key: ObjectKey, obj: Resource) -> ObjectKey | None:
    """The deployment that an object belongs to: by its controlling owner, else by its label."""
    owner = controller_owner(obj)
    if (
        owner is not None
        and owner.get("kind") == "ModelDeployment"
        and str(owner.get("apiVersion")).startswith(names.GROUP)
    ):
        return ObjectKey(key.namespace, str(owner.get("name")))
    name = labels_of(obj).get(names.MODEL_DEPLOYMENT)
    return ObjectKey(key.namespace, name) if name else None


class Children:
    """Objects by deployment, fed by reflectors; `notify(deployment key)` is called for every change."""

    def __init__(self, notify: Callable[[ObjectKey], None]) -> None:
        self._notify = notify
        self._objects: dict[ObjectKey, dict[tuple[Kind, ObjectKey], Resource]] = {}

    def handler(self, kind: Kind) -> Callable[[ObjectKey, Resource | None, Resource | None], None]:
        """The handler to add to the reflector of that kind."""

        def on_change(key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
            before = deployment_of(key, old) if old is not None else None
            after = deployment_of(key, new) if new is not None else None
            if before is not None and before != after:
                self._drop(before, kind, key)
                self._notify(before)
            if after is not None and new is not None:
                self._objects.setdefault(after, {})[kind, key] = new
                self._notify(after)

        return on_change

    def forget_kind(self, kind: Kind) -> None:
        """Drop everything of a kind whose CRD went away."""
        for deployment in list(self._objects):
            for held, key in list(self._objects[deployment]):
                if held == kind:
                    self._drop(deployment, kind, key)
            self._notify(deployment)

    def of(self, deployment: ObjectKey) -> dict[tuple[Kind, ObjectKey], Resource]:
        """All cached objects of a deployment by kind and key."""
        return dict(self._objects.get(deployment, {}))

    def _drop(self, deployment: ObjectKey, kind: Kind, key: ObjectKey) -> None:
        objects = self._objects.get(deployment)
        if objects is not None:
            objects.pop((kind, key), None)
            if not objects:
                del self._objects[deployment]
