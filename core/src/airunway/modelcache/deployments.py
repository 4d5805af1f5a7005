"""Reconciles the model cache of one deployment: makes its artifact, and says in its status how far the weights are."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from airunway.api import names
from airunway.artifacts.deployments import CONDITION, CacheDecision, CacheFacts, decide_cache, is_usable
from airunway.artifacts.request import CacheRequest, request_of
from airunway.configs import propagated
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, EventRecorder, MutationCache, StatusWriter
from airunway.modelcache.caches import ArtifactCaches
from airunway.owned.error_policies import Occupied, Refused
from airunway.owned.writer import Writer
from airunway.process.logs import log_phase
from airunway.process.runtime_configs import RuntimeConfigs
from airunway.resource import ObjectKey, Resource, condition_of, controller_owner, dig, is_deleting, key_of, labels_of
from airunway.status import Category, Condition, category_of
from airunway.status.conditions import conditions_in, written

__all__ = ["CacheReconciler", "artifact_of"]

log = logging.getLogger(__name__)

_REFUSED_RETRY = 30.0
"""Seconds until a refused write is tried again."""


def artifact_of(deployment: Resource, request: CacheRequest | None, live: Resource | None) -> CacheRequest | None:
    """The request with the artifact that the deployment uses already, if that is complete and has the same weights.

    A new default of its runtime config (a StorageClass, an access mode) fetches nothing again (spec ruling 31).
    """
    if request is None or request.artifact is None or live is None or is_deleting(live):
        return request
    wanted, spec = request.artifact["spec"], live.get("spec")
    same = (
        is_usable(live)
        and dig(spec, "source") == wanted["source"]
        and (controller_owner(live) is None) == (controller_owner(request.artifact) is None)
        and all(dig(spec, field) == _own(deployment, field) for field in _OWN if _own(deployment, field))
        and dig(deployment, "spec", "secrets", "huggingFaceToken") in (None, "", dig(spec, *_TOKEN))
    )
    return replace(request, name=key_of(live).name, artifact=live) if same else request


_OWN = ("storageClassName", "accessMode")
_TOKEN = ("secrets", "huggingFaceToken")


def _own(deployment: Resource, field: str) -> object:
    return dig(deployment, "spec", "model", "cache", field)


class CacheReconciler:
    """Reconciles the caches of deployments. `engine_of(deployment)` is the provider's entry for the engine in use;
    `others(deployment, artifact)` counts the users of an artifact that come before the deployment.
    """

    def __init__(
        self,
        *,
        client: Client,
        deployments: MutationCache,
        caches: ArtifactCaches,
        configs: RuntimeConfigs,
        engine_of: Callable[[Resource], Resource | None],
        others: Callable[[Resource, str], int],
        events: EventRecorder,
        clock: Callable[[], datetime],
    ) -> None:
        self._deployments = deployments
        self._caches = caches
        self._configs = configs
        self._engine_of = engine_of
        self._others = others
        self._events = events
        self._clock = clock
        self._writer = Writer(client=client, manager=names.MODEL_CACHE_MANAGER, kind_of=caches.view_of)
        self._status = StatusWriter(
            client=client,
            kind=MODEL_DEPLOYMENT,
            objects=deployments,
            manager=names.MODEL_CACHE_MANAGER,
            on_write=log_phase,
        )

    def request(self, deployment: Resource) -> CacheRequest | None:
        """What the deployment asks for under its config."""
        request = request_of(deployment, self._configs.resolve(deployment).config)
        before = dig(deployment, "status", "modelCache", "artifactName")
        live = None
        if isinstance(before, str) and before:
            live = self._caches.artifact(ObjectKey(key_of(deployment).namespace, before))
        return artifact_of(deployment, request, live)

    async def reconcile(self, key: ObjectKey) -> float | None:
        """Reconcile one deployment; returns the seconds until the next reconcile, or None. Raises KubeError for a
        transient failure: the queue retries.
        """
        deployment = self._deployments.get(key)
        if deployment is None:
            return None
        request = self.request(deployment)
        artifact = self._caches.artifact(ObjectKey(key.namespace, request.name)) if request is not None else None
        decision = decide_cache(
            CacheFacts(
                deployment=deployment,
                request=request,
                artifact=artifact,
                config_missing=self._configs.resolve(deployment).missing,
                engine=self._engine_of(deployment),
                others=self._others(deployment, request.name) if request is not None else 0,
            )
        )
        again = None
        if decision.artifact is not None:
            trouble = await self._make(deployment, decision.artifact)
            if trouble is not None:
                decision, again = replace(decision, condition=trouble), _REFUSED_RETRY
        await self._report(deployment, decision)
        return again

    async def _make(self, deployment: Resource, artifact: Resource) -> Condition | None:
        """Create the artifact; returns what hinders it. One that exists already has the same weights by its name."""
        metadata = artifact["metadata"]
        labels = propagated(labels_of(deployment), self._configs.resolve(deployment).config) | metadata["labels"]
        try:
            await self._writer.apply({**artifact, "metadata": {**metadata, "labels": labels}}, None)
        except Occupied:
            return None  # the watch brings it
        except Refused as no:
            reason = "Forbidden" if no.kind is None else no.policy.reason
            return Condition(type=CONDITION, status=False, reason=reason, message=str(no))
        return None

    async def _report(self, deployment: Resource, decision: CacheDecision) -> None:
        if not decision.write_status:
            return
        status: Resource = {}
        live = deployment.get("status") or {}
        if decision.model_cache is not None:
            status["modelCache"] = decision.model_cache
        if decision.condition is not None:
            generation = deployment["metadata"].get("generation", 0)
            status["conditions"] = written(
                [decision.condition], previous=conditions_in(live), generation=generation, now=self._clock()
            )
        if await self._status.write(deployment, status):
            self._announce(deployment, decision.condition)

    def _announce(self, deployment: Resource, condition: Condition | None) -> None:
        """Emit an event where the weights became ready, or have another fault than before."""
        if condition is None:
            return
        before = condition_of(deployment, CONDITION) or {}
        if condition.status is True and before.get("status") != "True":
            self._events.emit(deployment, reason="ModelCacheReady", note=condition.message, action="Download")
        fault = condition.status is False and category_of(condition.reason) is not Category.PROGRESS
        if fault and (before.get("status"), before.get("reason")) != ("False", condition.reason):
            note = f"{condition.reason}: {condition.message}"
            self._events.emit(deployment, reason="DownloadFailed", note=note, warning=True, action="Download")
