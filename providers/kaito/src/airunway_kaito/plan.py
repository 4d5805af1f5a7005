"""Which of KAITO's ways a deployment takes, and what both the check and the translation need to know of it.

A preset is KAITO's own recipe for a model: it chooses image, command and GPUs. A template is a pod that we write. A
preset is taken when the deployment leaves image and arguments to KAITO; everything that changes what the container runs
or where it may run, and that a preset has no place for, makes it a template (README.md has the table).

Either is one Workspace, or an InferenceSet of several. An InferenceSet that exists stays one, whatever its replicas: to
become a Workspace it would have to stop first.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from airunway.sdk import DEFAULT_GPU_TYPE, Context, ModelDeployment, Upstream, dig, digest, labels
from airunway_kaito.schemas import (
    EXISTING_NODES,
    HUGGINGFACE_IDS,
    INFERENCE_SET,
    MODEL_ACCESS_SECRET,
    PARTITION,
    WORKSPACE,
)
from airunway_kaito.settings import Settings

__all__ = ["NODES_OF", "PORT", "Mode", "Plan", "plan_of"]

PORT = 5000
"""Where every container must listen: the Service that KAITO makes sends port 80 there, and cannot be told otherwise."""

NODES_OF = f"{labels.GROUP}/nodes-of"
"""Label of the nodes that KAITO makes for one deployment. Its value is no secret, so nobody may select by it."""

_HASH_LENGTH = 8


class Mode(StrEnum):
    PRESET = "preset"
    TEMPLATE = "template"
    LLAMACPP = "llamacpp"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The decisions.

    `kind` and `api_version` are those of what is written: a Workspace, or with `several` an InferenceSet.
    `causes` are the fields that rule a preset out. `partition` is the number of GPUs that a preset is held to, 0 where
    it takes all of a node.
    """

    kind: str
    api_version: str
    mode: Mode
    causes: tuple[str, ...]
    settings: Settings
    features: frozenset[str]
    partition: int
    instance_type: str
    needs_instance_type: bool
    match_labels: dict[str, str]

    @property
    def several(self) -> bool:
        return self.kind == INFERENCE_SET.kind

    @property
    def is_out_of_reach(self) -> bool:
        """Whether nodes are not made, but an InferenceSet of this release must name a machine to be made."""
        return self.several and self.needs_instance_type and not self.settings.provisions_nodes


def plan_of(deployment: ModelDeployment, context: Context[Settings]) -> Plan:
    """Decide."""
    spec = deployment.spec
    settings = context.settings
    kind, upstream = _written(deployment, context)
    features = upstream.transformer.features
    gpus = spec.resources.gpu.count
    needs_instance_type = settings.provisions_nodes or EXISTING_NODES not in features
    causes = _template_causes(deployment, context, features)
    mode = Mode.LLAMACPP if context.engine == "llamacpp" else Mode.TEMPLATE if causes else Mode.PRESET
    partitioned = mode is Mode.PRESET and settings.partition and PARTITION in features and not settings.provisions_nodes
    overridden = dig(spec.provider.overrides, "resource", "instanceType", default="")
    configured = settings.instance_type if gpus else settings.cpu_instance_type
    return Plan(
        kind=kind,
        api_version=upstream.api_version,
        mode=mode,
        causes=causes,
        settings=settings,
        features=features,
        partition=gpus if partitioned else 0,
        instance_type=(configured or overridden) if needs_instance_type else "",
        needs_instance_type=needs_instance_type,
        match_labels=_match_labels(deployment, settings),
    )


def _written(deployment: ModelDeployment, context: Context[Settings]) -> tuple[str, Upstream]:
    """The kind that is written, and by which transformer."""
    several = deployment.spec.scaling.replicas != 1 or context.live_kind == INFERENCE_SET.key
    found = context.served.get(INFERENCE_SET.key)
    return (INFERENCE_SET.kind, found) if several and found is not None else (WORKSPACE.kind, context.upstream)


def _template_causes(
    deployment: ModelDeployment, context: Context[Settings], features: frozenset[str]
) -> tuple[str, ...]:
    spec = deployment.spec
    token_without_place = bool(spec.secrets.hugging_face_token) and MODEL_ACCESS_SECRET not in features
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
        ("spec.imagePullSecrets", spec.image_pull_secrets),
        ("spec.priorityClassName", spec.priority_class_name),
        ("spec.topologySpreadConstraints", spec.topology_spread_constraints),
        ("spec.secrets.huggingFaceToken", token_without_place),
        ("KAITO before 0.9", HUGGINGFACE_IDS not in features),
    )
    return tuple(path for path, wished in wishes if wished)


def _match_labels(deployment: ModelDeployment, settings: Settings) -> dict[str, str]:
    """The labels of nodes that may be used; with auto-provisioning also the labels that new nodes get."""
    metadata, spec = deployment.metadata, deployment.spec
    if settings.provisions_nodes:
        # Two deployments must not count each other's nodes as theirs.
        mine = f"{metadata.name}-{digest([metadata.namespace, metadata.name], length=_HASH_LENGTH)}"
        return {**spec.node_selector, NODES_OF: mine}
    default = settings.gpu_node_selector if spec.resources.gpu.count else settings.cpu_node_selector
    return {**default, **spec.node_selector}
