"""Keeps a provider registered: its config, heartbeats, and how it would write (docs/providers/contract.md)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from airunway.api import names
from airunway.kinds import INFERENCE_PROVIDER_CONFIG
from airunway.kube import Client, KubeError, NotFound, needs_apply
from airunway.plugins.host import ProviderHost
from airunway.plugins.provider_config import config_object
from airunway.resource import ObjectKey, Resource, dig, format_time
from airunway.runtime.crd_versions import Installed
from airunway.selection.facts import HEARTBEAT_INTERVAL
from airunway.status.conditions import Condition, written

log = logging.getLogger(__name__)

RETRY = 5.0
"""Seconds until a failed registration is retried."""


class Registration:
    """Keeps the provider registered: applies its config, sends heartbeats, and reports when it stops."""

    def __init__(
        self,
        *,
        client: Client,
        host: ProviderHost,
        installed: Callable[[], Installed],
        translation: Callable[[], Resource],
        clock: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._host = host
        self._installed = installed
        self._translation = translation
        self._clock = clock
        self._manager = names.provider_manager(host.name)
        self._changed = asyncio.Event()
        self._status: Resource = {}
        self.registered = False
        self.trouble = ""
        """Why the last registration failed, as the end of a sentence; empty if it succeeded."""

    def changed(self) -> None:
        """Write the status now rather than with the next heartbeat."""
        self._changed.set()

    async def run(self) -> None:
        """Register, then send heartbeats until cancelled. API errors are logged and retried."""
        while True:
            self._changed.clear()
            wait = HEARTBEAT_INTERVAL.total_seconds()
            try:
                if not self.registered:
                    await self._register()
                await self._beat()
                self.registered, self.trouble = True, ""
            except KubeError as error:
                trouble = f": {error}"
                level = logging.WARNING if trouble != self.trouble else logging.DEBUG  # warned once per error
                log.log(level, "registration of provider %s%s; again every %.0f s", self._host.name, trouble, RETRY)
                self.registered, self.trouble, wait = False, trouble, RETRY
            try:
                await asyncio.wait_for(self._changed.wait(), wait)
            except TimeoutError:
                continue

    async def farewell(self) -> None:
        """Report ``ready: false`` on graceful stop. An API error is only logged: the heartbeat expires anyway.

        Nothing is reported if another replica sends heartbeats already: it leads now, and the provider is ready.
        """
        try:
            live = await self._client.get(INFERENCE_PROVIDER_CONFIG, ObjectKey("", self._host.name))
            if dig(live, "status", "lastHeartbeat") != self._status.get("lastHeartbeat"):
                log.info("provider %s is led by another replica now", self._host.name)
                return
            await self._beat(leaving=True, version=live["metadata"]["resourceVersion"])
        except KubeError as error:
            log.warning("provider %s could not say that it leaves: %s", self._host.name, error)

    async def _register(self) -> None:
        wanted = config_object(self._host.manifest)
        live: Resource | None = None
        with suppress(NotFound):
            live = await self._client.get(INFERENCE_PROVIDER_CONFIG, ObjectKey("", self._host.name))
        if live is not None:
            self._status = live.get("status") or {}
        if needs_apply(wanted, live, manager=self._manager):
            await self._client.apply(INFERENCE_PROVIDER_CONFIG, wanted, manager=self._manager, force=True)
            log.info("registered provider %s", self._host.name)

    async def _beat(self, *, leaving: bool = False, version: str = "") -> None:
        """Write the whole status with its conditions; if `version` is given, only onto that resourceVersion."""
        now = self._clock()
        installed = self._installed()
        ready = installed.upstream is not None and not leaving
        conditions = [
            Condition(
                type="UpstreamInstalled",
                status=installed.reason != "UpstreamNotInstalled",
                reason=installed.reason,
                message=installed.message,
            ),
            Condition(
                type="SchemaSupported",
                status=installed.upstream is not None,
                reason=installed.reason,
                message=installed.message,
            ),
            Condition(type="Healthy", status=not leaving, reason="Leaving" if leaving else "Heartbeat", message=""),
            Condition(
                type="Ready",
                status=ready,
                reason="Leaving" if leaving else "Ready" if ready else installed.reason,
                message="The provider was stopped" if leaving else installed.message,
            ),
        ]
        status: Resource = {
            "ready": ready,
            "version": f"{self._host.name}-provider:{self._host.manifest.version}",
            "lastHeartbeat": format_time(now),
            "translation": self._translation(),
            "conditions": written(conditions, previous=self._status.get("conditions") or [], generation=0, now=now),
        }
        if installed.upstream is not None:
            status["upstreamCRDVersion"] = installed.upstream.api_version
            status["upstreamSchemaHash"] = installed.upstream.schema_hash
        body = {
            "apiVersion": names.API_VERSION,
            "kind": "InferenceProviderConfig",
            "metadata": {"name": self._host.name, **({"resourceVersion": version} if version else {})},
            "status": status,
        }
        await self._client.apply(
            INFERENCE_PROVIDER_CONFIG, body, manager=self._manager, force=True, subresource="status"
        )
        self._status = status
