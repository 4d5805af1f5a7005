"""The desired objects: a Workspace, or an InferenceSet with the Service that it lacks; and what configures a preset."""

from __future__ import annotations

import re

from airunway.sdk import (
    Context,
    Launch,
    ModelDeployment,
    Resource,
    canonical_json,
    digest,
    labels,
    launch,
    model_pod,
    served_name_of,
    workloads,
)
from airunway_kaito.plan import PORT, Mode, Plan, plan_of
from airunway_kaito.schemas import CREATED_BY
from airunway_kaito.settings import Settings

__all__ = [
    "OVERRIDES_AT",
    "RESERVED_LABEL_PREFIXES",
    "SERVICE_PORT",
    "desired_objects",
    "launch_of",
    "quoted",
    "serving_pods",
]

RESERVED_LABEL_PREFIXES = ("kaito.sh/", "inferenceset.kaito.sh/")
"""Pods are selected and owned by these: a user's label cannot take their place."""

OVERRIDES_AT = {
    "resource.labelSelector": "spec.labelSelector",
    "resource": "spec.template.resource",
    "inference": "spec.template.inference",
}
"""Where an InferenceSet has what a Workspace has at its top: overrides are written alike for both."""

SERVICE_PORT = 80
"""Of the Service that KAITO makes for a Workspace, and of ours for an InferenceSet: both are called like it."""

_HASH_LENGTH = 8
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def desired_objects(deployment: ModelDeployment, context: Context[Settings]) -> list[Resource]:
    """The Workspace or InferenceSet first, then what must exist before it."""
    plan = plan_of(deployment, context)
    written: Resource = {
        "apiVersion": plan.api_version,
        "kind": plan.kind,
        "metadata": {
            "name": deployment.metadata.name,
            "labels": {
                f"{labels.GROUP}/model-source": deployment.spec.model.source,
                f"{labels.GROUP}/engine-type": context.engine,
            },
        },
    }
    resource, others = _resource(plan), []
    if plan.mode is Mode.PRESET:
        config = _inference_config(deployment)
        # Without the second one KAITO runs a benchmark after every start and reports a failed one as not ready. An
        # InferenceSet hands it on to its Workspaces; on these alone it would wait for results that never come.
        written["metadata"]["annotations"] = {"kaito.sh/runtime": "vllm", "kaito.sh/disable-benchmark": "true"}
        inference: Resource = {"preset": _preset(deployment), "config": config["metadata"]["name"]}
        others.append(config)
    else:
        inference = {"template": _pod_template(deployment, context, plan)}
    if not plan.several:
        return [{**written, "resource": resource, "inference": inference}, *others]
    written["spec"] = {
        "replicas": deployment.spec.scaling.replicas,
        "labelSelector": resource.pop("labelSelector"),
        "template": {"resource": resource, "inference": inference},
    }
    service = workloads.service(deployment, port=SERVICE_PORT, target=PORT)
    service["spec"]["selector"] = serving_pods(deployment.metadata.name)
    return [written, *others, service]


def serving_pods(inference_set: str) -> dict[str, str]:
    """The labels of the pods of an InferenceSet that answer: where a model spans several, the first of each replica."""
    return {CREATED_BY: inference_set, "apps.kubernetes.io/pod-index": "0"}


def launch_of(deployment: ModelDeployment, context: Context[Settings], plan: Plan) -> Launch:
    """How the container of a template is started."""
    image = plan.settings.vllm_image if context.engine == "vllm" else ""
    return launch(deployment, context.engine, port=PORT, image=image)


def _resource(plan: Plan) -> Resource:
    # No `count`: it means nodes, cannot be changed, and only the first pod of several gets traffic.
    resource: Resource = {"labelSelector": {"matchLabels": plan.match_labels}}
    if plan.instance_type:
        resource["instanceType"] = plan.instance_type
    if plan.partition:
        resource["partition"] = {"mode": "accelerator", "count": plan.partition}
    return resource


def _preset(deployment: ModelDeployment) -> Resource:
    preset: Resource = {"name": deployment.spec.model.id or ""}
    if token := deployment.spec.secrets.hugging_face_token:
        preset["presetOptions"] = {"modelAccessSecret": token}
    return preset


def _inference_config(deployment: ModelDeployment) -> Resource:
    """The preset's engine settings.

    The name carries a hash of the content: KAITO follows a change of name in place and never looks at content again.
    """
    settings = {"served-model-name": served_name_of(deployment)}
    if (length := deployment.spec.engine.context_length) is not None:
        settings["max-model-len"] = str(length)
    lines = [f"  {key}: {quoted(settings[key])}" for key in sorted(settings)]
    name = f"{deployment.metadata.name}-inference-config-{digest(settings, length=_HASH_LENGTH)}"
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "immutable": True,
        "data": {"inference_config.yaml": "\n".join(["vllm:", *lines, ""])},
    }


def quoted(text: str) -> str:
    """A JSON string, which is a YAML string too once what YAML does not print or takes for a line break is escaped."""
    return _NOT_IN_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", canonical_json(text).decode())


def _pod_template(deployment: ModelDeployment, context: Context[Settings], plan: Plan) -> Resource:
    pod = model_pod(deployment, context, launch_of(deployment, context, plan), reserved=RESERVED_LABEL_PREFIXES)
    # KAITO puts the Workspace's own selector in their place.
    pod["spec"].pop("nodeSelector", None)
    pod["spec"].pop("affinity", None)
    return pod
