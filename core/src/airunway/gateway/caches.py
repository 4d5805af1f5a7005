"""What the gateway part reads of Gateways, routes, pools and pickers, while their CRDs come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial

import orjson

from airunway.api import names
from airunway.kube import (
    CONFIG_MAP,
    DEPLOYMENT,
    NAMESPACE,
    SERVICE,
    SERVICE_ACCOUNT,
    Kind,
    compact_objects,
    transform_once,
)
from airunway.kube.packing import is_packed, packed, unpacked
from airunway.owned.objects import Identity, identity_in, is_ours
from airunway.owned.views import OwnedView, known_objects, views_by_kind
from airunway.process.caches import Caches, Sources
from airunway.resource import (
    ObjectKey,
    Resource,
    controller_owner,
    copy_of,
    dig,
    entries_at,
    kept,
    key_of,
    labels_of,
    text_at,
)
from airunway.routing.intent import MARK
from airunway.sdk import picker

_LOOK = 1.0
"""Seconds between two looks at which kinds are served; a reflector itself asks for an absent kind every 30 s."""

_AT_HAND = 16 * 2**10
"""Bytes of JSON above which any object is packed: ours are smaller, but any user may set our labels on one."""

_FINDING = ("name", "namespace", "uid", "resourceVersion")
"""Metadata by which a packed object is found and compared, besides its labels and its controlling owner."""


_MOST_OWNERS = 16
"""Owner references of a packed object that are kept; an object of ours has one."""

_LABELS = (names.MODEL_DEPLOYMENT, MARK.key)
"""Labels by which a packed object is found."""


class GatewayCaches(Sources):
    """The caches of the gateway part.

    - `notify(deployment)` is called for every change of one of a deployment's objects;
    - `on_reference(kind, key)` for every change of an HTTPRoute or InferencePool, which a deployment may name;
    - `on_gateway(gateway)` if the status of a Gateway changed;
    - `on_choice()` if another Gateway may be chosen now: one came, went or changed, or a kind is served now or no
      longer.
    """

    def __init__(
        self,
        caches: Caches,
        *,
        notify: Callable[[ObjectKey], None],
        on_reference: Callable[[Kind, ObjectKey], None],
        on_gateway: Callable[[ObjectKey], None],
        on_choice: Callable[[], None],
        trusted: Collection[str],
        by_label: bool,
    ) -> None:
        """`trusted` are the namespaces whose Gateways may be chosen without being named; `by_label`: those that have
        the label for it, too.
        """
        super().__init__(caches)
        self._on_gateway = on_gateway
        self._on_choice = on_choice
        compact = compact_objects(names.GATEWAY_MANAGER)
        small = self._project = transform_once(lambda obj: _small(compact(obj)))
        pack = transform_once(lambda route: _packed(compact(route)))  # there is one for each deployment
        owns = partial(self.owns, owners_of=_deployments_of, restore=unpacked)
        # Users' routes and other controllers' pools are read, too: a deployment may name a route, and a provider's
        # operator may make the pool.
        self._views = views_by_kind(
            (
                owns(GATEWAY, project=_without_counts, everywhere=True, optional=True),
                owns(HTTP_ROUTE, project=pack, wakes=notify, optional=True),
                owns(INFERENCE_POOL, project=small, wakes=notify, optional=True),
                owns(DESTINATION_RULE, project=small, wakes=notify, optional=True, label_selector=MARK.selector),
                *(owns(kind, project=small, wakes=notify, label_selector=MARK.selector) for kind in PICKER_KINDS),
            )
        )
        self._view(GATEWAY).reflector.add_handler(self._on_gateway_change)
        self._view(HTTP_ROUTE).objects.add_listener(lambda key, *_: on_reference(HTTP_ROUTE, key))
        self._view(INFERENCE_POOL).objects.add_listener(lambda key, *_: on_reference(INFERENCE_POOL, key))
        self._served: frozenset[Kind] = frozenset()
        self._named = self._trusted = frozenset(trusted)
        if by_label:
            selector = f"{names.GATEWAY_NAMESPACE}=allowed"
            self.watches(
                NAMESPACE, project=_name_only, wakes=self._on_namespace, label_selector=selector, everywhere=True
            )

    def _view(self, kind: Kind) -> OwnedView:
        return self._views[kind.group, kind.kind]

    # ---------------------------------------------------------------------------------------------------- what is read

    def view_of(self, obj: Resource) -> OwnedView | None:
        """How an object is read and written; None if the cluster does not serve its kind in that version."""
        identity = identity_in(obj)
        view = self._views.get((identity.group, identity.kind))
        return view if view is not None and view.kind.api_version == obj.get("apiVersion") and view.served else None

    def serves(self, kind: Kind) -> bool:
        return self._view(kind).served

    def gateway_namespaces(self) -> frozenset[str]:
        """The namespaces whose Gateways may be chosen without being named."""
        return self._trusted

    def gateways(self) -> list[Resource]:
        return [] if not self.serves(GATEWAY) else list(self._view(GATEWAY).reflector.values())

    def find(self, kind: Kind, key: ObjectKey) -> Resource | None:
        """An object of one of the kinds; None if there is none, or the kind is not served."""
        view = self._view(kind)
        return view.objects.get(key) if view.served else None

    def known(self, deployment: Resource, wanted: Iterable[Resource] = ()) -> dict[Identity, Resource]:
        """The deployment's objects of this part, and those with the name of a `wanted` one.

        A large object is read only if it is one of these: any user may label one as the deployment's.
        """
        served = {kind: view for kind, view in self._views.items() if view.served}
        return known_objects(
            served,
            key_of(deployment),
            (obj for obj in wanted if self.view_of(obj) is not None),
            only=lambda cached: not is_packed(cached) or is_ours(cached, deployment, MARK),
        )

    # ------------------------------------------------------------------------------------------------------- what runs

    async def run(self) -> None:
        """Follow the kinds until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(super().run(), name="gateway: watches")
            group.create_task(self._look(), name="gateway: kinds")

    async def _look(self) -> None:
        while True:
            served = frozenset(view.kind for view in self._views.values() if view.served)
            if served != self._served:
                self._served = served
                self._on_choice()
            await asyncio.sleep(_LOOK)

    def _on_namespace(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        if (old is None) != (new is None):
            name = {key.name}
            self._trusted = self._trusted | name if new is not None else self._trusted - (name - self._named)
            self._on_choice()

    def _on_gateway_change(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        if old is None or new is None or _chosen_by(old) != _chosen_by(new):
            self._on_choice()
        elif old.get("status") != new.get("status"):
            self._on_gateway(key)


def _deployments_of(obj: Resource) -> Iterator[ObjectKey]:
    """The deployment that an object belongs to: by its controlling owner, otherwise by the labels of this part."""
    namespace, owner = key_of(obj).namespace, controller_owner(obj)
    if owner is not None and owner.get("kind") == "ModelDeployment":
        yield ObjectKey(namespace, str(owner.get("name")))
    elif name := labels_of(obj).get(names.MODEL_DEPLOYMENT):
        yield ObjectKey(namespace, name)


def _packed(obj: Resource, text: bytes = b"") -> Resource:
    """An object as JSON, beside the metadata that finds it."""
    metadata = kept(obj.get("metadata"), *_FINDING)
    if labels := {key: value for key, value in labels_of(obj).items() if key in _LABELS}:
        metadata["labels"] = labels
    if references := entries_at(obj, "metadata", "ownerReferences")[:_MOST_OWNERS]:
        metadata["ownerReferences"] = references
    if uid := text_at(obj, "metadata", "annotations", names.DEPLOYMENT_UID):
        metadata["annotations"] = {names.DEPLOYMENT_UID: uid}
    return packed({"metadata": metadata}, text or obj)


def _small(obj: Resource) -> Resource:
    """An object as it is, or packed if it is large."""
    text = orjson.dumps(obj)
    return obj if len(text) <= _AT_HAND else _packed(obj, text)


def _name_only(namespace: Resource) -> Resource:
    return {"metadata": kept(namespace.get("metadata"), "name", "uid", "resourceVersion")}


def _chosen_by(gateway: Resource) -> tuple[object, ...]:
    """What the choice of a Gateway depends on."""
    return gateway.get("spec"), labels_of(gateway), dig(gateway, "metadata", "deletionTimestamp")


def _without_counts(gateway: Resource) -> Resource:
    """A Gateway without what changes with each route: the number of attached routes, versions and managers."""
    metadata = kept(
        gateway.get("metadata"),
        "name",
        "namespace",
        "uid",
        "generation",
        "labels",
        "creationTimestamp",
        "deletionTimestamp",
        "resourceVersion",
    )
    result: Resource = {
        "apiVersion": GATEWAY.api_version,
        "kind": GATEWAY.kind,
        "metadata": metadata,
        "spec": gateway.get("spec"),
        "status": copy_of(gateway.get("status") or {}),
    }
    for listener in entries_at(result, "status", "listeners"):
        listener.pop("attachedRoutes", None)
    return result


GATEWAY = Kind(group=names.GATEWAY_GROUP, version="v1", kind="Gateway", plural="gateways")
HTTP_ROUTE = Kind(group=names.GATEWAY_GROUP, version="v1", kind="HTTPRoute", plural="httproutes")
INFERENCE_POOL = Kind(
    group=picker.INFERENCE_POOL.group,
    version="v1",
    kind=picker.INFERENCE_POOL.kind,
    plural=picker.INFERENCE_POOL.plural,
)
DESTINATION_RULE = Kind(group="networking.istio.io", version="v1", kind="DestinationRule", plural="destinationrules")

OPTIONAL = (GATEWAY, HTTP_ROUTE, INFERENCE_POOL, DESTINATION_RULE)
"""Kinds that come and go with their CRDs while the part runs."""

PICKER_KINDS = (
    SERVICE_ACCOUNT,
    Kind(group="rbac.authorization.k8s.io", version="v1", kind="RoleBinding", plural="rolebindings"),
    CONFIG_MAP,
    SERVICE,
    DEPLOYMENT,
)
"""Kinds of an endpoint picker's objects besides the pool; every cluster serves them."""
