"""The core's pass over one ModelDeployment: read the caches, decide, write what differs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime

from airunway.api import names
from airunway.controller.decision import Happening, decide, forbidden_by, handed_over, is_accepted
from airunway.controller.policies import Policies
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, Conflict, EventRecorder, NotFound, Overlay, needs_apply
from airunway.resource import ObjectKey, Resource, dig, is_deleting, uid_of
from airunway.selection import ProviderFacts
from airunway.status import OVERALL
from airunway.validation import Violation, validate
from airunway.validation.policy import Grants

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
        deployments: Overlay,
        providers: Callable[[], Mapping[str, ProviderFacts]],
        events: EventRecorder,
        selector: bool,
        clock: Callable[[], datetime],
        policies: Policies | None = None,
    ) -> None:
        self._client = client
        self._deployments = deployments
        self._providers = providers
        self._events = events
        self._selector = selector
        self._clock = clock
        self._policies = policies
        self._verdicts: dict[ObjectKey, tuple[str, int, list[Violation]]] = {}

    async def reconcile(self, key: ObjectKey) -> float | None:
        """One pass; the core needs no timers so far, so it never asks to be called again."""
        deployment = self._deployments.get(key)
        if deployment is None or is_deleting(deployment):
            self._verdicts.pop(key, None)
            return None
        violations = self._violations(key, deployment)
        grants = Grants()
        if self._policies is not None:
            labels = self._policies.known_labels(key.namespace)
            if labels is None:
                return None  # the watch of namespaces is a moment behind; its event brings us back
            grants = self._policies.policy.grants(labels)
            if not violations and not is_accepted(deployment):
                violations = forbidden_by(self._policies.policy, deployment, namespace_labels=labels)
        decision = decide(
            deployment,
            violations=violations,
            providers=list(self._providers().values()),
            selector=self._selector,
            grants=grants,
            now=self._clock(),
        )
        body = {
            "apiVersion": names.API_VERSION,
            "kind": "ModelDeployment",
            "metadata": {field: deployment["metadata"][field] for field in ("name", "namespace", "uid")},
            "status": decision.status,
        }
        if not needs_apply(body, _without_handed_over(deployment), manager=names.CORE_MANAGER, subresource="status"):
            return None
        try:
            answer = await self._apply(body)
        except NotFound:
            return None
        self._deployments.note(answer)
        for event in decision.events:
            self._tell(deployment, event)
        return None

    def _violations(self, key: ObjectKey, deployment: Resource) -> list[Violation]:
        """What is wrong with the deployment, judged once for each generation: most passes are about a status."""
        identity = (uid_of(deployment), dig(deployment, "metadata", "generation", default=0))
        known = self._verdicts.get(key)
        if known is None or known[:2] != identity:
            known = self._verdicts[key] = (*identity, validate(deployment))
        return known[2]

    async def _apply(self, body: Resource) -> Resource:
        """Apply without force, so that a provider which took over meanwhile is not overruled.

        A conflict with a provider means that our view is old: the pass is done again. A conflict with anybody else is
        an edit of fields that are ours, and is reverted.
        """
        try:
            return await self._client.apply(MODEL_DEPLOYMENT, body, manager=names.CORE_MANAGER, subresource="status")
        except Conflict as error:
            if not error.causes or any(_PROVIDER_MANAGERS in str(cause.get("message")) for cause in error.causes):
                raise
            log.info("reverting an edit of the core's status fields: %s", error.message)
            return await self._client.apply(
                MODEL_DEPLOYMENT, body, manager=names.CORE_MANAGER, subresource="status", force=True
            )

    def _tell(self, deployment: Resource, event: Happening) -> None:
        self._events.emit(deployment, reason=event.reason, note=event.message, warning=event.warning)


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
