"""Removes finalizers of providers that are gone from deleted deployments (spec ruling 21).

A provider that is there removes its own (`runtime.apply`); both do so after `names.FINALIZER_TIMEOUT`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime

from airunway.api import names
from airunway.controller.decision import SILENT_AFTER
from airunway.first_seen import FirstSeen
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, EventRecorder, remove_finalizers
from airunway.process.deployment_cache import with_all_finalizers
from airunway.resource import ObjectKey, Resource, dig, finalizers_of, is_deleting, key_of, parse_time
from airunway.selection import ProviderFacts

__all__ = ["OrphanFinalizer", "orphaned_finalizers"]

log = logging.getLogger(__name__)


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
        providers: Callable[[], Mapping[str, ProviderFacts]],
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
        now, providers = self._clock(), self._providers()
        finalizers, again = orphaned_finalizers(deployment, providers, since=since, now=now)
        if not finalizers:
            return again
        found = await with_all_finalizers(self._client, deployment)
        finalizers, _ = orphaned_finalizers(found, providers, since=since, now=now)
        taken = frozenset(finalizers)
        if taken and await remove_finalizers(self._client, MODEL_DEPLOYMENT, found, taken, manager=names.CORE_MANAGER):
            for finalizer in finalizers[:_MAX_EVENTS]:
                self._tell(deployment, names.provider_of_finalizer(finalizer))
        return None

    def _tell(self, deployment: Resource, provider: str) -> None:
        kind, name = (dig(deployment, "status", "provider", field) for field in ("resourceKind", "resourceName"))
        what = f"{kind} {key_of(deployment).namespace}/{name}" if kind and name else "the upstream resource"
        facts = self._providers().get(provider)
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
