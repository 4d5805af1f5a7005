"""Builds ``serveConfigV2``, the model as an application of Ray Serve LLM, and determines the Ray version of an image.

It is written as JSON, because YAML parsers disagree about words such as ``1e3``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from airunway.sdk import (
    IPV6,
    NIXL_TRANSFER,
    Context,
    Finding,
    KeywordArguments,
    Launch,
    ModelDeployment,
    Resource,
    Sizing,
    blocker,
    dig,
    engine_arguments,
    is_disaggregated,
    keyword_arguments,
    launch,
    left_out,
    overridden,
    release_in,
    served_name_of,
    server_findings,
    sizing,
    weights_of,
    yaml_json,
)
from airunway_kuberay.manifest import COUNTS_APART, DECODE, PREFILL, SHIELDED, WORKERS
from airunway_kuberay.releases import DECODE_NAME, PREFILL_NAME, Release, deployment_name, release_of, vllm_of
from airunway_kuberay.settings import Settings

_SINCE = {"aggregated": ("build_openai_app", (2, 44)), "disaggregated": ("build_pd_openai_app", (2, 49))}
"""The builder of the application, and the first release of Ray with it (ray.serve.llm of 2.44.1 and 2.49.0)."""
_REMEDY = "name an image whose tag begins with the version of Ray, or set provider.overrides.rayVersion"

_SHORT = {"tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "q": "quantization"}
_OWN = {
    "served_model_name": "spec.model.servedName sets it",
    "distributed_executor_backend": "Ray Serve LLM runs vLLM on Ray only",
    "disable_log_stats": "Ray's metrics of the engine need them",
    "data_parallel_size": "Ray Serve LLM reserves no GPUs for it: set spec.scaling.replicas",
}
"""Engine arguments that Ray Serve LLM sets itself or refuses, with the reason."""


def group_sizes(deployment: ModelDeployment) -> dict[str, tuple[Sizing, int]]:
    """The worker groups: resources of one worker, and the number of workers. A worker is a replica."""
    scaling = deployment.spec.scaling
    if is_disaggregated(deployment):
        roles = {PREFILL: ("prefill", scaling.prefill), DECODE: ("decode", scaling.decode)}
        return {
            group: (sizing(deployment, role), asked.replicas if asked is not None else 1)
            for group, (role, asked) in roles.items()
        }
    follows = scaling.autoscaling
    least = scaling.replicas if follows is None else 1 if follows.min_replicas is None else follows.min_replicas
    return {WORKERS: (sizing(deployment), least)}


_CPUS = 8


def logical_cpus(size: Sizing) -> int:
    """Logical CPUs of a worker in Ray: a replica uses one, and each ingress or proxy replica another."""
    return max(_CPUS, size.cores)


def ingress_room(deployment: ModelDeployment, release: Release) -> int:
    """The number of ingress replicas for which the workers that the deployment requests have logical CPUs.

    For more, Ray's autoscaler adds workers, each with its GPUs. 2 workers with 8 CPUs: 14.
    """
    groups = [(logical_cpus(size), max(1, replicas)) for size, replicas in group_sizes(deployment).values()]
    head = str(dig(overridden(deployment, "head"), "rayStartParams", "num-cpus", default=""))
    room = sum((cpus - 1) * replicas for cpus, replicas in groups)
    room += int(head) if head.isdecimal() else 0
    return room // (2 if release.proxy and is_disaggregated(deployment) else 1)


def serve_config(deployment: ModelDeployment, context: Context[Settings], *, version: str) -> str:
    """The configuration with one application, ``llm``; `version` is Ray's, empty if unknown."""
    release = release_of(version) if context.has(COUNTS_APART) else None
    application: Resource = {"name": "llm", "route_prefix": "/", "import_path": _builder(deployment)}
    if release is not None:
        # Ray hashes `args`, so any change there replaces every replica. `counts` holds what only scales.
        application |= {"args": _args(deployment, context), "deployments": counts(deployment, context, release)}
    else:
        application["args"] = _args(deployment, context, _own_counts(deployment, context))
    # Serve's proxies listen on 0.0.0.0 by default.
    proxies = {"http_options": {"host": context.settings.everywhere}} if context.settings.ip_family == IPV6 else {}
    return yaml_json({"applications": [application], **proxies}) + "\n"


def engine_change(deployment: ModelDeployment, context: Context[Settings]) -> str:
    """The effect of changed engine settings: ``InPlace`` or ``NewCluster``."""
    return str(overridden(deployment, "engineChange") or context.settings.engine_change)


def engine_settings(deployment: ModelDeployment, context: Context[Settings]) -> Resource:
    """The start settings of replicas; Ray replaces all replicas when they change."""
    return {"import_path": _builder(deployment), "args": _args(deployment, context)}


def _builder(deployment: ModelDeployment) -> str:
    return f"ray.serve.llm:{_SINCE[deployment.spec.serving.mode][0]}"


_ONE: Resource = {"num_replicas": 1}
"""The constant replica setting of each model in `args`; `counts` override it."""


def _args(
    deployment: ModelDeployment, context: Context[Settings], own: Mapping[str, Resource] | None = None
) -> Resource:
    """The arguments of the builder; `own` has the replica settings of each group's model."""
    models = {
        group: _model(deployment, context, size, (own or {}).get(group, _ONE))
        for group, (size, _) in group_sizes(deployment).items()
    }
    if WORKERS in models:
        return {"llm_configs": [*models.values()]}
    return {"prefill_config": models[PREFILL], "decode_config": models[DECODE]}


def counts(deployment: ModelDeployment, context: Context[Settings], release: Release) -> list[Resource]:
    """The number of replicas of each deployment of the application; changing it restarts nothing.

    The ingress gets as many replicas as the model, unless ``overrides.ingressReplicas`` is set; Ray's default is one
    for any number of models.
    """
    names = {WORKERS: release.model, PREFILL: PREFILL_NAME, DECODE: DECODE_NAME}
    groups = {group: max(1, replicas) for group, (_, replicas) in group_sizes(deployment).items()}
    bounds = autoscaling(deployment, context)
    found = {deployment_name(names[group], deployment): bounds or _exactly(n) for group, n in groups.items()}
    asked = overridden(deployment, "ingressReplicas")
    takes = bounds if bounds and not asked else _exactly(int(asked) if asked else max(groups.values()))
    fronts = [release.ingress, *([release.proxy] if release.proxy and WORKERS not in groups else [])]
    # Always bounds and never a plain number. Ray ignores a number if the deployment's class autoscales by default (the
    # model's up to 2.49, the ingress in every release). In 2.56 the version of all deployments depends on how many have
    # an autoscaling config, so turning it on later would replace every replica.
    return [{"name": name, "autoscaling_config": said} for name, said in (found | dict.fromkeys(fronts, takes)).items()]


def _exactly(replicas: int) -> Resource:
    return {"min_replicas": replicas, "max_replicas": replicas}


def autoscaling(deployment: ModelDeployment, context: Context[Settings]) -> Resource:
    """The bounds of Ray's autoscaling, always with a target, because the default of some releases is never reached.

    Empty if the deployment requests no autoscaling.
    """
    if (asked := deployment.spec.scaling.autoscaling) is not None:
        return {
            "min_replicas": 1 if asked.min_replicas is None else asked.min_replicas,
            "max_replicas": asked.max_replicas,
            "target_ongoing_requests": asked.target,
            "downscale_delay_s": _seconds(asked.scale_down_stabilization or "5m"),
        }
    wish = overridden(deployment, "autoscaling")
    if not (isinstance(wish, dict) and "maxReplicas" in wish):
        return {}
    target = wish.get("targetOngoingRequests") or context.settings.target_ongoing_requests
    bounds = {"min_replicas": deployment.spec.scaling.replicas, "max_replicas": wish["maxReplicas"]}
    return {**bounds, "target_ongoing_requests": target}


def _seconds(duration: str) -> int:
    """The seconds of a duration with one unit, as the API server admits it."""
    return int(duration[:-1]) * {"s": 1, "m": 60, "h": 3600}[duration[-1]]


def _own_counts(deployment: ModelDeployment, context: Context[Settings]) -> dict[str, Resource]:
    """The replica settings of each model if Ray's release, and thus the deployments' names, are unknown."""
    wish = overridden(deployment, "autoscaling")
    found: dict[str, Resource] = {}
    for group, (_, replicas) in group_sizes(deployment).items():
        # At zero the RayService is suspended, so the applications do not matter.
        found[group] = {"num_replicas": max(1, replicas)}
        if bounds := autoscaling(deployment, context):
            found[group] = {"autoscaling_config": bounds}
            named = deployment.spec.scaling.autoscaling is not None or dig(wish, "targetOngoingRequests")
            if not (context.has(COUNTS_APART) or named):
                del found[group]["autoscaling_config"]["target_ongoing_requests"]
    return found


def _model(deployment: ModelDeployment, context: Context[Settings], size: Sizing, counted: Resource) -> Resource:
    """One ``LLMConfig``; `counted` are its replica settings."""
    kwargs = _engine_kwargs(deployment, gpus=size.gpus).values
    if is_disaggregated(deployment):
        kwargs.setdefault("kv_transfer_config", dict(NIXL_TRANSFER))
    source = deployment.spec.model.id if context.cache is None else weights_of(deployment, context.cache)
    return {
        "model_loading_config": {"model_id": served_name_of(deployment), "model_source": source},
        "engine_kwargs": kwargs,
        "deployment_config": dict(counted),
    }


def argument_blockers(deployment: ModelDeployment) -> Iterator[Finding]:
    """Blockers for engine arguments that Ray Serve LLM refuses, or that do not fit the GPUs of a worker."""
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
    """Findings about flags and variables of vLLM's own HTTP server, which Ray's ingress replaces.

    True: it would protect the endpoint and is refused; for objects of the first generation it is only a warning. False:
    a warning.
    """
    for refused, finding in server_findings(deployment, context, who="KubeRay", server="Ray's ingress"):
        yield refused and context.has(SHIELDED), finding


def _engine_kwargs(deployment: ModelDeployment, *, gpus: int) -> KeywordArguments:
    words = engine_arguments(deployment, engine="vllm", gpus=gpus, instead=left_out("vllm", _PROGRAM)).argv
    return keyword_arguments(words, short=_SHORT)


_PROGRAM, _ENGINE_ALONE = "ray", "ray.engine"
_ANSWERS_SINCE = (2, 49)
"""Since then Ray Serve LLM takes arguments of vLLM's HTTP server, which shape answers, besides the engine's."""


def ray_container(deployment: ModelDeployment, context: Context[Settings]) -> Launch:
    """The image of head and workers. KubeRay sets their command and probes."""
    image = deployment.spec.engine.image or deployment.spec.image or context.settings.image
    version = ray_version(deployment, image)
    old = bool(version) and tuple(map(int, version.split(".")[:2])) < _ANSWERS_SINCE
    found = launch(
        deployment,
        "vllm",
        port=0,
        image=image,
        gpus=0,  # those of a worker: `argument_blockers`
        release=vllm_of(version, image),
        program=_ENGINE_ALONE if old else _PROGRAM,
        cache=context.cache,
    )
    return replace(found, command=(), args=(), port=0, startup={}, readiness={})


def ray_version(deployment: ModelDeployment, image: str) -> str:
    """Ray's version such as ``2.56.0``: from the deployment, else from the image's tag; empty if neither has one."""
    named = overridden(deployment, "rayVersion")
    found = release_in(image)
    return str(named) if named else ".".join(map(str, found or ()))


def version_findings(deployment: ModelDeployment, image: str) -> Iterator[tuple[bool, Finding]]:
    """Blockers (True) and warnings (False) about the version of Ray."""
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
