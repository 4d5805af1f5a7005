"""Which RuntimeConfigs need a pass, for their number of users or for their rollout, after what has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from airunway.configs.resolution import config_name
from airunway.controller.waves import Rollouts, behind, progress_of
from airunway.kube import Priority, WorkQueue
from airunway.process.runtime_configs import RuntimeConfigs
from airunway.resource import ObjectKey, Resource, key_of
from airunway.revisions import revision
from airunway.revisions.revision import pending_parts


class ConfigPasses:
    """Enqueues RuntimeConfigs and ClusterRuntimeConfigs (keys without a namespace)."""

    def __init__(
        self,
        *,
        queue: WorkQueue[ObjectKey],
        configs: RuntimeConfigs,
        rollouts: Rollouts,
        clock: Callable[[], datetime],
    ) -> None:
        self._queue = queue
        self._configs = configs
        self._rollouts = rollouts
        self._clock = clock

    def begin(self, deployments: Iterable[Resource]) -> None:
        """To be called when a replica starts to lead: all configs, and the rollout of an earlier leader."""
        for cache in (self._configs.namespaced, self._configs.cluster):
            for key in cache.keys():  # noqa: SIM118 - not a dict
                self._queue.add(key, Priority.BULK)
        found = list(deployments)
        self._rollouts.begin(found, now=self._clock())
        for deployment in found:
            if pending_parts(deployment):
                self._queue.add(self._wave_of(deployment), Priority.BULK)

    def on_config(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        """A config has changed."""
        self._queue.add(key)
        if old is not None and new is not None and old.get("spec") == new.get("spec"):
            return
        if key.namespace:  # the users of the ClusterRuntimeConfig may be others now
            self._count_users(ObjectKey("", key.name))
            return
        for other in self._configs.namespaced.keys():  # noqa: SIM118 - not a dict
            if other.name == key.name:
                self._queue.add(other)  # it may inherit

    def on_deployment(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        """A deployment has come, gone, named another config, or moved on in a rollout."""
        followed = {(key_of(each).namespace, config_name(each)) for each in (old, new) if each is not None}
        if old is None or new is None or len(followed) > 1:
            for namespace, name in followed:
                self._count_users(ObjectKey(namespace, name))
                self._count_users(ObjectKey("", name))
            if new is None and old is not None and self._rollouts.is_under_way(key):  # another one may be granted
                self._rollouts.forget(key)
                self._queue.add(self._wave_of(old))
            elif new is not None and pending_parts(new):
                self._queue.add(self._wave_of(new))
            return
        waits = behind(old, revision.PARTS) or behind(new, revision.PARTS) or self._rollouts.is_under_way(key)
        if waits and progress_of(old) != progress_of(new):
            self._queue.add(self._wave_of(new))

    def _wave_of(self, deployment: Resource) -> ObjectKey:
        """The key of the pass that grants a deployment: its effective config, or the name that it looks up in vain."""
        config = self._configs.resolve(deployment).config
        if config is not None:
            return ObjectKey(config.namespace, config.name)
        return ObjectKey(key_of(deployment).namespace, config_name(deployment))

    def _count_users(self, config: ObjectKey) -> None:
        if config in (self._configs.namespaced if config.namespace else self._configs.cluster):
            self._queue.add(config)
