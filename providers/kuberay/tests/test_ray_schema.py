"""Ray's own classes accept what is written into ``serveConfigV2``: of Ray Serve, and of Ray Serve LLM.

They come with the dependency group `ray`, which is large; without it these tests skip (``make test-ray`` runs them in
an environment of their own). The arguments of an application as a whole are known to ``ray.serve.llm`` alone, which
needs vLLM and with it CUDA: so each model in them is held against ``LLMConfig``, the class of both builders' models.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest
import yaml

from airunway.resource import Resource

pytestmark = [
    pytest.mark.skipif(
        find_spec("ray") is None or find_spec("pyarrow") is None,
        reason="needs ray[serve] and pyarrow: make test-ray",
    ),
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]

SPLIT: Resource = {
    "serving": {"mode": "disaggregated"},
    "scaling": {"prefill": {"replicas": 2, "gpu": {"count": 1}}, "decode": {"replicas": 1, "gpu": {"count": 2}}},
}
CASES: dict[str, Resource] = {
    "plain": {},
    "arguments": {"engine": {"contextLength": 8192, "args": {"dtype": "bfloat16", "enforce-eager": ""}}},
    "several": {"resources": {"gpu": {"count": 8}}, "scaling": {"replicas": 3}},
    "stages": {
        "resources": {"gpu": {"count": 8}},
        "engine": {"args": {"pipeline-parallel-size": "2", "tensor-parallel-size": "4"}},
    },
    "none": {"scaling": {"replicas": 0}},
    "autoscaled": {"provider": {"overrides": {"autoscaling": {"maxReplicas": 4, "targetOngoingRequests": 8}}}},
    "from zero": {
        "scaling": {"replicas": 0},
        "provider": {"overrides": {"autoscaling": {"maxReplicas": 4}}},
    },
    "apart": SPLIT,
    "apart, own connector": {
        **SPLIT,
        "engine": {"args": {"kv-transfer-config": '{"kv_connector":"LMCacheConnectorV1"}'}},
    },
    "text": {"model": {"id": "o/m", "servedName": "é\u2028\x85 'x' \"y\" {{z}} $(HOME)"}},
}


def models(args: Resource) -> list[Resource]:
    return [*args.get("llm_configs", []), *(args[key] for key in ("prefill_config", "decode_config") if key in args)]


@pytest.mark.parametrize("case", CASES)
def test_ray_takes_the_configuration(deployment: Any, context: Any, service: Any, case: str) -> None:
    schema = import_module("ray.serve.schema")
    llm = import_module("ray.llm._internal.serve.core.configs.llm_config")
    written = yaml.safe_load(service(deployment(**CASES[case]), context())["spec"]["serveConfigV2"])
    (application,) = schema.ServeDeploySchema.model_validate(written).applications
    assert (application.name, application.route_prefix) == ("llm", "/")
    found = [llm.LLMConfig.model_validate(model) for model in models(application.args)]
    assert len(found) == (2 if case.startswith("apart") else 1)
    (wrong, *_) = models(application.args)
    with pytest.raises(ValueError, match="no_such"):
        llm.LLMConfig.model_validate({**wrong, "no_such": 1})


@pytest.mark.parametrize("case", CASES)
def test_rays_autoscaler_can_size_every_group(deployment: Any, context: Any, service: Any, case: str) -> None:
    """It reads the RayCluster at its start, and ends where a group does not tell its CPUs: the head is never ready."""
    reader = import_module("ray.autoscaler._private.kuberay.autoscaling_config")
    made = service(deployment(**CASES[case]), context())["spec"]["rayClusterConfig"]
    cluster = {"metadata": {"name": "c", "namespace": "n"}, "spec": made}
    found = reader._derive_autoscaling_config_from_ray_cr(cluster)["available_node_types"]
    assert found.pop("headgroup")["resources"]["CPU"] == 0, "nothing is placed on the head"
    asked = {group["groupName"]: int(group["rayStartParams"]["num-gpus"]) for group in made["workerGroupSpecs"]}
    assert {name: size["resources"]["GPU"] for name, size in found.items()} == asked
    assert all(size["resources"]["CPU"] >= 3 for size in found.values()), "a replica, and two that take requests"
