"""The desired objects: a Workspace and, for a preset, the ConfigMap that configures its engine."""

from __future__ import annotations

import re
from typing import Any

from airunway.api import names
from airunway.api.modeldeployment import ModelDeployment
from airunway.engines import engine_arguments, literal
from airunway.plugins.contract import Context
from airunway.resource import Resource, canonical_json, digest
from airunway_kaito.models import LLAMA_SERVER, gguf_arguments, llamacpp_dialect
from airunway_kaito.plan import PORT, Mode, Plan, plan_of, served_name_of
from airunway_kaito.schemas import api_version_of

__all__ = ["CONSUMED_ARGS", "RESERVED_LABEL_PREFIXES", "desired_objects", "pod_labels", "quoted"]

CONSUMED_ARGS = ("ggufUrl",)
"""Keys of ``spec.engine.args`` that are no flags of llama.cpp but say where the model file is."""

RESERVED_LABEL_PREFIXES = (f"{names.GROUP}/", "kaito.sh/", "inferenceset.kaito.sh/")
"""Pods are selected and owned by these: a user's label cannot take their place."""

_CONTAINER = "model"
_SHARED_MEMORY = "airunway-dshm"
_HASH_LENGTH = 8
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_CACHE_VARIABLES = {"modelCache": "HF_HOME", "compilationCache": "VLLM_CACHE_ROOT"}


def desired_objects(deployment: ModelDeployment, context: Context) -> list[Resource]:
    """The Workspace first, then what must exist before it. Raises SettingsError if a setting is wrong."""
    plan = plan_of(deployment, context)
    config = _inference_config(deployment) if plan.mode is Mode.PRESET else None
    workspace: Resource = {
        "apiVersion": api_version_of(context),
        "kind": "Workspace",
        "metadata": {
            "name": deployment.metadata.name,
            "labels": {
                f"{names.GROUP}/model-source": deployment.spec.model.source,
                f"{names.GROUP}/engine-type": context.engine,
            },
        },
        "resource": _resource(plan),
    }
    if config is None:
        workspace["inference"] = {"template": _pod_template(deployment, context, plan)}
        return [workspace]
    # Without the second one KAITO runs a benchmark after every start and reports a failed one as not ready.
    workspace["metadata"]["annotations"] = {"kaito.sh/runtime": "vllm", "kaito.sh/disable-benchmark": "true"}
    workspace["inference"] = {"preset": _preset(deployment), "config": config["metadata"]["name"]}
    return [workspace, config]


def pod_labels(deployment: ModelDeployment) -> dict[str, str]:
    """The user's pod labels that can be honoured."""
    labels = deployment.spec.pod_template.metadata.labels
    return {key: value for key, value in labels.items() if not key.startswith(RESERVED_LABEL_PREFIXES)}


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


def _pod_template(deployment: ModelDeployment, context: Context, plan: Plan) -> Resource:
    spec = deployment.spec
    container = _llamacpp(deployment, plan) if plan.mode is Mode.LLAMACPP else _vllm(deployment, plan)
    container["env"] = _environment(deployment, context)
    container["resources"] = _container_resources(deployment)
    # What an engine says when it gives up (a gated model, a wrong argument) reaches the pod's status only like this.
    container["terminationMessagePolicy"] = "FallbackToLogsOnError"
    claims = [volume for volume in spec.model.storage.volumes if volume.claim_name and volume.mount_path]
    volumes: list[Resource] = []
    mounts: list[Resource] = []
    if spec.resources.gpu.count:
        # Engines pass tensors between their processes through it; the default of 64 MiB is too little.
        volumes.append({"name": _SHARED_MEMORY, "emptyDir": {"medium": "Memory"}})
        mounts.append({"name": _SHARED_MEMORY, "mountPath": "/dev/shm"})
    for volume in claims:
        claim: Resource = {"claimName": volume.claim_name}
        mount: Resource = {"name": volume.name, "mountPath": volume.mount_path}
        if volume.read_only:
            claim["readOnly"] = mount["readOnly"] = True
        volumes.append({"name": volume.name, "persistentVolumeClaim": claim})
        mounts.append(mount)
    container["volumeMounts"] = mounts
    pod = {
        "containers": [_without_empty(container)],
        "volumes": volumes,
        "tolerations": [toleration.to_resource() for toleration in spec.tolerations],
        "serviceAccountName": spec.service_account_name,
        "imagePullSecrets": [reference.to_resource() for reference in spec.image_pull_secrets],
        "priorityClassName": spec.priority_class_name,
        "topologySpreadConstraints": spec.topology_spread_constraints,
    }
    metadata = {
        "labels": {
            **context.runtime.labels,
            **pod_labels(deployment),
            names.MANAGED_BY: names.MANAGED_BY_VALUE,
            names.MODEL_DEPLOYMENT: deployment.metadata.name,
        },
        "annotations": spec.pod_template.metadata.annotations,
    }
    return {"metadata": _without_empty(metadata), "spec": _without_empty(pod)}


def _vllm(deployment: ModelDeployment, plan: Plan) -> Resource:
    spec = deployment.spec
    flags = engine_arguments(
        deployment, engine="vllm", served_name=served_name_of(deployment), gpus=spec.resources.gpu.count
    )
    custom = spec.model.source == "custom"
    model = [] if custom else [literal(spec.model.id or "")]
    return {
        "name": _CONTAINER,
        "image": plan.image,
        # An image with a model of its own knows what to start; of others only the command is known.
        "command": [] if custom else ["vllm", "serve"],
        "args": [*model, f"--port={PORT}", *flags.argv],
        "ports": [{"name": "http", "containerPort": PORT}],
        "startupProbe": {**_health_probe(), "periodSeconds": 30, "failureThreshold": 120},
        "readinessProbe": _health_probe(),
    }


def _health_probe() -> Resource:
    return {"httpGet": {"path": "/health", "port": PORT}}


def _llamacpp(deployment: ModelDeployment, plan: Plan) -> Resource:
    dialect = llamacpp_dialect(plan.image)
    flags = engine_arguments(
        deployment,
        engine="llamacpp",
        dialect=dialect,
        served_name=served_name_of(deployment),
        gpus=deployment.spec.resources.gpu.count,
        consumed=CONSUMED_ARGS,
    )
    address = ["--host", "0.0.0.0", "--port", str(PORT)] if dialect == LLAMA_SERVER else [f"--address=:{PORT}"]
    return {
        "name": _CONTAINER,
        "image": plan.image,
        "args": [*map(literal, gguf_arguments(deployment, dialect)), *address, *flags.argv],
        "ports": [{"name": "http", "containerPort": PORT}],
        "startupProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 10, "failureThreshold": 180},
        "readinessProbe": {"tcpSocket": {"port": PORT}},
    }


def _environment(deployment: ModelDeployment, context: Context) -> list[Resource]:
    """Runtime config, then the deployment's variables, then what follows from its other fields; later ones win.

    Only a variable of the deployment itself wins over what is derived.
    """
    spec = deployment.spec
    variables: dict[str, Resource] = {str(entry.get("name")): entry for entry in context.runtime.env}
    own = {entry.name: entry.to_resource() for entry in spec.env}
    variables.update(own)
    if (token := spec.secrets.hugging_face_token) and "HF_TOKEN" not in own:
        reference = {"secretKeyRef": {"name": token, "key": "HF_TOKEN"}}
        variables["HF_TOKEN"] = {"name": "HF_TOKEN", "valueFrom": reference}
    for volume in spec.model.storage.volumes:
        name = _CACHE_VARIABLES.get(volume.purpose)
        if name and volume.mount_path and name not in own:
            variables[name] = {"name": name, "value": literal(volume.mount_path)}
    return list(variables.values())


def _container_resources(deployment: ModelDeployment) -> Resource:
    resources = deployment.spec.resources
    gpus = {resources.gpu.type: str(resources.gpu.count)} if resources.gpu.count else {}
    memory = {"memory": resources.memory} if resources.memory else {}
    cpu = {"cpu": resources.cpu} if resources.cpu else {}
    # No limit on CPU: it would only throttle.
    return _without_empty({"requests": {**gpus, **memory, **cpu}, "limits": {**gpus, **memory}})


def _without_empty(fields: dict[str, Any]) -> Resource:
    return {key: value for key, value in fields.items() if value}
