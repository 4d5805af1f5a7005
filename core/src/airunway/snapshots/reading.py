"""Reads one deployment with everything below it: what that is, and its state in at most `MOST_REQUESTS` requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from airunway.api import names
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_ARTIFACT, MODEL_DEPLOYMENT, SCALED_OBJECT
from airunway.kube import (
    DEPLOYMENT,
    JOB,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    REPLICA_SET,
    SERVICE,
    STATEFUL_SET,
    Client,
    Kind,
    served_kinds_by_name,
)
from airunway.resource import (
    ObjectKey,
    Resource,
    condition_of,
    dig,
    entries_at,
    key_of,
    labels_of,
    list_at,
    text_at,
    uid_of,
)
from airunway.snapshots.reader import Listed, Reader
from airunway.unseen import Unseen
from airunway.view import DeploymentSnapshot

Content: TypeAlias = Literal["pods", "events", "objects"]
"""What a source is a part of."""

Served: TypeAlias = Mapping[tuple[str, str], Sequence[Kind]]
"""The kinds that the API server has, by group and kind, preferred versions first."""

EVENT = Kind("", "v1", "Event", "events")
"""Events of the core group: the ClusterRole ``view`` has no right to those of events.k8s.io on older clusters."""

_BUILT_IN = {kind.kind: kind for kind in (DEPLOYMENT, STATEFUL_SET, REPLICA_SET, JOB, SERVICE)}
"""Kinds of which every object of a deployment has our label, because its provider wrote it."""

_STATELESS = frozenset(
    {
        "ConfigMap",
        "Secret",
        "ServiceAccount",
        "Role",
        "RoleBinding",
        "NetworkPolicy",
        "DestinationRule",
        "ResourceClaimTemplate",
    }
)
"""Kinds whose objects have no state that could be shown."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """One object, or one list: one request."""

    content: Content
    """What its objects are."""
    kind: Kind
    """Their kind."""
    key: ObjectKey
    """Namespace and name; without a name a list."""
    label_selector: str = ""
    """Label selector of a list."""
    field_selector: str = ""
    """Field selector of a list."""
    limit: int = 500
    """Objects of a list that are read."""
    owned: bool = False
    """Whether only those objects count that have our label, or an owner among the deployment's objects."""

    @property
    def what(self) -> str:
        """What it is, as words of a message."""
        return f"{self.kind} {self.key.name}" if self.key.name else str(self.kind)


def pod_sources(deployment: Resource) -> Iterator[Source]:
    """The lists of a deployment's pods: by our label, and by the selector in its status where that has another one."""
    key = key_of(deployment)
    ours = f"{names.MODEL_DEPLOYMENT}={key.name}"
    yield Source(content="pods", kind=POD, key=ObjectKey(key.namespace, ""), label_selector=ours, limit=2048)
    selector = dig(deployment, "status", "selector")
    # Its first term names the deployment's object; a role beside it would leave out pods that do not serve.
    first = selector.partition(",")[0] if isinstance(selector, str) else ""
    if first and first != ours:
        yield Source(content="pods", kind=POD, key=ObjectKey(key.namespace, ""), label_selector=first, limit=2048)


def all_pod_sources(deployment: Resource) -> list[Source]:
    """The lists of a deployment's pods, and of those that fetch its weights."""
    cache = _of_cache(deployment, key_of(deployment).namespace)
    return [*pod_sources(deployment), *(source for source in cache if source.content == "pods")]


def sources_of(deployment: Resource, config: Resource | None, served: Served) -> list[Source]:
    """All that is read beside the deployment, without its pods and events: the most telling first."""
    key = key_of(deployment)
    provider = _of_provider(deployment, config, served)
    routes = served.get((names.GATEWAY_GROUP, "HTTPRoute"), ())
    if routes and dig(deployment, "status", "gateway"):
        provider.append(_labelled(routes[0], key))
        provider += _gateway(deployment, served)
    cache = list(_of_cache(deployment, key.namespace))
    if dig(deployment, "status", "modelCache", "ready") is True:
        # The artifact itself says that its claim is there and its downloads have ended.
        provider += _of_volumes(deployment)
        return [*provider, *(source for source in cache if source.kind == MODEL_ARTIFACT)]
    return [*provider[:1], *cache, *_of_volumes(deployment), *provider[1:]]


def _gateway(deployment: Resource, served: Served) -> list[Source]:
    """The Gateway of the route, which is usually in another namespace."""
    published, kinds = dig(deployment, "status", "gateway"), served.get((names.GATEWAY_GROUP, "Gateway"), ())
    namespace, name = dig(published, "gatewayNamespace"), dig(published, "gatewayName")
    if not (kinds and isinstance(namespace, str) and isinstance(name, str) and namespace and name):
        return []
    return [Source(content="objects", kind=kinds[0], key=ObjectKey(namespace, name))]


def event_sources(deployment: Resource) -> Iterator[Source]:
    """The events about objects with the deployment's name, and the warnings of its namespace."""
    key = key_of(deployment)
    for selector in (f"involvedObject.name={key.name}", "type=Warning"):
        yield Source(content="events", kind=EVENT, key=ObjectKey(key.namespace, ""), field_selector=selector)


def _of_provider(deployment: Resource, config: Resource | None, served: Served) -> list[Source]:
    """The primary object, then the kinds that the provider's InferenceProviderConfig names."""
    key, made = key_of(deployment), dig(deployment, "status", "provider", default={})
    group, _, version = str(dig(made, "resourceAPIVersion", default="")).rpartition("/")
    kind, name = dig(made, "resourceKind"), dig(made, "resourceName")
    autoscaled = dig(deployment, "spec", "scaling", "autoscaling") is not None
    found: list[Source] = []
    if isinstance(kind, str) and isinstance(name, str) and name:
        known = _kind(group, kind, [version], served)
        if known is not None and known.namespaced:
            found.append(Source(content="objects", kind=known, key=ObjectKey(key.namespace, name)))
    for entry in list_at(config, "spec", "upstream"):
        named = (str(dig(entry, "group", default="")), str(dig(entry, "kind")))
        if named[1] in _STATELESS or (found and named == (group, kind) and named[1] not in _BUILT_IN):
            continue
        if named == (SCALED_OBJECT.group, SCALED_OBJECT.kind) and not autoscaled:
            continue
        known = _kind(*named, dig(entry, "versions", default=[]), served)
        if known is None or not known.namespaced:
            continue
        if found and named == (group, kind):
            found[0] = _labelled(known, key)  # a list of them has the primary object too
        else:
            found.append(_labelled(known, key))
    return found


def _labelled(kind: Kind, key: ObjectKey) -> Source:
    """The objects of a deployment: built-in kinds by our label; an operator does not set it on those that it makes."""
    labelled = kind.kind in _BUILT_IN or kind == PERSISTENT_VOLUME_CLAIM
    return Source(
        content="objects",
        kind=kind,
        key=ObjectKey(key.namespace, ""),
        label_selector=f"{names.MODEL_DEPLOYMENT}={key.name}" if labelled else "",
        owned=not labelled,
    )


def _kind(group: str, kind: str, versions: Sequence[object], served: Served) -> Kind | None:
    """The kind in the first of the versions that is served, else in the preferred one; None if it is not served."""
    if kind in _BUILT_IN and _BUILT_IN[kind].group == group:
        return _BUILT_IN[kind]
    found = served.get((group, kind), ())
    by_version = {each.version: each for each in found}
    return next((by_version[str(v)] for v in versions if str(v) in by_version), found[0] if found else None)


def _of_cache(deployment: Resource, namespace: str) -> Iterator[Source]:
    """The ModelArtifact, its claim, its Jobs and their pods, where the deployment has a model cache."""
    cache = dig(deployment, "status", "modelCache")
    artifact, claim = dig(cache, "artifactName"), dig(cache, "claimName")
    if not isinstance(artifact, str) or not artifact:
        return
    yield Source(content="objects", kind=MODEL_ARTIFACT, key=ObjectKey(namespace, artifact))
    selector = f"{names.ARTIFACT}={artifact}"
    yield Source(content="pods", kind=POD, key=ObjectKey(namespace, ""), label_selector=selector)
    yield Source(content="objects", kind=JOB, key=ObjectKey(namespace, ""), label_selector=selector)
    if isinstance(claim, str) and claim:
        yield Source(content="objects", kind=PERSISTENT_VOLUME_CLAIM, key=ObjectKey(namespace, claim))


def _of_volumes(deployment: Resource) -> Iterator[Source]:
    """The claims of the deployment's volumes, as long as one of them hinders it."""
    if dig(condition_of(deployment, "StorageReady"), "status") != "False":
        return
    key, volumes = key_of(deployment), entries_at(deployment, "spec", "model", "storage", "volumes")
    if any(volume.get("size") for volume in volumes):
        yield _labelled(PERSISTENT_VOLUME_CLAIM, key)
    for name in {text_at(volume, "claimName") for volume in volumes if not volume.get("size")} - {""}:
        yield Source(content="objects", kind=PERSISTENT_VOLUME_CLAIM, key=ObjectKey(key.namespace, name))


# ------------------------------------------------------------------------------------------------ one reading of them


MOST_REQUESTS = 16
"""Requests for one snapshot, whatever there is to see."""

_MOST_BYTES = {"pods": 32 * 2**20, "events": 8 * 2**20, "objects": 8 * 2**20}
"""Bytes of one list that are read."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What tells which objects to read."""

    config: Resource | None
    """The InferenceProviderConfig of the deployment's provider, if there is one and it may be read."""
    served: Served
    """The kinds that the API server has."""
    unseen: tuple[Unseen, ...]
    """What of this was not read."""
    requests: int
    """How many requests that took."""


async def read_snapshot(client: Client, key: ObjectKey) -> DeploymentSnapshot:
    """Returns the deployment and what is below it. Raises NotFound, Forbidden and other KubeErrors of the deployment
    itself; what else could not be read is `Unseen`.
    """
    deployment, reader = await client.get(MODEL_DEPLOYMENT, key), Reader(client, tolerant=True)
    first = [*pod_sources(deployment), *event_sources(deployment)]
    around, reads = await asyncio.gather(
        surroundings_of(client, deployment), asyncio.gather(*(_read(reader, source) for source in first))
    )
    room = MOST_REQUESTS - 1 - around.requests - len(first)
    wanted = sources_of(deployment, around.config, around.served)
    reads += await asyncio.gather(*(_read(reader, source) for source in wanted[:room]))
    left = [
        Unseen(what=source.what, why=f"not read: a snapshot takes at most {MOST_REQUESTS} requests")
        for source in wanted[room:]
    ]
    sources = [*first, *wanted[:room]]
    return assembled(deployment, [*zip(sources, reads, strict=True)], [*around.unseen, *left])


async def surroundings_of(client: Client, deployment: Resource) -> Surroundings:
    """What tells which objects to read for a deployment, in at most two requests."""
    provider = dig(deployment, "status", "provider", "name")
    if not isinstance(provider, str) or not provider:
        return Surroundings(config=None, served={}, unseen=(), requests=0)
    reader = Reader(client, tolerant=True)
    config, served = await asyncio.gather(
        reader.get(INFERENCE_PROVIDER_CONFIG, ObjectKey("", provider)),
        reader.see("kinds of the cluster", served_kinds_by_name(client), right="get /apis"),
    )
    unseen = [*config.unseen, *([served] if isinstance(served, Unseen) else [])]
    return Surroundings(
        config=config.items[0] if config.items else None,
        served={} if isinstance(served, Unseen) else served,
        unseen=tuple(unseen),
        requests=2,
    )


async def _read(reader: Reader, source: Source) -> Listed:
    if source.key.name:
        return await reader.get(source.kind, source.key)
    return await reader.first(
        source.kind,
        namespace=source.key.namespace,
        label_selector=source.label_selector,
        field_selector=source.field_selector,
        limit=source.limit,
        most=_MOST_BYTES[source.content],
    )


def assembled(
    deployment: Resource, reads: Sequence[tuple[Source, Listed]], other: Iterable[Unseen]
) -> DeploymentSnapshot:
    """The snapshot of what was read and what was not. Pods (or events) are `Unseen` if none of their lists was read."""
    by_content: dict[Content, dict[str, Resource]] = {}
    owned: list[Resource] = []
    for source, read in reads:
        if read.unseen and not read.items:
            continue
        known = by_content.setdefault(source.content, {})
        for item in read.items:
            if source.owned:
                owned.append(item)
            else:
                known[uid_of(item) or str(len(known))] = item
    objects = by_content.setdefault("objects", {})
    for item in _ours(deployment, objects.values(), owned):
        objects[uid_of(item) or str(len(objects))] = item
    remarks = [*other]
    parts: dict[Content, tuple[Resource, ...] | Unseen] = {}
    for content in ("pods", "events"):
        missing = [each for source, read in reads if source.content == content for each in read.unseen]
        if missing and content not in by_content:
            parts[content] = missing[0]
        else:
            parts[content] = tuple(by_content.get(content, {}).values())
            remarks += missing
    remarks += [each for source, read in reads if source.content == "objects" for each in read.unseen]
    return DeploymentSnapshot(
        deployment={**deployment, "kind": MODEL_DEPLOYMENT.kind},
        pods=parts["pods"],
        events=parts["events"],
        objects=tuple(objects.values()),
        unseen=tuple(dict.fromkeys(remarks)),
    )


def _ours(deployment: Resource, known: Iterable[Resource], candidates: Iterable[Resource]) -> list[Resource]:
    """Those candidates with our label, or with an owner among the deployment, `known` and each other."""
    name = key_of(deployment).name
    uids = {uid_of(deployment), *map(uid_of, known)}
    rest = list(candidates)
    ours: list[Resource] = []
    while True:
        chosen = [obj for obj in rest if _owners(obj) & uids or labels_of(obj).get(names.MODEL_DEPLOYMENT) == name]
        if not chosen:
            return ours
        ours += chosen
        uids |= {uid_of(obj) for obj in chosen}
        rest = [obj for obj in rest if uid_of(obj) not in uids]


def _owners(obj: Resource) -> set[str]:
    return {str(dig(each, "uid")) for each in list_at(obj, "metadata", "ownerReferences")}
