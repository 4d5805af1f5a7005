"""The two tables of GPUs: the catalogue's and the one of `airunway fit` know the same ones."""

from __future__ import annotations

import pytest

from airunway.sizing.nodes import gpu_named, known_gpus
from airunway.sizing.values import GIB
from airunway_catalogue.gpu_models import AMD, NVIDIA, GpuModels

MODELS = GpuModels(models=(*NVIDIA, *AMD))

WITHOUT_MEASURED_MEMORY = {
    *("A30", "GH200", "L40", "RTX-5090", "RTX-6000-Ada"),
    *("MI100", "MI250X", "MI300A", "MI300X-HF", "MI308X", "MI308X-HF", "MI350X"),
}
"""Models of the catalogue that `airunway fit` does not know: it needs to know what programs can allocate."""


FAMILIES = {"v100"}
"""Names that several models of the catalogue share; `airunway fit` takes the smaller one."""

SHARED = [name for name in known_gpus() if name not in FAMILIES]


def test_the_catalogue_knows_every_gpu_that_fit_knows() -> None:
    assert {name for name in known_gpus() if MODELS.of_product(name) is None} == FAMILIES
    assert {family.lower() for model in MODELS.models for family in model.families} >= FAMILIES


def test_fit_knows_the_gpus_of_the_catalogue_but_for_those_that_are_listed() -> None:
    missing = {
        model.name
        for model in MODELS.models
        if not any(isinstance(gpu_named(name).memory, int) for name in (model.name, *model.products))
    }
    assert missing == WITHOUT_MEASURED_MEMORY


@pytest.mark.parametrize("name", SHARED)
def test_both_have_about_the_same_memory(name: str) -> None:
    model, memory = MODELS.of_product(name), gpu_named(name).memory
    assert model is not None
    assert isinstance(memory, int)
    assert 0.9 <= memory / (model.memory * GIB) <= 1


def test_the_label_of_a_node_pool_with_h100_mega() -> None:
    label = "nvidia-h100-mega-80gb"
    assert (found := MODELS.of_product(label)) is not None
    assert found.name == "H100"
    assert gpu_named(label).memory == gpu_named("H100").memory
