"""Reconciles model cache and volumes of one deployment: makes its artifact and the claims of its volumes, and says in
its status how far they are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from airunway.api import names
from airunway.artifacts.claims import access_mode_of, present_claim
from airunway.artifacts.deployments import (
    CONDITION,
    CacheDecision,
    CacheFacts,
    CacheRequest,
    artifact_of,
    decide_cache,
    request_of,
)
from airunway.artifacts.volumes import STORAGE, VolumeDecision, VolumeFacts, claims_named, decide_volumes
from airunway.configs.resolution import awaits_verdict, is_refused, propagated
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, EventRecorder, MutationCache, StatusWriter, soonest
from airunway.modelcache.artifacts import ArtifactMaker
from airunway.modelcache.caches import MARK, ArtifactCaches
from airunway.owned.apply import WriteHistory, apply_objects, fight_text
from airunway.owned.objects import complete, identity_in, is_ours, our_labels
from airunway.owned.plan import conflict_text
from airunway.owned.writer import REFUSED_RETRY, Writer
from airunway.process.logs import log_phase
from airunway.process.memories import Memories
from airunway.process.runtime_configs import RuntimeConfigs
from airunway.resource import (
    ObjectKey,
    Resource,
    condition_of,
    dig,
    key_of,
    labels_of,
)
from airunway.status.conditions import Condition, written_on
from airunway.status.events import ConditionEvents
from airunway.status.evidence import Evidence, claim_facts
from airunway.status.rollup import Verdict
from airunway.status.rootcause import find_root_cause

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class _Memory:
    """What is remembered of one deployment; nothing depends on it after a restart."""

    history: WriteHistory = field(default_factory=WriteHistory)
    """Recent creations and reverts of claims."""
    refused: dict[str, Verdict] = field(default_factory=dict)
    """What kept the last pass from writing a claim, by its name."""


class CacheReconciler:
    """Reconciles caches and volumes of deployments.

    `engine_of(deployment)` is the provider's entry for the engine in use;
    `others(deployment, artifact)` counts the users of an artifact that come before the deployment.
    """

    def __init__(
        self,
        *,
        client: Client,
        deployments: MutationCache,
        caches: ArtifactCaches,
        maker: ArtifactMaker,
        configs: RuntimeConfigs,
        engine_of: Callable[[Resource], Resource | None],
        others: Callable[[Resource, str], int],
        events: EventRecorder,
        clock: Callable[[], datetime],
    ) -> None:
        self._deployments = deployments
        self._caches = caches
        self._maker = maker
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
        self._memories = Memories(_Memory)

    def forget(self, key: ObjectKey) -> None:
        """Release all that is remembered of a deployment that is gone."""
        self._memories.forget(key)

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
            self.forget(key)
            return None
        if awaits_verdict(deployment, self._configs.resolve(deployment).config):
            return None  # the core's write brings the next pass
        cache, waits = await self._cache(key, deployment)
        volumes, delay = await self._volumes(deployment)
        await self._report(deployment, cache, volumes)
        return soonest(waits, delay)

    # ----------------------------------------------------------------------------------------------------------- cache

    async def _cache(self, key: ObjectKey, deployment: Resource) -> tuple[CacheDecision, float | None]:
        """The condition of the weights, once their artifact is made; and the seconds until the next try."""
        request = self.request(deployment)
        artifact = self._caches.artifact(ObjectKey(key.namespace, request.name)) if request is not None else None
        access_mode = ""
        if artifact is not None:
            claim = present_claim(artifact, self._caches.owned(artifact).claims)
            access_mode = access_mode_of(artifact, self._configs.resolve(artifact).config, claim)
        decision = decide_cache(
            CacheFacts(
                deployment=deployment,
                request=request,
                artifact=artifact,
                access_mode=access_mode,
                config_unusable=self._configs.resolve(deployment).missing or is_refused(deployment),
                engine=self._engine_of(deployment),
                others=self._others(deployment, request.name) if request is not None else 0,
            )
        )
        if decision.artifact is not None:
            trouble = await self._make(deployment, decision.artifact)
            if trouble is not None:
                return replace(decision, condition=trouble), REFUSED_RETRY
        return decision, None

    async def _make(self, deployment: Resource, artifact: Resource) -> Condition | None:
        """Create the artifact; returns what hinders it."""
        labels = propagated(labels_of(deployment), self._configs.resolve(deployment).config)
        no = await self._maker.make(artifact, labels=labels)
        if no is None:
            return None
        return Condition(type=CONDITION, status=False, reason=no.policy.reason, message=str(no))

    # --------------------------------------------------------------------------------------------------------- volumes

    async def _volumes(self, deployment: Resource) -> tuple[VolumeDecision, float | None]:
        """The condition of the volumes, once their claims are made; and the seconds until the next try."""
        known = self._memories.find(deployment)
        decision = decide_volumes(self._volume_facts(deployment, known.refused if known is not None else {}))
        if not decision.claims:
            return decision, None
        memory = self._memories.of(deployment)
        again = await self._apply_claims(deployment, decision.claims, memory)
        return decide_volumes(self._volume_facts(deployment, memory.refused)), again

    def _volume_facts(self, deployment: Resource, refused: Mapping[str, Verdict]) -> VolumeFacts:
        namespace, resolution = key_of(deployment).namespace, self._configs.resolve(deployment)
        named = ((name, self._caches.claim(ObjectKey(namespace, name))) for name in claims_named(deployment))
        claims = {name: claim for name, claim in named if claim is not None}
        causes = {}
        for name, claim in claims.items():
            if dig(claim, "status", "phase") != "Bound":
                evidence = Evidence(claims=(claim_facts(claim),), events=tuple(self._caches.events.about([claim])))
                if (cause := find_root_cause(evidence, now=self._clock())) is not None:
                    causes[name] = cause
        return VolumeFacts(
            deployment=deployment,
            config=resolution.config,
            config_unusable=resolution.missing or is_refused(deployment),
            claims=claims,
            ours=frozenset(name for name, claim in claims.items() if is_ours(claim, deployment, MARK)),
            classes={key_of(each).name: each for each in self._caches.classes.values()},
            causes=causes,
            refused=refused,
        )

    async def _apply_claims(self, deployment: Resource, claims: tuple[Resource, ...], memory: _Memory) -> float | None:
        """Make these claims exist; notes what hinders it. Claims that are wanted no longer stay: they hold data."""
        config = self._configs.resolve(deployment).config
        inherited = propagated(labels_of(deployment), config)
        labels = our_labels(deployment, MARK)
        wanted = [complete(claim, owner=deployment, labels=labels, propagated=inherited) for claim in claims]
        namespace = key_of(deployment).namespace
        found = ((obj, self._caches.claim(ObjectKey(namespace, key_of(obj).name))) for obj in wanted)
        applied = await apply_objects(
            self._writer,
            wanted,
            {identity_in(obj): live for obj, live in found if live is not None},
            owner=deployment,
            mark=MARK,
            events=self._events,
            history=memory.history,
            now=self._clock(),
        )
        hindered = {key_of(no.obj).name: (no.policy.reason, str(no)) for no in applied.refused}
        for step in applied.foreign:
            if step.wanted is not None and step.live is not None:
                hindered[key_of(step.wanted).name] = ("ResourceConflict", conflict_text(step.wanted, step.live))
        for step in applied.fought:
            hindered[key_of(step.subject).name] = ("ResourceConflict", fight_text([step]))
        memory.refused = {
            name: Verdict(ready=False, reason=reason, message=text) for name, (reason, text) in hindered.items()
        }
        return REFUSED_RETRY if applied.refused else applied.again

    # ---------------------------------------------------------------------------------------------------------- status

    async def _report(self, deployment: Resource, cache: CacheDecision, volumes: VolumeDecision) -> None:
        """Write the status. Of what is not decided now, what it says stays."""
        if not cache.write_status and not volumes.write_status:
            return
        live = deployment.get("status") or {}
        status: Resource = {}
        model_cache = cache.model_cache if cache.write_status else live.get("modelCache")
        if model_cache is not None:
            status["modelCache"] = model_cache
        decided = [(CONDITION, cache.write_status, cache.condition), (STORAGE, volumes.write_status, volumes.condition)]
        kept = (condition_of(deployment, type_) for type_, writes, _ in decided if not writes)
        conditions = [condition for condition in kept if condition is not None]
        new = [condition for _, writes, condition in decided if writes and condition is not None]
        conditions += written_on(deployment, new, now=self._clock())
        if conditions:
            status["conditions"] = sorted(conditions, key=lambda condition: str(condition.get("type")))
        if await self._status.write(deployment, status) and cache.write_status:
            for event in _EVENTS.of(deployment, status):
                self._events.emit(deployment, **event.arguments)


_EVENTS = ConditionEvents(type=CONDITION, when_true="ModelCacheReady", when_fault="DownloadFailed")
