"""What a transformer with the feature `HARDENED` writes of pods, and that one without it writes what it wrote."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from airunway.resource import Resource
from airunway.runtime.translate import check_overrides
from airunway.sdk import (
    HARDENED,
    Context,
    RuntimeSettings,
    Transformer,
    Upstream,
    launch,
    model_pod,
    parse_deployment,
    picker,
    serving,
    workloads,
)
from airunway.validation import validate

MakeDeployment = Callable[..., Resource]
DROPPED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
FILTERED = {"seccompProfile": {"type": "RuntimeDefault"}}
IMAGE = "ghcr.io/llm-d/llm-d-router-endpoint-picker:v0.10.0"


def upstream(*features: str, kind: str = "") -> Upstream:
    made = Transformer(name="t", api_version="apps/v1", kind=kind, features=frozenset(features))
    return Upstream(api_version="apps/v1", transformer=made)


def context(*features: str, group: Upstream | None = None) -> Context[Any]:
    served = {workloads.LEADER_WORKER_SET.key: group} if group else {}
    now = datetime(2026, 11, 21, tzinfo=UTC)
    settings = serving.NodeSettings(gpus_per_node=1)
    return Context(engine="vllm", upstream=upstream(*features), served=served, settings=settings, now=now)


@pytest.fixture
def pod(plain: MakeDeployment) -> Callable[..., Resource]:
    def make(
        *features: str, calls_api: bool = False, runtime: RuntimeSettings | None = None, **fields: Any
    ) -> Resource:
        model = parse_deployment(plain(**fields))
        found = model_pod(
            model,
            replace(context(*features), runtime=runtime or RuntimeSettings()),
            launch(model, "vllm", port=8000, image="vllm/vllm-openai:v0.23.0"),
            calls_api=calls_api,
        )
        return dict(found["spec"])

    return make


def test_m1_a_hardened_pod_has_no_token_and_no_privileges(pod: Callable[..., Resource]) -> None:
    found = pod(HARDENED)
    assert found["automountServiceAccountToken"] is False
    assert found["securityContext"] == FILTERED
    assert found["containers"][0]["securityContext"] == DROPPED


def test_m1_an_account_that_is_named_keeps_its_token(pod: Callable[..., Resource]) -> None:
    assert "automountServiceAccountToken" not in pod(HARDENED, serviceAccountName="reader")
    assert "automountServiceAccountToken" not in pod(HARDENED, calls_api=True)
    assert pod(HARDENED, calls_api=True)["securityContext"] == FILTERED


def test_a_transformer_without_the_feature_writes_none_of_it(pod: Callable[..., Resource]) -> None:
    found = pod()
    assert not {"automountServiceAccountToken", "securityContext"} & found.keys()
    assert "securityContext" not in found["containers"][0]


@pytest.mark.parametrize(("gpus", "kind"), [(1, "Deployment"), (2, "LeaderWorkerSet")])
def test_a_plan_is_written_as_the_transformer_of_its_own_kind_says(plain: MakeDeployment, gpus: int, kind: str) -> None:
    """What exists keeps the transformer of its kind, whatever is newest of the other one."""
    model, role = parse_deployment(plain(resources={"gpu": {"count": gpus}})), serving.Servers(name="llama")
    newer_group = context(group=upstream(HARDENED))
    newer_deployment = context(HARDENED, group=upstream())
    assert role.object(model, newer_group.settings)[0] == kind
    expected = {"Deployment": (False, True), "LeaderWorkerSet": (True, False)}[kind]
    assert (
        HARDENED in serving.features(model, newer_group, role),
        HARDENED in serving.features(model, newer_deployment, role),
    ) == expected


def test_m1_all_pods_of_a_group_are_hardened(plain: MakeDeployment) -> None:
    model = parse_deployment(plain(resources={"gpu": {"count": 2}}))
    found = serving.workload(model, context(), serving.Servers(name="llama"), hardened=True)
    template = found["spec"]["leaderWorkerTemplate"]
    for which in ("leaderTemplate", "workerTemplate"):
        assert template[which]["spec"]["automountServiceAccountToken"] is False
        assert template[which]["spec"]["containers"][0]["securityContext"] == DROPPED


@pytest.mark.parametrize("hardened", [True, False])
def test_m1_a_hardened_picker_never_runs_as_root(plain: MakeDeployment, *, hardened: bool) -> None:
    model = parse_deployment(plain())
    pool = picker.pool_of(model, selector={"a": "b"}, port=8000)
    made = picker.objects(model, pool=pool, image=IMAGE, config="", hardened=hardened)
    (pod,) = [obj["spec"]["template"]["spec"] for obj in made if obj["kind"] == "Deployment"]
    user = {"runAsNonRoot": True} if hardened else {}
    assert pod["containers"][0]["securityContext"] == {**DROPPED, **user}
    assert pod.get("securityContext") == (FILTERED if hardened else None)
    assert "automountServiceAccountToken" not in pod, "a picker asks the API"
    (service,) = [obj["spec"] for obj in made if obj["kind"] == "Service"]
    assert "type" not in service, "an administrator may change it, and it stays (docs/admission.md)"


# ------------------------------------------------------------------------------------------------ what a user asks for


def test_m1_the_user_and_groups_that_are_asked_for_reach_the_pod(pod: Callable[..., Resource]) -> None:
    asked = {"runAsNonRoot": True, "runAsUser": 1001, "runAsGroup": 0, "fsGroup": 2000}
    found = pod(HARDENED, securityContext=asked)
    assert found["securityContext"] == {**FILTERED, **asked}
    assert found["containers"][0]["securityContext"] == DROPPED
    assert pod(securityContext=asked)["securityContext"] == asked, "by an older transformer too: the field is new"


def variables(found: Resource) -> dict[str, Any]:
    return {entry["name"]: entry.get("value") for entry in found["containers"][0].get("env", [])}


def test_m1_a_server_that_cannot_write_to_its_image_has_a_place_to_write(pod: Callable[..., Resource]) -> None:
    found = pod(HARDENED, securityContext={"readOnlyRootFilesystem": True})
    assert found["containers"][0]["securityContext"] == {**DROPPED, "readOnlyRootFilesystem": True}
    assert {"name": "airunway-tmp", "emptyDir": {}} in found["volumes"]
    assert {"name": "airunway-tmp", "mountPath": "/tmp"} in found["containers"][0]["volumeMounts"]
    assert variables(found) == {"HOME": "/tmp", "USER": "model"}


def test_a_volume_of_the_deployments_own_is_the_place_to_write(pod: Callable[..., Resource]) -> None:
    own = {"name": "scratch", "claimName": "scratch", "mountPath": "/tmp"}
    asked = {"readOnlyRootFilesystem": True}
    found = pod(HARDENED, securityContext=asked, model={"id": "o/m", "storage": {"volumes": [own]}})
    assert [mount for mount in found["containers"][0]["volumeMounts"] if mount["mountPath"] == "/tmp"] == [
        {"name": "scratch", "mountPath": "/tmp"}
    ]


HOME = {"HOME": "/tmp", "USER": "model"}


@pytest.mark.parametrize("asked", [{}, {"runAsUser": 1001}, {"runAsNonRoot": True}])
def test_every_engine_has_a_home_that_any_user_can_write_to(
    pod: Callable[..., Resource], asked: dict[str, object]
) -> None:
    """Also where the cluster assigns the user, which no field of the deployment says."""
    assert variables(pod(securityContext=asked)) == HOME
    own = [{"name": "HOME", "value": "/data"}]
    assert variables(pod(securityContext=asked, env=own)) == {**HOME, "HOME": "/data"}
    runtime = RuntimeSettings(env=({"name": "HOME", "value": "/config"},))
    assert variables(pod(securityContext=asked, runtime=runtime)) == {**HOME, "HOME": "/config"}


def test_a_home_that_the_user_mounts_or_a_model_image_has_stays(pod: Callable[..., Resource]) -> None:
    volume = {"name": "hub", "claimName": "hub", "mountPath": "/root/.cache/huggingface"}
    storage = {"id": "o/m", "storage": {"volumes": [volume]}}
    assert variables(pod(model=storage)) == {}
    assert variables(pod(model=storage, securityContext={"runAsUser": 1001})) == HOME, "it cannot read /root"
    assert variables(pod(model={"source": "custom"}, image="team/model")) == {}
    assert (
        variables(pod(model={"source": "custom"}, image="team/model", securityContext={"runAsNonRoot": True})) == HOME
    )


def test_m6_containers_of_a_pod_share_no_processes() -> None:
    """Code of a model could read what a mesh's or a vault's sidecar has in its memory and files."""
    shared = {"spec": {"template": {"spec": {"shareProcessNamespace": True}}}}
    (found,) = check_overrides(shared, serving.OVERRIDES).errors
    assert found.message == 'overriding "shareProcessNamespace" is not allowed for security reasons: remove it'
    assert validate(
        {
            "apiVersion": "airunway.ai/v1alpha1",
            "kind": "ModelDeployment",
            "metadata": {"name": "m"},
            "spec": {"model": {"id": "o/m"}, "provider": {"overrides": shared}},
        }
    )
