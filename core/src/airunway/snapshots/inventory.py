"""Reads what sizing needs of a cluster."""

from __future__ import annotations

from airunway.kinds import INFERENCE_PROVIDER_CONFIG
from airunway.kube import CONFIG_MAP, NODE, POD, Client, Kind
from airunway.resource import dig
from airunway.sizing.catalogue import CATALOGUE_LABEL, entries_of_config_maps
from airunway.sizing.inventory import Inventory
from airunway.snapshots.reader import Listed, Reader

_CLAIM = Kind("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims")
_SLICE = Kind("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", namespaced=False)
_UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"


async def read_inventory(client: Client, *, namespace: str) -> Inventory:
    """The cluster, with the catalogue's ConfigMaps of a namespace (empty: the context's).

    What may not be read, and kinds that are not served, are `Unseen`. Raises KubeError.
    """
    reader = Reader(client)
    nodes = await reader.list(NODE)
    pods = await reader.list(POD, field_selector=_UNFINISHED)
    claims = slices = Listed()
    # Claims matter if a pod has some; without them its GPUs would count as free.
    if any(dig(pod, "spec", "resourceClaims") for pod in pods.items):
        claims = await reader.list(_CLAIM, unserved="unseen")
        slices = await reader.list(_SLICE, unserved="unseen")
    unseen = next(iter((*claims.unseen, *slices.unseen)), None)
    where, label = namespace or client.config.namespace, f"{CATALOGUE_LABEL}=true"
    maps = await reader.list(CONFIG_MAP, namespace=where, label_selector=label)
    configs = await reader.list(INFERENCE_PROVIDER_CONFIG, unserved="unseen")
    return Inventory(
        nodes=nodes.found,
        pods=unseen or pods.found,
        claims=claims.items,
        slices=slices.items,
        configs=configs.found,
        models=entries_of_config_maps(maps.items),
        models_unseen=maps.unseen,
    )
