"""Which objects and lists are read for one deployment, the most telling first. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from airunway.api import names
from airunway.kinds import MODEL_ARTIFACT
from airunway.kube import DEPLOYMENT, JOB, PERSISTENT_VOLUME_CLAIM, POD, REPLICA_SET, SERVICE, STATEFUL_SET, Kind
from airunway.resource import ObjectKey, Resource, dig, key_of

__all__ = ["EVENT", "Content", "Served", "Source", "all_pod_sources", "event_sources", "pod_sources", "sources_of"]

Content: TypeAlias = Literal["pods", "events", "objects"]
"""What a source is a part of."""

Served: TypeAlias = Mapping[tuple[str, str], Sequence[Kind]]
"""The kinds that the API server has, by group and kind, preferred versions first."""

EVENT = Kind("", "v1", "Event", "events")
"""Events of the core group: the ClusterRole ``view`` has no right to those of events.k8s.io on older clusters."""

_BUILT_IN = {kind.kind: kind for kind in (DEPLOYMENT, STATEFUL_SET, REPLICA_SET, JOB, SERVICE)}
"""Kinds of which every object of a deployment has our label, because its provider wrote it."""

_STATELESS = frozenset(
    {"ConfigMap", "Secret", "ServiceAccount", "Role", "RoleBinding", "NetworkPolicy", "DestinationRule"}
)
"""Kinds whose objects have no state that could be shown."""

_GATEWAY_GROUP = "gateway.networking.k8s.io"


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
    def right(self) -> str:
        """The right that reading it needs, as a sentence part."""
        verb = "get" if self.key.name else "list"
        where = f" in namespace {self.key.namespace}" if self.kind.namespaced else ""
        return f"{verb} {self.kind}{where}"

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
    cache = list(_of_cache(deployment, key.namespace))
    ready = dig(deployment, "status", "modelCache", "ready") is True
    found = [*provider, *cache] if ready else [*cache, *provider]
    routes = served.get((_GATEWAY_GROUP, "HTTPRoute"), ())
    if routes and dig(deployment, "status", "gateway"):
        found.insert(len(provider), _labelled(routes[0], key))
    return found


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
    found: list[Source] = []
    if isinstance(kind, str) and isinstance(name, str) and name:
        known = _kind(group, kind, [version], served)
        if known is not None and known.namespaced:
            found.append(Source(content="objects", kind=known, key=ObjectKey(key.namespace, name)))
    upstream = dig(config, "spec", "upstream")
    for entry in upstream if isinstance(upstream, list) else ():
        named = (str(dig(entry, "group", default="")), str(dig(entry, "kind")))
        if named[1] in _STATELESS or (found and named == (group, kind) and named[1] not in _BUILT_IN):
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
    labelled = kind.kind in _BUILT_IN
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
