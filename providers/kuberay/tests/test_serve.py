"""``serveConfigV2``: what Ray Serve LLM is told, and that every reader of YAML is told the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from airunway.plugins.host import ProviderHost
from airunway.resource import Resource


def application(service: Resource) -> Resource:
    (found,) = yaml.load(service["spec"]["serveConfigV2"], Loader=yaml.CSafeLoader)["applications"]
    assert (found["name"], found["route_prefix"]) == ("llm", "/")
    result: Resource = found
    return result


def test_aggregated_is_one_model_of_the_openai_app(deployment: Any, context: Any, service: Any) -> None:
    wanted = deployment(
        engine={
            "contextLength": 8192,
            "trustRemoteCode": True,
            "enablePrefixCaching": False,
            "enforceEager": True,
            "args": {"gpu-memory-utilization": "0.9", "dtype": "bfloat16"},
            "extraArgs": ["--seed", "7", "--quantization=awq"],
        },
        resources={"gpu": {"count": 4}},
        scaling={"replicas": 2},
    )
    found = application(service(wanted, context()))
    assert found["import_path"] == "ray.serve.llm:build_openai_app"
    (model,) = found["args"]["llm_configs"]
    assert model["model_loading_config"] == {
        "model_id": "Llama-3.1-8B-Instruct",
        "model_source": "meta-llama/Llama-3.1-8B-Instruct",
    }
    assert model["engine_kwargs"] == {
        "max_model_len": 8192,
        "trust_remote_code": True,
        "enable_prefix_caching": False,
        "enforce_eager": True,
        "tensor_parallel_size": 4,
        "gpu_memory_utilization": 0.9,
        "dtype": "bfloat16",
        "seed": 7,
        "quantization": "awq",
    }
    assert model["deployment_config"] == {"num_replicas": 1}, (
        "constant: any byte of the arguments restarts all replicas"
    )
    assert found["deployments"] == [
        {"name": "LLMServer:Llama-3_1-8B-Instruct", "autoscaling_config": {"min_replicas": 2, "max_replicas": 2}},
        {"name": "OpenAiIngress", "autoscaling_config": {"min_replicas": 2, "max_replicas": 2}},
    ]


def test_disaggregated_is_two_models_under_one_name(split: Any, context: Any, service: Any) -> None:
    found = application(service(split(), context()))
    assert found["import_path"] == "ray.serve.llm:build_pd_openai_app"
    prefill, decode = found["args"]["prefill_config"], found["args"]["decode_config"]
    assert prefill["model_loading_config"] == decode["model_loading_config"]
    assert prefill["deployment_config"] == decode["deployment_config"] == {"num_replicas": 1}
    assert found["deployments"] == [
        {"name": "Prefill:Llama-3_1-8B-Instruct", "autoscaling_config": {"min_replicas": 2, "max_replicas": 2}},
        {"name": "Decode:Llama-3_1-8B-Instruct", "autoscaling_config": {"min_replicas": 4, "max_replicas": 4}},
        {"name": "OpenAiIngress", "autoscaling_config": {"min_replicas": 4, "max_replicas": 4}},
    ]
    nixl = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}
    assert prefill["engine_kwargs"] == {"tensor_parallel_size": 2, "kv_transfer_config": nixl}
    assert decode["engine_kwargs"] == {"tensor_parallel_size": 4, "kv_transfer_config": nixl}


def test_another_connector_is_taken_as_it_is(split: Any, context: Any, service: Any) -> None:
    transfer = {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}
    wanted = split(engine={"args": {"kv-transfer-config": json.dumps(transfer)}})
    found = application(service(wanted, context()))["args"]
    assert found["prefill_config"]["engine_kwargs"]["kv_transfer_config"] == transfer


def test_autoscaling_is_between_the_replicas_and_the_most(deployment: Any, context: Any, service: Any) -> None:
    scales = {"maxReplicas": 8, "targetOngoingRequests": 16}
    wanted = deployment(scaling={"replicas": 2}, provider={"overrides": {"autoscaling": scales}})
    found = application(service(wanted, context()))
    bounds = {"min_replicas": 2, "max_replicas": 8, "target_ongoing_requests": 16}
    assert {part["name"]: part["autoscaling_config"] for part in found["deployments"]} == {
        "LLMServer:Llama-3_1-8B-Instruct": bounds,
        "OpenAiIngress": bounds,
    }
    (model,) = found["args"]["llm_configs"]
    assert model["deployment_config"] == {"num_replicas": 1}


SPLIT: dict[str, Any] = {
    "prefill": {"replicas": 1, "gpu": {"count": 1}},
    "decode": {"replicas": 1, "gpu": {"count": 2}},
}


def scaled(**counts: int) -> dict[str, Any]:
    return {"scaling": {role: {**SPLIT[role], "replicas": count} for role, count in counts.items()}}


SCALED: dict[str, list[dict[str, Any]]] = {
    "replicas": [{"scaling": {"replicas": count}} for count in (1, 2, 32, 0)],
    "autoscaling": [
        {"scaling": {"replicas": least}, "provider": {"overrides": {"autoscaling": wish}}}
        for least, wish in (
            (1, {"maxReplicas": 4}),
            (2, {"maxReplicas": 9, "targetOngoingRequests": 7}),
            (0, {"maxReplicas": 2}),
        )
    ]
    + [{}, {"provider": {"overrides": {"ingressReplicas": 5}}}],
    "prefill and decode": [
        {"serving": {"mode": "disaggregated"}, "resources": None, **scaled(prefill=p, decode=d)}
        for p, d in ((1, 1), (3, 1), (2, 4))
    ],
}


@pytest.mark.parametrize("image", ["2.44.1", "2.47.1", "2.49.2", "2.50.1", "2.52.0", "2.55.1", "2.56.0", "2.60.0"])
@pytest.mark.parametrize("what", SCALED)
def test_real_kuberay_1_a_change_of_replicas_leaves_the_arguments_alone(
    deployment: Any, context: Any, service: Any, what: str, image: str
) -> None:
    """Ray hashes them: one byte stops every replica and the ingress (seen on real Ray; its log lies beside)."""
    if what == "prefill and decode" and image < "2.49":
        pytest.skip("has no builder for it")
    found = [
        application(service(deployment(**fields, image=f"r/ray-llm:{image}"), context())) for fields in SCALED[what]
    ]
    assert len({json.dumps(app["args"]) for app in found}) == 1
    assert len({json.dumps(app["deployments"]) for app in found}) > 1, "and the counts stand elsewhere"
    assert all(app["import_path"] == found[0]["import_path"] for app in found)


@pytest.mark.parametrize("counts", [{"scaling": {"replicas": 1}}, {"scaling": {"replicas": 2}}])
def test_real_kuberay_1_the_first_transformer_wrote_counts_into_them(
    deployment: Any, context: Any, service: Any, counts: Any
) -> None:
    """What runs keeps it until it is adopted."""
    found = application(service(deployment(**counts), context(first=True)))
    (model,) = found["args"]["llm_configs"]
    assert "deployments" not in found
    assert model["deployment_config"] == {"num_replicas": counts["scaling"]["replicas"]}


def parts(app: Resource) -> dict[str, Resource]:
    return {part["name"]: {k: v for k, v in part.items() if k != "name"} for part in app["deployments"]}


@pytest.mark.parametrize(
    ("image", "model", "ingress"),
    [
        ("2.44.1", "LLMDeployment:", "LLMRouter"),
        ("2.46.0", "LLMDeployment:", "LLMRouter"),
        ("2.47.1", "LLMDeployment", "LLMRouter"),
        ("2.48.0", "LLMDeployment", "LLMRouter"),
        ("2.49.2", "LLMServer:", "LLMRouter"),
        ("2.50.1", "LLMServer:", "OpenAiIngress"),
        ("2.56.0", "LLMServer:", "OpenAiIngress"),
        ("2.60.0", "LLMServer:", "OpenAiIngress"),
    ],
)
def test_real_kuberay_1_deployments_are_called_as_the_release_of_ray_calls_them(
    deployment: Any, context: Any, service: Any, image: str, model: str, ingress: str
) -> None:
    wanted = deployment(image=f"r/ray-llm:{image}", model={"id": "o/m", "servedName": "team/m-1.5"})
    assert list(parts(application(service(wanted, context())))) == [f"{model}team--m-1_5", ingress]


@pytest.mark.parametrize(("image", "proxy"), [("2.49.2", True), ("2.54.1", True), ("2.55.1", False), ("2.56.0", False)])
def test_real_kuberay_8_what_stands_between_prefill_and_decode_scales_with_them(
    split: Any, context: Any, service: Any, image: str, proxy: bool
) -> None:
    found = parts(application(service(split(image=f"r/ray-llm:{image}"), context())))
    four = {"autoscaling_config": {"min_replicas": 4, "max_replicas": 4}}
    assert found.get("PDProxyServer") == (four if proxy else None)
    assert four in (found.get("LLMRouter"), found.get("OpenAiIngress"))


def test_real_kuberay_2_autoscaling_has_a_target_in_any_case(deployment: Any, context: Any, service: Any) -> None:
    """Ray Serve LLM's own since 2.53 is a thousand million: it never scales."""
    wish = {"provider": {"overrides": {"autoscaling": {"maxReplicas": 4}}}}
    for settings, target in (({}, 2), ({"targetOngoingRequests": 12}, 12)):
        for image in ("2.44.1", "2.56.0"):
            wanted = deployment(**wish, image=f"r/ray-llm:{image}")
            for part in parts(application(service(wanted, context(**settings)))).values():
                assert part["autoscaling_config"]["target_ongoing_requests"] == target
    (model,) = application(service(deployment(**wish, image="ray-llm:latest"), context()))["args"]["llm_configs"]
    assert model["deployment_config"]["autoscaling_config"]["target_ongoing_requests"] == 2, "Ray's release is unknown"


def test_real_kuberay_7_replicas_have_an_effect_where_ray_scales_by_itself(
    deployment: Any, context: Any, service: Any
) -> None:
    """The class of 2.44 to 2.49 has autoscaling of its own, from 1 to 10, over which no number wins."""
    for image in ("2.44.1", "2.49.2", "2.50.1"):
        made = service(deployment(image=f"r/ray-llm:{image}", scaling={"replicas": 3}), context())
        model, *_ = parts(application(made)).values()
        assert model == {"autoscaling_config": {"min_replicas": 3, "max_replicas": 3}}


def test_real_kuberay_1_every_part_always_says_something_of_autoscaling(
    deployment: Any, split: Any, context: Any, service: Any
) -> None:
    """Ray 2.56 hashes how many do: where a number stood before, turning autoscaling on replaced every replica."""
    for wanted in (deployment(), deployment(**SCALED_UP), split()):
        app = application(service(wanted, context()))
        assert [sorted(part) for part in app["deployments"]] == [["autoscaling_config", "name"]] * len(
            app["deployments"]
        )
        assert not any("policy" in part["autoscaling_config"] for part in app["deployments"])


SCALED_UP: Resource = {"provider": {"overrides": {"autoscaling": {"maxReplicas": 4}}}}


def test_real_kuberay_8_requests_are_taken_by_as_many_as_there_are_replicas(
    deployment: Any, context: Any, service: Any
) -> None:
    for fields, takes in (
        ({"scaling": {"replicas": 6}}, {"min_replicas": 6, "max_replicas": 6}),
        (
            {"scaling": {"replicas": 6}, "provider": {"overrides": {"ingressReplicas": 2}}},
            {"min_replicas": 2, "max_replicas": 2},
        ),
    ):
        found = parts(application(service(deployment(**fields), context())))
        assert found["OpenAiIngress"]["autoscaling_config"] == takes


HOSTILE = st.text(
    st.characters(codec="utf-8") | st.sampled_from("\x7f\x85\u2028\u2029\ufeff\ufffe\uffff#'\"\\{}[]:$%!&*"),
    max_size=40,
)


@example(model="", served="", value="1E16")
@example(model="", served='"1e5', value="-1e-7")
@given(model=HOSTILE, served=HOSTILE, value=HOSTILE)
def test_hostile_texts_arrive_as_they_were_written(
    host: ProviderHost, deployment: Any, context: Any, model: str, served: str, value: str
) -> None:
    """What KubeRay's reader of YAML takes, a reader of JSON takes too; nothing is expanded on the way."""
    wanted = deployment(model={"id": f"o/{model}", "servedName": f"s{served}"}, engine={"args": {"revision": value}})
    text = host.translate_spec(wanted, context()).objects[0]["spec"]["serveConfigV2"]
    found = yaml.load(text, Loader=yaml.CSafeLoader)
    assert found == json.loads(text)
    (config,) = found["applications"][0]["args"]["llm_configs"]
    assert config["model_loading_config"] == {"model_id": f"s{served}", "model_source": f"o/{model}"}
    assert not any(0x7F <= ord(char) <= 0x9F for char in text)


@pytest.mark.parametrize("text", ["1e3", "0o7", "yes", "~", "2026-01-01", "=", "<<", "!!int 3", "$(rm -rf /)", "a: b"])
def test_words_that_yaml_reads_otherwise_stay_texts(deployment: Any, context: Any, service: Any, text: str) -> None:
    found = application(service(deployment(model={"id": text, "servedName": text}), context()))
    assert found["args"]["llm_configs"][0]["model_loading_config"] == {"model_id": text, "model_source": text}
