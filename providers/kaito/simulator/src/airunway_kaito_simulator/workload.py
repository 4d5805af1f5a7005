"""Builds the objects that KAITO 0.12 creates for a Workspace: revision, Services, a StatefulSet (facts 12 to 15)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from airunway.resource import Resource, copy_of, dig, digest, key_of, labels_of, owner_reference
from airunway.sdk.typed_pods import typed_pods
from airunway_kaito_simulator import names
from airunway_kaito_simulator.nodes import affinity_terms, gpus_per_node

PORT = 5000
BASE_IMAGE = "mcr.microsoft.com/aks/kaito/kaito-base:0.5.0"
PULLER_IMAGE = "mcr.microsoft.com/aks/skopeo:1.14.4-6"
BENCHMARK_PROBE = "/workspace/vllm/benchmark_entrypoint.py"
_PORTS = {"http": (80, PORT), "ray": (6379, 6379), "dashboard": (8265, 8265), "kv-events": (5557, 5557)}
_TOLERATIONS: list[Resource] = [
    {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "sku", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"},
    {"key": "kubernetes.azure.com/scalesetpriority", "operator": "Equal", "value": "spot", "effect": "NoSchedule"},
]


def workspace_hash(workspace: Resource) -> str:
    """Digest of ``resource`` and ``inference``, whose changes create a new revision; labels do not."""
    return digest({"resource": workspace.get("resource"), "inference": typed_pods(workspace.get("inference"))})


def typed_template(spec: Resource) -> Resource | None:
    """The pod template of a Workspace, or of those of an InferenceSet, as KAITO's types write it; None if there is none
    or it has that form already.
    """
    template: Resource | None = dig(spec, "inference", "template")
    typed: Resource = typed_pods(template)
    return typed if typed != template else None


def is_preset(workspace: Resource) -> bool:
    return dig(workspace, "inference", "preset") is not None


def target_count(workspace: Resource) -> int:
    """The number of wanted nodes, which is also the number of pods."""
    return int(dig(workspace, "resource", "count", default=1))


def headless_name(workspace: Resource) -> str:
    return f"{key_of(workspace).name}-headless"


def runs_benchmark(stateful_set: Resource) -> bool:
    """Whether the pods were created with the benchmark; later edits of the annotation have no effect (fact 18)."""
    containers = dig(stateful_set, "spec", "template", "spec", "containers", default=[])
    return any(BENCHMARK_PROBE in dig(c, "startupProbe", "exec", "command", default=[]) for c in containers)


def controller_revision(workspace: Resource, existing: Iterable[Resource]) -> Resource:
    """The revision for the Workspace's present content, with a number above all `existing` ones."""
    digits = workspace_hash(workspace)
    meta = _metadata(workspace, name=f"{key_of(workspace).name}-{digits[:5]}")
    meta["labels"] = {names.REVISION_OWNER: key_of(workspace).name}
    meta["annotations"] = {names.HASH: digits}
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": meta,
        "revision": 1 + max((int(r.get("revision", 0)) for r in existing), default=0),
        "data": {"resource": workspace.get("resource"), "inference": workspace.get("inference")},
    }


def service(workspace: Resource) -> Resource:
    """The Service ``<name>``: target port 5000 for any container, and endpoints before readiness."""
    name = key_of(workspace).name
    ports = [
        {"name": port, "protocol": "TCP", "port": number, "targetPort": target}
        for port, (number, target) in _PORTS.items()
    ]
    selector = {**_selector(workspace), "statefulset.kubernetes.io/pod-name": f"{name}-0"}
    spec = {"type": "ClusterIP", "publishNotReadyAddresses": True, "ports": ports, "selector": selector}
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(workspace, name=name), "spec": spec}


def headless_service(workspace: Resource) -> Resource:
    spec = {
        "type": "ClusterIP",
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": _selector(workspace),
    }
    metadata = _metadata(workspace, name=headless_name(workspace))
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def stateful_set(workspace: Resource, nodes: Sequence[Resource]) -> Resource:
    """The StatefulSet ``<name>``. It and its pods do not get the Workspace's labels (fact 14)."""
    metadata = _metadata(workspace, name=key_of(workspace).name)
    spec: Resource = {
        "replicas": dig(workspace, "status", "targetNodeCount", default=target_count(workspace)),
        "selector": {"matchLabels": _pod_labels(workspace)},
    }
    if is_preset(workspace):
        metadata["annotations"] = {names.REVISION: _revision(workspace)}
        spec["serviceName"] = headless_name(workspace)
        spec["podManagementPolicy"] = "Parallel"
        spec["persistentVolumeClaimRetentionPolicy"] = {"whenDeleted": "Delete", "whenScaled": "Retain"}
        spec["template"] = {"metadata": {"labels": _pod_labels(workspace)}, "spec": _preset_pod(workspace, nodes)}
    else:
        spec["podManagementPolicy"] = "OrderedReady"
        spec["template"] = _template_pod(workspace)
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec}


def revised_stateful_set(workspace: Resource, live: Resource) -> Resource | None:
    """A merge patch for a preset's StatefulSet with another revision; None if there is nothing to change.

    Environment, volumes and init containers follow `inference.config` and `inference.adapters`; command, image and
    resources never change (fact 17). Changes of a pod template are ignored (fact 18).
    """
    revision = _revision(workspace)
    if not is_preset(workspace) or dig(live, "metadata", "annotations", names.REVISION) == revision:
        return None
    containers = copy_of({"containers": dig(live, "spec", "template", "spec", "containers")})["containers"]
    containers[0]["env"] = _environment(workspace)
    containers[0]["volumeMounts"] = _mounts(workspace)
    pod = {"containers": containers, "volumes": _volumes(workspace), "initContainers": _pullers(workspace) or None}
    return {"metadata": {"annotations": {names.REVISION: revision}}, "spec": {"template": {"spec": pod}}}


def _metadata(workspace: Resource, *, name: str) -> Resource:
    return {"name": name, "namespace": key_of(workspace).namespace, "ownerReferences": [owner_reference(workspace)]}


def _selector(workspace: Resource) -> dict[str, str]:
    return {names.WORKSPACE: key_of(workspace).name}


def _pod_labels(workspace: Resource) -> dict[str, str]:
    """Labels of the pods; those of an InferenceSet's Workspace have one more, which its Services do not select."""
    of = labels_of(workspace).get(names.CREATED_BY)
    return {**({names.CREATED_BY: of} if of else {}), **_selector(workspace)}


def _revision(workspace: Resource) -> str:
    return str(dig(workspace, "metadata", "annotations", names.REVISION, default=""))


def _affinity(workspace: Resource) -> Resource:
    terms = [{"matchExpressions": affinity_terms(workspace)}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def _template_pod(workspace: Resource) -> Resource:
    template = copy_of(dig(workspace, "inference", "template", default={}))
    metadata = template.setdefault("metadata", {})
    metadata["labels"] = {**(metadata.get("labels") or {}), **_pod_labels(workspace)}
    pod = template.setdefault("spec", {})
    pod["affinity"] = _affinity(workspace)
    pod["tolerations"] = [*(pod.get("tolerations") or []), *copy_of({"t": _TOLERATIONS})["t"]]
    return template


def _preset_pod(workspace: Resource, nodes: Sequence[Resource]) -> Resource:
    gpus = str(gpus_per_node(workspace, nodes))
    health = {"httpGet": {"path": "/health", "port": PORT}}
    benchmarked = dig(workspace, "metadata", "annotations", names.DISABLE_BENCHMARK) != "true"
    benchmark = {"exec": {"command": ["python3", BENCHMARK_PROBE]}, "timeoutSeconds": 600}
    container = {
        "name": key_of(workspace).name,
        "image": BASE_IMAGE,
        "command": _preset_command(workspace, gpus=gpus),
        "ports": [{"name": "http", "containerPort": PORT}, {"name": "kv-events", "containerPort": 5557}],
        "env": _environment(workspace),
        "resources": {"limits": {"nvidia.com/gpu": gpus}, "requests": {"nvidia.com/gpu": gpus}},
        "volumeMounts": _mounts(workspace),
        "livenessProbe": health,
        "readinessProbe": {**health, "initialDelaySeconds": 30},
        "startupProbe": {**(benchmark if benchmarked else health), "failureThreshold": 180},
    }
    pod: Resource = {
        "containers": [container],
        "volumes": _volumes(workspace),
        "affinity": _affinity(workspace),
        "tolerations": copy_of({"t": _TOLERATIONS})["t"],
    }
    pullers = _pullers(workspace)
    return {**pod, "initContainers": pullers} if pullers else pod


def _preset_command(workspace: Resource, *, gpus: str) -> list[str]:
    """The part of KAITO's command that depends only on the Workspace; the rest comes from its model catalog."""
    model = str(dig(workspace, "inference", "preset", "name", default="")).lower()
    command = ["python3", "/workspace/vllm/inference_api.py", f"--model={model}"]
    command.append(f"--served-model-name={model.rsplit('/', 1)[-1]}")
    if dig(workspace, "resource", "partition") is None:
        command.append(f"--data-parallel-size={gpus}")
    if _config(workspace):
        command.append(f"--kaito-config-file=/mnt/config/{names.CONFIG_KEY}")
    return command


def _config(workspace: Resource) -> str:
    return str(dig(workspace, "inference", "config", default=""))


def _adapters(workspace: Resource) -> list[tuple[str, Resource]]:
    adapters = dig(workspace, "inference", "adapters", default=[])
    return [(str(dig(adapter, "source", "name", default="")), adapter) for adapter in adapters]


def _environment(workspace: Resource) -> list[Resource]:
    variables: list[Resource] = []
    secret = dig(workspace, "inference", "preset", "presetOptions", "modelAccessSecret")
    if secret:
        reference = {"name": secret, "key": "HF_TOKEN", "optional": True}
        variables.append({"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": reference}})
    variables.extend(
        {"name": name, "value": str(adapter.get("strength") or "1.0")} for name, adapter in _adapters(workspace)
    )
    return variables


def _volumes(workspace: Resource) -> list[Resource]:
    volumes: list[Resource] = []
    if _config(workspace):
        volumes.append({"name": "config-volume", "configMap": {"name": _config(workspace), "defaultMode": 420}})
    volumes.append({"name": "dshm", "emptyDir": {"medium": "Memory"}})
    if _adapters(workspace):
        volumes.append({"name": "adapter-volume", "emptyDir": {}})
    volumes.append({"name": "model-weights-volume", "emptyDir": {}})
    return volumes


def _mounts(workspace: Resource) -> list[Resource]:
    mounts = [
        {"name": "model-weights-volume", "mountPath": "/workspace/weights"},
        {"name": "dshm", "mountPath": "/dev/shm"},
    ]
    if _config(workspace):
        mounts.insert(0, {"name": "config-volume", "mountPath": "/mnt/config"})
    if _adapters(workspace):
        mounts.append({"name": "adapter-volume", "mountPath": "/mnt/adapter"})
    return mounts


def _pullers(workspace: Resource) -> list[Resource]:
    return [
        {
            "name": f"puller-{name}",
            "image": PULLER_IMAGE,
            "command": ["skopeo", "copy", f"docker://{dig(adapter, 'source', 'image', default='')}"],
            "volumeMounts": [{"name": "adapter-volume", "mountPath": "/mnt/adapter"}],
        }
        for name, adapter in _adapters(workspace)
    ]
