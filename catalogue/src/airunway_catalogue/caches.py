"""What the catalogue reads: templates, discovery Jobs and their pods, nodes, and ModelArtifacts that templates keep."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from airunway.api import names
from airunway.kinds import CLUSTER_MODEL_TEMPLATE, MODEL_ARTIFACT, MODEL_TEMPLATE
from airunway.kube import (
    JOB,
    NODE,
    POD,
    compact_objects,
    transform_once,
)
from airunway.owned.objects import Mark, is_ours
from airunway.owned.views import OwnedView
from airunway.process.caches import Caches, Sources
from airunway.process.jobs import WarningEvents, job_pod
from airunway.process.predicates import Reads
from airunway.resource import ObjectKey, Resource, controller_owner, dig, is_deleting, key_of, uid_of
from airunway.templates.limits import bound
from airunway_catalogue.names import CATALOGUE_MANAGER, CATALOGUE_PART
from airunway_catalogue.nodes import NodeGroup, inventory_of, is_held, project_node

MARK = Mark(names.PART, CATALOGUE_PART)
"""The label on all objects that the catalogue makes."""

OnTemplate = Callable[[ObjectKey], None]
"""``on(key)``: something of a template changed; a ClusterModelTemplate has no namespace."""

_PREFIX = "discover-"


@dataclass(frozen=True, kw_only=True)
class Owned:
    """What belongs to exactly one template, by uid."""

    jobs: tuple[Resource, ...]
    """Its Jobs."""
    pods: tuple[Resource, ...]
    """Pods that these Jobs own."""


class TemplateCaches(Sources):
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
        super().__init__(caches)
        self._home = home
        self._on_template = on_template
        compact = compact_objects(CATALOGUE_MANAGER)
        project = transform_once(compact)
        project_template = transform_once(lambda template: compact(bound(template)))
        owns = partial(self.owns, project=project_template, owners_of=lambda obj: (key_of(obj),), wakes=on_template)
        self.namespaced = owns(MODEL_TEMPLATE)
        self.cluster = owns(CLUSTER_MODEL_TEMPLATE)
        self.jobs = self.owns(
            JOB, project=project, owners_of=self._owners_of, wakes=on_template, label_selector=MARK.selector
        )
        self.pods = self.watches(POD, project=job_pod, wakes=self._on_pod, label_selector=MARK.selector)
        self._pods_of = self.pods.add_index(lambda pod: (_owner_of(pod),))
        self.events = WarningEvents(
            self,
            concerns=lambda kind, name: kind == JOB.kind and name.startswith(_PREFIX),
            find=lambda event: self.job(ObjectKey(event.namespace, event.name)),
            wakes=lambda _event, job: self._wake_owner(key_of(job)),
        )

        def on_node(_key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
            if _has(old) != _has(new):
                on_nodes()
            if is_held(old) != is_held(new):
                on_held()

        self.nodes = self.watches(NODE, project=project_node, wakes=on_node, everywhere=True)
        self._caching = self.namespaced.reflector.add_index(_caching)
        self.artifacts = self.watches(
            MODEL_ARTIFACT, project=READS_OF_ARTIFACT.project, wakes=self._on_artifact, optional=True
        )

    # ---------------------------------------------------------------------------------------------------- what is read

    def of(self, key: ObjectKey) -> OwnedView:
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

    # ------------------------------------------------------------------------------------------------- what changes

    def _wake_owner(self, job: ObjectKey) -> None:
        found = self.jobs.objects.get(job)
        for key in self._owners_of(found) if found is not None else ():
            self._on_template(key)

    def _on_pod(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        owner = controller_owner(new or old or {})
        if owner is not None:
            self._wake_owner(ObjectKey(key.namespace, str(owner.get("name"))))

    def _on_artifact(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        """Reconcile the templates of the namespace that keep weights: one of them may keep this artifact."""
        if READS_OF_ARTIFACT.of(old) != READS_OF_ARTIFACT.of(new):
            for template in self._caching.get(key.namespace):
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


READS_OF_DEPLOYMENT = Reads(status=("effectiveTemplate.ref",), made=(is_deleting,))
"""What the catalogue reads of a ModelDeployment: which template it uses."""

READS_OF_ARTIFACT = Reads(status=("phase", "reason", "message"), made=(is_deleting,))
"""What it reads of a ModelArtifact that a template keeps."""

project_deployment = READS_OF_DEPLOYMENT.project


def used_template(deployment: Resource) -> Iterator[Hashable]:
    """The key of the template that a deployment uses, by its status."""
    ref = dig(deployment, "status", "effectiveTemplate", "ref")
    name = dig(ref, "name")
    if not isinstance(name, str) or is_deleting(deployment):
        return
    yield ObjectKey(key_of(deployment).namespace if dig(ref, "kind") == MODEL_TEMPLATE.kind else "", name)


def _has(node: Resource | None) -> object:
    return (dig(node, "metadata", "labels"), dig(node, "status", "allocatable")) if node is not None else None


def _owner_of(pod: Resource) -> tuple[str, str]:
    """Namespace and uid of a pod's owner: in another namespace anyone may write the uid of a Job into a pod."""
    return key_of(pod).namespace, str(dig(controller_owner(pod), "uid", default=""))


def _caching(template: Resource) -> Iterator[str]:
    """The namespace of a template that keeps weights."""
    if dig(template, "spec", "caching", "enabled") is True:
        yield key_of(template).namespace
