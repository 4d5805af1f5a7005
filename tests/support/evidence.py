"""Pods and events as Kubernetes writes them, at one fixed moment: what root causes are found in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airunway.resource import Resource, format_time
from airunway.status.evidence import Evidence, event_facts, pod_facts

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
IMAGE = "registry.example/team/vllm:1.0"


def at(seconds: float) -> str:
    """A time that many seconds before now."""
    return format_time(NOW - timedelta(seconds=seconds))


def pod(name: str = "llama-0", **status: Any) -> Resource:
    """A pod of the StatefulSet ``llama``; keyword arguments are parts of its status, or metadata and spec whole."""
    metadata = {
        "name": name,
        "namespace": "ml",
        "uid": f"uid-{name}",
        "creationTimestamp": at(300),
        "labels": {"controller-revision-hash": "llama-1"},
        "ownerReferences": [{"kind": "StatefulSet", "name": "llama", "controller": True}],
    }
    metadata |= status.pop("metadata", {})
    spec = {"nodeName": "gpu-0", **status.pop("spec", {})}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending", **status}}


def container(**values: Any) -> Resource:
    return {"containerStatuses": [{"name": "model", "image": IMAGE, "ready": False, "restartCount": 0, **values}]}


def waiting(reason: str, message: str = "", **values: Any) -> Resource:
    return container(state={"waiting": {"reason": reason, "message": message}}, **values)


def ended(code: int, reason: str = "Error", message: str = "", *, ago: float = 5) -> Resource:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message, "finishedAt": at(ago)}}


def crashed(code: int, message: str = "", reason: str = "Error") -> Resource:
    text = "back-off 10s restarting failed container=model"
    return waiting("CrashLoopBackOff", text, lastState=ended(code, reason, message), restartCount=3)


def unschedulable(message: str, *, ago: float = 60) -> Resource:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
        "lastTransitionTime": at(ago),
    }
    return {"conditions": [condition], "spec": {"nodeName": None}}


def event(
    reason: str, note: str, *, kind: str = "Pod", name: str = "llama-0", uid: str = "uid-llama-0", ago: float = 10
) -> Resource:
    return {
        "metadata": {"name": f"{name}.{reason}", "namespace": "ml"},
        "regarding": {"kind": kind, "namespace": "ml", "name": name, "uid": uid},
        "reason": reason,
        "note": note,
        "type": "Warning",
        "deprecatedFirstTimestamp": at(ago + 30),
        "deprecatedLastTimestamp": at(ago),
    }


def refusal(note: str, *, ago: float = 10) -> Resource:
    return event("FailedCreate", note, kind="StatefulSet", name="llama", uid="uid-llama", ago=ago)


def evidence(*pods: Resource, events: tuple[Resource, ...] = (), **more: Any) -> Evidence:
    return Evidence(pods=tuple(map(pod_facts, pods)), events=tuple(map(event_facts, events)), **more)


PULL = f'failed to pull and unpack image "{IMAGE}": failed to resolve reference "{IMAGE}": '
QUOTA = (
    'create Pod llama-0 in StatefulSet llama failed error: pods "llama-0" is forbidden: exceeded quota: gpus, '
    "requested: requests.nvidia.com/gpu=1, used: requests.nvidia.com/gpu=8, limited: requests.nvidia.com/gpu=8"
)
