"""Run in an environment with Ray: build applications with Ray's own builders, and say what deployments come of them.

RayService specs come in as JSON, one a line; out goes one line for each: the deployments by name with their counts,
autoscaling and placement, after the overrides of ``deployments[]``, as Serve's controller has them; the version that
all of them get, by which Ray decides whether replicas go on; and what Ray's autoscaler reads out of the groups of pods.
vLLM is a stand-in (`stubs`); no Ray runs. Signatures differ between releases: a parameter is given where there is one.
"""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import sys
import warnings
from typing import Any

logging.disable(logging.WARNING)
warnings.filterwarnings("ignore")

import ray  # noqa: E402
import ray.autoscaler._private.kuberay.autoscaling_config as sizes  # noqa: E402
import ray.serve._private.build_app as building  # noqa: E402
from ray.serve._private.application_state import override_deployment_info  # noqa: E402
from ray.serve._private.deploy_utils import (  # noqa: E402
    deploy_args_to_deployment_info,
    get_app_code_version,
    get_deploy_args,
)
from ray.serve.llm import LLMConfig  # noqa: E402
from ray.serve.schema import ServeDeploySchema  # noqa: E402


class _NoRuntime:
    """What a builder asks of a Ray that runs."""

    runtime_env: dict[str, Any] = {}  # noqa: RUF012
    namespace = "serve"

    def get_job_id(self) -> str:
        return "01000000"


ray.get_runtime_context = lambda: _NoRuntime()


def nodes(cluster: dict[str, Any]) -> dict[str, Any]:
    """What each group of pods has, as Ray's autoscaler counts it; it ends where a group does not tell its CPUs."""
    written = {"metadata": {"name": "c", "namespace": "n"}, "spec": cluster}
    found = sizes._derive_autoscaling_config_from_ray_cr(written)["available_node_types"]
    return {name: kind["resources"] for name, kind in found.items()}


def application_of(config: dict[str, Any]) -> Any:
    read = getattr(ServeDeploySchema, "model_validate", None) or ServeDeploySchema.parse_obj
    (wanted,) = read(config).applications
    return wanted


def deployments(wanted: Any) -> dict[str, Any]:
    module, _, name = wanted.import_path.partition(":")
    application = getattr(importlib.import_module(module), name)(wanted.args)
    built = building.build_app(application, **_known(building.build_app, name="llm", default_runtime_env={}))
    infos = {}
    for part in built.deployments:
        ingress = part.name == built.ingress_deployment_name
        given = _known(get_deploy_args, route_prefix="/" if ingress else None)
        args = get_deploy_args(
            name=part.name,
            replica_config=part._replica_config,
            deployment_config=part._deployment_config,
            version="v",
            ingress=ingress,
            **given,
        )
        args.pop("serialized_autoscaling_policy_def", None)
        infos[part.name] = deploy_args_to_deployment_info(app_name="llm", **args)
    return {name: _facts(info) for name, info in override_deployment_info(infos, wanted).items()}


def _known(function: Any, **given: Any) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name in inspect.signature(function).parameters}


def _facts(info: Any) -> dict[str, Any]:
    config, replica = info.deployment_config, info.replica_config
    scales = config.autoscaling_config
    return {
        # Serve's controller looks at autoscaling first.
        "least": scales.min_replicas if scales else config.num_replicas,
        "most": scales.max_replicas if scales else config.num_replicas,
        "target": scales.get_target_ongoing_requests() if scales else None,
        "bundles": replica.placement_group_bundles,
        "cpus": (replica.ray_actor_options or {}).get("num_cpus", 1),
    }


def loading(wanted: Any) -> list[dict[str, str]]:
    """What each model is loaded from and called, as Ray's own class reads its configuration."""
    given = wanted.args.get("llm_configs") or [wanted.args["prefill_config"], wanted.args["decode_config"]]
    found = [LLMConfig(**config).model_loading_config for config in given]
    read = [each if isinstance(each, dict) else each.model_dump() for each in found]
    return [{name: each[name] for name in ("model_id", "model_source")} for each in read]


for line in sys.stdin:
    try:
        spec = json.loads(line)
        wanted = application_of(json.loads(spec["serveConfigV2"]))
        said: dict[str, Any] = {"deployments": deployments(wanted), "version": get_app_code_version(wanted)}
        said["loading"] = loading(wanted)
        said["nodes"] = nodes(spec["rayClusterConfig"])
    except Exception as error:  # noqa: BLE001
        said = {"error": f"{type(error).__name__}: {error}"}
    sys.stdout.write(json.dumps(said, default=str) + "\n")
