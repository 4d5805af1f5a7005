"""Reconciles one template: its status, and the Jobs that ask its image (docs/catalogue.md).

A pass is: facts from the caches → decision (`decide_template`) → status → Job, and again until nothing is left to do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from airunway.artifacts.jobs import finished
from airunway.configs.resolution import EffectiveConfig, Resolution
from airunway.kube import JOB, Client, EventRecorder, StatusWriter
from airunway.owned.objects import complete, is_ours, named
from airunway.owned.plan import conflict_text
from airunway.owned.views import View
from airunway.owned.writer import REFUSED_RETRY, NameTaken, Refused, Writer
from airunway.process.jobs import Slots
from airunway.process.memories import Memories
from airunway.resource import ObjectKey, Resource, dig, is_deleting, key_of
from airunway.status.conditions import Condition, change_of, is_fault
from airunway.status.evidence import Evidence, pod_facts
from airunway.status.rootcause import RootCause, find_root_cause
from airunway.templates.contribution import contribution_of, keeps_warm, warm_requests
from airunway_catalogue.caches import MARK, TemplateCaches
from airunway_catalogue.discovery import pull_secrets_of, request_of
from airunway_catalogue.entrypoints import AskedImage, Entrypoints
from airunway_catalogue.hardware import HardwareFit
from airunway_catalogue.metrics import Discoveries
from airunway_catalogue.names import CATALOGUE_MANAGER
from airunway_catalogue.template_state import Decision, Facts, decide_template, open_job

log = logging.getLogger(__name__)

_MOST_STEPS = 4
"""A pass begins a try, creates its Job and records it; what is left is for the next pass."""


@dataclass(kw_only=True)
class _Memory:
    """What is remembered of one template; nothing depends on it after a restart."""

    job: str = ""
    """The Job of the last pass."""
    cause: RootCause | None = None
    """The root cause of the last pass, of that Job's pod."""
    refused: Condition | None = None
    """What kept the last pass from creating the Job."""


class TemplateReconciler:
    """Reconciles templates of both kinds.

    `config_of(template)` resolves its runtime config, `hardware_of(template)` is what the nodes have for it, and
    `users_of(key)` counts the deployments that use it (None: not all are known). Jobs of ClusterModelTemplates are in
    the namespace `home`. Events of these are in the namespace ``default``, as Kubernetes wants it: `shared_events` is
    whether they can be written there.
    """

    def __init__(
        self,
        *,
        client: Client,
        caches: TemplateCaches,
        home: str,
        shared_events: bool,
        config_of: Callable[[Resource], Resolution],
        hardware_of: Callable[[Resource], HardwareFit],
        users_of: Callable[[ObjectKey], int | None],
        slots: Slots,
        entrypoints: Entrypoints,
        events: EventRecorder,
        discoveries: Discoveries,
        clock: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._caches = caches
        self._home = home
        self._shared_events = shared_events
        self._config_of = config_of
        self._hardware_of = hardware_of
        self._users_of = users_of
        self._slots = slots
        self._entrypoints = entrypoints
        self._events = events
        self._discoveries = discoveries
        self._clock = clock
        # Foreground: the Job stays until its pod is gone, so that no two pods of a template run at once.
        self._writer = Writer(
            client=client,
            manager=CATALOGUE_MANAGER,
            kind_of=self._view_of,
            propagation={(JOB.group, JOB.kind): "Foreground"},
        )
        self._status = {
            view.kind: StatusWriter(client=client, kind=view.kind, objects=view.objects, manager=CATALOGUE_MANAGER)
            for view in (caches.namespaced, caches.cluster)
        }
        self._memories = Memories(_Memory)

    def forget(self, key: ObjectKey) -> None:
        """Release all that is remembered of a template that is gone."""
        self._memories.forget(key)
        self._slots.give_back(key)

    async def reconcile(self, key: ObjectKey) -> float | None:
        """Reconcile one template; returns the seconds until the next reconcile, or None. Raises KubeError for a
        transient failure: the queue retries.
        """
        for _ in range(_MOST_STEPS):
            template = self._caches.template(key)
            if template is None or is_deleting(template):
                self.forget(key)
                return None
            memory = self._memories.of(template)
            await self._look_up(template)
            decision = self._decide(key, template, memory)
            wrote = await self._report(template, decision)
            if decision.wants_entrypoint:
                asked = self._asked(template, self._config_of(template).config)
                if asked is not None:
                    self._entrypoints.ask(asked, template=key)
            for job in decision.delete:
                await self._writer.delete(job)
            if decision.create is not None and self._slots.has(key):
                made = await self._create(template, decision.create, memory)
                if not made:
                    self._slots.give_back(key)  # until the next try: others must not wait for it
                    template = self._caches.template(key) or template
                    await self._report(template, decide_template(self._facts(key, template, memory)))
                    return REFUSED_RETRY
            elif not wrote:
                return decision.requeue_after
        return 0.0

    # ----------------------------------------------------------------------------------------------------------- facts

    def _view_of(self, _obj: Resource) -> View | None:
        return self._caches.jobs

    async def _look_up(self, template: Resource) -> None:
        """Read the Job of an open try from the API server if the caches do not have it: the watch may lag behind a
        restart, and a Job that is gone counts as a failed try.
        """
        name = open_job(template)
        where = ObjectKey(key_of(template).namespace or self._home, name)
        if name and self._caches.job(where) is None:
            found = await self._client.find(JOB, where)
            if found is not None:
                self._caches.jobs.objects.note(found)

    def _jobs_of(self, template: Resource) -> tuple[Resource, ...]:
        """The Jobs of a template, that of an open try included although the watch has not delivered it."""
        jobs = {key_of(job): job for job in self._caches.owned(template).jobs}
        if name := open_job(template):
            job = self._caches.job(ObjectKey(key_of(template).namespace or self._home, name))
            if job is not None and is_ours(job, template, MARK):
                jobs[key_of(job)] = job
        return tuple(jobs.values())

    def _facts(self, key: ObjectKey, template: Resource, memory: _Memory) -> Facts:
        now, pods, jobs = self._clock(), self._caches.owned(template).pods, self._jobs_of(template)
        alive = tuple(facts for pod in pods if (facts := pod_facts(pod)).alive)
        if memory.job != (job := open_job(template)):
            memory.job, memory.cause = job, None
        events = tuple(self._caches.events.about(each for each in jobs if not finished(each)))
        evidence = Evidence(pods=alive, events=events)
        memory.cause = find_root_cause(evidence, now=now, previous=memory.cause) if alive or events else None
        resolution = self._config_of(template)
        keeps = keeps_warm(template)
        requests = warm_requests(template, contribution_of(template), resolution.config) if keeps else ()
        asked = self._asked(template, resolution.config)
        kept = tuple(each.name for each in requests)
        return Facts(
            template=template,
            resolution=resolution,
            hardware=self._hardware_of(template),
            jobs=jobs,
            pods=pods,
            kept=kept,
            artifacts=self._caches.artifacts_of(key.namespace, kept),
            users=self._users_of(key),
            cause=memory.cause,
            refused=memory.refused,
            slot=self._slots.has(key),
            entrypoint=self._entrypoints.known(asked, began=bool(job)) if asked is not None else None,
            now=now,
        )

    def _asked(self, template: Resource, config: EffectiveConfig | None) -> AskedImage | None:
        """The image of which the entrypoint may be read, with the pull Secrets that may be."""
        request = request_of(template)
        if request is None or not request.image or request.command:
            return None
        at_home = key_of(template).namespace in ("", self._home)
        secrets = pull_secrets_of(request, config) if at_home else ()
        return AskedImage(image=request.image, secrets=secrets)

    def _decide(self, key: ObjectKey, template: Resource, memory: _Memory) -> Decision:
        """The decision, with a slot if one is wanted and free."""
        decision = decide_template(self._facts(key, template, memory))
        if not decision.wants_slot:
            self._slots.give_back(key)
        elif not self._slots.has(key) and self._slots.take(template):
            decision = decide_template(self._facts(key, template, memory))
        return decision

    # ---------------------------------------------------------------------------------------------------------- writes

    async def _create(self, template: Resource, job: Resource, memory: _Memory) -> bool:
        """Create the Job of a try, if nothing has its name; False if it cannot be."""
        key = key_of(template)
        owner = {**template, "metadata": {**template["metadata"], "namespace": key.namespace or self._home}}
        wanted = complete(job, owner=owner, labels={MARK.key: MARK.value})
        pod = wanted["spec"]["template"]["metadata"]
        pod["labels"] = {**pod["labels"], MARK.key: MARK.value}
        try:
            await self._writer.apply(wanted, None)
        except Refused as refusal:
            log.info("%s: %s", key, refusal)
            memory.refused = Condition(
                type="DiscoveryReady", status=False, reason=refusal.policy.reason, message=str(refusal)
            )
            return False
        except NameTaken:
            return await self._adopt(template, wanted, memory)
        memory.refused = None
        if self._has_events(template):
            note = f"Created {named(wanted)}: the image is asked for its profile"
            self._events.emit(template, reason="DiscoveryStarted", note=note, action="Discover")
        return True

    async def _adopt(self, template: Resource, wanted: Resource, memory: _Memory) -> bool:
        """The Job exists: an earlier pass made it, or another writer has its name."""
        live = await self._writer.find(wanted)
        if live is not None and not is_ours(live, template, MARK):
            text = conflict_text(wanted, live, owner_kind=template["kind"])
            memory.refused = Condition(type="DiscoveryReady", status=False, reason="ResourceConflict", message=text)
            return False
        if live is not None:
            self._caches.jobs.objects.note(live)
        memory.refused = None
        return True

    async def _report(self, template: Resource, decision: Decision) -> bool:
        """Write the status; whether that was necessary."""
        if decision.status is None:
            return False
        wrote = await self._status[self._caches.of(key_of(template)).kind].write(template, decision.status)
        if wrote:
            self._discoveries.note(template.get("status") or {}, decision.status)
            self._announce(template, decision.status)
        return wrote

    def _announce(self, template: Resource, status: Resource) -> None:
        if not self._has_events(template):
            return
        before, after = dig(template, "status", "phase"), dig(status, "phase")
        if after == "Ready" and before != "Ready":
            self._events.emit(template, reason="TemplateReady", note="The template can be used", action="Check")
        if after == "NotAvailable" and before != "NotAvailable":
            note = str(status["message"])
            if dig(status, "reason") == "GPUNotAvailable":
                self._events.emit(template, reason="GPUNotAvailable", note=note, warning=True, action="Check")
            else:
                self._events.emit(template, reason="InsufficientCapacity", note=note, warning=True, action="Check")
        found = change_of(template, status, "DiscoveryReady")
        due = dig(status, "discovery", "nextAttemptTime")
        is_new_try = due and due != dig(template, "status", "discovery", "nextAttemptTime")
        if is_new_try and is_fault(found.after) and found.before != found.after:
            self._events.emit(template, reason="DiscoveryFailed", note=found.text, warning=True, action="Discover")

    def _has_events(self, template: Resource) -> bool:
        """Whether events of the template can be written."""
        return bool(key_of(template).namespace) or self._shared_events
