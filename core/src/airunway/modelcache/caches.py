"""What the model cache part reads: artifacts, their claims, Jobs and pods, and StorageClasses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from airunway.api import names
from airunway.kinds import MODEL_ARTIFACT
from airunway.kube import (
    JOB,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    STORAGE_CLASS,
    Index,
    Kind,
    MutationCache,
    compact_objects,
    transform_once,
)
from airunway.owned.objects import Identity, identity_in
from airunway.process.caches import Caches, SharedCache
from airunway.resource import ObjectKey, Resource, controller_owner, key_of, labels_of

__all__ = ["ArtifactCaches", "View"]

_OURS = f"{names.PART}=model-cache"


@dataclass(frozen=True, kw_only=True)
class View:
    """The objects of one kind that this part writes."""

    kind: Kind
    """The kind."""
    reflector: SharedCache
    """The cache as the API server's watch fills it."""
    objects: MutationCache
    """The cache with the answers to our own writes."""
    of: Index
    """Our objects by the kind and key of the artifact or deployment that they belong to."""


class ArtifactCaches:
    """The caches of the part.

    - `on_artifact(key)` is called for every change of an artifact, and of a claim, Job or pod of one;
    - `on_deployment(key)` for every change of an artifact's state that its users read, and of a deployment's claim.
    """

    def __init__(
        self,
        caches: Caches,
        *,
        on_artifact: Callable[[ObjectKey, Resource | None, Resource | None], None],
        on_owned: Callable[[str, ObjectKey], None],
        on_classes: Callable[[], None],
    ) -> None:
        self._on_owned = on_owned
        project = transform_once(compact_objects(names.MODEL_CACHE_MANAGER))
        self._artifacts = self._view(caches, MODEL_ARTIFACT, project, selector="", optional=True)
        self._artifacts.objects.add_listener(lambda key, old, new, _echo: on_artifact(key, old, new))
        owned = (PERSISTENT_VOLUME_CLAIM, JOB)
        self._views = {kind: self._view(caches, kind, project, selector=_OURS) for kind in owned}
        for view in self._views.values():
            view.objects.add_listener(self._on_change)
        self.pods: SharedCache = caches.of(POD, project=_job_pod, label_selector=_OURS)
        self._pods_of = self.pods.add_index(lambda pod: (ObjectKey(key_of(pod).namespace, _artifact_label(pod)),))
        self.pods.add_handler(lambda key, old, new: self._on_change(key, old, new, False))
        self.classes: SharedCache = caches.of(STORAGE_CLASS, project=_storage_class, everywhere=True)
        self.classes.add_handler(lambda _key, _old, _new: on_classes())

    @staticmethod
    def _view(
        caches: Caches, kind: Kind, project: Callable[[Resource], Resource], *, selector: str, optional: bool = False
    ) -> View:
        reflector = caches.of(kind, project=project, label_selector=selector, optional=optional)
        objects = MutationCache(reflector, project=project)
        return View(kind=kind, reflector=reflector, objects=objects, of=reflector.add_index(_owners_of))

    # ---------------------------------------------------------------------------------------------------- what is read

    @property
    def artifacts(self) -> View:
        """The view of ModelArtifacts."""
        return self._artifacts

    @property
    def served(self) -> bool:
        """Whether the cluster serves ModelArtifacts, as far as it is known."""
        return not self._artifacts.reflector.missing

    def unread(self) -> list[str]:
        """The kinds that have not been read yet."""
        views = (self._artifacts, *self._views.values())
        found = [view.kind.plural for view in views if not view.reflector.synced.is_set()]
        caches = (self.pods, self.classes)
        return [*found, *(cache.kind.plural for cache in caches if not cache.synced.is_set())]

    def view_of(self, obj: Resource) -> View | None:
        """How an object is written; None for a kind that this part does not write."""
        identity = identity_in(obj)
        return next(
            (
                view
                for view in (self._artifacts, *self._views.values())
                if (view.kind.group, view.kind.kind) == identity[:2]
            ),
            None,
        )

    def artifact(self, key: ObjectKey) -> Resource | None:
        return self._artifacts.objects.get(key)

    def jobs_of(self, artifact: ObjectKey) -> list[Resource]:
        """The Jobs of an artifact."""
        return self._owned(JOB, ("ModelArtifact", artifact))

    def claims_of(self, owner: tuple[str, ObjectKey]) -> list[Resource]:
        """The claims of an artifact or deployment, by its kind and key."""
        return self._owned(PERSISTENT_VOLUME_CLAIM, owner)

    def pods_of(self, artifact: ObjectKey) -> list[Resource]:
        """The pods of an artifact's Jobs."""
        return list(self._pods_of.get(artifact))

    def _owned(self, kind: Kind, owner: tuple[str, ObjectKey]) -> list[Resource]:
        view = self._views[kind]
        found = (view.objects.get(key_of(obj)) for obj in view.of.get(owner))
        return [obj for obj in found if obj is not None]

    def known(self, owner: tuple[str, ObjectKey], wanted: Iterable[Resource] = ()) -> dict[Identity, Resource]:
        """The owner's objects of this part, and those with the name of a `wanted` one."""
        found = {identity_in(obj): obj for kind in self._views for obj in self._owned(kind, owner)}
        for obj in wanted:
            view = self.view_of(obj)
            live = view.objects.get(ObjectKey(owner[1].namespace, key_of(obj).name)) if view is not None else None
            if live is not None:
                found[identity_in(obj)] = live
        return found

    # ------------------------------------------------------------------------------------------------------- what runs

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start the watches in `group`."""
        for cache in (self._artifacts.reflector, *(v.reflector for v in self._views.values()), self.pods, self.classes):
            group.create_task(cache.run(), name=f"model cache: {cache.kind.plural}")

    def _on_change(self, _key: ObjectKey, old: Resource | None, new: Resource | None, echo: bool) -> None:
        if echo and old is not None:
            return
        for kind, owner in {each for obj in (old, new) if obj is not None for each in _owners_of(obj)}:
            self._on_owned(kind, owner)


def _artifact_label(obj: Resource) -> str:
    return labels_of(obj).get(names.ARTIFACT, "")


def _owners_of(obj: Resource) -> Iterator[tuple[str, ObjectKey]]:
    """Kind and key of the artifact or deployment that an object belongs to: by its controlling owner, else by label."""
    namespace, owner = key_of(obj).namespace, controller_owner(obj)
    if owner is not None and owner.get("kind") in ("ModelArtifact", "ModelDeployment"):
        yield str(owner["kind"]), ObjectKey(namespace, str(owner.get("name")))
    elif artifact := _artifact_label(obj):
        yield "ModelArtifact", ObjectKey(namespace, artifact)
    elif deployment := labels_of(obj).get(names.MODEL_DEPLOYMENT):
        yield "ModelDeployment", ObjectKey(namespace, deployment)


def _job_pod(pod: Resource) -> Resource:
    """A pod of a Job without its containers' specs, which are large and known."""
    spec = pod.get("spec") or {}
    kept = {key: spec[key] for key in ("nodeName", "schedulingGates") if key in spec}
    metadata = pod.get("metadata") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {key: value for key, value in metadata.items() if key not in ("managedFields", "annotations")},
        "spec": kept,
        "status": pod.get("status") or {},
    }


def _storage_class(found: Resource) -> Resource:
    """A StorageClass without what nothing here depends on."""
    metadata = found.get("metadata") or {}
    return {
        **{key: value for key, value in found.items() if key not in ("metadata", "parameters", "mountOptions")},
        "metadata": {
            key: value
            for key, value in metadata.items()
            if key in ("name", "uid", "resourceVersion", "annotations", "deletionTimestamp")
        },
    }
