"""Static data about the provider: capabilities, kinds, schemas, overrides, installation."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial

from airunway.sdk import (
    HARDENED,
    Context,
    EngineCapability,
    Installation,
    ProviderManifest,
    SelectionMode,
    Transformer,
    UpstreamKind,
    generation,
    with_defaults,
    workloads,
)
from airunway.sdk.overrides import BOOLEAN, CPU, MEMORY, REPLICAS, TEXT, choice, keys, typed
from airunway_kuberay.settings import Settings

__all__ = [
    "CLUSTER_FAULTS",
    "COUNTS_APART",
    "DECODE",
    "HEAD_VOLUMES",
    "INVALID",
    "MANIFEST",
    "PREFILL",
    "REFUSED",
    "SHIELDED",
    "SUSPEND",
    "TOKENS",
    "TRANSFORMERS",
    "WORKERS",
    "reserved_labels",
]

WORKERS, PREFILL, DECODE = "gpu-workers", "prefill-workers", "decode-workers"
"""The worker groups. Pods have the name in their label ``ray.io/group``; the head has another value."""

SUSPEND = "suspend"
"""Feature: a RayService can be stopped without deletion (``spec.suspend``)."""

COUNTS_APART = "counts-apart"
"""Feature: numbers of replicas are separate from the application's arguments, so changing them restarts nothing."""
SHIELDED = "shielded"
"""Feature: a token or a NetworkPolicy protects the Ray cluster."""
TOKENS = "tokens"
"""Feature: a Ray cluster can require a token (``authOptions``)."""

HEAD_VOLUMES = "head-volumes"
"""Feature: the head has a writable ``/tmp``, and no variables for volumes that it does not mount."""
_ALL_RESERVED = "all-reserved"
"""Feature: users can set none of the manifest's `reserved_labels` on pods; before, only those of `_FIRST_RESERVED`."""
_FIRST_RESERVED = ("ray.io/",)

REFUSED = "FailedToUpdateServeApplications"
"""The event that is the only sign of a configuration that Ray Serve refuses."""
INVALID = ("InvalidRayServiceMetadata", "InvalidRayServiceSpec")
"""Events about an object that KubeRay does not accept; before 1.6 its status does not report that."""
CLUSTER_FAULTS = {
    "AutoscalerServiceAccountNotFound": "InvalidSpec",
    "FailedToCreateHeadPod": "InvalidSpec",
    "FailedToCreateWorkerPod": "InvalidSpec",
    "FailedToCreateService": "UpstreamFailed",
    "FailedToCreateServiceAccount": "UpstreamFailed",
    "FailedToCreateRole": "UpstreamFailed",
    "FailedToCreateRoleBinding": "UpstreamFailed",
    "InvalidRayClusterMetadata": "InvalidSpec",
    "InvalidRayClusterSpec": "InvalidSpec",
    "InvalidRayClusterStatus": "InvalidSpec",
}
"""Events that alone show why a RayCluster does not start, with their reasons."""

_REPOSITORY = "https://ray-project.github.io/kuberay-helm/"
_CHART = {"name": "kuberay-operator", "chart": "kuberay/kuberay-operator", "version": "1.7.0"}
_SECONDS = {"type": "integer", "minimum": 0, "maximum": 86400}
# KubeRay inserts these into a shell command of the head.
_START_PARAMETERS = {
    "type": "object",
    "maxProperties": 64,
    "propertyNames": {"pattern": r"\A[a-z][a-z0-9-]*\Z"},
    "additionalProperties": {"type": "string", "pattern": r"\A[A-Za-z0-9._:/@%+=,-]*\Z", "maxLength": 256},
}
_OVERRIDES = keys(
    rayVersion=typed({"type": "string", "pattern": r"\A\d{1,4}\.\d{1,4}\.\d{1,4}\Z"}),
    head=typed(keys(resources=keys(cpu=CPU, memory=MEMORY), rayStartParams=_START_PARAMETERS)),
    autoscaling=typed(
        keys(
            maxReplicas={**REPLICAS, "minimum": 1},
            targetOngoingRequests={"type": "integer", "minimum": 1, "maximum": 100000},
        )
    ),
    ingressReplicas=typed({**REPLICAS, "minimum": 1}),
    engineChange=typed(choice("InPlace", "NewCluster")),
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
_CLUSTER = "spec.rayClusterConfig"
_SERVICE_LABEL = "ray.io/originated-from-cr-name"
_OLDER = ("e80e6b555e63", "68bd2c86b279", "16de19d30c83", "1c696f3e4129", "37418f984f37", "1eef157ee7ad")
_SANDBOX_SCHEMA = "a421d486d26b"

_V1_5_1, _V1_6 = "b8645bab9915", "495adff18e8d"
_V1_7 = ("9b16fafa7523", _SANDBOX_SCHEMA)
_SECOND = (COUNTS_APART, SHIELDED, HARDENED)
_THIRD = (*_SECOND, HEAD_VOLUMES, _ALL_RESERVED)


def _later(number: int, features: Collection[str]) -> tuple[Transformer, ...]:
    """The second and later generations of transformers, with these features for every release of KubeRay."""
    made = (
        generation("ray.io/v1", "1.1", "1.5.0", hashes=_OLDER, features=features),
        generation("ray.io/v1", "1.5.1", "1.6", hashes=[_V1_5_1, _V1_6], features=[*features, TOKENS]),
        generation("ray.io/v1", "1.7", hashes=_V1_7, features=[*features, SUSPEND, TOKENS]),
    )
    return tuple(replace(each, name=f"{each.name}-{number}") for each in made)


TRANSFORMERS = with_defaults(
    (
        generation("ray.io/v1", "1.1", "1.6", hashes=[*_OLDER, _V1_5_1, _V1_6]),
        generation("ray.io/v1", "1.7", hashes=_V1_7, features=[SUSPEND]),
        *_later(2, _SECOND),
        *_later(3, _THIRD),
    ),
    image="rayproject/ray-llm:2.56.0-py312-cu130",
)

MANIFEST = ProviderManifest(
    name="kuberay",
    version="0.1.0",
    display_name="KubeRay",
    description="vLLM in Ray Serve LLM, aggregated or with prefill and decode apart, as KubeRay RayServices",
    documentation="https://docs.ray.io/en/latest/cluster/kubernetes/getting-started/rayservice-quick-start.html",
    engines=(
        EngineCapability(
            name="vllm",
            serving_modes=("aggregated", "disaggregated"),
            gpu_support=True,
            model_cache=True,
            image_volumes=True,
            cache_helpers=1,  # the head, where Ray builds the application
            scale_to_zero=True,
            autoscaling="Own",
            path_routing=True,
            api_formats=("openai-chat",),
        ),
    ),
    # A Ray cluster is expensive for one model, so it is used only if a deployment requests it.
    selection=SelectionMode.EXPLICIT,
    upstream=(
        _kind(
            kind="RayService",
            plural="rayservices",
            primary=True,
            deletion="Foreground",
            pods=(f"{_CLUSTER}.headGroupSpec.template.spec", f"{_CLUSTER}.workerGroupSpecs[*].template.spec"),
            # Ray's autoscaler is a container beside the head; its options include container fields.
            containers=(f"{_CLUSTER}.autoscalerOptions",),
            unused=(
                f"{_CLUSTER}.headGroupSpec.headService",
                f"{_CLUSTER}.headGroupSpec.serviceType",
                f"{_CLUSTER}.headGroupSpec.enableIngress",
                f"{_CLUSTER}.headServiceAnnotations",
                "spec.serveService",
            ),
            replicas=tuple(
                f"{_CLUSTER}.workerGroupSpecs[*].{field}"
                for field in ("replicas", "minReplicas", "maxReplicas", "numOfHosts")
            ),
        ),
        _kind(kind="RayCluster", plural="rayclusters", required=False, write=False, select=_SERVICE_LABEL),
        workloads.NETWORK_POLICY,
        workloads.RESOURCE_CLAIM_TEMPLATE,
    ),
    # KubeRay's Service of the head selects by the last two as well.
    reserved_labels=("ray.io/", "app.kubernetes.io/name", "app.kubernetes.io/created-by"),
    annotations=("ray.io/initializing-timeout",),
    role_label="ray.io/group",
    serving_roles=(WORKERS, PREFILL, DECODE),
    events={"RayService": (REFUSED, *INVALID), "RayCluster": tuple(CLUSTER_FAULTS)},
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


def reserved_labels(context: Context[Settings]) -> tuple[str, ...]:
    """The label keys, and prefixes of them, that users cannot set on pods that this transformer writes."""
    return MANIFEST.reserved_labels if context.has(_ALL_RESERVED) else _FIRST_RESERVED
