"""``serveConfigV2``: what Ray Serve LLM is told, and that every reader of YAML is told the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from airunway.plugins.host import ProviderHost
from airunway.resource import Resource


def application(service: Resource) -> Resource:
    (found,) = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"]
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
    assert model["deployment_config"] == {"num_replicas": 2}


def test_disaggregated_is_two_models_under_one_name(split: Any, context: Any, service: Any) -> None:
    found = application(service(split(), context()))
    assert found["import_path"] == "ray.serve.llm:build_pd_openai_app"
    prefill, decode = found["args"]["prefill_config"], found["args"]["decode_config"]
    assert prefill["model_loading_config"] == decode["model_loading_config"]
    assert prefill["deployment_config"] == {"num_replicas": 2}
    assert decode["deployment_config"] == {"num_replicas": 4}
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
    (model,) = application(service(wanted, context()))["args"]["llm_configs"]
    bounds = {"min_replicas": 2, "max_replicas": 8, "target_ongoing_requests": 16}
    assert model["deployment_config"] == {"autoscaling_config": bounds}


HOSTILE = st.text(
    st.characters(codec="utf-8") | st.sampled_from("\x7f\x85\u2028\u2029\ufeff\ufffe\uffff#'\"\\{}[]:$%!&*"),
    max_size=40,
)


@given(model=HOSTILE, served=HOSTILE, value=HOSTILE)
def test_hostile_texts_arrive_as_they_were_written(
    host: ProviderHost, deployment: Any, context: Any, model: str, served: str, value: str
) -> None:
    """What KubeRay's reader of YAML takes, a reader of JSON takes too; nothing is expanded on the way."""
    wanted = deployment(model={"id": f"o/{model}", "servedName": f"s{served}"}, engine={"args": {"revision": value}})
    text = host.translate_spec(wanted, context()).objects[0]["spec"]["serveConfigV2"]
    found = yaml.safe_load(text)
    assert found == json.loads(text)
    (config,) = found["applications"][0]["args"]["llm_configs"]
    assert config["model_loading_config"] == {"model_id": f"s{served}", "model_source": f"o/{model}"}
    assert not any(0x7F <= ord(char) <= 0x9F for char in text)


@pytest.mark.parametrize("text", ["1e3", "0o7", "yes", "~", "2026-01-01", "=", "<<", "!!int 3", "$(rm -rf /)", "a: b"])
def test_words_that_yaml_reads_otherwise_stay_texts(deployment: Any, context: Any, service: Any, text: str) -> None:
    found = application(service(deployment(model={"id": text, "servedName": text}), context()))
    assert found["args"]["llm_configs"][0]["model_loading_config"] == {"model_id": text, "model_source": text}
