"""The kinds that only this simulated controller reads and writes."""

from __future__ import annotations

from airunway.kube import Kind
from airunway_vllm_simulator import names

LEADER_WORKER_SET = Kind(names.GROUP, "v1", "LeaderWorkerSet", "leaderworkersets")
CONTROLLER_REVISION = Kind("apps", "v1", "ControllerRevision", "controllerrevisions")
