"""Decides how KAITO runs a deployment: as preset or pod template, in a Workspace or an InferenceSet.

A preset is KAITO's own recipe for a model: it chooses image, command and GPUs. A template is a pod that we write. A
preset is used if the deployment leaves image and arguments to KAITO. Any field that changes what the container runs or
where, and that a preset cannot express, makes it a template (README.md has the table).

Several replicas need an InferenceSet. An existing InferenceSet stays one at any number of replicas, because a change to
a Workspace would stop it first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from airunway.sdk import DEFAULT_GPU_TYPE, IPV6, Context, ModelDeployment, digest, labels, overridden
from airunway_kaito.manifest import INFERENCE_SET, Feature
from airunway_kaito.settings import Settings

PORT = 5000
"""Port on which every container must listen: the Service that KAITO creates always sends port 80 there."""

PRESET_TOKEN = "HF_TOKEN"
"""The key of a preset's Secret (``modelAccessSecret``) from which KAITO reads the token."""

NODES_OF = f"{labels.GROUP}/nodes-of"
"""Label of nodes that KAITO creates for one deployment. Deployments may not select by it: its value is predictable."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The decisions about one deployment."""

    several: bool
    """An InferenceSet is written; else a Workspace."""
    features: frozenset[str]
    """Features of the transformer for that kind."""
    preset: bool
    """It runs as a preset; else as a pod template."""
    causes: tuple[str, ...]
    """The fields that make it a template; empty if the engine does."""
    partition: int
    """The number of GPUs that a preset is limited to; 0: all GPUs of a node."""
    configured: str
    """The machine type that the administrator set for such deployments."""
    instance_type: str
    """The machine type that is written."""
    needs_instance_type: bool
    """Whether a machine type must be written."""
    is_out_of_reach: bool
    """Nodes are not provisioned, but an InferenceSet of this release must name a machine type to provision."""
    match_labels: dict[str, str]
    """Node selector of the deployment."""


def plan_of(deployment: ModelDeployment, context: Context[Settings]) -> Plan:
    """The plan for a deployment."""
    settings, gpus = context.settings, deployment.spec.resources.gpu.count
    made = context.served.get(INFERENCE_SET.key)
    several = made is not None and (deployment.spec.scaling.replicas != 1 or context.live_kind == INFERENCE_SET.key)
    features = (made if made is not None and several else context.upstream).transformer.features
    causes, llamacpp = tuple(_template_causes(deployment, context, features)), context.engine == "llamacpp"
    preset = not (causes or llamacpp)
    partitioned = preset and settings.partition and Feature.PARTITION in features and not settings.provisions_nodes
    needs_instance_type = settings.provisions_nodes or Feature.EXISTING_NODES not in features
    configured = settings.instance_type if gpus else settings.cpu_instance_type
    overriding = overridden(deployment, "resource", "instanceType", default="")
    return Plan(
        several=several,
        features=features,
        preset=preset,
        causes=() if llamacpp else causes,
        partition=gpus if partitioned else 0,
        configured=configured,
        instance_type=(configured or overriding) if needs_instance_type else "",
        needs_instance_type=needs_instance_type,
        is_out_of_reach=several and needs_instance_type and not settings.provisions_nodes,
        match_labels=_match_labels(deployment, settings),
    )


def _template_causes(
    deployment: ModelDeployment, context: Context[Settings], features: frozenset[str]
) -> Iterator[str]:
    spec = deployment.spec
    own, shared = spec.secrets.hugging_face_token, context.runtime.token
    has_place = Feature.MODEL_ACCESS_SECRET in features
    wishes: tuple[tuple[str, object], ...] = (
        ("spec.image", spec.image),
        ("spec.engine.image", spec.engine.image),
        ("spec.engine.args", spec.engine.args),
        ("spec.engine.extraArgs", spec.engine.extra_args),
        # The preset's configuration file accepts only flags with values.
        ("spec.engine.trustRemoteCode", spec.engine.trust_remote_code),
        ("spec.engine.enablePrefixCaching", spec.engine.enable_prefix_caching is not None),
        ("spec.engine.enforceEager", spec.engine.enforce_eager),
        ("spec.env", spec.env),
        ("RuntimeConfig env", context.runtime.env),
        # KAITO reads the key HF_TOKEN of a preset's Secret. A config's pull secrets are no cause: a preset's image is
        # KAITO's, and they must not make templates of all presets in a namespace.
        ("RuntimeConfig token", shared and not own and not (has_place and shared.key == PRESET_TOKEN)),
        ("spec.model.cache", context.cache is not None),
        ("spec.model.source", spec.model.source == "custom"),
        ("spec.model.storage.volumes", spec.model.storage.volumes),
        ("spec.resources.gpu.type", spec.resources.gpu.type != DEFAULT_GPU_TYPE),
        ("spec.tolerations", spec.tolerations),
        ("spec.serviceAccountName", spec.service_account_name),
        ("spec.securityContext", spec.security_context.to_essence()),
        ("spec.imagePullSecrets", spec.image_pull_secrets),
        ("spec.priorityClassName", spec.priority_class_name),
        ("spec.topologySpreadConstraints", spec.topology_spread_constraints),
        ("spec.secrets.huggingFaceToken", own and not has_place),
        ("KAITO before 0.9", Feature.HUGGINGFACE_IDS not in features),
        # The runner of a preset opens an IPv4 socket, whatever its configuration says (inference_api.py of 0.12).
        ("provider setting ipFamily", context.settings.ip_family == IPV6),
    )
    return (path for path, wished in wishes if wished)


def _match_labels(deployment: ModelDeployment, settings: Settings) -> dict[str, str]:
    """The labels of usable nodes; with auto-provisioning also the labels of new nodes."""
    metadata, spec = deployment.metadata, deployment.spec
    if settings.provisions_nodes:
        # Unique per deployment, so that two deployments do not count each other's nodes.
        mine = f"{metadata.name}-{digest([metadata.namespace, metadata.name], length=8)}"
        return {**spec.node_selector, NODES_OF: mine}
    default = settings.gpu_node_selector if spec.resources.gpu.count else settings.cpu_node_selector
    return {**default, **spec.node_selector}
