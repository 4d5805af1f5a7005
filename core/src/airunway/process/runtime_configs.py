"""The runtime configs that a process has read: which one a deployment follows, and which deployments a change concerns.

Core and providers read the same two kinds through the shared caches and resolve them with `airunway.configs`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeAlias

from airunway.api import names
from airunway.configs.resolution import Resolution, config_name, resolve
from airunway.kinds import CLUSTER_RUNTIME_CONFIG, RUNTIME_CONFIG
from airunway.kube import AnyReflector, compact_objects
from airunway.process.caches import Caches, ScopedCaches
from airunway.resource import ObjectKey, Resource, dig, kept, key_of

OnChange: TypeAlias = Callable[[Hashable, Callable[[], list[Resource]]], None]
"""``on_change(cause, users)``: a config changed. `users()` returns the cached deployments that it concerns at the time
of the call. A later change with the same cause replaces one that has not been handled yet.
"""

_METADATA = ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields")


class RuntimeConfigs(ScopedCaches):
    """RuntimeConfigs and ClusterRuntimeConfigs for one reader.

    `deployments` is the reader's cache of deployments; its index finds the users of a config. `home` is the namespace
    whose RuntimeConfigs cluster-scoped objects follow. What was read stays while later reads fail.
    """

    def __init__(self, caches: Caches, *, deployments: AnyReflector, on_change: OnChange, home: str = "") -> None:
        self._home = home
        self.project = caches.one(_Projection)
        super().__init__(*(caches.of(kind, project=self.project) for kind in (RUNTIME_CONFIG, CLUSTER_RUNTIME_CONFIG)))
        self._on_change = on_change
        self._users = deployments.add_index(lambda deployment: (self._looked_up(deployment),))
        self._known: dict[ObjectKey, tuple[Resource | None, Resource | None, Resolution]] = {}
        for cache in (self.namespaced, self.cluster):
            cache.add_handler(self._on_config)

    # ------------------------------------------------------------------------------------------------ reading

    def resolve(self, deployment: Resource) -> Resolution:
        """Returns the config that a deployment follows, of those that have been read."""
        namespace, name = self._looked_up(deployment)
        own, cluster = self.namespaced.get(ObjectKey(namespace, name)), self.cluster.get(ObjectKey("", name))
        if own is None and cluster is None:
            return resolve(name, namespaced=None, cluster=None)
        where = ObjectKey(namespace if own is not None else "", name)
        known = self._known.get(where)
        if known is None or known[0] is not own or known[1] is not cluster:
            known = self._known[where] = (own, cluster, resolve(name, namespaced=own, cluster=cluster))
        return known[2]

    def users(self, config: ObjectKey) -> list[Resource]:
        """Returns the cached deployments whose effective config is made from this one (a RuntimeConfig has a namespace,
        a ClusterRuntimeConfig has none), or would be if it existed.
        """
        if config.namespace:
            return self._users.get(config)
        places = [place for place in self._users.keys() if isinstance(place, ObjectKey) and place.name == config.name]  # noqa: SIM118
        return [user for place in places if self._reads_cluster(place) for user in self._users.get(place)]

    def _looked_up(self, deployment: Resource) -> ObjectKey:
        """The namespace of a deployment, and the name of the config that it looks up."""
        return ObjectKey(key_of(deployment).namespace or self._home, config_name(deployment))

    def _reads_cluster(self, place: ObjectKey) -> bool:
        own = self.namespaced.get(place)
        return own is None or dig(own, "spec", "inherit") == "Cluster"

    # ---------------------------------------------------------------------------------------------- following

    def _on_config(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        if new is None:
            self._known.pop(key, None)
        same = old and new and old.get("spec") == new.get("spec")
        if not same or dig(old, "metadata", "generation") != dig(new, "metadata", "generation"):
            self._on_change(("runtime config", key), lambda: self.users(key))


class _Projection:
    """Keeps of a config its spec, its status, and the metadata that its readers use. One for the whole process."""

    def __init__(self) -> None:
        self._compact = compact_objects(names.CORE_MANAGER)

    def __call__(self, obj: Resource) -> Resource:
        metadata = obj.get("metadata")
        if isinstance(metadata, dict):
            obj["metadata"] = kept(metadata, *_METADATA)
        return self._compact(obj)
