"""Decides how KAITO runs a deployment: as preset or pod template, in a Workspace or an InferenceSet.

A preset is KAITO's own recipe for a model: it chooses image, command and GPUs. A template is a pod that we write. A
preset is used if the deployment leaves image and arguments to KAITO. Any field that changes what the container runs or
where, and that a preset cannot express, makes it a template (README.md has the table).

Several replicas, or a number that follows the load, need an InferenceSet. A change from one kind to the other stops the
model first, so what exists keeps its kind for as long as that can run it, and a new deployment starts as what can be
scaled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from airunway.sdk import DEFAULT_GPU_TYPE, IPV6, Context, ModelDeployment, digest, labels, overridden
from airunway_kaito.manifest import INFERENCE_SET, WORKSPACE, Feature
from airunway_kaito.settings import Settings

PORT = 5000
"""Port on which every container must listen: the Service that KAITO creates always sends port 80 there."""

NODES_OF = f"{labels.GROUP}/nodes-of"
"""Label of nodes that KAITO creates for one deployment. Deployments may not select by it: its value is predictable."""


LONGEST_NAME = 52
"""Maximum length of a StatefulSet's name; its pods are refused beyond. A Workspace's StatefulSet has the Workspace's
name."""

SET_SUFFIX = "-abcde"
"""What KAITO appends to an InferenceSet's name for each Workspace, as an example."""


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
    made, several = context.served.get(INFERENCE_SET.key), is_a_set(deployment, context)
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


def is_a_set(deployment: ModelDeployment, context: Context[Settings]) -> bool:
    """Whether the deployment is written as an InferenceSet."""
    if INFERENCE_SET.key not in context.served:
        return False
    scaling = deployment.spec.scaling
    if context.live_kind == INFERENCE_SET.key or scaling.replicas != 1 or scaling.autoscaling is not None:
        return True
    if context.live_kind == WORKSPACE.key:
        return False
    wish = context.settings.inference_set
    return wish == "Always" or (wish == "Auto" and may_be_a_set(deployment, context))


def may_be_a_set(deployment: ModelDeployment, context: Context[Settings]) -> bool:
    """Whether an InferenceSet can run what a Workspace runs: its nodes, and a name for its pods."""
    made = context.served.get(INFERENCE_SET.key)
    if made is None:
        return False
    reaches = context.settings.provisions_nodes or Feature.EXISTING_NODES in made.transformer.features
    fits = len(deployment.metadata.name) <= LONGEST_NAME - len(SET_SUFFIX)
    return reaches and fits and not overridden(deployment, "resource", "preferredNodes")


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
        # A config's pull secrets are no cause: a preset's image is KAITO's, and they must not make templates of all
        # presets in a namespace.
        ("RuntimeConfig token", shared and not own and not has_place),
        ("spec.model.cache", context.cache is not None and context.cache.claim),
        ("spec.model.source", spec.model.source != "huggingface"),
        ("spec.model.task", spec.model.task != "generate"),
        ("spec.model.storage.volumes", spec.model.storage.volumes),
        ("spec.resources.gpu.type", spec.resources.gpu.type != DEFAULT_GPU_TYPE),
        ("spec.resources.limits.cpu", spec.resources.limits.cpu),
        ("spec.resources.extended", spec.resources.extended),
        ("spec.tolerations", spec.tolerations),
        ("spec.serviceAccountName", spec.service_account_name),
        ("spec.securityContext", spec.security_context.to_essence()),
        ("spec.imagePullSecrets", spec.image_pull_secrets),
        ("spec.priorityClassName", spec.priority_class_name),
        ("spec.runtimeClassName", spec.runtime_class_name),
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
