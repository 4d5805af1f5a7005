"""Watching the upstream: which of its kinds are there, and what of them exists for each deployment.

One owner of it all: CRDs, the caches of the kinds, the index by deployment. What is installed is learnt while running:
kinds that appear are watched, kinds that go away are forgotten, a version that somebody's object is kept in is watched
beside the newest one for as long as such objects exist (spec ruling 27).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from airunway.api import names
from airunway.kube import (
    CUSTOM_RESOURCE_DEFINITION,
    AnyReflector,
    Kind,
    Overlay,
    compacting,
    remembering,
    wait_until_synced,
)
from airunway.plugins.contract import Upstream, UpstreamKind
from airunway.plugins.host import ProviderHost
from airunway.process.caches import Caches
from airunway.resource import ObjectKey, Resource, controller_owner, dig, key_of, labels_of
from airunway.runtime.desired import Identity, identity_in
from airunway.runtime.upstream import CrdFacts, Installed, api_version, crd_facts, detect

__all__ = ["UpstreamWatch", "View", "deployment_of", "kind_in", "written_in"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_FACTS = "crdFacts"
"""Where a projected CRD keeps what was read out of it."""

_UNREAD = Installed(upstream=None, reason="UpstreamNotInstalled", message="the cluster's CRDs have not been read yet")


@dataclass(kw_only=True)
class View:
    """One kind in one version: how it is addressed, and what is known of its objects."""

    kind: Kind
    objects: Overlay
    reflector: AnyReflector
    task: asyncio.Task[None] | None = None

    def synced(self) -> bool:
        return self.reflector.synced.is_set()


def deployment_of(key: ObjectKey, obj: Resource) -> ObjectKey | None:
    """The deployment that an object belongs to: by its controlling owner, else by its label."""
    owner = controller_owner(obj)
    if (
        owner is not None
        and owner.get("kind") == "ModelDeployment"
        and str(owner.get("apiVersion")).startswith(names.GROUP)
    ):
        return ObjectKey(key.namespace, str(owner.get("name")))
    name = labels_of(obj).get(names.MODEL_DEPLOYMENT)
    return ObjectKey(key.namespace, name) if name else None


class UpstreamWatch:
    """The upstream of one provider, as it is now.

    `notify(deployment)` is called for every change of an object of a deployment, `changed()` when something about the
    kinds changed that concerns all of them.
    """

    def __init__(
        self,
        *,
        caches: Caches,
        host: ProviderHost,
        verify: bool,
        notify: Callable[[ObjectKey], None],
        changed: Callable[[], None],
    ) -> None:
        self._caches = caches
        self._host = host
        self._verify = verify
        self._project = remembering(compacting(names.provider_manager(host.name)))
        self._notify = notify
        self._changed = changed
        self._views: dict[Kind, View] = {}
        self._made: dict[Kind, View] = {}
        self._preferred: dict[tuple[str, str], Kind] = {}
        self._owned: dict[ObjectKey, dict[Identity, None]] = {}
        self._named: dict[ObjectKey, dict[ObjectKey, None]] = {}
        self._selected: dict[ObjectKey, dict[Identity, Resource]] = {}
        self._installed: dict[tuple[str, str], Installed] = {}
        self._look = asyncio.Event()
        self._crds = {
            (kind.group, kind.kind): caches.of(
                CUSTOM_RESOURCE_DEFINITION,
                project=_project_crd,
                field_selector=f"metadata.name={kind.plural}.{kind.group}",
            )
            for kind in host.manifest.upstream
            if not kind.builtin
        }
        for reflector in self._crds.values():
            reflector.add_handler(lambda _key, _old, _new: self._look.set())

    # ------------------------------------------------------------------------------------------------ what is known

    @property
    def installed(self) -> Installed:
        """The verdict on the primary kind: whether the provider can work."""
        primary = self._host.primary_kind
        return self._installed.get((primary.group, primary.kind), _UNREAD)

    @property
    def verdicts(self) -> Mapping[tuple[str, str], Installed]:
        """The verdict on each kind of the manifest, by group and kind."""
        kinds = self._host.manifest.upstream
        return {(kind.group, kind.kind): self._installed.get((kind.group, kind.kind), _UNREAD) for kind in kinds}

    def find(self, wanted: Resource) -> Resource | None:
        """The object that has the name of a wanted one, as far as the caches know it."""
        return self._find(key_of(wanted).namespace, identity_in(wanted))

    @property
    def served(self) -> Mapping[str, Upstream]:
        """What a translation is told of the kinds: those that can be written or read now, by `UpstreamKind.key`."""
        found = {
            kind.key: self._installed.get((kind.group, kind.kind), _UNREAD) for kind in self._host.manifest.upstream
        }
        return {key: installed.upstream for key, installed in found.items() if installed.upstream is not None}

    @property
    def state(self) -> tuple[object, ...]:
        """Everything about the kinds that the outcome of a write may depend on."""
        return tuple(self._crd_facts(kind) for kind in self._host.manifest.upstream)

    def unread(self) -> list[str]:
        """The kinds that have not been read completely: before that, absence means nothing."""
        return [view.kind.kind for view in (*self._views.values(), *self._made.values()) if not view.synced()]

    def view_of(self, obj: Resource) -> View | None:
        """How an object is addressed and cached, in its own version; None if the provider does not watch that."""
        identity = identity_in(obj)
        version = str(obj.get("apiVersion")).rpartition("/")[2]
        kind = self._host.kinds.get((identity.group, identity.kind))
        return self._views.get(kind_in(kind, version)) if kind is not None else None

    def known(self, deployment: ObjectKey, wanted: Sequence[Resource] = ()) -> dict[Identity, Resource]:
        """Everything of the written kinds that carries our label for the deployment, and what has a `wanted` name.

        Each in the version in which it was written, as far as that is served.
        """
        identities = dict(self._owned.get(deployment, {}))
        identities.update(dict.fromkeys(map(identity_in, wanted)))
        found = ((identity, self._find(deployment.namespace, identity)) for identity in identities)
        return {identity: obj for identity, obj in found if obj is not None}

    def _find(self, namespace: str, identity: Identity) -> Resource | None:
        key = ObjectKey(namespace, identity.name)
        preferred = self._preferred.get((identity.group, identity.kind))
        if preferred is None:
            return None
        obj = self._views[preferred].objects.get(key)
        written = written_in(obj, names.provider_manager(self._host.name)) if obj is not None else ""
        if not written or written == preferred.api_version:
            return obj
        kind = self._host.kinds[identity.group, identity.kind]
        beside = self._views.get(kind_in(kind, written.rpartition("/")[2]))
        return (beside.objects.get(key) if beside is not None and beside.synced() else None) or obj

    def awaits(self, deployment: ObjectKey) -> bool:
        """Whether something of the deployment is kept in a version whose cache is not complete yet."""
        manager = names.provider_manager(self._host.name)
        for identity, obj in self.known(deployment).items():
            written = written_in(obj, manager)
            served = self._installed.get((identity.group, identity.kind), _UNREAD).served
            if written not in ("", obj.get("apiVersion")) and any(s.api_version == written for s in served):
                return True
        return False

    def selected(self, namespace: str, primary: str) -> tuple[Resource, ...]:
        """What the upstream made of the primary object: of the kinds with `select`, what has its name in that label."""
        return tuple(self._selected.get(ObjectKey(namespace, primary), {}).values())

    def is_named(self, obj: ObjectKey) -> Iterator[ObjectKey]:
        """The deployments that have an object of that name, or one that an object of theirs made."""
        yield from self._named.get(obj, ())
        for primary, objects in self._selected.items():
            if primary.namespace == obj.namespace and any(identity.name == obj.name for identity in objects):
                yield from self._named.get(primary, ())

    def views(self) -> tuple[View, ...]:
        """Every kind that is written, in its preferred version."""
        kinds = self._host.kinds
        return tuple(self._views[kind] for kind in self._preferred.values() if kinds[kind.group, kind.kind].write)

    # --------------------------------------------------------------------------------------------------- what runs

    async def run(self, group: asyncio.TaskGroup) -> None:
        """Start following the CRDs and, once they were read, the kinds; returns then. The tasks go on in `group`."""
        for (_, kind), reflector in self._crds.items():
            group.create_task(reflector.run(), name=f"crd-{kind}")
        await wait_until_synced([*self._crds.values()])
        self._refresh(group)
        group.create_task(self._refresh_on_change(group), name="upstream")

    async def _refresh_on_change(self, group: asyncio.TaskGroup) -> None:
        while True:
            await self._look.wait()
            self._look.clear()
            self._refresh(group)

    def _refresh(self, group: asyncio.TaskGroup) -> None:
        """Read the CRDs anew: what is installed, and which kinds are watched in which versions."""
        before = dict(self._installed)
        for kind in self._host.manifest.upstream:
            facts = self._crd_facts(kind)
            transformers = self._host.transformers_of(kind)
            self._installed[kind.group, kind.kind] = detect(kind, transformers, facts, verify=self._verify)
            wanted = self._versions(kind, facts)
            preferred = kind_in(kind, wanted[0]) if wanted else None
            for watched in [k for k in self._views if (k.group, k.kind) == (kind.group, kind.kind)]:
                if watched.version not in wanted or watched.plural != kind.plural:
                    self._stop(watched)
            self._prefer(kind, preferred)
            for version in wanted:
                self._start(group, kind, kind_in(kind, version))
        if self._installed != before:
            log.info("upstream of %s: %s", self._host.name, self.installed.message)
            self._changed()

    def _versions(self, kind: UpstreamKind, facts: CrdFacts | None) -> list[str]:
        """The versions in which a kind is watched: the one that is written first, then those that objects are kept in.

        One whose schema nothing may be written for is watched all the same: what exists of it still counts.
        """
        installed = self._installed[kind.group, kind.kind]
        if kind.builtin:
            served = list(kind.versions)
        else:
            there = {version for version, _ in facts.served} if facts is not None and facts.established else set()
            served = [version for version in kind.versions if version in there]
        if not served:
            return []
        first = installed.upstream.api_version.rpartition("/")[2] if installed.upstream is not None else served[0]
        kept = [version for version in served if version != first and self._keeps(kind, version)]
        return [first, *kept]

    def _keeps(self, kind: UpstreamKind, version: str) -> bool:
        """Whether an object that the preferred view shows was written in `version`."""
        preferred = self._preferred.get((kind.group, kind.kind))
        view = self._views.get(preferred) if preferred is not None else None
        manager, wanted = names.provider_manager(self._host.name), api_version(kind, version)
        if view is None or not kind.write or len(kind.versions) == 1:
            return False
        return any(written_in(obj, manager) == wanted for obj in view.reflector.values())

    def _prefer(self, kind: UpstreamKind, preferred: Kind | None) -> None:
        if preferred is None:
            self._preferred.pop((kind.group, kind.kind), None)
        else:
            self._preferred[kind.group, kind.kind] = preferred

    def _crd_facts(self, kind: UpstreamKind) -> CrdFacts | None:
        reflector = self._crds.get((kind.group, kind.kind))
        crd = reflector.get(ObjectKey("", f"{kind.plural}.{kind.group}")) if reflector is not None else None
        return crd[_FACTS] if crd is not None else None

    def _start(self, group: asyncio.TaskGroup, kind: UpstreamKind, watched: Kind) -> None:
        if watched in self._views:
            return
        if kind.write:
            whose = f"{names.MANAGED_BY}={names.MANAGED_BY_VALUE},{names.PROVIDER}={self._host.name}"
            view = self._views[watched] = self._view(group, watched, whose)
            view.reflector.add_handler(self._on_object(kind, view))
            view.objects.add_listener(self._on_moved)
        if kind.select:
            view = (self._made if kind.write else self._views)[watched] = self._view(group, watched, kind.select)
            view.reflector.add_handler(self._on_selected(kind))

    def _view(self, group: asyncio.TaskGroup, watched: Kind, label_selector: str) -> View:
        reflector = self._caches.of(watched, project=self._project, label_selector=label_selector)
        task = group.create_task(reflector.run(), name=f"upstream-{watched.plural}-{watched.version}")
        group.create_task(self._announce(reflector), name=f"synced-{watched.plural}")
        objects = Overlay(reflector, project=self._project)
        return View(kind=watched, objects=objects, reflector=reflector, task=task)

    async def _announce(self, reflector: AnyReflector) -> None:
        """Once a kind was read completely, everything that waited for it is looked at."""
        await reflector.synced.wait()
        self._look.set()  # an object may be kept in a version that is not watched yet
        self._changed()

    def _stop(self, watched: Kind) -> None:
        for view in (self._views.pop(watched), self._made.pop(watched, None)):
            if view is not None and view.task is not None:
                view.task.cancel()
        if any((k.group, k.kind) == (watched.group, watched.kind) for k in self._views):
            return
        for index in (self._owned, self._selected):
            for key in list(index):
                gone = [i for i in index[key] if (i.group, i.kind) == (watched.group, watched.kind)]
                for identity in gone:
                    del index[key][identity]
                if gone and index is self._owned:
                    self._notify(key)

    # -------------------------------------------------------------------------------------------------- the indices

    def _on_object(
        self, kind: UpstreamKind, view: View
    ) -> Callable[[ObjectKey, Resource | None, Resource | None], None]:
        manager = names.provider_manager(self._host.name)

        def on_change(key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
            identity = Identity(kind.group, kind.kind, key.name)
            before = deployment_of(key, old) if old is not None else None
            after = deployment_of(key, new) if new is not None else None
            if before is not None and before != after:
                self._drop(self._owned, before, identity)
                self._forget_name(key, before)
            if after is not None and new is not None:
                self._owned.setdefault(after, {})[identity] = None
                self._named.setdefault(key, {})[after] = None
                written = written_in(new, manager)
                if written and kind_in(kind, written.rpartition("/")[2]) not in self._views:
                    self._look.set()
            elif view.kind != self._preferred.get((kind.group, kind.kind)) and not len(view.reflector):
                self._look.set()  # the last one that was kept in that version is gone

        return on_change

    def _on_moved(self, key: ObjectKey, old: Resource | None, new: Resource | None, echo: bool) -> None:
        if echo and old is None:
            return  # whoever made it has just seen it
        for deployment in {deployment_of(key, obj) for obj in (old, new) if obj is not None}:
            if deployment is not None:
                self._notify(deployment)

    def _forget_name(self, key: ObjectKey, deployment: ObjectKey) -> None:
        still = any(identity.name == key.name for identity in self._owned.get(deployment, ()))
        if not still and key in self._named:
            self._named[key].pop(deployment, None)
            if not self._named[key]:
                del self._named[key]

    def _on_selected(self, kind: UpstreamKind) -> Callable[[ObjectKey, Resource | None, Resource | None], None]:
        def on_change(key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
            identity = Identity(kind.group, kind.kind, key.name)
            for obj in (old, new):
                primary = labels_of(obj).get(kind.select) if obj is not None else None
                if not primary:
                    continue
                of = ObjectKey(key.namespace, primary)
                if obj is new and new is not None:
                    self._selected.setdefault(of, {})[identity] = new
                else:
                    self._drop(self._selected, of, identity)
                for deployment in self._named.get(of, ()):
                    self._notify(deployment)

        return on_change

    @staticmethod
    def _drop(index: dict[ObjectKey, dict[Identity, T]], key: ObjectKey, identity: Identity) -> None:
        entries = index.get(key)
        if entries is not None:
            entries.pop(identity, None)
            if not entries:
                del index[key]


def kind_in(kind: UpstreamKind, version: str) -> Kind:
    """The kind as the client addresses it, in one version."""
    return Kind(group=kind.group, version=version, kind=kind.kind, plural=kind.plural, namespaced=True)


def written_in(obj: Resource, manager: str) -> str:
    """The ``apiVersion`` of our last apply; empty where there was none."""
    for entry in dig(obj, "metadata", "managedFields") or ():
        ours = isinstance(entry, dict) and entry.get("manager") == manager and entry.get("operation") == "Apply"
        if ours and not entry.get("subresource"):
            return str(entry.get("apiVersion", ""))
    return ""


def _project_crd(crd: Resource) -> Resource:
    """What we keep of a CRD: its schemas are up to a megabyte each."""
    metadata = crd.get("metadata") or {}
    return {
        "metadata": {key: metadata.get(key) for key in ("name", "uid", "resourceVersion")},
        _FACTS: crd_facts(crd),
    }
