"""What the catalogue reads: templates, discovery Jobs and their pods, nodes, and ModelArtifacts that templates keep."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass

from airunway.api import names
from airunway.kinds import CLUSTER_MODEL_TEMPLATE, MODEL_ARTIFACT, MODEL_TEMPLATE
from airunway.kube import (
    EVENT,
    JOB,
    NODE,
    POD,
    AnyReflector,
    Kind,
    MutationCache,
    compact_objects,
    transform_once,
    wait_until_synced,
)
from airunway.owned.objects import Mark, is_ours
from airunway.owned.views import View, view_of
from airunway.process.caches import Caches, SharedCache
from airunway.process.jobs import job_pod
from airunway.resource import ObjectKey, Resource, controller_owner, dig, is_deleting, kept, key_of, uid_of
from airunway.status.evidence import EventFacts, event_facts
from airunway.templates.limits import bound
from airunway_catalogue.names import CATALOGUE_MANAGER, CATALOGUE_PART
from airunway_catalogue.nodes import NodeGroup, inventory_of, is_held, project_node

MARK = Mark(names.PART, CATALOGUE_PART)
"""The label on all objects that the catalogue makes."""

OnTemplate = Callable[[ObjectKey], None]
"""``on(key)``: something of a template changed; a ClusterModelTemplate has no namespace."""

_FACTS = "facts"
_PREFIX = "discover-"
_EVENTS_OF_ONE, _EVENTS_OF_UNKNOWN = 32, 4
"""Events about one Job that are kept: of one that is there, and of one that is not known yet."""

_METADATA = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp")


@dataclass(frozen=True, kw_only=True)
class Owned:
    """What belongs to exactly one template, by uid."""

    jobs: tuple[Resource, ...]
    """Its Jobs."""
    pods: tuple[Resource, ...]
    """Pods that these Jobs own."""


class TemplateCaches:
    """The caches of templates and of what decides their state.

    `on_template(key)` is called for every change of a template, of its Jobs, their pods and its ModelArtifacts, and for
    warnings about the Jobs; `on_nodes()` for every change of what nodes have, and `on_held()` for a node that is
    cordoned or not Ready, or is so no more. Jobs of ClusterModelTemplates are in the namespace `home`.
    """

    def __init__(
        self,
        caches: Caches,
        *,
        home: str,
        on_template: OnTemplate,
        on_nodes: Callable[[], None],
        on_held: Callable[[], None],
    ) -> None:
        self._home = home
        self._on_template = on_template
        compact = compact_objects(CATALOGUE_MANAGER)
        project = transform_once(compact)
        project_template = transform_once(lambda template: compact(bound(template)))
        self.namespaced = self._view(caches, MODEL_TEMPLATE, project_template)
        self.cluster = self._view(caches, CLUSTER_MODEL_TEMPLATE, project_template)
        for view in (self.namespaced, self.cluster):
            view.objects.add_listener(self._on_own_change)
        jobs = caches.of(JOB, project=project, label_selector=MARK.selector)
        self.jobs = view_of(jobs, project=project, owners_of=self._owners_of)
        self.jobs.objects.add_listener(lambda _key, old, new, _echo: self._on_owned(old, new))
        self.pods: SharedCache = caches.of(POD, project=job_pod, label_selector=MARK.selector)
        self._pods_of = self.pods.add_index(lambda pod: (_owner_of(pod),))
        self.pods.add_handler(lambda _key, old, new: self._on_pod(new or old))
        self._events: SharedCache = caches.of(EVENT, project=self._event, field_selector="type=Warning")
        self._events_of = self._events.add_index(lambda event: (_about(event[_FACTS]),))
        self._events.add_handler(lambda _key, _old, new: self._on_event(new))
        self.nodes: SharedCache = caches.of(NODE, project=project_node, everywhere=True)
        self.nodes.add_handler(lambda _key, old, new: on_nodes() if _has(old) != _has(new) else None)
        self.nodes.add_handler(lambda _key, old, new: on_held() if is_held(old) != is_held(new) else None)
        self._caching = self.namespaced.reflector.add_index(_caching)
        self.artifacts: SharedCache = caches.of(MODEL_ARTIFACT, project=_artifact, optional=True)
        self.artifacts.add_handler(lambda _key, old, new: self._on_artifact(old, new))

    @staticmethod
    def _view(caches: Caches, kind: Kind, project: Callable[[Resource], Resource]) -> View:
        reflector = caches.of(kind, project=project)
        return View(kind=kind, reflector=reflector, objects=MutationCache(reflector, project=project))

    # ---------------------------------------------------------------------------------------------------- what is read

    def of(self, key: ObjectKey) -> View:
        """The view of the kind that the key is of."""
        return self.namespaced if key.namespace else self.cluster

    def template(self, key: ObjectKey) -> Resource | None:
        """A template, with its kind; None if there is none."""
        view = self.of(key)
        found = view.objects.get(key)
        return {**found, "apiVersion": view.kind.api_version, "kind": view.kind.kind} if found is not None else None

    def all_keys(self) -> list[ObjectKey]:
        """All templates."""
        return [*self.namespaced.reflector.keys(), *self.cluster.reflector.keys()]

    def owned(self, template: Resource) -> Owned:
        """The Jobs of a template, and their pods."""
        jobs = {key_of(job): job for job in self.jobs.owned(key_of(template)) if is_ours(job, template, MARK)}
        pods = (pod for job in jobs.values() for pod in self._pods_of.get((key_of(job).namespace, uid_of(job))))
        return Owned(jobs=tuple(jobs.values()), pods=tuple(pods))

    def events_of(self, jobs: Iterable[Resource]) -> Iterator[EventFacts]:
        """The warnings about these Jobs: that their pods cannot be made."""
        for job in jobs:
            for event in self._events_of.get((key_of(job).namespace, key_of(job).name)):
                facts: EventFacts = event[_FACTS]
                if facts.uid in ("", uid_of(job)):
                    yield facts

    def _event(self, event: Resource) -> Resource | None:
        """A warning about a Job with one of our names; others are dropped when they are decoded. Any user can write
        them: a number is kept about one Job, and of Jobs that are not there.
        """
        name = dig(event, "regarding", "name")
        if dig(event, "regarding", "kind") != JOB.kind or not isinstance(name, str) or not name.startswith(_PREFIX):
            return None
        facts, metadata = event_facts(event), event.get("metadata")
        job = self.jobs.objects.get(ObjectKey(facts.namespace, facts.name))
        if self._events.get(key_of(event)) is None:
            most = _EVENTS_OF_ONE if job is not None else _EVENTS_OF_UNKNOWN
            if self._events_of.count(_about(facts)) >= most:
                return None
        return {"metadata": kept(metadata, "name", "namespace", "uid", "resourceVersion"), _FACTS: facts}

    def _on_event(self, event: Resource | None) -> None:
        if event is not None:
            facts: EventFacts = event[_FACTS]
            job = self.jobs.objects.get(ObjectKey(facts.namespace, facts.name))
            if job is not None:
                self._on_owned(None, job)

    def job(self, key: ObjectKey) -> Resource | None:
        """A Job by its own key, answers to writes that the watch has not delivered included."""
        return self.jobs.objects.get(key)

    def artifacts_of(self, namespace: str, names: Iterable[str]) -> tuple[Resource, ...]:
        """Those of these ModelArtifacts that exist."""
        found = (self.artifacts.get(ObjectKey(namespace, name)) for name in names)
        return tuple(each for each in found if each is not None)

    def inventory(self) -> tuple[NodeGroup, ...]:
        """What the nodes have."""
        return inventory_of(self.nodes.values())

    def _all(self) -> list[AnyReflector]:
        views = (self.namespaced, self.cluster, self.jobs)
        return [*(view.reflector for view in views), self.pods, self._events, self.nodes]

    def unread(self) -> list[str]:
        """The kinds that have not been read yet."""
        missing = [cache.kind.plural for cache in self._all() if not cache.synced.is_set()]
        return missing if self.artifacts.answered.is_set() else [*missing, self.artifacts.kind.plural]

    async def read(self) -> None:
        """Wait until none of the kinds is unread."""
        await wait_until_synced(self._all())
        await self.artifacts.answered.wait()

    # ------------------------------------------------------------------------------------------------------- what runs

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start the watches in `group`."""
        for cache in (*self._all(), self.artifacts):
            group.create_task(cache.run(), name=f"catalogue: {cache.kind.plural}")

    def _on_own_change(self, key: ObjectKey, old: Resource | None, new: Resource | None, echo: bool) -> None:
        if not (echo and old is not None):
            self._on_template(key)

    def _on_owned(self, old: Resource | None, new: Resource | None) -> None:
        for key in {each for obj in (old, new) if obj is not None for each in self._owners_of(obj)}:
            self._on_template(key)

    def _on_pod(self, pod: Resource | None) -> None:
        owner = controller_owner(pod) if pod is not None else None
        if pod is None or owner is None:
            return
        job = self.jobs.objects.get(ObjectKey(key_of(pod).namespace, str(owner.get("name"))))
        if job is not None:
            self._on_owned(None, job)

    def _on_artifact(self, old: Resource | None, new: Resource | None) -> None:
        """Reconcile the templates of the namespace that keep weights: one of them may keep this artifact."""
        changed = new or old
        if changed is None or (old is not None and new is not None and old.get("status") == new.get("status")):
            return
        for template in self._caching.get(key_of(changed).namespace):
            self._on_template(key_of(template))

    def _owners_of(self, job: Resource) -> Iterator[ObjectKey]:
        """The key of the template that a Job belongs to."""
        owner = controller_owner(job)
        if owner is None:
            return
        name = str(owner.get("name"))
        if owner.get("kind") == MODEL_TEMPLATE.kind:
            yield ObjectKey(key_of(job).namespace, name)
        elif owner.get("kind") == CLUSTER_MODEL_TEMPLATE.kind and key_of(job).namespace == self._home:
            yield ObjectKey("", name)


def project_deployment(obj: Resource) -> Resource:
    """What the catalogue keeps of a ModelDeployment: which template it uses."""
    ref = dig(obj, "status", "effectiveTemplate", "ref")
    return {
        "metadata": kept(obj.get("metadata"), *_METADATA),
        **({"status": {"effectiveTemplate": {"ref": ref}}} if isinstance(ref, dict) else {}),
    }


def used_template(deployment: Resource) -> Iterator[Hashable]:
    """The key of the template that a deployment uses, by its status."""
    ref = dig(deployment, "status", "effectiveTemplate", "ref")
    name = dig(ref, "name")
    if not isinstance(name, str) or is_deleting(deployment):
        return
    yield ObjectKey(key_of(deployment).namespace if dig(ref, "kind") == MODEL_TEMPLATE.kind else "", name)


def _about(facts: EventFacts) -> tuple[str, str]:
    return facts.namespace, facts.name


def _has(node: Resource | None) -> object:
    return (dig(node, "metadata", "labels"), dig(node, "status", "allocatable")) if node is not None else None


def _owner_of(pod: Resource) -> tuple[str, str]:
    """Namespace and uid of a pod's owner: in another namespace anyone may write the uid of a Job into a pod."""
    return key_of(pod).namespace, str(dig(controller_owner(pod), "uid", default=""))


def _caching(template: Resource) -> Iterator[str]:
    """The namespace of a template that keeps weights."""
    if dig(template, "spec", "caching", "enabled") is True:
        yield key_of(template).namespace


def _artifact(obj: Resource) -> Resource:
    """What is kept of a ModelArtifact."""
    status = kept(obj.get("status"), "phase", "reason", "message")
    return {"metadata": kept(obj.get("metadata"), *_METADATA), "status": status}
