"""Labels and annotations of the LeaderWorkerSet controller."""

from __future__ import annotations

GROUP = "leaderworkerset.x-k8s.io"
API_VERSION = f"{GROUP}/v1"
MANAGER = "leaderworkerset"
"""Field manager of the simulator's writes; different from every manager of AI Runway."""
FINALIZER = f"simulator.{GROUP}/lingers"
"""Finalizer of objects that should linger after their deletion; the real controller has none."""

_PREFIX = "leaderworkerset.sigs.k8s.io"
NAME = f"{_PREFIX}/name"
REVISION = f"{_PREFIX}/template-revision-hash"
GROUP_INDEX = f"{_PREFIX}/group-index"
GROUP_KEY = f"{_PREFIX}/group-key"
WORKER_INDEX = f"{_PREFIX}/worker-index"
"""Label of a pod with its position in the group; the leader's is ``0``."""
SIZE = f"{_PREFIX}/size"
LEADER_NAME = f"{_PREFIX}/leader-name"
REPLICAS = f"{_PREFIX}/replicas"
