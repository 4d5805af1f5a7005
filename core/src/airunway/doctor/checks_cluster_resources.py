"""Checks 07 and 08: what the cluster offers to models, and deployments that are stuck."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from airunway.api import names
from airunway.doctor.checks_providers import is_silent
from airunway.doctor.findings import Found, error, warning
from airunway.doctor.snapshot import POOL_GROUPS, Snapshot, named
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.quantity import parse_quantity
from airunway.resource import (
    Resource,
    annotations_of,
    dig,
    finalizers_of,
    is_deleting,
    is_true,
    key_of,
    labels_of,
    parse_time,
)
from airunway.selection.facts import provider_facts


@dataclass(frozen=True, kw_only=True)
class _Vendor:
    """How nodes show the GPUs of one vendor."""

    resource: str
    """The extended resource of whole GPUs."""
    partition: str
    """Prefix of the extended resources of partitions."""
    present: tuple[str, ...]
    """Labels of nodes with a GPU; node feature discovery sets them, with or without a device plugin."""
    product: tuple[str, ...]
    """Labels that name the product."""


_CLOUD_PRODUCTS = ("cloud.google.com/gke-accelerator", "karpenter.k8s.aws/instance-gpu-name")

_VENDORS = (
    _Vendor(
        resource="nvidia.com/gpu",
        partition="nvidia.com/mig-",
        present=("nvidia.com/gpu.present", "feature.node.kubernetes.io/pci-10de.present"),
        product=("nvidia.com/gpu.product", *_CLOUD_PRODUCTS),
    ),
    _Vendor(
        resource="amd.com/gpu",
        partition="amd.com/gpu_",
        present=("feature.node.kubernetes.io/amd-gpu", "feature.node.kubernetes.io/pci-1002.present"),
        product=("amd.com/gpu.product-name", "amd.com/gpu.device-id", *_CLOUD_PRODUCTS),
    ),
)
_DEFAULT_CLASS = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")


def _gpus(node: Resource, vendor: _Vendor) -> bool:
    """Whether the node has allocatable GPUs of that vendor, whole or partitioned."""
    offered = dig(node, "status", "allocatable", default={})
    for name, amount in offered.items():
        if name == vendor.resource or name.startswith(vendor.partition):
            with suppress(ValueError):
                if parse_quantity(str(amount)) > 0:
                    return True
    return False


@warning(
    "ARW0701",
    "No node offers a GPU",
    why="No provider that is ready runs models without a GPU: pods stay Pending, unless nodes are made on demand.",
    do="Add GPU nodes and their device plugin (NVIDIA's or AMD's GPU operator), or a provider that runs on CPUs.",
    needs=("nodes", "providers"),
)
def _no_gpu(seen: Snapshot) -> Iterator[Found]:
    if not seen.nodes or any(_gpus(node, vendor) for node in seen.nodes for vendor in _VENDORS):
        return
    engines = [engine for config in seen.providers or () for engine in provider_facts(config).engines]
    if engines and not any(engine.cpu for engine in engines):
        yield Found("Node", f"None of {len(seen.nodes)} nodes has one to allocate.")


@warning(
    "ARW0702",
    "A node has GPUs and does not offer them",
    why="Labels say that there is a GPU; without a device plugin the scheduler knows of none.",
    do="Look at the device plugin's pod on that node (GPU operator: nvidia-device-plugin-daemonset) and its driver.",
    needs=("nodes",),
)
def _not_offered(seen: Snapshot) -> Iterator[Found]:
    for node in seen.nodes or ():
        for vendor in _VENDORS:
            if any(labels_of(node).get(label) == "true" for label in vendor.present) and not _gpus(node, vendor):
                yield Found(named("Node", node), f"It allocates no {vendor.resource}.")


@warning(
    "ARW0703",
    "A GPU node has no label with its GPU's product",
    why="Deployments that select nodes by product (spec.nodeSelector, or upstreams by instance type) pass it over.",
    do="Run GPU feature discovery (part of NVIDIA's GPU operator; AMD: node labeller), or label the node by hand.",
    needs=("nodes",),
)
def _unlabelled(seen: Snapshot) -> Iterator[Found]:
    for node in seen.nodes or ():
        for vendor in _VENDORS:
            if _gpus(node, vendor) and not set(vendor.product) & set(labels_of(node)):
                yield Found(named("Node", node), f"It has none of {', '.join(vendor.product)}.")


@error(
    "ARW0704",
    "No GPU node takes pods",
    why="Every node with a GPU is cordoned or not ready: pods of models stay Pending.",
    do="kubectl uncordon NODE, or look at why the nodes are not ready: kubectl describe node NODE.",
    needs=("nodes",),
)
def _closed(seen: Snapshot) -> Iterator[Found]:
    with_gpus = [node for node in seen.nodes or () if any(_gpus(node, vendor) for vendor in _VENDORS)]
    open_ = [node for node in with_gpus if is_true(node, "Ready") and not dig(node, "spec", "unschedulable")]
    if with_gpus and not open_:
        listed = ", ".join(key_of(node).name for node in with_gpus[:5])
        yield Found("Node", f"None of the {len(with_gpus)} nodes with GPUs does ({listed}).")


def default_classes(seen: Snapshot) -> list[str]:
    """The names of the default StorageClasses."""
    return [
        key_of(found).name
        for found in seen.storage_classes or ()
        if any(annotations_of(found).get(name) == "true" for name in _DEFAULT_CLASS)
    ]


@warning(
    "ARW0705",
    "There is no default StorageClass",
    why="A claim that names no class stays Pending, and with it the pods of upstreams that keep weights on volumes.",
    do="Annotate one: kubectl annotate storageclass NAME storageclass.kubernetes.io/is-default-class=true",
    needs=("storage_classes",),
)
def _no_default(seen: Snapshot) -> Iterator[Found]:
    if not default_classes(seen):
        yield Found("StorageClass", f"None of {len(seen.storage_classes or ())} is the default.")


@warning(
    "ARW0706",
    "There are several default StorageClasses",
    why="Which one a claim gets depends on which is newest.",
    do="Leave the annotation storageclass.kubernetes.io/is-default-class=true on one of them.",
    needs=("storage_classes",),
)
def _defaults_many(seen: Snapshot) -> Iterator[Found]:
    if len(found := default_classes(seen)) > 1:
        yield Found("StorageClass", f"{', '.join(sorted(found))} are.")


@warning(
    "ARW0707",
    "The Gateway API has no controller",
    why="Its CRDs are there and no GatewayClass is accepted: no controller acts on Gateways and routes.",
    do="Install a gateway controller, or look at why it does not accept its class: kubectl describe gatewayclass.",
    needs=("served", "gateway_classes"),
)
def _no_gateway(seen: Snapshot) -> Iterator[Found]:
    installed = any((seen.served or {}).get(names.GATEWAY_GROUP, {}).values())
    if installed and not any(is_true(found, "Accepted") for found in seen.gateway_classes or ()):
        yield Found("GatewayClass", f"None of {len(seen.gateway_classes or ())} is accepted.")


@warning(
    "ARW0709",
    "HTTPRoutes are not served",
    why=f"Gateways are served and {names.GATEWAY_GROUP}/v1 HTTPRoutes are not: no route can be made, and deployments "
    "that ask for one are Degraded (GatewayAPINotInstalled).",
    do="Install the CRDs of the Gateway API of one release, 1.0 or newer, completely.",
    needs=("served",),
)
def _no_routes(seen: Snapshot) -> Iterator[Found]:
    kinds = (seen.served or {}).get(names.GATEWAY_GROUP, {}).get("v1", {})
    if "Gateway" in kinds and "HTTPRoute" not in kinds:
        yield Found("HTTPRoute", "v1 is not served.")


@warning(
    "ARW0708",
    "InferencePools are served in an old version only",
    why="Endpoint pickers need v1; with an older one alone the cluster counts as one without InferencePools.",
    do=f"Install the CRDs of the Gateway API Inference Extension 1.0 or newer ({POOL_GROUPS[0]}/v1).",
    needs=("served",),
)
def _old_pools(seen: Snapshot) -> Iterator[Found]:
    found = [
        f"{group}/{version}"
        for group in POOL_GROUPS
        for version, kinds in (seen.served or {}).get(group, {}).items()
        if "InferencePool" in kinds
    ]
    if found and f"{POOL_GROUPS[0]}/v1" not in found:
        yield Found("InferencePool", f"They are served as {', '.join(found)}.")


# ------------------------------------------------------------------------------------------------------- deployments


@warning(
    "ARW0801",
    "A deployment asks for a provider that is not registered",
    why="It stays Pending until a provider of that name comes.",
    do="Correct spec.provider.name, or install that provider.",
    needs=("deployments", "providers"),
)
def _unknown_provider(seen: Snapshot) -> Iterator[Found]:
    for deployment in seen.deployments or ():
        name = dig(deployment, "spec", "provider", "name", default="")
        if name and name not in seen.registered and not is_deleting(deployment):
            known = ", ".join(seen.registered) or "none"
            yield Found(named(MODEL_DEPLOYMENT.kind, deployment), f"It names {name}; registered are: {known}.")


@error(
    "ARW0802",
    "A deletion is stuck",
    why="Its provider, which should clean up, does not run, so its finalizer stays. Where the core runs, it removes "
    f"the finalizer after {int(names.FINALIZER_TIMEOUT.total_seconds()) // 60} minutes.",
    do="Start the provider, or delete what it made by hand and take the finalizer off.",
    needs=("deployments", "providers"),
)
def _held(seen: Snapshot) -> Iterator[Found]:
    alive = {facts.name for config in seen.providers or () if not is_silent(facts := provider_facts(config), seen)}
    for deployment in seen.deployments or ():
        since = parse_time(dig(deployment, "metadata", "deletionTimestamp"))
        if since is None or seen.now - since <= names.FINALIZER_TIMEOUT:
            continue
        for finalizer in finalizers_of(deployment):
            provider = names.provider_of_finalizer(finalizer)
            if provider and provider not in alive:
                yield Found(
                    named(MODEL_DEPLOYMENT.kind, deployment),
                    f"It waits for {provider} since {since:%Y-%m-%d %H:%M}Z.",
                )
