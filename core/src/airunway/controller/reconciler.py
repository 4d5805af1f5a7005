"""The core's reconcile of one ModelDeployment, and the finalizers that it removes for absent providers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime

from airunway.api import names
from airunway.api.bounds import EXCESS
from airunway.controller.decision import Happening, decide, handed_over
from airunway.controller.guarded import GuardParameters, providers_of
from airunway.controller.orphan_finalizers import OrphanFinalizer
from airunway.controller.policies import Policies
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, Conflict, EventRecorder, MutationCache, StatusWriter
from airunway.process.logs import log_phase
from airunway.resource import ObjectKey, Resource, dig, is_deleting, uid_of
from airunway.selection import ProviderFacts, forbidden_now, unsettled
from airunway.status import OVERALL
from airunway.status.events import EVENTS
from airunway.validation import Violation, excesses, validate
from airunway.validation.policy import NAMESPACE_NAME, Policy

__all__ = ["CoreReconciler"]

log = logging.getLogger(__name__)


_HANDED_OVER = ("f:phase", "f:reason", "f:message")
_OVERALL_KEYS = frozenset(f'k:{{"type":"{type_}"}}' for type_ in OVERALL)
_PROVIDER_MANAGERS = names.provider_manager("")


class CoreReconciler:
    """The loop body of the core: no provider is named here, and nothing upstream is touched."""

    def __init__(
        self,
        *,
        client: Client,
        deployments: MutationCache,
        providers: Callable[[], Mapping[str, ProviderFacts]],
        events: EventRecorder,
        selector: bool,
        clock: Callable[[], datetime],
        policies: Policies | None = None,
        guarded: GuardParameters | None = None,
    ) -> None:
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
        self._releaser = OrphanFinalizer(client=client, providers=providers, events=events, clock=clock)
        self._verdicts: dict[ObjectKey, tuple[str, int, list[Violation]]] = {}

    async def reconcile(self, key: ObjectKey) -> float | None:
        """One pass; when to look again in seconds, where time itself changes what is to be done."""
        deployment = self._deployments.get(key)
        if deployment is None or is_deleting(deployment):
            self._verdicts.pop(key, None)
            if deployment is None:
                self._releaser.forget(key)
                return None
            return await self._releaser.release(deployment)
        violations = self._violations(key, deployment)
        policy, labels = self._policy(key.namespace)
        if labels is None:
            return None  # the watch of namespaces is a moment behind; its event brings us back
        violations = violations or forbidden_now(policy, deployment, namespace_labels=labels)
        decision = decide(
            deployment,
            violations=violations,
            providers=list(self._providers().values()),
            selector=self._selector,
            grants=policy.grants(labels),
            now=self._clock(),
        )
        decided = self._events.moment()
        await self._tell_guards(deployment, decision.status, valid=not violations)
        if not await self._write(deployment, decision.status):
            return None
        for event in decision.events:
            self._tell(deployment, event, at=decided)
        return None

    async def _tell_guards(self, deployment: Resource, status: Resource, *, valid: bool) -> None:
        """Before the verdict, for which providers wait: no guard is to refuse what the deployment asks for."""
        if self._guarded is None:
            return
        # An external selector chooses after us.
        chosen = [dig(status, "provider", "name")] if self._selector else list(self._providers())
        providers = {*providers_of(deployment), *filter(None, chosen)}
        await self._guarded.include(deployment, providers=providers, valid=valid)

    def _policy(self, namespace: str) -> tuple[Policy, Mapping[str, str] | None]:
        """The policy in force, and the labels of the namespace if they are known yet."""
        if self._policies is None:
            return Policy(), {NAMESPACE_NAME: namespace}
        return self._policies.policy, self._policies.known_labels(namespace)

    def _violations(self, key: ObjectKey, deployment: Resource) -> list[Violation]:
        """What is wrong with the deployment, judged once for each generation: most passes are about a status.

        What is too large is so whatever was accepted before: the cache does not have it (its metadata has no part in
        the generation, so it is asked each time; the cache knows the answer).
        """
        if EXCESS in deployment:
            return excesses(deployment)
        identity = (uid_of(deployment), dig(deployment, "metadata", "generation", default=0))
        known = self._verdicts.get(key)
        if known is None or known[:2] != identity:
            known = self._verdicts[key] = (*identity, validate(deployment))
        return unsettled(deployment, known[2])

    async def _write(self, deployment: Resource, status: Resource) -> bool:
        """Apply without force, so that a provider which took over meanwhile is not overruled.

        A conflict with a provider means that our view is old: the pass is done again. A conflict with anybody else is
        an edit of fields that are ours, and is reverted.
        """
        compared = _without_handed_over(deployment)
        try:
            return await self._status.write(deployment, status, force=False, compared=compared)
        except Conflict as error:
            if not error.causes or any(_PROVIDER_MANAGERS in str(cause.get("message")) for cause in error.causes):
                raise
            log.info("reverting an edit of the core's status fields: %s", error.message)
            return await self._status.write(deployment, status, compared=compared)

    def _tell(self, deployment: Resource, event: Happening, *, at: datetime) -> None:
        action = EVENTS[event.reason].action
        self._events.emit(
            deployment, reason=event.reason, note=event.message, warning=event.warning, action=action, at=at
        )


def _without_handed_over(deployment: Resource) -> Resource:
    """The object as it would be if we had never owned what a provider has taken over.

    Forced over, we still own remainders (``type`` of the ``Ready`` condition); giving those up is not worth a write.
    """
    if not handed_over(deployment):
        return deployment
    entries = []
    for entry in dig(deployment, "metadata", "managedFields", default=[]):
        status = dig(entry, "fieldsV1", "f:status")
        if entry.get("manager") != names.CORE_MANAGER or not isinstance(status, dict):
            entries.append(entry)
            continue
        kept = {field: value for field, value in status.items() if field not in _HANDED_OVER}
        if isinstance(kept.get("f:conditions"), dict):
            kept["f:conditions"] = {
                key: value for key, value in kept["f:conditions"].items() if key not in _OVERALL_KEYS
            }
        entries.append({**entry, "fieldsV1": {**entry["fieldsV1"], "f:status": kept}})
    return {**deployment, "metadata": {**deployment["metadata"], "managedFields": entries}}
