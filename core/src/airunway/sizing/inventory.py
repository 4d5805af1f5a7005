"""What sizing needs of a cluster, or of a file: nodes, pods, claims, providers and entries of the catalogue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airunway.resource import Resource, labels_of
from airunway.sizing.catalogue import CATALOGUE_LABEL, entries_of_config_maps
from airunway.sizing.nodes import nodes_of
from airunway.unseen import Unseen


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """What the cluster, or a file, says about GPUs, providers and models."""

    nodes: Sequence[Resource] | Unseen
    pods: Sequence[Resource] | Unseen
    claims: Sequence[Resource]
    slices: Sequence[Resource]
    configs: Sequence[Resource] | Unseen
    """InferenceProviderConfigs."""
    models: Mapping[str, tuple[str, Mapping[str, Any]]]
    """Entries of catalogue ConfigMaps by lower-case id."""
    models_unseen: tuple[Unseen, ...] = ()
    """Why ConfigMaps could not be read."""


def inventory_among(objects: Iterable[Resource]) -> Inventory:
    """The nodes among the objects of a file, with pods, claims, ResourceSlices and catalogue ConfigMaps among them.

    Raises ModelConfigError.
    """
    objects = [*objects]
    nodes, pods, claims, slices = nodes_of(objects)
    maps = [each for each in objects if each.get("kind") == "ConfigMap"]
    return Inventory(
        nodes=nodes,
        pods=pods,
        claims=claims,
        slices=slices,
        configs=Unseen(what="providers", why="the nodes are those of a file"),
        models=entries_of_config_maps(each for each in maps if labels_of(each).get(CATALOGUE_LABEL) == "true"),
    )
