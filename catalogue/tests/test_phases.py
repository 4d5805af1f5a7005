"""The seven phases of a template with their order, the four parents, and the children (issue 23, point 1)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from catalogue.tests.world import MISSING, PRESENT, World, cause_of, template_of
from tests.support.memory import memory_of

from airunway.configs.resolution import resolve
from airunway.resource import Resource
from airunway.templates.choice import USABLE
from airunway.templates.limits import bound
from airunway_catalogue.gpu_models import GpuModels
from airunway_catalogue.hardware import HardwareFit, demand_of, find_hardware
from airunway_catalogue.nodes import inventory_of
from airunway_catalogue.template_state import CHILDREN

IMAGE = {"discovery": {"image": "registry.example/vllm:1"}}


def world(**spec: Any) -> World:
    return World(template=template_of(**spec))


def test_the_phases_of_a_life_come_in_their_order() -> None:
    found, seen = world(**IMAGE, runtimeConfigName="fast"), list[str]()

    def look() -> None:
        found.step()
        if not seen or seen[-1] != found.phase:
            seen.append(found.phase)

    found.facts["resolution"] = resolve("fast", namespaced=None, cluster=None)
    look()
    found.facts["resolution"] = resolve("default", namespaced=None, cluster=None)
    found.facts["hardware"] = MISSING
    look()
    found.facts["hardware"] = PRESENT
    found.template["status"] = found.decide().status  # begun, not made yet
    seen.append(found.phase)
    look()
    found.end(code=1)
    look()
    found.pass_time(minutes=1)
    look()
    found.end()
    look()
    found.template["spec"]["discovery"]["args"] = ["-v"]
    look()
    found.end(code=1)
    look()
    assert seen == [
        "Pending",
        "NotAvailable",
        "Starting",
        "Progressing",
        "Failed",
        "Progressing",
        "Ready",
        "Progressing",
        "Degraded",
    ]


@pytest.mark.parametrize("namespace", ["team", ""], ids=["ModelTemplate", "ClusterModelTemplate"])
@pytest.mark.parametrize(
    ("cause", "parent"),
    [
        ("ImageNotFound", "ConfigValid"),
        ("ImagePullAuthFailure", "AuthValid"),
        ("ImagePullBackOff", "DependenciesReachable"),
    ],
)
def test_the_four_parents_follow_the_categories_on_each_kind(namespace: str, cause: str, parent: str) -> None:
    found = world(namespace=namespace, **IMAGE)
    found.step()
    found.facts["cause"] = cause_of(cause)
    found.step()
    parents = {type_: found.condition(type_) for type_ in ("ConfigValid", "AuthValid", "DependenciesReachable")}
    assert {type_ for type_, (status, _) in parents.items() if status == "False"} == {parent}
    assert parents[parent] == ("False", cause)
    assert found.condition("Ready")[0] == "False"


def test_all_conditions_are_there_from_the_first_pass() -> None:
    found = world()
    found.step()
    assert [each["type"] for each in found.status["conditions"]] == [
        "AuthValid",
        "CacheReady",
        "ConfigValid",
        "DependenciesReachable",
        "DiscoveryReady",
        "HardwareReady",
        "Ready",
        "RuntimeConfigReady",
    ]


def test_too_few_cpus_are_not_available_too() -> None:
    found = world(hardware={"cpu": "64"})
    small = inventory_of([{"status": {"allocatable": {"cpu": "8"}}}])
    found.facts["hardware"] = find_hardware(demand_of(found.template), small, GpuModels(models=()))
    for _ in range(3):
        found.step()
        assert (found.phase, found.status["reason"]) == ("NotAvailable", "InsufficientCapacity")
        assert found.status["message"] == "no node has 64 CPUs: the largest node has 8 CPUs"
        found.pass_time(hours=1)


def test_missing_hardware_is_not_available_however_long_it_lasts_and_heals() -> None:
    found = world(hardware={"gpu": {"count": 2}})
    found.facts["hardware"] = MISSING
    for _ in range(3):
        found.step()
        assert (found.phase, found.status["reason"]) == ("NotAvailable", "GPUNotAvailable")
        assert found.status["message"] == MISSING.message
        found.pass_time(hours=1)
    assert found.status["hardware"] == {"resource": "amd.com/gpu", "nodes": 0, "summary": "0 of 2 x amd.com/gpu"}
    found.facts["hardware"] = PRESENT
    found.step()
    assert found.phase == "Ready"
    assert found.status["hardware"] == {
        "resource": "amd.com/gpu",
        "nodes": 1,
        "models": ["MI300X"],
        "tier": 53,
        "requirements": list(PRESENT.requirements),
        "summary": "2 x MI300X",
    }


def test_nodes_that_go_take_a_ready_template_away() -> None:
    found = world(hardware={"gpu": {"count": 2}}, **IMAGE)
    found.facts["hardware"] = PRESENT
    found.step()
    found.end()
    found.step()
    found.facts["hardware"] = MISSING
    found.step()
    assert (found.phase, found.condition("DiscoveryReady")) == ("NotAvailable", ("True", "Discovered"))
    assert found.status["profile"]


def test_the_second_pass_writes_nothing() -> None:
    for spec in ({}, IMAGE, {"hardware": {"gpu": {"count": 1}}}):
        found = world(**spec)
        found.step()
        writes = found.writes
        found.pass_time(seconds=20)
        found.step()
        assert found.writes == writes


# -------------------------------------------------------------------------------------------------------------- cache

CACHING = {"caching": {"enabled": True}}


def artifact(name: str, phase: str, reason: str = "") -> Resource:
    return {
        "metadata": {"name": name, "namespace": "team"},
        "status": {"phase": phase, "reason": reason or phase, "message": f"it is {phase}"},
    }


@pytest.mark.parametrize(
    ("artifacts", "phase", "condition", "summary"),
    [
        ([], "Ready", ("False", "WaitingForModelCache"), "0/1"),
        ([artifact("a", "Ready")], "Ready", ("True", "Warm"), "1/1"),
        (
            [artifact("b", "Progressing", "Downloading"), artifact("a", "Ready")],
            "Ready",
            ("False", "Downloading"),
            "1/2",
        ),
        ([artifact("a", "Degraded", "GatedModel")], "Degraded", ("False", "GatedModel"), "0/1"),
        ([artifact("a", "Failed", "VerificationFailed")], "Degraded", ("False", "VerificationFailed"), "0/1"),
        ([artifact("a", "Progressing", "RateLimited")], "Ready", ("False", "RateLimited"), "0/1"),
    ],
)
def test_weights_that_are_on_their_way_keep_nothing_back_and_faults_degrade(
    artifacts: list[Resource], phase: str, condition: tuple[str, str], summary: str
) -> None:
    found = world(**CACHING)
    names = tuple(each["metadata"]["name"] for each in artifacts) or ("a",)
    found.facts |= {"artifacts": tuple(artifacts), "kept": names}
    found.step()
    assert (found.phase, found.condition("CacheReady")) == (phase, condition)
    assert found.status["cache"]["summary"] == summary
    assert found.status["cache"]["artifacts"] == sorted(names)


def test_what_is_to_be_kept_may_not_be_known_yet() -> None:
    found = world(**CACHING, **IMAGE)
    found.step()
    assert found.condition("CacheReady") == ("False", "WaitingForModelCache")
    assert "cache" not in found.status


def test_a_cluster_template_keeps_no_weights() -> None:
    found = world(namespace="", **CACHING)
    found.step()
    assert found.condition("CacheReady") == ("True", "NotEnabled")
    assert "cache" not in found.status


def test_users_and_the_effective_config_are_in_the_status() -> None:
    config = {"metadata": {"name": "default", "namespace": "team"}, "spec": {}}
    found = world()
    found.facts |= {"users": 3, "resolution": resolve("default", namespaced=config, cluster=None)}
    found.step()
    assert found.status["usedBy"] == 3
    assert found.status["effectiveRuntimeConfig"]["namespaceRef"]["name"] == "default"
    assert found.condition("RuntimeConfigReady") == ("True", "ConfigFound")
    found.facts["users"] = None
    found.step()
    assert "usedBy" not in found.status


def test_a_template_that_is_being_deleted_is_left_alone() -> None:
    found = world(**IMAGE)
    found.template["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    decision = found.step()
    assert decision == replace(decision, status=None, create=None, delete=())
    assert found.writes == 0


S3 = [{"uri": "s3://bucket/m", "modelId": "acme/tiny"}]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        pytest.param({"modelSources": S3, "caching": {"enabled": True}}, "spec.modelSources: the weights", id="bucket"),
        pytest.param({"defaults": {"env": [{"name": "A", "value": "x" * 20_000}]}}, "spec.defaults: it", id="large"),
    ],
)
@pytest.mark.parametrize("hardware", [PRESENT, MISSING])
def test_a_template_that_no_deployment_can_use_has_an_invalid_spec(
    spec: Resource, why: str, hardware: HardwareFit
) -> None:
    found = world(namespace="", **spec)
    found.facts["hardware"] = hardware
    for _ in range(3):
        found.step()
        assert found.phase not in USABLE
        assert found.condition("ConfigValid") == ("False", "InvalidSpec")
        assert f"no deployment can use it: {why}" in found.message("ConfigValid")
        assert found.condition("Ready")[0] == "False"
        found.pass_time(hours=1)
    if hardware is PRESENT:
        assert (found.phase, found.status["reason"]) == ("Pending", "InvalidSpec")
    assert {each["type"] for each in found.status["conditions"]} >= {"ConfigValid", *CHILDREN}
    assert "Spec" not in {each["type"] for each in found.status["conditions"]}
    found.template["spec"] = {"modelName": "acme/tiny"}
    found.facts["hardware"] = PRESENT
    found.step()
    assert (found.phase, found.condition("ConfigValid")[0]) == ("Ready", "True"), "an edit heals it"


def test_weights_that_discovery_finds_in_a_bucket_make_a_cluster_template_unusable_at_once() -> None:
    found, seen = world(namespace="", **IMAGE), set[str]()
    found.step()
    found.end(output=json.dumps({"profile": {"a": 1}, "modelSources": S3}))
    while (status := found.decide().status) != found.template["status"]:
        assert status is not None
        found.template["status"] = status
        seen.add(found.phase)
    assert seen == {"Failed"}, "it is Ready at no moment"
    assert found.condition("ConfigValid") == ("False", "InvalidSpec")
    own = world(**IMAGE, caching={"enabled": True})
    own.step()
    own.end(output=json.dumps({"profile": {"a": 1}, "modelSources": S3}))
    own.step()
    assert own.phase == "Ready", "a namespaced one keeps them in a ModelArtifact"


def test_fields_that_are_ignored_are_in_the_message() -> None:
    found = world(defaults={"provider": {"name": "kaito"}, "gateway": {"enabled": True}})
    found.step()
    assert (found.phase, found.condition("ConfigValid")[0]) == ("Ready", "True")
    assert found.status["message"] == (
        "The template can be used; spec.defaults.gateway: a template cannot give this: it is ignored; "
        "spec.defaults.provider.name: a template cannot give this: it is ignored"
    )


def test_a_template_over_the_limits_says_so_and_its_image_is_not_asked() -> None:
    found = world(**IMAGE, defaults={"affinity": {"x": [{}] * 450_000}})
    found.template = bound(found.template)
    found.step()
    assert not found.created
    assert "spec.defaults.affinity" in found.template["status"]["message"]
    assert "larger than 32 KiB" in found.template["status"]["message"]
    assert found.template["status"]["reason"] == "InvalidSpec"
    for type_, status, unknown in (
        ("HardwareReady", "Unknown", "what hardware it needs is not known"),
        ("DiscoveryReady", "False", "no image is asked"),
        ("CacheReady", "Unknown", "it keeps no weights warm"),
    ):
        assert found.condition(type_) == (status, "InvalidSpec"), "what is not read is not said to be absent"
        assert found.message(type_) == f"the spec is too large to be read: {unknown}"
    assert (found.phase, "cache" in found.status, "hardware" in found.status) == ("Pending", False, False)
    assert memory_of(found.template) < 32 * 2**10
