"""Which of KAITO's ways a deployment takes, and what both the check and the translation need to know of it.

A preset is KAITO's own recipe for a model: it chooses image, command and GPUs. A template is a pod that we write. A
preset is taken when the deployment leaves image and arguments to KAITO; everything that changes what the container runs
or where it may run, and that a preset has no place for, makes it a template (README.md has the table).

Either is one Workspace, or an InferenceSet of several. An InferenceSet that exists stays one, whatever its replicas: to
become a Workspace it would have to stop first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from airunway.sdk import DEFAULT_GPU_TYPE, Context, ModelDeployment, digest, labels, overridden
from airunway_kaito.manifest import INFERENCE_SET, Feature
from airunway_kaito.settings import Settings

__all__ = ["NODES_OF", "PORT", "Plan", "plan_of"]

PORT = 5000
"""Where every container must listen: the Service that KAITO makes sends port 80 there, and cannot be told otherwise."""

NODES_OF = f"{labels.GROUP}/nodes-of"
"""Label of the nodes that KAITO makes for one deployment. Its value is no secret, so nobody may select by it."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The decisions. What is written is a Workspace, or with `several` an InferenceSet, of a release with `features`.

    It is a template instead of a `preset` because of the fields in `causes`, or of its engine. `partition` is the
    number of GPUs that a preset is held to, 0 where it takes all of a node. `configured` is the machine that the
    administrator gives to such deployments, `instance_type` what is written.
    """

    several: bool
    features: frozenset[str]
    preset: bool
    causes: tuple[str, ...]
    partition: int
    configured: str
    instance_type: str
    needs_instance_type: bool
    is_out_of_reach: bool
    """Nodes are not made, but an InferenceSet of this release must name a machine to be made."""
    match_labels: dict[str, str]


def plan_of(deployment: ModelDeployment, context: Context[Settings]) -> Plan:
    """Decide."""
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
    token_without_place = bool(spec.secrets.hugging_face_token) and Feature.MODEL_ACCESS_SECRET not in features
    wishes: tuple[tuple[str, object], ...] = (
        ("spec.image", spec.image),
        ("spec.engine.image", spec.engine.image),
        ("spec.engine.args", spec.engine.args),
        ("spec.engine.extraArgs", spec.engine.extra_args),
        # The preset's configuration file takes flags with values only.
        ("spec.engine.trustRemoteCode", spec.engine.trust_remote_code),
        ("spec.engine.enablePrefixCaching", spec.engine.enable_prefix_caching is not None),
        ("spec.engine.enforceEager", spec.engine.enforce_eager),
        ("spec.env", spec.env),
        ("RuntimeConfig env", context.runtime.env),
        ("RuntimeConfig imagePullSecrets", context.runtime.image_pull_secrets),
        ("RuntimeConfig token", context.runtime.token is not None),
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
        ("spec.secrets.huggingFaceToken", token_without_place),
        ("KAITO before 0.9", Feature.HUGGINGFACE_IDS not in features),
    )
    return (path for path, wished in wishes if wished)


def _match_labels(deployment: ModelDeployment, settings: Settings) -> dict[str, str]:
    """The labels of nodes that may be used; with auto-provisioning also the labels that new nodes get."""
    metadata, spec = deployment.metadata, deployment.spec
    if settings.provisions_nodes:
        # Two deployments must not count each other's nodes as theirs.
        mine = f"{metadata.name}-{digest([metadata.namespace, metadata.name], length=8)}"
        return {**spec.node_selector, NODES_OF: mine}
    default = settings.gpu_node_selector if spec.resources.gpu.count else settings.cpu_node_selector
    return {**default, **spec.node_selector}
