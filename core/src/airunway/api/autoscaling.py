"""``spec.scaling.autoscaling`` of a ModelDeployment, and what a runtime config says about it (docs/autoscaling.md).

The API server writes no defaults here: what is absent stays absent, so that the field adds nothing to other digests.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from airunway.api.base import ApiModel, Count, Duration

DEFAULT_WINDOW, DEFAULT_IDLE_AFTER = "5m", "30m"


class ScalingMetric(StrEnum):
    """What is measured of each replica."""

    REQUESTS = "Requests"
    KV_CACHE = "KVCache"


class Autoscaling(ApiModel):
    """How many replicas run, by their load."""

    min_replicas: Count | None = Field(
        default=None, description="Fewest replicas, a number from 0 (to zero when idle) to 32. Default: 1."
    )
    max_replicas: Count = Field(description="Most replicas, a number from 1 to 32. Required.")
    metric: Literal["Requests", "KVCache"] | None = Field(
        default=None,
        description="What counts: Requests (under way: in work and waiting) or KVCache (percent of the KV cache in "
        "use). Default: Requests.",
    )
    target: Count = Field(
        description="What one replica is to carry, a number: so many requests, or so many percent. Required."
    )
    scale_down_stabilization: Duration = Field(
        default=None,
        description="Time for which fewer replicas must be enough before some are removed, a duration from 0s to 1h. "
        "Default: 5m.",
    )
    idle_after: Duration = Field(
        default=None,
        description="Time without a request after which no replica runs, a duration from 5m to 24h. Only with "
        "minReplicas 0. Default: 30m.",
    )

    @property
    def floor(self) -> int:
        """Fewest replicas."""
        return 1 if self.min_replicas is None else self.min_replicas

    @property
    def measures(self) -> ScalingMetric:
        """What counts."""
        return ScalingMetric(self.metric or ScalingMetric.REQUESTS)

    @property
    def window(self) -> str:
        """Time for which fewer replicas must be enough."""
        return self.scale_down_stabilization or DEFAULT_WINDOW

    @property
    def idle(self) -> str:
        """Time without a request after which no replica runs."""
        return self.idle_after or DEFAULT_IDLE_AFTER

    def within(self, replicas: int) -> int:
        """Returns the number of replicas to run where `replicas` are asked for."""
        return min(max(replicas, self.floor), self.max_replicas)


class AuthenticationReference(ApiModel):
    """KEDA's object with the credentials."""

    kind: Literal["TriggerAuthentication", "ClusterTriggerAuthentication"] | None = Field(
        default=None,
        description="Kind of the object: TriggerAuthentication (of the deployment's namespace) or "
        "ClusterTriggerAuthentication. Default: TriggerAuthentication.",
    )
    name: str = Field(min_length=1, max_length=253, description="Name of the object. Required.")


class PrometheusSpec(ApiModel):
    """The Prometheus that has the metrics of engines."""

    server_address: str = Field(
        max_length=1024, description="URL, such as http://prometheus.monitoring.svc:9090. Required."
    )
    authentication: AuthenticationReference | None = Field(
        default=None, description="Object of KEDA with the credentials. Default: none."
    )


class AutoscalingConfig(ApiModel):
    """What autoscaled deployments have in common."""

    prometheus: PrometheusSpec | None = Field(
        default=None, description="Prometheus that has the metrics of engines. Default: none, nothing is autoscaled."
    )
