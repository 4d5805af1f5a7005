"""What caches keep of the pods of our own Jobs."""

from __future__ import annotations

from airunway.resource import Resource

__all__ = ["job_pod"]


def job_pod(pod: Resource) -> Resource:
    """Returns a pod of a Job without its containers' specs, which are large and known."""
    spec, metadata = pod.get("spec") or {}, pod.get("metadata") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {key: value for key, value in metadata.items() if key not in ("managedFields", "annotations")},
        "spec": {key: spec[key] for key in ("nodeName", "schedulingGates") if key in spec},
        "status": pod.get("status") or {},
    }
