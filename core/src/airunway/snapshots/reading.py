"""Reads one deployment with everything below it, in at most `MOST_REQUESTS` requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from airunway.api import names
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import ApiError, Client, Forbidden, KubeError, NotFound, served_kinds_by_name
from airunway.kube.errors import AnswerTooLarge
from airunway.resource import ObjectKey, Resource, dig, key_of, labels_of, uid_of
from airunway.snapshots.sources import Content, Served, Source, event_sources, pod_sources, sources_of
from airunway.view import DeploymentSnapshot, Unseen

__all__ = ["MOST_REQUESTS", "Surroundings", "assembled", "read_snapshot", "surroundings_of", "unseen_for"]

MOST_REQUESTS = 12
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


@dataclass(kw_only=True)
class _Read:
    """The result of one source."""

    source: Source
    items: list[Resource] = field(default_factory=list)
    unseen: Unseen | None = None
    """Why it was not read, or not all of it."""
    complete: bool = True


async def read_snapshot(client: Client, key: ObjectKey) -> DeploymentSnapshot:
    """Returns the deployment and what is below it. Raises NotFound, Forbidden and other KubeErrors of the deployment
    itself; what else could not be read is `Unseen`.
    """
    deployment = await client.get(MODEL_DEPLOYMENT, key)
    first = [*pod_sources(deployment), *event_sources(deployment)]
    around, reads = await asyncio.gather(
        surroundings_of(client, deployment), asyncio.gather(*(_read(client, source) for source in first))
    )
    room = MOST_REQUESTS - 1 - around.requests - len(first)
    wanted = sources_of(deployment, around.config, around.served)
    reads += await asyncio.gather(*(_read(client, source) for source in wanted[:room]))
    left = [
        Unseen(what=source.what, why=f"not read: a snapshot takes at most {MOST_REQUESTS} requests")
        for source in wanted[room:]
    ]
    found = [(read.source, read.items) for read in reads if read.complete or read.items]
    unseen = [(read.source, read.unseen) for read in reads if read.unseen is not None]
    return assembled(deployment, found, unseen, [*around.unseen, *left])


async def surroundings_of(client: Client, deployment: Resource) -> Surroundings:
    """What tells which objects to read for a deployment, in at most two requests."""
    provider = dig(deployment, "status", "provider", "name")
    if not isinstance(provider, str) or not provider:
        return Surroundings(config=None, served={}, unseen=(), requests=0)
    source = Source(content="objects", kind=INFERENCE_PROVIDER_CONFIG, key=ObjectKey("", provider))
    read, served = await asyncio.gather(_read(client, source), _served(client))
    unseen = [each for each in (read.unseen, served if isinstance(served, Unseen) else None) if each is not None]
    return Surroundings(
        config=read.items[0] if read.items else None,
        served={} if isinstance(served, Unseen) else served,
        unseen=tuple(unseen),
        requests=2,
    )


async def _served(client: Client) -> Served | Unseen:
    try:
        return await served_kinds_by_name(client)
    except KubeError as error:
        return Unseen(what="kinds of the cluster", why=str(error), right="get /apis" if _denied(error) else "")


async def _read(client: Client, source: Source) -> _Read:
    try:
        if source.key.name:
            return _Read(source=source, items=[_named(source, await client.get(source.kind, source.key))])
        page = await client.first_page(
            source.kind,
            namespace=source.key.namespace,
            label_selector=source.label_selector,
            field_selector=source.field_selector,
            limit=source.limit,
            most=_MOST_BYTES[source.content],
        )
    except NotFound:
        return _Read(source=source)  # the object does not exist, or the kind does not
    except AnswerTooLarge:
        size = _MOST_BYTES[source.content] // 2**20
        return _Read(source=source, unseen=Unseen(what=source.what, why=f"more than {size} MiB"), complete=False)
    except (KubeError, ValueError) as error:
        return _Read(source=source, unseen=unseen_for(source, error), complete=False)
    cut = None
    if page.continue_token:
        cut = Unseen(what=source.what, why=f"only the first {len(page.items)} of the list were read")
    return _Read(source=source, items=page.items, unseen=cut)


def _named(source: Source, obj: Resource) -> Resource:
    return {**obj, "kind": obj.get("kind") or source.kind.kind}


def unseen_for(source: Source, error: Exception) -> Unseen:
    """Why a source was not read, with the right that is missing."""
    denied = _denied(error)
    return Unseen(
        what=source.what, why="you have no right to it" if denied else str(error), right=source.right if denied else ""
    )


def _denied(error: Exception) -> bool:
    return isinstance(error, Forbidden) or (isinstance(error, ApiError) and error.status == 403)


def assembled(
    deployment: Resource,
    found: Iterable[tuple[Source, Sequence[Resource]]],
    unseen: Sequence[tuple[Source, Unseen]],
    other: Iterable[Unseen],
) -> DeploymentSnapshot:
    """The snapshot of what was read and what was not. Pods (or events) are `Unseen` if none of their lists was read."""
    by_content: dict[Content, dict[str, Resource]] = {}
    owned: list[Resource] = []
    for source, items in found:
        known = by_content.setdefault(source.content, {})
        for item in items:
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
        missing = [each for source, each in unseen if source.content == content]
        if missing and content not in by_content:
            parts[content] = missing[0]
        else:
            parts[content] = tuple(by_content.get(content, {}).values())
            remarks += missing
    remarks += [each for source, each in unseen if source.content == "objects"]
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
    references = dig(obj, "metadata", "ownerReferences")
    return {str(dig(each, "uid")) for each in references} if isinstance(references, list) else set()
