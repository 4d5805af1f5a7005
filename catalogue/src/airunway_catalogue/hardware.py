"""Which nodes have the GPUs that a template needs (spec platform.md, "Templates, discovery, model sources"). Pure.

Example: a template wants two MI300X. Two nodes have eight each, by the label ``amd.com/gpu.device-id: 74a1``. The
result is available, with ``2 x MI300X`` and the node affinity ``amd.com/gpu.device-id In [74a1]``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from airunway.quantity import parse_quantity
from airunway.resource import Resource, dig
from airunway_catalogue.gpu_models import GpuModel, GpuModels, normal

__all__ = [
    "Demand",
    "Gpu",
    "HardwareFit",
    "NodeGroup",
    "demand_of",
    "find_hardware",
    "inventory_of",
    "project_node",
    "settled",
]

DEFAULT_RESOURCE = "nvidia.com/gpu"

_TOLERANCE = 1.03
"""A board of 80 GB has 79.6 GiB: sizes that differ by less than this factor are the same size."""

_LABELS = ("nvidia.com/", "amd.com/", "beta.amd.com/")
_CLOUD_LABELS = ("cloud.google.com/gke-accelerator", "karpenter.k8s.aws/instance-gpu-name")
_AMD_PREFIXES = ("amd.com/gpu.", "beta.amd.com/gpu.")
_MIB, _GIB = 2**20, 2**30
_NUMBER = re.compile(r"[0-9]{1,7}", re.ASCII)
_PARTITION = re.compile(r"nvidia\.com/mig-\d+g\.(\d{1,4})gb.*", re.ASCII)
_MOST_MODELS, _MOST_VALUES, _MOST_NAMED = 16, 32, 4


@dataclass(frozen=True, kw_only=True)
class Demand:
    """The GPUs of one replica."""

    count: int
    """How many, at least 1."""
    resource: str
    """Their resource name."""
    model: str = ""
    """Empty: any."""
    memory: int = 0
    """Least memory of one, in bytes."""


@dataclass(frozen=True, kw_only=True, order=True)
class _Expression:
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
    marks: tuple[_Expression, ...] = ()
    """By which labels nodes with it are selected."""


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """Nodes that are equal in all that counts."""

    labels: tuple[tuple[str, str], ...]
    """Labels about GPUs."""
    allocatable: tuple[tuple[str, int], ...]
    """Extended resources."""
    nodes: int
    """How many."""


@dataclass(frozen=True, kw_only=True)
class HardwareFit:
    """What the nodes have for a demand."""

    available: bool
    """Whether a node has it, or nothing is demanded."""
    message: str
    """Why, as a sentence."""
    resource: str = ""
    """Resource name; empty if no GPU is demanded."""
    nodes: int = 0
    """Nodes that have it."""
    models: tuple[str, ...] = ()
    """Models of their GPUs, sorted."""
    tier: int | None = None
    """The smallest rank of these models: a pod may get any of them."""
    requirements: tuple[Resource, ...] = field(default=(), hash=False)
    """Sorted matchExpressions of a node affinity."""
    summary: str = ""
    """In short."""

    def status(self) -> Resource | None:
        """``status.hardware``; None if no GPU is demanded."""
        if not self.resource:
            return None
        found: Resource = {"resource": self.resource, "nodes": self.nodes, "summary": self.summary}
        if self.models:
            found["models"] = list(self.models)
        if self.tier is not None:
            found["tier"] = self.tier
        if self.requirements:
            found["requirements"] = [dict(each) for each in self.requirements]
        return found


# ------------------------------------------------------------------------------------------------------------- reading


def demand_of(template: Resource) -> Demand | None:
    """The GPUs that a template demands; None if it demands none. Total for any JSON."""
    gpu = dig(template, "spec", "hardware", "gpu")
    if not isinstance(gpu, dict):
        return None
    model, count = _text(gpu.get("model")), gpu.get("count")
    memory = _bytes(gpu.get("minVram"))
    count = count if type(count) is int and count > 0 else int(bool(model or memory))
    if not count:
        return None
    return Demand(count=count, resource=_text(gpu.get("type")) or DEFAULT_RESOURCE, model=model, memory=memory)


def project_node(obj: Resource) -> Resource:
    """What is kept of a node: its labels about GPUs, and its extended resources."""
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
    counted = {key: value for key, value in resources.items() if "/" in key}
    return {"metadata": kept, "status": {"allocatable": counted}}


def _is_about_gpus(label: str) -> bool:
    return label in _CLOUD_LABELS or (label.startswith(_LABELS) and ".driver" not in label and "timestamp" not in label)


def inventory_of(nodes: Iterable[Resource]) -> tuple[NodeGroup, ...]:
    """The groups of equal nodes that have an extended resource, sorted. Total for any JSON."""
    found: Counter[tuple[tuple[tuple[str, str], ...], tuple[tuple[str, int], ...]]] = Counter()
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
        if counts:
            found[texts, counts] += 1
    return tuple(
        NodeGroup(labels=labels, allocatable=counts, nodes=number) for (labels, counts), number in sorted(found.items())
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
        _Expression(rank=rank, key=key, value=labels[key])
        for rank, key in enumerate(("nvidia.com/gpu.product", *_CLOUD_LABELS))
        if labels.get(key)
    ]
    product = marks[0].value if marks else ""
    model = next((found for mark in marks if (found := models.of_product(mark.value)) is not None), None)
    size = labels.get("nvidia.com/gpu.memory", "")
    memory = int(size) * _MIB if _NUMBER.fullmatch(size) else model.memory * _GIB if model is not None else 0
    if partition := _PARTITION.fullmatch(resource):
        memory = int(partition[1]) * 10**9
    if family := labels.get("nvidia.com/gpu.family", ""):
        marks.append(_Expression(rank=8, key="nvidia.com/gpu.family", value=family))
    if size:
        marks.append(_Expression(rank=9, key="nvidia.com/gpu.memory", value=size))
    return Gpu(
        name=model.name if model is not None else product or labels.get("nvidia.com/gpu.family", ""),
        model=model,
        memory=memory,
        marks=tuple(marks),
    )


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
            memory = model.memory * _GIB if model is not None else 0
            yield Gpu(name=model.name if model else device, model=model, memory=memory, count=count, marks=(mark,))
        return
    model = next((found for _, device, _ in devices if (found := models.of_device(device)) is not None), None)
    if model is None:
        model = next((found for _, name, _ in products if (found := models.of_product(name)) is not None), None)
    named = next((value for _, value, _ in (*products, *devices, *families)), "")
    yield Gpu(
        name=model.name if model is not None else named,
        model=model,
        memory=vram or (model.memory * _GIB if model is not None else 0),
        marks=tuple(mark for mark, _, _ in (*devices, *products, *families, *sizes)),
    )


def _amd_values(labels: Mapping[str, str], what: str) -> list[tuple[_Expression, str, int | None]]:
    """The values of a label of AMD's node labeller, in the order of preference, with the count where one is in it."""
    base = {"device-id": 0, "product-name": 10, "family": 20, "vram": 30}[what]
    found: list[tuple[_Expression, str, int | None]] = []
    for place, prefix in enumerate(_AMD_PREFIXES):
        plain = f"{prefix}{what}"
        if value := labels.get(plain, ""):
            found.append((_Expression(rank=base + place, key=plain, value=value), value, None))
    for place, prefix in enumerate(_AMD_PREFIXES):
        start = f"{prefix}{what}."
        found.extend(
            (_Expression(rank=base + 2 + place, key=key), key.removeprefix(start), count)
            for key in sorted(labels)
            if key.startswith(start) and (count := _count(labels[key]))
        )
    return found


def _vram(text: str) -> int:
    """``192G``, as AMD's labeller writes GiB; 0 if it cannot be read."""
    return _bytes(f"{text}i" if text[-1:] in ("G", "M", "T") else text)


# ------------------------------------------------------------------------------------------------------------ deciding


def find_hardware(demand: Demand | None, inventory: Sequence[NodeGroup], models: GpuModels) -> HardwareFit:
    """What the nodes have for a demand."""
    if demand is None:
        return HardwareFit(available=True, message="no GPU is asked for")
    wanted, enough, others = list[tuple[NodeGroup, Gpu]](), list[tuple[NodeGroup, Gpu]](), list[Gpu]()
    for group in inventory:
        count = dict(group.allocatable).get(demand.resource, 0)
        if not count:
            continue
        for gpu in gpus_of(dict(group.labels), demand.resource, models):
            if not _is_wanted(gpu, demand):
                others.append(gpu)
                continue
            wanted.append((group, gpu))
            if min(count, count if gpu.count is None else gpu.count) >= demand.count:
                enough.append((group, gpu))
    if not enough:
        return _missing(demand, inventory, models)
    requirement = _requirement(wanted, enough, others) if demand.model or demand.memory else None
    found = [each for each in enough if requirement is None or requirement.selects(each[1])]
    names = sorted({gpu.name for _, gpu in found if gpu.name})[:_MOST_MODELS]
    tiers = [gpu.model.tier if gpu.model is not None else 0 for _, gpu in found]
    number = sum(group.nodes for group in {group for group, _ in found})
    shown = " or ".join(names) if 0 < len(names) <= 3 else demand.resource
    summary = f"{demand.count} x {shown}"[:128]
    return HardwareFit(
        available=True,
        message=f"{_nodes(number)} {'has' if number == 1 else 'have'} {summary}",
        resource=demand.resource,
        nodes=number,
        models=tuple(names),
        tier=min(tiers) if any(gpu.model is not None for _, gpu in found) else None,
        requirements=(requirement.expression(),) if requirement is not None else (),
        summary=summary,
    )


def settled(fit: HardwareFit, before: object) -> HardwareFit:
    """The result with the requirements that `before`, the ``status.hardware`` of the same demand, has already.

    Nodes come and go, and a template must not become another one with each of them: what was required stays while there
    are no such nodes, and a label's value that was found once stays in the list.
    """
    known = dig(before, "requirements")
    if dig(before, "resource") != fit.resource or not isinstance(known, list) or len(known) != 1:
        return fit
    (old,) = known
    if not fit.available:
        return replace(fit, requirements=(old,)) if isinstance(old, dict) else fit
    if len(fit.requirements) != 1 or (dig(old, "key"), dig(old, "operator")) != (fit.requirements[0]["key"], "In"):
        return fit
    (new,) = fit.requirements
    values = old.get("values")
    earlier = [each for each in values if isinstance(each, str)] if isinstance(values, list) else []
    both = sorted({*earlier, *new.get("values", ())})
    if new["operator"] != "In" or len(both) > _MOST_VALUES:
        return fit
    return replace(fit, requirements=({**new, "values": both},))


def _is_wanted(gpu: Gpu, demand: Demand) -> bool:
    if demand.memory and gpu.memory * _TOLERANCE < demand.memory:
        return False
    if not demand.model:
        return True
    asked = normal(demand.model)
    known = (
        (gpu.model.name, *gpu.model.products, *gpu.model.families, *gpu.model.devices) if gpu.model is not None else ()
    )
    return asked in {normal(each) for each in (gpu.name, *known) if each}


@dataclass(frozen=True, kw_only=True)
class _Requirement:
    """A label by which nodes are selected."""

    key: str
    values: tuple[str, ...] = ()
    """Empty: the label's existence."""

    def selects(self, gpu: Gpu) -> bool:
        return any(mark.key == self.key and (not self.values or mark.value in self.values) for mark in gpu.marks)

    def expression(self) -> Resource:
        """As an entry of matchExpressions."""
        if not self.values:
            return {"key": self.key, "operator": "Exists"}
        return {"key": self.key, "operator": "In", "values": list(self.values)}


def _requirement(
    wanted: Sequence[tuple[NodeGroup, Gpu]], enough: Sequence[tuple[NodeGroup, Gpu]], others: Sequence[Gpu]
) -> _Requirement | None:
    """The label that selects the most of the nodes that have enough, and none with other GPUs if that can be; of
    equally good ones the preferred one. None if the nodes have no labels.
    """
    ranks: dict[str, int] = {}
    for _, gpu in wanted:
        for mark in gpu.marks:
            ranks[mark.key] = min(mark.rank, ranks.get(mark.key, mark.rank))
    best: tuple[tuple[bool, int, int, str], _Requirement] | None = None
    for key, rank in ranks.items():
        values = {mark.value for _, gpu in wanted for mark in gpu.marks if mark.key == key}
        requirement = _Requirement(key=key, values=tuple(sorted(values - {""}))[:_MOST_VALUES])
        covered = sum(group.nodes for group, gpu in enough if requirement.selects(gpu))
        if not covered:
            continue
        order = (any(requirement.selects(each) for each in others), -covered, rank, key)
        if best is None or order < best[0]:
            best = (order, requirement)
    return best[1] if best is not None else None


def _missing(demand: Demand, inventory: Sequence[NodeGroup], models: GpuModels) -> HardwareFit:
    asked = f"{demand.count} x {demand.resource}"
    if demand.model:
        asked += f" of model {demand.model}"
    if demand.memory:
        asked += f" with at least {-(-demand.memory // _GIB)} GiB each"
    return HardwareFit(
        available=False,
        message=f"no node has {asked}: {_said(inventory, models)}",
        resource=demand.resource,
        summary=f"0 of {demand.count} x {demand.model or demand.resource}"[:128],
    )


def _said(inventory: Sequence[NodeGroup], models: GpuModels) -> str:
    """What the nodes have."""
    found: Counter[str] = Counter()
    for group in inventory:
        for resource, count in group.allocatable:
            if not resource.startswith(("nvidia.com/", "amd.com/", "gpu.intel.com/", "habana.ai/")):
                continue
            for gpu in gpus_of(dict(group.labels), resource, models):
                size = f" ({round(gpu.memory / _GIB)} GiB)" if gpu.memory else " (memory not known)"
                found[f"{gpu.count or count} x {resource} {gpu.name or 'of an unknown model'}{size}"] += group.nodes
    if not found:
        return "the nodes have no GPUs"
    most = sorted(found.items(), key=lambda each: (-each[1], each[0]))
    more = f"; and {len(most) - _MOST_NAMED} more" if len(most) > _MOST_NAMED else ""
    return "nodes have " + "; ".join(f"{text} on {_nodes(number)}" for text, number in most[:_MOST_NAMED]) + more


def _nodes(number: int) -> str:
    return f"{number} node" if number == 1 else f"{number} nodes"


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int:
    """A count as Kubernetes writes it; 0 if it cannot be read."""
    try:
        found = int(parse_quantity(value))
    except (ValueError, OverflowError):
        return 0
    return found if 0 < found <= 2**31 else 0


def _bytes(value: object) -> int:
    try:
        found = int(parse_quantity(value))
    except (ValueError, OverflowError):
        return 0
    return found if 0 < found <= 2**60 else 0
