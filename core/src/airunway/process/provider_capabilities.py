"""What the registered providers publish about their engines, for the parts of the core."""

from __future__ import annotations

from collections.abc import Callable

from airunway.api import names
from airunway.kinds import INFERENCE_PROVIDER_CONFIG
from airunway.kube import compact_objects
from airunway.process.caches import Caches, SharedCache
from airunway.resource import ObjectKey, Resource, dig

__all__ = ["ProviderCapabilities"]


class ProviderCapabilities:
    """The capabilities in the InferenceProviderConfigs. `on_change(provider)` is called if those of one change."""

    def __init__(self, caches: Caches, *, on_change: Callable[[str], None]) -> None:
        self.configs: SharedCache = caches.of(INFERENCE_PROVIDER_CONFIG, project=compact_objects(names.CORE_MANAGER))
        self._on_change = on_change

    async def run(self) -> None:
        """Follow the configs until cancelled."""
        self.configs.add_handler(self._on_config)
        await self.configs.run()

    def provider_of(self, deployment: Resource | None) -> str:
        """The registered provider of a deployment; empty if it has none."""
        name = dig(deployment, "status", "provider", "name")
        return name if isinstance(name, str) and self.configs.get(ObjectKey("", name)) else ""

    def engine_of(self, deployment: Resource) -> Resource | None:
        """The provider's entry for the engine that a deployment uses; None if it is not known."""
        config = self.configs.get(ObjectKey("", self.provider_of(deployment)))
        engines = dig(config, "spec", "capabilities", "engines")
        used = dig(deployment, "status", "engine", "type")
        for entry in engines if isinstance(engines, list) else ():
            if isinstance(entry, dict) and entry.get("name") == used:
                return entry
        return None

    def _on_config(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        if dig(old, "spec", "capabilities") != dig(new, "spec", "capabilities"):
            self._on_change(key.name)
