"""What the API server can do at best: the writes of converging, sent by a plain client with nothing behind it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from benchmarks.common import concurrently
from benchmarks.shapes import Shape

from airunway.api import names
from airunway.controller.decision import CORE_CONDITIONS
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import NAMESPACE, SERVICE, Client, Kind, add_finalizer
from airunway.resource import ObjectKey, Resource, labels_of

__all__ = ["SPECIMEN", "Specimen", "bound", "specimen_of"]

SPECIMEN = "load-0"


@dataclass(frozen=True, kw_only=True)
class Specimen:
    """What was written for the deployment `name`: both parts of its status, the provider's first one, the objects."""

    name: str
    core: Resource
    first: Resource
    last: Resource
    objects: tuple[tuple[Kind, Resource], ...]


async def bound(client: Client, count: int, specimen: Specimen, *, shape: Shape) -> float:
    """Seconds for what N deployments need, done by a plain client: no caches, no decisions, no waiting.

    Per deployment: create it, its status by the core, the provider's finalizer, the upstream objects, the provider's
    first status, that of the upstream, the provider's last one.
    """
    namespace = f"bound-{shape.provider}"
    await client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    manager = names.provider_manager(shape.provider)

    async def one(name: str) -> None:
        created = await client.create(MODEL_DEPLOYMENT, shape.deployment(name, namespace))
        identity: Resource = {
            "apiVersion": names.API_VERSION,
            "kind": "ModelDeployment",
            "metadata": {"name": name, "namespace": namespace, "uid": created["metadata"]["uid"]},
        }

        async def tell(status: Resource, by: str) -> None:
            body = {**identity, "status": status}
            await client.apply(MODEL_DEPLOYMENT, body, manager=by, subresource="status", force=True)

        await tell(specimen.core, names.CORE_MANAGER)
        await add_finalizer(client, MODEL_DEPLOYMENT, created, f"{names.GROUP}/bound", manager=manager)
        for kind, obj in specimen.objects:
            made = name + obj["metadata"]["name"].removeprefix(specimen.name)
            metadata = {**obj["metadata"], "name": made, "namespace": namespace}
            await client.apply(kind, {**obj, "metadata": metadata}, manager=manager, force=True)
        await tell(specimen.first, manager)
        for kind, obj in specimen.objects:
            if kind == shape.primary:
                key = ObjectKey(namespace, name + obj["metadata"]["name"].removeprefix(specimen.name))
                body = {"status": shape.status(True)}
                await client.merge_patch(kind, key, body, subresource="status", manager="simulated")
        await tell(specimen.last, manager)

    started = time.perf_counter()
    await concurrently([f"bound-{number}" for number in range(count)], one)
    return time.perf_counter() - started


async def specimen_of(client: Client, shape: Shape, *, first: Resource | None = None, name: str = SPECIMEN) -> Specimen:
    """What became of the deployment `name`, whose first status by its provider was `first` (default: as the last)."""
    finished = await client.get(MODEL_DEPLOYMENT, ObjectKey("load", name))
    live = []
    for kind in (*shape.dependents, shape.primary):
        found = await client.list_all(kind, namespace="load", label_selector=f"{names.MODEL_DEPLOYMENT}={name}")
        # An upstream's own have our labels, too.
        live += [(kind, obj) for obj in found if names.PROVIDER in labels_of(obj)]
    return Specimen(
        name=name,
        core=_part(finished["status"], core=True),
        first=_part(first or finished["status"], core=False),
        last=_part(finished["status"], core=False),
        objects=tuple((kind, _wanted(obj)) for kind, obj in live),
    )


def _part(status: Resource, *, core: bool) -> Resource:
    """The core's part of a status, or the provider's."""
    part = {key: value for key, value in status.items() if (key in ("engine", "selection")) is core}
    conditions = [c for c in status["conditions"] if (c["type"] in CORE_CONDITIONS) is core]
    provider = {k: v for k, v in status.get("provider", {}).items() if (k in ("name", "selectedReason")) is core}
    keep = ("engine", "selection") if core else tuple(part)
    return {**{key: part[key] for key in keep if key in part}, "provider": provider, "conditions": conditions}


def _wanted(live: Resource) -> Resource:
    """An object as it was applied, without its owner: that one's name is another."""
    content = {key: value for key, value in live.items() if key not in ("status", "metadata")}
    if live.get("kind") == SERVICE.kind:  # its addresses are its own
        content["spec"] = {key: value for key, value in live["spec"].items() if key not in ("clusterIP", "clusterIPs")}
    metadata = {key: live["metadata"][key] for key in ("name", "labels", "annotations") if key in live["metadata"]}
    return {**content, "metadata": metadata}
