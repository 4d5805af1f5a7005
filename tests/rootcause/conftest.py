"""Core, KAITO provider and simulated KAITO on a cluster: real scheduler, quota and workload controllers."""

from tests.one_pod import cluster_operator, deploy

__all__ = ["cluster_operator", "deploy"]
