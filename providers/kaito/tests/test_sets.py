"""Several replicas: an InferenceSet and the Service that it lacks, where the cluster serves InferenceSets."""

from dataclasses import replace
from typing import Any

import pytest

from airunway.api.names import API_VERSION
from airunway.plugins.host import assumed_context
from airunway.plugins.registry import load
from airunway.resource import Resource
from airunway.runtime.translate import parsed, translate
from airunway.sdk import Context
from airunway_kaito.compatibility import compatibility as can_handle
from airunway_kaito.manifest import INFERENCE_SET, WORKSPACE
from airunway_kaito.objects import desired
from airunway_testing.conformance.cases import NOW

THREE = {"replicas": 3}


def kinds(objects: list[Resource]) -> list[str]:
    return [obj["kind"] for obj in objects]


def test_a_preset_has_all_that_its_workspace_would_have(vllm: Any, context: Any) -> None:
    token = {"huggingFaceToken": "hf-token"}
    (workspace, _) = desired(vllm(secrets=token), context(partition=True)).objects
    written, config, service = desired(vllm(scaling=THREE, secrets=token), context(sets="0.12", partition=True)).objects
    assert (written["apiVersion"], written["kind"]) == ("kaito.sh/v1beta1", "InferenceSet")
    assert written["metadata"] == workspace["metadata"]
    # On the InferenceSet itself: on its Workspaces alone it would wait for benchmarks for ever.
    assert written["metadata"]["annotations"]["kaito.sh/disable-benchmark"] == "true"
    assert written["spec"] == {
        "replicas": 3,
        "labelSelector": workspace["resource"]["labelSelector"],
        "template": {
            "resource": {"partition": workspace["resource"]["partition"]},
            "inference": workspace["inference"],
        },
    }
    assert written["spec"]["template"]["inference"]["config"] == config["metadata"]["name"]
    assert service["metadata"]["name"] == "llama-8b"
    assert service["spec"]["ports"] == [{"name": "http", "port": 80, "targetPort": 5000, "protocol": "TCP"}]


def test_the_service_is_called_like_a_workspaces_and_reaches_the_first_pod_of_every_replica(
    vllm: Any, context: Any
) -> None:
    service = desired(vllm(scaling=THREE), context(sets="0.12")).objects[-1]
    assert service["spec"]["selector"] == {
        "inferenceset.kaito.sh/created-by": "llama-8b",
        "apps.kubernetes.io/pod-index": "0",
    }


def test_a_template_needs_no_configuration_and_runs_no_benchmark(llamacpp: Any, context: Any) -> None:
    written, service = desired(llamacpp(scaling=THREE), context("llamacpp", sets="0.12")).objects
    assert kinds([written, service]) == ["InferenceSet", "Service"]
    assert "annotations" not in written["metadata"]
    (container,) = written["spec"]["template"]["inference"]["template"]["spec"]["containers"]
    assert container["image"] == "ghcr.io/sozercan/llama-cpp-runner:latest"
    assert written["spec"]["labelSelector"]["matchLabels"] == {"kubernetes.io/os": "linux"}


def test_a_machine_that_kaito_makes_stands_in_the_template(vllm: Any, context: Any) -> None:
    machine = {"nodeProvisioner": "karpenter", "instanceType": "gpu-8"}
    for sets in ("0.11", "0.12"):
        ctx = context(sets=sets, **machine)
        assert can_handle(vllm(scaling=THREE), ctx).ok
        written = desired(vllm(scaling=THREE), ctx).objects[0]
        assert written["spec"]["template"]["resource"] == {"instanceType": "gpu-8"}


SET, SPACE = "InferenceSet", "Workspace"


@pytest.mark.parametrize(
    ("replicas", "live", "kinds_by_setting"),
    [
        (1, "", {"Auto": SET, "Always": SET, "WhenScaled": SPACE}),
        (3, "", {"Auto": SET, "Always": SET, "WhenScaled": SET}),
        (0, "", {"Auto": SET, "Always": SET, "WhenScaled": SET}),
        # What runs keeps its kind for as long as that has so many replicas.
        (1, WORKSPACE.key, {"Auto": SPACE, "Always": SPACE, "WhenScaled": SPACE}),
        (3, WORKSPACE.key, {"Auto": SET, "Always": SET, "WhenScaled": SET}),
        (1, INFERENCE_SET.key, {"Auto": SET, "Always": SET, "WhenScaled": SET}),
        (0, INFERENCE_SET.key, {"Auto": SET, "Always": SET, "WhenScaled": SET}),
    ],
)
def test_a_new_deployment_is_what_can_be_scaled_and_what_runs_keeps_its_kind(
    vllm: Any, context: Any, replicas: int, live: str, kinds_by_setting: dict[str, str]
) -> None:
    deployment = vllm(scaling={"replicas": replicas})
    for setting, kind in kinds_by_setting.items():
        served = context(sets="0.12", live=live, inferenceSet=setting)
        assert desired(deployment, served).objects[0]["kind"] == kind, setting
        assert can_handle(deployment, served).ok, setting
        assert desired(deployment, context(live=live, inferenceSet=setting)).objects[0]["kind"] == SPACE


@pytest.mark.parametrize(
    ("sets", "overrides", "settings", "name"),
    [
        ("0.11", {}, {}, "llama-8b"),  # takes no nodes that exist
        ("0.12", {"resource": {"preferredNodes": ["gpu-1"]}}, {}, "llama-8b"),
        ("0.12", {}, {}, "m" * 47),
    ],
    ids=["nodes", "preferred", "name"],
)
def test_one_replica_that_an_inferenceset_cannot_run_is_a_workspace(
    vllm: Any, context: Any, sets: str, overrides: Resource, settings: Resource, name: str
) -> None:
    deployment = vllm(provider={"overrides": overrides})
    deployment = deployment.model_copy(update={"metadata": deployment.metadata.model_copy(update={"name": name})})
    auto, always = (context(sets=sets, inferenceSet=setting, **settings) for setting in ("Auto", "Always"))
    assert desired(deployment, auto).objects[0]["kind"] == SPACE
    assert can_handle(deployment, auto).ok
    assert not can_handle(deployment, always).ok, "refused where an administrator wants nothing else"


def test_the_outage_of_scaling_a_workspace_is_named_before_and_with_the_change(vllm: Any, context: Any) -> None:
    """A warning while it runs; with the change the plan, and so `airunway diff`, the message and the event."""
    runs = context(sets="0.12", live=WORKSPACE.key)
    (warned,) = [each for each in can_handle(vllm(), runs).warnings if each.reason == "ScalingInterrupts"]
    assert "no model is served until" in warned.message
    assert "create a second deployment" in warned.message
    assert not any(each.reason == "ScalingInterrupts" for each in can_handle(vllm(), context(sets="0.12")).warnings)
    assert not any(
        each.reason == "ScalingInterrupts" for each in can_handle(vllm(), context(live=WORKSPACE.key)).warnings
    )
    before, after = (desired(vllm(scaling={"replicas": n}), runs).interrupts["kind"] for n in (1, 3))
    assert before.value != after.value
    assert "no model is served until" in after.message


def test_what_runs_as_a_workspace_is_written_alike_before_and_after_inferencesets_appear(
    vllm: Any, context: Any
) -> None:
    assert (
        desired(vllm(), context(live=WORKSPACE.key)).objects
        == desired(vllm(), context(sets="0.12", live=WORKSPACE.key)).objects
    )


def test_an_inferenceset_goes_by_the_release_that_wrote_it(vllm: Any, context: Any) -> None:
    """Kept in 0.11's way while Workspaces are written in 0.12's: no partition, which came later."""
    machine = {"nodeProvisioner": "karpenter", "instanceType": "gpu-8"}
    overrides = {"overrides": {"resource": {"partition": {"mode": "accelerator", "count": 1}}}}
    deployment = vllm(scaling=THREE, provider=overrides)
    assert not can_handle(deployment, context(sets="0.11", **machine)).ok
    assert can_handle(vllm(scaling=THREE), context(sets="0.11", **machine)).ok


def refused(deployment: Any, ctx: Context[Any]) -> dict[str, str]:
    return {finding.path: finding.message for finding in can_handle(deployment, ctx).blockers}


def test_without_inferencesets_several_replicas_are_refused_with_what_would_help(vllm: Any, context: Any) -> None:
    text = refused(vllm(scaling=THREE), context())["spec.scaling.replicas"]
    assert text.startswith("replicas is 3, but a KAITO Workspace serves exactly one replica")
    assert "InferenceSet v1beta1 (KAITO 0.11)" in text


def test_kaito_0_11_has_no_inferencesets_on_nodes_that_exist(vllm: Any, context: Any) -> None:
    found = refused(vllm(scaling=THREE), context(sets="0.11"))
    assert list(found) == ["spec.scaling.replicas"]
    assert "since KAITO 0.12" in found["spec.scaling.replicas"]


@pytest.mark.parametrize(("scaling", "longest"), [(THREE, 46), ({"replicas": 1}, 52)])
def test_a_name_that_leaves_no_room_for_the_pods_is_refused(
    vllm: Any, context: Any, scaling: Resource, longest: int
) -> None:
    """A StatefulSet with more than 52 letters gets no pods, and nobody says so where a user would look."""

    def named(name: str) -> Any:
        deployment = vllm(scaling=scaling)
        return deployment.model_copy(update={"metadata": deployment.metadata.model_copy(update={"name": name})})

    long = refused(named("m" * (longest + 1)), context(sets="0.12"))
    assert f"leaves room for {longest}" in long["metadata.name"]
    assert can_handle(named("m" * longest), context(sets="0.12")).ok


def judged(overrides: Resource, replicas: int, *, live: str = "") -> Any:
    host = load("kaito")
    deployment = {
        "apiVersion": API_VERSION,
        "kind": "ModelDeployment",
        "metadata": {"name": "m", "namespace": "n", "uid": "u"},
        "spec": {
            "model": {"id": "o/m"},
            "resources": {"gpu": {"count": 1}},
            "scaling": {"replicas": replicas},
            "provider": {"overrides": overrides},
        },
        "status": {"engine": {"type": "vllm"}},
    }
    context = replace(assumed_context(host, engine="vllm", now=NOW), live_kind=live)
    return translate(host, deployment, parsed(deployment), context)


def test_overrides_are_written_as_for_a_workspace_and_arrive_where_an_inferenceset_has_them() -> None:
    overrides = {
        "resource": {
            "labelSelector": {"matchLabels": {"pool": "a", "nvidia.com/gpu.present": None}},
            "partition": {"mode": "accelerator", "count": 2},
        },
        "inference": {"preset": {"name": "other"}},
    }
    one, three = judged(overrides, 1, live=WORKSPACE.key), judged(overrides, 3)
    assert (one.blockers, three.blockers) == ((), ())
    workspace, spec = one.objects[0], three.objects[0]["spec"]
    assert spec["labelSelector"] == workspace["resource"]["labelSelector"] == {"matchLabels": {"pool": "a"}}
    assert spec["template"]["resource"] == {"partition": workspace["resource"]["partition"]}
    assert spec["template"]["inference"]["preset"] == workspace["inference"]["preset"] == {"name": "other"}
    assert set(three.objects[0]) == {"apiVersion", "kind", "metadata", "spec"}


def test_preferred_nodes_have_no_place_in_an_inferenceset() -> None:
    overrides = {"resource": {"preferredNodes": ["gpu-1"]}}
    assert judged(overrides, 1).blockers == ()
    assert [found.path for found in judged(overrides, 3).blockers] == [
        "spec.provider.overrides.resource.preferredNodes"
    ]


@pytest.mark.parametrize("live", ["", WORKSPACE.key])
def test_what_follows_the_load_is_an_inferenceset_from_the_start(vllm: Any, context: Any, live: str) -> None:
    deployment = vllm(scaling={"autoscaling": {"maxReplicas": 2, "target": 16}})
    served = context(sets="0.12", live=live, inferenceSet="WhenScaled")
    assert desired(deployment, served).objects[0]["kind"] == "InferenceSet"
    assert can_handle(deployment, served).ok
    assert "InferenceSet v1beta1" in refused(deployment, context(live=live))["spec.scaling.autoscaling"]
