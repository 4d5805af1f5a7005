"""Which nodes have the GPUs and CPUs that a template needs (docs/catalogue.md).
Pure.

Example: a template wants two MI300X. Two nodes have eight each, by the label ``amd.com/gpu.device-id: 74a1``. The
result is available, with ``2 x MI300X`` and the node affinity ``amd.com/gpu.device-id In [74a1]``.

What nodes have counts, not what is free. A node that is cordoned or not Ready counts too: maintenance takes no template
away. Taints do not count: tolerations are the pods' own, or come by admission.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from airunway.api.names import DEFAULT_GPU_TYPE
from airunway.resource import Resource, dig, list_at, text_at
from airunway_catalogue.gpu_models import GpuModels, normal
from airunway_catalogue.nodes import GIB, Gpu, NodeGroup, gpus_of, in_bytes, thousandths

_TOLERANCE = 1.03
"""A board of 80 GB has 79.6 GiB: sizes that differ by less than this factor are the same size."""

_MOST_MODELS, _MOST_VALUES, _MOST_NAMED = 16, 32, 4


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What one replica needs of a node."""

    count: int = 0
    """GPUs; 0: none."""
    resource: str = ""
    """Their resource name; empty if there are none."""
    model: str = ""
    """Empty: any."""
    memory: int = 0
    """Least memory of one, in bytes."""
    cpu: int = 0
    """CPU in thousandths of a core; 0: any."""


@dataclass(frozen=True, kw_only=True)
class HardwareFit:
    """What the nodes have for a demand."""

    available: bool
    """Whether a node has it, or nothing is demanded."""
    reason: str
    """Of HardwareReady."""
    message: str
    """Why, as a sentence."""
    resource: str = ""
    """Resource name; empty if no GPU is demanded."""
    nodes: int = 0
    """Nodes that have it."""
    held: int = 0
    """How many of them are cordoned or not Ready."""
    models: tuple[str, ...] = ()
    """Models of their GPUs, sorted."""
    tier: int | None = None
    """The smallest rank of these models: a pod may get any of them."""
    requirements: tuple[Resource, ...] = field(default=(), hash=False)
    """Sorted matchExpressions of a node affinity."""
    summary: str = ""
    """In short."""

    def status(self) -> Resource | None:
        """``status.hardware``; None if nothing is demanded."""
        if not self.summary:
            return None
        found: Resource = {"nodes": self.nodes, "summary": self.summary}
        if self.resource:
            found["resource"] = self.resource
        if self.held:
            found["nodesOutOfService"] = self.held
        if self.models:
            found["models"] = list(self.models)
        if self.tier is not None:
            found["tier"] = self.tier
        if self.requirements:
            found["requirements"] = [dict(each) for each in self.requirements]
        return found


# ------------------------------------------------------------------------------------------------------------- reading


def demand_of(template: Resource) -> Demand | None:
    """What a template demands of a node; None if it demands nothing. Total for any JSON."""
    gpu, cpu = dig(template, "spec", "hardware", "gpu"), thousandths(dig(template, "spec", "hardware", "cpu"))
    gpu = gpu if isinstance(gpu, dict) else {}
    model, count = text_at(gpu.get("model")), gpu.get("count")
    memory = in_bytes(gpu.get("minVram"))
    count = count if type(count) is int and count > 0 else int(bool(model or memory))
    if not count:
        return Demand(cpu=cpu) if cpu else None
    resource = text_at(gpu.get("type")) or DEFAULT_GPU_TYPE
    return Demand(count=count, resource=resource, model=model, memory=memory, cpu=cpu)


# ------------------------------------------------------------------------------------------------------------ deciding


class HardwareFits:
    """What the nodes have for each demand, found once until the nodes change. Those that were asked for last are kept:
    any user may write templates with any number of demands.
    """

    MOST = 256

    def __init__(self, models: GpuModels) -> None:
        self._inventory: tuple[NodeGroup, ...] = ()
        self._known = lru_cache(maxsize=self.MOST)(lambda demand: find_hardware(demand, self._inventory, models))

    def __len__(self) -> int:
        return self._known.cache_info().currsize

    def renew(self, inventory: tuple[NodeGroup, ...]) -> bool:
        """Take what the nodes have now; whether it is anything else than before."""
        if inventory == self._inventory:
            return False
        self._inventory = inventory
        self._known.cache_clear()
        return True

    def of(self, demand: Demand | None) -> HardwareFit:
        """What the nodes have for a demand."""
        return self._known(demand)


def find_hardware(demand: Demand | None, inventory: Sequence[NodeGroup], models: GpuModels) -> HardwareFit:
    """What the nodes have for a demand."""
    if demand is None:
        return HardwareFit(available=True, reason="NotRequested", message="neither GPUs nor CPUs are asked for")
    if not demand.count:
        return _find_cpus(demand, inventory)
    wanted, enough, others = list[tuple[NodeGroup, Gpu]](), list[tuple[NodeGroup, Gpu]](), list[Gpu]()
    for group in inventory:
        count = dict(group.allocatable).get(demand.resource, 0)
        if not count:
            continue
        for gpu in gpus_of(dict(group.labels), demand.resource, models):
            few = gpu.number(count) < demand.count
            # A pod would take the slices of a shared GPU for as many GPUs.
            if not _is_wanted(gpu, demand) or (few and gpu.sharers > 1):
                others.append(gpu)
                continue
            wanted.append((group, gpu))
            if not few:
                enough.append((group, gpu))
    if not enough:
        return _missing(demand, inventory, models)
    fitting = [each for each in enough if each[0].cpu >= demand.cpu]
    if not fitting:
        return _without_cpus(demand, [group for group, _ in enough])
    requirement = _requirement(wanted, fitting, others) if demand.model or demand.memory else None
    found = [each for each in fitting if requirement is None or requirement.selects(each[1])]
    names = sorted({gpu.name for _, gpu in found if gpu.name})[:_MOST_MODELS]
    tiers = [gpu.model.tier if gpu.model is not None else 0 for _, gpu in found]
    groups = {group for group, _ in found}
    shown = " or ".join(names) if 0 < len(names) <= 3 else demand.resource
    summary = f"{demand.count} x {shown}"[:128]
    return HardwareFit(
        available=True,
        reason="GPUAvailable",
        message=_there(groups, summary if not demand.cpu else f"{summary} and {_cores(demand.cpu)}"),
        resource=demand.resource,
        nodes=_number(groups),
        held=_held(groups),
        models=tuple(names),
        tier=min(tiers) if any(gpu.model is not None for _, gpu in found) else None,
        requirements=(requirement.expression(),) if requirement is not None else (),
        summary=summary,
    )


def _find_cpus(demand: Demand, inventory: Sequence[NodeGroup]) -> HardwareFit:
    """What the nodes have for a replica without GPUs."""
    groups, summary = {group for group in inventory if group.cpu >= demand.cpu}, _cores(demand.cpu)
    if not groups:
        return _without_cpus(demand, inventory)
    return HardwareFit(
        available=True,
        reason="CPUAvailable",
        message=_there(groups, summary),
        nodes=_number(groups),
        held=_held(groups),
        summary=summary,
    )


def _without_cpus(demand: Demand, groups: Sequence[NodeGroup]) -> HardwareFit:
    """No node has as many CPUs, of those that have the GPUs."""
    asked, cores = _asked(demand), _cores(demand.cpu)
    largest = max((group.cpu for group in groups), default=0)
    which = "the largest node with these GPUs" if asked else "the largest node"
    there = f"{which} has {_cores(largest)}" if largest else "no allocatable CPU is reported"
    return HardwareFit(
        available=False,
        reason="InsufficientCapacity",
        message=f"no node has {f'{asked} and {cores}' if asked else cores}: {there}",
        resource=demand.resource,
        summary=f"0 of {demand.count} x {demand.model or demand.resource}"[:128] if asked else f"0 of {cores}",
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
    earlier = [each for each in list_at(old, "values") if isinstance(each, str)]
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
    return HardwareFit(
        available=False,
        reason="GPUNotAvailable",
        message=f"no node has {_asked(demand)}: {_offered(inventory, models)}",
        resource=demand.resource,
        summary=f"0 of {demand.count} x {demand.model or demand.resource}"[:128],
    )


def _asked(demand: Demand) -> str:
    """The GPUs of a demand; empty if it has none."""
    if not demand.count:
        return ""
    asked = f"{demand.count} x {demand.resource}"
    if demand.model:
        asked += f" of model {demand.model}"
    if demand.memory:
        asked += f" with at least {-(-demand.memory // GIB)} GiB each"
    return asked


def _there(groups: Collection[NodeGroup], what: str) -> str:
    """That nodes have it, and how many of them get no pods now."""
    number, held = _number(groups), _held(groups)
    text = f"{_nodes(number)} {'has' if number == 1 else 'have'} {what}"
    if not held:
        return text
    which = "it is" if number == 1 else f"{held} of them {'is' if held == 1 else 'are'}"
    return f"{text}; {which} cordoned or not Ready"


def _number(groups: Collection[NodeGroup]) -> int:
    return sum(group.nodes for group in groups)


def _held(groups: Collection[NodeGroup]) -> int:
    return sum(group.held for group in groups)


def _cores(cpu: int) -> str:
    """Thousandths of a core in words, such as ``7.91 CPUs``."""
    return "1 CPU" if cpu == 1000 else f"{f'{cpu / 1000:.3f}'.rstrip('0').rstrip('.')} CPUs"


def _offered(inventory: Sequence[NodeGroup], models: GpuModels) -> str:
    """What the nodes have."""
    found: Counter[str] = Counter()
    for group in inventory:
        for resource, count in group.allocatable:
            if not resource.startswith(("nvidia.com/", "amd.com/", "gpu.intel.com/", "habana.ai/")):
                continue
            for gpu in gpus_of(dict(group.labels), resource, models):
                size = f"{round(gpu.memory / GIB)} GiB" if gpu.memory else "memory not known"
                size = size if gpu.sharers == 1 else f"each shared by {gpu.sharers} pods"
                found[f"{gpu.number(count)} x {resource} {gpu.name or 'of an unknown model'} ({size})"] += group.nodes
    if not found:
        return "the nodes have no GPUs"
    most = sorted(found.items(), key=lambda each: (-each[1], each[0]))
    more = f"; and {len(most) - _MOST_NAMED} more" if len(most) > _MOST_NAMED else ""
    return "nodes have " + "; ".join(f"{text} on {_nodes(number)}" for text, number in most[:_MOST_NAMED]) + more


def _nodes(number: int) -> str:
    return f"{number} node" if number == 1 else f"{number} nodes"
