"""The model cache part of the core's process: its caches, queues and workers (docs/model-cache.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from airunway.api import names
from airunway.artifacts.deployments import CONDITION, wants_cache, why_unready
from airunway.artifacts.jobs import downloads, finished
from airunway.artifacts.status import is_made
from airunway.artifacts.volumes import STORAGE, claims_named, has_volumes
from airunway.configs.resolution import is_refused
from airunway.kube import Client, Priority
from airunway.modelcache.artifacts import ArtifactMaker, ArtifactReconciler
from airunway.modelcache.caches import ArtifactCaches, Owner
from airunway.modelcache.deployments import CacheReconciler
from airunway.modelcache.downloads import ProgressReader, Tries, artifact_points, running_downloads
from airunway.modelcache.templates import WarmTemplates, user_name
from airunway.process.caches import Caches, ProviderCapabilities
from airunway.process.config_policy import NamespaceGrants
from airunway.process.jobs import Slots
from airunway.process.part import Part, Work
from airunway.process.predicates import Reads
from airunway.process.runtime_configs import RuntimeConfigs
from airunway.resource import (
    ObjectKey,
    Resource,
    condition_of,
    dig,
    is_deleting,
    is_true,
    key_of,
    labels_of,
)
from airunway.status.conditions import verdict_in

DEFAULT_DOWNLOADER_IMAGE = "ghcr.io/airunway/model-downloader:0.1.0"
"""Image of the downloader unless ``--downloader-image`` names another one."""


_USERS_LATER = 5.0
"""Seconds after which an artifact counts its users anew."""

_WORKERS = 8


@dataclass(frozen=True, kw_only=True)
class ModelCacheSettings:
    """The configuration of the part."""

    image: str = DEFAULT_DOWNLOADER_IMAGE
    """``--downloader-image``."""
    max_downloads: int = 10
    """``--max-downloads``: downloads at a time."""


class ModelCacheApplication(Part):
    """The model cache part."""

    def __init__(
        self,
        *,
        client: Client,
        caches: Caches,
        instance: str = "",
        settings: ModelCacheSettings | None = None,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        super().__init__(caches, component=names.MODEL_CACHE_MANAGER, instance=instance)
        settings, clock = settings or ModelCacheSettings(), clock or (lambda: datetime.now(UTC))
        self._queue = self._base.queue("model-cache")
        self._artifact_queue = self._base.queue("model-artifacts")
        self._template_queue = self._base.queue("warm-templates")
        self._users = self._deployments.add_index(_artifact_used)
        self._serving = self._deployments.add_index(_claim_served)
        self._known = self._base.overlay()
        self._known.add_listener(self._on_deployment)
        self._configs = RuntimeConfigs(
            caches,
            deployments=self._deployments,
            on_change=lambda cause, users: self._base.enqueue_all(("config", cause), _asks, among=users, damped=True),
        )
        self._claims_named = self._deployments.add_index(
            lambda deployment: (ObjectKey(key_of(deployment).namespace, name) for name in claims_named(deployment))
        )
        self._caches = ArtifactCaches(
            caches,
            on_artifact=self._on_artifact,
            on_owned=self._on_owned,
            on_claim=self._on_claim,
            on_classes=self._on_classes,
        )
        artifacts = self._caches.artifacts.reflector
        self._artifact_configs = RuntimeConfigs(caches, deployments=artifacts, on_change=self._on_artifact_config)
        maker = ArtifactMaker(client=client, caches=self._caches)
        self._templates = WarmTemplates(
            caches,
            artifacts=self._caches,
            maker=maker,
            events=self._base.events,
            wake=lambda key: self._template_queue.add(key, self._base.urgency),
            on_users=self._note_users,
        )
        self._providers = ProviderCapabilities(caches, on_change=self._on_provider)
        self._grants = caches.one(NamespaceGrants)
        self._grants.listeners[names.MODEL_CACHE_MANAGER] = self._on_policy
        self._slots = Slots(settings.max_downloads, wake=self._wake_artifact)
        self._noted: set[ObjectKey] = set()
        """Artifacts whose changed users bring a pass soon."""
        self._progress = ProgressReader(
            running=lambda: running_downloads(self._caches, self._slots), on_change=self._wake_artifact
        )
        self._artifacts = ArtifactReconciler(
            client=client,
            caches=self._caches,
            configs=self._artifact_configs,
            events=self._base.events,
            image=settings.image,
            slots=self._slots,
            users_of=self._users_of,
            labels_of_users=self._labels_of_users,
            label_of_template=self._templates.label_of,
            progress_of=self._progress.of,
            tries=Tries(caches.metrics),
            grants=self._grants,
            clock=clock,
        )
        self._reconciler = CacheReconciler(
            client=client,
            deployments=self._known,
            caches=self._caches,
            maker=maker,
            configs=self._configs,
            engine_of=self._providers.engine_of,
            others=self._users_before,
            events=self._base.events,
            clock=clock,
        )
        self.sources = (self._providers, self._configs, self._artifact_configs, self._caches, self._templates)
        self.work = (
            Work(
                "model-cache",
                self._reconciler.reconcile,
                workers=_WORKERS,
                provider_of=lambda key: self._providers.provider_of(self._deployments.get(key)),
                begin=lambda: self._base.enqueue_all("lead", self._matters),
            ),
            Work(
                "warm-templates",
                self._templates.reconcile,
                begin=self._templates.wake_all,
            ),
            Work(
                "model-artifacts",
                self._artifacts.reconcile,
                workers=_WORKERS,
                begin=self._begin_artifacts,
                end=self._slots.clear,  # a process that stands by has no downloads
            ),
        )
        self.tasks = {"progress": self._progress.run}
        self.metrics.add_source("model-artifacts", lambda: artifact_points(list(artifacts.items())))
        self.metrics.add_source("model-downloads", lambda: self._slots.points("airunway_model_downloads"))

    def _begin_artifacts(self) -> None:
        """Downloads that run keep their slots."""
        self._slots.clear()
        for artifact in self._caches.artifacts.reflector.values():
            key = key_of(artifact)
            if any(not finished(job) and downloads(job) for job in self._caches.owned(artifact).jobs):
                self._slots.claim(key)
            self._artifact_queue.add(key, Priority.BULK)

    # ------------------------------------------------------------------------------------------------ what changes

    def _on_deployment(self, key: ObjectKey, old: Resource | None, new: Resource | None, echo: bool) -> None:
        used = {each for obj in (old, new) if obj is not None for each in _artifact_used(obj)}
        if used and _OF_USERS.of(old) != _OF_USERS.of(new):
            for artifact in used:
                self._note_users(artifact)
                self._wake_conflicting(artifact)
            if new is not None:  # what became of the artifact before its index had this user woke no pass
                self._queue.add(key, self._base.urgency)
        for claim in set(_claim_served(old)) - set(_claim_served(new)):
            if owner := labels_of(self._caches.claim(claim) or {}).get(names.ARTIFACT):
                self._note_users(ObjectKey(claim.namespace, owner))
        if new is None:
            self._reconciler.forget(key)
            return
        if not (self._matters(old) or self._matters(new)):
            return
        if READS.of(old) != READS.of(new) or (not echo and _WRITTEN.of(old) != _WRITTEN.of(new)):
            self._base.enqueue(key, old, new)

    @staticmethod
    def _matters(deployment: Resource | None) -> bool:
        """Whether a pass could change anything."""
        if deployment is None:
            return False
        answered = any(condition_of(deployment, type_) is not None for type_ in (CONDITION, STORAGE))
        return _asks(deployment) or answered or "modelCache" in (deployment.get("status") or {})

    def _on_artifact(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        self._wake_artifact(key)
        if old is None or new is None:
            self._templates.on_artifact(key)
        if READS_OF_ARTIFACT.of(old) != READS_OF_ARTIFACT.of(new):
            self._wake(self._users.get(key))

    def _wake(self, deployments: Iterable[Resource]) -> None:
        for deployment in deployments:
            self._queue.add(key_of(deployment), self._base.urgency)

    def _on_owned(self, owner: Owner) -> None:
        kind, key = owner
        if kind == "ModelArtifact":
            self._wake_artifact(key)
        else:
            self._queue.add(key, self._base.urgency)

    def _on_claim(self, claim: ObjectKey) -> None:
        self._wake(self._claims_named.get(claim))

    def _on_classes(self) -> None:
        self._wake_artifacts()
        self._base.enqueue_all(
            "classes", lambda deployment: has_volumes(deployment) and not is_true(deployment, STORAGE)
        )

    def _on_artifact_config(self, _cause: object, users: Callable[[], list[Resource]]) -> None:
        for artifact in users():
            self._wake_artifact(key_of(artifact))

    def _on_policy(self, namespace: str) -> None:
        """The policy, or the labels of a namespace, have changed (empty: the policy)."""
        self._wake_artifacts(namespace)
        self._templates.wake_all(namespace)

    def _wake_artifacts(self, namespace: str = "") -> None:
        for key in list(self._caches.artifacts.reflector.keys()):
            if namespace in ("", key.namespace):
                self._wake_artifact(key)

    def _note_users(self, artifact: ObjectKey) -> None:
        """Reconcile an artifact whose users have changed, once for all changes of five seconds: fifty deployments of
        one model, made together, are one write of its status.
        """
        if artifact not in self._noted:
            self._noted.add(artifact)
            asyncio.get_running_loop().call_later(_USERS_LATER, self._users_changed, artifact)

    def _users_changed(self, artifact: ObjectKey) -> None:
        self._noted.discard(artifact)
        self._wake_artifact(artifact)

    def _wake_artifact(self, key: ObjectKey) -> None:
        self._artifact_queue.add(key, self._base.urgency)

    def _wake_conflicting(self, artifact: ObjectKey) -> None:
        """Users that could not mount the claim beside another one: that one may have left."""
        self._wake(
            user
            for user in self._users.get(artifact)
            if (condition_of(user, CONDITION) or {}).get("reason") == "AccessModeConflict"
        )

    def _on_provider(self, provider: str) -> None:
        self._base.enqueue_all(
            ("provider", provider),
            lambda deployment: _asks(deployment) and dig(deployment, "status", "provider", "name") == provider,
        )

    # ------------------------------------------------------------------------------------------------ what is read

    def _users_of(self, artifact: ObjectKey) -> tuple[str, ...]:
        claim = dig(self._caches.artifact(artifact), "status", "persistentVolumeClaim")
        serving = self._serving.get(ObjectKey(artifact.namespace, claim)) if isinstance(claim, str) else []
        deployments = {key_of(user).name for user in (*self._users.get(artifact), *serving)}
        templates = (user_name(template) for template in self._templates.users_of(artifact))
        return tuple(sorted((*deployments, *templates)))

    def _labels_of_users(self, artifact: ObjectKey) -> dict[str, str] | None:
        """The labels on whose values all users of an artifact agree; None if nothing uses it."""
        users = [labels_of(user) for user in self._users.get(artifact)]
        users += self._templates.labels_of_users(artifact)
        if not users:
            return None
        first, *others = users
        return {key: value for key, value in first.items() if all(each.get(key) == value for each in others)}

    def _users_before(self, deployment: Resource, artifact: str) -> int:
        """How many users of an artifact come before a deployment: those that have its claim, then the older ones."""
        key, own = key_of(deployment), _seniority(deployment)
        users = self._users.get(ObjectKey(key.namespace, artifact))
        return sum(key_of(user) != key and _seniority(user) < own for user in users)


def _asks(deployment: Resource) -> bool:
    """Whether there is anything for this part to do: a cache, or volumes."""
    return wants_cache(deployment) or has_volumes(deployment)


def _artifact_used(deployment: Resource) -> Iterator[ObjectKey]:
    """The artifact that a deployment uses, by its status."""
    name = dig(deployment, "status", "modelCache", "artifactName")
    if isinstance(name, str) and name and not is_deleting(deployment):
        yield ObjectKey(key_of(deployment).namespace, name)


def _claim_served(deployment: Resource | None) -> Iterator[ObjectKey]:
    """The claim with which a deployment serves; after an edit of its model it is not that of the artifact that it uses
    by its status, until the new weights are Ready.
    """
    claim = dig(deployment, "status", "revision", "cache", "claim")
    if deployment is not None and isinstance(claim, str) and claim and not is_deleting(deployment):
        yield ObjectKey(key_of(deployment).namespace, claim)


def _seniority(deployment: Resource) -> tuple[bool, str, str]:
    """The order in which deployments get a claim that one pod can mount."""
    created = str(dig(deployment, "metadata", "creationTimestamp", default=""))
    return not dig(deployment, "status", "modelCache", "claimName"), created, key_of(deployment).name


def _labels_for_volumes(deployment: Resource) -> object:
    """The labels, if claims of volumes get them."""
    return labels_of(deployment) if has_volumes(deployment) else None


READS = Reads(
    metadata=("uid", "generation", "annotations"),
    status=("engine", "provider.name", "effectiveRuntimeConfig", "effectiveTemplate.hash"),
    made=(is_deleting, verdict_in, is_refused, _labels_for_volumes),
)
"""What this part reads of a deployment."""

_WRITTEN = Reads(status=("modelCache",), conditions=(CONDITION, STORAGE))
"""What it writes there, which another writer may change."""

_OF_USERS = Reads(status=("modelCache.artifactName",), made=(is_deleting, labels_of))
"""What an artifact reads of its users."""


READS_OF_ARTIFACT = Reads(
    metadata=("uid", "generation", "ownerReferences"),
    status=("persistentVolumeClaim", "allocatedSize", "completed.claimUID"),
    made=(is_deleting, is_made, why_unready),
)
"""What the users of an artifact read of it."""
