"""What the model cache part reads: artifacts, their claims, Jobs and pods, and StorageClasses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from airunway.api import names
from airunway.kinds import MODEL_ARTIFACT
from airunway.kube import (
    JOB,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    STORAGE_CLASS,
    compact_objects,
    transform_once,
)
from airunway.owned.objects import Identity, Mark, identity_in, is_ours
from airunway.owned.views import OwnedView, known_objects, views_by_kind
from airunway.process.caches import Caches, Sources
from airunway.process.jobs import WarningEvents, job_pod
from airunway.resource import ObjectKey, Resource, controller_owner, dig, kept, key_of, labels_of, uid_of
from airunway.status.evidence import EventFacts

MARK = Mark(names.PART, names.MODEL_CACHE_PART)
"""The label on all objects of this part."""

Owner: TypeAlias = tuple[str, ObjectKey]
"""Kind and key of an artifact or deployment."""

_OUR_NAME = re.compile(r"-(check-size|download)-[0-9a-f]{8}")
"""What the names of our Jobs' pods have in common."""


@dataclass(frozen=True, kw_only=True)
class Owned:
    """What belongs to exactly one artifact, by uid: an earlier one may have had its name."""

    claims: tuple[Resource, ...]
    """Its claims."""
    jobs: tuple[Resource, ...]
    """Its Jobs."""
    pods: tuple[Resource, ...]
    """Pods that these Jobs own; one that only has their labels does not count."""


class ArtifactCaches(Sources):
    """The caches of the part.

    - `on_artifact(key, old, new)` is called for every change of an artifact;
    - `on_owned((kind, key))` for every change of a claim, Job or pod, or event about one, with the kind and key of the
      artifact or deployment that it belongs to;
    - `on_claim(key)` for every change of a claim with any owner, and for every event about one;
    - `on_classes()` if a StorageClass came, went or changed.

    Claims of others are read, too, because volumes of deployments name them; of these only what a volume depends on is
    kept.
    """

    def __init__(
        self,
        caches: Caches,
        *,
        on_artifact: Callable[[ObjectKey, Resource | None, Resource | None], None],
        on_owned: Callable[[Owner], None],
        on_claim: Callable[[ObjectKey], None],
        on_classes: Callable[[], None],
    ) -> None:
        super().__init__(caches)
        self._on_owned = on_owned
        self._on_claim = on_claim
        project = transform_once(compact_objects(names.MODEL_CACHE_MANAGER))
        owns = partial(self.owns, owners_of=_owners_of)
        self.artifacts = owns(MODEL_ARTIFACT, project=project)
        self.artifacts.objects.add_listener(lambda key, old, new, _echo: on_artifact(key, old, new))
        self._claims = owns(PERSISTENT_VOLUME_CLAIM, project=_claims(project), wakes=on_owned)
        self._claims.objects.add_listener(lambda key, *_: on_claim(key))
        self._jobs = owns(JOB, project=project, wakes=on_owned, label_selector=MARK.selector)
        self._views = views_by_kind((self._claims, self._jobs))
        self.pods = self.watches(POD, project=job_pod, wakes=self._on_pod, label_selector=MARK.selector)
        self._pods_of = self.pods.add_index(lambda pod: (artifact_of(pod),))
        self.events = WarningEvents(self, concerns=_is_ours, find=self._found, wakes=self._on_event)
        self.classes = self.watches(
            STORAGE_CLASS, project=_storage_class, wakes=lambda *_: on_classes(), everywhere=True
        )

    # ---------------------------------------------------------------------------------------------------- what is read

    def view_of(self, obj: Resource) -> OwnedView | None:
        """How an object is written; None for a kind that this part does not write."""
        kind = identity_in(obj)[:2]
        return self.artifacts if kind == (names.GROUP, MODEL_ARTIFACT.kind) else self._views.get(kind)

    def artifact(self, key: ObjectKey) -> Resource | None:
        return self.artifacts.objects.get(key)

    def owned(self, artifact: Resource) -> Owned:
        """The claims, Jobs and pods of an artifact."""
        key = key_of(artifact)
        owner = (MODEL_ARTIFACT.kind, key)
        claims, jobs = (
            tuple(obj for obj in view.owned(owner) if is_ours(obj, artifact, MARK)) for view in self._views.values()
        )
        uids = {uid_of(job) for job in jobs}
        pods = (pod for pod in self._pods_of.get(key) if dig(controller_owner(pod), "uid") in uids)
        return Owned(claims=claims, jobs=jobs, pods=tuple(pods))

    def claim(self, key: ObjectKey) -> Resource | None:
        """A claim with any owner; of one of others only what a volume depends on."""
        return self._claims.objects.get(key)

    def known(self, owner: Owner, wanted: Iterable[Resource] = ()) -> dict[Identity, Resource]:
        """The owner's objects of this part, and those with the name of a `wanted` one."""
        return known_objects(self._views, owner, wanted)

    # ------------------------------------------------------------------------------------------------- what changes

    def _found(self, event: EventFacts) -> Resource | None:
        """The claim, Job or pod that an event is about."""
        key = ObjectKey(event.namespace, event.name)
        match event.kind:
            case "Pod":
                return self.pods.get(key)
            case "Job":
                return self._jobs.objects.get(key)
            case _:
                return self.claim(key)

    def _on_event(self, event: EventFacts, found: Resource) -> None:
        self._tell(found)
        if event.kind == PERSISTENT_VOLUME_CLAIM.kind:
            self._on_claim(key_of(found))

    def _on_pod(self, _key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        self._tell(old, new)

    def _tell(self, *changed: Resource | None) -> None:
        for owner in {each for obj in changed if obj is not None for each in _owners_of(obj)}:
            self._on_owned(owner)


def _is_ours(kind: object, name: str) -> bool:
    """Whether an object is a claim, or a Job or pod with one of our names."""
    return kind == "PersistentVolumeClaim" or (kind in ("Pod", "Job") and _OUR_NAME.search(name) is not None)


def artifact_of(pod: Resource) -> ObjectKey:
    """The artifact that a pod's label names."""
    return ObjectKey(key_of(pod).namespace, _artifact_label(pod))


def _artifact_label(obj: Resource) -> str:
    return labels_of(obj).get(names.ARTIFACT, "")


def _owners_of(obj: Resource) -> Iterator[Owner]:
    """Kind and key of the artifact or deployment that an object belongs to: by its controlling owner, else by label."""
    namespace, owner = key_of(obj).namespace, controller_owner(obj)
    if owner is not None and owner.get("kind") in ("ModelArtifact", "ModelDeployment"):
        yield str(owner["kind"]), ObjectKey(namespace, str(owner.get("name")))
    elif artifact := _artifact_label(obj):
        yield "ModelArtifact", ObjectKey(namespace, artifact)
    elif deployment := labels_of(obj).get(names.MODEL_DEPLOYMENT):
        yield "ModelDeployment", ObjectKey(namespace, deployment)


def _claims(project: Callable[[Resource], Resource]) -> Callable[[Resource], Resource]:
    """The projection of claims: ours by `project`, of others only what a volume that names them depends on."""

    def projected(claim: Resource) -> Resource:
        if labels_of(claim).get(MARK.key) == MARK.value:
            return project(claim)
        owner, metadata = controller_owner(claim), kept(claim.get("metadata"), *_CLAIM_METADATA)
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {**metadata, **({"ownerReferences": [owner]} if owner is not None else {})},
            "spec": kept(claim.get("spec"), "storageClassName"),
            "status": {"phase": dig(claim, "status", "phase")},
        }

    return projected


_CLAIM_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")


def _storage_class(found: Resource) -> Resource:
    """A StorageClass without what nothing here depends on."""
    metadata = ("name", "uid", "resourceVersion", "annotations", "deletionTimestamp")
    return {
        **{key: value for key, value in found.items() if key not in ("metadata", "parameters", "mountOptions")},
        "metadata": kept(found.get("metadata"), *metadata),
    }
