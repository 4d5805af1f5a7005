"""Simulates the health of an endpoint picker: what it needs to become ready, and what makes it exit (recorded).

Until it knows its pool and may read everything it watches, all its health checks answer NOT_SERVING, including
liveness, without the missing part. Without the rights it exits after two minutes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from airunway_llmd_simulator.programs import Ended, PickerProgram

Readable = tuple[str, str]
"""Group and resource that a picker watches."""

START = 0.4
"""Seconds from process start until it serves, if nothing is missing."""

SYNC_TIMEOUT = 120.0
"""Seconds until it exits if it cannot read everything it watches."""

DRAIN = 30.0
"""Seconds for which it answers after SIGTERM without being ready."""

PODS: Readable = ("", "pods")
POOLS: Readable = ("inference.networking.k8s.io", "inferencepools")
_NEW, _OLD = "llm-d.ai", "inference.networking.x-k8s.io"
_KINDS = ("inferenceobjectives", "inferencemodelrewrites")


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The cluster as a picker finds it."""

    served: frozenset[Readable]
    """Served resources."""
    readable: frozenset[Readable]
    """Resources that its ServiceAccount may read."""
    pool: bool
    """Whether its pool exists."""


@dataclass(frozen=True, kw_only=True)
class Process:
    """A running picker."""

    program: PickerProgram
    started: float
    follows: frozenset[Readable]
    """Resources that it watches, determined at its start by what was served then."""
    synced: bool = False
    """Whether it has read all of them once; never reset."""
    stopped: float | None = None
    """When it received SIGTERM; None if it did not."""


def started(program: PickerProgram, cluster: Cluster, now: float) -> Process | Ended:
    """The new process, or its end if InferencePool v1 is not served."""
    if POOLS not in cluster.served:
        return Ended(code=1, words='no matches for kind "InferencePool" in version "inference.networking.k8s.io/v1"')
    return Process(program=program, started=now, follows=frozenset({PODS, POOLS, *_extras(program, cluster.served)}))


def _extras(program: PickerProgram, served: Collection[Readable]) -> list[Readable]:
    """The kinds of the new group if it is served, else of the old one; only existing kinds."""
    if not program.objectives:
        return []
    for group in (_NEW, _OLD):
        found = [(group, kind) for kind in _KINDS if (group, kind) in served]
        if found:
            return found
    return []


def looked(process: Process, cluster: Cluster, now: float) -> Process | Ended:
    """The process after it checked what it may read, or its end if it waited too long."""
    missing = process.follows - cluster.readable
    if process.synced or (not missing and now - process.started >= START / 2):
        return replace(process, synced=True)
    if now - process.started >= SYNC_TIMEOUT:
        group, resource = min(missing, default=POOLS)
        return Ended(
            code=1,
            words=f'Failed to watch: {resource} is forbidden: User cannot list resource "{resource}" in API group '
            f'"{group}"; timed out waiting for cache sync',
        )
    return process


def health(process: Process, cluster: Cluster, service: str = "inference-extension") -> str:
    """The answer to a gRPC health check, the same for every service name except in releases with `always_serves`."""
    if process.program.always_serves and not service:
        return "SERVING"
    if process.stopped is not None:
        return "NOT_SERVING"
    return "SERVING" if process.synced and cluster.pool and POOLS in cluster.served else "NOT_SERVING"


def terminated(process: Process, now: float) -> Process | Ended:
    """The process after SIGTERM, or its end if the drain time is over."""
    if process.stopped is None:
        return replace(process, stopped=now)
    return Ended(code=0, words="") if now - process.stopped >= DRAIN else process
