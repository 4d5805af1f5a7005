"""What is refused before anything is made: with the field, the limit and what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airunway.plugins.host import ProviderHost
from airunway.runtime.translate import check_overrides
from airunway_testing.conformance.fields import Answer, outcomes

WORKERS: Any = {"prefill": {"replicas": 2, "gpu": {"count": 2}}, "decode": {"replicas": 4, "gpu": {"count": 4}}}
AMD: Any = {"gpu": {"count": 1, "type": "amd.com/gpu"}}


def overrides(**given: Any) -> dict[str, Any]:
    return {"provider": {"overrides": given}}


@pytest.mark.parametrize(
    ("fields", "engine", "path", "says"),
    [
        ({}, "sglang", "spec.engine.type", "KubeRay does not support sglang engine"),
        ({}, "llamacpp", "spec.engine.type", "KubeRay does not support llamacpp engine"),
        ({"resources": {}}, "vllm", "spec.resources.gpu.count", "KubeRay requires GPU (set resources.gpu.count > 0)"),
        ({"model": {"source": "custom"}, "image": "r/i:1"}, "vllm", "spec.model.source", "model.id"),
        ({"resources": AMD}, "vllm", "spec.resources.gpu.type", "set spec.image for amd.com/gpu"),
        ({"model": {"id": "o/m", "cache": {"mode": "Shared"}}}, "vllm", "spec.model.cache.mode", "storage.volumes"),
        ({"image": "r/ray-llm:2.43.0"}, "vllm", "spec.image", "build_openai_app, which needs 2.44"),
        ({"engine": {"image": "r/ray-llm:2.9.1"}}, "vllm", "spec.engine.image", "provider.overrides.rayVersion"),
        ({"engine": {"args": {"port": "1"}}}, "vllm", "spec.engine.args[port]", "AI Runway sets itself"),
        ({"engine": {"args": {"served-model-name": "x"}}}, "vllm", "spec.engine", "spec.model.servedName"),
        ({"engine": {"args": {"distributed-executor-backend": "mp"}}}, "vllm", "spec.engine", "on Ray only"),
        ({"engine": {"args": {"data-parallel-size": "2"}}}, "vllm", "spec.engine", "spec.scaling.replicas"),
        ({"engine": {"args": {"disable-log-stats": ""}}}, "vllm", "spec.engine", "metrics"),
        ({"engine": {"extraArgs": ["positional"]}}, "vllm", "spec.engine", "cannot be set by name"),
        ({"engine": {"args": {"tensor-parallel-size": "2"}}}, "vllm", "spec.engine.args", "gpu-workers has 1"),
        ({"engine": {"args": {"pipeline-parallel-size": "two"}}}, "vllm", "spec.engine.args", "two"),
        ({**overrides(autoscaling={})}, "vllm", "spec.provider.overrides.autoscaling", "maxReplicas must be there"),
        (
            {**overrides(autoscaling={"maxReplicas": 1}), "scaling": {"replicas": 2}},
            "vllm",
            "spec.provider.overrides.autoscaling",
            "at least scaling.replicas",
        ),
    ],
)
def test_refusals_name_the_field_and_what_to_do(
    host: ProviderHost, deployment: Any, context: Any, fields: Any, engine: str, path: str, says: str
) -> None:
    (found,) = host.can_handle(deployment(**fields), context(engine)).blockers
    assert found.path == path
    assert says in found.message


@pytest.mark.parametrize(
    ("fields", "path", "says"),
    [
        ({"image": "r/ray-llm:latest"}, "spec.image", "version of Ray in 'r/ray-llm:latest' is not known"),
        ({"image": "r/ray-llm:2.48.0"}, "spec.image", "build_pd_openai_app, which needs 2.49"),
        ({**overrides(autoscaling={"maxReplicas": 4})}, "spec.provider.overrides.autoscaling", "aggregated"),
        (
            {"scaling": {**WORKERS, "decode": {"replicas": 1, "gpu": {"count": 0}}}},
            "spec.scaling.decode.gpu.count",
            "set scaling.decode.gpu.count > 0",
        ),
        (
            {"scaling": {**WORKERS, "prefill": {"replicas": 0, "gpu": {"count": 2}}}},
            "spec.scaling.prefill.replicas",
            "spec.suspend",
        ),
        (
            {"engine": {"args": {"kv-transfer-config": "nixl"}}},
            "spec.engine.args[kv-transfer-config]",
            "must be a JSON object",
        ),
    ],
)
def test_refusals_of_split_serving(
    host: ProviderHost, split: Any, context: Any, fields: Any, path: str, says: str
) -> None:
    (found,) = host.can_handle(split(**fields), context()).blockers
    assert found.path == path
    assert says in found.message


def test_the_version_that_decides_can_be_said(host: ProviderHost, split: Any, context: Any) -> None:
    wanted = split(image="r/ray-llm:latest", **overrides(rayVersion="2.55.0"))
    assert host.can_handle(wanted, context()).blockers == ()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("n" * 47, None),
        ("n" * 48, "NameTooLong"),
        ("8b-llama", "IncompatibleConfiguration"),
        ("llama.8b", "IncompatibleConfiguration"),
        ("a", None),
    ],
)
def test_names_that_kuberay_does_not_take(
    host: ProviderHost, deployment: Any, context: Any, name: str, reason: str | None
) -> None:
    found = host.can_handle(deployment(name), context()).blockers
    assert [(f.path, f.reason) for f in found] == ([("metadata.name", reason)] if reason else [])


def test_zero_needs_a_kuberay_that_can_stop(host: ProviderHost, deployment: Any, context: Any) -> None:
    nothing = deployment(scaling={"replicas": 0})
    assert host.can_handle(nothing, context(release="1.7")).ok
    (found,) = host.can_handle(nothing, context(release="1.1")).blockers
    assert (found.path, "since 1.7" in found.message) == ("spec.scaling.replicas", True)


def test_a_ratio_that_nixl_refuses_is_warned_about(host: ProviderHost, split: Any, context: Any) -> None:
    larger = {"prefill": {"replicas": 1, "gpu": {"count": 4}}, "decode": {"replicas": 1, "gpu": {"count": 2}}}
    warned = host.can_handle(split(scaling=larger), context()).warnings
    assert [(w.path, w.reason) for w in warned] == [("spec.scaling.decode.gpu.count", "MayNotStart")]
    assert host.can_handle(split(), context()).warnings == ()


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"rayVersion": "latest"}, "rayVersion"),
        ({"rayVersion": 2}, "rayVersion"),
        ({"head": {"resources": {"cpu": "1000"}}}, "head.resources.cpu"),
        ({"head": {"rayStartParams": {"num-cpus": "$(reboot)"}}}, "head.rayStartParams.num-cpus"),
        ({"head": {"rayStartParams": {"num-cpus; reboot": "1"}}}, "head.rayStartParams"),
        ({"head": {"rayStartParams": {"num-cpus": 1}}}, "head.rayStartParams.num-cpus"),
        ({"autoscaling": {"maxReplicas": 33}}, "autoscaling.maxReplicas"),
        ({"spec": {"rayClusterConfig": {"autoscalerOptions": {"version": "v3"}}}}, "version"),
    ],
)
def test_overrides_of_a_wrong_kind_are_refused_by_their_path(host: ProviderHost, given: Any, path: str) -> None:
    """The head's parameters go through a shell of KubeRay's: nothing that one would look at gets there."""
    (found,) = check_overrides(given, host.manifest.override_schema).errors
    assert found.path.endswith(path)


@pytest.mark.parametrize(
    "given",
    [
        {"spec": {"serveConfigV2": "applications: []"}},
        {"spec": {"upgradeStrategy": {"type": "None"}}},
        {"spec": {"rayClusterConfig": {"workerGroupSpecs": []}}},
        {"head": {"replicas": 2}},
    ],
)
def test_overrides_that_nobody_knows_are_named_and_left_out(host: ProviderHost, given: Any) -> None:
    found = check_overrides(given, host.manifest.override_schema)
    assert len(found.unknown) == 1
    assert "passed over" in found.unknown[0].message


def test_every_field_is_honoured_refused_or_named(host: ProviderHost) -> None:
    found = list(outcomes(host))
    assert [outcome for outcome in found if outcome.answer is Answer.IGNORED] == []
    assert {outcome.base for outcome in found} == {
        "vllm",
        "vllm, own image",
        "vllm, 16 GPUs",
        "vllm, disaggregated, usual image",
    }


@pytest.mark.parametrize("flag", ["api-key", "ssl-certfile", "ssl-keyfile", "ssl_ca_certs", "middleware"])
def test_real_kuberay_3_a_flag_that_would_protect_and_does_not_is_refused(
    host: ProviderHost, deployment: Any, context: Any, flag: str
) -> None:
    """Ray's own ingress takes the requests, without authentication or TLS."""
    for engine in ({"args": {flag: "x"}}, {"extraArgs": [f"--{flag}=x"]}):
        (found,) = host.can_handle(deployment(engine=engine), context()).blockers
        assert found.reason == "ProtectsNothing"
        assert found.path.startswith("spec.engine.")
        runs = host.can_handle(deployment(engine=engine), context(first=True))
        assert runs.ok, "what runs is not taken away by an upgrade"
        assert "ProtectsNothing" in [w.reason for w in runs.warnings]


@pytest.mark.parametrize("flag", ["root-path", "allowed-origins", "uvicorn-log-level", "h11-max-header-count"])
def test_real_kuberay_3_other_flags_of_vllm_s_http_server_are_said_to_have_no_effect(
    host: ProviderHost, deployment: Any, context: Any, flag: str
) -> None:
    found = host.can_handle(deployment(engine={"args": {flag: "x"}}), context())
    assert found.ok
    assert [w.path for w in found.warnings] == [f"spec.engine.args[{flag}]"]


def test_real_kuberay_3_the_variable_is_refused_like_the_flag(
    host: ProviderHost, deployment: Any, context: Any
) -> None:
    wanted = deployment(env=[{"name": "VLLM_API_KEY", "value": "secret"}])
    (found,) = host.can_handle(wanted, context()).blockers
    assert (found.path, found.reason) == ("spec.env[0]", "ProtectsNothing")
    assert "secret" not in found.message


@pytest.mark.parametrize(
    ("image", "override", "says"),
    [
        ("rayproject/ray-llm:2.56.0-py312-cu130", "", "Ray Serve LLM's vLLM 0.22.0 has no --device-ids; 0."),
        ("mirror.example.org:5000/rayproject/ray-llm:2.56.1", "", "Ray Serve LLM's vLLM 0.22.0 has no --device-ids"),
        ("rayproject/ray-llm:2.58.1", "", ""),
        ("", "", "Ray Serve LLM's vLLM 0.22.0 has no --device-ids"),
        # Which vLLM these have stands in no wheel: what any release knows may be right.
        ("rayproject/ray-llm:2.55.1", "", ""),
        ("example.org/own:2.56.0", "", ""),
        ("example.org/own:one", "2.56.0", ""),
    ],
)
def test_options_are_judged_by_the_vllm_of_rays_own_image(
    host: ProviderHost, deployment: Any, context: Any, image: str, override: str, says: str
) -> None:
    fields: dict[str, Any] = {"image": image} if image else {}
    if override:
        fields["provider"] = {"overrides": {"rayVersion": override}}
    wanted = deployment(engine={"args": {"device-ids": "0"}}, **fields)
    found = told(host, wanted, context())
    assert bool(found) == bool(says)
    assert says in " ".join(found)
    typo = deployment(engine={"args": {"max-modl-len": "8"}}, **fields)
    (text,) = told(host, typo, context())
    assert "--max-modl-len; did you mean --max-model-len" in text or "(the nearest" in text


def told(host: ProviderHost, wanted: Any, context: Any) -> list[str]:
    """What is said about options that Ray's vLLM does not have; of the very release it is a refusal."""
    found = host.can_handle(wanted, context)
    refused = [f.message for f in found.blockers if f.path.startswith("spec.engine.args")]
    return refused + [f.message for f in found.warnings if f.reason == "UnknownArgument"]


@pytest.mark.parametrize(("value", "warned"), [("true", 0), ("false", 0), ("", 0), ("8", 1)])
def test_a_switch_is_a_keyword_argument_here_and_may_be_true_or_false(
    host: ProviderHost, deployment: Any, context: Any, value: str, warned: int
) -> None:
    wanted = deployment(engine={"args": {"enforce-eager": value}})
    assert len(told(host, wanted, context())) == warned


INGRESS = "spec.provider.overrides.ingressReplicas"


@pytest.mark.parametrize(
    ("asked", "most", "fields", "overrides"),
    [
        (7, 7, {}, {}),
        (8, 7, {}, {}),
        (32, 7, {}, {}),
        (32, 7, {"scaling": {"replicas": 0}}, {"autoscaling": {"maxReplicas": 8}}),
        (15, 14, {"scaling": {"replicas": 2}}, {}),
        (16, 15, {"resources": {"gpu": {"count": 1}, "cpu": "16"}}, {}),
        (8, 15, {}, {"head": {"rayStartParams": {"num-cpus": "8"}}}),
        (8, 7, {}, {"head": {"rayStartParams": {"num-cpus": "some"}}}),
    ],
)
def test_an_ingress_takes_no_gpus_beyond_those_requested(
    host: ProviderHost, deployment: Any, context: Any, asked: int, most: int, fields: Any, overrides: Any
) -> None:
    """Ray's autoscaler adds a worker, with its GPUs, for each ingress replica that finds no CPU."""
    wanted = deployment(provider={"overrides": {"ingressReplicas": asked, **overrides}}, **fields)
    found = [f.message for f in host.can_handle(wanted, context()).blockers if f.path == INGRESS]
    assert len(found) == (asked > most)
    assert all(f"set at most {most}, or more replicas" in message for message in found)
    runs = replace(context(), live_kind="RayService.ray.io", spec_changed=False)
    kept = host.can_handle(wanted, runs)
    assert INGRESS not in {f.path for f in kept.blockers}, "an upgrade of ours stops nothing"
    assert [f.reason for f in kept.warnings if f.path == INGRESS] == ["TakesMoreGPUs"] * len(found)
    edited = host.can_handle(wanted, replace(runs, spec_changed=True))
    assert len([f for f in edited.blockers if f.path == INGRESS]) == len(found)


@pytest.mark.parametrize(("image", "most"), [("r/ray-llm:2.50.0", 21), ("r/ray-llm:2.56.0", 42)])
def test_a_proxy_takes_as_many_cpus_as_the_ingress(
    host: ProviderHost, split: Any, context: Any, image: str, most: int
) -> None:
    """Six workers with 8 CPUs each, of which each replica of the model uses one; up to 2.54 there is a proxy."""
    wanted = split(provider={"overrides": {"ingressReplicas": 32}}, image=image)
    found = [f for f in host.can_handle(wanted, context()).blockers if f.path == INGRESS]
    assert bool(found) == (most < 32)


def test_where_nothing_counts_the_ingress_nothing_is_refused(host: ProviderHost, deployment: Any, context: Any) -> None:
    """The first transformer wrote no counts, and with an unknown release of Ray none are written."""
    many = {"provider": {"overrides": {"ingressReplicas": 32}}}
    assert host.can_handle(deployment(**many), context(first=True)).ok
    assert host.can_handle(deployment(image="r/ray-llm:latest", **many), context()).ok
