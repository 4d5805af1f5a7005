"""What stands between a deployment and KAITO: every field that cannot be honoured, by name (spec ruling 18)."""

from __future__ import annotations

from collections.abc import Iterator

from airunway.sdk import (
    Compatibility,
    Context,
    Finding,
    ModelDeployment,
    blocker,
    dig,
    ignored,
    like_a_flag,
    pod_blockers,
    pod_findings,
    role_fields,
    too_long,
)
from airunway_kaito.nodes import node_blockers
from airunway_kaito.objects import RESERVED_LABEL_PREFIXES, launch_of
from airunway_kaito.plan import Mode, Plan, plan_of
from airunway_kaito.schemas import PARTITION
from airunway_kaito.settings import Settings

__all__ = ["compatibility"]

_ENGINES = ("vllm", "llamacpp")
_LONGEST_SET = 46
"""A StatefulSet's name has at most 52 letters, or its pods are refused; KAITO appends six to the InferenceSet's."""


def compatibility(deployment: ModelDeployment, context: Context[Settings]) -> Compatibility:
    """Blockers change what runs; warnings do not."""
    fundamental = [*_fundamental(deployment, context)]
    if fundamental:
        return Compatibility(blockers=tuple(fundamental))
    plan = plan_of(deployment, context)
    blockers, warnings = [*_blockers(deployment, context, plan)], [*role_fields(deployment)]
    if plan.mode is Mode.PRESET:
        blockers = [*like_a_flag(deployment.spec.model.id or ""), *blockers]  # a template's launch says the same
        warnings += _preset_warnings(deployment, plan)
    else:
        found = launch_of(deployment, context, plan)
        blockers = [*found.blockers, *blockers]
        warnings += [*pod_findings(deployment, reserved=RESERVED_LABEL_PREFIXES), *found.warnings]
    return Compatibility(blockers=tuple(blockers), warnings=tuple(warnings))


def _fundamental(deployment: ModelDeployment, context: Context[Settings]) -> Iterator[Finding]:
    """The seeds' own messages, word for word; with one of these nothing else is worth saying."""
    spec = deployment.spec
    if context.engine not in _ENGINES:
        yield blocker("spec.engine.type", f"KAITO does not support {context.engine} engine")
    if spec.serving.mode == "disaggregated":
        yield blocker("spec.serving.mode", "KAITO does not support disaggregated mode")


def _blockers(deployment: ModelDeployment, context: Context[Settings], plan: Plan) -> Iterator[Finding]:
    spec = deployment.spec
    if plan.several:
        yield from _set_blockers(deployment, plan)
    elif spec.scaling.replicas != 1:
        text = (
            "a KAITO Workspace cannot be scaled to zero; set spec.suspend to stop the model"
            if spec.scaling.replicas == 0
            else "a KAITO Workspace serves exactly one replica: its Service reaches the first pod only"
        )
        known = "the cluster does not serve InferenceSet v1beta1 (KAITO 0.11), which would make more of them"
        yield blocker("spec.scaling.replicas", f"replicas is {spec.scaling.replicas}, but {text}; {known}")
    if context.engine == "vllm" and spec.resources.gpu.count == 0:
        yield blocker("spec.resources.gpu.count", "vLLM engine requires GPU (set resources.gpu.count > 0)")
    if spec.affinity:
        text = "KAITO replaces the affinity of its pods by the node labels it was given; use spec.nodeSelector"
        yield blocker("spec.affinity", text)
    yield from pod_blockers(deployment, context)
    if plan.needs_instance_type and not plan.instance_type and not plan.is_out_of_reach:
        setting = "instanceType" if spec.resources.gpu.count else "cpuInstanceType"
        cause = (
            f"nodes are made by {plan.settings.node_provisioner}"
            if plan.settings.provisions_nodes
            else "this release of KAITO uses nodes of a named instance type only"
        )
        text = f"{cause}: set the provider setting {setting}, or spec.provider.overrides.resource.instanceType"
        yield blocker("spec.provider.overrides", text)
    yield from _override_conflicts(deployment, plan)
    yield from node_blockers(deployment, plan)


def _set_blockers(deployment: ModelDeployment, plan: Plan) -> Iterator[Finding]:
    """What an InferenceSet cannot do, although a Workspace can."""
    if plan.is_out_of_reach:
        text = "an InferenceSet takes nodes that exist since KAITO 0.12: upgrade KAITO, or have it make nodes"
        yield blocker("spec.scaling.replicas", f"replicas is {deployment.spec.scaling.replicas}, but {text}")
    if dig(deployment.spec.provider.overrides, "resource", "preferredNodes"):
        path = "spec.provider.overrides.resource.preferredNodes"
        yield blocker(path, "an InferenceSet has no preferredNodes: remove them", "InvalidOverride")
    if found := too_long(deployment.metadata.name, limit=_LONGEST_SET, what="the StatefulSets of an InferenceSet"):
        yield found


def _override_conflicts(deployment: ModelDeployment, plan: Plan) -> Iterator[Finding]:
    if PARTITION not in plan.features and dig(deployment.spec.provider.overrides, "resource", "partition"):
        path = "spec.provider.overrides.resource.partition"
        yield blocker(path, "KAITO has resource.partition since release 0.12", "InvalidOverride")
    overridden = dig(deployment.spec.provider.overrides, "inference", default={})
    wrong = ("template",) if plan.mode is Mode.PRESET else ("preset", "adapters")
    for key in wrong:
        if isinstance(overridden, dict) and key in overridden:
            because = f" (because of {', '.join(plan.causes)})" if plan.mode is Mode.TEMPLATE else ""
            text = f"the deployment runs as a KAITO {_words(plan.mode)}{because}; inference.{key} has no place in it"
            yield blocker(f"spec.provider.overrides.inference.{key}", text, "InvalidOverride")


def _words(mode: Mode) -> str:
    return "preset" if mode is Mode.PRESET else "pod template"


def _preset_warnings(deployment: ModelDeployment, plan: Plan) -> Iterator[Finding]:
    spec = deployment.spec
    if not plan.partition and not dig(spec.provider.overrides, "resource", "partition"):
        text = (
            f"a KAITO preset uses all GPUs of its node, not exactly {spec.resources.gpu.count}: "
            f"set spec.image (as {plan.settings.vllm_image}) for an exact number, "
            "or the provider setting partition (KAITO 0.12)"
        )
        yield ignored("spec.resources.gpu.count", text)
    for name, value in (("memory", spec.resources.memory), ("cpu", spec.resources.cpu)):
        if value:
            text = (
                f"a KAITO preset is sized by its node and requests no {name}; set spec.image to have {value} requested"
            )
            yield ignored(f"spec.resources.{name}", text)
    for name, entries in (
        ("labels", spec.pod_template.metadata.labels),
        ("annotations", spec.pod_template.metadata.annotations),
    ):
        if entries:
            text = f"pods of a KAITO preset take no {name} of their own; set spec.image to have them"
            yield ignored(f"spec.podTemplate.metadata.{name}", text)
