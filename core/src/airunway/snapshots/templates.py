"""Reads templates: those that deployments ask for, those of a namespace; and who uses one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from airunway.kinds import CLUSTER_MODEL_TEMPLATE, MODEL_DEPLOYMENT, MODEL_TEMPLATE
from airunway.kube import Client, Kind
from airunway.resource import ObjectKey, Resource, dig, key_of
from airunway.snapshots.reader import Listed, Reader
from airunway.templates.choice import request_of
from airunway.unseen import Unseen


@dataclass(frozen=True, kw_only=True)
class TemplateSet:
    """Templates that were read."""

    templates: tuple[Resource, ...] = ()
    """With their kinds."""
    unseen: tuple[Unseen, ...] = ()
    """What was not read, and which right would show it."""


def with_given(templates: Sequence[Resource], given: Sequence[Resource]) -> list[Resource]:
    """Returns the templates of a cluster with those of a file, which replace those of the same kind and name."""
    replaced = {(each["kind"], key_of(each)) for each in given}
    return [*(each for each in templates if (each["kind"], key_of(each)) not in replaced), *given]


async def read_for(client: Client, deployments: Iterable[Resource]) -> TemplateSet:
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


async def read_all(client: Client, *, namespace: str) -> TemplateSet:
    """Returns all templates of a namespace (empty: of all), and those of the cluster. Raises KubeError."""
    wanted = [(MODEL_TEMPLATE, ObjectKey(namespace, "")), (CLUSTER_MODEL_TEMPLATE, ObjectKey("", ""))]
    return await _read(client, wanted, unserved="error")


async def _read(
    client: Client, wanted: Sequence[tuple[Kind, ObjectKey]], *, unserved: Literal["empty", "error"] = "empty"
) -> TemplateSet:
    """The objects, and the lists where a key has no name."""
    reader = Reader(client)
    found: dict[tuple[str, ObjectKey], Resource] = {}
    unseen: dict[Unseen, None] = {}
    for kind, key in wanted:
        where = f" in namespace {key.namespace}" if key.namespace else " in all namespaces" * kind.namespaced
        what = f"{kind.plural}{where}"
        if key.name:
            read = await reader.get(kind, key, what=what)
        else:
            read = await reader.list(kind, namespace=key.namespace, what=what, unserved=unserved)
        found |= {(kind.kind, key_of(each)): {**each, "kind": kind.kind} for each in read.items}
        unseen |= {read.unseen: None} if read.unseen is not None else {}
    return TemplateSet(templates=tuple(found.values()), unseen=tuple(unseen))


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
