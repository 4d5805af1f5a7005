"""The GPUs of nodes: how many are free, and what memory and bandwidth they have by the node's labels or a table."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

import orjson

from airunway.api.gpus import gpu_family
from airunway.quantity import parse_quantity
from airunway.resource import Resource, dig, entries_at, is_true, list_at
from airunway.sizing.values import GIB, MIB, Unknown
from airunway.unseen import Unseen

_KEPT = 0.983
"""Part of a board's memory that CUDA offers: of 24,564 MiB on an RTX 4090 vLLM sees 23.6 GiB, of 16,384 MiB on a V100
15.77 GiB. Of larger boards the driver keeps less."""

_PRODUCTS = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "amd.com/gpu.family",
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
)
_MEGABYTES = re.compile(r"[0-9]{1,7}", re.ASCII)
_PARTITION = re.compile(r"nvidia\.com/mig-(\d+)g\.(\d{1,4})gb(\.me(\.all)?)?", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class GpuFacts:
    """One kind of GPU."""

    product: str
    """Name as the node's label or the table has it; empty if neither is there."""
    memory: int | Unknown
    """Bytes that programs can allocate."""
    memory_source: str = ""
    bandwidth: float | None = None
    """Bytes per second of its memory, by the vendor's data sheet; None: unknown."""


@cache
def _table() -> Mapping[str, tuple[int, str, float]]:
    """Memory, its source and bandwidth of the GPUs of the table, by every name that they have."""
    rows: list[dict[str, Any]] = orjson.loads(resources.files("airunway.sizing").joinpath("gpus.json").read_bytes())
    found: dict[str, tuple[int, str, float]] = {}
    for row in rows:
        memory = int(row["memory"] * GIB) if "memory" in row else int(row["board"] * MIB * _KEPT)
        found.update(dict.fromkeys(row["names"], (memory, str(row["memorySource"]), row["bandwidth"] * 1e9)))
    return found


def known_gpus() -> tuple[str, ...]:
    """The names of the table, those that a user may write for ``--gpu``."""
    return tuple(sorted(_table()))


def gpu_named(product: str) -> GpuFacts:
    """The facts of a product out of the table; its memory is unknown if the table does not have it."""
    name = re.sub(r"[\s_]+", "-", product.strip().lower())
    entry = _table().get(re.sub(r"(-shared|-mig-.*)$", "", name))
    if entry is None:
        why = f"{product[:60] or 'a GPU without a product'} is not in the table"
        return GpuFacts(product=product, memory=Unknown(why=why))
    memory, source, bandwidth = entry
    return GpuFacts(product=product, memory=memory, memory_source=f"table: {source}", bandwidth=bandwidth)


def gpu_of_labels(labels: Mapping[str, str], resource: str) -> GpuFacts:
    """The facts of a node's GPUs with that resource name.

    A shared GPU (time slices) has no memory of its own, so that it stays unknown.
    """
    product = next((labels[name] for name in _PRODUCTS if labels.get(name)), "")
    table = gpu_named(product)
    partition = _PARTITION.fullmatch(resource)
    if partition is not None:
        profile = resource.removeprefix("nvidia.com/")
        label = labels.get(f"nvidia.com/{profile}.memory", "")
        memory = int(label) * MIB if _MEGABYTES.fullmatch(label) else int(int(partition[2]) * 1e9)
        where = f"label nvidia.com/{profile}.memory" if label else f"the name of {resource}"
        return GpuFacts(product=f"{product} {profile}".strip(), memory=int(memory * _KEPT), memory_source=where)
    if gpu_family(resource).part == "share" or labels.get("nvidia.com/gpu.replicas", "1") not in ("", "0", "1"):
        return replace(table, memory=Unknown(why="the GPU is shared in time slices"), memory_source="")
    board = labels.get("nvidia.com/gpu.memory", "") or labels.get("karpenter.k8s.aws/instance-gpu-memory", "")
    if resource.startswith("nvidia.com/") and _MEGABYTES.fullmatch(board):
        size = int(board) * MIB
        # A table entry for the same board knows what CUDA offers of it.
        exact = isinstance(table.memory, int) and 0.97 * size <= table.memory <= size
        source = f"label nvidia.com/gpu.memory: {board} MiB" + (f"; {table.memory_source}" if exact else "")
        return replace(table, memory=table.memory if exact else int(size * _KEPT), memory_source=source)
    vram = labels.get("amd.com/gpu.vram", "")
    if resource.startswith("amd.com/") and vram:
        try:
            size = int(parse_quantity(f"{vram}i" if vram[-1:] in "GMT" else vram))
        except ValueError:
            size = 0
        if size > 0:
            source = f"label amd.com/gpu.vram: {vram[:20]}"
            return replace(table, memory=int(size * _KEPT), memory_source=source)
    if not product:
        return GpuFacts(product="", memory=Unknown(why="the node has no label with its GPU's product or memory"))
    return table


_DRIVERS = {"gpu.nvidia.com": "nvidia.com/gpu", "gpu.amd.com": "amd.com/gpu", "gpu.intel.com": "gpu.intel.com/xe"}
"""DRA drivers of whole GPUs, and the extended resource that counts the same devices."""
_FINISHED = ("Succeeded", "Failed")
_BLOCKING = ("NoSchedule", "NoExecute")
_LARGEST = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Placement:
    """What a deployment's pods select and accept."""

    node_selector: Mapping[str, str]
    tolerations: tuple[Mapping[str, object], ...] = ()


@dataclass(frozen=True, kw_only=True)
class NodeGpus:
    """The GPUs of one resource name on one node."""

    node: str
    resource: str
    allocatable: int
    used: int | Unseen
    """Requested by pods that are not finished, and held by claims."""
    gpu: GpuFacts
    obstacles: tuple[str, ...] = ()
    """Why no pod of the deployment is scheduled there: cordoned, tainted, not ready, not selected."""
    notes: tuple[str, ...] = ()

    @property
    def free(self) -> int | Unseen:
        return self.used if isinstance(self.used, Unseen) else max(0, self.allocatable - self.used)

    @property
    def open(self) -> bool:
        """Whether pods of the deployment can be scheduled there."""
        return not self.obstacles


def is_gpu(resource: str) -> bool:
    """Whether that is the name of an extended resource of GPUs."""
    return bool(gpu_family(resource).vendor)


def pod_requests(pod: Resource) -> dict[str, int]:
    """The GPUs that the scheduler counts for a pod, by resource name.

    That is the largest of: containers and sidecars together, or one init container with the sidecars before it; and
    the overhead.
    """
    running: Counter[str] = Counter()
    for container in entries_at(pod, "spec", "containers"):
        running.update(_gpus_of(container))
    peak: dict[str, int] = {}
    sidecars: Counter[str] = Counter()
    for container in entries_at(pod, "spec", "initContainers"):
        wanted = _gpus_of(container)
        if container.get("restartPolicy") == "Always":
            sidecars.update(wanted)
            wanted = {}
        for name in {*wanted, *sidecars}:
            peak[name] = max(peak.get(name, 0), wanted.get(name, 0) + sidecars[name])
    running.update(sidecars)
    found = {name: max(running[name], peak.get(name, 0)) for name in {*running, *peak}}
    for name, amount in _gpus_in(dig(pod, "spec", "overhead")).items():
        found[name] = found.get(name, 0) + amount
    return {name: amount for name, amount in found.items() if amount}


def free_gpus(
    nodes: Iterable[Resource],
    pods: Iterable[Resource] | Unseen,
    *,
    claims: Iterable[Resource] = (),
    slices: Iterable[Resource] = (),
    placement: Placement | None = None,
) -> tuple[NodeGpus, ...]:
    """The GPUs of the nodes that have some, by name.

    `claims` are ResourceClaims, `slices` ResourceSlices (dynamic resource allocation): a device of a whole GPU that a
    claim holds is not free, and is counted once if the same pod requests it as an extended resource.
    """
    used: dict[str, Counter[str]] | Unseen = pods if isinstance(pods, Unseen) else _used(pods)
    held = _held(claims, slices)
    found: list[NodeGpus] = []
    for node in sorted(nodes, key=_name):
        name = _name(node)
        obstacles = _obstacles(node, placement)
        for resource, amount in sorted(_gpus_in(dig(node, "status", "allocatable")).items()):
            by_claims = held.get((name, resource), 0)
            taken = used if isinstance(used, Unseen) else used.get(name, Counter())[resource] + by_claims
            found.append(
                NodeGpus(
                    node=name,
                    resource=resource,
                    allocatable=amount,
                    used=taken,
                    gpu=gpu_of_labels(_labels(node), resource),
                    obstacles=obstacles,
                    notes=(f"{by_claims} held by resource claims",) if by_claims else (),
                )
            )
    return tuple(row for row in found if row.allocatable)


def _name(node: Resource) -> str:
    """A node's name; of a file it may be anything."""
    name = dig(node, "metadata", "name")
    return name if isinstance(name, str) else ""


def _labels(obj: Resource) -> dict[str, str]:
    """Its labels; of a file they may be anything."""
    found = dig(obj, "metadata", "labels")
    return {key: text for key, text in found.items() if isinstance(text, str)} if isinstance(found, dict) else {}


def _used(pods: Iterable[Resource]) -> dict[str, Counter[str]]:
    """Requests of pods that are on a node and not finished, by node and resource."""
    used: dict[str, Counter[str]] = defaultdict(Counter)
    for pod in pods:
        node = dig(pod, "spec", "nodeName")
        if isinstance(node, str) and dig(pod, "status", "phase") not in _FINISHED:
            used[node].update(pod_requests(pod))
    return used


def _held(claims: Iterable[Resource], slices: Iterable[Resource]) -> Counter[tuple[str, str]]:
    """Devices of whole GPUs that claims hold, by node and extended resource."""
    node_of_pool: dict[tuple[str, str], str] = {}
    for part in slices:
        driver, node = dig(part, "spec", "driver"), dig(part, "spec", "nodeName")
        pool = dig(part, "spec", "pool", "name")
        if isinstance(driver, str) and isinstance(pool, str) and isinstance(node, str):
            node_of_pool[(driver, pool)] = node
    devices: set[tuple[str, str, str]] = set()
    for claim in claims:
        if _labels(claim).get("resource.kubernetes.io/extended-resource") or dig(
            claim, "metadata", "annotations", "resource.kubernetes.io/extended-resource-claim"
        ):
            continue  # made for a pod that requests the extended resource: counted with the pod
        for result in list_at(claim, "status", "allocation", "devices", "results"):
            driver, pool, device = (dig(result, name) for name in ("driver", "pool", "device"))
            if driver in _DRIVERS and isinstance(pool, str) and isinstance(device, str):
                devices.add((driver, pool, device))
    held: Counter[tuple[str, str]] = Counter()
    for driver, pool, _ in devices:
        held[(node_of_pool.get((driver, pool), pool), _DRIVERS[driver])] += 1
    return held


def _obstacles(node: Resource, placement: Placement | None) -> tuple[str, ...]:
    found: list[str] = []
    cordoned = bool(dig(node, "spec", "unschedulable"))
    if cordoned:
        found.append("cordoned")
    if isinstance(dig(node, "status", "conditions"), list) and not is_true(node, "Ready"):
        found.append("not ready")
    found += [f"tainted {key[:100]}" for key in untolerated(node, placement.tolerations if placement else ())]
    labels = _labels(node)
    for key, value in (placement.node_selector if placement is not None else {}).items():
        if labels.get(key) != value:
            found.append(f"not selected ({key[:100]})")
    return tuple(found)


def untolerated(node: Resource, tolerations: Iterable[Mapping[str, object]]) -> list[str]:
    """The keys of the node's taints that keep a pod with a GPU and these tolerations away."""
    found, known = [], list(tolerations)
    for taint in list_at(node, "spec", "taints"):
        key = str(dig(taint, "key", default=""))
        cordoned = key == "node.kubernetes.io/unschedulable" and bool(dig(node, "spec", "unschedulable"))
        # The taint that only keeps pods without GPUs away is tolerated by the admission plugin
        # ExtendedResourceToleration, or by the provider's pods.
        if dig(taint, "effect") not in _BLOCKING or cordoned or is_gpu(key):
            continue
        if not any(_tolerates(toleration, taint) for toleration in known):
            found.append(key)
    return found


def _tolerates(toleration: Mapping[str, object], taint: Resource) -> bool:
    """As core/v1 Toleration.ToleratesTaint."""
    effect, key = toleration.get("effect") or "", toleration.get("key") or ""
    if (effect and effect != taint.get("effect")) or (key and key != taint.get("key")):
        return False
    if (toleration.get("operator") or "Equal") == "Exists":
        return True
    return bool(key) and (toleration.get("value") or "") == (taint.get("value") or "")


def _gpus_of(container: Resource) -> dict[str, int]:
    """Requests of a container; where only limits are given (a file), the API server would copy them."""
    return _gpus_in(dig(container, "resources", "limits")) | _gpus_in(dig(container, "resources", "requests"))


def _gpus_in(amounts: object) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, amount in amounts.items() if isinstance(amounts, Mapping) else ():
        if isinstance(name, str) and is_gpu(name):
            try:
                number = int(parse_quantity(amount))
            except (ValueError, OverflowError):
                continue  # the API server accepts no such object
            if 0 < number <= _LARGEST:
                found[name] = number
    return found


def nodes_of(objects: Iterable[Resource]) -> tuple[list[Resource], list[Resource], list[Resource], list[Resource]]:
    """Nodes, pods, ResourceClaims and ResourceSlices among the objects of a file."""
    by_kind: dict[str, list[Resource]] = defaultdict(list)
    for obj in objects:
        by_kind[str(obj.get("kind"))].append(obj)
    return by_kind["Node"], by_kind["Pod"], by_kind["ResourceClaim"], by_kind["ResourceSlice"]
