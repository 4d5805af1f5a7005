"""Which nodes have what a template demands: labels of NVIDIA and AMD, tables, affinity, messages."""

from __future__ import annotations

import pytest

from airunway.resource import Resource
from airunway_catalogue.gpu_models import AMD, NVIDIA, GpuModel, GpuModels, installed_models
from airunway_catalogue.hardware import (
    Demand,
    HardwareFit,
    demand_of,
    find_hardware,
    inventory_of,
    project_node,
    settled,
)

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


def test_a_template_that_demands_no_gpu_has_what_it_needs() -> None:
    hardware: Resource
    for hardware in ({}, {"cpu": "8"}, {"gpu": {}}, {"gpu": {"type": AMD_GPU}}):
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


def test_a_node_is_kept_without_what_nothing_depends_on() -> None:
    whole = {
        "metadata": {
            "name": "n",
            "uid": "u",
            "labels": {"nvidia.com/gpu.product": "NVIDIA-L4", "team": "a", "nvidia.com/gfd.timestamp": "1"},
            "annotations": {"a": "b"},
        },
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {"allocatable": {"cpu": "8", "nvidia.com/gpu": "1"}, "images": [{}] * 50},
    }
    assert project_node(whole) == {
        "metadata": {"name": "n", "uid": "u", "labels": {"nvidia.com/gpu.product": "NVIDIA-L4"}},
        "status": {"allocatable": {"nvidia.com/gpu": "1"}},
    }


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
