"""Which nodes have what a template demands: labels of NVIDIA and AMD, tables, affinity, messages."""

from __future__ import annotations

from collections import Counter

import pytest

from airunway.resource import Resource
from airunway_catalogue import hardware as module
from airunway_catalogue.gpu_models import AMD, NVIDIA, GpuModel, GpuModels, installed_models
from airunway_catalogue.hardware import Demand, HardwareFit, HardwareFits, demand_of, find_hardware, settled
from airunway_catalogue.nodes import NodeGroup, inventory_of, is_held, project_node

MODELS = GpuModels(models=(*NVIDIA, *AMD))
NVIDIA_GPU, AMD_GPU = "nvidia.com/gpu", "amd.com/gpu"


def node(labels: dict[str, str], **capacity: int) -> Resource:
    """A node as it is kept; the keys of `capacity` are vendors."""
    allocatable = {f"{vendor}.com/gpu": str(count) for vendor, count in capacity.items()}
    return {"metadata": {"labels": labels}, "status": {"allocatable": allocatable}}


H100 = node({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"}, nvidia=8)
L4 = node({"nvidia.com/gpu.product": "NVIDIA-L4", "nvidia.com/gpu.memory": "23034"}, nvidia=1)
A100 = node({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}, nvidia=8)
BIG_A100 = node({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}, nvidia=8)
MI300X = node({"amd.com/gpu.device-id": "74a1", "amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}, amd=8)
BETA = node({"beta.amd.com/gpu.device-id": "74a1"}, amd=8)
COUNTED = node({"beta.amd.com/gpu.device-id.74a1": "8", "beta.amd.com/gpu.vram.192G": "8"}, amd=8)
FAMILY = node({"amd.com/gpu.family": "AI", "amd.com/gpu.vram": "192G"}, amd=8)


def found(*nodes: Resource, **demand: object) -> HardwareFit:
    wanted = demand_of({"spec": {"hardware": {"gpu": demand}}})
    return find_hardware(wanted, inventory_of(nodes), MODELS)


def test_a_template_that_demands_nothing_has_what_it_needs() -> None:
    hardware: Resource
    for hardware in ({}, {"cpu": ""}, {"cpu": "many"}, {"gpu": {}}, {"gpu": {"type": AMD_GPU}}):
        fit = find_hardware(demand_of({"spec": {"hardware": hardware}}), (), MODELS)
        assert fit.available, hardware
        assert fit.status() is None, hardware


@pytest.mark.parametrize(
    ("gpu", "demand"),
    [
        ({"count": 2}, Demand(count=2, resource=NVIDIA_GPU)),
        ({"model": "H100"}, Demand(count=1, resource=NVIDIA_GPU, model="H100")),
        ({"count": 4, "type": AMD_GPU, "minVram": "80Gi"}, Demand(count=4, resource=AMD_GPU, memory=80 * 2**30)),
        ({"count": "4"}, None),
        ({"count": True}, None),
        ({"count": -1, "minVram": "nonsense"}, None),
    ],
)
def test_what_a_template_demands(gpu: Resource, demand: Demand | None) -> None:
    assert demand_of({"spec": {"hardware": {"gpu": gpu}}}) == demand


@pytest.mark.parametrize(
    ("label", "nodes", "demand", "requirement"),
    [
        ("product", [H100, L4], {"model": "H100"}, ("nvidia.com/gpu.product", ["NVIDIA-H100-80GB-HBM3"])),
        ("product as named", [H100], {"model": "nvidia-h100-80gb-hbm3"}, ("nvidia.com/gpu.product", None)),
        ("memory", [H100, L4], {"minVram": "80Gi"}, ("nvidia.com/gpu.product", ["NVIDIA-H100-80GB-HBM3"])),
        (
            "memory by table",
            [A100, BIG_A100],
            {"minVram": "64Gi"},
            ("nvidia.com/gpu.product", ["NVIDIA-A100-SXM4-80GB"]),
        ),
        (
            "family of a table",
            [A100, BIG_A100, L4],
            {"model": "A100"},
            ("nvidia.com/gpu.product", ["NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-SXM4-80GB"]),
        ),
        ("device", [MI300X], {"type": AMD_GPU, "model": "MI300X"}, ("amd.com/gpu.device-id", ["74a1"])),
        ("beta", [BETA], {"type": AMD_GPU, "model": "MI300X"}, ("beta.amd.com/gpu.device-id", ["74a1"])),
        ("counted", [COUNTED], {"type": AMD_GPU, "model": "MI300X"}, ("beta.amd.com/gpu.device-id.74a1", [])),
        ("counted memory", [COUNTED], {"type": AMD_GPU, "minVram": "192Gi"}, ("beta.amd.com/gpu.device-id.74a1", [])),
        ("family last", [FAMILY], {"type": AMD_GPU, "minVram": "192Gi"}, ("amd.com/gpu.family", ["AI"])),
    ],
)
def test_the_labels_of_vendors_become_an_affinity(
    label: str, nodes: list[Resource], demand: Resource, requirement: tuple[str, list[str] | None]
) -> None:
    fit = found(*nodes, count=1, **demand)
    assert fit.available, label
    (expression,) = fit.requirements
    assert expression["key"] == requirement[0]
    if requirement[1] is not None:
        assert expression.get("values", []) == requirement[1]
        assert expression["operator"] == ("In" if requirement[1] else "Exists")


def test_without_a_model_any_node_will_do_and_the_smallest_tier_counts() -> None:
    fit = found(H100, L4, count=1)
    assert fit.requirements == ()
    assert (fit.nodes, fit.models, fit.tier) == (2, ("H100", "L4"), 3)
    assert found(H100, L4, count=2).models == ("H100",)


def test_the_order_of_nodes_changes_nothing() -> None:
    nodes = [H100, L4, A100, BIG_A100, MI300X, BETA, COUNTED, FAMILY]
    for demand in ({"model": "A100"}, {"minVram": "40Gi"}, {"type": AMD_GPU, "model": "MI300X"}):
        assert found(*nodes, count=1, **demand) == found(*reversed(nodes), count=1, **demand)


def test_the_label_that_selects_the_most_nodes_is_taken() -> None:
    fit = found(MI300X, BETA, BETA, count=1, type=AMD_GPU, model="MI300X")
    assert [each["key"] for each in fit.requirements] == ["beta.amd.com/gpu.device-id"]
    assert fit.nodes == 2


def test_a_label_that_nodes_with_other_gpus_have_too_is_not_taken() -> None:
    small = node({"amd.com/gpu.device-id": "740f", "amd.com/gpu.family": "AI"}, amd=8)
    large = node({"amd.com/gpu.device-id": "74a1", "amd.com/gpu.family": "AI"}, amd=8)
    fit = found(small, large, large, count=1, type=AMD_GPU, minVram="128Gi")
    assert [dict(each) for each in fit.requirements] == [
        {"key": "amd.com/gpu.device-id", "operator": "In", "values": ["74a1"]}
    ]


def test_a_node_with_two_models_has_as_many_as_its_labels_count() -> None:
    mixed = node({"amd.com/gpu.device-id.74a1": "2", "amd.com/gpu.device-id.740f": "6"}, amd=8)
    assert found(mixed, count=2, type=AMD_GPU, model="MI300X").available
    assert not found(mixed, count=4, type=AMD_GPU, model="MI300X").available
    assert found(mixed, count=6, type=AMD_GPU, model="MI210").available


@pytest.mark.parametrize(
    ("nodes", "demand", "message"),
    [
        ([], {"count": 2}, "no node has 2 x nvidia.com/gpu: the nodes have no GPUs"),
        (
            [L4, L4],
            {"count": 2, "model": "H100"},
            "no node has 2 x nvidia.com/gpu of model H100: nodes have 1 x nvidia.com/gpu L4 (22 GiB) on 2 nodes",
        ),
        (
            [MI300X],
            {"count": 1},
            "no node has 1 x nvidia.com/gpu: nodes have 8 x amd.com/gpu MI300X (192 GiB) on 1 node",
        ),
        (
            [node({}, nvidia=4)],
            {"minVram": "80Gi"},
            "no node has 1 x nvidia.com/gpu with at least 80 GiB each: "
            "nodes have 4 x nvidia.com/gpu of an unknown model (memory not known) on 1 node",
        ),
    ],
)
def test_what_is_missing_is_said_with_what_the_nodes_have(
    nodes: list[Resource], demand: Resource, message: str
) -> None:
    fit = found(*nodes, **demand)
    assert not fit.available
    assert fit.message == message


def test_a_slice_of_a_gpu_has_the_memory_that_its_name_says() -> None:
    sliced: Resource = {
        "metadata": {"labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb"}},
        "status": {"allocatable": {"nvidia.com/mig-3g.40gb": "2"}},
    }
    assert found(sliced, type="nvidia.com/mig-3g.40gb", minVram="40G").available
    assert not found(sliced, type="nvidia.com/mig-3g.40gb", minVram="80G").available


@pytest.mark.parametrize("shared", ["", "-SHARED"])
def test_a_slice_with_the_resource_name_of_a_gpu_is_no_whole_gpu(shared: str) -> None:
    product = f"NVIDIA-H100-80GB-HBM3-MIG-1g.10gb{shared}"
    sliced = {
        "metadata": {
            "labels": {
                "nvidia.com/gpu.product": product,
                "nvidia.com/gpu.memory": "9728",
                "cloud.google.com/gke-accelerator": "nvidia-h100-80gb",
            }
        },
        "status": {"allocatable": {"nvidia.com/gpu": "7"}},
    }
    for whole in ("H100", "NVIDIA-H100-80GB-HBM3", "nvidia-h100-80gb-hbm3"):
        assert not found(sliced, model=whole).available, whole
    assert not found(sliced, minVram="40Gi").available
    own, small = found(sliced, model="NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"), found(sliced, minVram="9Gi")
    for fit in (own, small):
        assert (fit.available, fit.tier, fit.models) == (True, None, (product,))
        (requirement,) = fit.requirements
        assert (requirement["key"], requirement["values"]) == ("nvidia.com/gpu.product", [product])
    both = found(sliced, H100, model="H100")
    assert (both.nodes, both.models) == (1, ("H100",))
    (requirement,) = both.requirements
    assert (requirement["key"], requirement["values"]) == ("nvidia.com/gpu.product", ["NVIDIA-H100-80GB-HBM3"])
    assert "x nvidia.com/gpu NVIDIA-H100-80GB-HBM3-MIG-1g.10gb" in found(sliced, model="H100").message


@pytest.mark.parametrize(
    "labels",
    [
        {
            "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-SHARED",
            "nvidia.com/gpu.memory": "81559",
            "nvidia.com/gpu.replicas": "8",
        },
        {
            "cloud.google.com/gke-accelerator": "nvidia-h100-80gb",
            "cloud.google.com/gke-max-shared-clients-per-gpu": "8",
        },
    ],
)
def test_a_gpu_that_is_shared_in_time_slices_counts_once_and_has_no_memory_of_its_own(labels: dict[str, str]) -> None:
    sliced = project_node(node(labels, nvidia=16))
    assert found(sliced, count=2, model="H100").available
    assert not found(sliced, count=3, model="H100").available
    fit = found(sliced, count=1, model="H100", minVram="80Gi")
    assert not fit.available
    assert fit.message.endswith("nodes have 2 x nvidia.com/gpu H100 (each shared by 8 pods) on 1 node")
    both = found(sliced, H100, model="H100", minVram="80Gi")
    assert (both.nodes, both.models) == (1, ("H100",))
    (requirement,) = both.requirements
    assert requirement["values"] == ["NVIDIA-H100-80GB-HBM3"]
    more = found(sliced, H100, count=3, model="H100")  # the slices of two GPUs would be taken for three
    assert (more.nodes, more.requirements[0]["values"]) == (1, ["NVIDIA-H100-80GB-HBM3"])
    mig: Resource = {
        "metadata": {"labels": {"nvidia.com/mig-3g.40gb.replicas": "4", "nvidia.com/gpu.replicas": "1"}},
        "status": {"allocatable": {"nvidia.com/mig-3g.40gb": "8"}},
    }
    assert found(mig, type="nvidia.com/mig-3g.40gb", count=2).available
    assert not found(mig, type="nvidia.com/mig-3g.40gb", count=3).available
    assert not found(mig, type="nvidia.com/mig-3g.40gb", minVram="40G").available


def test_a_node_is_kept_without_what_nothing_depends_on() -> None:
    whole = {
        "metadata": {
            "name": "n",
            "uid": "u",
            "labels": {"nvidia.com/gpu.product": "NVIDIA-L4", "team": "a", "nvidia.com/gfd.timestamp": "1"},
            "annotations": {"a": "b"},
        },
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {"allocatable": {"cpu": "8", "memory": "1Gi", "nvidia.com/gpu": "1"}, "images": [{}] * 50},
    }
    assert project_node(whole) == {
        "metadata": {"name": "n", "uid": "u", "labels": {"nvidia.com/gpu.product": "NVIDIA-L4"}},
        "status": {"allocatable": {"cpu": "8", "nvidia.com/gpu": "1"}},
    }


def with_state(
    ready: str = "True", *, cordoned: bool = False, beat: str = "1", cpu: str = "8", **capacity: int
) -> Resource:
    """A node as the API server has it."""
    found = node(dict(L4["metadata"]["labels"]), **capacity)
    found["status"]["allocatable"]["cpu"] = cpu
    found["status"]["conditions"] = [
        {"type": "MemoryPressure", "status": "False", "lastHeartbeatTime": beat},
        {"type": "Ready", "status": ready, "lastHeartbeatTime": beat, "message": beat},
    ]
    return {**found, "spec": {"unschedulable": True} if cordoned else {"podCIDR": beat}}


def test_a_heartbeat_changes_nothing_of_a_node_and_maintenance_does() -> None:
    first, second = (project_node(with_state(beat=beat, nvidia=1)) for beat in ("1", "2"))
    assert first == second
    assert not is_held(first)
    for held in (with_state("False", nvidia=1), with_state("Unknown", nvidia=1), with_state(cordoned=True, nvidia=1)):
        assert is_held(project_node(held))
        assert project_node(held)["metadata"] == first["metadata"]
    assert not is_held(project_node(node({}, nvidia=1))), "it has not reported yet"
    assert not is_held(None)


def test_nodes_in_maintenance_count_and_are_named() -> None:
    up, cordoned, lost = with_state(nvidia=2), with_state(cordoned=True, nvidia=2), with_state("Unknown", nvidia=2)
    for nodes, held, message in (
        ([up, up], 0, "2 nodes have 2 x L4"),
        ([up, cordoned], 1, "2 nodes have 2 x L4; 1 of them is cordoned or not Ready"),
        ([up, cordoned, lost], 2, "3 nodes have 2 x L4; 2 of them are cordoned or not Ready"),
        ([lost], 1, "1 node has 2 x L4; it is cordoned or not Ready"),
    ):
        fit = found(*map(project_node, nodes), count=2, model="L4")
        assert (fit.available, fit.held, fit.message) == (True, held, message)
        assert fit.requirements == found(up, count=2, model="L4").requirements
        status = fit.status()
        assert status is not None
        assert status.get("nodesOutOfService", 0) == held
    small = with_state(cordoned=True, nvidia=1)
    assert found(up, small, count=2).held == 0, "only those that have what is demanded"


def fit_of(*nodes: Resource, **hardware: object) -> HardwareFit:
    return find_hardware(demand_of({"spec": {"hardware": hardware}}), inventory_of(map(project_node, nodes)), MODELS)


def test_cpus_are_those_of_a_node_that_has_the_gpus() -> None:
    cpu_only = with_state(cpu="128")
    few, many = with_state(cpu="7910m", nvidia=4), with_state(cpu="63500m", nvidia=4)
    gpu = {"count": 4, "model": "L4"}
    fit = fit_of(few, many, cpu_only, gpu=gpu, cpu="32")
    assert (fit.available, fit.reason, fit.nodes) == (True, "GPUAvailable", 1)
    assert fit.message == "1 node has 4 x L4 and 32 CPUs"
    fit = fit_of(few, many, cpu_only, gpu=gpu, cpu="64")
    assert (fit.available, fit.reason) == (False, "InsufficientCapacity")
    assert fit.message == (
        "no node has 4 x nvidia.com/gpu of model L4 and 64 CPUs: the largest node with these GPUs has 63.5 CPUs"
    )
    assert fit_of(cpu_only, gpu=gpu, cpu="64").reason == "GPUNotAvailable", "the GPUs are missing first"
    assert fit_of(few, many, gpu=gpu).nodes == 2, "without a demand any number of CPUs will do"


def test_a_template_without_gpus_needs_a_node_with_its_cpus() -> None:
    fit = fit_of(with_state(cpu="7910m"), with_state(cpu="15", cordoned=True), cpu="7.91")
    assert (fit.available, fit.reason, fit.nodes, fit.held) == (True, "CPUAvailable", 2, 1)
    assert fit.status() == {"nodes": 2, "summary": "7.91 CPUs", "nodesOutOfService": 1}
    fit = fit_of(with_state(cpu="7910m"), with_state(cpu="15"), cpu="16")
    assert (fit.available, fit.reason) == (False, "InsufficientCapacity")
    assert fit.message == "no node has 16 CPUs: the largest node has 15 CPUs"
    assert fit.status() == {"nodes": 0, "summary": "0 of 16 CPUs"}
    assert fit_of(cpu=1).message == "no node has 1 CPU: no allocatable CPU is reported"
    assert settled(fit, fit.status()) == fit


def test_the_tables_of_this_distribution_are_installed_and_name_each_gpu_once() -> None:
    models = installed_models()
    assert set(models.models) >= {*NVIDIA, *AMD}
    names = [each.name for each in MODELS.models]
    assert len(names) == len(set(names))
    for each in MODELS.models:
        assert all(MODELS.of_product(product) is each for product in (each.name, *each.products)), each
        assert all(MODELS.of_device(device) is each for device in each.devices), each


@pytest.mark.parametrize(
    ("product", "name"),
    [("AMD_Instinct_MI325X_OAM", "MI325X"), ("AMD_Instinct_MI300A", "MI300A"), ("AMD_Instinct_MI999X_OAM", "")],
)
def test_the_form_of_an_amd_board_is_no_part_of_its_name(product: str, name: str) -> None:
    model = MODELS.of_product(product)
    assert (model.name if model is not None else "") == name


def test_a_distribution_adds_its_own_gpus() -> None:
    own = GpuModel(name="X1", memory=512, tier=200, products=("acme-x1",))
    models = GpuModels(models=(*MODELS.models, own))
    wanted = demand_of({"spec": {"hardware": {"gpu": {"model": "X1"}}}})
    fit = find_hardware(wanted, inventory_of([node({"nvidia.com/gpu.product": "ACME X1"}, nvidia=1)]), models)
    assert (fit.available, fit.tier, fit.models) == (True, 200, ("X1",))


def test_requirements_do_not_change_with_nodes_that_go_and_come_back() -> None:
    both = found(A100, BIG_A100, count=1, model="A100")
    for nodes in ([A100, BIG_A100], [A100], [BIG_A100], [], [L4]):
        fit = settled(found(*nodes, count=1, model="A100"), both.status())
        assert fit.requirements == both.requirements, nodes
        assert fit.available is (nodes not in ([], [L4]))
    assert settled(found(count=1, model="A100"), both.status()).status() == {
        "resource": "nvidia.com/gpu",
        "nodes": 0,
        "summary": "0 of 1 x A100",
        "requirements": list(both.requirements),
    }


def test_a_value_that_is_new_is_added_to_those_that_were_found() -> None:
    before = found(A100, count=1, model="A100").status()
    fit = settled(found(BIG_A100, count=1, model="A100"), before)
    assert fit.requirements[0]["values"] == ["NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-SXM4-80GB"]


@pytest.mark.parametrize(
    "before",
    [
        None,
        [],
        {},
        {"resource": "nvidia.com/gpu"},
        {"resource": "nvidia.com/gpu", "requirements": [1]},
        {"resource": "amd.com/gpu", "requirements": [{"key": "x", "operator": "Exists"}]},
        {"resource": "nvidia.com/gpu", "requirements": [{"key": "x", "operator": "In", "values": ["y"]}]},
        {
            "resource": "nvidia.com/gpu",
            "requirements": [{"key": "nvidia.com/gpu.product", "operator": "In", "values": 5}],
        },
    ],
)
def test_a_record_of_another_demand_or_shape_changes_nothing(before: object) -> None:
    fit = found(H100, count=1, model="H100")
    assert settled(fit, before) == fit


class _Entry:
    """An entry point of a distribution."""

    def __init__(self, name: str, table: object) -> None:
        self.name, self.value, self._table = name, f"{name}:MODELS", table

    def load(self) -> object:
        if isinstance(self._table, Exception):
            raise self._table
        return self._table


def test_a_table_that_cannot_be_used_is_named_in_the_log_and_the_others_are_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    entries = [
        _Entry("amd", AMD),
        _Entry("broken", ImportError("no module named broken")),
        _Entry("text", ["MI300X"]),
        _Entry("number", 5),
    ]
    monkeypatch.setattr("airunway_catalogue.gpu_models.entry_points", lambda group: entries)
    assert installed_models().models == AMD
    named = [record.getMessage().split("GPU table ")[1].split(" ")[0] for record in caplog.records]
    assert named == ["broken", "number", "text"]


def test_what_the_nodes_have_is_found_once_for_each_demand_and_a_number_of_demands_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = Counter[Demand | None]()

    def counted(demand: Demand | None, inventory: tuple[NodeGroup, ...], models: GpuModels) -> HardwareFit:
        asked[demand] += 1
        return find_hardware(demand, inventory, models)

    monkeypatch.setattr(module, "find_hardware", counted)
    fits, usual = HardwareFits(MODELS), Demand(count=1, resource=NVIDIA_GPU, model="L4")
    assert fits.renew(inventory_of([L4]))
    for number in range(3 * HardwareFits.MOST):  # a user edits a template again and again
        assert fits.of(usual).available
        fits.of(Demand(cpu=number + 1))
        assert len(fits) <= HardwareFits.MOST
    assert asked[usual] == 1
    assert not fits.renew(inventory_of([L4]))
    assert fits.renew(inventory_of([H100]))
    assert not fits.of(usual).available
