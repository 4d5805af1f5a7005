"""Checks which fields of a deployment KAITO cannot honour, and which nodes it may request."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from airunway.sdk import (
    Compatibility,
    Context,
    Finding,
    ModelDeployment,
    PodSetting,
    bad_override,
    blocker,
    ignored,
    ignored_pod_setting,
    like_a_flag,
    one_node_only,
    overridden,
    pod_blockers,
    pod_findings,
    role_fields,
    too_long,
    unsupported_engine,
    without_device_classes,
)
from airunway_kaito.manifest import MANIFEST, PRESET_NAME, WORKSPACE, Feature, reserved_labels
from airunway_kaito.objects import CHANGE_OF_KIND, launch_of
from airunway_kaito.plan import LONGEST_NAME, NODES_OF, SET_SUFFIX, Plan, is_a_set, may_be_a_set, plan_of
from airunway_kaito.settings import Settings

_CHOOSABLE = (
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
)
"""Kubernetes' own labels that select location or architecture of a new node and give it no role."""


def compatibility(deployment: ModelDeployment, context: Context[Settings]) -> Compatibility:
    """Whether KAITO can honour the deployment: blockers would change what runs, warnings would not."""
    if fundamental := tuple(_fundamental(deployment, context)):
        return Compatibility(blockers=fundamental)
    plan = plan_of(deployment, context)
    blockers = [*_blockers(deployment, context, plan)]
    warnings = [*role_fields(deployment), *_scaling_warnings(deployment, context)]
    if plan.preset:
        # For templates, launch_of reports like_a_flag itself.
        name = tuple(like_a_flag(deployment.spec.model.id or "")) or _not_a_preset(deployment)
        blockers = [*name, *_read_as_configuration(deployment), *blockers]
        warnings += _preset_warnings(deployment, context, plan)
    else:
        found = launch_of(deployment, context)
        blockers = [*found.blockers, *blockers]
        warnings += [*pod_findings(deployment, reserved=reserved_labels(plan.features)), *found.warnings]
    return Compatibility(blockers=tuple(blockers), warnings=tuple(warnings))


def _not_a_preset(deployment: ModelDeployment) -> Iterator[Finding]:
    """The blocker for a model id that is unsafe in the shell command of KAITO's preset container."""
    name = deployment.spec.model.id or ""
    if not PRESET_NAME.fullmatch(name):
        text = (
            f"{name:.100} cannot be the name of a KAITO preset, which a shell reads: write owner/model with letters, "
            "digits, '.', '_' and '-', or set spec.image to run it as a pod template"
        )
        yield blocker("spec.model.id", text)


_READ_BY_VLLM = re.compile(
    r"vllm(-(dp-master|nixl-side-channel|mooncake-bootstrap|moriio-[a-z-]+))?|hf-hub|lmcache-[a-z-]+"
)
"""Services whose port, as Kubernetes announces it to pods, has the name of a setting of vLLM or its libraries."""


def _read_as_configuration(deployment: ModelDeployment) -> Iterator[Finding]:
    """The blocker for a name whose Service the preset's own program would read as a setting.

    KAITO's Service has the deployment's name, and its pods of presets get a variable for each Service of the namespace
    (it does not set ``enableServiceLinks``; templates do).
    """
    name = deployment.metadata.name
    if _READ_BY_VLLM.fullmatch(name):
        variable = f"{name.upper().replace('-', '_')}_PORT"
        text = (
            f"the Service {name} gives pods of a KAITO preset the variable {variable}=tcp://..., which vLLM reads as "
            "its own setting and exits: choose another name, or set spec.image to run the model as a pod template, "
            "which gets no such variables"
        )
        yield blocker("metadata.name", text)


def _fundamental(deployment: ModelDeployment, context: Context[Settings]) -> Iterator[Finding]:
    """Blockers with the exact messages of the seeds; if there is one, no others are reported."""
    yield from unsupported_engine(deployment, context, MANIFEST.engines, who="KAITO")


def _blockers(deployment: ModelDeployment, context: Context[Settings], plan: Plan) -> Iterator[Finding]:
    spec, replicas, gpus = deployment.spec, deployment.spec.scaling.replicas, deployment.spec.resources.gpu.count
    limit = LONGEST_NAME - (len(SET_SUFFIX) if plan.several else 0)
    if found := too_long(deployment.metadata.name, limit=limit, what="KAITO's StatefulSet"):
        yield found
    if plan.several:
        yield from _set_blockers(deployment, plan)
    elif spec.scaling.autoscaling is not None:
        known = "the cluster does not serve InferenceSet v1beta1 (KAITO 0.11), whose number of replicas can change"
        yield blocker("spec.scaling.autoscaling", f"a KAITO Workspace has one replica; {known}")
    elif replicas != 1:
        some = "serves exactly one replica: its Service reaches the first pod only"
        text = some if replicas else "cannot be scaled to zero; set spec.suspend to stop the model"
        known = "the cluster does not serve InferenceSet v1beta1 (KAITO 0.11), which would make more of them"
        yield blocker("spec.scaling.replicas", f"replicas is {replicas}, but a KAITO Workspace {text}; {known}")
    if context.engine == "vllm" and not gpus:
        yield blocker("spec.resources.gpu.count", "vLLM engine requires GPU (set resources.gpu.count > 0)")
    if spec.affinity:
        text = "KAITO replaces the affinity of its pods by the node labels it was given; use spec.nodeSelector"
        yield blocker("spec.affinity", text)
    yield from one_node_only(deployment, who="KAITO")
    yield from pod_blockers(deployment, context)
    why = "its pods ask for GPUs by resource name, as the instance type of the node has them"
    yield from without_device_classes(deployment, who="KAITO", why=why)
    if plan.needs_instance_type and not plan.instance_type and not plan.is_out_of_reach:
        cause = (
            f"nodes are made by {context.settings.node_provisioner}"
            if context.settings.provisions_nodes
            else "this release of KAITO uses nodes of a named instance type only"
        )
        setting = "instanceType" if gpus else "cpuInstanceType"
        text = f"{cause}: set the provider setting {setting}, or spec.provider.overrides.resource.instanceType"
        yield blocker("spec.provider.overrides", text)
    yield from _override_blockers(deployment, plan)
    yield from _node_blockers(deployment, context.settings, plan)


def _scaling_warnings(deployment: ModelDeployment, context: Context[Settings]) -> Iterator[Finding]:
    """What a change of the number of replicas would do to a Workspace that runs."""
    if context.live_kind == WORKSPACE.key and not is_a_set(deployment, context) and may_be_a_set(deployment, context):
        text = f"the deployment runs as a KAITO Workspace, which has one replica: with another number {CHANGE_OF_KIND}"
        yield Finding(path="spec.scaling.replicas", reason="ScalingInterrupts", message=text)


def _set_blockers(deployment: ModelDeployment, plan: Plan) -> Iterator[Finding]:
    """Blockers for what an InferenceSet cannot do although a Workspace can."""
    if plan.is_out_of_reach:
        text = "an InferenceSet takes nodes that exist since KAITO 0.12: upgrade KAITO, or have it make nodes"
        yield blocker("spec.scaling.replicas", f"replicas is {deployment.spec.scaling.replicas}, but {text}")
    if overridden(deployment, "resource", "preferredNodes"):
        yield bad_override("resource.preferredNodes", "an InferenceSet has no preferredNodes: remove them")


def _override_blockers(deployment: ModelDeployment, plan: Plan) -> Iterator[Finding]:
    if Feature.PARTITION not in plan.features and overridden(deployment, "resource", "partition"):
        yield bad_override("resource.partition", "KAITO has resource.partition since release 0.12")
    given = overridden(deployment, "inference")
    for key in ("template",) if plan.preset else ("preset", "adapters"):
        if isinstance(given, dict) and key in given:
            because = f" (because of {', '.join(plan.causes)})" if plan.causes else ""
            runs = f"the deployment runs as a KAITO {'preset' if plan.preset else 'pod template'}{because}"
            yield bad_override(f"inference.{key}", f"{runs}; inference.{key} has no place in it")


def _node_blockers(deployment: ModelDeployment, settings: Settings, plan: Plan) -> Iterator[Finding]:
    """Blockers for machines that the administrator does not allow, and for node labels that are not the user's to set.

    KAITO adds the labels in its node selector to the nodes that it creates.
    """
    wanted = overridden(deployment, "resource", "instanceType")
    # Without a configured machine and without a list, a deployment may name any.
    decided = plan.needs_instance_type and (plan.configured or settings.instance_types)
    named = decided and isinstance(wanted, str) and wanted != plan.configured
    if named and not any(fnmatchcase(wanted, pattern) for pattern in settings.instance_types):
        known = ", ".join(filter(None, (plan.instance_type, *settings.instance_types)))
        text = (
            f"{wanted:.100} is none of the machines that this cluster allows ({known:.300}): leave it out, or have an "
            "administrator add it to the provider setting instanceTypes"
        )
        yield bad_override("resource.instanceType", text)
    if not settings.provisions_nodes:
        return
    labels = overridden(deployment, "resource", "labelSelector", "matchLabels")
    for key in deployment.spec.node_selector:
        if text := _not_for_new_nodes(key):
            yield blocker(f"spec.nodeSelector[{key}]", text)
    for key in labels if isinstance(labels, dict) else ():
        if text := _not_for_new_nodes(key):
            yield bad_override(f"resource.labelSelector.matchLabels[{key}]", text)


def _not_for_new_nodes(key: str) -> str:
    """Why a deployment must not set that label on new nodes; empty if it may."""
    if key == NODES_OF:
        return f"{key} says which deployment a node was made for, and is set by the provider: remove it"
    if key in ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"):
        return f"{key} is decided by spec.provider.overrides.resource.instanceType where KAITO makes nodes: set that"
    domain = f".{key.partition('/')[0]}" if "/" in key else ""
    if domain.endswith((".kubernetes.io", ".k8s.io")) and key not in _CHOOSABLE:
        return f"{key} would become a label of the nodes that KAITO makes, and is Kubernetes' own: remove it"
    return ""


def _preset_warnings(deployment: ModelDeployment, context: Context[Settings], plan: Plan) -> Iterator[Finding]:
    spec = deployment.spec
    if not plan.partition and not overridden(deployment, "resource", "partition"):
        text = (
            f"a KAITO preset uses all GPUs of its node, not exactly {spec.resources.gpu.count}: "
            f"set spec.image (as {context.settings.vllm_image}) for an exact number, "
            "or the provider setting partition (KAITO 0.12)"
        )
        yield ignored("spec.resources.gpu.count", text)
    for name, value in (("memory", spec.resources.memory), ("cpu", spec.resources.cpu)):
        if value:
            text = (
                f"a KAITO preset is sized by its node and requests no {name}; set spec.image to have {value} requested"
            )
            yield ignored(f"spec.resources.{name}", text)
    metadata = spec.pod_template.metadata
    for name, entries in (("labels", metadata.labels), ("annotations", metadata.annotations)):
        if entries:
            text = f"pods of a KAITO preset take no {name} of their own; set spec.image to have them"
            yield ignored(f"spec.podTemplate.metadata.{name}", text)
    instead = "set spec.image to run the model as a pod template, which has them"
    if context.runtime.labels:
        text = f"pods of a KAITO preset take no labels of their own, so they reach no pod; {instead}"
        yield ignored_pod_setting(PodSetting.LABELS, text)
    if context.runtime.runtime_class and spec.resources.gpu.count:
        text = f"pods of a KAITO preset take no runtime class, so it reaches no pod; {instead}"
        yield ignored_pod_setting(PodSetting.RUNTIME_CLASS, text)
    if context.runtime.image_pull_secrets:
        text = f"a KAITO preset pulls KAITO's own image without them, so they reach no pod; {instead}"
        yield ignored_pod_setting(PodSetting.PULL_SECRETS, text)
