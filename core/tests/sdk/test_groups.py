"""Engines over several nodes, and what a replica of several pods asks for: the parts of the SDK behind it."""

import pytest

from airunway.api.modeldeployment import ModelDeployment, parse_deployment
from airunway.engines.arguments import engine_arguments
from airunway.quantity import parse_quantity
from airunway.sdk import Member, Sizing, ignored_fields, launch, tracked


def deployment(**spec: object) -> ModelDeployment:
    body = {"model": {"id": "o/m"}, "resources": {"gpu": {"count": 16}}, **spec}
    return parse_deployment({"metadata": {"name": "m", "namespace": "default"}, "spec": body})


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
@pytest.mark.parametrize(("memory", "cpu"), [("100Gi", "3"), ("1e9", "500m"), ("", ""), ("0.5Ti", "0.1")])
def test_the_parts_of_a_size_are_enough_and_hardly_more(parts: int, memory: str, cpu: str) -> None:
    part = Sizing(gpu_type="nvidia.com/gpu", gpus=14, memory=memory, cpu=cpu).divided(parts)
    assert 14 <= part.gpus * parts < 14 + parts
    assert (bool(part.memory), bool(part.cpu)) == (bool(memory), bool(cpu))
    if memory:
        assert 0 <= parse_quantity(part.memory) * parts - parse_quantity(memory) < parts
        assert 0 <= (parse_quantity(part.cpu) * parts - parse_quantity(cpu)) * 1000 < parts


def test_sizes_of_the_parallelism_come_as_a_pair() -> None:
    both = ("--tensor-parallel-size=8", "--pipeline-parallel-size=2")
    assert engine_arguments(deployment(), engine="vllm", gpus=8, stages=2).argv == both
    for own in ({"args": {"tensor-parallel-size": "16"}}, {"extraArgs": ["--pipeline_parallel_size", "4"]}):
        argv = engine_arguments(deployment(engine=own), engine="vllm", gpus=8, stages=2).argv
        assert not set(both) & set(argv)
    alone = engine_arguments(deployment(engine={"args": {"pipeline-parallel-size": "2"}}), engine="vllm", gpus=8).argv
    assert alone == ("--tensor-parallel-size=8", "--pipeline-parallel-size=2"), "on one node each is the user's own"


def test_the_long_name_of_tensorrt_llms_own_flag_wins_too() -> None:
    wanted = deployment(engine={"args": {"tensor_parallel_size": "2"}})
    assert engine_arguments(wanted, engine="trtllm", gpus=4).argv == ("--tensor_parallel_size=2",)


def test_only_the_leader_of_a_group_serves() -> None:
    leader, worker = (
        launch(
            deployment(),
            "vllm",
            port=8000,
            image="vllm/vllm-openai:v0.23.0",
            gpus=8,
            member=Member(size=2, leads=leads),
        )
        for leads in (True, False)
    )
    assert (leader.port, worker.port) == (8000, 0)
    assert leader.startup
    assert (worker.startup, worker.readiness, worker.liveness) == ({}, {}, {})
    assert set(worker.args) - set(leader.args) == {"--node-rank=$(LWS_WORKER_INDEX)", "--headless"}


@pytest.mark.parametrize(("engine", "image"), [("trtllm", "i"), ("llamacpp", "llama.cpp"), ("mine", "i")])
def test_an_engine_that_runs_on_one_node_only_says_so(engine: str, image: str) -> None:
    found = launch(deployment(image=image), engine, port=8000, member=Member(size=2, leads=True))
    assert [finding.path for finding in found.blockers] == ["spec.resources.gpu.count"]


def test_the_engine_that_reaches_a_provider_as_part_of_its_context_is_no_ignored_field() -> None:
    wanted = deployment(engine={"type": "vllm"})
    _, reads = tracked(wanted)
    assert "spec.engine.type" not in [finding.path for finding in ignored_fields(wanted, reads)]
