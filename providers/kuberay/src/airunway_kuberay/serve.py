"""``serveConfigV2``: the model as an application of Ray Serve LLM, and which Ray an image has, which decides of it.

Written as JSON, which every reader of YAML takes for the same: a word such as ``1e3`` means other things to other ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from airunway.sdk import (
    Context,
    Finding,
    KeywordArguments,
    Launch,
    ModelDeployment,
    Resource,
    Sizing,
    blocker,
    engine_arguments,
    is_disaggregated,
    keyword_arguments,
    launch,
    overridden,
    served_name_of,
    sizing,
    yaml_json,
)
from airunway_kuberay.manifest import DECODE, PREFILL, WORKERS
from airunway_kuberay.settings import Settings

__all__ = ["argument_blockers", "group_sizes", "ray_container", "ray_version", "serve_config", "version_findings"]

_TAG = re.compile(r":v?(\d+\.\d+\.\d+)[^/:]*$")
_SINCE = {"aggregated": ("build_openai_app", (2, 44)), "disaggregated": ("build_pd_openai_app", (2, 49))}
"""What builds the application, and the release of Ray that has it first (ray.serve.llm of 2.44.1 and 2.49.0)."""
_REMEDY = "name an image whose tag begins with the version of Ray, or set provider.overrides.rayVersion"

_SHORT = {"tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "q": "quantization"}
_OWN = {
    "served_model_name": "spec.model.servedName sets it",
    "distributed_executor_backend": "Ray Serve LLM runs vLLM on Ray only",
    "disable_log_stats": "Ray's metrics of the engine need them",
    "data_parallel_size": "Ray Serve LLM reserves no GPUs for it: set spec.scaling.replicas",
}
"""What Ray Serve LLM sets itself or refuses, and why."""

_NIXL = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}


def group_sizes(deployment: ModelDeployment) -> dict[str, tuple[Sizing, int]]:
    """The worker groups: the size of one worker, and how many of them are asked for. A worker is a replica."""
    scaling = deployment.spec.scaling
    if is_disaggregated(deployment):
        roles = {PREFILL: ("prefill", scaling.prefill), DECODE: ("decode", scaling.decode)}
        return {
            group: (sizing(deployment, role), asked.replicas if asked is not None else 1)
            for group, (role, asked) in roles.items()
        }
    return {WORKERS: (sizing(deployment), scaling.replicas)}


def serve_config(deployment: ModelDeployment) -> str:
    """The configuration of the one application, ``llm``."""
    models = {group: _model(deployment, *asked) for group, asked in group_sizes(deployment).items()}
    args: Resource = {"llm_configs": [*models.values()]}
    if WORKERS not in models:
        args = {"prefill_config": models[PREFILL], "decode_config": models[DECODE]}
    path = f"ray.serve.llm:{_SINCE[deployment.spec.serving.mode][0]}"
    application = {"name": "llm", "route_prefix": "/", "import_path": path, "args": args}
    return yaml_json({"applications": [application]}) + "\n"


def _model(deployment: ModelDeployment, size: Sizing, replicas: int) -> Resource:
    """One ``LLMConfig``."""
    kwargs = _engine_kwargs(deployment, gpus=size.gpus).values
    if is_disaggregated(deployment):
        kwargs.setdefault("kv_transfer_config", dict(_NIXL))
    wish = overridden(deployment, "autoscaling")
    # At zero the RayService is suspended, and what its applications would be does not count.
    counts: Resource = {"num_replicas": max(1, replicas)}
    if isinstance(wish, dict) and "maxReplicas" in wish:
        target = wish.get("targetOngoingRequests")
        bounds = {"min_replicas": replicas, "max_replicas": wish["maxReplicas"]}
        counts = {"autoscaling_config": {**bounds, **({"target_ongoing_requests": target} if target else {})}}
    return {
        "model_loading_config": {"model_id": served_name_of(deployment), "model_source": deployment.spec.model.id},
        "engine_kwargs": kwargs,
        "deployment_config": counts,
    }


def argument_blockers(deployment: ModelDeployment) -> Iterator[Finding]:
    """Arguments of the engine that Ray Serve LLM would not take, or that ask for other GPUs than the workers have."""
    for group, (size, _) in group_sizes(deployment).items():
        found = _engine_kwargs(deployment, gpus=size.gpus)
        own = [f"{name} cannot be set with KubeRay: {_OWN[name]}; remove it" for name in found.values if name in _OWN]
        if problems := [*found.problems, *own]:
            yield from (Finding(path="spec.engine", reason="BadArguments", message=text) for text in problems)
            return
        stages, parts = (found.values.get(f"{name}_parallel_size", 1) for name in ("pipeline", "tensor"))
        if not (isinstance(stages, int) and isinstance(parts, int) and stages * parts == size.gpus):
            text = (
                f"tensor and pipeline parallel size {parts} and {stages} need {parts} × {stages} GPUs, and each worker "
                f"of {group} has {size.gpus}: set both sizes so that they fit, or neither"
            )
            yield Finding(path="spec.engine.args", reason="BadArguments", message=text)
        transfer = found.values.get("kv_transfer_config", _NIXL)
        if not (isinstance(transfer, dict) and isinstance(transfer.get("kv_connector"), str)):
            text = 'kv-transfer-config must be a JSON object such as {"kv_connector": "NixlConnector"}'
            yield Finding(path="spec.engine.args[kv-transfer-config]", reason="BadArguments", message=text)


def _engine_kwargs(deployment: ModelDeployment, *, gpus: int) -> KeywordArguments:
    words = engine_arguments(deployment, engine="vllm", gpus=gpus).argv
    return keyword_arguments(words, short=_SHORT)


def ray_container(deployment: ModelDeployment, context: Context[Settings]) -> Launch:
    """The image of head and workers. What they start is KubeRay's to say, and when they are ready too."""
    found = launch(deployment, "vllm", port=0, image=context.settings.image, gpus=1)
    return replace(found, command=(), args=(), port=0, startup={}, readiness={})


def ray_version(deployment: ModelDeployment, image: str) -> str:
    """``2.56.0``: as the deployment says, else by the image's tag; empty where neither tells."""
    named = overridden(deployment, "rayVersion")
    found = _TAG.search(image.partition("@")[0])
    return str(named) if named else found[1] if found else ""


def version_findings(deployment: ModelDeployment, image: str) -> Iterator[tuple[bool, Finding]]:
    """What the version forbids (True), or leaves open."""
    spec = deployment.spec
    path = "spec.engine.image" if spec.engine.image else "spec.image"
    version = ray_version(deployment, image)
    builder, since = _SINCE[spec.serving.mode]
    needed = ".".join(map(str, since))
    if not version:
        decides = is_disaggregated(deployment)
        text = f"the version of Ray in {image!r} is not known, and {builder} needs {needed}: {_REMEDY}"
        reason = "IncompatibleConfiguration" if decides else "RayVersionUnknown"
        yield decides, Finding(path=path, reason=reason, message=text)
    elif tuple(map(int, version.split(".")[:2])) < since:
        text = f"Ray {version} of {image!r} has no {builder}, which needs {needed}: {_REMEDY}"
        yield True, blocker(path, text)
