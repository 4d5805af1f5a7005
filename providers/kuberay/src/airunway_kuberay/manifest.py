"""Static data about the provider: capabilities, kinds, schemas, overrides, installation."""

from __future__ import annotations

from functools import partial

from airunway.sdk import EngineCapability, Installation, ProviderManifest, SelectionMode, UpstreamKind, generation
from airunway.sdk.overrides import BOOLEAN, CPU, MEMORY, REPLICAS, TEXT, choice, keys, typed
from airunway_kuberay.settings import Settings

__all__ = ["DECODE", "INVALID", "MANIFEST", "PREFILL", "REFUSED", "SUSPEND", "TRANSFORMERS", "VERSION", "WORKERS"]

VERSION = "0.1.0"

WORKERS, PREFILL, DECODE = "gpu-workers", "prefill-workers", "decode-workers"
"""The worker groups; their names are the values of the label ``ray.io/group`` on pods, where a head has its own."""

SUSPEND = "suspend"
"""A RayService can be stopped and kept (``spec.suspend``)."""

REFUSED = "FailedToUpdateServeApplications"
"""The event that is the only sign of a configuration that Ray Serve does not take."""
INVALID = ("InvalidRayServiceMetadata", "InvalidRayServiceSpec")
"""Events about an object that KubeRay does not take; before 1.6 its status says nothing of it."""

_REPOSITORY = "https://ray-project.github.io/kuberay-helm/"
_CHART = {"name": "kuberay-operator", "chart": "kuberay/kuberay-operator", "version": "1.7.0"}
_SECONDS = {"type": "integer", "minimum": 0, "maximum": 86400}
# KubeRay puts these into a shell command of the head.
_START_PARAMETERS = {
    "type": "object",
    "maxProperties": 64,
    "propertyNames": {"pattern": "^[a-z][a-z0-9-]*$"},
    "additionalProperties": {"type": "string", "pattern": "^[A-Za-z0-9._:/@%+=,-]*$", "maxLength": 256},
}
_OVERRIDES = keys(
    rayVersion=typed({"type": "string", "pattern": r"^\d+\.\d+\.\d+$"}),
    head=typed(keys(resources=keys(cpu=CPU, memory=MEMORY), rayStartParams=_START_PARAMETERS)),
    autoscaling=typed(
        keys(
            maxReplicas={**REPLICAS, "minimum": 1},
            targetOngoingRequests={"type": "integer", "minimum": 1, "maximum": 100000},
        )
    ),
    spec=keys(
        excludeHeadPodFromServeSvc=BOOLEAN,
        rayClusterDeletionDelaySeconds=_SECONDS,
        rayClusterConfig=keys(
            autoscalerOptions=keys(
                idleTimeoutSeconds=_SECONDS,
                upscalingMode=choice("Default", "Aggressive", "Conservative"),
                version=choice("v1", "v2"),
            ),
            gcsFaultToleranceOptions=keys(redisAddress=TEXT, externalStorageNamespace=TEXT),
        ),
    ),
)

_kind = partial(UpstreamKind, group="ray.io", versions=("v1",))
_SERVICE_LABEL = "ray.io/originated-from-cr-name"
_OLDER = ("e80e6b555e63", "68bd2c86b279", "16de19d30c83", "1c696f3e4129", "37418f984f37", "1eef157ee7ad")
_SANDBOX_SCHEMA = "32f93ce263e1"

TRANSFORMERS = (
    generation("ray.io/v1", "1.1", "1.6", hashes=[*_OLDER, "b8645bab9915", "495adff18e8d"]),
    generation("ray.io/v1", "1.7", hashes=["9b16fafa7523", _SANDBOX_SCHEMA], features=[SUSPEND]),
)

MANIFEST = ProviderManifest(
    name="kuberay",
    version=VERSION,
    display_name="KubeRay",
    description="vLLM in Ray Serve LLM, aggregated or with prefill and decode apart, as KubeRay RayServices",
    documentation="https://docs.ray.io/en/latest/cluster/kubernetes/getting-started/rayservice-quick-start.html",
    engines=(
        EngineCapability(
            name="vllm",
            serving_modes=("aggregated", "disaggregated"),
            gpu_support=True,
            scale_to_zero=True,
            api_formats=("openai-chat",),
        ),
    ),
    # A Ray cluster is a large thing for one model: it is taken when somebody asks for it (spec ruling 7).
    selection=SelectionMode.EXPLICIT,
    upstream=(
        _kind(kind="RayService", plural="rayservices", primary=True, deletion="Foreground"),
        _kind(kind="RayCluster", plural="rayclusters", required=False, write=False, select=_SERVICE_LABEL),
    ),
    role_label="ray.io/group",
    serving_roles=(WORKERS, PREFILL, DECODE),
    events={"RayService": (REFUSED, *INVALID)},
    settings=Settings,
    override_schema=_OVERRIDES,
    installation=Installation(
        description="The KubeRay operator, with its CRDs RayService and RayCluster",
        default_namespace="kuberay-system",
        helm_repos=({"name": "kuberay", "url": _REPOSITORY},),
        helm_charts=({**_CHART, "namespace": "kuberay-system", "createNamespace": True},),
        steps=(
            {
                "title": "Install the operator",
                "command": f"helm upgrade --install kuberay-operator kuberay-operator --repo {_REPOSITORY} "
                "--version 1.7.0 --namespace kuberay-system --create-namespace",
                "description": "KubeRay publishes its charts there.",
            },
        ),
    ),
)
