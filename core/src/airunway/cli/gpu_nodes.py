"""Reads nodes, pods, claims and providers for sizing, from a cluster or a file; what may not be read is a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airunway.resource import Resource, dig

if TYPE_CHECKING:
    from airunway.kube import Client, Kind
    from airunway.sizing import NodeGpus, Placement, Unseen

__all__ = ["Surroundings", "free_in", "read_surroundings", "surroundings_in"]


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What the cluster, or a file, says about GPUs, providers and models."""

    nodes: list[Resource] | Unseen
    pods: list[Resource] | Unseen
    claims: list[Resource]
    slices: list[Resource]
    configs: list[Resource] | Unseen
    """InferenceProviderConfigs."""
    models: Mapping[str, tuple[str, Mapping[str, Any]]]
    """Entries of catalogue ConfigMaps by lower-case id."""
    models_unseen: Unseen | None = None
    """Why ConfigMaps could not be read."""


def surroundings_in(path: Path) -> Surroundings:
    """The nodes of a file, with pods, claims, ResourceSlices and catalogue ConfigMaps that are in it.

    Raises ManifestError (also if there is no Node), ModelConfigError and OSError.
    """
    from airunway.cli.manifests import ManifestError, objects_in
    from airunway.sizing import Unseen, entries_of_config_maps, nodes_of

    objects = objects_in(path)
    nodes, pods, claims, slices = nodes_of(objects)
    if not nodes:
        raise ManifestError(f"{path}: contains no Node")
    return Surroundings(
        nodes=nodes,
        pods=pods,
        claims=claims,
        slices=slices,
        configs=Unseen(why="the nodes are those of a file", right=""),
        models=entries_of_config_maps(filter(_is_catalogue, objects)),
    )


def read_surroundings(*, kubeconfig: Path | None, context: str | None, namespace: str) -> Surroundings:
    """Reads the cluster; a forbidden list becomes Unseen with the missing right. Exits with 1 on other errors."""
    from airunway.cli import inputs
    from airunway.kinds import INFERENCE_PROVIDER_CONFIG
    from airunway.kube import CONFIG_MAP, NODE, POD, Kind
    from airunway.sizing import CATALOGUE_LABEL, Unseen, entries_of_config_maps

    claim = Kind("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims")
    part = Kind("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", namespaced=False)

    async def read(client: Client) -> Surroundings:
        nodes = await _listed(client, NODE)
        unfinished = "status.phase!=Succeeded,status.phase!=Failed"
        pods = await _listed(client, POD, field_selector=unfinished, scope=" in all namespaces")
        claims: list[Resource] = []
        slices: list[Resource] = []
        # Claims matter if a pod has some; without them its GPUs would count as free.
        if not isinstance(pods, Unseen) and any(dig(pod, "spec", "resourceClaims") for pod in pods):
            held, parts = await _listed(client, claim), await _listed(client, part)
            if isinstance(held, Unseen) or isinstance(parts, Unseen):
                pods = held if isinstance(held, Unseen) else parts
            else:
                claims, slices = held, parts
        maps = await _listed(
            client,
            CONFIG_MAP,
            namespace=namespace or client.config.namespace,
            label_selector=f"{CATALOGUE_LABEL}=true",
        )
        return Surroundings(
            nodes=nodes,
            pods=pods,
            claims=claims,
            slices=slices,
            configs=await _listed(client, INFERENCE_PROVIDER_CONFIG),
            models={} if isinstance(maps, Unseen) else entries_of_config_maps(maps),
            models_unseen=maps if isinstance(maps, Unseen) else None,
        )

    return inputs.on_cluster(read, kubeconfig=kubeconfig, context=context)


async def _listed(client: Client, kind: Kind, *, scope: str = "", **selectors: str) -> list[Resource] | Unseen:
    from airunway.kube import ApiError, ErrorKind, Forbidden
    from airunway.sizing import Unseen

    group = f".{kind.group}" if kind.group else ""
    try:
        return await client.list_all(kind, **selectors)
    except Forbidden:
        right = f"list {kind.plural}{group}{scope}"
        return Unseen(why=f"you may not {right}", right=right)
    except ApiError as error:
        if error.kind is not ErrorKind.KIND_NOT_SERVED:
            raise
        return Unseen(why=f"the cluster does not serve {kind.plural}{group}", right="")


def free_in(found: Surroundings, placement: Placement | None) -> tuple[NodeGpus, ...] | Unseen:
    """The GPUs of the nodes; Unseen if nodes could not be read."""
    from airunway.sizing import Unseen, free_gpus

    if isinstance(found.nodes, Unseen):
        return found.nodes
    return free_gpus(found.nodes, found.pods, claims=found.claims, slices=found.slices, placement=placement)


def _is_catalogue(obj: Resource) -> bool:
    from airunway.resource import labels_of
    from airunway.sizing import CATALOGUE_LABEL

    return obj.get("kind") == "ConfigMap" and labels_of(obj).get(CATALOGUE_LABEL) == "true"
