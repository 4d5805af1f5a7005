"""Builds the desired objects: a Workspace, or an InferenceSet with a Service, and the ConfigMap of a preset."""

from __future__ import annotations

from collections.abc import Collection

from airunway.sdk import (
    HARDENED,
    Context,
    Interruption,
    Launch,
    ModelDeployment,
    Resource,
    Translation,
    digest,
    filled,
    labels,
    launch,
    model_pod,
    served_name_of,
    token_secret,
    workloads,
    yaml_json,
)
from airunway_kaito.manifest import API_VERSION, CREATED_BY, INFERENCE_SET, OF_WORKSPACE, WORKSPACE, reserved_labels
from airunway_kaito.plan import PORT, plan_of
from airunway_kaito.settings import Settings

SERVICE_PORT = 80
"""Port of the Service: KAITO creates it for a Workspace, we create it for an InferenceSet; it has the same name."""

CHANGE_OF_KIND = (
    "no model is served until an InferenceSet has loaded it in the Workspace's place, and from then on it scales in "
    "place. To avoid the outage, create a second deployment with that number and another name, send the requests there "
    "once it is Running, and delete this one"
)
"""What a change of the kind means, and the way around."""

_OVERRIDES_AT = {
    "resource.labelSelector": "spec.labelSelector",
    "resource": "spec.template.resource",
    "inference": "spec.template.inference",
}
"""Where an InferenceSet has the fields at the top of a Workspace, so that overrides have one format for both."""


def desired(deployment: ModelDeployment, context: Context[Settings]) -> Translation:
    """The Workspace or InferenceSet first, then the objects that must exist before it."""
    plan = plan_of(deployment, context)
    written: Resource = {
        "apiVersion": API_VERSION,
        "kind": INFERENCE_SET.kind if plan.several else WORKSPACE.kind,
        "metadata": {
            "name": deployment.metadata.name,
            "labels": {
                f"{labels.GROUP}/model-source": deployment.spec.model.source,
                f"{labels.GROUP}/engine-type": context.engine,
            },
        },
    }
    spec, configs = deployment.spec, [_inference_config(deployment)] if plan.preset else []
    if plan.preset:
        # Without the second annotation KAITO runs a benchmark after every start and reports a failed one as not ready.
        # An InferenceSet copies it to its Workspaces; set only there, the InferenceSet would wait for results forever.
        written["metadata"]["annotations"] = {"kaito.sh/runtime": "vllm", "kaito.sh/disable-benchmark": "true"}
        options = filled(modelAccessSecret=token_secret(deployment, context))
        preset = filled(name=spec.model.id, presetOptions=options)
        inference: Resource = {"preset": preset, "config": configs[0]["metadata"]["name"]}
    else:
        inference = {"template": _pod_template(deployment, context, plan.features)}
    # No `count`: it is a number of nodes, cannot be changed, and only the first of several pods gets traffic.
    resource = filled(
        instanceType=plan.instance_type,
        partition={"mode": "accelerator", "count": plan.partition} if plan.partition else None,
    )
    selector = {"matchLabels": plan.match_labels}
    interrupts = {"kind": Interruption(value=written["kind"], message=CHANGE_OF_KIND if plan.several else "")}
    if not plan.several:
        written |= {"resource": {**resource, "labelSelector": selector}, "inference": inference}
        return Translation(objects=(written, *configs), interrupts=interrupts)
    written["spec"] = {
        "replicas": spec.scaling.replicas,
        "labelSelector": selector,
        "template": {"resource": resource, "inference": inference},
    }
    service = workloads.service(deployment, port=SERVICE_PORT, target=PORT)
    service["spec"]["selector"] = serving_pods(deployment.metadata.name)
    return Translation(objects=(written, *configs, service), overrides_at=_OVERRIDES_AT, interrupts=interrupts)


def serving_pods(inference_set: str) -> dict[str, str]:
    """The labels of an InferenceSet's serving pods: if a model spans several pods, the first of each replica."""
    return {CREATED_BY: inference_set, "apps.kubernetes.io/pod-index": "0"}


def serving_pod(workspace: str) -> dict[str, str]:
    """The labels of a Workspace's serving pod, by which KAITO's own Service selects it (recorded, fact 13)."""
    return {OF_WORKSPACE: workspace, "statefulset.kubernetes.io/pod-name": f"{workspace}-0"}


def launch_of(deployment: ModelDeployment, context: Context[Settings]) -> Launch:
    """How the container of a pod template is started."""
    image = context.settings.vllm_image if context.engine == "vllm" else ""
    family = context.settings.ip_family
    return launch(deployment, context.engine, port=PORT, image=image, ip_family=family, cache=context.cache)


def _inference_config(deployment: ModelDeployment) -> Resource:
    """The ConfigMap with the preset's engine settings.

    Its name contains a hash of the content, because KAITO applies a changed name in place but ignores changed content.
    """
    settings = {"served-model-name": served_name_of(deployment)}
    if (length := deployment.spec.engine.context_length) is not None:
        settings["max-model-len"] = str(length)
    lines = [f"  {key}: {yaml_json(settings[key])}" for key in sorted(settings)]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{deployment.metadata.name}-inference-config-{digest(settings, length=8)}"},
        "immutable": True,
        "data": {"inference_config.yaml": "\n".join(["vllm:", *lines, ""])},
    }


def _pod_template(deployment: ModelDeployment, context: Context[Settings], features: Collection[str]) -> Resource:
    started = launch_of(deployment, context)
    return model_pod(
        deployment,
        context,
        started,
        reserved=reserved_labels(features),
        hardened=HARDENED in features,
        without=("nodeSelector", "affinity"),  # KAITO replaces them with the Workspace's selector
    )
