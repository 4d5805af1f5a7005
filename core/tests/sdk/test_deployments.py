"""What a deployment asks for, as several providers read it."""

from __future__ import annotations

from typing import Any

import pytest

from airunway.sdk import (
    ModelDeployment,
    Replicas,
    bad_override,
    filled,
    image_of,
    is_disaggregated,
    launch_by,
    nodes_for,
    overridden,
    parse_deployment,
    primary_component,
    replicas_of,
    uneven,
)


def model(**spec: Any) -> ModelDeployment:
    return parse_deployment({"metadata": {"name": "llama"}, "spec": {"model": {"id": "o/m"}, **spec}})


def test_workers_that_nobody_describes_are_as_many_as_replicas() -> None:
    asked = model(serving={"mode": "disaggregated"}, scaling={"replicas": 3, "decode": {"replicas": 2}})
    assert is_disaggregated(asked)
    assert [replicas_of(asked, role) for role in ("", "prefill", "decode")] == [3, 3, 2]
    assert not is_disaggregated(model())


def test_overrides_are_read_at_any_depth_whatever_they_are() -> None:
    asked = model(provider={"name": "acme", "overrides": {"server": {"size": 3}, "odd": "text"}})
    assert overridden(asked, "server", "size") == 3
    assert overridden(asked, "odd", "size", default="none") == "none"
    assert overridden(model(), "server") is None


@pytest.mark.parametrize(("gpus", "nodes"), [(0, 1), (1, 1), (8, 1), (9, 2), (16, 2), (17, 3)])
def test_gpus_are_spread_over_as_few_nodes_as_hold_them(gpus: int, nodes: int) -> None:
    assert nodes_for(gpus, 8) == nodes


@pytest.mark.parametrize(("gpus", "near"), [(8, None), (9, 10), (10, None), (17, 18)])
def test_gpus_that_cannot_be_spread_evenly_are_refused_with_a_number_that_can(gpus: int, near: int | None) -> None:
    found = [finding.message for finding in uneven("spec.gpus", gpus=gpus, limit=8, what="worker")]
    said = [message for message in found if message.startswith(f"{gpus} GPUs per worker are more than the 8 of one")]
    assert found == said
    assert [message.endswith(f": ask for {near}") for message in found] == ([True] if near else [])


def test_a_bad_override_is_told_at_its_path() -> None:
    found = bad_override("server.size", "too large")
    assert (found.path, found.reason) == ("spec.provider.overrides.server.size", "InvalidOverride")


def test_the_primary_component_is_ready_with_the_reason_ready_only() -> None:
    assert primary_component("Ready", "all is well").ready is True
    found = primary_component("UpstreamFailed", "it is not", only_degrades=True)
    assert (found.name, found.ready, found.only_degrades, found.pending) == ("ProviderResource", False, True, False)


def test_replicas_of_several_components_are_added() -> None:
    counts = [Replicas(desired=3, ready=2, available=1), Replicas(desired=1, ready=1)]
    assert sum(counts, Replicas()) == Replicas(desired=4, ready=3, available=1)


def test_what_says_nothing_is_left_out_and_zero_says_something() -> None:
    assert filled(a=None, b="", c=[], d={}, e=0, f=False, g="x") == {"e": 0, "f": False, "g": "x"}


def test_a_command_of_a_providers_own_gets_its_words_before_the_deployments() -> None:
    asked = model(engine={"args": {"seed": "1"}, "extraArgs": ["--verbose"], "contextLength": 4096})
    found = launch_by(asked, "vllm", command=["acme"], words=["--model", "o/m"], image="acme/x:1", gpus=4, stages=2)
    assert found.command == ("acme",)
    assert found.args[:2] == ("--model", "o/m")
    assert {"--tensor-parallel-size=4", "--pipeline-parallel-size=2", "--verbose"} <= {*found.args[2:]}
    assert (found.port, found.startup, found.blockers) == (0, {}, ())


def test_arguments_that_an_own_command_cannot_take_are_told() -> None:
    asked = model(engine={"args": {"bad name": "1"}})
    found = launch_by(asked, "vllm", command=["acme"], image="acme/x:1", gpus=1)
    assert [finding.reason for finding in found.blockers] == ["BadArguments"]


def test_the_engine_s_image_counts_before_the_deployment_s() -> None:
    assert image_of(model()) == ""
    assert image_of(model(image="a:1")) == "a:1"
    assert image_of(model(image="a:1", engine={"image": "b:2"})) == "b:2"
