"""An endpoint picker as its health tells it: what it has to know before it is ready, and what ends it (recorded).

It names nothing of what it lacks: until it knows its pool and may read everything that it looks for it is NOT_SERVING,
liveness included; without the right to that it ends after two minutes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from airunway_llmd_simulator.programs import Ended, PickerProgram

__all__ = [
    "DRAIN",
    "START",
    "SYNC_TIMEOUT",
    "Cluster",
    "Process",
    "Readable",
    "health",
    "looked",
    "started",
    "terminated",
]

Readable = tuple[str, str]
"""Group and resource of what a picker follows."""

START = 0.4
"""Seconds from the start of the process until it serves, where nothing is missing."""

SYNC_TIMEOUT = 120.0
"""Seconds after which it ends if it could not read everything that it looks for."""

DRAIN = 30.0
"""Seconds for which it answers after SIGTERM, and is not ready."""

PODS: Readable = ("", "pods")
POOLS: Readable = ("inference.networking.k8s.io", "inferencepools")
_NEW, _OLD = "llm-d.ai", "inference.networking.x-k8s.io"
_KINDS = ("inferenceobjectives", "inferencemodelrewrites")


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """What a picker finds: the kinds that are served, what its account may read, and whether its pool exists."""

    served: frozenset[Readable]
    readable: frozenset[Readable]
    pool: bool


@dataclass(frozen=True, kw_only=True)
class Process:
    """A picker that runs. `follows` was settled when it started, by what was served then; `synced` stays."""

    program: PickerProgram
    started: float
    follows: frozenset[Readable]
    synced: bool = False
    stopped: float | None = None


def started(program: PickerProgram, cluster: Cluster, now: float) -> Process | Ended:
    """The process, or its end where there is no InferencePool of version 1."""
    if POOLS not in cluster.served:
        return Ended(code=1, words='no matches for kind "InferencePool" in version "inference.networking.k8s.io/v1"')
    return Process(program=program, started=now, follows=frozenset({PODS, POOLS, *_extras(program, cluster.served)}))


def _extras(program: PickerProgram, served: Collection[Readable]) -> list[Readable]:
    """The new group where it is served, else the old one; each kind only where it exists."""
    if not program.objectives:
        return []
    for group in (_NEW, _OLD):
        found = [(group, kind) for kind in _KINDS if (group, kind) in served]
        if found:
            return found
    return []


def looked(process: Process, cluster: Cluster, now: float) -> Process | Ended:
    """The process after a look at what it may read; its end where it waited for too long."""
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
    """The answer to a gRPC health check, the same for every service name unless the release is of another kind."""
    if process.program.always_serves and not service:
        return "SERVING"
    if process.stopped is not None:
        return "NOT_SERVING"
    return "SERVING" if process.synced and cluster.pool and POOLS in cluster.served else "NOT_SERVING"


def terminated(process: Process, now: float) -> Process | Ended:
    """What SIGTERM makes of it, now or when it was sent."""
    if process.stopped is None:
        return replace(process, stopped=now)
    return Ended(code=0, words="") if now - process.stopped >= DRAIN else process
