"""Checks 07 and 08: what the cluster offers to models, and deployments that are stuck."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from airunway.api import names
from airunway.doctor.checks_providers import is_silent
from airunway.doctor.findings import Found, error, warning
from airunway.doctor.snapshot import POOL_GROUPS, Snapshot, named
from airunway.kinds import MODEL_ARTIFACT, MODEL_DEPLOYMENT
from airunway.quantity import parse_quantity
from airunway.resource import (
    Resource,
    annotations_of,
    dig,
    entries_at,
    finalizers_of,
    is_deleting,
    is_true,
    key_of,
    labels_of,
    parse_time,
    text_at,
)
from airunway.selection.facts import provider_facts
from airunway.sizing.nodes import untolerated


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
    do="Uncordon one (kubectl uncordon), or look at why the nodes are not ready: kubectl describe node.",
    needs=("nodes",),
)
def _closed(seen: Snapshot) -> Iterator[Found]:
    with_gpus = [node for node in seen.nodes or () if any(_gpus(node, vendor) for vendor in _VENDORS)]
    if with_gpus and not any(map(is_open, with_gpus)):
        listed = ", ".join(key_of(node).name for node in with_gpus[:5])
        names_of = " ".join(key_of(node).name for node in with_gpus[:5])
        yield Found(
            "Node",
            f"None of the {len(with_gpus)} nodes with GPUs does ({listed}).",
            do=f"kubectl uncordon {names_of}; why a node is not ready is in: kubectl describe node {names_of}",
        )


@error(
    "ARW0709",
    "Every GPU node has a taint that keeps deployments off",
    why="The scheduler places no pod there that does not tolerate the taint: pods of models stay Pending.",
    do="Take the taint off (kubectl taint node), or add a toleration to spec.tolerations of the deployments.",
    needs=("nodes", "deployments"),
)
def _tainted(seen: Snapshot) -> Iterator[Found]:
    open_ = [node for node in seen.nodes or () if is_open(node) and any(_gpus(node, vendor) for vendor in _VENDORS)]
    asked = [each for each in seen.deployments or () if not is_deleting(each)] or [{}]
    kept_off = [each for each in asked if all(_taints(node, each) for node in open_)]
    if not open_ or not kept_off:
        return
    keys = sorted({key for node in open_ for key in _taints(node, kept_off[0])})
    who = f"{len(kept_off)} deployments tolerate none of them, {key_of(kept_off[0])} first"
    listed = ", ".join(key_of(node).name for node in open_[:5])
    yield Found(
        "Node",
        f"The {len(open_)} GPU nodes that are ready ({listed}) have the taints {', '.join(keys[:5])}"
        f"{f'; {who}' if kept_off[0] else ''}.",
        do=f"Take the taint off (kubectl taint node {key_of(open_[0]).name} {keys[0]}-), or add a toleration to "
        "spec.tolerations of the deployments.",
    )


def _taints(node: Resource, deployment: Resource) -> list[str]:
    """The taints that keep a deployment off; those that Kubernetes sets for a while by the node's conditions do not
    count.
    """
    kept_off = untolerated(node, entries_at(deployment, "spec", "tolerations"))
    return [key for key in kept_off if not key.startswith("node.kubernetes.io/")]


def is_open(node: Resource) -> bool:
    """Whether a node is ready and not cordoned."""
    return is_true(node, "Ready") and not dig(node, "spec", "unschedulable")


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
    do="Create one, or make one the default: kubectl annotate storageclass, with "
    "storageclass.kubernetes.io/is-default-class=true.",
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


_OF_KUBERNETES = ("foregroundDeletion", "orphan")
"""Finalizers that the garbage collector takes away."""


@error(
    "ARW0803",
    "A deletion is held by another controller's finalizer",
    why="AI Runway has deleted what it made. The object stays until the program that put the finalizer there takes it "
    "off; nothing can be created under its name.",
    do="Look at the program that the finalizer names. If it is gone for good, take the finalizer off: kubectl edit.",
    needs=("deployments", "artifacts"),
)
def _held_by_others(seen: Snapshot) -> Iterator[Found]:
    for kind, objects in ((MODEL_DEPLOYMENT, seen.deployments), (MODEL_ARTIFACT, seen.artifacts)):
        for obj in objects or ():
            since = parse_time(dig(obj, "metadata", "deletionTimestamp"))
            others = names.foreign_finalizers(finalizers_of(obj))
            foreign = [each for each in others if each not in _OF_KUBERNETES]
            if (
                since is None
                or not foreign
                or seen.now - since <= _HELD_AFTER
                or len(others) != len(finalizers_of(obj))
            ):
                continue
            key = key_of(obj)
            yield Found(
                named(kind.kind, obj),
                f"Its deletion was asked for at {since:%Y-%m-%d %H:%M}Z, and {', '.join(foreign)} holds it.",
                do=f"Look at the program that {foreign[0]} is of. If it is gone for good: kubectl patch {kind.plural} "
                f'{key.name} --namespace {key.namespace} --type merge -p \'{{"metadata":{{"finalizers":null}}}}\'',
            )


_HELD_AFTER = timedelta(minutes=1)
"""How long a finalizer of another controller may be the only one left before that is reported."""

_DENIED = re.compile(r"ValidatingAdmissionPolicy '([^']+)' with binding '([^']+)' denied request: ?([^\n]*)")
"""How the API server reports that a ValidatingAdmissionPolicy refused a write."""


@error(
    "ARW0804",
    "A ValidatingAdmissionPolicy refuses what a controller writes",
    why="The objects of these deployments are not created, or not brought up to date.",
    do="Have the owner of the policy exempt what AI Runway writes, or set what it asks for in the deployment.",
    needs=("deployments",),
)
def _refused_by_policy(seen: Snapshot) -> Iterator[Found]:
    refused: defaultdict[str, list[tuple[Resource, str]]] = defaultdict(list)
    for deployment in seen.deployments or ():
        texts = [text_at(each, "message") for each in entries_at(deployment, "status", "conditions")]
        if found := next(filter(None, map(_DENIED.search, texts)), None):
            refused[found[1]].append((deployment, found[3].strip()))
    for policy, cases in sorted(refused.items()):
        first, words = cases[0]
        yield Found(
            f"ValidatingAdmissionPolicy/{policy}",
            f"It refuses objects of {len(cases)} deployments, {key_of(first)} first: {words}",
        )
