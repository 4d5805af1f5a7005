"""The registered providers as selection sees them, and which deployments a change of one concerns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from airunway.api import names
from airunway.controller.decision import SILENT_AFTER
from airunway.first_seen import FirstSeen
from airunway.kinds import INFERENCE_PROVIDER_CONFIG
from airunway.kube import compact_objects
from airunway.process.caches import Caches, Sources
from airunway.process.metrics import Metrics
from airunway.resource import ObjectKey, Resource, dig, finalizers_of
from airunway.selection.facts import REFUSED_BY, ProviderFacts, provider_facts


class Providers(Sources):
    """The InferenceProviderConfigs. `on_standing(name)` is called when a change concerns selection, and
    `on_config(key)` for every change.
    """

    def __init__(
        self,
        caches: Caches,
        *,
        clock: Callable[[], datetime],
        on_config: Callable[[ObjectKey], None],
        on_standing: Callable[[str], None],
    ) -> None:
        super().__init__(caches)
        self.project = compact_objects(names.CORE_MANAGER)
        self.configs = self.watches(INFERENCE_PROVIDER_CONFIG, project=self.project, wakes=self._on_change)
        self._metrics: Metrics = caches.metrics
        self._clock = clock
        self._on_config = on_config
        self._on_standing = on_standing
        self._facts: dict[str, ProviderFacts] = {}
        self._heartbeats: FirstSeen[str] = FirstSeen(clock)

    @property
    def facts(self) -> Mapping[str, ProviderFacts]:
        """What is known of each, by name; the same object at all times."""
        return self._facts

    def silence_of(self, provider: str) -> timedelta | None:
        """The time since a provider's last heartbeat; None: it sends none."""
        facts = self._facts.get(provider)
        return None if facts is None else facts.silence(self._clock())

    def _on_change(self, key: ObjectKey, _old: Resource | None, new: Resource | None) -> None:
        before = self._facts.pop(key.name, None)
        now = self._clock()
        if new is not None:
            facts = provider_facts(new)
            heard = self._heartbeats.since(key.name, facts.heartbeat, doubted=SILENT_AFTER)
            self._facts[key.name] = replace(facts, heard=heard)
        else:
            self._heartbeats.forget(key.name)
            self._metrics.forget(provider=key.name)
        self._on_config(key)
        # A further heartbeat of a fresh provider changes no selection.
        if _standing(before, now) != _standing(self._facts.get(key.name), now):
            self._on_standing(key.name)


def is_touched(deployment: Resource, provider: str) -> bool:
    """Whether a change of a provider's standing can change the result for the deployment.

    A selection stays once it is made (docs/selection.md). So only deployments are affected that have none, whose
    engine or config is missing, or whose provider refuses them.
    """
    chosen = dig(deployment, "status", "provider", "name")
    named = (chosen, dig(deployment, "spec", "provider", "name"))
    refused = dig(deployment, "metadata", REFUSED_BY)  # all known providers refused: another one may accept
    return chosen is None or bool(refused) or provider in named or is_held(deployment, provider)


def is_held(deployment: Resource, provider: str) -> bool:
    """Whether the provider's finalizer holds a deployment."""
    return names.provider_finalizer(provider) in finalizers_of(deployment)


def _standing(facts: ProviderFacts | None, now: datetime) -> tuple[object, ...] | None:
    """Everything about a provider that selection uses, with the heartbeat reduced to fresh and silent."""
    if facts is None:
        return None
    stale, silent = facts.is_stale(now), facts.is_silent(SILENT_AFTER, now=now)
    return (
        facts.ready,
        stale,
        silent,
        facts.installed,
        facts.explicit_only,
        facts.engines,
        facts.rules,
        facts.translation,
    )
