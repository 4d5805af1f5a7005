"""Reads what deployments follow: templates, runtime configs and artifacts; and who uses a template."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from airunway.configs.resolution import config_name
from airunway.kinds import (
    CLUSTER_MODEL_TEMPLATE,
    CLUSTER_RUNTIME_CONFIG,
    MODEL_ARTIFACT,
    MODEL_DEPLOYMENT,
    MODEL_TEMPLATE,
    RUNTIME_CONFIG,
)
from airunway.kube import Client, Kind
from airunway.resource import ObjectKey, Resource, dig, key_of
from airunway.snapshots.reader import Listed, Reader, joined
from airunway.templates.choice import request_of


def with_given(templates: Sequence[Resource], given: Sequence[Resource]) -> list[Resource]:
    """Returns the templates of a cluster with those of a file, which replace those of the same kind and name."""
    replaced = {(each["kind"], key_of(each)) for each in given}
    return [*(each for each in templates if (each["kind"], key_of(each)) not in replaced), *given]


async def read_for(client: Client, deployments: Iterable[Resource]) -> Listed:
    """Returns the templates that deployments name, use, or could get for their model. Raises KubeError."""
    wanted: dict[tuple[Kind, ObjectKey], None] = {}
    for deployment in deployments:
        spec, namespace = deployment.get("spec"), key_of(deployment).namespace
        request = request_of(spec) if isinstance(spec, dict) else None
        if request is None:
            continue
        # A name without text is a list: any template may have the model.
        for name in {
            request.name,
            str(dig(deployment, "status", "effectiveTemplate", "ref", "name", default="") or ""),
        }:
            if name or not request.name:
                wanted[(MODEL_TEMPLATE, ObjectKey(namespace, name))] = None
                wanted[(CLUSTER_MODEL_TEMPLATE, ObjectKey("", name))] = None
    return await _read(client, list(wanted))


async def read_templates(client: Client, *, namespace: str) -> Listed:
    """Returns all templates of a namespace (empty: of all), and those of the cluster. Raises KubeError."""
    wanted = [(MODEL_TEMPLATE, ObjectKey(namespace, "")), (CLUSTER_MODEL_TEMPLATE, ObjectKey("", ""))]
    return await _read(client, wanted, unserved="error")


async def _read(
    client: Client, wanted: Sequence[tuple[Kind, ObjectKey]], *, unserved: Literal["empty", "error"] = "empty"
) -> Listed:
    """The objects, and the lists where a key has no name."""
    reader, reads = Reader(client), []
    for kind, key in wanted:
        where = f" in namespace {key.namespace}" if key.namespace else " in all namespaces" * kind.namespaced
        what = f"{kind.plural}{where}"
        if key.name:
            reads.append(await reader.get(kind, key, what=what))
        else:
            reads.append(await reader.list(kind, namespace=key.namespace, what=what, unserved=unserved))
    return joined(reads)


async def read_followed(client: Client, own: Resource, effective: Resource) -> Listed:
    """Returns the runtime configs that a deployment follows; with a model cache also the artifacts of its namespace.

    `own` is the deployment as its user wrote it, `effective` with what its template gives. Raises KubeError.
    """
    reader, name, namespace = Reader(client), config_name(own), key_of(own).namespace
    reads = [
        await reader.get(RUNTIME_CONFIG, ObjectKey(namespace, name)),
        await reader.get(CLUSTER_RUNTIME_CONFIG, ObjectKey("", name)),
    ]
    if dig(effective, "spec", "model", "cache", "mode") not in (None, "None"):
        reads.append(await reader.list(MODEL_ARTIFACT, namespace=namespace))
    return joined(reads)


async def read_users(client: Client, template: Resource) -> Listed:
    """Returns the deployments that use a template. Raises KubeError."""
    listed = await Reader(client).list(MODEL_DEPLOYMENT, namespace=key_of(template).namespace, what="users")
    return Listed(items=tuple(each for each in listed.items if _uses(each, template)), unseen=listed.unseen)


def _uses(deployment: Resource, template: Resource) -> bool:
    ref, key = dig(deployment, "status", "effectiveTemplate", "ref"), key_of(template)
    return (
        isinstance(ref, dict)
        and (ref.get("kind"), ref.get("namespace") or "", ref.get("name")) == (template["kind"], *key)
        and isinstance(dig(deployment, "spec", "templateRef"), dict)
    )
