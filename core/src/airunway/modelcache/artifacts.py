"""Reconciles one ModelArtifact, and creates those that deployments and templates ask for (docs/model-cache.md).

A pass is: facts from the caches → decision (`artifacts.decision`) → writes → status. Example: the pod
of a download ends, its Job is Complete, and the pass writes one status with the proof of completion.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from weakref import WeakValueDictionary

from airunway.api import names
from airunway.artifacts.claims import artifact_labels
from airunway.artifacts.decision import (
    ArtifactDecision,
    ArtifactFacts,
    decide_artifact,
)
from airunway.artifacts.jobs import bound_to, finished
from airunway.artifacts.status import is_made
from airunway.configs.resolution import propagated
from airunway.kinds import MODEL_ARTIFACT
from airunway.kube import JOB, Client, EventRecorder, NotFound, StatusWriter, soonest
from airunway.modelcache.caches import MARK, ArtifactCaches
from airunway.modelcache.downloads import Tries
from airunway.owned.apply import Applied, WriteHistory, apply_objects
from airunway.owned.objects import Identity, complete, identity_in, is_ours
from airunway.owned.writer import REFUSED_RETRY, NameTaken, Refused, Writer
from airunway.process.config_policy import NamespaceGrants, not_allowed
from airunway.process.jobs import Slots
from airunway.process.memories import Memories
from airunway.process.runtime_configs import RuntimeConfigs
from airunway.resource import ObjectKey, Resource, dig, is_deleting, key_of, labels_by, labels_of, mapping_at, uid_of
from airunway.status.conditions import Condition
from airunway.status.events import ConditionEvents
from airunway.status.evidence import EventFacts, Evidence, PodFacts, claim_facts, pod_facts
from airunway.status.rootcause import RootCause, find_root_cause
from airunway.validation.policy import Grants

log = logging.getLogger(__name__)

_USERS_PAUSE = 2.0
"""Least seconds from one write of a status to one that changes nothing but the users: many deployments come at once,
and pods and Jobs bring passes while they do (`application._USERS_LATER` bounds the passes that users bring)."""

_USERS = frozenset({"users", "usedBy", "unusedSince"})


@dataclass(kw_only=True)
class _Memory:
    """What is remembered of one artifact; nothing depends on it after a restart."""

    history: WriteHistory = field(default_factory=WriteHistory)
    """Recent creations and reverts."""
    cause: RootCause | None = None
    """The root cause of the last pass."""
    refused: Condition | None = None
    """What kept the last pass from writing."""
    held_until: datetime | None = None
    """When a download that was refused, or whose claim was, is tried again; until then it takes no slot."""
    reported: datetime | None = None
    """When the status was written last."""


class ArtifactReconciler:
    """Reconciles artifacts.

    `users_of(artifact)` names the deployments and templates that use one, `labels_of_users(artifact)` has the labels
    that all of them have (None: it has no users), `label_of_template(artifact)` the label that names its template, and
    `progress_of(artifact, uid)` is the newest answer of its download. `grants` are what each namespace may use.
    """

    def __init__(
        self,
        *,
        client: Client,
        caches: ArtifactCaches,
        configs: RuntimeConfigs,
        events: EventRecorder,
        image: str,
        slots: Slots,
        users_of: Callable[[ObjectKey], tuple[str, ...]],
        labels_of_users: Callable[[ObjectKey], dict[str, str] | None],
        label_of_template: Callable[[ObjectKey], dict[str, str]],
        progress_of: Callable[[ObjectKey, str], Resource | None],
        tries: Tries,
        grants: NamespaceGrants,
        clock: Callable[[], datetime],
    ) -> None:
        self._grants = grants
        self._client = client
        self._caches = caches
        self._configs = configs
        self._events = events
        self._image = image
        self._slots = slots
        self._users_of = users_of
        self._labels_of_users = labels_of_users
        self._label_of_template = label_of_template
        self._progress_of = progress_of
        self._tries = tries
        self._clock = clock
        self._writer = Writer(client=client, manager=names.MODEL_CACHE_MANAGER, kind_of=caches.view_of)
        self._status = StatusWriter(
            client=client,
            kind=MODEL_ARTIFACT,
            objects=caches.artifacts.objects,
            manager=names.MODEL_CACHE_MANAGER,
        )
        self._memories = Memories(_Memory)

    def forget(self, key: ObjectKey) -> None:
        """Release all that is remembered of an artifact that is gone."""
        self._memories.forget(key)
        self._slots.give_back(key)

    async def reconcile(self, key: ObjectKey) -> float | None:
        """Reconcile one artifact; returns the seconds until the next reconcile, or None. Raises KubeError for a
        transient failure: the queue retries.
        """
        artifact = self._caches.artifact(key)
        if artifact is None or is_deleting(artifact):
            self.forget(key)
            return None
        grants = self._grants.of(key.namespace)
        if grants is None:
            return None  # it will be announced
        memory = self._memories.of(artifact)
        artifact = await self._labelled(artifact)
        facts = self._facts(artifact, memory, grants)
        decision = decide_artifact(facts)
        if decision.delete_self:
            await self._delete(artifact)
            return None
        held = self._held_for(memory)
        if not decision.wants_slot or held is not None:
            self._slots.give_back(key)
        elif self._slots.take(artifact) and not facts.slot:
            facts = self._facts(artifact, memory, grants)
            decision = decide_artifact(facts)
        again = None
        if decision.objects is not None:
            again = await self._carry_out(artifact, facts, decision, memory)
            if self._held_for(memory) is not None:
                self._slots.give_back(key)  # until the next try: others must not wait for it
            if facts.refused != memory.refused:
                decision = decide_artifact(replace(self._facts(artifact, memory, grants), slot=facts.slot))
        late = await self._report(artifact, decision, memory)
        return soonest(decision.requeue_after, again, held, late)

    def _held_for(self, memory: _Memory) -> float | None:
        """Seconds until a refused download is tried again; None if none is held."""
        left = (memory.held_until - self._clock()).total_seconds() if memory.held_until is not None else 0.0
        return left if left > 0 else None

    # ----------------------------------------------------------------------------------------------------------- facts

    def _facts(self, artifact: Resource, memory: _Memory, grants: Grants) -> ArtifactFacts:
        key, now = key_of(artifact), self._clock()
        resolution = self._configs.resolve(artifact)
        owned = self._caches.owned(artifact)
        claims, jobs, pods = owned.claims, owned.jobs, owned.pods
        memory.cause = find_root_cause(
            evidence_of(artifact, claims=claims, pods=pods, events=self._caches.events.about((*pods, *claims, *jobs))),
            now=now,
            previous=memory.cause,
        )
        running = any(not finished(job) for job in jobs)
        return ArtifactFacts(
            artifact=artifact,
            resolution=resolution,
            not_allowed=not_allowed(artifact, resolution.config, grants),
            claims=claims,
            jobs=jobs,
            pods=pods,
            classes={key_of(each).name: each for each in self._caches.classes.values()},
            users=self._users_of(key),
            progress=self._progress_of(key, uid_of(artifact)) if running else None,
            cause=memory.cause if running or claims else None,
            refused=memory.refused,
            slot=running or self._slots.has(key),
            image=self._image,
            now=now,
        )

    # ---------------------------------------------------------------------------------------------------------- writes

    async def _carry_out(
        self, artifact: Resource, facts: ArtifactFacts, decision: ArtifactDecision, memory: _Memory
    ) -> float | None:
        """Make exactly these objects exist; notes what hinders it, and returns the seconds until the next try.

        A Job is created once its claim is ours, and is never changed: two processes with two images have one Job.
        """
        assert decision.objects is not None, "a decision without objects is not carried out"
        key = key_of(artifact)
        labels = artifact_labels(key.name)
        wanted = [
            complete(obj, owner=artifact, labels={**labels, **(dig(obj, "metadata", "labels") or {})})
            for obj in decision.objects
        ]
        found = self._caches.known((MODEL_ARTIFACT.kind, key), wanted)
        stay = {identity_in(obj) for obj in wanted if obj["kind"] == JOB.kind}
        stay |= {identity for identity in found if identity.kind == JOB.kind and identity.name in decision.kept}
        stay = {identity for identity in stay if identity in found and is_ours(found[identity], artifact, MARK)}
        known = {identity: obj for identity, obj in found.items() if identity not in stay}
        claims = [obj for obj in wanted if obj["kind"] != JOB.kind]
        jobs = [obj for obj in wanted if obj["kind"] == JOB.kind and identity_in(obj) not in stay]
        applied = await self._apply(claims, known, artifact, facts=facts, memory=memory)
        before, memory.refused = memory.refused, _trouble(applied)
        filled = [live for identity, live in applied.live.items() if identity in map(identity_in, claims)]
        if memory.refused is None and jobs and len(filled) == len(claims):
            known = {identity: obj for identity, obj in known.items() if identity.kind == JOB.kind} | {**applied.live}
            jobs = [bound_to(job, claim) for job in jobs for claim in filled] if claims else jobs
            made = await self._apply([*claims, *jobs], known, artifact, facts=facts, memory=memory)
            memory.refused = _trouble(made)
            applied = replace(made, again=soonest(applied.again, made.again))
        if jobs:
            memory.held_until = facts.now + timedelta(seconds=REFUSED_RETRY) if memory.refused is not None else None
        elif memory.refused is None and self._held_for(memory) is not None and _is_of_download(before):
            memory.refused = before
        if applied.refused:
            log.info("%s: %s", key, applied.refused[0])
            return REFUSED_RETRY
        return applied.again

    async def _apply(
        self,
        wanted: list[Resource],
        known: Mapping[Identity, Resource],
        artifact: Resource,
        *,
        facts: ArtifactFacts,
        memory: _Memory,
    ) -> Applied:
        return await apply_objects(
            self._writer,
            wanted,
            known,
            owner=artifact,
            mark=MARK,
            events=self._events,
            history=memory.history,
            now=facts.now,
        )

    async def _labelled(self, artifact: Resource) -> Resource:
        """The artifact with the labels on which its users agree, if this part made it (docs/model-cache.md).

        The rest of the spec is applied as it is, so that what a user changed stays.
        """
        agreed = self._labels_of_users(key_of(artifact)) if is_made(artifact) else None
        if agreed is None:
            return artifact
        kept = {key: value for key, value in labels_of(artifact).items() if key in _OWN_LABELS}
        kept |= self._label_of_template(key_of(artifact))
        wanted = propagated(agreed, self._configs.resolve(artifact).config) | kept
        ours = labels_by(artifact, names.MODEL_CACHE_MANAGER)
        if ours == set(wanted) and all(labels_of(artifact).get(key) == value for key, value in wanted.items()):
            return artifact
        metadata = artifact["metadata"]
        body = {
            "apiVersion": names.API_VERSION,
            "kind": MODEL_ARTIFACT.kind,
            "metadata": {
                **{field: metadata[field] for field in ("name", "namespace", "resourceVersion")},
                "labels": wanted,
                **({"ownerReferences": owners} if (owners := metadata.get("ownerReferences")) else {}),
            },
            "spec": artifact["spec"],
        }
        objects = self._caches.artifacts.objects
        with objects.writing(key_of(artifact)):
            try:
                answer = await self._client.apply(MODEL_ARTIFACT, body, manager=names.MODEL_CACHE_MANAGER, force=True)
            except NotFound:
                return artifact
            objects.note(answer)
        return objects.get(key_of(artifact)) or artifact

    async def _delete(self, artifact: Resource) -> None:
        log.info("%s is deleted: nothing uses it", key_of(artifact))
        try:
            await self._client.delete(MODEL_ARTIFACT, key_of(artifact), uid=uid_of(artifact), propagation="Background")
        except NotFound:
            return

    async def _report(self, artifact: Resource, decision: ArtifactDecision, memory: _Memory) -> float | None:
        """Write the status if it differs; returns the seconds until a change of the users is written."""
        if decision.status is None:
            return None
        now = self._clock()
        if left := users_wait(artifact.get("status"), decision.status, reported=memory.reported, now=now):
            return left
        if not await self._status.write(artifact, decision.status):
            return None
        memory.reported = now
        self._tries.note(artifact.get("status") or {}, decision.status)
        note = f"{dig(decision.status, 'completed', 'bytes')} bytes are complete and verified"
        for condition in _EVENTS:
            for event in condition.of(artifact, decision.status, note=note):
                self._events.emit(artifact, **event.arguments)
        return None


_EVENTS = (
    ConditionEvents(type="Ready", when_true="ModelCacheReady"),
    ConditionEvents(type="DownloadReady", when_fault="DownloadFailed"),
)


def users_wait(live: object, wanted: Resource, *, reported: datetime | None, now: datetime) -> float | None:
    """Seconds for which a status that differs in nothing but the users waits; None if it is to be written now.

    `reported` is when the status was written last; None: not yet by this process.
    """
    if reported is None or live == wanted:
        return None
    before, after = (
        {key: value for key, value in mapping_at(status).items() if key not in _USERS} for status in (live, wanted)
    )
    left = _USERS_PAUSE - (now - reported).total_seconds()
    return left if before == after and 0 < left <= _USERS_PAUSE else None  # a clock may have been ahead


def _is_of_download(refused: Condition | None) -> bool:
    return refused is not None and refused.type == "DownloadReady"


def _trouble(applied: Applied) -> Condition | None:
    """What keeps an artifact from the objects that it needs, as its condition says it."""
    if (found := applied.hindrance(owner_kind=MODEL_ARTIFACT.kind)) is None:
        return None
    obj, reason, text = found
    type_ = "DownloadReady" if obj.get("kind") == JOB.kind else "StorageReady"
    return Condition(type=type_, status=False, reason=reason, message=text)


_OWN_LABELS = frozenset({names.MANAGED_BY, names.PART, names.MODEL_DEPLOYMENT})


# ------------------------------------------------------------------------------------------------------------ evidence


def evidence_of(
    artifact: Resource,
    *,
    claims: Iterable[Resource],
    pods: Iterable[Resource],
    events: Iterable[EventFacts],
) -> Evidence:
    """The evidence for one artifact. Its Jobs are left out: the message of a pod says more. So does the provisioner
    that refuses a claim: a pod that waits for that claim is left out, too.
    """
    events = tuple(events)
    refused = any(each.kind == "PersistentVolumeClaim" and each.reason == "ProvisioningFailed" for each in events)
    alive = [facts for pod in pods if (facts := pod_facts(pod)).alive]
    return Evidence(
        pods=tuple(pod for pod in alive if not (refused and _waits_for_claim(pod))),
        events=events,
        claims=tuple(claim_facts(claim) for claim in claims),
        secrets=dict(_secrets(artifact)),
    )


def _waits_for_claim(pod: PodFacts) -> bool:
    return pod.unscheduled is not None and "unbound immediate PersistentVolumeClaim" in pod.unscheduled.message


def _secrets(artifact: Resource) -> Iterator[tuple[str, str]]:
    """The Secrets that the artifact names, each with the field."""
    spec = artifact.get("spec") or {}
    token = dig(spec, "secrets", "huggingFaceToken")
    if isinstance(token, str) and token:
        yield token, "spec.secrets.huggingFaceToken"
    for position, reference in enumerate(dig(spec, "imagePullSecrets") or ()):
        if isinstance(name := dig(reference, "name"), str):
            yield name, f"spec.imagePullSecrets[{position}]"
    for variable in dig(spec, "env") or ():
        if isinstance(name := dig(variable, "valueFrom", "secretKeyRef", "name"), str):
            yield name, f"spec.env[{dig(variable, 'name')}]"


# ---------------------------------------------------------------------------------------------------- making artifacts


class ArtifactMaker:
    """Creates the artifacts of the part."""

    def __init__(self, *, client: Client, caches: ArtifactCaches) -> None:
        self._caches = caches
        self._writer = Writer(client=client, manager=names.MODEL_CACHE_MANAGER, kind_of=caches.view_of)
        self._makers: WeakValueDictionary[ObjectKey, asyncio.Lock] = WeakValueDictionary()
        """One artifact is created by one worker at a time; a lock lives as long as a worker has it or waits for it."""

    async def make(self, artifact: Resource, *, labels: Mapping[str, str]) -> Refused | None:
        """Create an artifact with these labels besides its own; returns what hinders it. One that exists already has
        the same weights by its name.

        Users of one model that are made in the same second wait for the first of them.
        """
        metadata, key = artifact["metadata"], key_of(artifact)
        async with self._makers.setdefault(key, asyncio.Lock()):
            if self._caches.artifact(key) is not None:
                return None
            body = {**artifact, "metadata": {**metadata, "labels": {**labels, **metadata["labels"]}}}
            try:
                await self._writer.apply(body, None)
            except NameTaken:
                return None  # the watch brings it
            except Refused as no:
                return no
        return None
