"""``serveConfigV2``: the model as an application of Ray Serve LLM, and which Ray an image has, which decides of it.

Written as JSON, which every reader of YAML takes for the same: a word such as ``1e3`` means other things to other ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from airunway.sdk import (
    NIXL_TRANSFER,
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
    release_in,
    served_name_of,
    server_findings,
    sizing,
    yaml_json,
)
from airunway_kuberay.manifest import COUNTS_APART, DECODE, PREFILL, SHIELDED, WORKERS
from airunway_kuberay.releases import DECODE_NAME, PREFILL_NAME, Release, deployment_name, release_of, vllm_of
from airunway_kuberay.settings import Settings

__all__ = [
    "argument_blockers",
    "autoscaling",
    "counts",
    "engine_change",
    "engine_settings",
    "frontend_findings",
    "group_sizes",
    "ray_container",
    "ray_version",
    "serve_config",
    "version_findings",
]

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


def serve_config(deployment: ModelDeployment, context: Context[Settings], *, version: str) -> str:
    """The configuration of the one application, ``llm``; `version` is that of Ray, empty where it is not known."""
    release = release_of(version) if context.has(COUNTS_APART) else None
    application: Resource = {"name": "llm", "route_prefix": "/", "import_path": _builder(deployment)}
    if release is not None:
        # Ray hashes `args`: any byte there replaces every replica. What only scales stands beside them (`counts`).
        application |= {"args": _args(deployment), "deployments": counts(deployment, context, release)}
    else:
        application["args"] = _args(deployment, _own_counts(deployment, context))
    return yaml_json({"applications": [application]}) + "\n"


def engine_change(deployment: ModelDeployment, context: Context[Settings]) -> str:
    """``InPlace`` or ``NewCluster``: what a change of the engine's settings does."""
    return str(overridden(deployment, "engineChange") or context.settings.engine_change)


def engine_settings(deployment: ModelDeployment) -> Resource:
    """What the replicas are started with: Ray replaces every one of them where something of it changes."""
    return {"import_path": _builder(deployment), "args": _args(deployment)}


def _builder(deployment: ModelDeployment) -> str:
    return f"ray.serve.llm:{_SINCE[deployment.spec.serving.mode][0]}"


_ONE: Resource = {"num_replicas": 1}
"""What each model says of its replicas in `args`, always the same: `counts` win over it."""


def _args(deployment: ModelDeployment, own: Mapping[str, Resource] | None = None) -> Resource:
    """The arguments of the builder; `own` has what each group's model says of its replicas."""
    models = {
        group: _model(deployment, size, (own or {}).get(group, _ONE))
        for group, (size, _) in group_sizes(deployment).items()
    }
    if WORKERS in models:
        return {"llm_configs": [*models.values()]}
    return {"prefill_config": models[PREFILL], "decode_config": models[DECODE]}


def counts(deployment: ModelDeployment, context: Context[Settings], release: Release) -> list[Resource]:
    """How many replicas each deployment of the application has: a change here restarts nothing.

    What takes the requests has as many as the model, unless ``overrides.ingressReplicas`` says otherwise: Ray would
    have one for any number of models.
    """
    names = {WORKERS: release.model, PREFILL: PREFILL_NAME, DECODE: DECODE_NAME}
    groups = {group: max(1, replicas) for group, (_, replicas) in group_sizes(deployment).items()}
    bounds = autoscaling(deployment, context)
    found = {deployment_name(names[group], deployment): bounds or _exactly(n) for group, n in groups.items()}
    asked = overridden(deployment, "ingressReplicas")
    takes = bounds if bounds and not asked else _exactly(int(asked) if asked else max(groups.values()))
    fronts = [release.ingress, *([release.proxy] if release.proxy and WORKERS not in groups else [])]
    # Always bounds and never a plain number. Ray heeds no number where a deployment's class autoscales by itself (the
    # model's to 2.49, in every release what takes requests); and in 2.56 the version of all of them depends on how many
    # say something of autoscaling, so that turning it on would replace every replica.
    return [{"name": name, "autoscaling_config": said} for name, said in (found | dict.fromkeys(fronts, takes)).items()]


def _exactly(replicas: int) -> Resource:
    return {"min_replicas": replicas, "max_replicas": replicas}


def autoscaling(deployment: ModelDeployment, context: Context[Settings]) -> Resource:
    """What Ray's autoscaling keeps to, with a target in any case: some releases have one that is never reached.

    Empty where the deployment asks for none.
    """
    wish = overridden(deployment, "autoscaling")
    if not (isinstance(wish, dict) and "maxReplicas" in wish):
        return {}
    target = wish.get("targetOngoingRequests") or context.settings.target_ongoing_requests
    bounds = {"min_replicas": deployment.spec.scaling.replicas, "max_replicas": wish["maxReplicas"]}
    return {**bounds, "target_ongoing_requests": target}


def _own_counts(deployment: ModelDeployment, context: Context[Settings]) -> dict[str, Resource]:
    """What each model says of its replicas where Ray's release, and with it the deployments' names, is not known."""
    wish = overridden(deployment, "autoscaling")
    found: dict[str, Resource] = {}
    for group, (_, replicas) in group_sizes(deployment).items():
        # At zero the RayService is suspended, and what its applications would be does not count.
        found[group] = {"num_replicas": max(1, replicas)}
        if isinstance(wish, dict) and "maxReplicas" in wish:
            found[group] = {"autoscaling_config": autoscaling(deployment, context)}
            if not (context.has(COUNTS_APART) or wish.get("targetOngoingRequests")):
                del found[group]["autoscaling_config"]["target_ongoing_requests"]
    return found


def _model(deployment: ModelDeployment, size: Sizing, counted: Resource) -> Resource:
    """One ``LLMConfig``; `counted` is what it says of its replicas."""
    kwargs = _engine_kwargs(deployment, gpus=size.gpus).values
    if is_disaggregated(deployment):
        kwargs.setdefault("kv_transfer_config", dict(NIXL_TRANSFER))
    return {
        "model_loading_config": {"model_id": served_name_of(deployment), "model_source": deployment.spec.model.id},
        "engine_kwargs": kwargs,
        "deployment_config": dict(counted),
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
        transfer = found.values.get("kv_transfer_config", NIXL_TRANSFER)
        if not (isinstance(transfer, Mapping) and isinstance(transfer.get("kv_connector"), str)):
            text = 'kv-transfer-config must be a JSON object such as {"kv_connector": "NixlConnector"}'
            yield Finding(path="spec.engine.args[kv-transfer-config]", reason="BadArguments", message=text)


def frontend_findings(deployment: ModelDeployment, context: Context[Settings]) -> Iterator[tuple[bool, Finding]]:
    """Flags and variables of vLLM's own HTTP server, which Ray's ingress stands in for: those that would protect are
    refused (True), or said where what runs was written before they were; the rest is said.
    """
    for refused, finding in server_findings(deployment, context, who="KubeRay", server="Ray's ingress"):
        yield refused and context.has(SHIELDED), finding


def _engine_kwargs(deployment: ModelDeployment, *, gpus: int) -> KeywordArguments:
    words = engine_arguments(deployment, engine="vllm", gpus=gpus).argv
    return keyword_arguments(words, short=_SHORT)


def ray_container(deployment: ModelDeployment, context: Context[Settings]) -> Launch:
    """The image of head and workers. What they start is KubeRay's to say, and when they are ready too."""
    image = deployment.spec.engine.image or deployment.spec.image or context.settings.image
    release = vllm_of(ray_version(deployment, image), image)
    found = launch(deployment, "vllm", port=0, image=image, gpus=1, release=release, keywords=True)
    return replace(found, command=(), args=(), port=0, startup={}, readiness={})


def ray_version(deployment: ModelDeployment, image: str) -> str:
    """``2.56.0``: as the deployment says, else by the image's tag; empty where neither tells."""
    named = overridden(deployment, "rayVersion")
    found = release_in(image)
    return str(named) if named else ".".join(map(str, found or ()))


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
