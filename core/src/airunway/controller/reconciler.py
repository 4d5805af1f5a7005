"""Reconciles one ModelDeployment for the core; of a deleted one, removes finalizers of providers that are gone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TypeAlias

from airunway.api import names
from airunway.api.bounds import EXCESS
from airunway.controller.decision import NO_CONFIG, SILENT_AFTER, decide, provider_owns_phase, rolled_out_by
from airunway.controller.guarded import GuardParameters, providers_of
from airunway.controller.policies import Policies
from airunway.controller.waves import Rollouts
from airunway.first_seen import FirstSeen
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, Conflict, EventRecorder, MutationCache, StatusWriter, remove_finalizers
from airunway.process.deployment_cache import to_validate, with_all_finalizers
from airunway.process.logs import log_phase
from airunway.process.memories import Memories
from airunway.process.runtime_configs import RuntimeConfigs
from airunway.resource import (
    ObjectKey,
    Resource,
    annotations_of,
    dig,
    finalizers_of,
    is_deleting,
    key_of,
    parse_time,
)
from airunway.revisions.revision import TEMPLATE
from airunway.selection.choice import forbidden_now, unsettled
from airunway.selection.facts import ProviderFacts
from airunway.status.rollup import OVERALL
from airunway.templates.part import (
    NO_TEMPLATES,
    TemplatePart,
    TemplateSource,
    is_judged,
    judged_digest,
    keeps_record,
    taken_of,
    template_part,
)
from airunway.validation import Violation, excesses, validate
from airunway.validation.policy import NAMESPACE_NAME, Policy

log = logging.getLogger(__name__)


_PHASE_FIELDS = ("f:phase", "f:reason", "f:message")
_OVERALL_KEYS = frozenset(f'k:{{"type":"{type_}"}}' for type_ in OVERALL)
_PROVIDER_MANAGERS = names.provider_manager("")


_Judged: TypeAlias = tuple[int, object]
"""What was judged: the generation of a deployment, and what its template gives."""


@dataclass(kw_only=True)
class _Memory:
    """What is remembered of one deployment.

    A restart loses `accepted`: under a policy that has become stricter, a replica change is then judged again.
    """

    verdicts: list[tuple[_Judged, list[Violation]]] = field(default_factory=list)
    """What the rules say of the last two: of the values of a template that are in use, and of newer ones."""
    accepted: tuple[_Judged, str] | None = None
    """What was accepted last, and its `judged_digest`."""
    taken: tuple[tuple[object, ...], str] | None = None
    """Spec, adopt annotation and record of it, with their digest (`templates.taken_of`)."""


class CoreReconciler:
    """The core's reconcile. It knows no provider by name, and writes nothing upstream.

    `configs` are the runtime configs (None: there are none), `rollouts` knows what a deployment may take although it
    serves; `parts` are the parts of the core that are on; `templates` finds model templates.
    """

    def __init__(
        self,
        *,
        client: Client,
        deployments: MutationCache,
        providers: Mapping[str, ProviderFacts],
        events: EventRecorder,
        selector: bool,
        clock: Callable[[], datetime],
        policies: Policies | None = None,
        guarded: GuardParameters | None = None,
        configs: RuntimeConfigs | None = None,
        rollouts: Rollouts | None = None,
        parts: Sequence[str] = (),
        templates: TemplateSource = NO_TEMPLATES,
    ) -> None:
        self._configs = configs
        self._templates = templates
        self._rollouts = rollouts or Rollouts()
        self._parts = tuple(parts)
        self._deployments = deployments
        self._status = StatusWriter(
            client=client,
            kind=MODEL_DEPLOYMENT,
            objects=deployments,
            manager=names.CORE_MANAGER,
            on_write=log_phase,
        )
        self._providers = providers
        self._events = events
        self._selector = selector
        self._clock = clock
        self._policies = policies
        self._guarded = guarded
        self._cleanup = OrphanFinalizer(client=client, providers=providers, events=events, clock=clock)
        self._memories = Memories(_Memory)

    async def reconcile(self, key: ObjectKey) -> float | None:
        """One pass; returns the seconds until the next pass if time alone changes the result."""
        deployment = self._deployments.get(key)
        if deployment is None or is_deleting(deployment):
            self._memories.forget(key)
            if deployment is None:
                self._cleanup.forget(key)
                return None
            return await self._cleanup.release(deployment)
        policy, labels = self._policy(key.namespace)
        if labels is None:
            return None  # the watch of namespaces lags; its event triggers the pass
        resolution = self._configs.resolve(deployment) if self._configs is not None else NO_CONFIG
        granted = self._rollouts.granted(deployment, rolled_out_by(resolution.config))
        taken = self._taken_of(deployment)
        template, violations = self._judge(deployment, policy, labels, granted=granted, taken=taken)
        deployment = template.deployment
        decision = decide(
            deployment,
            violations=violations,
            providers=list(self._providers.values()),
            selector=self._selector,
            grants=policy.grants(labels),
            now=self._clock(),
            resolution=resolution,
            granted=granted,
            parts=self._parts,
            template=template,
            taken=taken,
        )
        decided = self._events.moment()
        await self._update_guard_parameters(deployment, decision.status, valid=not violations)
        if not await self._write(deployment, decision.status):
            return None
        for event in decision.events:
            self._events.emit(deployment, reason=event.reason, note=event.note, action=event.action, at=decided)
        return None

    async def _update_guard_parameters(self, deployment: Resource, status: Resource, *, valid: bool) -> None:
        """Update the guards' parameters before the verdict, for which providers wait: guards must allow their
        writes.
        """
        if self._guarded is None:
            return
        # An external selector chooses after this pass.
        chosen = [dig(status, "provider", "name")] if self._selector else list(self._providers)
        providers = {*providers_of(deployment), *filter(None, chosen)}
        await self._guarded.include(deployment, providers=providers, valid=valid)

    def _policy(self, namespace: str) -> tuple[Policy, Mapping[str, str] | None]:
        """The policy in force, and the labels of the namespace if they are known already."""
        if self._policies is None:
            return Policy(), {NAMESPACE_NAME: namespace}
        return self._policies.policy, self._policies.known_labels(namespace)

    def _taken_of(self, deployment: Resource) -> str:
        """`templates.taken_of`, computed once per spec and value of the adopt annotation."""
        memory = self._memories.of(deployment)
        subject = (
            dig(deployment, "metadata", "generation"),
            annotations_of(deployment).get(names.ADOPT),
            dig(deployment, "status", "revision", "adopted"),
        )
        if memory.taken is None or memory.taken[0] != subject:
            memory.taken = subject, taken_of(deployment)
        return memory.taken[1]

    def _judge(
        self,
        deployment: Resource,
        policy: Policy,
        labels: Mapping[str, str],
        *,
        granted: Collection[str],
        taken: str,
    ) -> tuple[TemplatePart, list[Violation]]:
        """The part of the template that the deployment takes, and what is wrong with it then.

        If other values of its template are refused, what serves goes on with those that it has. If those are refused
        that it has, it takes the newest ones, unless these are refused, too.
        """
        part = partial(template_part, deployment, self._templates, taken=taken)
        template = part(granted=granted)
        violations = self._violations(template, policy, labels)
        if violations and keeps_record(deployment, template):
            kept = part(refused=violations)
            if (left := self._violations(kept, policy, labels)) != violations:  # else the template is not at fault
                return kept, left
        elif violations and dig(template.status, "effectiveTemplate", "newerHash"):
            newest = part(granted=(TEMPLATE,))
            if not self._violations(newest, policy, labels):
                return newest, []
        elif (
            template.newest != template.value
            and not template.unusable
            # What waits is judged before it is offered to a wave.
            and (refused := self._violations(part(granted=(TEMPLATE,)), policy, labels))
        ):
            return part(refused=refused), violations
        return template, violations

    def _violations(self, template: TemplatePart, policy: Policy, labels: Mapping[str, str]) -> list[Violation]:
        """What is wrong with a deployment, by the rules or else by the policy. The rules are asked once per generation
        and for what its template gives: most passes follow a change of the status.

        Limits on size are checked in each pass, because metadata does not change the generation; the cache has the
        result.
        """
        deployment = template.deployment
        if EXCESS in deployment:
            return excesses(deployment)
        memory, spec = self._memories.of(deployment), _judged(template)
        verdict = next((found for judged, found in memory.verdicts if judged == spec), None)
        if verdict is None:
            verdict = validate(to_validate(deployment))
            memory.verdicts = [*memory.verdicts[-1:], (spec, verdict)]
        accepted = _is_accepted(template, memory)
        return unsettled(deployment, verdict, accepted=accepted) or forbidden_now(
            policy, deployment, namespace_labels=labels, accepted=accepted
        )

    async def _write(self, deployment: Resource, status: Resource) -> bool:
        """Apply without force, so that the fields of a provider that took over meanwhile are not overwritten.

        A conflict with a provider means that our state is outdated: the pass is repeated. A conflict with another
        manager is an edit of our fields, and is reverted.
        """
        compared = _without_phase_fields(deployment)
        try:
            return await self._status.write(deployment, status, force=False, compared=compared)
        except Conflict as error:
            if not error.causes or any(_PROVIDER_MANAGERS in str(cause.get("message")) for cause in error.causes):
                raise
            log.info("reverting an edit of the core's status fields: %s", error.message)
            return await self._status.write(deployment, status, compared=compared)


def _judged(template: TemplatePart) -> _Judged:
    return dig(template.deployment, "metadata", "generation", default=0), template.value.get("spec")


def _is_accepted(template: TemplatePart, memory: _Memory) -> bool:
    """Whether the deployment was accepted before: this generation, or the last one that this process has seen accepted,
    if it differs in nothing but replica counts. A stricter policy must not stop an autoscaler.
    """
    spec, known = _judged(template), memory.accepted
    if is_judged(template.deployment, template):
        if known is None or known[0] != spec:
            memory.accepted = spec, judged_digest(template.deployment, template)
        return True
    return known is not None and known[1] == judged_digest(template.deployment, template)


def _without_phase_fields(deployment: Resource) -> Resource:
    """The object as if we had never owned the fields that a provider has taken over.

    After a forced apply we still own remainders (``type`` of the ``Ready`` condition); giving them up is not worth a
    write.
    """
    if not provider_owns_phase(deployment):
        return deployment
    entries = []
    for entry in dig(deployment, "metadata", "managedFields", default=[]):
        status = dig(entry, "fieldsV1", "f:status")
        if entry.get("manager") != names.CORE_MANAGER or not isinstance(status, dict):
            entries.append(entry)
            continue
        kept = {field: value for field, value in status.items() if field not in _PHASE_FIELDS}
        if isinstance(kept.get("f:conditions"), dict):
            kept["f:conditions"] = {
                key: value for key, value in kept["f:conditions"].items() if key not in _OVERALL_KEYS
            }
        entries.append({**entry, "fieldsV1": {**entry["fieldsV1"], "f:status": kept}})
    return {**deployment, "metadata": {**deployment["metadata"], "managedFields": entries}}


# ------------------------------------------------------------------------------- finalizers of providers that are gone


_MAX_EVENTS = 4
"""Maximum providers of one deployment that are named. It has had two at most, but users can write finalizers."""


def orphaned_finalizers(
    deployment: Resource, providers: Mapping[str, ProviderFacts], *, since: datetime, now: datetime
) -> tuple[tuple[str, ...], float | None]:
    """The finalizers of absent providers that are to be removed from a deleted deployment, and the seconds until the
    next check.

    A provider that sends heartbeats removes its finalizer itself, with the same time limit. `since` is the time of the
    deletion, by the same clock as `now`.
    """
    if not is_deleting(deployment):
        return (), None
    held = [
        finalizer
        for finalizer in finalizers_of(deployment)
        if (provider := names.provider_of_finalizer(finalizer)) and not _is_there(providers.get(provider), now)
    ]
    left = (since + names.FINALIZER_TIMEOUT - now).total_seconds()
    if not held or left > 0:
        return (), left if held else None
    return tuple(held), None


def _is_there(provider: ProviderFacts | None, now: datetime) -> bool:
    if provider is None:
        return False
    silence = provider.silence(now)
    return provider.ready if silence is None else silence < SILENT_AFTER


class OrphanFinalizer:
    """Removes the finalizers of absent providers and emits an event for each."""

    def __init__(
        self,
        *,
        client: Client,
        providers: Mapping[str, ProviderFacts],
        events: EventRecorder,
        clock: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._providers = providers
        self._events = events
        self._clock = clock
        self._deletions: FirstSeen[ObjectKey] = FirstSeen(clock)

    def forget(self, key: ObjectKey) -> None:
        """Drop the state of a deployment that is gone."""
        self._deletions.forget(key)

    async def release(self, deployment: Resource) -> float | None:
        """One pass over a deleted deployment; returns the seconds until the next pass. Raises KubeError."""
        deleted = parse_time(dig(deployment, "metadata", "deletionTimestamp"))
        since = self._deletions.since(key_of(deployment), deleted)
        now, providers = self._clock(), self._providers
        finalizers, again = orphaned_finalizers(deployment, providers, since=since, now=now)
        if not finalizers:
            return again
        found = await with_all_finalizers(self._client, deployment)
        finalizers, _ = orphaned_finalizers(found, providers, since=since, now=now)
        taken = frozenset(finalizers)
        if taken and await remove_finalizers(self._client, MODEL_DEPLOYMENT, found, taken, manager=names.CORE_MANAGER):
            for finalizer in finalizers[:_MAX_EVENTS]:
                self._emit_timeout(deployment, names.provider_of_finalizer(finalizer))
        return None

    def _emit_timeout(self, deployment: Resource, provider: str) -> None:
        kind, name = (dig(deployment, "status", "provider", field) for field in ("resourceKind", "resourceName"))
        what = f"{kind} {key_of(deployment).namespace}/{name}" if kind and name else "the upstream resource"
        facts = self._providers.get(provider)
        since = "is not registered" if facts is None else "has sent no heartbeat for too long"
        log.warning(
            "%s: finalizer of provider '%s' removed because the provider %s; upstream objects may be orphaned",
            key_of(deployment),
            provider,
            since,
        )
        self._events.emit(
            deployment,
            reason="FinalizerTimeout",
            note=f"Finalizer removed after timeout, {what} may be orphaned (provider '{provider}' {since})",
            warning=True,
            action="Release",
            vital=True,
        )
