"""What a node has, as far as templates demand it: GPUs by their labels, extended resources, CPU. Pure.

Example: a node with the label ``amd.com/gpu.device-id: 74a1`` and eight ``amd.com/gpu`` has eight MI300X. Nodes that
are equal in this are one group.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from airunway.quantity import parse_quantity
from airunway.resource import Resource, condition_of, dig
from airunway_catalogue.gpu_models import GpuModel, GpuModels

_LABELS = ("nvidia.com/", "amd.com/", "beta.amd.com/")
_CLOUD_LABELS = ("cloud.google.com/gke-accelerator", "karpenter.k8s.aws/instance-gpu-name")
_SHARERS = "cloud.google.com/gke-max-shared-clients-per-gpu"
"""GKE's label for what ``nvidia.com/gpu.replicas`` says elsewhere."""
_AMD_PREFIXES = ("amd.com/gpu.", "beta.amd.com/gpu.")
_MIB, GIB = 2**20, 2**30
_NUMBER = re.compile(r"[0-9]{1,7}", re.ASCII)
_SLICE = re.compile(r"-MIG-.*", re.ASCII)
"""What a product's label has after the GPU's own name, where the node's GPUs are divided."""
_PARTITION = re.compile(r"nvidia\.com/mig-\d+g\.(\d{1,4})gb.*", re.ASCII)


@dataclass(frozen=True, kw_only=True, order=True)
class Mark:
    """One thing that a node's labels say of a GPU, as a requirement on nodes."""

    rank: int
    """Place in the order of preference."""
    key: str
    value: str = ""
    """Empty: the label's existence says it."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """The GPUs of one model on a node."""

    name: str
    """Of the model, or what the labels have; empty if they have nothing."""
    model: GpuModel | None = None
    """None: no table has it."""
    memory: int = 0
    """Of one, in bytes; 0 if it is not known."""
    count: int | None = None
    """By labels that count; None: all of the resource."""
    sharers: int = 1
    """Pods that share one, in time slices: the resource counts each GPU so many times, and none of them has memory of
    its own."""
    marks: tuple[Mark, ...] = ()
    """By which labels nodes with it are selected."""

    def number(self, allocatable: int) -> int:
        """How many there are where so many of the resource are allocatable."""
        whole = allocatable // self.sharers
        return whole if self.count is None else min(whole, self.count)


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """Nodes that are equal in all that counts."""

    labels: tuple[tuple[str, str], ...]
    """Labels about GPUs."""
    allocatable: tuple[tuple[str, int], ...]
    """Extended resources."""
    nodes: int
    """How many."""
    cpu: int = 0
    """Allocatable CPU of one, in thousandths of a core."""
    held: int = 0
    """How many of them are cordoned or not Ready."""


def project_node(obj: Resource) -> Resource:
    """What is kept of a node: its labels about GPUs, its extended resources and CPU, and whether it may get pods. A
    heartbeat changes none of it.
    """
    metadata, allocatable = obj.get("metadata"), dig(obj, "status", "allocatable")
    kept = {
        key: metadata[key]
        for key in ("name", "uid", "resourceVersion")
        if isinstance(metadata, dict) and key in metadata
    }
    labels = dig(metadata, "labels")
    if isinstance(labels, dict):
        kept["labels"] = {key: value for key, value in labels.items() if _is_about_gpus(key)}
    resources = allocatable if isinstance(allocatable, dict) else {}
    counted = {key: value for key, value in resources.items() if "/" in key or key == "cpu"}
    projected: Resource = {"metadata": kept, "status": {"allocatable": counted}}
    if dig(obj, "spec", "unschedulable") is True:
        projected["spec"] = {"unschedulable": True}
    # A node without the condition has not reported yet: there is nothing to say of it.
    if (ready := condition_of(obj, "Ready")) is not None and ready.get("status") != "True":
        projected["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    return projected


def is_held(node: Resource | None) -> bool:
    """Whether a projected node is cordoned or not Ready. Total for any JSON."""
    if dig(node, "spec", "unschedulable") is True:
        return True
    ready = condition_of(node, "Ready") if isinstance(node, dict) else None
    return ready is not None and ready.get("status") != "True"


def _is_about_gpus(label: str) -> bool:
    return label in (*_CLOUD_LABELS, _SHARERS) or (
        label.startswith(_LABELS) and ".driver" not in label and "timestamp" not in label
    )


def inventory_of(nodes: Iterable[Resource]) -> tuple[NodeGroup, ...]:
    """The groups of equal projected nodes that have CPU or an extended resource, sorted. Total for any JSON."""
    found: Counter[tuple[tuple[tuple[str, str], ...], tuple[tuple[str, int], ...], int]] = Counter()
    held: Counter[tuple[tuple[tuple[str, str], ...], tuple[tuple[str, int], ...], int]] = Counter()
    for node in nodes:
        allocatable = dig(node, "status", "allocatable")
        counts = tuple(
            sorted(
                (key, count)
                for key, value in (allocatable.items() if isinstance(allocatable, dict) else ())
                if isinstance(key, str) and "/" in key and (count := _count(value))
            )
        )
        labels = dig(node, "metadata", "labels")
        texts = tuple(
            sorted(
                (key, value)
                for key, value in (labels.items() if isinstance(labels, dict) else ())
                if isinstance(key, str) and isinstance(value, str) and _is_about_gpus(key)
            )
        )
        cpu = thousandths(dig(allocatable, "cpu"))
        if counts or cpu:
            group = texts, counts, cpu
            found[group] += 1
            held[group] += is_held(node)
    return tuple(
        NodeGroup(labels=group[0], allocatable=group[1], cpu=group[2], nodes=number, held=held[group])
        for group, number in sorted(found.items())
    )


def gpus_of(labels: Mapping[str, str], resource: str, models: GpuModels) -> list[Gpu]:
    """The GPUs of a node with that resource name, by its labels: usually one entry."""
    if resource.startswith("amd.com/"):
        return list(_amd(labels, models))
    if resource.startswith("nvidia.com/"):
        return [_nvidia(labels, resource, models)]
    return [Gpu(name="")]


def _nvidia(labels: Mapping[str, str], resource: str, models: GpuModels) -> Gpu:
    marks = [
        Mark(rank=rank, key=key, value=labels[key])
        for rank, key in enumerate(("nvidia.com/gpu.product", *_CLOUD_LABELS))
        if labels.get(key)
    ]
    product = marks[0].value if marks else ""
    # With the MIG strategy "single" a slice has the resource name of a whole GPU, and only this label tells them apart.
    whole = resource.startswith("nvidia.com/mig-") or not _SLICE.search(product)
    named = [_SLICE.sub("", mark.value) for mark in marks] if whole else []
    model = next((found for each in named if (found := models.of_product(each)) is not None), None)
    size = labels.get("nvidia.com/gpu.memory", "")
    memory = int(size) * _MIB if _NUMBER.fullmatch(size) else model.memory * GIB if model is not None else 0
    if partition := _PARTITION.fullmatch(resource):
        memory = int(partition[1]) * 10**9
    sharers = _sharers(labels, resource)
    if family := labels.get("nvidia.com/gpu.family", ""):
        marks.append(Mark(rank=8, key="nvidia.com/gpu.family", value=family))
    if size:
        marks.append(Mark(rank=9, key="nvidia.com/gpu.memory", value=size))
    return Gpu(
        name=model.name if model is not None else product or labels.get("nvidia.com/gpu.family", ""),
        model=model,
        memory=memory if sharers == 1 else 0,
        sharers=sharers,
        marks=tuple(marks),
    )


def _sharers(labels: Mapping[str, str], resource: str) -> int:
    whole = not resource.startswith("nvidia.com/mig-")
    keys = ("nvidia.com/gpu.replicas", _SHARERS) if whole else (f"{resource}.replicas",)
    numbers = (int(labels[key]) for key in keys if _NUMBER.fullmatch(labels.get(key, "")))
    return max((1, *numbers))


def _amd(labels: Mapping[str, str], models: GpuModels) -> Iterator[Gpu]:
    """By device id, then product name, family and memory: a value, or part of a key whose value is a count."""
    sizes = _amd_values(labels, "vram")
    vram = next((size for each in sizes if (size := _vram(each[1]))), 0)
    devices, products = _amd_values(labels, "device-id"), _amd_values(labels, "product-name")
    families = _amd_values(labels, "family")
    counted = [each for each in devices if each[2] is not None]
    if len({value for _, value, _ in counted}) > 1:  # several models on one node: each by the labels that count it
        for mark, device, count in counted:
            model = models.of_device(device)
            memory = model.memory * GIB if model is not None else 0
            yield Gpu(name=model.name if model else device, model=model, memory=memory, count=count, marks=(mark,))
        return
    model = next((found for _, device, _ in devices if (found := models.of_device(device)) is not None), None)
    if model is None:
        model = next((found for _, name, _ in products if (found := models.of_product(name)) is not None), None)
    named = next((value for _, value, _ in (*products, *devices, *families)), "")
    yield Gpu(
        name=model.name if model is not None else named,
        model=model,
        memory=vram or (model.memory * GIB if model is not None else 0),
        marks=tuple(mark for mark, _, _ in (*devices, *products, *families, *sizes)),
    )


def _amd_values(labels: Mapping[str, str], what: str) -> list[tuple[Mark, str, int | None]]:
    """The values of a label of AMD's node labeller, in the order of preference, with the count where one is in it."""
    base = {"device-id": 0, "product-name": 10, "family": 20, "vram": 30}[what]
    found: list[tuple[Mark, str, int | None]] = []
    for place, prefix in enumerate(_AMD_PREFIXES):
        plain = f"{prefix}{what}"
        if value := labels.get(plain, ""):
            found.append((Mark(rank=base + place, key=plain, value=value), value, None))
    for place, prefix in enumerate(_AMD_PREFIXES):
        start = f"{prefix}{what}."
        found.extend(
            (Mark(rank=base + 2 + place, key=key), key.removeprefix(start), count)
            for key in sorted(labels)
            if key.startswith(start) and (count := _count(labels[key]))
        )
    return found


def _vram(text: str) -> int:
    """``192G``, as AMD's labeller writes GiB; 0 if it cannot be read."""
    return in_bytes(f"{text}i" if text[-1:] in ("G", "M", "T") else text)


def _count(value: object) -> int:
    """A count as Kubernetes writes it; 0 if it cannot be read."""
    return _whole(value, most=2**31)


def thousandths(value: object) -> int:
    """CPU as Kubernetes writes it, in thousandths of a core; 0 if it cannot be read."""
    return _whole(value, most=2**40, scale=1000)


def in_bytes(value: object) -> int:
    """A size as Kubernetes writes it, in bytes; 0 if it cannot be read."""
    return _whole(value, most=2**60)


def _whole(value: object, *, most: int, scale: int = 1) -> int:
    """A quantity times `scale`, without its fraction; 0 if it cannot be read, or is not above 0 and at most `most`."""
    try:
        found = int(parse_quantity(value) * scale)
    except (ValueError, OverflowError):
        return 0
    return found if 0 < found <= most else 0
