"""The core as a running thing: caches of deployments and provider configs, workers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from airunway.api import names
from airunway.controller.provider_configs import ProviderConfigReconciler
from airunway.controller.reconciler import CoreReconciler
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import (
    Client,
    Controller,
    EventRecorder,
    Overlay,
    Reflector,
    WorkQueue,
    strip_managed_fields,
    wait_until_synced,
)
from airunway.process.shell import Lead
from airunway.resource import ObjectKey, Resource, dig
from airunway.selection import STALE_AFTER, ProviderFacts, provider_facts

__all__ = ["CoreApplication", "CoreSettings"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class CoreSettings:
    """The core's configuration: `selector` is ``--enable-provider-selector``."""

    selector: bool = True
    workers: int = 16


class CoreApplication:
    """The core controller, from start to stop."""

    def __init__(
        self,
        *,
        client: Client,
        instance: str = names.CORE_MANAGER,
        settings: CoreSettings | None = None,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        self._settings = settings or CoreSettings()
        self._clock = clock or (lambda: datetime.now(UTC))
        project = strip_managed_fields(names.CORE_MANAGER)
        self._queue: WorkQueue[ObjectKey] = WorkQueue()
        self._config_queue: WorkQueue[ObjectKey] = WorkQueue()
        self._deployments = Reflector(client, MODEL_DEPLOYMENT, project=project)
        self._configs = Reflector(client, INFERENCE_PROVIDER_CONFIG, project=project)
        self._events = EventRecorder(client, component=f"{names.GROUP}/{names.CORE_MANAGER}", instance=instance)
        self._facts: dict[str, ProviderFacts] = {}
        self._reconciler = CoreReconciler(
            client=client,
            deployments=Overlay(self._deployments, project=project),
            providers=lambda: self._facts,
            events=self._events,
            selector=self._settings.selector,
            clock=self._clock,
        )
        self._config_reconciler = ProviderConfigReconciler(
            client=client, configs=Overlay(self._configs, project=project), clock=self._clock
        )

    def unready(self) -> str | None:
        """Why the process cannot work yet, or None."""
        for reflector in (self._deployments, self._configs):
            if not reflector.synced.is_set():
                return f"the {reflector.kind.plural} have not been read yet"
        return None

    async def run(self, lead: Lead) -> None:
        """Follow the API server until cancelled; work while leading."""
        self._deployments.add_handler(lambda key, _old, _new: self._queue.add(key))
        self._configs.add_handler(self._on_config)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._deployments.run(), name="deployments")
            group.create_task(self._configs.run(), name="configs")
            group.create_task(self._events.run(), name="events")
            await wait_until_synced([self._deployments, self._configs])
            await lead(self._work)

    async def _work(self) -> None:
        """The leader's part. Everything is looked at once: a leader before us may have been cut off in any pass."""
        for queue, reflector in ((self._queue, self._deployments), (self._config_queue, self._configs)):
            for key in reflector.keys():  # noqa: SIM118 - not a dict
                queue.add(key)
        workers = self._settings.workers
        deployments = Controller("core", self._queue, self._reconciler.reconcile, workers=workers)
        configs = Controller("configs", self._config_queue, self._config_reconciler.reconcile, workers=1)
        async with asyncio.TaskGroup() as group:
            group.create_task(deployments.run(), name="workers")
            group.create_task(configs.run(), name="config-workers")

    def _on_config(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        before = self._facts.pop(key.name, None)
        now = self._clock()
        if new is not None:
            self._facts[key.name] = provider_facts(new)
        self._config_queue.add(key)
        after = self._facts.get(key.name)
        if _standing(before, now) == _standing(after, now):
            return  # one more heartbeat of a provider that was fresh changes nothing for anybody
        for waiting, deployment in self._deployments.items():
            # A selection that was made stays (spec/core.md, "Sticky"); only those without one, or without the engine or
            # config that they name, can be helped by this change.
            chosen = dig(deployment, "status", "provider", "name")
            if chosen is None or key.name in (chosen, dig(deployment, "spec", "provider", "name")):
                self._queue.add(waiting)


def _standing(facts: ProviderFacts | None, now: datetime) -> tuple[object, ...] | None:
    """Everything about a provider that selection looks at, with its heartbeat reduced to fresh or not."""
    if facts is None:
        return None
    silence = facts.silence(now)
    fresh = silence is None or silence <= STALE_AFTER
    return facts.ready, fresh, facts.explicit_only, facts.engines, facts.rules
