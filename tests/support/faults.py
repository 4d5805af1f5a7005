"""Faults on a cluster whose nodes are simulated: what a kubelet would write of a pod, written by a test.

A pod with the outcome `BY_HAND`, which the simulated nodes do not know, is left alone by them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from time import perf_counter
from typing import Any
from uuid import uuid4

from airunway.kube import EVENT, POD, Client, NotFound
from airunway.resource import ObjectKey, Resource, dig, format_time, is_deleting, is_true
from airunway_testing.controlplane.stages import OUTCOME
from airunway_testing.eventually import PATIENCE
from airunway_testing.operator import until

BY_HAND = {OUTCOME: "ByHand"}
"""The annotation of a pod whose kubelet is the test."""


def waiting(reason: str, message: str) -> Resource:
    """The state of a container that waits."""
    return {"waiting": {"reason": reason, "message": message}}


def running() -> Resource:
    """The state of a container that runs since now."""
    return {"running": {"startedAt": format_time(datetime.now(UTC))}}


def ended(code: int, reason: str, message: str = "") -> Resource:
    """The state of a container that has just ended."""
    moment = format_time(datetime.now(UTC))
    terminated = {"exitCode": code, "reason": reason, "message": message, "startedAt": moment, "finishedAt": moment}
    return {"terminated": terminated}


BACK_OFF = waiting("CrashLoopBackOff", "back-off 10s restarting failed container=model pod=x-0")


def failed_create(workload: ObjectKey, kind: str, *, note: str = "forbidden: exceeded quota: none") -> Resource:
    """The event of the controller of a workload (of ``apps``, or a Job) that may not create what it is to."""
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {"name": f"{workload.name}.{uuid4().hex[:16]}", "namespace": workload.namespace},
        "regarding": {
            "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
            "kind": kind,
            "namespace": workload.namespace,
            "name": workload.name,
            "uid": f"uid-of-{kind}",
        },
        "type": "Warning",
        "reason": "FailedCreate",
        "action": "Create",
        "note": note,
        "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": "tests",
        "reportingInstance": "tests",
    }


async def pod_of(client: Client, key: ObjectKey, *, number: int = 0, scheduled: bool = True) -> Resource:
    """A deployment's pod, once it has a node (or at once, if it need not have one). Raises TimeoutError."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                pod = await client.get(POD, ObjectKey(key.namespace, f"{key.name}-{number}"))
            except NotFound:
                pod = {}
            if pod and (dig(pod, "spec", "nodeName") or not scheduled) and not is_deleting(pod):
                return pod
            await asyncio.sleep(0.02)


async def write_pod(
    client: Client, pod: Resource, *, state: Resource, last: Resource | None = None, **container: Any
) -> float:
    """Write the pod's status as its kubelet would; returns when the API server had it (`time.perf_counter`).

    `state` and `last` are those of its container, of whose status `container` replaces further fields.
    """
    ready = bool(container.get("ready"))
    now = format_time(datetime.now(UTC))
    first = dig(pod, "spec", "containers")[0]
    status = {
        "phase": "Running" if ready or last or "running" in state else "Pending",
        "conditions": [
            {"type": type_, "status": "True" if ready else "False", "lastTransitionTime": now}
            for type_ in ("Ready", "ContainersReady")
        ],
        "containerStatuses": [
            {
                "name": first["name"],
                "image": first["image"],
                "imageID": "",
                "ready": ready,
                "restartCount": 1 if last else 0,
                "state": state,
                "lastState": last or {},
                **container,
            }
        ],
    }
    key = ObjectKey(pod["metadata"]["namespace"], pod["metadata"]["name"])
    await client.merge_patch(POD, key, {"status": status}, subresource="status")
    return perf_counter()


def has_cause(code: str) -> Callable[[Resource], bool]:
    """A predicate of deployments: that is the code of the root cause."""
    return lambda deployment: bool(dig(deployment, "status", "rootCause", "code") == code)


def is_clear(deployment: Resource) -> bool:
    """Whether it runs, and nothing is said to be wrong."""
    status = deployment.get("status") or {}
    return status.get("phase") == "Running" and "rootCause" not in status


def parents_are_fine(deployment: Resource) -> bool:
    """Whether no parent condition speaks against it."""
    return all(is_true(deployment, parent) for parent in ("ConfigValid", "AuthValid", "DependenciesReachable"))


async def healed(client: Client, key: ObjectKey) -> Resource:
    """The deployment after the simulated node takes the pod over and makes it ready. Raises TimeoutError."""
    pod = ObjectKey(key.namespace, f"{key.name}-0")
    await client.merge_patch(POD, pod, {"metadata": {"annotations": {OUTCOME: None}}})
    await until(client, key, is_clear, what="recovery")
    return await until(client, key, parents_are_fine, what="the core's parents to follow")
