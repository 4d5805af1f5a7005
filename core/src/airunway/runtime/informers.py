"""Watches the upstream: which of its kinds are installed, and which of their objects belong to each deployment.

`UpstreamInformers` owns the informers of the CRDs and of the kinds. It starts to watch a kind when its CRD appears and
stops when the CRD is deleted. While objects exist that were written in an older version, that version is watched beside
the newest one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from airunway.api import names
from airunway.kube import (
    CUSTOM_RESOURCE_DEFINITION,
    AnyReflector,
    Kind,
    MutationCache,
    compact_objects,
    transform_once,
    wait_until_synced,
)
from airunway.owned.objects import Identity, identity_in
from airunway.owned.views import OwnedView
from airunway.plugins.contract import UpstreamKind, api_version
from airunway.plugins.host import ProviderHost
from airunway.process.caches import Caches
from airunway.resource import ObjectKey, Resource, controller_owner, key_of, labels_of, managed_by
from airunway.runtime.autoscaling import is_autoscaler, outlined, same_content
from airunway.runtime.crd_versions import CrdFacts, Installed, crd_facts, detect

log = logging.getLogger(__name__)

_FACTS = "crdFacts"
"""Key under which a projected CRD keeps its facts."""

_UNREAD = Installed(upstream=None, reason="UpstreamNotInstalled", message="the cluster's CRDs have not been read yet")


@dataclass(frozen=True, kw_only=True)
class KindInformer(OwnedView):
    """The informer of one kind in one version. Written objects belong to their deployment, objects that the upstream
    created to their primary object.
    """

    task: asyncio.Task[None]
    """The task that runs the reflector."""


def deployment_of(obj: Resource) -> ObjectKey | None:
    """The deployment that an object belongs to: by its controlling owner, else by its label."""
    namespace, owner = key_of(obj).namespace, controller_owner(obj)
    if (
        owner is not None
        and owner.get("kind") == "ModelDeployment"
        and str(owner.get("apiVersion")).startswith(names.GROUP)
    ):
        return ObjectKey(namespace, str(owner.get("name")))
    name = labels_of(obj).get(names.MODEL_DEPLOYMENT)
    return ObjectKey(namespace, name) if name else None


class UpstreamInformers:
    """What is installed of one provider's upstream, and its objects.

    `version` asks the cluster for its version, on which the built-in kinds depend. `notify(deployment)` is called for
    every change of one of the deployment's objects, `changed()` when a change of the kinds concerns all deployments.
    """

    def __init__(
        self,
        *,
        caches: Caches,
        host: ProviderHost,
        verify: bool,
        version: Callable[[], Awaitable[tuple[int, int]]],
        notify: Callable[[ObjectKey], None],
        changed: Callable[[], None],
    ) -> None:
        self._caches = caches
        self._host = host
        self._verify = verify
        self._manager = names.provider_manager(host.name)
        compact = compact_objects(self._manager)
        self._project = transform_once(compact)
        self._autoscalers = transform_once(lambda obj: compact(outlined(obj)))
        self._notify = notify
        self._changed = changed
        self._written: dict[Kind, KindInformer] = {}
        self._made: dict[Kind, KindInformer] = {}
        self._preferred: dict[tuple[str, str], Kind] = {}
        self._installed = dict.fromkeys(host.kinds, _UNREAD)
        self._look = asyncio.Event()
        self._version = version
        self._kubernetes = (0, 0)
        self._known = asyncio.Event()
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
        """What is installed of the primary kind: it decides whether the provider can work."""
        primary = self._host.primary_kind
        return self._installed[primary.group, primary.kind]

    @property
    def verdicts(self) -> Mapping[tuple[str, str], Installed]:
        """What is installed of each kind of the manifest, by group and kind."""
        return dict(self._installed)

    @property
    def state(self) -> tuple[object, ...]:
        """The facts of all kinds on which the outcome of a write may depend."""
        return tuple(self._crd_facts(kind) for kind in self._host.manifest.upstream)

    def unread(self) -> list[str]:
        """The kinds that have not been read completely: before that, absence means nothing."""
        return [view.kind.kind for view in (*self._written.values(), *self._made.values()) if not view.synced]

    def view_of(self, obj: Resource) -> KindInformer | None:
        """The informer of an object's kind in the object's own version; None if the provider does not watch it."""
        identity = identity_in(obj)
        version = str(obj.get("apiVersion")).rpartition("/")[2]
        kind = self._host.kinds.get((identity.group, identity.kind))
        return self._written.get(kind_in(kind, version)) if kind is not None else None

    def known(self, deployment: ObjectKey, wanted: Sequence[Resource] = ()) -> dict[Identity, Resource]:
        """All objects of the written kinds that carry our label for the deployment, and those with a `wanted` name.

        Each object is in the version in which it was written, if that is served.
        """
        identities = {
            Identity(view.kind.group, view.kind.kind, key_of(obj).name): None
            for view in self._written.values()
            for obj in view.of.get(deployment)
        }
        identities.update(dict.fromkeys(map(identity_in, wanted)))
        found = ((identity, self.find(deployment.namespace, identity)) for identity in identities)
        return {identity: obj for identity, obj in found if obj is not None}

    def find(self, namespace: str, identity: Identity) -> Resource | None:
        """An object of a written kind, from the caches, in the version in which it was written."""
        key = ObjectKey(namespace, identity.name)
        preferred = self._preferred.get((identity.group, identity.kind))
        if preferred is None:
            return None
        obj = self._written[preferred].objects.get(key)
        written = written_in(obj, self._manager) if obj is not None else ""
        if not written or written == preferred.api_version:
            return obj
        kind = self._host.kinds[identity.group, identity.kind]
        beside = self._written.get(kind_in(kind, written.rpartition("/")[2]))
        return (beside.objects.get(key) if beside is not None and beside.synced else None) or obj

    def awaits(self, known: Mapping[Identity, Resource]) -> bool:
        """Whether a known object was written in a served version whose cache is not complete yet."""
        for identity, obj in known.items():
            written = written_in(obj, self._manager)
            served = self._installed[identity.group, identity.kind].served
            if written not in ("", obj.get("apiVersion")) and any(s.api_version == written for s in served):
                return True
        return False

    def selected(self, namespace: str, primary: str) -> tuple[Resource, ...]:
        """The objects that the upstream created from the primary object: those of the kinds with `select` whose label
        has the primary object's name.
        """
        of = ObjectKey(namespace, primary)
        found = {identity_in(obj): obj for view in self._made.values() for obj in view.of.get(of)}
        return tuple(found.values())

    def is_named(self, obj: ObjectKey) -> Iterator[ObjectKey]:
        """The deployments that have an object of this name, or whose upstream created one."""
        yield from self._having(obj)
        for view in self._made.values():
            if (found := view.reflector.get(obj)) is not None:
                for primary in _made_of(found, self._host.kinds[view.kind.group, view.kind.kind].select):
                    yield from self._having(primary)

    def _having(self, key: ObjectKey) -> Iterator[ObjectKey]:
        """The deployments of the written objects that have this name."""
        for view in self._written.values():
            if (found := view.reflector.get(key)) is not None:
                yield from _owners(found)

    def views(self) -> tuple[KindInformer, ...]:
        """The informers of every written kind, in its preferred version."""
        return tuple(self._written[kind] for kind in self._preferred.values())

    # ---------------------------------------------------------------------------------------------------- what runs

    def unready(self) -> str | None:
        """Why the objects cannot be read yet, or None."""
        if not self._known.is_set():
            return "the upstream's CRDs have not been read yet"
        waiting = self.unread()
        return f"these upstream kinds have not been read yet: {', '.join(waiting)}" if waiting else None

    async def read(self) -> None:
        """Wait until the CRDs are read, and with them what is installed."""
        await self._known.wait()

    async def run(self) -> None:
        """Watch the CRDs, and the objects of the kinds that are served, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for (_, kind), reflector in self._crds.items():
                group.create_task(reflector.run(), name=f"crd-{kind}")
            await wait_until_synced([*self._crds.values()])
            self._kubernetes = await self._version()
            self._refresh(group)
            self._known.set()
            await self._refresh_on_change(group)

    async def _refresh_on_change(self, group: asyncio.TaskGroup) -> None:
        while True:
            await self._look.wait()
            self._look.clear()
            self._refresh(group)

    def _refresh(self, group: asyncio.TaskGroup) -> None:
        """Compute from the CRDs what is installed, and start and stop watches accordingly."""
        before = dict(self._installed)
        for kind in self._host.manifest.upstream:
            facts = self._crd_facts(kind)
            transformers = self._host.transformers_of(kind)
            self._installed[kind.group, kind.kind] = detect(
                kind, transformers, facts, verify=self._verify, kubernetes=self._kubernetes
            )
            wanted = self._versions(kind, facts)
            for watched in {*self._written, *self._made}:
                if (watched.group, watched.kind) == (kind.group, kind.kind) and watched.version not in wanted:
                    self._stop(watched)
            self._preferred.pop((kind.group, kind.kind), None)
            if wanted and kind.write:
                self._preferred[kind.group, kind.kind] = kind_in(kind, wanted[0])
            for version in wanted:
                self._start(group, kind, kind_in(kind, version))
        if self._installed != before:
            log.info("upstream of %s: %s", self._host.name, self.installed.message)
            self._changed()

    def _versions(self, kind: UpstreamKind, facts: CrdFacts | None) -> list[str]:
        """The versions in which a kind is watched: first the version that is written, then those of existing objects.

        A version is watched even if no transformer may write its schema, because its existing objects still count.
        """
        installed = self._installed[kind.group, kind.kind]
        if kind.builtin:
            served = list(kind.versions) if installed.upstream is not None else []
        else:
            there = {version for version, _ in facts.served} if facts is not None and facts.established else set()
            served = [version for version in kind.versions if version in there]
        if not served:
            return []
        first = installed.upstream.api_version.rpartition("/")[2] if installed.upstream is not None else served[0]
        kept = [version for version in served if version != first and self._keeps(kind, version)]
        return [first, *kept]

    def _keeps(self, kind: UpstreamKind, version: str) -> bool:
        """Whether an object in the preferred version's cache was written in `version`."""
        preferred = self._preferred.get((kind.group, kind.kind))
        view = self._written.get(preferred) if preferred is not None else None
        wanted = api_version(kind, version)
        return view is not None and any(written_in(obj, self._manager) == wanted for obj in view.reflector.values())

    def _crd_facts(self, kind: UpstreamKind) -> CrdFacts | None:
        reflector = self._crds.get((kind.group, kind.kind))
        crd = reflector.get(ObjectKey("", f"{kind.plural}.{kind.group}")) if reflector is not None else None
        return crd[_FACTS] if crd is not None else None

    def _start(self, group: asyncio.TaskGroup, kind: UpstreamKind, watched: Kind) -> None:
        if kind.write and watched not in self._written:
            whose = f"{names.MANAGED_BY}={names.MANAGED_BY_VALUE},{names.PROVIDER}={self._host.name}"
            view = self._written[watched] = self._view(group, watched, whose, _owners)
            view.reflector.add_handler(partial(self._on_object, kind, view))
            view.objects.add_listener(self._on_moved)
        if kind.select and watched not in self._made:
            made_of = partial(_made_of, label=kind.select)
            view = self._made[watched] = self._view(group, watched, kind.select, made_of)
            view.reflector.add_handler(partial(self._on_selected, made_of))

    def _view(
        self,
        group: asyncio.TaskGroup,
        watched: Kind,
        label_selector: str,
        of: Callable[[Resource], Iterable[ObjectKey]],
    ) -> KindInformer:
        project = (
            self._autoscalers
            if is_autoscaler({"apiVersion": watched.api_version, "kind": watched.kind})
            else (self._project)
        )
        reflector = self._caches.of(watched, project=project, label_selector=label_selector)
        index = reflector.add_index(of)
        task = group.create_task(reflector.run(), name=f"upstream-{watched.plural}-{watched.version}")
        group.create_task(self._announce(reflector), name=f"synced-{watched.plural}")
        objects = MutationCache(reflector, project=project)
        return KindInformer(kind=watched, objects=objects, reflector=reflector, of=index, task=task)

    async def _announce(self, reflector: AnyReflector) -> None:
        """When the kind is read completely, trigger a refresh and reconcile the deployments that waited for it."""
        await reflector.synced.wait()
        self._look.set()  # an object may have been written in a version that is not watched yet
        self._changed()

    def _stop(self, watched: Kind) -> None:
        written, made = self._written.pop(watched, None), self._made.pop(watched, None)
        for view in (written, made):
            if view is not None:
                view.task.cancel()
        if written is not None and not any((k.group, k.kind) == (watched.group, watched.kind) for k in self._written):
            self._notify_of(written.reflector.values())

    # ------------------------------------------------------------------------------------------------- what changes

    def _on_object(
        self, kind: UpstreamKind, view: KindInformer, key: ObjectKey, old: Resource | None, new: Resource | None
    ) -> None:
        if new is not None:
            written = written_in(new, self._manager)
            if written and kind_in(kind, written.rpartition("/")[2]) not in self._written:
                self._look.set()
        elif view.kind != self._preferred.get((kind.group, kind.kind)) and not len(view.reflector):
            self._look.set()  # the last object that was written in that version is gone

    def _on_moved(self, key: ObjectKey, old: Resource | None, new: Resource | None, echo: bool) -> None:
        if old is not None and new is not None and is_autoscaler(new) and same_content(old, new):
            return  # KEDA notes the time of each look
        if not echo or old is not None:  # the pass that created an object needs no echo of it
            self._notify_of(obj for obj in (old, new) if obj is not None)

    def _notify_of(self, objects: Iterable[Resource]) -> None:
        for deployment in {owner for obj in objects for owner in _owners(obj)}:
            self._notify(deployment)

    def _on_selected(
        self,
        made_of: Callable[[Resource], Iterable[ObjectKey]],
        key: ObjectKey,
        old: Resource | None,
        new: Resource | None,
    ) -> None:
        for primary in {primary for obj in (old, new) if obj is not None for primary in made_of(obj)}:
            for deployment in self._having(primary):
                self._notify(deployment)


def _owners(obj: Resource) -> Iterator[ObjectKey]:
    """The deployment that a written object belongs to, if it names one."""
    if (deployment := deployment_of(obj)) is not None:
        yield deployment


def _made_of(obj: Resource, label: str) -> Iterator[ObjectKey]:
    """The primary object from which the upstream created an object: the value of that label."""
    if primary := labels_of(obj).get(label):
        yield ObjectKey(key_of(obj).namespace, primary)


def kind_in(kind: UpstreamKind, version: str) -> Kind:
    """The kind in one version, as the client addresses it."""
    return Kind(group=kind.group, version=version, kind=kind.kind, plural=kind.plural, namespaced=True)


def written_in(obj: Resource, manager: str) -> str:
    """The ``apiVersion`` of our last apply; empty if there was none."""
    for entry in managed_by(obj, manager):
        if entry.get("operation") == "Apply" and not entry.get("subresource"):
            return str(entry.get("apiVersion", ""))
    return ""


def _project_crd(crd: Resource) -> Resource:
    """Project a CRD to its facts: its schemas are up to a megabyte each."""
    metadata = crd.get("metadata") or {}
    return {
        "metadata": {key: metadata.get(key) for key in ("name", "uid", "resourceVersion")},
        _FACTS: crd_facts(crd),
    }
